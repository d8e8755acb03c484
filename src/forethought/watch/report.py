"""A run as one HTML file that explains itself: results, curves, attempts to read, time spent.

Reads the journal only, so it can be written while the run goes on. The file fetches nothing and
runs nothing: it can be mailed and kept.
"""

import shlex
from collections.abc import Sequence
from pathlib import Path

from forethought.journal.files import intact, written_beside
from forethought.journal.run import RECIPE, Run
from forethought.watch import exams as sat
from forethought.watch.attempts import new_wordings, read_attempts
from forethought.watch.finding import Kind
from forethought.watch.findings import findings
from forethought.watch.measures import methods, table
from forethought.watch.pages import render
from forethought.watch.pay import caution
from forethought.watch.phases import read_phases
from forethought.watch.sections import chapters, deeds, difficulty, other_series
from forethought.watch.sources import sources
from forethought.watch.stories import stories
from forethought.watch.tool import unwell, usages


def write_report(run: Run, path: Path, *, next_commands: Sequence[tuple[str, str]] = ()) -> Path:
    """Write the report of `run` to `path`, which appears whole, and return `path`.

    `next_commands` are shown at the end as (what it does, command); without any, the command
    that writes the report again is shown. Raises `RecipeError` when the disk refuses.
    """
    page = report_html(run, next_commands=next_commands)
    with written_beside(path) as file:
        file.write(page)
    return path


def report_html(run: Run, *, next_commands: Sequence[tuple[str, str]] = ()) -> str:
    """The report of `run` as a page. Raises `RecipeError` where the run is damaged."""
    name = run.path.resolve().name
    again = ("Write this report again", f"forethought report {shlex.quote(str(run.path))}")
    exams = sat.read_exams(run)
    start, last = sat.starting_exam(exams), exams[-1] if exams else None
    before, after = read_attempts(run, start), read_attempts(run, last)
    with intact(run.path / RECIPE):
        phases, paid = read_phases(run.recipe), caution(run.recipe)
    families, wordings = sat.families(exams), sat.wordings(exams, new_wordings(after))
    found = findings(
        exams,
        sources(before.sampled, after.sampled),
        phases=phases,
        paid=paid,
        parts={"family": families, "wording": wordings},
    )
    sandbox = usages(run)
    found += unwell(sandbox)
    done, rows = deeds(run), table(exams)
    page = render(
        "template.html",
        name=name,
        recipe=run.recipe,
        deeds=done,
        longest=max((spent for deed in done for _, spent in deed.seconds), default=0.0),
        exams=exams,
        last=last,
        start=start,
        table=rows,
        methods=methods(rows),
        differences=sat.differences(exams),
        families=families,
        wordings=wordings,
        learnt=[one.text for one in found if one.kind is Kind.LEARNT],
        others=[one for one in found if one.kind is not Kind.LEARNT],
        chapters=chapters(run),
        other_series=other_series(run),
        difficulty=difficulty(run),
        sandbox=sandbox,
        reading=stories(run, before, after),
        next_commands=next_commands or (again,),
    )
    # A lone surrogate (from a broken name, say) is no reason to have no report.
    return page.encode("utf-8", "replace").decode("utf-8")
