"""Runs with models that are not fresh: from a folder, with adapters, or behind an endpoint."""

import json
import re

import pytest
from benchmarks.small import coins

from app.small import copied, forethought, outcome, refused
from forethought.journal.run import Run
from policy.endpoint import serving
from policy.local.test_gguf import write_gguf
from tiny import network

# peft asks transformers for a property by its former name.
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")

FEW = ("--sft.phases.0.steps=2", "--sft.phases.1.steps=2")


def table(**fields):
    """A table as it is written in TOML, on one line."""
    return "{" + ", ".join(f"{key}={json.dumps(value)}" for key, value in fields.items()) + "}"


def pretrained(name, **fields):
    """The override that trains the model in the folder `name`."""
    chosen = {"type": "pretrained", "name": str(name), "format": "compact", **fields}
    return f"--model={table(**chosen)}"


@pytest.fixture
def trained(staged):
    """The folders of two models that the small recipe trained."""
    return [staged.sft / "checkpoints" / each for each in ("sft_first/39", "sft_second/19")]


@pytest.fixture
def after_sft(recipe, staged, tmp_path):
    """What SFT comes to that starts with a given model."""

    def run(name, *overrides):
        folder = copied(staged.collect, tmp_path / name)
        assert forethought("sft", recipe, "--run", folder, *FEW, *overrides) == 0
        return outcome(folder)

    return run


def test_the_named_model_is_the_one_that_is_trained(after_sft, trained):
    first, second = (after_sft(f"run{n}", pretrained(name=each)) for n, each in enumerate(trained))
    assert first.metrics["sft_first"]["loss"] != second.metrics["sft_first"]["loss"]
    fresh = after_sft("fresh")
    assert first.metrics["sft_first"]["loss"][0][1] < fresh.metrics["sft_first"]["loss"][0][1]


def test_a_folder_with_sampling_values_of_its_own_is_told_once_that_they_are_ignored(
    recipe, staged, trained, tmp_path, capsys
):
    folder = copied(staged.collect, tmp_path / "run")
    model = copied(trained[1], tmp_path / "model")
    brought = {"top_k": 20, "top_p": 0.8, "repetition_penalty": 1.05, "temperature": 0.7}
    (model / "generation_config.json").write_text(json.dumps(brought))
    few = (*FEW, "--rl.steps=1", "--measure.problems=8", pretrained(model))
    capsys.readouterr()
    for command in ("sft", "measure", "rl", "eval"):
        assert forethought(command, recipe, "--run", folder, *few) == 0
    said = capsys.readouterr().out
    note = (
        "the model's generation_config asks for temperature 0.7, top_p 0.8, top_k 20, "
        "repetition_penalty 1.05: ignored for training and exams; sampling uses temperature 1.0, "
        "top_p 1.0, top_k off, repetition_penalty 1.0"
    )
    assert said.count(note) == said.count("generation_config") == 1
    with Run.read(folder) as run:
        used = run.document("rl", "sampling")
        temperatures = {
            turn.temperature
            for group in run.groups("rl")
            for episode in group.episodes
            for trajectory in episode.trajectories
            for turn in trajectory.turns
        }
    assert used is not None
    assert (used["temperature"], used["top_p"], used["top_k"]) == (1.0, 1.0, 0)
    assert used["repetition_penalty"] == 1.0
    assert temperatures == {1.0}
    other = copied(staged.collect, tmp_path / "other")
    (model / "generation_config.json").unlink()
    for command in ("sft", "measure", "rl", "eval"):
        assert forethought(command, recipe, "--run", other, *few) == 0
    assert "generation_config" not in capsys.readouterr().out
    assert outcome(folder) == outcome(other)


def test_the_chat_format_is_the_one_that_is_named(recipe, staged, tmp_path):
    folder = copied(staged.collect, tmp_path / "hermes")
    words = (*FEW, "--model.format=hermes", "--model.context=3000", "--sft.longest=3000")
    assert forethought("sft", recipe, "--run", folder, *words) == 0
    saved = folder / "checkpoints" / "sft_second" / "1"
    again = copied(staged.collect, tmp_path / "again")
    words = (*FEW, "--sft.longest=3000", pretrained(saved, format="compact"))
    assert forethought("sft", recipe, "--run", again, *words) == 0
    formats = [
        json.loads((each / "checkpoints" / "sft_second" / "1" / "forethought.json").read_text())
        for each in (folder, again)
    ]
    assert formats == [
        {"format": "hermes", "thinking": "keep"},
        {"format": "compact", "thinking": "keep"},
    ]


def test_adapters_are_trained_through_every_stage(recipe, staged, trained, tmp_path):
    folder = copied(staged.collect, tmp_path / "run")
    model = pretrained(trained[1], lora_rank=2)
    for command in ("sft", "measure", "rl", "eval"):
        assert forethought(command, recipe, "--run", folder, *FEW, model) == 0
    saved = outcome(folder).weights
    assert {name.rpartition("/")[2] for name in saved["rl"]} == {
        "adapter_model.safetensors",
        "optimizer_0.safetensors",
    }
    assert (
        saved["rl"]["3/adapter_model.safetensors"]
        != saved["sft_second"]["1/adapter_model.safetensors"]
    )


def test_rank_and_scale_of_adapters_matter(after_sft, trained):
    runs = [
        after_sft(f"run{number}", pretrained(trained[1], lora_rank=rank, lora_alpha=alpha))
        for number, (rank, alpha) in enumerate([(2, 8), (3, 8), (2, 16)])
    ]
    adapters = [run.weights["sft_second"]["1/adapter_model.safetensors"] for run in runs]
    assert len(set(adapters)) == 3


def test_a_converted_file_is_trained_in_its_format_and_with_its_adapters(after_sft, tmp_path):
    write_gguf(tmp_path / "tiny.gguf", network("qwen2", max_position_embeddings=3000))
    chosen = [("compact", 2, 8), ("compact", 3, 8), ("compact", 2, 16), ("hermes", 2, 8)]
    trained = []
    for number, (format_name, rank, alpha) in enumerate(chosen):
        places = {"file": str(tmp_path / "tiny.gguf"), "folder": str(tmp_path / "converted")}
        model = table(type="gguf", **places, format=format_name, lora_rank=rank, lora_alpha=alpha)
        run = after_sft(f"run{number}", "--sft.longest=3000", f"--model={model}")
        trained.append(run.weights["sft_second"]["1/adapter_model.safetensors"])
    assert len(set(trained)) == 4


def answers(text, count):
    """A list of models, then so many equal answers."""
    message = {"role": "assistant", "content": text}
    body = {"choices": [{"finish_reason": "stop", "message": message}]}
    return ((200, {"data": [{"id": "m", "object": "model"}]}), *[(200, body)] * count)


def remote(endpoint, **fields):
    """The endpoint as a recipe names it."""
    return table(**{"base_url": endpoint.url, "model": "m", **fields})


def test_a_teacher_behind_an_endpoint_shows_the_problems(recipe, tmp_path, capsys):
    folder = tmp_path / "run"
    with serving(*answers("so \\boxed{3}", 10)) as endpoint:
        teacher = f"--collect.teacher={remote(endpoint)}"
        words = ("--run", folder, "--collect.problems=10", teacher)
        assert forethought("collect", recipe, *words) == 0
    with Run.read(folder) as run:
        recorded = [episode for group in run.groups("collect") for episode in group.episodes]
    assert {one.trajectories[0].turns[0].message.text for one in recorded} == {"so \\boxed{3}"}
    assert {one.right for one in recorded} == {True, False}
    assert {request["model"] for request in endpoint.asked[1:]} == {"m"}
    message = refused(capsys, "collect", recipe, *words, "--sampling.max_tokens=7")
    assert "sampling.max_tokens was 32, is now 7" in message


@pytest.mark.parametrize("limit_field", ["max_tokens", "max_completion_tokens"])
def test_a_model_behind_an_endpoint_sits_an_exam_without_a_training_stage(
    recipe, tmp_path, limit_field, capsys
):
    folder = tmp_path / "run"
    with serving(*answers("so \\boxed{5}", 12)) as endpoint:
        model = remote(endpoint, type="openai", limit_field=limit_field)
        words = ("eval", recipe, "--run", folder, f"--model={model}")
        assert forethought(*words) == 0
    assert all(limit_field in request for request in endpoint.asked[1:])
    assert len(endpoint.asked) == 1 + 4 * 3
    with Run.read(folder) as run:
        result = run.document("eval_remote", "exam/remote")
    assert result is not None
    answers_are_5 = [coin["answer"] == 5 for coin in coins(4, "held_out")]
    assert [problem["c"] for problem in result["problems"]] == [2 * it for it in answers_are_5]
    assert (result["settings"]["max_turn_tokens"], result["settings"]["max_tokens"]) == (32, 48)
    assert "avg@2" in capsys.readouterr().out
    assert forethought(*words) == 0  # finished: the endpoint, now gone, is not asked again
    assert "seed was 3, is now 4" in refused(capsys, *words, "--seed=4")


def test_the_majority_is_one_of_values_and_not_of_spellings(recipe, tmp_path):
    (tmp_path / "one.jsonl").write_text('{"prompt": "17 * 125?", "answer": "2125"}\n')
    said = ("2125", "2125", "2,125", "2,125", "7", "7", "7", "8", "2125")
    replies = [answers(f"\\boxed{{{each}}}", 1)[1] for each in said]
    with serving(answers("", 0)[0], *replies) as endpoint:
        model = f"--model={remote(endpoint, type='openai')}"
        problems = f"--problems.held_out={tmp_path / 'one.jsonl'}"
        words = ("--run", tmp_path / "run", "--eval.attempts=8", problems, model)
        assert forethought("eval", recipe, *words) == 0
    with Run.read(tmp_path / "run") as run:
        result = run.document("eval_remote", "exam/remote")
    assert result is not None
    assert result["majority"]["value"] == 1.0


def test_an_endpoint_is_asked_where_and_for_what_it_is_named(recipe, tmp_path):
    models = (200, {"data": [{"id": name, "object": "model"} for name in ("m", "n")]})
    replies = [models, *answers("\\boxed{3}", 12)[1:]]
    with serving(*replies) as first, serving(*replies) as second:
        for number, (endpoint, name) in enumerate([(first, "m"), (second, "n")]):
            model = table(type="openai", base_url=endpoint.url, model=name)
            words = ("--run", tmp_path / f"run{number}", f"--model={model}")
            assert forethought("eval", recipe, *words) == 0
            assert {request["model"] for request in endpoint.asked[1:]} == {name}
    assert len(first.asked) == len(second.asked) == 13


def test_an_endpoint_that_is_not_there_is_named(recipe, tmp_path, capsys):
    with serving() as endpoint:
        gone = remote(endpoint, type="openai", retries=0)
    words = ("eval", recipe, "--run", tmp_path / "run", f"--model={gone}")
    assert forethought(*words) == 2
    message = capsys.readouterr().err
    assert "cannot be reached" in message
    assert "start the server, or correct base_url" in message


def test_an_endpoint_without_the_model_is_told(recipe, tmp_path, capsys):
    with serving(*answers("", 0)) as endpoint:
        other = remote(endpoint, type="openai", model="n")
        words = ("eval", recipe, "--run", tmp_path / "run", f"--model={other}")
        assert forethought(*words) == 2
    assert re.search(r"\bn\b.*\bm\b", capsys.readouterr().err)
