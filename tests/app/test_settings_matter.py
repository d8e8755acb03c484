"""Every key of a recipe changes something that can be seen: one that does not is a trap.

Most rows run a stage of the small recipe twice, the second time with one key changed, from the
same earlier stages. Keys that only other rooms can show are listed with the tests that do.
"""

import ast
import re
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
    "sft.pilot_problems": Row(("--sft.pilot_problems=30",), ("collect", "sft")),
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

ENDPOINTS = ("model.openai", "collect.teacher")


def of_endpoints(*keys):
    """The same keys of a model that is examined and of one that teaches."""
    return tuple(f"{place}.{key}" for place in ENDPOINTS for key in keys)


SHOWN_BY = {
    "app/test_settings_directly.py": {
        "test_problems_come_from_the_file_of_their_side": (
            "problems.file.train",
            "problems.file.held_out",
        ),
        "test_gsm8k_problems_come_from_the_file_of_their_side": (
            "problems.gsm8k.train",
            "problems.gsm8k.held_out",
        ),
        "test_most_calculations_leaves_longer_gsm8k_problems_out": (
            "problems.gsm8k.most_calculations",
        ),
        "test_max_turns_decides_how_often_an_agent_may_call": ("agent.max_turns",),
        "test_max_tokens_decides_how_much_an_agent_may_say": ("agent.max_tokens",),
        "test_calls_per_turn_decides_how_many_calls_are_run": ("agent.calls_per_turn",),
        "test_stop_at_faults_decides_whether_a_programs_fault_ends_the_run": (
            "agent.stop_at_faults",
        ),
        "test_max_seconds_decides_how_long_an_agent_may_go_on_calling": ("agent.max_seconds",),
        "test_device_decides_where_the_model_is": ("compute.device",),
        "test_workers_decides_who_computes": ("compute.workers",),
        "test_threads_decides_how_many_threads_compute": ("compute.threads",),
        "test_portions_of_computation_reach_whoever_computes": (
            "compute.micro_tokens",
            "compute.logit_tokens",
        ),
        "test_deterministic_decides_how_rounds_of_sampling_begin": ("compute.deterministic",),
        "test_at_once_decides_how_many_attempts_are_open": ("compute.at_once",),
        "test_max_not_measured_decides_when_attempts_are_refused": (
            "rl.max_not_measured",
            "eval.max_not_measured",
        ),
        "test_singleton_decides_what_an_attempt_without_company_gets": ("rl.advantage.singleton",),
        "test_wall_seconds_decides_how_long_a_program_may_take": ("tool.wall_seconds",),
        "test_cpu_seconds_decides_how_long_a_program_may_compute": ("tool.cpu_seconds",),
        "test_memory_mb_decides_how_much_a_program_may_hold": ("tool.memory_mb",),
        "test_processes_decides_how_many_a_program_may_start": ("tool.processes",),
        "test_preload_decides_what_is_imported_before_a_program_starts": ("tool.preload",),
        "test_python_decides_which_packages_programs_find": ("tool.python",),
        "test_state_decides_whether_variables_are_kept_within_an_attempt": ("tool.state",),
        "test_max_sessions_decides_how_many_may_be_open": ("tool.max_sessions",),
        "test_session_idle_seconds_decides_when_a_session_is_ended": ("tool.session_idle_seconds",),
        "test_queue_decides_how_many_calls_may_wait": ("tool.queue",),
        "test_servers_and_calls_per_server_decide_how_many_programs_run_at_once": (
            "tool.servers",
            "tool.calls_per_server",
        ),
    },
    "app/test_other_models.py": {
        "test_the_named_model_is_the_one_that_is_trained": ("model.pretrained.name",),
        "test_the_chat_format_is_the_one_that_is_named": ("model.pretrained.format",),
        "test_rank_and_scale_of_adapters_matter": (
            "model.pretrained.lora_rank",
            "model.pretrained.lora_alpha",
        ),
        "test_a_converted_file_is_trained_in_its_format_and_with_its_adapters": (
            "model.gguf.file",
            "model.gguf.folder",
            "model.gguf.format",
            "model.gguf.lora_rank",
            "model.gguf.lora_alpha",
        ),
        "test_a_model_behind_an_endpoint_sits_an_exam_without_a_training_stage": of_endpoints(
            "limit_field"
        ),
        "test_an_endpoint_is_asked_where_and_for_what_it_is_named": of_endpoints(
            "base_url", "model"
        ),
    },
    "learning/test_learner.py": {
        "test_precision_decides_in_which_number_type_is_multiplied": ("compute.precision",),
        "test_gradient_checkpointing_decides_what_is_kept_for_the_way_back": (
            "compute.gradient_checkpointing",
        ),
    },
    "policy/test_remote.py": {
        "test_the_key_comes_from_the_variable_that_the_settings_name": of_endpoints("key_variable"),
        "test_an_endpoint_that_is_down_or_silent_is_an_error_naming_it": of_endpoints(
            "timeout_seconds"
        ),
        "test_an_answer_that_is_none_is_an_error_naming_endpoint_and_model": of_endpoints(
            "retries"
        ),
        "test_no_more_requests_are_in_flight_than_allowed": of_endpoints("concurrency"),
        "test_earlier_thinking_is_sent_back_only_where_it_is_kept": of_endpoints("thinking"),
    },
    "policy/test_thinking_history.py": {
        "test_a_recorded_conversation_is_rendered_as_it_would_have_been_sampled": (
            "sampling.thinking",
        ),
    },
    "learning/test_agreement.py": {
        "test_a_run_whose_prompts_break_too_often_stops_before_it_learns": (
            "rl.max_prefix_breaks",
        ),
    },
    "tools/test_python_tool.py": {
        "test_no_isolation_needs_a_setting_and_a_variable": ("tool.tier",),
    },
    "tools/test_remote.py": {
        "test_programs_run_where_the_address_says": ("tool.url",),
    },
}
"""Keys whose change another test shows, by that test."""

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


def shown():
    """Each key that another test shows, with that test."""
    for place, tests in SHOWN_BY.items():
        for test, keys in tests.items():
            yield from ((place, test, key) for key in keys)


def source_of(place, test):
    """The source of a test with its decorators, or None when there is no such test."""
    text = (TESTS / place).read_text(encoding="utf-8")
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef) and node.name == test:
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            return "\n".join(text.splitlines()[first - 1 : node.end_lineno])
    return None


def test_no_key_is_left_out():
    listed = [*ROWS, *(key for _, _, key in shown())]
    types = {"sft.phases.optimizer.type", "rl.optimizer.type"}
    assert sorted(listed) == sorted({*leaves(Recipe), *types})


@pytest.mark.parametrize(("place", "test", "key"), [*shown()])
def test_the_test_that_shows_a_key_is_there_and_sets_it(place, test, key):
    source = source_of(place, test)
    assert source is not None
    assert re.search(rf"\b{key.rpartition('.')[2]}\b", source)
