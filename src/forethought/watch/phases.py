"""What a run's recipe says of the phases of imitation, and what that means for its exams.

The recipe is read as it stands in the run; one without phases, a test's say, has none here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from forethought.watch.exams import BEFORE, CONTROL, SatExam, percent
from forethought.watch.finding import Finding, Kind
from forethought.watch.recipe import table


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One phase of imitation: at most `steps`, fewer once a pilot's accuracy is `stop_at`.

    `tool_free` is the share of its demonstrations that call no tool.

    >>> Phase(name="mixed", steps=150, tool_free=0.5, stop_at=None).stage
    'sft_mixed'
    """

    name: str
    steps: int
    tool_free: float
    stop_at: float | None

    @property
    def stage(self) -> str:
        """The name of its stage."""
        return f"sft_{self.name}"


_PHASES = TypeAdapter(list[Phase])


def read_phase(settings: Mapping[str, Any]) -> Phase:
    """A phase from its settings in a recipe."""
    return _PHASES.validate_python([settings])[0]


def read_phases(recipe: Mapping[str, Any]) -> list[Phase]:
    """The phases of a resolved recipe, in order. Raises `ValueError` where they are no phases."""
    found = table(recipe, "sft").get("phases", ())
    try:
        return _PHASES.validate_python(found)
    except ValidationError as error:
        raise ValueError("sft.phases is no list of phases") from error


def ending(phase: Phase, steps: int, pilots: Sequence[tuple[int, float]]) -> str:
    """Why a phase with a target ended after `steps`, in words; empty for one without.

    `pilots` are its pilots' accuracies by step; the last one was held when it ended.

    >>> early = Phase(name="a", steps=900, tool_free=0.0, stop_at=0.48)
    >>> ending(early, 400, [(399, 0.5)])
    'phase a ended early, after 400 of 900 steps: pilot accuracy 50.0 %, target 48.0 % (stop_at)'
    """
    if phase.stop_at is None or not pilots:
        return ""
    last = pilots[-1][1]
    found = f"pilot accuracy {percent(last)}, target {percent(phase.stop_at)} (stop_at)"
    if last >= phase.stop_at and steps < phase.steps:
        return f"phase {phase.name} ended early, after {steps} of {phase.steps} steps: {found}"
    if last < phase.stop_at:
        whole = f"{steps} of {phase.steps} steps without reaching its target"
        return f"phase {phase.name} ended after {whole}: {found}"
    return f"phase {phase.name} reached its target with the last of its {steps} steps: {found}"


def handicap(phases: Sequence[Phase], exams: Sequence[SatExam]) -> Finding | None:
    """What the exam `before` starts from, where its phase showed answers without the tool.

    None where it was not held back so, or was not sat.
    """
    sat = {exam.key: exam for exam in exams}
    if BEFORE not in sat or not phases or not phases[-1].tool_free:
        return None
    last, control = phases[-1], control_phase(phases)
    text = (
        f"The recipe handicaps “{sat[BEFORE].title}” on purpose: {percent(last.tool_free)} of the "
        f"demonstrations of its last phase, {last.name}, solve their problem without the tool, so "
        "that calling it is left for practice to find out. "
    )
    if control is None or CONTROL not in sat:
        text += "No exam from before that phase stands beside it: what is only regained looks new."
    else:
        without = percent(control.tool_free) if control.tool_free else "none"
        text += (
            f"For that reason “{sat[CONTROL].title}” stands beside it: an earlier checkpoint, of "
            f"whose demonstrations {without} solve their problem without the tool. What exceeds "
            f"“{sat[BEFORE].title}” but not “{sat[CONTROL].title}” may be no more than regained; "
            "what exceeds both may also be owed to the imitation between them."
        )
    return Finding(kind=Kind.CAUTION, text=text)


def control_phase(phases: Sequence[Phase]) -> Phase | None:
    """The phase that the control exam follows, if the last has more demonstrations tool-free."""
    named = (one for one in phases[:-1] if one.name == CONTROL)
    return next((one for one in named if one.tool_free < phases[-1].tool_free), None)
