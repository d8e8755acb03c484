"""A recipe that cannot be read is answered once: key, value, remedy; and nothing is begun."""

import json
import re

import pytest
from benchmarks.small import write_recipe

from app.small import forethought, refused
from forethought.app.recipe import read_recipe

UNREADABLE = {
    "a key that there is not": (
        ["--seeed=1"],
        r"seeed: there is no such key; did you mean 'seed'\?",
    ),
    "a key that there is not, in a section": (
        ["--rl.group_sise=4"],
        r"rl\.group_sise: there is no such key; did you mean 'group_size'\?",
    ),
    "a key that there is not, in a section's section": (
        ["--rl.loss.clip_hihg=0.3"],
        r"rl\.loss\.clip_hihg: there is no such key; did you mean 'clip_high'\?",
    ),
    "a key that there is not, in a variant": (
        ["--model.widht=64"],
        r"\n  model\.widht: there is no such key; did you mean 'width'\?",
    ),
    "a key that there is not, in a phase": (
        ["--sft.phases.1.stpes=3"],
        r"sft\.phases\.1\.stpes: there is no such key; did you mean 'steps'\?",
    ),
    "a key that there is not, in a phase's optimiser": (
        ["--sft.phases.0.optimizer.ratee=1"],
        r"sft\.phases\.0\.optimizer\.ratee: there is no such key; did you mean 'rate'\?",
    ),
    "a key that there is not, in a section that may be absent": (
        ["--collect.teacher.base_uri=x"],
        r"collect\.teacher\.base_uri: there is no such key; did you mean 'base_url'\?",
    ),
    "a key of a section inside": (
        ["--rl.draws=2"],
        r"rl\.draws: there is no such key; did you mean 'selection\.draws'\?",
    ),
    "a key that is much like one of a section inside": (
        ["--rl.max_not_measured=0.2"],
        r"rl\.max_not_measured: there is no such key; did you mean 'limits\.not_measured'\?",
    ),
    "a section of a section inside": (
        ["--rl.advantage.kind=grpo"],
        r"rl\.advantage: there is no such key; did you mean 'credit\.advantage'\?",
    ),
    "a key that is like no other": (
        ["--measure.zzz=1"],
        r"measure\.zzz: there is no such key; known keys: attempts, problems",
    ),
    "a word for a number": (["--rl.steps=three"], r"rl\.steps = 'three': .*valid integer"),
    "truth for a number": (["--tool.servers=true"], r"tool\.servers = True: .*number, not true or"),
    "text for a number": (["--tool.servers='2'"], r"tool\.servers = '2': .*a number, not text"),
    "a word for truth": (
        ["--compute.deterministic=yes"],
        r"compute\.deterministic = 'yes': .*true or false, not text",
    ),
    "a number for truth": (
        ["--compute.deterministic=1"],
        r"compute\.deterministic = 1: .*true or false, not a number",
    ),
    "text for a number in a table": (
        ["--collect.demonstrators.styles={direct='1'}"],
        r"collect\.demonstrators\.styles\.direct = '1': .*a number, not text",
    ),
    "a service without an address": (
        ["--tool.tier=remote"],
        r'tool\.tier="remote" needs tool\.url: the address',
    ),
    "a vocabulary without room": (
        ["--model.vocabulary=319"],
        r"model\.vocabulary = 319: .*greater than or equal to 320",
    ),
    "half a step": (["--rl.steps=2.5"], r"rl\.steps = 2\.5: .*integer"),
    "a number out of range": (["--rl.steps=-1"], r"rl\.steps = -1: .*greater than 0"),
    "no time": (
        ["--tool.wall_seconds=0"],
        r"tool\.wall_seconds = 0: .*greater than or equal to 0\.1",
    ),
    "a negative temperature": (
        ["--sampling.temperature=-1"],
        r"sampling\.temperature = -1: .*greater than or equal to 0",
    ),
    "a negative temperature in exams": (
        ["--eval.temperature=-1"],
        r"eval\.temperature = -1: .*greater than 0",
    ),
    "a rate without end": (
        ["--rl.optimizer.rate=inf"],
        r"rl\.optimizer\.rate = inf: .*finite number",
    ),
    "a goal that is no number": (
        ["--sft.phases.0.stop_at=nan"],
        r"sft\.phases\.0\.stop_at = nan: .*finite number",
    ),
    "time without end": (
        ["--tool.wall_seconds=inf"],
        r"tool\.wall_seconds = inf: .*finite number",
    ),
    "a style's weight without end": (
        ["--collect.demonstrators.styles.direct=inf"],
        r"styles.* = inf|styles is .*finite weights",
    ),
    "weights whose sum is too large": (
        ["--collect.demonstrators.styles={direct=1e308,guarded=1e308}"],
        r"styles is .*finite weights",
    ),
    "a probability above 1": (["--eval.top_p=1.5"], r"eval\.top_p = 1\.5: .*less than or equal to"),
    "an unknown choice": (
        ["--rl.reward.variant=best"],
        r"rl\.reward\.variant = 'best': .*'gated', 'paper', 'released', 'outcome' or 'search'",
    ),
    "an unknown variant": (
        ["--model.type=giant"],
        r"model\.type = 'giant': known are 'fresh', 'pretrained', 'gguf', 'openai'",
    ),
    "an unknown number of workers": (["--compute.workers=many"], r"compute\.workers = 'many'"),
    "an unknown style": (
        ["--collect.demonstrators.styles.wild=1"],
        r"styles names 'wild': known are direct, deliberate",
    ),
    "a KL estimate without a gradient": (
        ["--rl.loss.kl_estimator=k1"],
        r"loss\.kl_estimator = k1: .*; use k2",
    ),
    "a buffer beyond its limit": (
        ["--rl.reward.overlong_buffer=9"],
        r"reward\.overlong_buffer = 9: .*raise the limit or shrink",
    ),
    "no phases": (["--sft.phases=[]"], r"sft\.phases = .*at least 1"),
    "two phases of one name": (
        ["--sft.phases.1.name=first"],
        r"sft\.phases: the name 'first' is taken; .* a name of its own",
    ),
    "a phase with an exam's name": (
        ["--sft.phases.0.name=before"],
        r"sft\.phases: the name 'before' is taken",
    ),
    "a phase whose name is a path": (
        ["--sft.phases.0.name=../up"],
        r"sft\.phases\.0\.name = '\.\./up'",
    ),
    "more than all of a phase without calls": (
        ["--sft.phases.0.tool_free=1.5"],
        r"sft\.phases\.0\.tool_free = 1\.5: .*less than or equal to 1",
    ),
    "a phase that there is not": (
        ["--sft.phases.5.steps=3"],
        r"--sft\.phases\.5\.steps: there is no place 5; the list has 2, counted from 0",
    ),
    "a key without a value": (["--rl.steps"], r"--rl\.steps: its value is missing; give"),
    "a key where a value should be": (
        ["--rl.steps", "--seed", "1"],
        r"--rl\.steps: its value is missing; give a key and a value, such as --rl\.steps 20",
    ),
    "a word too many": (["stray"], r"stray: this word belongs to no key; give a key and a value"),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_an_unreadable_recipe_is_explained_and_leaves_nothing_behind(
    recipe, tmp_path, capsys, case
):
    overrides, words = UNREADABLE[case]
    folder = tmp_path / "run"
    for command in (["quickstart", "--recipe", recipe], ["collect", recipe]):
        message = refused(capsys, *command, "--run", folder, *overrides)
        assert re.search(words, message), message
        assert not folder.exists()


def test_every_fault_of_a_recipe_is_named_at_once(recipe, tmp_path, capsys):
    folder = tmp_path / "run"
    overrides = ("--rl.stepz=1", "--rl.optimizer.updates=0", "--model.widht=1")
    message = refused(capsys, "collect", recipe, "--run", folder, *overrides)
    words = ("rl.stepz", "rl.optimizer.updates", "model.widht")
    assert [word for word in words if word not in message] == []


HUGE = [
    "rl.optimizer.floor",
    "rl.optimizer.clip_norm",
    "rl.off_policy.correction.cap",
    "rl.off_policy.correction.most_k3",
    "rl.control.clip.start",
    "rl.control.clip.fall",
    "rl.credit.critic.clip",
]


@pytest.mark.parametrize("key", HUGE)
def test_a_number_that_would_overflow_is_named(recipe, tmp_path, capsys, key):
    folder = tmp_path / "run"
    message = refused(capsys, "collect", recipe, "--run", folder, f"--{key}=1e308")
    assert re.search(rf"{key}\b.* less than or equal to", message), message
    assert not folder.exists()


@pytest.mark.parametrize("section", ["rl", "sft", "model", "problems"])
def test_a_missing_section_is_named(tmp_path, capsys, section):
    recipe = write_recipe(tmp_path)
    parts = re.split(r"(?m)^(?=\[)", recipe.read_text())
    recipe.write_text("".join(p for p in parts if not re.match(rf"\[+{section}[\].]", p)))
    message = refused(capsys, "collect", recipe, "--run", tmp_path / "run")
    assert f"\n  {section}: this key is missing; add it" in message
    assert f"{recipe}: the recipe cannot be used" in message
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('type = "file"', "problems.type: this key is missing; add it"),
        ("steps = 40", "sft.phases.0.steps: this key is missing; add it"),
    ],
)
def test_a_missing_key_is_named(tmp_path, capsys, line, words):
    recipe = write_recipe(tmp_path)
    recipe.write_text(recipe.read_text().replace(line, "", 1))
    assert words in refused(capsys, "collect", recipe, "--run", tmp_path / "run")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "No such file or directory; give the path of a TOML file"),
        (b"seed = [", "is not TOML: "),
        (b"\xff\xfe", "is not TOML: "),
        (b"", "problems: this key is missing; add it"),
    ],
)
def test_a_file_that_holds_no_recipe_is_named(tmp_path, capsys, content, words):
    recipe = tmp_path / "mine.toml"
    if content is not None:
        recipe.write_bytes(content)
    message = refused(capsys, "collect", recipe, "--run", tmp_path / "run")
    assert words in message
    assert str(recipe) in message
    assert not (tmp_path / "run").exists()


def test_a_folder_is_no_recipe(tmp_path, capsys):
    message = refused(capsys, "collect", tmp_path, "--run", tmp_path / "run")
    assert f"recipe {tmp_path}: Is a directory; give the path of a TOML file" in message


def test_an_override_wins_over_the_file_and_a_later_one_over_an_earlier(recipe, tmp_path):
    folder = tmp_path / "run"
    words = ("--collect.problems", "1", "--collect.problems=2", "--sft.phases.0.steps", "3")
    assert forethought("collect", recipe, "--run", folder, "--rl.steps", "3", *words) == 0
    kept = json.loads((folder / "recipe.json").read_text())
    assert kept["collect"]["problems"] == 2
    assert [phase["steps"] for phase in kept["sft"]["phases"]] == [3, 20]
    assert kept["sft"]["phases"][0]["optimizer"]["type"] == "muon"
    assert kept["rl"]["steps"] == 3


@pytest.mark.parametrize(
    ("line", "override"),
    [
        ("rate = 1e-3", "--rl.optimizer.rate=1e-3"),
        ("warmup = 7", "--rl.optimizer.warmup=7"),
    ],
)
def test_an_override_means_what_the_key_means_in_the_file(tmp_path, line, override):
    written = write_recipe(tmp_path)
    text = written.read_text().replace("[rl.optimizer]\nupdates = 2\nrate = 1e-3\n", "")
    written.write_text(text)
    overridden = read_recipe(written, [override])
    written.write_text(text.replace("[eval]", f"[rl.optimizer]\n{line}\n\n[eval]"))
    assert overridden == read_recipe(written)


@pytest.mark.parametrize(
    ("words", "key", "value"),
    [
        (["--rl.group-size", "8"], ["rl", "group_size"], 8),
        (["--rl.reward.wrong_ceiling", "-0.5"], ["rl", "reward", "wrong_ceiling"], -0.5),
        (["--compute.deterministic", "true"], ["compute", "deterministic"], True),
        (["--problems.train", "a b.jsonl"], ["problems", "train"], "a b.jsonl"),
        (["--agent.instruction=x = 1\ny = 2"], ["agent", "instruction"], "x = 1\ny = 2"),
        (["--compute.workers", "auto"], ["compute", "workers"], "auto"),
        (["--tool.preload", '["math"]'], ["tool", "preload"], ["math"]),
        (["--model", '{type="pretrained", name="x"}'], ["model", "name"], "x"),
        (
            ["--collect.teacher", '{base_url="http://h/v1", model="m"}'],
            ["collect", "teacher", "model"],
            "m",
        ),
    ],
)
def test_overrides_reach_values_of_every_kind(recipe, words, key, value):
    found = read_recipe(recipe, words).model_dump(mode="json")
    for part in key:
        found = found[part]
    assert found == value
