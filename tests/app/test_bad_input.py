"""Whatever is asked wrongly is answered once: the thing, its value, what to do; exit code 2."""

import re
import tempfile
from pathlib import Path

import psutil
import pytest
import torch
from benchmarks.small import write_problems, write_recipe
from rich.console import Console
from tokenizers import Tokenizer, models
from transformers import GPT2Config, GPT2LMHeadModel

from app.small import copied, forethought, refused
from disks import as_nobody
from forethought.app.context import Context
from forethought.app.engine import available_memory
from forethought.app.memory import (
    memory_needed,
    refuse_too_large,
    refuse_unbuildable,
)
from forethought.app.recipe import Recipe
from forethought.app.show import Show
from forethought.core.errors import RecipeError
from forethought.journal.run import Run
from forethought.learning.settings import OptimizerSettings
from forethought.policy.formats import chat_format
from forethought.policy.local.models import load_local
from tiny import local_model

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
    assert "give a folder with intact config.json, model.safetensors and tokenizer.json" in message
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
        ("eval", "sft_first", "forethought sft"),
    ],
)
def test_a_stage_before_its_time_names_the_one_it_needs(
    recipe, tmp_path, capsys, command, needed, remedy
):
    message = refused(capsys, command, recipe, "--run", tmp_path / "run")
    assert f"stage {needed} has not finished yet" in message
    assert remedy in message


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


@pytest.mark.parametrize(
    ("below", "remedy"),
    [("", "remove or rename what stands"), ("deeper", "name a path whose parent is a folder")],
)
def test_a_run_where_a_file_is_names_it(recipe, capsys, below, remedy):
    folder = recipe / below if below else recipe
    message = refused(capsys, "collect", recipe, "--run", folder)
    assert str(folder) in message
    assert remedy in message


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


def test_no_isolation_is_not_had_by_accident(recipe, tmp_path, capsys):
    folder = tmp_path / "run"
    message = refused(capsys, "collect", recipe, "--run", folder, "--tool.tier=none")
    assert "tool.tier" in message
    assert "FORETHOUGHT_UNSAFE_TOOL=1" in message


def test_a_gpu_that_is_not_there_is_named(recipe, collected, capsys):
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    message = refused(capsys, "sft", recipe, "--run", collected, "--compute.device=cuda")
    assert 'compute.device = "cuda": torch finds no GPU here; use "auto" or "cpu"' in message


def test_a_model_that_does_not_fit_is_refused_in_numbers(staged):
    model = load_local(str(staged.sft / "checkpoints" / "sft_second" / "19"))
    needed = memory_needed(model, 2, on_gpu=False)
    with pytest.raises(RecipeError) as refusal:
        refuse_too_large(model, 2, needed, 300 * 2**20)
    message = str(refusal.value)
    assert "0.0M parameters needs about 0.4 GiB more, 0.3 GiB are free" in message
    assert (
        "choose a smaller model, fewer than 2 workers (compute.workers) or, to train it, lower"
        in message
    )
    refuse_too_large(model, 2, needed, needed)
    with pytest.raises(
        RecipeError, match=r"choose a smaller model or, to train it, lower compute\.micro_tokens"
    ):
        refuse_too_large(model, 0, needed, needed - 1)


def test_a_model_too_large_to_be_made_is_refused_before_it_is_made():
    needs = r"1000\.0M parameters needs about 4\.1 GiB to be made, 2\.0 GiB are free"
    with pytest.raises(RecipeError, match=needs):
        refuse_unbuildable(10**9, 2 * 2**30)
    refuse_unbuildable(10**9, 5 * 2**30)


def test_memory_is_counted_for_what_is_not_there_yet():
    model = local_model()
    each = 4 * model.parameters
    alone = memory_needed(model, 0, on_gpu=False)
    assert memory_needed(model, 2, on_gpu=False) - alone == 2 * each  # a gradient a worker
    assert memory_needed(model, 0, on_gpu=False, with_reference=True) - alone == each
    assert memory_needed(model, 0, on_gpu=True) - alone == each  # the weights move there
    model.network.requires_grad_(False)
    assert alone - memory_needed(model, 0, on_gpu=False) == 3 * each  # gradient, two moments


def test_memory_is_counted_for_the_largest_optimiser_that_a_run_will_have():
    model = local_model(hidden_size=64, intermediate_size=72)
    small = OptimizerSettings(type="adamw_8bit")
    few = memory_needed(model, 0, on_gpu=False, optimizers=[small, small])
    many = memory_needed(model, 0, on_gpu=False, optimizers=[small, OptimizerSettings()])
    assert few < many == memory_needed(model, 0, on_gpu=False)


def test_free_memory_is_that_of_where_it_is_computed():
    here = psutil.virtual_memory().total
    assert 0 < available_memory(torch.device("cpu")) <= here
    if torch.cuda.is_available():
        there = torch.cuda.mem_get_info()[1]
        assert 0 < available_memory(torch.device("cuda")) <= there


@pytest.mark.parametrize("word", ["--rl.steps=3", "stray"])
def test_a_command_without_a_recipe_takes_no_further_words(staged, capsys, word):
    for command in (["report", staged.eval], ["recipe"]):
        message = refused(capsys, *command, word)
        assert f"{word}: {command[0]} reads no recipe" in message
        assert "leave this out" in message


@pytest.mark.parametrize("words", [["frobnicate"], ["collect"], []])
def test_a_command_that_there_is_not_is_a_usage_error(words, capsys):
    with pytest.raises(SystemExit) as ended:
        forethought(*words)
    assert ended.value.code == 2
    assert "usage: forethought" in capsys.readouterr().err


def test_checkpoints_that_may_not_be_read_are_not_called_gone():
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        with Run.create_or_open(Path(name) / "run", {}) as run:
            stage = run.stage("sft_one")
            stage.commit(0)
            stage.finish()
            run.checkpoints.chmod(0o700)
            context = Context(Recipe.model_construct(), run, Show(Console()))
            told = r"sft_one/0 cannot be read \(Permission denied\): allow this user to read it"
            with as_nobody(), pytest.raises(RecipeError, match=told):
                context.trained("sft_one")


def test_a_finished_stage_whose_checkpoints_are_gone_is_named(tmp_path):
    with Run.create_or_open(tmp_path / "run", {}) as run:
        stage = run.stage("sft_one")
        stage.commit(0)
        stage.finish()
        context = Context(Recipe.model_construct(), run, Show(Console()))
        with pytest.raises(RecipeError) as refusal:
            context.load("sft_one")
    assert "holds no checkpoint of the finished stage sft_one" in str(refusal.value)
    assert "run that stage in another --run folder" in str(refusal.value)
