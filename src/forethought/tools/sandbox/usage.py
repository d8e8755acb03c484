"""What a sandbox did while it was open: how programs ended, what they waited, what was replaced.

Not how far to trust it (`probe`), nor when its failures stop a run (`breaker`).
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import TypeAdapter

INFRASTRUCTURE = "infrastructure"
"""What calls are counted under that no server could run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Programs by how they ended, servers that were replaced by why, and seconds waited in all.

    >>> once = Usage(ended={"ok": 3, "timeout": 1}, queued=2.0)
    >>> (once + once).ended["timeout"], (once + once).queued_each
    (2, 0.5)
    >>> once.since(once)
    Usage(ended={}, replaced={}, queued=0.0)
    """

    ended: Mapping[str, int] = field(default_factory=dict[str, int])
    replaced: Mapping[str, int] = field(default_factory=dict[str, int])
    queued: float = 0.0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            ended=dict(Counter(self.ended) + Counter(other.ended)),
            replaced=dict(Counter(self.replaced) + Counter(other.replaced)),
            queued=self.queued + other.queued,
        )

    def since(self, earlier: "Usage") -> "Usage":
        """What came after `earlier`, of which all is in this one, too."""
        return Usage(
            ended=dict(Counter(self.ended) - Counter(earlier.ended)),
            replaced=dict(Counter(self.replaced) - Counter(earlier.replaced)),
            queued=self.queued - earlier.queued,
        )

    @property
    def programs(self) -> int:
        """How many programs there were."""
        return sum(self.ended.values())

    @property
    def queued_each(self) -> float:
        """Seconds that a program waited, on average."""
        return self.queued / self.programs if self.programs else 0.0

    @property
    def trouble(self) -> str:
        """What went wrong with the sandbox itself, in words; empty where nothing did.

        >>> Usage(ended={"ok": 8, "infrastructure": 1}, replaced={"dead": 1, "rebuilt": 2}).trouble
        '1 of 9 programs could not be run, servers were replaced (dead 1, rebuilt 2)'
        """
        found: list[str] = []
        if lost := self.ended.get(INFRASTRUCTURE):
            found.append(f"{lost} of {self.programs} programs could not be run")
        if self.replaced:
            found.append(f"servers were replaced ({listed(self.replaced)})")
        return ", ".join(found)


def listed(counts: Mapping[str, int]) -> str:
    """Each name with its count, in words.

    >>> listed({"ok": 7, "memory_limit": 1})
    'memory limit 1, ok 7'
    """
    return ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in sorted(counts.items()))


_USAGE = TypeAdapter(Usage)


def read_usage(document: Mapping[str, object]) -> Usage:
    """The usage that was kept as a document. Raises `ValueError` where it is none."""
    return _USAGE.validate_python(document)
