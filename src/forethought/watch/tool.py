"""What a run's sandbox did, stage by stage, and a caution where it was not well.

The stages keep it as a document; an older run's have none.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from forethought.journal.files import intact
from forethought.journal.run import JOURNAL, Run
from forethought.tools.sandbox.usage import Usage, listed, read_usage
from forethought.watch.finding import Finding, Kind

USAGE = "tool"
"""The name of the document that holds what the Python tool's sandbox did in a stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageUsage:
    """What the sandbox did in one stage.

    >>> StageUsage(stage="rl", usage=Usage(ended={"ok": 2, "timeout": 1})).ended
    'ok 2, timeout 1'
    """

    stage: str
    usage: Usage

    @property
    def ended(self) -> str:
        """How programs ended, in words."""
        return listed(self.usage.ended)

    @property
    def replaced(self) -> str:
        """Which servers were replaced, in words."""
        return listed(self.usage.replaced)


def usages(run: Run) -> list[StageUsage]:
    """What every stage kept of its sandbox, in their order. Raises `RecipeError` where damaged."""
    found = ((stage.name, run.document(stage.name, USAGE)) for stage in run.stages())
    with intact(run.path / JOURNAL):
        return [
            StageUsage(stage=name, usage=read_usage(document))
            for name, document in found
            if document is not None
        ]


def unwell(stages: Sequence[StageUsage]) -> list[Finding]:
    """That the sandbox itself failed or had to be mended, and where; nothing where it was well."""
    told = [f"{one.stage}: {one.usage.trouble}" for one in stages if one.usage.trouble]
    if not told:
        return []
    text = (
        f"The Python tool's sandbox was not always well. {'; '.join(told)}. An attempt whose "
        "program could not be run is not measured; `forethought doctor sandbox` shows what the "
        "host allows."
    )
    return [Finding(kind=Kind.CAUTION, text=text)]
