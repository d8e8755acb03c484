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


FEW = ("--sft.phases.0.steps=4", "--sft.phases.1.steps=4")
ENOUGH = ("--sft.phases.0.steps=20", "--sft.phases.1.steps=4")
"""Steps after which some problems are solved, so that measuring has something to keep."""


def learning(*change, given=()):
    """Seen in two rounds of reinforcement learning."""
    return Row(change, ("rl",), ("--rl.steps=2", *given))


def imitating(*change, given=()):
    """Seen in a few steps of supervised training."""
    return Row(change, ("sft",), (*FEW, "--sft.pilot_every=2", *given))


def sampling(*change):
    """Seen in what a model says where problems are measured."""
    return Row(change, ("sft", "measure"), ENOUGH)


def collecting(*change, given=()):
    """Seen in what is recorded."""
    return Row(change, ("collect",), ("--collect.problems=12", *given))


def sitting(*change, given=()):
    """Seen in an exam."""
    return Row(change, ("eval",), given)


PRACTICE = ("--problems={type='practice', families=['gcd', 'lcm', 'primes'], hard=0.5}",)
PAIRS = ("--rl.group_size=2", "--rl.problems=8", "--rl.optimizer.updates=1")  # often both alike
MUON = ("--rl.optimizer.type=muon", "--rl.optimizer.muon_rate=0.02")
COSINE = ("--rl.optimizer.schedule=cosine",)
BY_TURN = ("--rl.credit.type=turn_rloo",)
BY_STATE = ("--rl.credit.type=gigpo",)
OVERLONG = ("--rl.reward.overlong_limit=40", "--rl.reward.overlong_buffer=30")
PROCESS = ("--rl.reward.process.execution=0.3",)
PENALTY = ("--rl.loss.kl_coefficient=0.5",)
CISPO, SAPO, DPPO, REINFORCE = (
    (f"--rl.loss.name={name}",) for name in ("cispo", "sapo", "dppo_tv", "reinforce")
)
LARGE = ("--sft.longest=3000", "--model.context=3000")
HELD_OUT = ("--sft.held_out=0.2", "--sft.held_out_every=1")
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
    "model.fresh.context": sampling("--model.context=100"),
    "model.fresh.format": imitating("--model.format=hermes", given=LARGE),
    "sampling.temperature": sampling("--sampling.temperature=0.5"),
    "sampling.top_p": sampling("--sampling.top_p=0.9"),
    "sampling.max_tokens": sampling("--sampling.max_tokens=12"),
    "sampling.reply_tokens": imitating("--sampling.reply_tokens=20"),
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
    "sft.pilot_problems": Row(("--sft.pilot_problems=30",), ("collect", "sft"), FEW),
    "sft.save_every": imitating("--sft.save_every=1"),
    "sft.keep_last": imitating("--sft.keep_last=1", given=("--sft.save_every=1",)),
    "sft.keep_best": imitating("--sft.keep_best=3", given=HELD_OUT),
    "sft.keep": imitating("--sft.keep=best", given=(*HELD_OUT, "--sft.keep_best=1")),
    "sft.held_out": imitating("--sft.held_out=0.4", given=HELD_OUT),
    "sft.held_out_every": imitating("--sft.held_out_every=2", given=HELD_OUT),
    "measure.problems": Row(("--measure.problems=9",), ("collect", "sft", "measure"), ENOUGH),
    "measure.attempts": Row(("--measure.attempts=3",), ("measure",)),
    "rl.steps": learning("--rl.steps=3"),
    "rl.problems": learning("--rl.problems=3"),
    "rl.group_size": learning("--rl.group_size=3"),
    "rl.checkpoints.save_every": learning("--rl.checkpoints.save_every=1"),
    "rl.checkpoints.keep_last": learning(
        "--rl.checkpoints.keep_last=1", given=("--rl.checkpoints.save_every=1",)
    ),
    "rl.checkpoints.keep_best": learning(
        "--rl.checkpoints.keep_best=3",
        given=("--rl.checkpoints.save_every=1", "--rl.checkpoints.keep_last=1", "--rl.steps=3"),
    ),
    "rl.optimizer.updates": learning("--rl.optimizer.updates=1"),
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
    "rl.reward.penalties.format": learning("--rl.reward.penalties.format=0.3"),
    "rl.reward.process.execution": learning("--rl.reward.process.execution=0.1", given=PROCESS),
    "rl.reward.process.most": learning("--rl.reward.process.most=0.05", given=PROCESS),
    "rl.credit.advantage.kind": learning("--rl.credit.advantage.kind=dr_grpo"),
    "rl.credit.advantage.epsilon": learning("--rl.credit.advantage.epsilon=0.5"),
    "rl.credit.advantage.ddof": learning("--rl.credit.advantage.ddof=0"),
    "rl.credit.advantage.k": learning(
        "--rl.credit.advantage.k=1",
        given=("--rl.credit.advantage.kind=passk", "--rl.credit.advantage.k=2"),
    ),
    "rl.credit.type": learning(*BY_TURN),
    "rl.credit.discount": learning("--rl.credit.discount=0.5", given=BY_TURN),
    "rl.credit.baseline": learning("--rl.credit.baseline=all", given=BY_TURN),
    "rl.credit.turn_weight": learning("--rl.credit.turn_weight=2.0", given=BY_STATE),
    "rl.credit.episode_over": learning("--rl.credit.episode_over=attempts", given=BY_STATE),
    "rl.selection.uninformative": learning("--rl.selection.uninformative=leave_out", given=PAIRS),
    "rl.selection.mask_truncated": learning("--rl.selection.mask_truncated=true"),
    "rl.selection.mask_void_turns": learning("--rl.selection.mask_void_turns=true"),
    "rl.selection.keep": learning("--rl.selection.keep=4", given=("--rl.group_size=8",)),
    "rl.loss.name": learning("--rl.loss.name=grpo_scr"),
    "rl.loss.clip_low": learning("--rl.loss.clip_low=0.0"),
    "rl.loss.clip_high": learning("--rl.loss.clip_high=0.0"),
    "rl.loss.dual_clip": learning("--rl.loss.dual_clip=1.000001"),
    "rl.loss.cispo_cap_abs": learning("--rl.loss.cispo_cap_abs=1.0", given=CISPO),
    "rl.loss.importance_cap": learning("--rl.loss.importance_cap=1.0", given=REINFORCE),
    "rl.loss.tau_positive": learning("--rl.loss.tau_positive=0.5", given=SAPO),
    "rl.loss.tau_negative": learning("--rl.loss.tau_negative=0.5", given=SAPO),
    "rl.loss.drift_coefficient": learning("--rl.loss.drift_coefficient=9.0", given=DPPO),
    "rl.loss.entropy_coefficient": learning("--rl.loss.entropy_coefficient=0.5"),
    "rl.loss.kl_coefficient": learning(*PENALTY),
    "rl.loss.kl_estimator": learning("--rl.loss.kl_estimator=k2", given=PENALTY),
    "rl.loss.aggregation": learning("--rl.loss.aggregation=token-sum"),
    "eval.attempts": sitting("--eval.attempts=3"),
    "eval.problems": sitting("--eval.problems=3"),
    "eval.temperature": sitting("--eval.temperature=0.5"),
    "eval.top_p": sitting("--eval.top_p=0.5"),
}
"""Keys whose change a run shows."""

ENDPOINTS = ("model.openai", "collect.teacher", "rl.reward.judge.endpoint")


def of_endpoints(*keys):
    """The same keys of a model that is examined, of one that teaches and of one that judges."""
    return tuple(f"{place}.{key}" for place in ENDPOINTS for key in keys)


SHOWN_BY = {
    "app/test_problems.py": {
        "test_programs_are_asked_for_from_the_file_of_their_side": (
            "problems.code.train",
            "problems.code.held_out",
        ),
        "test_shown_tests_decides_how_many_a_question_shows": ("problems.code.shown_tests",),
        "test_uncheckable_decides_whether_rows_are_left_out": ("problems.code.uncheckable",),
    },
    "app/test_imported_trajectories.py": {
        "test_trajectories_decides_which_file_is_imitated": ("collect.trajectories",),
        "test_unusable_decides_whether_rows_are_left_out": ("collect.unusable",),
    },
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
        "test_deterministic_decides_how_rounds_of_sampling_begin": ("compute.deterministic",),
        "test_at_once_decides_how_many_attempts_are_open": ("compute.at_once",),
        "test_a_limit_of_not_measured_decides_when_attempts_are_refused": (
            "eval.max_not_measured",
        ),
        "test_singleton_decides_what_an_attempt_without_company_gets": (
            "rl.credit.advantage.singleton",
        ),
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
        "test_long_calls_per_server_decides_how_many_step_aside": ("tool.long_calls_per_server",),
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
    "learning/rewards/test_process.py": {
        "test_each_call_that_cannot_be_parsed_costs": ("rl.reward.penalties.parse",),
        "test_an_exception_costs_unless_a_changed_call_follows": ("rl.reward.penalties.exception",),
        "test_going_on_without_a_tool_costs_from_a_limit_on": (
            "rl.reward.penalties.thinking",
            "rl.reward.penalties.thinking_limit",
        ),
        "test_a_reply_with_the_answer_in_it_is_a_hit": ("rl.reward.process.retrieval",),
        "test_turns_of_a_search_agent_earn_the_worked_numbers": (
            "rl.reward.process.well_formed",
            "rl.reward.process.malformed",
            "rl.reward.process.call_cost",
        ),
        "test_a_rare_answer_of_a_group_earns_more_whatever_its_spelling": (
            "rl.reward.process.exploration",
        ),
        "test_partial_credit_is_paid_by_its_weight_and_never_to_a_right_answer": (
            "rl.reward.partial",
        ),
        "test_a_judges_scores_are_paid_by_turn_and_by_their_weight": ("rl.reward.judge.weight",),
    },
    "learning/rewards/test_named_values.py": {
        "test_steps_are_paid_by_turn": ("rl.reward.process.steps",),
        "test_parts_are_paid_by_their_weights": (
            "rl.reward.process.coverage",
            "rl.reward.process.verification",
        ),
    },
    "learning/rewards/test_judge.py": {
        "test_the_judge_is_asked_once_a_trajectory_with_the_rubric_and_the_turns": (
            "rl.reward.judge.rubric",
            "rl.reward.judge.max_tokens",
        ),
        "test_long_texts_lose_their_middle": ("rl.reward.judge.shown_characters",),
    },
    "learning/credit/test_forms.py": {
        "test_two_turns_as_released_meet_the_worked_numbers": ("rl.credit.form",),
    },
    "learning/credit/test_selection.py": {
        "test_the_floors_decide_how_many_of_each_kind_are_kept": (
            "rl.selection.keep_right",
            "rl.selection.keep_wrong",
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
    "learning/test_learner_settings.py": {
        "test_portions_of_computation_reach_gradients_and_forecasts": (
            "compute.micro_tokens",
            "compute.logit_tokens",
        ),
    },
    "learning/test_limits.py": {
        "test_not_measured_decides_how_many_attempts_a_round_may_lose": ("rl.limits.not_measured",),
    },
    "learning/test_agreement.py": {
        "test_a_run_whose_prompts_break_too_often_stops_before_it_learns": (
            "rl.limits.prefix_breaks",
        ),
    },
    "tools/test_python_tool.py": {
        "test_no_isolation_needs_a_setting_and_a_variable": ("tool.tier",),
    },
    "learning/control/test_controllers.py": {
        "test_each_setting_of_control_decides_what_is_steered": (
            "rl.control.preset",
            "rl.control.clip.schedule",
            "rl.control.clip.start",
            "rl.control.clip.fall",
            "rl.control.clip.floor",
            "rl.control.clip.ceiling",
            "rl.control.clip.step",
            "rl.control.band.low",
            "rl.control.band.high",
            "rl.control.band.unit",
            "rl.control.entropy.target",
            "rl.control.entropy.delta",
            "rl.control.entropy.most",
            "rl.control.entropy.start",
            "rl.control.kl.rule",
            "rl.control.kl.start",
            "rl.control.kl.most",
            "rl.control.kl.target",
            "rl.control.kl.horizon",
        ),
    },
    "learning/test_correction.py": {
        "test_each_setting_of_a_correction_decides_weights_or_mask": (
            "rl.off_policy.correction.weight",
            "rl.off_policy.correction.cap",
            "rl.off_policy.correction.bounds",
            "rl.off_policy.correction.normalize",
            "rl.off_policy.correction.sequence_bounds",
            "rl.off_policy.correction.geometric_bounds",
            "rl.off_policy.correction.most_k3",
            "rl.off_policy.correction.veto_below",
        ),
        "test_off_policy_sequence_masking_drops_what_became_unlikely_and_is_to_be_more_so": (
            "rl.off_policy.correction.opsm_delta",
        ),
    },
    "learning/test_critic.py": {
        "test_each_setting_of_a_critic_decides_what_is_learnt": (
            "rl.credit.critic.trace",
            "rl.credit.critic.rate",
            "rl.credit.critic.coefficient",
            "rl.credit.critic.clip",
        ),
    },
    "learning/test_rl.py": {
        "test_further_draws_replace_groups_that_teach_nothing": ("rl.selection.draws",),
        "test_a_cost_of_divergence_keeps_the_policy_near_where_it_began": (
            "rl.reward.penalties.divergence",
        ),
        "test_the_learners_own_old_logprobs_make_first_ratios_exactly_one": ("rl.off_policy.old",),
        "test_rounds_that_teach_nothing_stop_the_run_and_what_was_learnt_stays": (
            "rl.limits.rounds_without_update",
        ),
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
    types = {"sft.phases.optimizer.type", "rl.optimizer.type", "rl.credit.type"}
    assert sorted(listed) == sorted({*leaves(Recipe), *types})


@pytest.mark.parametrize(("place", "test", "key"), [*shown()])
def test_the_test_that_shows_a_key_is_there_and_sets_it(place, test, key):
    source = source_of(place, test)
    assert source is not None
    assert re.search(rf"\b{key.rpartition('.')[2]}\b", source)
