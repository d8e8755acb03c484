"""Whatever is asked wrongly is answered once: the thing, its value, what to do; exit code 2."""

import json
import re
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import GPT2Config, GPT2LMHeadModel

from app.small import copied, forethought, write_problems, write_recipe
from forethought.app.engine import refuse_too_large
from forethought.app.recipe import read_recipe
from forethought.core.errors import RecipeError
from forethought.policy.formats import chat_format
from forethought.policy.local.models import load_local


def refused(capsys, *words):
    """The one message with which a command is refused."""
    capsys.readouterr()
    assert forethought(*words) == 2
    message = capsys.readouterr().err
    assert message.startswith("forethought: ")
    assert message.count("forethought: ") == 1
    assert "Traceback" not in message
    return message


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
    "a key that is like no other": (
        ["--measure.zzz=1"],
        r"measure\.zzz: there is no such key; known keys: attempts, problems",
    ),
    "a word for a number": (["--rl.steps=three"], r"rl\.steps = 'three': .*valid integer"),
    "half a step": (["--rl.steps=2.5"], r"rl\.steps = 2\.5: .*integer"),
    "a number out of range": (["--rl.steps=-1"], r"rl\.steps = -1: .*greater than 0"),
    "no time": (["--tool.wall_seconds=0"], r"tool\.wall_seconds = 0: .*greater than 0"),
    "a negative temperature": (
        ["--sampling.temperature=-1"],
        r"sampling\.temperature = -1: .*greater than or equal to 0",
    ),
    "a negative temperature in exams": (
        ["--eval.temperature=-1"],
        r"eval\.temperature = -1: .*greater than 0",
    ),
    "a probability above 1": (["--eval.top_p=1.5"], r"eval\.top_p = 1\.5: .*less than or equal to"),
    "an unknown choice": (
        ["--rl.reward.variant=best"],
        r"rl\.reward\.variant = 'best': .*'gated', 'paper', 'released' or 'outcome'",
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
    overrides = ("--rl.stepz=1", "--rl.updates=0", "--model.widht=1")
    message = refused(capsys, "collect", recipe, "--run", folder, *overrides)
    assert [word for word in ("rl.stepz", "rl.updates", "model.widht") if word not in message] == []


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
    ("words", "key", "value"),
    [
        (["--rl.group-size", "8"], ["rl", "group_size"], 8),
        (["--rl.reward.wrong_ceiling", "-0.5"], ["rl", "reward", "wrong_ceiling"], -0.5),
        (["--tool.allow_weak", "true"], ["tool", "allow_weak"], True),
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


BROKEN_PROBLEMS = {
    "no file": (None, r"train\.jsonl is no file: give the path"),
    "an empty file": ("", r"train\.jsonl holds no rows: give a file"),
    "a row that is no JSON": ('{"prompt": "a"\n', r"train\.jsonl, row 1: not JSON"),
    "a row without an answer": (
        '{"prompt": "a", "answer": 1}\n{"prompt": "b"}\n',
        r"train\.jsonl, row 2: 'answer' must be text, got nothing",
    ),
}


@pytest.mark.parametrize("case", BROKEN_PROBLEMS)
def test_broken_problems_are_named_and_can_be_mended_in_place(tmp_path, capsys, case):
    content, words = BROKEN_PROBLEMS[case]
    recipe, folder = write_recipe(tmp_path), tmp_path / "run"
    problems = tmp_path / "train.jsonl"
    problems.unlink()
    if content is not None:
        problems.write_text(content)
    message = refused(capsys, "collect", recipe, "--run", folder)
    assert re.search(words, message), message
    write_problems(problems, 100)
    assert forethought("collect", recipe, "--run", folder) == 0


def test_too_few_problems_are_counted_and_the_recipe_can_be_mended_in_place(
    recipe, tmp_path, capsys
):
    folder = tmp_path / "run"
    message = refused(capsys, "collect", recipe, "--run", folder, "--collect.problems=1000")
    assert "400 on the training side, but pilot, measure and collect take 4 + 8 + 1000" in message
    assert "lower those numbers or add problems" in message
    assert forethought("collect", recipe, "--run", folder) == 0


@pytest.fixture
def collected(staged, tmp_path):
    return copied(staged.collect, tmp_path / "run")


def with_model(recipe, tmp_path, model):
    """The recipe with another model, begun anew."""
    text = re.sub(r"(?s)\[model\].*?(?=\[tool\])", f"[model]\n{model}\n", recipe.read_text())
    changed = tmp_path / "other.toml"
    changed.write_text(text)
    return changed


def test_a_model_folder_that_is_missing_is_named_and_the_recipe_can_be_mended(
    recipe, collected, tmp_path, capsys
):
    other = with_model(recipe, tmp_path, f'type = "pretrained"\nname = "{tmp_path}/nowhere"')
    message = refused(capsys, "sft", other, "--run", collected)
    assert f"model '{tmp_path}/nowhere' cannot be loaded" in message
    assert "give a folder with config.json, model.safetensors and tokenizer.json" in message
    assert forethought("sft", recipe, "--run", collected, "--sft.phases.0.steps=1") == 0


def test_a_gguf_file_that_is_missing_is_named(recipe, collected, tmp_path, capsys):
    other = with_model(
        recipe, tmp_path, f'type = "gguf"\nfile = "{tmp_path}/no.gguf"\nfolder = "{tmp_path}/c"'
    )
    assert f"model.file = '{tmp_path}/no.gguf'" in refused(capsys, "sft", other, "--run", collected)


def test_a_model_behind_an_endpoint_is_not_trained(recipe, collected, tmp_path, capsys):
    other = with_model(
        recipe, tmp_path, 'type = "openai"\nbase_url = "http://127.0.0.1:9/v1"\nmodel = "m"'
    )
    message = refused(capsys, "sft", other, "--run", collected)
    assert "not trained here" in message


def test_a_model_of_another_architecture_is_refused(recipe, collected, tmp_path, capsys):
    folder = tmp_path / "model"
    sizes = {"n_embd": 8, "n_layer": 1, "n_head": 1, "vocab_size": 16, "n_positions": 16}
    ends = {"bos_token_id": 0, "eos_token_id": 1}
    GPT2LMHeadModel(GPT2Config(**sizes, **ends)).save_pretrained(folder)
    tokenizer = Tokenizer(models.WordLevel({"<unk>": 0}, unk_token="<unk>"))
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    other = with_model(recipe, tmp_path, f'type = "pretrained"\nname = "{folder}"')
    message = refused(capsys, "sft", other, "--run", collected)
    assert "gpt2" in message.lower()
    assert "choose a model of a supported family" in message


def test_a_model_that_nobody_knows_is_refused(recipe, collected, tmp_path, capsys):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "nonsense"}')
    other = with_model(recipe, tmp_path, f'type = "pretrained"\nname = "{folder}"')
    message = refused(capsys, "sft", other, "--run", collected)
    assert f"model '{folder}' cannot be loaded" in message
    assert "nonsense" in message


def test_a_chat_format_needs_its_control_tokens(tmp_path):
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "<unk>": 1}, unk_token="<unk>"))
    with pytest.raises(RecipeError, match=r"token") as refusal:
        chat_format("hermes", tokenizer)
    assert "hermes" in str(refusal.value)


def test_a_model_without_a_tokenizer_is_named(staged, tmp_path):
    folder = copied(staged.sft / "checkpoints" / "sft_second" / "19", tmp_path / "model")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(RecipeError, match=r"tokenizer\.json"):
        load_local(str(folder))


def test_heads_must_share_the_width(recipe, collected, capsys):
    message = refused(capsys, "sft", recipe, "--run", collected, "--model.heads=3")
    assert "model.width = 32: it must be a multiple of model.heads = 3" in message


def test_trajectories_longer_than_the_limit_leave_nothing_to_train(recipe, collected, capsys):
    message = refused(capsys, "sft", recipe, "--run", collected, "--sft.longest=5")
    assert re.search(
        r"no trajectory is left to train on \(\d+ are longer than sft\.longest = 5", message
    )


def test_a_kind_of_trajectory_that_was_not_collected_is_named(recipe, tmp_path, capsys):
    folder = tmp_path / "run"
    styles = "--collect.demonstrators.styles={direct=1.0}"
    assert forethought("collect", recipe, "--run", folder, styles) == 0
    message = refused(capsys, "sft", recipe, "--run", folder, styles)
    assert "no trajectory without a call was collected; give" in message


@pytest.mark.parametrize(
    ("command", "needed", "remedy"),
    [
        ("sft", "collect", "forethought collect"),
        ("measure", "sft_second", "forethought sft"),
        ("rl", "measure", "forethought measure"),
        ("eval", "sft_first", "the stages before"),
    ],
)
def test_a_stage_before_its_time_names_the_one_it_needs(
    recipe, tmp_path, capsys, command, needed, remedy
):
    message = refused(capsys, command, recipe, "--run", tmp_path / "run")
    assert f"stage {needed} has not finished yet" in message
    assert remedy in message


@pytest.mark.parametrize(
    ("command", "override", "words"),
    [
        ("rl", "--rl.loss.clip_low=0.1", "rl.loss.clip_low was null, is now 0.1"),
        ("rl", "--seed=4", "seed was 3, is now 4"),
        ("sft", "--sft.phases.1.batch=4", "sft.phases.1.batch was 8, is now 4"),
        ("measure", "--measure.attempts=5", "measure.attempts was 4, is now 5"),
        ("collect", "--agent.max_turns=5", "agent.max_turns was 2, is now 5"),
    ],
)
def test_a_run_begun_with_another_setting_names_it_with_both_values(
    recipe, staged, tmp_path, capsys, command, override, words
):
    folder = copied(staged.rl, tmp_path / "run")
    kept = (folder / "recipe.json").read_text()
    message = refused(capsys, command, recipe, "--run", folder, override)
    assert words in message
    assert "Restore them, or name another folder with --run" in message
    assert (folder / "recipe.json").read_text() == kept


def test_an_unknown_family_is_named_and_can_be_mended_in_place(recipe, tmp_path, capsys):
    folder = tmp_path / "run"
    words = ("collect", recipe, "--run", folder, "--collect.problems=1", "--sft.pilot_every=0")
    practice = "--problems={{type='practice', families=['{}']}}"
    message = refused(capsys, *words, practice.format("gcdd"))
    assert "families names 'gcdd': known are stories, " in message
    assert forethought(*words, practice.format("gcd")) == 0


def test_a_folder_that_holds_something_else_is_left_alone(recipe, tmp_path, capsys):
    folder = tmp_path / "thesis"
    folder.mkdir()
    (folder / "chapter[1].tex").write_text("precious")
    message = refused(capsys, "collect", recipe, "--run", folder)
    assert f"{folder} holds something that is not a run (chapter[1].tex)" in message
    assert "--run" in message
    assert [each.name for each in folder.iterdir()] == ["chapter[1].tex"]


@pytest.mark.parametrize("below", ["", "deeper"])
def test_a_run_where_a_file_is_names_it(recipe, capsys, below):
    folder = recipe / below if below else recipe
    message = refused(capsys, "collect", recipe, "--run", folder)
    assert str(folder) in message
    assert "name a path whose parent is a folder" in message


@pytest.mark.skipif(not Path("/sys/kernel").is_dir(), reason="this system has no /sys")
def test_a_folder_that_may_not_be_written_is_named(recipe, capsys):
    folder = Path("/sys/forethought-run")  # not even root may make it
    message = refused(capsys, "collect", recipe, "--run", folder)
    assert f"{folder} cannot be written" in message
    assert "allow this user to write" in message


def test_a_report_of_no_run_is_refused(tmp_path, capsys):
    message = refused(capsys, "report", tmp_path / "nothing")
    assert "holds no run" in message
    assert not (tmp_path / "nothing").exists()


def test_weak_isolation_is_not_had_by_accident(recipe, tmp_path, capsys):
    folder = tmp_path / "run"
    message = refused(capsys, "collect", recipe, "--run", folder, "--tool.isolation=process")
    assert "isolation" in message
    assert "allow_weak" in message


def test_a_gpu_that_is_not_there_is_named(recipe, collected, capsys):
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    message = refused(capsys, "sft", recipe, "--run", collected, "--compute.device=cuda")
    assert 'compute.device = "cuda": torch finds no GPU here; use "auto" or "cpu"' in message


def test_a_model_that_does_not_fit_is_refused_in_numbers(staged):
    model = load_local(str(staged.sft / "checkpoints" / "sft_second" / "19"))
    with pytest.raises(RecipeError) as refusal:
        refuse_too_large(model, 2, 300 * 2**20)
    message = str(refusal.value)
    assert "0.0M parameters needs about 0.4 GiB to train, 0.3 GiB are free; choose a" in message
    refuse_too_large(model, 2, 2**30)


@pytest.mark.parametrize("words", [["frobnicate"], ["collect"], []])
def test_a_command_that_there_is_not_is_a_usage_error(words, capsys):
    with pytest.raises(SystemExit) as ended:
        forethought(*words)
    assert ended.value.code == 2
    assert "usage: forethought" in capsys.readouterr().err
