"""The arithmetic of the speed benchmarks, and that all subjects see the same prompts."""

import os
import subprocess
import sys

import pytest
from benchmarks.speed.__main__ import PARTS
from benchmarks.speed.children import ROOT, SubjectError, ask, family, proportional
from benchmarks.speed.figures import Source, Spread, Trial, in_turns, quantiles, ratios, spread
from benchmarks.speed.parts import decode, growth, machine, sampling, sandbox, step, tools, training
from benchmarks.speed.subjects.lengths import lengths
from benchmarks.speed.subjects.templates import jinja_template
from benchmarks.speed.table import Goal, Line, put, table
from transformers import PreTrainedTokenizerFast

from forethought.core.messages import Assistant, ToolCall, ToolReply, User
from forethought.policy.formats import chat_format
from forethought.policy.small_tokenizer import train_tokenizer
from forethought.tools.python_tool import PYTHON
from tiny import TEXTS

OURS = Source(subject="forethought", case="c", figure="seconds")
THEIRS = Source(subject="other", case="c", figure="seconds")


def trial(subject, number, case="c", **figures):
    return Trial(subject=subject, case=case, round=number, figures=figures)


def test_a_spread_is_the_median_and_the_ends():
    assert Spread.of([4.0, 1.0, 3.0, 2.0]) == Spread(middle=2.5, least=1.0, greatest=4.0, count=4)
    assert Spread.of([]) is None


def test_a_ratio_is_taken_within_a_round_and_not_between_medians():
    # The machine is ten times slower in the second round: each side's times differ widely, and
    # their ratio does not.
    trials = [
        trial("forethought", 0, seconds=1.0),
        trial("other", 0, seconds=4.0),
        trial("forethought", 1, seconds=10.0),
        trial("other", 1, seconds=50.0),
        trial("forethought", 2, seconds=100.0),  # the other failed here
    ]
    assert ratios(trials, THEIRS, OURS) == Spread(middle=4.5, least=4.0, greatest=5.0, count=2)
    assert spread(trials, OURS) == Spread(middle=10.0, least=1.0, greatest=100.0, count=3)


def test_a_source_divides_one_figure_by_another_and_scales():
    source = Source(subject="other", case="c", figure="seconds", per="tokens", scale=1e3)
    assert source.read(trial("other", 0, seconds=2.0, tokens=400.0)) == pytest.approx(5.0)
    assert source.read(trial("other", 0, seconds=2.0)) is None
    assert source.read(trial("other", 0, case="d", seconds=2.0, tokens=400.0)) is None


def test_subjects_take_turns_in_alternating_order():
    turns = in_turns(["a", "b", "c"], 3)
    assert [subject for _, subject in turns] == [*"abc", *"cba", *"abc"]
    assert [number for number, _ in turns] == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_quantiles_and_the_share_at_the_limit():
    assert quantiles(range(1, 11), [0.1, 0.5, 0.9]) == [2, 6, 10]
    found = lengths([10, 20, 256, 256], 256, [0, 1, 2, 0])
    assert (found["at_limit"], found["called"], found["calls_mean"]) == (0.5, 0.5, 0.75)
    assert found["tokens_mean"] == pytest.approx(135.5)


def test_a_table_shows_medians_with_their_ends_ratios_and_whether_a_goal_is_met():
    several = Spread(middle=2.0, least=1.0, greatest=4.0, count=3)
    once = Spread(middle=1234.5, least=1234.5, greatest=1234.5, count=1)
    text = table(
        [
            Line(what="a", unit="s", ours=several, theirs=once, ratio=several, goal=Goal(bound=4)),
            Line(what="b", ratio=several, goal=Goal(bound=2.5, at_most=True, percent=True)),
            Line(what="c", ours=once),
        ]
    )
    assert text.splitlines()[2:] == [
        "| a | s | 2.00 (1.00 to 4.00) | 1,234 | 2.00x (1.00x to 4.00x) | ≥ 4.00x | no |",
        "| b |  |  |  | 200 % (100 % to 400 %) | ≤ 250 % | yes |",
        "| c |  | 1,234 |  |  |  |  |",
    ]


def test_a_table_is_put_in_its_place_and_nothing_else_changes(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- begin a -->\nold\n<!-- end a -->\nafter\n")
    put(page, "a", "new")
    put(page, "a", "newer")
    assert page.read_text() == "before\n<!-- begin a -->\n\nnewer\n\n<!-- end a -->\nafter\n"
    with pytest.raises(ValueError, match="begin b"):
        put(page, "b", "new")


def test_the_page_has_a_place_for_every_part():
    page = (ROOT / "docs" / "performance.md").read_text()
    for name in (*PARTS, "about"):
        assert f"<!-- begin {name} -->" in page
        assert f"<!-- end {name} -->" in page


def test_every_part_turns_its_trials_into_lines():
    assert machine.lines([trial("machine", 0, case="memory threads=2", gb_per_s=9.0)])[0].theirs
    goals = [
        *decode.lines(
            [
                trial("machine", 0, case="float32 best threads=2", gflops=100.0),
                trial("forethought", 0, case="B=32", tokens_per_s=1.0, gflops=50.0),
            ]
        ),
        *growth.lines(
            [
                trial("forethought", 0, case="32 episodes", seconds=1.0, tokens=100.0),
                trial("forethought", 0, case="64 episodes", seconds=1.0, tokens=200.0),
                trial(
                    "forethought, a whole step", 0, case="1024 episodes", seconds=3.0, tokens=100.0
                ),
                trial(
                    "forethought, a whole step", 0, case="32 episodes", seconds=1.0, tokens=100.0
                ),
            ]
        ),
        *tools.lines(
            [
                trial("instant tool", 0, case="kept open", tokens_per_s=100.0),
                trial("slow tool", 0, case="kept open", tokens_per_s=50.0),
            ]
        ),
        *sandbox.lines(
            [
                trial("forethought", 0, case="print, 2 clients", p50_ms=4.0),
                trial("forethought", 0, case="benign calls of 32 clients, quiet", p50_ms=60.0),
                trial(
                    "forethought",
                    0,
                    case="benign calls of 32 clients, a tenth of all calls hostile",
                    p50_ms=180.0,
                ),
            ]
        ),
        *training.lines(
            [
                trial("forethought", 0, case="0.9M: padded", seconds=2.0, tokens=100.0),
                trial(
                    "forethought",
                    0,
                    case="0.9M: packed",
                    seconds=1.0,
                    tokens=100.0,
                    honest_gflops=70.0,
                    product_gflops=100.0,
                ),
            ]
        ),
        *sampling.lines(
            [
                trial("forethought", 0, case="B=32 fixed", seconds=1.0, tokens=600.0),
                trial("transformers", 0, case="B=32 fixed", seconds=2.0, tokens=600.0),
            ]
        ),
        *step.lines(
            [
                trial("forethought", 0, case="smollm2", seconds=10.0),
                trial("trl", 0, case="smollm2", seconds=50.0),
            ]
        ),
    ]
    found = [line.ratio.middle for line in goals if line.goal and line.ratio]
    assert found == [0.5, 0.5, 3.0, 0.5, 3.0, 0.7, 2.0, 5.0]


def test_a_subject_that_does_not_answer_is_an_error_with_what_it_said():
    with pytest.raises(SubjectError, match=r"No module named benchmarks.speed.subjects.nobody"):
        ask("nobody", {}, threads=1)


def test_a_subject_that_takes_too_long_is_ended():
    with pytest.raises(SubjectError, match=r"machine did not answer within 0\.01 s"):
        ask("machine", {}, threads=1, limit=0.01)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_is_that_of_a_process_and_its_children():
    child = subprocess.Popen(["sleep", "60"])
    try:
        assert {os.getpid(), child.pid} <= set(family(os.getpid()))
        assert 0 < proportional(child.pid) < proportional(os.getpid())
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize("name", ["hermes", "compact"])
def test_the_template_writes_what_our_format_writes(name):
    # Without tokens for a call's frame: those are a format's alone, and no template can place them.
    words = train_tokenizer(TEXTS * 3, [], 320)
    chat = chat_format(name, words)
    theirs = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<|im_end|>")
    theirs.chat_template = jinja_template(name, words)

    arguments = '{"code": "print(6 * 7)"}'
    said = Assistant(text="python.", calls=(ToolCall(id="0", name="python", arguments=arguments),))
    heard = [ToolReply(call_id="0", name="python", text=text) for text in ("42", "43")]
    ours = chat.opening([User(text="6 * 7?")], [PYTHON]) + chat.assistant(said) + chat.hear(heard)

    function = {"name": "python", "arguments": {"code": "print(6 * 7)"}}
    messages = [
        {"role": "user", "content": "6 * 7?"},
        {
            "role": "assistant",
            "content": "python.",
            "tool_calls": [{"type": "function", "function": function}],
        },
        *({"role": "tool", "name": "python", "content": one.text} for one in heard),
    ]
    text = theirs.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert text == words.decode(ours, skip_special_tokens=False)
    first = theirs.apply_chat_template(
        messages[:1], add_generation_prompt=True, tokenize=True, return_dict=False
    )
    assert first == chat.opening([User(text="6 * 7?")], [PYTHON])
