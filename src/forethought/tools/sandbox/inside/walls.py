"""What a zygote asks of an isolation: `jail`, `fence` and `plain` are three."""

from collections.abc import Collection, Mapping
from typing import Protocol


class Walls(Protocol):
    """Keeps the calls of one zygote apart from the host and from each other."""

    def prepare(self) -> None:
        """In the supervisor, before it forks the zygote."""
        ...

    def clear(self) -> None:
        """In the supervisor, after the zygote's end, or in a zygote whose supervisor is gone."""
        ...

    def settle(self) -> tuple[str, ...]:
        """In the zygote, once: what all of its calls share. Returns where packages are now."""
        ...

    def open(self, place: int) -> int:
        """In the zygote, before a fork: return the call's init process, 0 where it has none."""
        ...

    def opened(self) -> None:
        """In the zygote, after that fork."""
        ...

    def enter(self, place: int) -> None:
        """In the child: close the walls around it. Afterwards it may run a program."""
        ...

    def users(self) -> Mapping[int, int]:
        """In the zygote: the users that belong to one call each, and which."""
        ...

    def overfull(self, place: int, processes: Collection[int]) -> bool:
        """In the zygote: whether the files of a call with these processes are too much."""
        ...

    def close(self, place: int, others: Collection[int]) -> None:
        """In the zygote: clean up after a call; `others` are the children still alive."""
        ...
