"""The report of a run, and what can be done next. Nothing here computes, so torch stays out."""

from collections.abc import Iterator
from itertools import pairwise

from forethought.app.program import spoken
from forethought.app.show import Show
from forethought.app.trained import trained_stages
from forethought.journal.run import Run
from forethought.journal.status import read_status
from forethought.watch.exams import differences, points, read_exams
from forethought.watch.report import write_report


def report(run: Run, show: Show) -> None:
    """Write the report, and say what can be done next."""
    following = (
        *_onwards(run),
        ("Look again later", spoken("report", str(run.path))),
        ("A recipe to change", f"{spoken('recipe')} > my.toml"),
        ("and run, changed", spoken("quickstart", "--recipe", "my.toml")),
        ("The sandbox here", spoken("doctor", "sandbox")),
    )
    path = write_report(run, run.path / "report.html", next_commands=following)
    if _is_done(run):
        show.stage("Done", "The report tells what happened; accuracies come with their intervals.")
        for line in _came_to(run):
            show.say(line)
    else:
        show.stage("So far", "A stage is under way or was stopped: the report ends with it.")
    for what, command in (("Open the report", str(path)), *following):
        show.say(f"{what:<18} {command}")


def _onwards(run: Run) -> Iterator[tuple[str, str]]:
    """What to do with the model of a run that is done, and how to go on with another."""
    if not _is_done(run):
        if words := _began_with(run):
            yield "Go on if stopped", spoken(*words)
    elif trained_stages(run):
        folder = f"{run.path.resolve().name}-model"
        yield "Export the model", spoken("export", str(run.path), folder)


def _came_to(run: Run) -> Iterator[str]:
    """How the last exam differs from the one before training, and from the control."""
    for each in differences(read_exams(run)):
        if each.estimate is not None and each.what != "coverage":
            earlier, later = each.earlier.title, each.later.title
            yield f"{each.measure:<7} {points(each.estimate)} from {earlier} to {later}"


def _is_done(run: Run) -> bool:
    return all(stage.finished for stage in run.stages())


def _began_with(run: Run) -> list[str]:
    """The words that the last command on the run was started with, and where the run is now.

    Empty where its status does not say, as after a study.
    """
    try:
        words = [*read_status(run.path).words]
    except (OSError, ValueError, TypeError, AttributeError):
        return []
    others = [
        word
        for before, word in pairwise(["", *words])
        if "--run" not in (before, word) and not word.startswith("--run=")
    ]
    return [*others, "--run", str(run.path)] if words else []
