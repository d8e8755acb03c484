"""What a recipe changes and nothing reads is told once; what is read, or put to rest, is not."""

from collections import Counter

import pytest

from forethought.app.linter import warnings
from forethought.app.overrides import overridden
from forethought.app.recipe import checked
from forethought.app.unread import DEPENDENTS, LONGEST_SHOWN, unread

BASE = {
    "problems": {"type": "practice"},
    "model": {"type": "fresh"},
    "sft": {"phases": [{"name": "first", "steps": 1}, {"name": "second", "steps": 1}]},
    "rl": {"steps": 1},
}

ENDPOINT = "base_url='http://127.0.0.1:1/v1', model='m'"
TEACHER = (f"--collect.teacher={{{ENDPOINT}}}",)
REMOTE = (f"--model={{type='openai', {ENDPOINT}}}",)
JUDGE = (f"--rl.reward.judge={{endpoint={{{ENDPOINT}, thinking='keep'}}}}",)
SERVICE = ("--tool.tier=remote", "--tool.url=http://127.0.0.1:1")
SESSION = ("--tool.state=session",)
CODE = ("--problems={type='code', train='a.jsonl', held_out='b.jsonl'}",)
OUTCOME = ("--rl.reward={variant='outcome'}",)
GATED = ("--rl.reward={variant='gated'}",)
BUFFER = ("--rl.reward={overlong_buffer=10, overlong_limit=100}",)
LIMITED = ("--rl.reward={penalties={thinking=0.1, thinking_limit=50}}",)
PHASE, RL = "--sft.phases.1.optimizer", "--rl.optimizer"


def model(rank):
    return (f"--model={{type='pretrained', name='m', lora_rank={rank}}}",)


def clip(schedule, **bounds):
    said = "".join(f", {name}={value}" for name, value in bounds.items())
    return (f"--rl.control.clip={{schedule='{schedule}'{said}}}",)


def held(schedule):
    return clip(schedule, start=0.3)


BAND = ("--rl.control.kl={rule='band', start=0.1, most=1.0}",)
ADAPTIVE = ("--rl.control.kl={start=0.1, most=1.0, target=0.01}",)
PRESET = "--rl.control.preset=4b"
LOW, HIGH, NATS = (f"--rl.control.band.{each}" for each in ("low=0.4", "high=1.6", "unit=nats"))

# Of each key: a change, where nothing reads it, and where something does.
CASES = [
    ("sft.phases.1.optimizer.muon_rate", f"{PHASE}.muon_rate=0.05", (), (f"{PHASE}.type=muon",)),
    ("sft.phases.1.optimizer.floor", f"{PHASE}.floor=0.2", (f"{PHASE}.schedule=constant",), ()),
    ("rl.optimizer.muon_rate", f"{RL}.muon_rate=0.05", (), (f"{RL}.type=muon",)),
    ("rl.optimizer.floor", f"{RL}.floor=0.2", (), (f"{RL}.schedule=cosine",)),
    (
        "model.lora_alpha",
        "--model.lora_alpha=16",
        ("--model={type='pretrained', name='m'}",),
        model(8),
    ),
    ("sampling.thinking", "--sampling.thinking=strip", REMOTE, ()),
    ("sampling.reply_tokens", "--sampling.reply_tokens=50", REMOTE, ()),
    ("sampling.temperature", "--sampling.temperature=0.5", REMOTE, (*REMOTE, *TEACHER)),
    ("sampling.top_p", "--sampling.top_p=0.5", REMOTE, ()),
    ("tool.url", "--tool.url=http://127.0.0.1:1", (), SERVICE),
    ("tool.python", "--tool.python=/opt/programs/bin/python", SERVICE, ()),
    ("tool.preload", "--tool.preload=['math']", SERVICE, ()),
    ("tool.processes", "--tool.processes=64", SERVICE, ()),
    ("tool.cpu_seconds", "--tool.cpu_seconds=9", SERVICE, ()),
    ("tool.cpu_seconds", "--tool.cpu_seconds=9", SESSION, (*SESSION, *CODE)),
    ("tool.max_sessions", "--tool.max_sessions=150", (), SESSION),
    ("tool.session_idle_seconds", "--tool.session_idle_seconds=60", (), SESSION),
    (
        "collect.demonstrators.styles",
        "--collect.demonstrators.styles={direct=1.0}",
        TEACHER,
        (),
    ),
    (
        "sft.pilot_problems",
        "--sft.pilot_problems=50",
        (),
        ("--sft.pilot_every=5",),
    ),
    ("sft.held_out_every", "--sft.held_out_every=5", (), ("--sft.held_out=0.1",)),
    ("rl.reward.bonus_cap", "--rl.reward.bonus_cap=2", OUTCOME, GATED),
    ("rl.reward.wrong_ceiling", "--rl.reward.wrong_ceiling=-0.7", OUTCOME, GATED),
    (
        "rl.reward.tool_bonus",
        "--rl.reward.tool_bonus=0.05",
        OUTCOME,
        ("--rl.reward={variant='released'}",),
    ),
    ("rl.reward.overlong_limit", "--rl.reward.overlong_limit=100", (), BUFFER),
    ("rl.reward.overlong_factor", "--rl.reward.overlong_factor=0.5", (), BUFFER),
    ("rl.reward.length_basis", "--rl.reward.length_basis=all_tokens", (), BUFFER),
    (
        "rl.reward.penalties.thinking_limit",
        "--rl.reward.penalties.thinking_limit=60",
        (),
        LIMITED,
    ),
    ("rl.reward.judge.endpoint.thinking", *JUDGE, (), None),
    ("rl.control.preset", PRESET, clip("cosine", start=0.3), clip("cosine")),
    (
        "rl.control.preset",
        PRESET,
        clip("entropy-feedback", start=0.3, ceiling=0.31),
        clip("entropy-feedback", start=0.3),
    ),
    ("rl.control.clip.fall", "--rl.control.clip.fall=0.1", held("cosine"), held("linear-floor")),
    ("rl.control.clip.floor", "--rl.control.clip.floor=0.2", held("constant"), held("cosine")),
    (
        "rl.control.clip.ceiling",
        "--rl.control.clip.ceiling=0.4",
        held("linear-floor"),
        held("entropy-feedback"),
    ),
    (
        "rl.control.clip.step",
        "--rl.control.clip.step=0.01",
        held("constant"),
        held("entropy-feedback"),
    ),
    ("rl.control.band.low", LOW, (), BAND),
    ("rl.control.band.high", HIGH, (*ADAPTIVE, *held("cosine")), held("entropy-feedback")),
    ("rl.control.band.unit", NATS, ADAPTIVE, BAND),
    ("rl.control.kl.horizon", "--rl.control.kl.horizon=5000", BAND, ADAPTIVE),
]


def told(*words):
    """The sentences of a recipe that says as little as it can, and these words."""
    return [*unread(checked(overridden(BASE, words), "a recipe"))]


def about(key, sentences):
    return [each for each in sentences if each.startswith(f"{key} = ")]


@pytest.mark.parametrize(("key", "change", "others", "_"), CASES)
def test_a_setting_that_nothing_reads_is_told_once_with_what_is_so_and_what_to_do(
    key, change, others, _
):
    (sentence,) = about(key, told(*others, change))
    assert ": nothing reads it" in sentence
    assert "; remove it" in sentence
    assert about(key, told(*others)) == []


@pytest.mark.parametrize(
    ("key", "change", "others"),
    [(key, change, others) for key, change, _, others in CASES if others is not None],
)
def test_a_setting_that_something_reads_is_passed_over(key, change, others):
    assert about(key, told(*others, change)) == []


def test_every_row_of_the_table_has_a_case():
    rows = Counter(key.replace("*", "1") for row in DEPENDENTS for key in row.keys)
    assert Counter(key for key, *_ in CASES) == rows


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            (f"{RL}.muon_rate=0.05",),
            'rl.optimizer.muon_rate = 0.05: nothing reads it with rl.optimizer.type = "adamw"; '
            'remove it, or set rl.optimizer.type = "muon"',
        ),
        (
            (f"{PHASE}.floor=0.2", f"{PHASE}.schedule=constant"),
            "sft.phases.1.optimizer.floor = 0.2: nothing reads it with "
            'sft.phases.1.optimizer.schedule = "constant"; remove it, or set '
            'sft.phases.1.optimizer.schedule = "cosine"',
        ),
        (
            (*held("cosine"), NATS),
            'rl.control.band.unit = "nats": nothing reads it with rl.control.clip.schedule = '
            '"cosine" and without rl.control.kl; remove it, or set rl.control.clip.schedule = '
            '"entropy-feedback" or set rl.control.kl.rule = "band"',
        ),
        (
            JUDGE,
            'rl.reward.judge.endpoint.thinking = "keep": nothing reads it; remove it',
        ),
        (
            ("--sft.held_out_every=5",),
            "sft.held_out_every = 5: nothing reads it with sft.held_out = 0; remove it, or set "
            "sft.held_out above 0",
        ),
    ],
)
def test_a_sentence_says_key_value_reason_and_remedy(words, sentence):
    assert told(*words) == [sentence]


def test_a_long_value_is_shown_by_its_beginning():
    names = ("direct", "deliberate", "guarded", "recovering")
    styles = f"--collect.demonstrators.styles={{{', '.join(f'{each}=0.2' for each in names)}}}"
    (sentence,) = told(*TEACHER, styles)
    assert "…: nothing reads it with collect.teacher; " in sentence
    assert len(sentence) < LONGEST_SHOWN + 150


def test_a_key_with_two_rows_is_told_once():
    words = clip("cosine", start=0.3, ceiling=0.4)
    assert len(about("rl.control.preset", told(*words, PRESET))) == 1


@pytest.mark.parametrize(
    "words",
    [
        ("--rl.reward={overlong_buffer=0, overlong_factor=0.5}",),
        ("--sft.pilot_every=0", "--sft.pilot_problems=50"),
        (*model(0), "--model.lora_alpha=16"),
    ],
)
def test_what_goes_with_an_amount_that_is_0_by_name_may_rest(words):
    assert told(*words) == []


def test_what_nothing_reads_is_among_the_warnings():
    recipe = checked(overridden(BASE, ("--sft.held_out_every=5",)), "a recipe")
    found = tuple(unread(recipe))
    assert found
    assert warnings(recipe)[-len(found) :] == found
