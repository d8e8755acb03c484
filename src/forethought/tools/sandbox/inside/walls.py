"""What a zygote asks of an isolation: two exist, namespaces (`jail`) and `plain` processes."""

from collections.abc import Collection
from typing import Protocol


class Walls(Protocol):
    """Keeps the calls of one zygote apart from the host and from each other."""

    def prepare(self) -> None:
        """In the supervisor, before it forks the zygote."""
        ...

    def clear(self) -> None:
        """In the supervisor, after the zygote's end, or in a zygote whose supervisor is gone."""
        ...

    def settle(self) -> None:
        """In the zygote, once: what all of its calls share."""
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

    def close(self, place: int, others: Collection[int]) -> None:
        """In the zygote: clean up after a call; `others` are the children still alive."""
        ...
