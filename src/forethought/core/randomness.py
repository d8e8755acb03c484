"""Where randomness comes from: seeds that depend on what is sampled, never on arrival order."""

from dataclasses import dataclass
from hashlib import blake2b


def derive_seed(*parts: str | int) -> int:
    """A 63-bit seed from named parts, equal on every machine and in every process.

    >>> derive_seed(0, "curriculum", 3) == derive_seed(0, "curriculum", 3)
    True
    """
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutKey:
    """Which attempt this is: the run's seed, its group (stage, step, place, problem), its number.

    >>> RolloutKey(seed=0, group="rl/3/0/gcd-1", rollout=2).episode
    'rl/3/0/gcd-1/2'
    """

    seed: int
    group: str
    rollout: int

    @property
    def episode(self) -> str:
        """The id of the episode that this attempt becomes."""
        return f"{self.group}/{self.rollout}"

    def turn_seed(self, turn: int) -> int:
        """The seed of the generator that samples turn number `turn`."""
        return derive_seed(self.seed, self.group, self.rollout, turn)
