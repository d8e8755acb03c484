"""Which stages of a run a model is left by. It needs no torch, so that a report can ask."""

from forethought.journal.reading import StageSummary
from forethought.journal.run import Run


def trained_stages(run: Run) -> list[StageSummary]:
    """The training stages that have finished, in the order in which they were begun."""
    return [stage for stage in run.stages() if stage.finished and _trains(stage.name)]


def _trains(stage: str) -> bool:
    return stage == "rl" or stage.startswith("sft_")
