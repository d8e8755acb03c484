"""`forethought study`: what comes before RL once a seed, then every variant, and what they say."""

import json
import os
import re
import shutil
import signal
import tomllib
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
import torch
from benchmarks.small import write_recipe

from app.interrupted import reached, wait_until
from app.small import forethought, outcome, refused, start
from forethought.app.linter import warnings
from forethought.app.study.settings import read_study
from forethought.evaluation.results import ExamResult
from forethought.journal.lock import writer_lock
from forethought.journal.run import Run

KEPT = Path(__file__).parents[2] / "recipes" / "study"
STUDY = """
title = "Which loss?"
base = "{base}"
reach = 0.5
smooth = 2

[shared]
rl.steps = 5
eval.attempts = 4

[variants.tcr]
rl.loss.name = "grpo_tcr"

[variants.scr]
"rl.loss.name" = "grpo_scr"
rl.optimizer.rate = 2e-3
"""
BEFORE_RL = ("collect", "sft_first", "sft_second", "eval_first", "eval_before", "measure")


def write_study(folder, text=STUDY, base="small.toml"):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "study.toml").write_text(text.format(base=base))
    return folder


@pytest.fixture(scope="module")
def losses(tmp_path_factory):
    """A study beside its base, which lies in the same folder."""
    folder = tmp_path_factory.mktemp("study") / "losses"
    folder.mkdir()
    write_recipe(folder)
    return write_study(folder)


@pytest.fixture(scope="module")
def done(losses, tmp_path_factory):
    """A study of two seeds that nothing interrupted."""
    folder = tmp_path_factory.mktemp("done") / "runs"
    assert forethought("study", losses, "--seeds", 2, "--folder", folder) == 0
    return SimpleNamespace(
        folder=folder,
        text=(folder / "table.md").read_text(),
        found=json.loads((folder / "table.json").read_text()),
        figure=(folder / "figure.svg").read_text(),
    )


def exam(folder, variant, seed, name="after"):
    with Run.read(folder / "variants" / variant / f"seed{seed}") as run:
        return ExamResult.model_validate(run.document(f"eval_{name}", f"exam/{name}"))


def stages(folder, names=None):
    """When the stages of a run were begun and ended."""
    with Run.read(folder) as run:
        return [one for one in run.stages() if names is None or one.name in names]


def cells(text, *first):
    """The cells of the only row that begins with these."""
    rows = [re.split(r" *\| *", line.strip("| ")) for line in text.splitlines() if "|" in line]
    (row,) = [row for row in rows if row[: len(first)] == list(first)]
    return row[len(first) :]


def by_t(values):
    """Mean and ends of the interval of two seeds: 12.706 standard errors on either side."""
    reach = 12.7062 * stdev(values) / sqrt(2)
    return fmean(values), fmean(values) - reach, fmean(values) + reach


@pytest.mark.parametrize("variant", ["tcr", "scr"])
def test_the_table_has_the_means_of_the_exams_with_t_intervals_over_seeds(done, variant):
    exams = [exam(done.folder, variant, seed) for seed in (0, 1)]
    told = done.found["variants"][variant]
    shown = cells(done.text.partition("## ")[0], variant)
    figures = {
        "average": [one.average.value for one in exams],
        "greedy": [one.greedy.value for one in exams],
        "calls": [one.sampled_tools.calls for one in exams],
        "entropy": [one.entropy for one in exams],
    }
    for (name, values), cell in zip(figures.items(), shown, strict=False):
        most = 1.0 if name in ("average", "greedy") else float("inf")
        mean, low, high = by_t(values)
        assert told[name]["mean"] == pytest.approx(mean)
        if values[0] == values[1]:
            assert (told[name]["low"], cell) == (None, f"{mean:.3f}")
        else:
            assert told[name]["low"] == pytest.approx(max(0.0, low), abs=1e-5)
            assert told[name]["high"] == pytest.approx(min(most, high), abs=1e-4)
            assert cell == f"{mean:.3f} [{told[name]['low']:.3f}, {told[name]['high']:.3f}]"


def test_at_least_one_figure_differs_from_seed_to_seed(done):
    means = [done.found["variants"]["tcr"][name] for name in ("average", "calls", "entropy")]
    assert any(mean["low"] is not None for mean in means)


def test_differences_are_paired_by_problem_and_by_seed(done):
    by_seed = []
    for seed in (0, 1):
        scores = {
            variant: {
                problem.id: problem.c / problem.n
                for problem in exam(done.folder, variant, seed).problems
            }
            for variant in ("tcr", "scr")
        }
        by_seed.append(fmean(scores["scr"][one] - scores["tcr"][one] for one in scores["tcr"]))
    told = done.found["variants"]["scr"]["difference_to_first"]["average"]
    assert [one["value"] for one in told["by_seed"]] == pytest.approx(by_seed)
    assert told["over_seeds"]["mean"] == pytest.approx(fmean(by_seed))
    assert cells(done.text, "scr - tcr", "all")[0].startswith(f"{fmean(by_seed):+.3f}")
    assert cells(done.text, "scr - tcr", "1")[0].startswith(f"{by_seed[1]:+.3f} [")
    assert "difference_to_first" not in done.found["variants"]["tcr"]


def test_rounds_to_an_accuracy_are_those_of_the_journal(done):
    for variant in ("tcr", "scr"):
        for run in done.found["variants"][variant]["runs"]:
            path = done.folder / "variants" / variant / f"seed{run['seed']}"
            with Run.read(path) as journal:
                values = [value for _, value in journal.series("rl", "accuracy")]
            assert len(values) == 5
            good = [at + 2 for at in range(4) if fmean(values[at : at + 2]) >= 0.5]
            assert run["rounds"] == (good[0] if good else "not reached")


def test_variants_share_what_comes_before_rl_and_nothing_after(done):
    for seed in (0, 1):
        shared = outcome(done.folder / "before_rl" / f"seed{seed}")
        assert set(shared.metrics) == set(BEFORE_RL)
        paths = {name: done.folder / "variants" / name / f"seed{seed}" for name in ("tcr", "scr")}
        for name, path in paths.items():
            assert outcome(path, BEFORE_RL) == shared
            # Copied, not done again: also begun and ended at the same time.
            before = stages(done.folder / "before_rl" / f"seed{seed}")
            assert stages(path, BEFORE_RL) == before
            assert json.loads((path / "recipe.json").read_text())["rl"]["loss"]["name"] == (
                f"grpo_{name}"
            )
            assert (path / "report.html").is_file()
        weights = [outcome(path, ("rl",)).weights["rl"] for path in paths.values()]
        assert weights[0].keys() == weights[1].keys()
        assert weights[0] != weights[1]
    assert outcome(done.folder / "before_rl" / "seed0") != outcome(
        done.folder / "before_rl" / "seed1"
    )


def test_the_row_before_rl_is_the_exam_before_rl(done):
    before = [exam(done.folder, "scr", seed, "before").average.value for seed in (0, 1)]
    assert done.found["before_rl"]["average"]["mean"] == pytest.approx(fmean(before))
    assert cells(done.text, "(before RL)")[0].startswith(f"{fmean(before):.3f}")


def test_the_table_says_what_was_compared(done):
    assert "- all: small.toml `--rl.steps=5 --eval.attempts=4`" in done.text
    assert """- tcr: `'--rl.loss.name="grpo_tcr"'`""" in done.text
    assert "--rl.optimizer.rate=0.002`" in done.text


def test_the_figure_names_the_variants_and_has_a_band_for_each(done):
    drawn = ElementTree.fromstring(done.figure)
    texts = {element.text for element in drawn.iter() if element.text}
    assert {"tcr", "scr", "accuracy", "entropy, nats a token"} <= texts
    assert done.figure.count('id="FillBetween') >= 2


def test_an_interrupted_study_goes_on_and_ends_as_if_undisturbed(losses, done, tmp_path, capsys):
    folder = tmp_path / "runs"
    before = Path("before_rl", "seed0")
    shutil.copytree(done.folder / before, folder / before)  # it is also killed while it trains
    words = ("study", losses, "--seeds", 2, "--folder", folder)
    process = start(*words, log=tmp_path / "log")
    wait_until(lambda: reached(folder / "variants" / "scr" / "seed0", "rl", 2), process.is_alive)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert not (folder / "table.md").exists()
    # As by a kill while the copy for a later run was made.
    left = folder / "variants" / "tcr" / ".seed1.partial"
    left.mkdir()
    (left / "journal.sqlite").write_text("half")
    capsys.readouterr()
    assert forethought(*words) == 0
    assert "rl: done before, not repeated" in capsys.readouterr().out
    assert not left.exists()
    assert (folder / "table.md").read_text() == done.text
    assert json.loads((folder / "table.json").read_text()) == done.found
    assert (folder / "figure.svg").read_text() == done.figure


def test_one_seed_claims_no_interval_and_repeats_nothing(losses, done, tmp_path, capsys):
    runs = [*done.folder.glob("before_rl/*"), *done.folder.glob("variants/*/*")]
    times = {path: stages(path) for path in runs}
    assert len(times) == 6
    capsys.readouterr()
    assert forethought("study", losses, "--seeds", 1, "--folder", done.folder) == 0
    assert {path: stages(path) for path in runs} == times
    said = capsys.readouterr().out
    text, found = (done.folder / "table.md").read_text(), (done.folder / "table.json").read_text()
    for name in ("table.md", "table.json", "figure.svg"):
        assert str(done.folder / name) in said
    assert said.count("rl: done before, not repeated") == 2
    assert "rounds:" not in said
    assert "--seeds 5" in said.splitlines()[-1]
    assert "no interval over seeds is claimed" in text
    assert not any("[" in cell for cell in cells(text.partition("## ")[0], "tcr"))
    assert json.loads(found)["variants"]["tcr"]["average"]["low"] is None
    assert "FillBetween" not in (done.folder / "figure.svg").read_text()


def test_a_finished_variant_that_was_changed_is_refused_by_name(done, losses, tmp_path, capsys):
    changed = STUDY.replace("2e-3", "3e-3")
    other = write_study(tmp_path / "losses", changed, losses / "small.toml")
    message = refused(capsys, "study", other, "--seeds", 1, "--folder", done.folder)
    assert "variant scr, seed 0: stage rl" in message
    assert "rl.optimizer.rate was 0.002, is now 0.003" in message
    assert "name another folder with --folder" in message


def test_words_hold_over_what_is_shared_and_under_what_a_variant_sets(losses):
    study = read_study(losses, ["--rl.steps", "9", "--rl.loss.name=grpo_t"])
    assert [recipe.rl.steps for recipe in study.recipes.values()] == [9, 9]
    assert [recipe.rl.loss.name for recipe in study.recipes.values()] == ["grpo_tcr", "grpo_scr"]
    assert study.recipe("scr", 7).seed == 7
    assert read_study(losses / "study.toml").name == "losses"


WRONG = {
    "a mistyped override": ('rl.loss.nam = "grpo_t"', ["variant bad:", "rl.loss.nam", "'name'"]),
    "a wrong value": ("rl.steps = 0", ["variant bad:", "rl.steps = 0"]),
    "values that do not go together": (
        'rl.credit.type = "turn_rloo"\nrl.credit.advantage.kind = "rloo"',
        ["variant bad:", "rl.credit.advantage has no say"],
    ),
    "a place that is not there": ("rl.steps.0 = 1\nrl.steps.1 = 2", ["variant bad:", "rl.steps"]),
    "a table": ("rl.loss = [{name = 1}]", ["variants.bad.rl.loss = ", "an override is a text"]),
    "another part than RL": ("sft.longest = 9", ["variants.bad.sft.longest", "[shared]"]),
    "nothing of its own": ("rl.steps = 5", ["variant bad:", "is that of good"]),
    "fewer rounds than are averaged": ("rl.steps = 1", ["smooth = 2", "only 1 rounds"]),
    "an unknown key": ("[setings]", ["setings", "Known keys: title, base"]),
    "a name that is no folder's": ('[variants."a/b"]', ["variants.a/b", "pattern"]),
    "two of one name": ("[variants.good]", ["not TOML", "study.toml"]),
    "tables without end": (
        f"rl.steps{'.a' * 2000} = 1",
        ["study.toml: tables in tables", "flatten"],
    ),
    "a shared seed": ("[shared]\nseed = 1", ["shared.seed", "remove it"]),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_named_before_anything_runs(recipe, tmp_path, capsys, what):
    text, wanted = WRONG[what]
    start_of_file = 'title = "?"\nbase = "{base}"\nsmooth = 2\n'
    variants = '[variants.good]\nrl.steps = 5\nrl.loss.name = "grpo_tcr"\n[variants.bad]\n'
    ends = 'rl.loss.name = "grpo_tcr"\n' if what == "nothing of its own" else ""
    body = f"{start_of_file}{variants}{ends}{text.replace('{', '{{').replace('}', '}}')}\n"
    study = write_study(tmp_path / "study", body, recipe)
    message = refused(capsys, "study", study, "--folder", tmp_path / "runs")
    assert [each for each in wanted if each not in message] == []
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["--seeds", "0"], "--seeds 0: a study needs at least one"),
        (["--seeds=-3"], "--seeds -3"),
        (["--seed", "3"], "--seed: a study goes through seeds"),
        (["--rl.stepz", "3"], "rl.stepz: there is no such key; did you mean 'steps'?"),
        (["left"], "left: this word belongs to no key"),
    ],
)
def test_what_is_wrong_on_the_command_line_is_refused(losses, tmp_path, capsys, words, wanted):
    assert wanted in refused(capsys, "study", losses, "--folder", tmp_path / "runs", *words)
    assert not (tmp_path / "runs").exists()


def test_a_missing_study_or_base_is_refused(recipe, tmp_path, capsys):
    assert "give a folder that holds study.toml" in refused(capsys, "study", tmp_path / "no")
    study = write_study(tmp_path / "study", base="no.toml")
    assert "no.toml: No such file" in refused(capsys, "study", study)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_variant_whose_optimiser_cannot_run_is_refused_before_any_other_begins(
    losses, tmp_path, capsys
):
    shutil.copytree(losses, tmp_path / "study")
    study = write_study(tmp_path / "study", f'{STUDY}rl.optimizer.type = "paged_adamw_8bit"\n')
    message = refused(capsys, "study", study, "--folder", tmp_path / "runs")
    assert 'variant scr: rl.optimizer.type = "paged_adamw_8bit": only a GPU' in message
    assert not (tmp_path / "runs").exists()


def test_a_folder_that_holds_something_else_is_refused(losses, tmp_path, capsys):
    (tmp_path / "before_rl" / "seed0").mkdir(parents=True)
    (tmp_path / "before_rl" / "seed0" / "letter").write_text("dear")
    message = refused(capsys, "study", losses, "--folder", tmp_path)
    assert "seed 0, before RL:" in message
    assert "with --folder" in message


PAYING_FOR_CALLS = {"credit"}
"""Studies of which each variant pays for calls, to see who is credited with that."""


@pytest.mark.parametrize("name", ["table.md", "table.json", "figure.svg"])
def test_results_do_not_replace_files_of_no_study(losses, tmp_path, capsys, name):
    (tmp_path / name).write_text("mine")
    message = refused(capsys, "study", losses, "--folder", tmp_path)
    assert f"{tmp_path} holds {name}, but no runs of a study" in message
    assert "name an empty or new folder with --folder" in message
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "mine"


def test_two_studies_at_once_in_one_folder_are_refused(losses, tmp_path, capsys):
    with writer_lock(tmp_path, "study.lock"):
        message = refused(capsys, "study", losses, "--folder", tmp_path)
    assert f"study folder: {tmp_path} is being written by process {os.getpid()}" in message
    assert "name another folder with --folder" in message
    assert [path.name for path in tmp_path.iterdir()] == ["study.lock"]


def test_a_name_that_no_folder_can_have_is_refused(losses, tmp_path, capsys):
    message = refused(capsys, "study", losses, "--folder", tmp_path / ("n" * 300))
    assert "(File name too long): name another path" in message


@pytest.mark.parametrize("name", [path.name for path in sorted(KEPT.iterdir())])
def test_the_studies_that_are_kept_can_be_run_and_change_rl_alone(name):
    study = read_study(KEPT / name)
    before = [recipe.model_dump(exclude={"rl"}) for recipe in study.recipes.values()]
    assert before[1:] == before[:-1]
    said = {warnings(recipe) for recipe in study.recipes.values()}
    assert [len(each) for each in said] == [1 if name in PAYING_FOR_CALLS else 0]
    assert study.settings.smooth * 2 < next(iter(study.recipes.values())).rl.steps
    assert set(tomllib.loads((KEPT / name / "study.toml").read_text())) >= {"title", "variants"}


def test_the_studies_that_are_kept_are_those_of_the_guide():
    guide = (KEPT.parents[1] / "docs" / "guides" / "studies.md").read_text()
    assert set(re.findall(r"recipes/study/(\w+)", guide)) == {path.name for path in KEPT.iterdir()}
