"""What a run's sandbox did is shown by stage, and told where it was not well."""

import pytest

from forethought.core.errors import RecipeError
from forethought.journal.run import Run
from forethought.watch.finding import Kind
from forethought.watch.report import report_html
from forethought.watch.tool import USAGE, unwell, usages

CALM = {"ended": {"ok": 900, "timeout": 2}, "replaced": {}, "queued": 4.51}
UNWELL = {"ended": {"ok": 7, "infrastructure": 3}, "replaced": {"rebuilt": 12}, "queued": 5.0}


@pytest.fixture
def run(tmp_path):
    with Run.create_or_open(tmp_path / "run", {}) as run:
        yield run


def kept(run, **documents):
    for stage, document in documents.items():
        run.stage(stage).put(USAGE, document)


def test_a_sandbox_that_was_well_is_shown_and_not_spoken_of(run):
    kept(run, collect=CALM)
    (found,) = usages(run)
    assert (found.stage, found.ended, found.replaced) == ("collect", "ok 900, timeout 2", "")
    assert unwell([found]) == []
    page = report_html(run)
    assert "What the Python tool ran" in page
    assert "ok 900, timeout 2" in page
    assert "5 ms" in page
    assert "not always well" not in page


def test_servers_that_are_built_anew_again_and_again_are_a_caution_with_their_stage(run):
    kept(run, collect=CALM, rl=UNWELL)
    (found,) = unwell(usages(run))
    assert found.kind is Kind.CAUTION
    told = "rl: 3 of 10 programs could not be run, servers were replaced (rebuilt 12)."
    assert told in found.text
    assert "collect" not in found.text
    assert told in report_html(run)


def test_a_run_whose_stages_kept_nothing_has_no_such_table(run):
    run.stage("rl").put("other", {})
    assert usages(run) == []
    assert "What the Python tool ran" not in report_html(run)


def test_a_document_that_is_damaged_is_named_with_its_file(run):
    kept(run, rl={"ended": "much"})
    with pytest.raises(RecipeError, match=r"journal\.sqlite cannot be used"):
        usages(run)
