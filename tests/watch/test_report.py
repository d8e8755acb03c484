"""One file that explains a run: complete, self-contained, and deaf to what attempts say."""

import re
from html.parser import HTMLParser
from statistics import fmean

import pytest

from forethought.core.errors import RecipeError
from forethought.journal.run import Run
from forethought.watch.exams import read_exams
from forethought.watch.report import report_html, write_report
from watch.synthetic_run import HOSTILE, RECIPE, exam, write_exam, write_series, write_whole_run

VOID = {"meta", "link", "br", "img", "input", "hr"}
FETCHING = {"src", "srcset", "data", "action", "poster", "background"}


class Page(HTMLParser):
    """What a browser would see: elements with attributes, whether they nest, and text."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.text, self.open, self.crossed = [], "", [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.crossed.append(tag)

    def handle_data(self, data):
        self.text += data

    @property
    def tags(self):
        return {tag for tag, _ in self.elements}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    with Run.create_or_open(tmp_path_factory.mktemp("runs") / "whole", RECIPE) as run:
        write_whole_run(run)
        yield run


@pytest.fixture(scope="module")
def page(whole):
    return Page(report_html(whole))


@pytest.fixture
def run(tmp_path):
    with Run.create_or_open(tmp_path / "run", {}) as run:
        yield run


def test_a_report_is_written_whole_and_twice_the_same(whole, tmp_path):
    path = write_report(whole, tmp_path / "report.html")
    first = path.read_bytes()
    assert write_report(whole, path).read_bytes() == first
    assert list(tmp_path.iterdir()) == [path]


def test_a_report_that_cannot_be_written_names_its_path(whole, tmp_path):
    with pytest.raises(RecipeError, match=r"nowhere/report\.html cannot be written"):
        write_report(whole, tmp_path / "nowhere" / "report.html")


def test_the_page_nests_and_fetches_nothing(page):
    assert page.crossed == []
    assert page.open == []
    assert not page.tags & {"script", "img", "iframe", "link", "object", "embed", "base", "form"}
    for _, attributes in page.elements:
        assert not FETCHING & attributes.keys()
        for name in ("href", "xlink:href"):
            assert attributes.get(name, "#").startswith("#")
        assert not any(name.startswith("on") for name in attributes)
        assert "url(" not in re.sub(r"url\(#\w+\)", "", " ".join(map(str, attributes.values())))


def test_the_style_sheet_fetches_nothing(whole):
    style = report_html(whole).partition("<style>")[2].partition("</style>")[0]
    assert "@import" not in style
    assert "url(" not in style


def test_every_section_of_a_whole_run_is_there(page):
    for heading in (
        "What was learnt, what was not",
        "Exams",
        "Paired differences",
        "By family of problems",
        "How it went",
        "How hard the problems were",
        "Attempts to read",
        "Where the time went",
        "Next",
    ):
        assert heading in page.text
    figures = [attributes for tag, attributes in page.elements if tag == "svg"]
    assert len(figures) == 2 + 8 + 1
    assert all("viewbox" in figure and "width" not in figure for figure in figures)


def test_figures_take_their_colours_from_the_page(whole):
    drawn = re.findall(r"<svg.*?</svg>", report_html(whole), flags=re.DOTALL)
    colours = {found for figure in drawn for found in re.findall(r"#[0-9a-f]{6}\b", figure)}
    assert colours <= {"#ffffff"}
    assert all("var(--accent)" in figure for figure in drawn)


def test_ids_of_figures_do_not_collide(page):
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_what_an_attempt_says_is_shown_and_never_obeyed(page):
    assert "<script>alert('owned')</script><img src=x onerror=alert(1)>␀␛[31m" in page.text
    assert HOSTILE not in page.text
    assert "\0" not in page.text
    assert "\u202e" not in page.text
    assert "</pre><script>recipe()</script>" in page.text


def test_attempts_are_told_turn_by_turn_with_their_verdicts(page):
    assert "Wrong before, right after" in page.text
    assert "Recovered from an error" in page.text
    assert "Still wrong" in page.text
    assert "import math\nprint(math.gcd(" in page.text
    assert "NameError: gcd" in page.text
    assert "tool · model error · 12 ms" in page.text


def test_a_stage_in_parts_has_the_curves_of_its_kind(run):
    for part in ("sft_tool_only", "sft_mixed"):
        write_series(run, part, 4, {"loss": lambda t: 1 - t, "odd": lambda t: t})
    page = Page(report_html(run))
    assert page.text.count("Loss, nats a token") == 2
    assert "2 further series" in page.text
    assert "sft_mixed, 4 steps" in page.text


def test_series_without_a_figure_are_listed(page):
    assert "kl/<weird>" in page.text
    assert "learning_rate" in page.text


def test_time_is_summed_by_stage_and_part(page):
    assert "2 min 4 s" in page.text  # 40 steps of 3.1 s: attempt, rl
    assert "1 min 16 s" in page.text  # 40 steps of 1.9 s: learn, sft
    assert "48.0 s" in page.text  # 40 steps of 1.2 s: learn, rl


def test_a_run_that_has_not_begun_has_a_report(run):
    page = Page(report_html(run))
    assert "has not begun a stage" in page.text
    assert "No exam was sat" in page.text
    assert "Attempts to read" not in page.text


def test_a_run_with_one_exam_claims_nothing(run):
    write_exam(run, "eval_before", "before", problems=8, tool=0.5)
    page = Page(report_html(run))
    assert "not what it learnt" in page.text
    assert "Nothing that an exam of this run can show" in page.text
    assert "Paired differences" not in page.text
    assert "only 8 problems" in page.text


def test_a_run_with_the_control_only_before_the_end_is_compared_with_it_alone(run):
    write_exam(run, "sft", "tool_only", problems=8, tool=0.9)
    write_exam(run, "eval_before", "before", problems=8, tool=0.5)
    page = Page(report_html(run))
    assert "before \N{MINUS SIGN} tool only" in page.text


def test_the_page_says_which_interval_is_which(page):
    text = " ".join(page.text.split())
    assert "pass@k and maj@k: a percentile bootstrap over problems; greedy: Wilson" in text


def test_the_page_says_that_the_start_was_held_back_and_what_stands_beside_it(page):
    text = " ".join(page.text.split())
    assert "50.0 % of the demonstrations of its last phase, mixed, solve their problem" in text
    assert "of whose demonstrations none solve their problem without the tool" in text


@pytest.mark.parametrize(("problems", "rough"), [(24, True), (4 * 30, False)])
def test_parts_with_few_problems_are_said_to_be_rough(run, problems, rough):
    for name, tool in (("before", 0.3), ("after", 0.9)):
        write_exam(run, f"eval_{name}", name, problems=problems, tool=tool)
    assert ("Rows rest on as few as 6 problems" in Page(report_html(run)).text) is rough


@pytest.mark.parametrize(
    ("pilot", "said"), [(0.4, "ended early, after 40 of 60"), (0.1, "ended after 40")]
)
def test_the_page_says_why_a_phase_ended(tmp_path, pilot, said):
    with Run.create_or_open(tmp_path / "run", RECIPE) as run:
        write_series(run, "sft_tool_only", 40, {"pilot/sampled": lambda t: pilot})
        assert f"Phase tool_only {said}" in Page(report_html(run)).text


@pytest.mark.parametrize(("steps", "shown"), [(19, False), (20, True)])
def test_a_figure_has_the_means_of_its_ends_and_none_of_single_steps(run, steps, shown):
    write_series(run, "rl", steps, {"accuracy": lambda t: 100.0 + round(t * steps)})
    assert ("100 → 118" in Page(report_html(run)).text) is shown  # 100.5 and 118.5


def test_an_attempt_that_only_luck_made_right_is_not_shown_as_a_recovery(run):
    write_exam(run, "eval_after", "after", problems=8, tool=0.0)
    text = Page(report_html(run)).text
    assert "Recovered from an error: no example. Of 40 attempts, 0 had a call that failed." in text


def test_the_two_halves_of_an_exam_are_reported_apart(run):
    for name, tool in (("before", 0.3), ("after", 0.9)):
        write_exam(run, f"eval_{name}", name, problems=24, tool=tool, new_wordings=True)
    table = report_html(run).partition("<h3>By wording</h3>")[2].partition("</table>")[0]
    _, familiar, new = table.split("<tr>")[1:]
    problems = read_exams(run)[-1].result.problems
    for row, name, remainder in ((familiar, "familiar", 0), (new, "new", 1)):
        half = [one for one in problems if int(one.id.rpartition("-")[2]) % 2 == remainder]
        accuracy = 100 * fmean(one.c / one.n for one in half)
        assert row.startswith(f'<td>{name} wordings</td><td class="n">12</td>')
        assert f"{accuracy:.1f} %<small>[" in row.rpartition('<td><span class="span">')[0]


def test_problems_that_say_nothing_of_wordings_are_not_split_by_them(page):
    assert "By wording" not in page.text


def test_the_accuracy_of_a_family_has_its_interval(whole):
    row = report_html(whole).partition("<tr><td>count primes</td>")[2].partition("</tr>")[0]
    assert len(re.findall(r"\d %<small>\[\d+\.\d, \d+\.\d\]</small>", row)) == 2


def test_where_a_gain_comes_from_is_told_with_intervals(page):
    text = " ".join(page.text.split())
    assert re.search(r"points of sampled accuracy, \S+ \[\S+ \S+\] come from reaching", text)


def test_exams_under_other_conditions_are_shown_and_not_compared(run):
    journal = run.stage("eval")
    journal.put("exam/before", exam("before").model_dump(mode="json"))
    other = exam("after", settings={"temperature": 0.5, "max_tokens": 96})
    journal.put("exam/after", other.model_dump(mode="json"))
    page = Page(report_html(run))
    assert "cannot be compared: temperature is 1.0 in one and 0.5 in the other" in page.text


def test_a_series_that_is_never_finite_has_no_figure_and_does_no_harm(run):
    write_series(run, "rl", 3, {"accuracy": lambda t: float("nan"), "entropy": lambda t: 0.5})
    page = Page(report_html(run))
    assert "Entropy" in page.text
    assert len([tag for tag, _ in page.elements if tag == "svg"]) == 1


def test_the_commands_to_run_next_are_those_of_the_caller(run):
    command = "forethought quickstart --run 'a b' --seed 2 && echo <done>"
    page = Page(report_html(run, next_commands=[("Try another seed", command)]))
    assert command in page.text
    assert "forethought report" not in page.text
    assert f"forethought report {run.path}" in Page(report_html(run)).text


def test_a_report_can_be_made_while_the_run_is_being_written(run, tmp_path):
    write_series(run, "rl", 3, {"accuracy": lambda t: t})
    with Run.read(tmp_path / "run") as reader:
        run.stage("rl").log(3, {"accuracy": 0.9})
        page = Page(report_html(reader))
    assert "3 steps" in page.text


@pytest.mark.parametrize("recipe", [{"sft": 5}, {"rl": {"reward": [1]}}])
def test_a_recipe_whose_sections_are_no_tables_is_called_damaged(tmp_path, recipe):
    with (
        Run.create_or_open(tmp_path / "run", recipe) as run,
        pytest.raises(RecipeError, match=r"recipe\.json cannot be used.* is no table.*restore it"),
    ):
        report_html(run)


def test_an_exam_whose_document_is_another_is_called_damaged(tmp_path):
    with Run.create_or_open(tmp_path / "run", {}) as run:
        run.stage("eval_after").put("exam/after", {})
        with pytest.raises(RecipeError, match=r"exam/after of eval_after is not.*restore it"):
            read_exams(run)
