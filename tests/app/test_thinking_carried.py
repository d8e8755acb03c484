"""What becomes of earlier thinking is saved with a model, and another way is told."""

import json

import pytest

from app.small import copied, forethought
from app.test_other_models import FEW, pretrained
from forethought.app.brought import other_thinking
from forethought.app.recipe import checked
from forethought.policy.local.models import load_local
from tiny import local_model

# peft asks transformers for a property by its former name.
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")

STRIP = "--sampling.thinking=strip"


def said_of_thinking(folder):
    return json.loads((folder / "forethought.json").read_text()).get("thinking")


@pytest.fixture(scope="module")
def stripped(recipe, staged, tmp_path_factory):
    """A run whose model was trained to forget its earlier thinking."""
    run = copied(staged.collect, tmp_path_factory.mktemp("stripped") / "run")
    assert forethought("sft", recipe, "--run", run, *FEW, STRIP) == 0
    return run


def last(run):
    return run / "checkpoints" / "sft_second" / "1"


def test_a_checkpoint_and_an_export_say_what_became_of_thinking(stripped, staged, tmp_path):
    for checkpoint in ("sft_first/1", "sft_second/1"):
        assert said_of_thinking(stripped / "checkpoints" / checkpoint) == "strip"
    assert forethought("export", stripped, tmp_path / "model") == 0
    assert said_of_thinking(tmp_path / "model") == "strip"
    assert load_local(str(tmp_path / "model")).thinking == "strip"
    assert 'sampling.thinking = "strip"' in (tmp_path / "model" / "README.md").read_text()
    assert forethought("export", staged.rl, tmp_path / "other") == 0
    assert said_of_thinking(tmp_path / "other") == "keep"


def test_a_checkpoint_that_does_not_say_it_is_exported_as_its_recipe_does(stripped, tmp_path):
    run = copied(stripped, tmp_path / "run")
    (last(run) / "forethought.json").write_text('{"format": "compact"}')
    (last(run) / "files.json").unlink()
    assert forethought("export", run, tmp_path / "model") == 0
    assert said_of_thinking(tmp_path / "model") == "strip"


@pytest.mark.parametrize(("rank", "thinking"), [(0, "keep"), (2, "keep"), (0, "strip")])
def test_a_run_that_sees_thinking_otherwise_than_its_model_was_trained_is_told_at_its_beginning(
    recipe, staged, stripped, tmp_path, capsys, rank, thinking
):
    run, base = copied(staged.collect, tmp_path / "run"), last(stripped)
    words = (*FEW, pretrained(base, lora_rank=rank), f"--sampling.thinking={thinking}")
    capsys.readouterr()
    assert forethought("sft", recipe, "--run", run, *words) == 0
    told = f'warning: sampling.thinking = "keep": the model in {base} was trained with "strip", '
    beginning, training = capsys.readouterr().out.split("\nSFT\n")
    assert (told in beginning) == (thinking == "keep")
    assert "warning" not in training
    assert said_of_thinking(last(run)) == thinking


def found(name, thinking="keep", **model):
    tree = {
        "problems": {"type": "practice"},
        "model": {"type": "pretrained", "name": str(name)} | model,
        "sampling": {"thinking": thinking},
        "sft": {"phases": [{"name": "first", "steps": 1}]},
        "rl": {"steps": 1},
    }
    return tuple(other_thinking(checked(tree, "a recipe")))


@pytest.mark.parametrize("kind", ["older", "not there", "damaged", "from elsewhere"])
def test_a_model_that_does_not_say_it_is_not_told_of(kind, tmp_path):
    local_model().save(tmp_path)
    description = tmp_path / "forethought.json"
    if kind == "damaged":
        description.write_text("{")
    elif kind == "from elsewhere":
        description.unlink()
    name = "owner/name" if kind == "not there" else tmp_path
    assert found(name) == found(name, "strip") == ()


def test_the_sentence_names_the_key_and_both_values(tmp_path):
    (tmp_path / "forethought.json").write_text('{"format": "compact", "thinking": "keep"}')
    assert found(tmp_path, "keep") == ()
    (sentence,) = found(tmp_path, "strip")
    assert sentence.startswith(f'sampling.thinking = "strip": the model in {tmp_path} was trained ')
    assert 'set sampling.thinking = "keep", unless' in sentence
