"""A run's model leaves as a folder that other programs read, with how it was made."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from app.small import copied, forethought, refused
from app.test_other_models import FEW, pretrained
from forethought.core.messages import System, User
from forethought.journal.run import Run
from forethought.policy.local.models import load_local
from forethought.policy.openai_form import messages_to_openai
from forethought.tools.python_tool import python_spec
from forethought.tools.settings import PythonSettings

# peft asks transformers for a property by its former name.
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")


PYTHON = PythonSettings()


@torch.no_grad()
def logits(network):
    return network(torch.tensor([[1, 2, 3, 4, 5]])).logits


def test_a_model_with_adapters_is_exported_whole_with_its_exams_and_recipe(
    recipe, staged, tmp_path, capsys
):
    base = staged.sft / "checkpoints" / "sft_second" / "19"
    run, folder = copied(staged.collect, tmp_path / "run"), tmp_path / "out" / "model"
    words = (*FEW, "--rl.steps=1", pretrained(base, lora_rank=2))
    for command in ("sft", "measure", "rl", "eval"):
        assert forethought(command, recipe, "--run", run, *words) == 0
    assert forethought("export", run, folder) == 0
    assert "the model that rl ended with" in capsys.readouterr().out
    exported = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    trained = load_local(str(run / "checkpoints" / "rl" / "0"))
    torch.testing.assert_close(logits(exported), logits(trained.network), rtol=1e-5, atol=1e-5)
    assert not torch.equal(logits(exported), logits(load_local(str(base)).network))
    assert trained.format.end_of_turn in exported.generation_config.eos_token_id
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "| after |" in card
    assert json.dumps(json.loads((run / "recipe.json").read_text()), indent=1) in card
    assert "is there already: name a new folder" in refused(capsys, "export", run, folder)


def test_other_programs_read_texts_and_conversations_of_a_run_as_its_model_does(
    staged, tmp_path, capsys
):
    assert forethought("export", staged.rl, tmp_path / "model") == 0
    with Run.read(staged.rl) as run:
        texts = {
            message.text
            for group in run.groups("rl")
            for episode in group.episodes
            for message in episode.trajectories[0].messages
        }
    numbered = "In 1999, 23 + 1,000 =\n\n  1023? It's \\boxed{1023}."
    for folder in (tmp_path / "model", staged.rl / "checkpoints" / "rl" / "3"):
        ours, theirs = load_local(str(folder)), AutoTokenizer.from_pretrained(folder)
        for text in (*texts, numbered):
            ids = ours.tokenizer.encode(text, add_special_tokens=False).ids
            assert theirs(text)["input_ids"] == ids
            assert theirs.decode(ids) == ours.tokenizer.decode(ids, skip_special_tokens=False)
        assert theirs.eos_token_id == ours.format.end_of_turn
        messages, tool = [System(text="Be brief."), User(text=numbered)], python_spec(PYTHON)
        asked = theirs.apply_chat_template(
            messages_to_openai(messages),
            tools=[tool.as_function()],
            add_generation_prompt=True,
            return_dict=False,
        )
        assert asked == ours.format.opening(messages, [tool])
    card = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    assert "the chat template in `tokenizer_config.json` writes" in card


def test_a_run_that_has_trained_nothing_is_not_exported(staged, tmp_path, capsys):
    message = refused(capsys, "export", staged.collect, tmp_path / "model")
    assert "no training stage has finished yet; run sft or rl first" in message
    assert not (tmp_path / "model").exists()


def test_a_damaged_checkpoint_is_not_exported(staged, tmp_path, capsys):
    run = copied(staged.rl, tmp_path / "run")
    *_, last = sorted((run / "checkpoints" / "rl").iterdir(), key=lambda path: int(path.name))
    weights = last / "model.safetensors"
    *others, byte = weights.read_bytes()
    weights.write_bytes(bytes([*others, byte ^ 1]))
    assert "is damaged" in refused(capsys, "export", run, tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("run/checkpoints/rl/9", "name a folder outside of it"),
        ("run/../run/model", "name a folder outside of it"),
        ("file/model", "is no folder: name another place"),
        ("dangling", "is there already: name a new folder"),
        ("new/..", "is there already: name a new folder"),
    ],
)
def test_a_place_that_is_not_for_a_model_is_refused_and_left_as_it_was(
    staged, tmp_path, capsys, place, message
):
    run = copied(staged.rl, tmp_path / "run")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "dangling").symlink_to("nowhere")
    before = {*tmp_path.iterdir(), *(run / "checkpoints").rglob("*")}
    said = refused(capsys, "export", run, f"{tmp_path}/{place}")
    assert message in said
    assert {*tmp_path.iterdir(), *(run / "checkpoints").rglob("*")} == before


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="this system has no /proc")
def test_a_disk_that_takes_no_folders_is_not_called_full(staged, capsys):
    said = refused(capsys, "export", staged.rl, "/proc/model")
    assert "see to it that /proc is a folder that takes new ones or choose another folder" in said
    assert "--run" not in said
