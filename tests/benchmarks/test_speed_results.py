"""What a result says of the code and of the model that it is of."""

import json
import subprocess

import pytest
from benchmarks.speed.children import Answer
from benchmarks.speed.models import QWEN3_1M, SMOLLM2, folder_of
from benchmarks.speed.parts import decode, machine
from benchmarks.speed.results import HEAD, keep, render, revision
from benchmarks.speed.rounds import Options, Outcome, trials
from benchmarks.speed.table import BEGIN, END, plain, put


def git(folder, *words):
    identity = ["-c", "user.name=Somebody", "-c", "user.email=somebody@example.org"]
    done = subprocess.run(
        ["git", "-C", str(folder), *identity, *words], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def tree(tmp_path):
    """A repository with one file of code and one page, committed."""
    root = tmp_path / "tree"
    (root / "src").mkdir(parents=True)
    (root / "src" / "a.py").write_text("1\n")
    (root / "page.md").write_text("old\n")
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "begin")
    return root


def test_code_is_named_by_its_commit_and_by_whether_it_was_changed_since(tree):
    commit = git(tree, "rev-parse", "--short", "HEAD")
    assert revision(tree) == commit
    (tree / "page.md").write_text("new\n")
    assert revision(tree) == commit
    (tree / "src" / "b.py").write_text("2\n")
    assert revision(tree) == f"{commit} (changed)"


def test_code_without_a_repository_of_its_own_has_no_name(tree):
    (tree / "copied").mkdir()
    assert revision(tree / "copied") == ""


def test_the_page_says_of_which_code_a_result_is_also_beside_one_that_does_not_say(tmp_path):
    options = Options(
        cache=tmp_path, results=tmp_path, problems=None, rounds=1, threads=1, quick=True
    )
    answer = Answer(cases={"memory threads=1": {"gb_per_s": 9.0}}, facts={}, peak=1.0, seconds=1.0)
    outcome = Outcome(trials=trials("machine", 0, answer, 0.0))
    parts = {"machine": machine.PART}
    page = tmp_path / "page.md"
    names = ("about", *parts)
    page.write_text("\n".join(each.format(part=name) for name in names for each in (BEGIN, END)))

    keep(machine.PART, outcome, 60.0, options, "1234567 (changed)")
    assert render(parts, tmp_path, page) == ["machine"]
    head, _, row = about(page)
    assert row[head.index("code")] == "1234567 (changed)"
    assert row[head.index("took")] == "1 min"

    file = tmp_path / "machine.json"
    body = json.loads(file.read_text())
    del body["code"]
    file.write_text(json.dumps(body))
    render(parts, tmp_path, page)
    head, _, row = about(page)
    assert row[head.index("code")] == ""
    assert row[head.index("took")] == "1 min"


def test_what_the_page_says_of_parts_that_are_not_measured_again_stays(tmp_path):
    options = Options(
        cache=tmp_path, results=tmp_path, problems=None, rounds=1, threads=1, quick=True
    )
    answer = Answer(cases={"memory threads=1": {"gb_per_s": 9.0}}, facts={}, peak=1.0, seconds=1.0)
    outcome = Outcome(trials=trials("machine", 0, answer, 0.0))
    page = tmp_path / "page.md"
    both = {"machine": machine.PART, "decode": decode.PART}
    names = ("about", *both)
    page.write_text("\n".join(each.format(part=name) for name in names for each in (BEGIN, END)))
    kept = ["decode", "a day", "abc", "2 min", "1", "2", "some", "0.0 cores", "here"]
    put(page, "about", plain(HEAD, [kept, ["gone", *kept[1:]]]))
    put(page, "decode", "its table")

    keep(machine.PART, outcome, 60.0, options, "1234567")
    assert render(both, tmp_path, page) == ["machine"]
    _, _, *rows = about(page)
    assert [row[0] for row in rows] == ["machine (quick)", "decode"]
    assert rows[1] == kept
    assert "its table" in page.read_text()


def about(page):
    """The cells of the table that says what results are of."""
    inner = page.read_text().partition("<!-- begin about -->")[2].partition("<!-- end about -->")[0]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in inner.split("\n") if line]


def test_a_model_taught_with_other_problems_is_another(tmp_path):
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "model.gguf").touch()
    problems = tmp_path / "problems.jsonl"

    def folders(text):
        problems.write_text(text)
        return [folder_of(model, tmp_path, problems) for model in (SMOLLM2, QWEN3_1M)]

    before, after, again = map(folders, ("one", "other", "one"))
    assert before == again
    assert before[0] != after[0]
    assert before[1] == after[1]  # is taught with made problems
    assert len(before[0].name) == len("smollm2-12345678")
