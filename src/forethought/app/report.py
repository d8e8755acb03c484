"""The report of a run, and what can be done next. Nothing here computes, so torch stays out."""

from forethought.app.program import spoken
from forethought.app.show import Show
from forethought.journal.run import Run
from forethought.watch.report import write_report


def report(run: Run, show: Show) -> None:
    """Write the report, and say what can be done next."""
    following = (
        ("Look again later", spoken("report", str(run.path))),
        ("A recipe to change", f"{spoken('recipe')} > my.toml"),
        ("and run, changed", spoken("quickstart", "--recipe", "my.toml")),
    )
    path = write_report(run, run.path / "report.html", next_commands=following)
    if all(stage.finished for stage in run.stages()):
        show.stage("Done", "The report tells what happened; accuracies come with their intervals.")
    else:
        show.stage("So far", "A stage is under way or was stopped: the report ends with it.")
    for what, command in (("Open the report", str(path)), *following):
        show.say(f"{what:<18} {command}")
