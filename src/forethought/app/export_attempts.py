"""A run's attempts as one file of JSON lines, for other programs.

What a line holds is in `journal.export`; a run's model leaves by `app.export`.
"""

import shlex
from pathlib import Path

from forethought.app.places import new_place
from forethought.app.show import Show
from forethought.core.errors import RecipeError
from forethought.journal.export import export_jsonl
from forethought.journal.files import explained
from forethought.journal.run import Run


def export_attempts(run: Run, file: Path, stage: str | None, show: Show) -> None:
    """Write the attempts of one stage, or of every stage where that is None, to a new `file`.

    Raises `RecipeError` where there are none, where `file` is there already, lies in the run or
    below a file, and when the disk refuses.
    """
    stages = _chosen(run, stage)
    place = new_place(run, file, "file")
    with explained(place):
        place.parent.mkdir(parents=True, exist_ok=True)
    written = export_jsonl(run, stages, place)
    counts = ", ".join(f"{name} {count:,}" for name, count in written.items())
    show.say(f"{file} holds an attempt a line, {sum(written.values()):,} in all: {counts}")
    show.say("each is a JSON object: messages in the form of chat completions, verdict and reward")
    alone = f"; --stage {stages[-1]} writes that stage alone" if len(stages) > 1 else ""
    show.tell(f"\nNext: {shlex.join(['head', '-n', '1', str(file)])} shows the first{alone}")


def _chosen(run: Run, stage: str | None) -> list[str]:
    kept = run.attempts()
    if not kept:
        raise RecipeError(
            f"{run.path}: no stage has kept an attempt yet; run collect, measure, rl or eval first"
        )
    if stage is not None and stage not in kept:
        raise RecipeError(
            f"--stage {stage}: {run.path} holds no attempts of such a stage; name one of "
            f"{', '.join(kept)}, or leave --stage out for all of them"
        )
    return list(kept) if stage is None else [stage]
