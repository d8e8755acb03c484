"""Every key of a recipe changes something that can be seen: one that does not is a trap.

Most rows run a stage of the small recipe twice, the second time with one key changed, from the
same earlier stages. Keys that only other rooms can show are listed with the tests that do.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from app.recipe_leaves import leaves
from app.small import copied, forethought, outcome
from forethought.app.recipe import Recipe

TESTS = Path(__file__).parents[1]


@dataclass(frozen=True)
class Row:
    """A change, what to run to see it, and what else must be so for it to matter."""

    change: tuple[str, ...]
    commands: tuple[str, ...]
    given: tuple[str, ...] = ()


def learning(*change, given=()):
    """Seen in two rounds of reinforcement learning."""
    return Row(change, ("rl",), ("--rl.steps=2", *given))


def imitating(*change, given=()):
    """Seen in a few steps of supervised training."""
    few = ("--sft.phases.0.steps=4", "--sft.phases.1.steps=4", "--sft.pilot_every=2")
    return Row(change, ("sft",), (*few, *given))


def collecting(*change, given=()):
    """Seen in what is recorded."""
    return Row(change, ("collect",), ("--collect.problems=12", *given))


def sitting(*change, given=()):
    """Seen in an exam."""
    return Row(change, ("eval",), given)


PRACTICE = ("--problems={type='practice', families=['gcd', 'lcm', 'primes'], hard=0.5}",)
PAIRS = ("--rl.group_size=2", "--rl.problems=8", "--rl.updates=1")  # often both alike
MUON = ("--rl.optimizer.type=muon", "--rl.optimizer.muon_rate=0.02")
COSINE = ("--rl.optimizer.schedule=cosine",)
OVERLONG = ("--rl.reward.overlong_limit=40", "--rl.reward.overlong_buffer=30")
PENALTY = ("--rl.loss.kl_coefficient=0.5",)
LARGE = ("--sft.longest=3000", "--model.context=3000")
PHASE_COSINE = ("--sft.phases.0.optimizer.schedule=cosine",)

ROWS = {
    "seed": collecting("--seed=4"),
    "problems.practice.families": collecting(PRACTICE[0].replace("gcd", "bits")),
    "problems.practice.hard": collecting("--problems.hard=1.0", given=PRACTICE),
    "problems.practice.hard_later": Row(
        ("--problems.hard_later=0.0",),
        ("collect", "sft"),
        (*PRACTICE, "--collect.problems=60", "--sft.phases.0.steps=30", "--sft.pilot_problems=16"),
    ),
    "collect.problems": collecting("--collect.problems=11"),
    "collect.demonstrators.styles": collecting("--collect.demonstrators.styles.direct=9"),
    "tool.shown_characters": collecting(
        "--tool.shown_characters=101", given=("--collect.demonstrators.styles={recovering=1.0}",)
    ),
    "agent.instruction": collecting("--agent.instruction=Be brief."),
    "agent.system": collecting("--agent.system=You count."),
    "model.fresh.architecture": imitating("--model.architecture=llama"),
    "model.fresh.width": imitating("--model.width=64"),
    "model.fresh.layers": imitating("--model.layers=2"),
    "model.fresh.heads": imitating("--model.heads=4"),
    "model.fresh.feed": imitating("--model.feed=96"),
    "model.fresh.vocabulary": imitating("--model.vocabulary=360"),
    "model.fresh.context": Row(("--model.context=100",), ("sft", "measure")),
    "model.fresh.format": imitating("--model.format=hermes", given=LARGE),
    "sampling.temperature": Row(("--sampling.temperature=0.5",), ("sft", "measure")),
    "sampling.top_p": Row(("--sampling.top_p=0.9",), ("sft", "measure")),
    "sampling.max_tokens": Row(("--sampling.max_tokens=12",), ("sft", "measure")),
    "sft.phases.name": imitating("--sft.phases.0.name=other"),
    "sft.phases.steps": imitating("--sft.phases.0.steps=3"),
    "sft.phases.batch": imitating("--sft.phases.0.batch=4"),
    "sft.phases.tool_free": imitating("--sft.phases.0.tool_free=0.0"),
    "sft.phases.stop_at": imitating("--sft.phases.0.stop_at=0.0"),
    "sft.phases.optimizer.type": imitating("--sft.phases.0.optimizer.type=adamw"),
    "sft.phases.optimizer.rate": imitating("--sft.phases.0.optimizer.rate=1e-4"),
    "sft.phases.optimizer.muon_rate": imitating("--sft.phases.0.optimizer.muon_rate=1e-4"),
    "sft.phases.optimizer.warmup": imitating("--sft.phases.0.optimizer.warmup=3"),
    "sft.phases.optimizer.schedule": imitating(*PHASE_COSINE),
    "sft.phases.optimizer.floor": imitating(
        "--sft.phases.0.optimizer.floor=0.9", given=PHASE_COSINE
    ),
    "sft.phases.optimizer.beta_1": imitating("--sft.phases.0.optimizer.beta_1=0.5"),
    "sft.phases.optimizer.beta_2": imitating("--sft.phases.0.optimizer.beta_2=0.5"),
    "sft.phases.optimizer.weight_decay": imitating("--sft.phases.0.optimizer.weight_decay=1"),
    "sft.phases.optimizer.clip_norm": imitating("--sft.phases.1.optimizer.clip_norm=1e-4"),
    "sft.longest": imitating("--sft.longest=150"),
    "sft.train_failed_calls": imitating("--sft.train_failed_calls=true"),
    "sft.pilot_every": imitating("--sft.pilot_every=1"),
    "sft.pilot_problems": Row(("--sft.pilot_problems=30",), ("sft",), ("--measure.problems=8",)),
    "sft.save_every": imitating("--sft.save_every=1"),
    "measure.problems": Row(("--measure.problems=9",), ("collect", "sft", "measure")),
    "measure.attempts": Row(("--measure.attempts=3",), ("measure",)),
    "rl.steps": learning("--rl.steps=3"),
    "rl.problems": learning("--rl.problems=3"),
    "rl.group_size": learning("--rl.group_size=3"),
    "rl.updates": learning("--rl.updates=1"),
    "rl.save_every": learning("--rl.save_every=1"),
    "rl.uninformative": learning("--rl.uninformative=leave_out", given=PAIRS),
    "rl.optimizer.type": learning(*MUON),
    "rl.optimizer.rate": learning("--rl.optimizer.rate=1e-4"),
    "rl.optimizer.muon_rate": learning("--rl.optimizer.muon_rate=0.01", given=MUON),
    "rl.optimizer.warmup": learning("--rl.optimizer.warmup=3"),
    "rl.optimizer.schedule": learning(*COSINE),
    "rl.optimizer.floor": learning("--rl.optimizer.floor=0.9", given=COSINE),
    "rl.optimizer.beta_1": learning("--rl.optimizer.beta_1=0.5"),
    "rl.optimizer.beta_2": learning("--rl.optimizer.beta_2=0.5"),
    "rl.optimizer.weight_decay": learning("--rl.optimizer.weight_decay=1"),
    "rl.optimizer.clip_norm": learning("--rl.optimizer.clip_norm=1e-6"),
    "rl.reward.variant": learning("--rl.reward.variant=outcome"),
    "rl.reward.tool_bonus": learning("--rl.reward.tool_bonus=0.2"),
    "rl.reward.bonus_cap": learning("--rl.reward.bonus_cap=0"),
    "rl.reward.wrong_ceiling": learning("--rl.reward.wrong_ceiling=-0.95"),
    "rl.reward.overlong_buffer": learning("--rl.reward.overlong_buffer=20", given=OVERLONG),
    "rl.reward.overlong_limit": learning("--rl.reward.overlong_limit=30", given=OVERLONG),
    "rl.reward.overlong_factor": learning("--rl.reward.overlong_factor=0.5", given=OVERLONG),
    "rl.reward.length_basis": learning("--rl.reward.length_basis=all_tokens", given=OVERLONG),
    "rl.advantage.kind": learning("--rl.advantage.kind=dr_grpo"),
    "rl.advantage.epsilon": learning("--rl.advantage.epsilon=0.5"),
    "rl.advantage.ddof": learning("--rl.advantage.ddof=0"),
    "rl.loss.name": learning("--rl.loss.name=grpo_scr"),
    "rl.loss.clip_low": learning("--rl.loss.clip_low=0.0"),
    "rl.loss.clip_high": learning("--rl.loss.clip_high=0.0"),
    "rl.loss.dual_clip": learning("--rl.loss.dual_clip=1.000001"),
    "rl.loss.kl_coefficient": learning(*PENALTY),
    "rl.loss.kl_estimator": learning("--rl.loss.kl_estimator=k2", given=PENALTY),
    "rl.loss.aggregation": learning("--rl.loss.aggregation=token-sum"),
    "eval.attempts": sitting("--eval.attempts=3"),
    "eval.problems": sitting("--eval.problems=3"),
    "eval.temperature": sitting("--eval.temperature=0.5"),
    "eval.top_p": sitting("--eval.top_p=0.5"),
}
"""Keys whose change a run shows."""

REMOTE = ("key_variable", "timeout_seconds", "retries", "concurrency", "thinking")
ENDPOINTS = ("model.openai", "collect.teacher")

SHOWN_BY = {
    "app/test_settings_directly.py": (
        *(
            f"problems.{kind}.{side}"
            for kind in ("gsm8k", "file")
            for side in ("train", "held_out")
        ),
        *(f"agent.{key}" for key in ("max_turns", "max_tokens", "calls_per_turn")),
        *(f"compute.{key}" for key in ("device", "workers", "threads")),
        *(f"compute.{key}" for key in ("micro_tokens", "logit_tokens", "deterministic", "at_once")),
        "rl.max_not_measured",
        "rl.advantage.singleton",
        "eval.max_not_measured",
        "tool.servers",
        "tool.calls_per_server",
        "tool.wall_seconds",
    ),
    "app/test_other_models.py": (
        *(f"{place}.{key}" for place in ENDPOINTS for key in ("base_url", "model", "limit_field")),
        *(f"model.pretrained.{key}" for key in ("name", "format", "lora_rank", "lora_alpha")),
        *(f"model.gguf.{key}" for key in ("format", "lora_rank", "lora_alpha")),
    ),
    "policy/test_remote.py": tuple(f"{place}.{key}" for place in ENDPOINTS for key in REMOTE),
    "policy/local/test_gguf.py": ("model.gguf.file", "model.gguf.folder"),
    "tools/conftest.py": (  # the limits of the sandbox that the tests there exceed
        *(f"tool.{key}" for key in ("cpu_seconds", "memory_mb", "processes")),
    ),
    "tools/test_python_tool.py": (
        *(f"tool.{key}" for key in ("isolation", "allow_weak", "preload")),
    ),
}
"""Keys whose change other tests show."""

BEFORE = {"sft": "collect", "measure": "sft", "rl": "measure", "eval": "rl"}
"""The command whose run a command goes on from."""


@pytest.fixture(scope="module")
def seen(recipe, staged, tmp_path_factory):
    """What a row's commands come to with some overrides; the same question is answered once."""

    @cache
    def run(commands, overrides):
        folder = tmp_path_factory.mktemp("row") / "run"
        if commands[0] in BEFORE:
            copied(getattr(staged, BEFORE[commands[0]]), folder)
        for command in commands:
            assert forethought(command, recipe, "--run", folder, *overrides) == 0
        return outcome(folder)

    return run


@pytest.mark.parametrize("key", ROWS)
def test_a_key_of_a_recipe_matters(seen, key):
    row = ROWS[key]
    assert seen(row.commands, (*row.given, *row.change)) != seen(row.commands, row.given)


def test_no_key_is_left_out():
    listed = [*ROWS, *(key for keys in SHOWN_BY.values() for key in keys)]
    types = {"sft.phases.optimizer.type", "rl.optimizer.type"}
    assert sorted(listed) == sorted({*leaves(Recipe), *types})


@pytest.mark.parametrize("place", SHOWN_BY)
def test_the_other_tests_name_their_keys(place):
    text = (TESTS / place).read_text(encoding="utf-8")
    missing = [key for key in SHOWN_BY[place] if key.rpartition(".")[2] not in text]
    assert missing == []
