"""What can be known at the start is refused at the start, and nothing is begun."""

import re

import pytest
import torch

from app.small import copied, refused

ENDPOINT = '{type="openai", base_url="http://127.0.0.1:9/v1", model="m"}'

HOPELESS = {
    "sampling that cuts": ("--sampling.top_p=0.9", r"sampling\.top_p = 0\.9: RL .*top_p = 1"),
    "greedy sampling": ("--sampling.temperature=0", r"sampling\.temperature = 0\.0, .*above 0"),
    "a model behind an endpoint": (f"--model={ENDPOINT}", r'model\.type = "openai".*not trained'),
    "a GGUF file that is missing": (
        '--model={type="gguf", file="no.gguf", folder="made"}',
        r"model\.file = 'no\.gguf': there is no such file",
    ),
    "too few problems": ("--measure.problems=1000", r"problems: 400 on .*lower those numbers"),
    "no exam's problems": ("--problems.held_out=no.jsonl", r"no\.jsonl is no file: give the path"),
}


@pytest.mark.parametrize("case", HOPELESS)
def test_a_quickstart_that_would_fail_later_is_refused_at_once(recipe, tmp_path, capsys, case):
    override, words = HOPELESS[case]
    folder = tmp_path / "run"
    message = refused(capsys, "quickstart", "--recipe", recipe, "--run", folder, override)
    assert re.search(words, message), message
    assert not folder.exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_quickstart_without_its_gpu_is_refused_at_once(recipe, tmp_path, capsys):
    folder = tmp_path / "run"
    words = ("quickstart", "--recipe", recipe, "--run", folder, "--compute.device=cuda")
    assert "torch finds no GPU here" in refused(capsys, *words)
    assert not folder.exists()


@pytest.mark.parametrize(
    "override", ["--problems.train=no.jsonl", "--tool.python=no/python", "--collect.problems=1000"]
)
def test_a_collection_that_cannot_begin_leaves_no_folder(recipe, tmp_path, capsys, override):
    refused(capsys, "collect", recipe, "--run", tmp_path / "runs" / "run", override)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("override", ["--sampling.top_p=0.9", "--sampling.temperature=0"])
def test_rl_refuses_biased_sampling_before_it_begins(recipe, staged, tmp_path, capsys, override):
    folder = copied(staged.measure, tmp_path / "run")
    kept = (folder / "recipe.json").read_text()
    assert "RL compares" in refused(capsys, "rl", recipe, "--run", folder, override)
    assert (folder / "recipe.json").read_text() == kept


def test_rl_names_a_judge_that_does_not_answer(recipe, staged, tmp_path, capsys):
    folder = copied(staged.measure, tmp_path / "run")
    judge = f"--rl.reward.judge={{endpoint={ENDPOINT.replace('}', ', retries=0}')}}}"
    message = refused(capsys, "rl", recipe, "--run", folder, judge)
    place = "rl.reward.judge.endpoint: the model 'm' at http://127.0.0.1:9/v1"
    assert re.search(rf"{re.escape(place)} cannot be reached .*start the server", message)


def test_an_exam_reads_its_problems_before_it_asks_an_endpoint(recipe, tmp_path, capsys):
    words = ("eval", recipe, "--run", tmp_path / "run", f"--model={ENDPOINT}")
    message = refused(capsys, *words, "--problems.held_out=no.jsonl")
    assert "no.jsonl is no file: give the path" in message
