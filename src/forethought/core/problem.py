"""A question whose answer can be checked."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A question with an answer that a grader can check.

    `domain` names the family (for quotas and per-family results), `tools` the tools that may be
    used, `data` whatever else its source or its demonstrators know (never shown to the policy).

    >>> Problem(id="gcd-1", prompt="gcd of 8 and 12?", answer="4", domain="gcd").tools
    ('python',)
    """

    id: str
    prompt: str
    answer: str
    domain: str = "general"
    tools: tuple[str, ...] = ("python",)
    data: Mapping[str, Any] = field(default_factory=dict[str, Any])
