"""The loop of reinforcement learning learns, resumes, and stops when nothing can be measured."""

import asyncio
import copy
import shutil
from dataclasses import dataclass, field, replace
from math import isnan

import pytest
import torch
from safetensors.torch import load_file

from forethought.agents.groups import Waves
from forethought.core.errors import RecipeError, UnmeasuredError
from forethought.core.messages import Assistant
from forethought.core.problem import Problem
from forethought.core.trajectory import Episode, Finish, Stop, Tokens, Trajectory, Turn
from forethought.core.verdict import Verdict
from forethought.curation.pool import Pool
from forethought.journal.run import Run
from forethought.learning.checkpoint import Checkpoints, read_state
from forethought.learning.control.kl import adapted
from forethought.learning.keeping import Keeping
from forethought.learning.practice import RLPlan, best_rounds_first
from forethought.learning.rl import train_rl
from forethought.learning.rl_settings import RLSettings
from forethought.policy.local.crew import LocalCrew
from forethought.policy.local.models import load_local
from forethought.policy.local.value_head import add_value_head, value_head_of
from forethought.policy.protocol import Sampler, SamplingSettings
from learning.rows import learner_of
from tiny import local_model, same_weights, weights

TARGET = 5
ONE_TOKEN = SamplingSettings(max_tokens=1)


@dataclass
class SaysOneToken:
    """Samples a single token after a problem's prompt; a function says what it was worth."""

    sampler: Sampler
    judge: object
    spoil: object

    async def attempt(self, problem, key):
        seat = self.sampler.sit()
        prompt = (1, int(problem.id))
        turn = await seat.sample(prompt, (), ONE_TOKEN, key.turn_seed(0))
        seat.leave()
        said = Tokens(ids=turn.ids, sampled=(True,), logprobs=turn.logprobs)
        trajectory = Trajectory(
            agent="agent",
            opening=(),
            turns=(
                Turn(
                    message=Assistant(text=""),
                    finish=Finish.TOKEN_LIMIT,
                    tokens=1,
                    weight_version=turn.weight_version,
                    temperature=ONE_TOKEN.temperature,
                ),
            ),
            stop=Stop.ANSWERED,
            segments=(Tokens.join((Tokens.given(prompt), said)),),
        )
        episode = Episode(
            id=key.episode,
            problem=problem,
            trajectories=(trajectory,),
            verdict=self.judge(turn.ids[0], key),
        )
        return self.spoil(episode)


def as_it_is(episode):
    return episode


def hits(token, key):
    return Verdict.right() if token == TARGET else Verdict.wrong()


@dataclass
class Training:
    """One process's part of a run: fresh objects over the folder that the run is kept in."""

    folder: object
    judge: object = hits
    steps: int = 12
    save_every: int = 4
    stop_after: int | None = None
    optimizer: str = "adamw"
    uninformative: str = "count"
    updates: int = 2
    draws: int = 1
    temperature: float = 1.0
    prefix_breaks: float = 1.0
    spoil: object = as_it_is
    through: object = as_it_is  # what stands between the loop and the learner
    keep_best: int = 0
    more: dict = field(default_factory=dict)

    def __post_init__(self):
        self.model = local_model(vocab_size=8, spread=0.15)
        self.reports = []

    def watch(self, step, report):
        self.reports.append(report)
        if step == self.stop_after:
            raise KeyboardInterrupt

    def run(self):
        optimizer = {"type": self.optimizer, "rate": 3e-2, "schedule": "cosine"}
        settings = RLSettings.model_validate(
            {
                "steps": self.steps,
                "problems": 4,
                "group_size": 16,
                "checkpoints": {"save_every": self.save_every},
                "limits": {"prefix_breaks": self.prefix_breaks},
                "optimizer": optimizer | {"updates": self.updates},
                "selection": {"draws": self.draws, "uninformative": self.uninformative},
            }
            | self.more
        )
        if settings.needs_critic:
            add_value_head(self.model.network)
        reference = copy.deepcopy(self.model.network) if settings.needs_reference else None
        crew = LocalCrew(self.model.network, reference)
        learner = learner_of(
            self.model,
            crew,
            steps=settings.optimizer_steps(groups=4),
            temperature=self.temperature,
            critic=settings.credit.critic if settings.needs_critic else None,
            **optimizer,
        )
        problems = [Problem(id=f"{n}", prompt="?", answer="!") for n in range(6)]
        plan = RLPlan(
            settings=settings,
            seed=0,
            flow=Waves(64),
        )
        with Run.create_or_open(self.folder / "run", {}) as run:
            stage = run.stage("rl")
            checkpoints = Checkpoints(
                folder=run.checkpoints / "rl",
                keep_best=self.keep_best,
                ranking=lambda: best_rounds_first(stage.series("accuracy"), self.save_every),
            )
            keeping = Keeping(journal=stage, checkpoints=checkpoints)
            solver = SaysOneToken(learner.sampler, self.judge, self.spoil)
            pool = Pool(problems=tuple(problems), batch=4, seed=0)
            asyncio.run(train_rl(plan, solver, pool, self.through(learner), keeping, self.watch))
        return self

    def journal(self):
        """Every committed step's numbers but the seconds, what was sampled, and what it earned."""
        with Run.create_or_open(self.folder / "run", {}) as run:
            told = [name for name in run.metrics("rl") if not name.startswith("seconds/")]
            numbers = {name: run.series("rl", name) for name in told}
            earned = [run.rewards("rl", step) for step in run.steps("rl")]
            return numbers, list(run.groups("rl")), earned


def test_a_rewarded_token_becomes_the_one_that_is_said(tmp_path):
    training = Training(tmp_path).run()
    accuracy = [report["accuracy"] for report in training.reports]
    assert accuracy[0] < 0.4
    assert accuracy[-1] > 0.9
    with torch.no_grad():
        probs = training.model.network(torch.tensor([[1, 2]])).logits[0, -1].softmax(-1)
    assert probs[TARGET] > 0.8


def test_a_first_update_sees_the_weights_that_sampled(tmp_path):
    (report,) = Training(tmp_path / "one", steps=1, updates=1).run().reports
    assert report["approx_kl_k3"] == pytest.approx(0.0, abs=1e-6)
    assert report["ratio_max"] == pytest.approx(1.0, abs=1e-4)
    (report,) = Training(tmp_path / "two", steps=1, updates=2).run().reports
    assert report["approx_kl_k3"] > 1e-3  # the second of a round's updates has moved on
    assert report["updates"] == 2.0


def test_a_round_has_no_more_updates_than_groups(tmp_path):
    (report,) = Training(tmp_path, steps=1, updates=10**18).run().reports
    assert 2 < report["updates"] <= 4  # groups without a difference teach nothing


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_a_run_that_was_killed_and_resumed_is_the_run_that_was_not_to_the_bit(kind, tmp_path):
    whole = Training(tmp_path / "whole", optimizer=kind, steps=6, save_every=2).run()
    killed = Training(tmp_path / "killed", optimizer=kind, steps=6, save_every=2, stop_after=2)
    with pytest.raises(KeyboardInterrupt):
        killed.run()
    resumed = Training(tmp_path / "killed", optimizer=kind, steps=6, save_every=2).run()
    assert len(killed.reports) == 3
    assert len(resumed.reports) == 4  # from the checkpoint after step 1 on
    assert same_weights(weights(resumed.model.network), weights(whole.model.network))
    assert resumed.journal() == whole.journal()


def test_a_run_that_was_killed_before_its_first_checkpoint_begins_again(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        Training(tmp_path, steps=3, stop_after=1).run()
    assert len(Training(tmp_path, steps=3).run().reports) == 3


@pytest.mark.parametrize(("stop_after", "known"), [(1, []), (3, [1])])
def test_a_checkpoint_that_the_journal_does_not_know_is_gone_before_work_goes_on(
    stop_after, known, tmp_path
):
    with pytest.raises(KeyboardInterrupt):
        Training(tmp_path, steps=6, save_every=2, stop_after=stop_after).run()
    checkpoints = Checkpoints(folder=tmp_path / "run" / "checkpoints" / "rl")
    with Run.create_or_open(tmp_path / "run", {}) as run:
        run.stage("rl").rewind(stop_after)
    with pytest.raises(KeyboardInterrupt):
        Training(tmp_path, steps=6, save_every=2, stop_after=len(known) * 2).run()
    assert list(checkpoints.numbered()) == known


def test_a_run_that_is_done_is_not_trained_on(tmp_path):
    done = Training(tmp_path, steps=3).run()
    again = Training(tmp_path, steps=5).run()
    assert again.reports == []
    assert same_weights(weights(again.model.network), weights(done.model.network))
    assert read_state(tmp_path / "run" / "checkpoints" / "rl" / "2")["done"] is True


def test_what_a_kill_left_beyond_what_is_kept_goes_on_resuming(tmp_path):
    Training(tmp_path, steps=3, save_every=1).run()
    folder = tmp_path / "run" / "checkpoints" / "rl"
    shutil.copytree(folder / "1", folder / "0")  # as if killed before it was removed
    Training(tmp_path, steps=3, save_every=1).run()
    assert list(Checkpoints(folder=folder).numbered()) == [1, 2]


RISE_AND_FALL = (2, 4, 15, 7, 12, 9, 2, 0, 2, 2)
"""Of 16 attempts, those that are right in each round."""


def rises_and_falls(token, key):
    step = int(key.group.split("/")[1])
    return Verdict.right() if key.rollout < RISE_AND_FALL[step] else Verdict.wrong()


def test_the_rounds_with_the_highest_accuracy_keep_their_checkpoints(tmp_path):
    how = {"judge": rises_and_falls, "steps": 10, "save_every": 2}
    for count, stay in ((0, [7, 9]), (1, [3, 7, 9]), (2, [3, 5, 7, 9])):
        Training(tmp_path / str(count), keep_best=count, **how).run()
        folder = tmp_path / str(count) / "run" / "checkpoints" / "rl"
        assert list(Checkpoints(folder=folder).numbered()) == stay
    with pytest.raises(KeyboardInterrupt):
        Training(tmp_path / "killed", keep_best=1, stop_after=6, **how).run()
    Training(tmp_path / "killed", keep_best=1, **how).run()
    folder = tmp_path / "killed" / "run" / "checkpoints" / "rl"
    assert list(Checkpoints(folder=folder).numbered()) == [3, 7, 9]


def test_too_many_attempts_that_were_not_measured_stop_the_run_with_the_commonest_reason(tmp_path):
    def judge(token, key):
        why = "no memory" if key.rollout % 4 == 0 else "no sandbox"
        return (
            Verdict.not_measured(why) if key.rollout % 2 == 0 or key.rollout > 8 else hits(5, key)
        )

    def broken(episode):
        if episode.measured:
            return episode
        trace = f"{episode.verdict.why}: where it was, and why"
        sides = (replace(side, stop=Stop.FAILED, error=trace) for side in episode.trajectories)
        return replace(episode, trajectories=tuple(sides))

    words = r"48 of 64 attempts.*0\.1; 32 of them: no sandbox\. "
    with pytest.raises(UnmeasuredError, match=words) as risen:
        Training(tmp_path, judge, spoil=broken).run()
    assert risen.value.trace == "no sandbox: where it was, and why"
    assert Training(tmp_path).journal() == ({}, [], [])


def test_every_measured_attempt_is_kept_with_what_it_earned_by_component(tmp_path):
    def judge(token, key):
        return Verdict.not_measured("lost") if key.rollout == 0 else hits(token, key)

    training = Training(tmp_path, judge, steps=2, save_every=1).run()
    numbers, groups, earned = training.journal()
    measured = [episode for group in groups for episode in group.measured]
    assert [name for each in earned for name in each] == [episode.id for episode in measured]
    by_attempt = {name: parts for each in earned for name, parts in each.items()}
    assert all(
        by_attempt[episode.id]["outcome"] == (1.0 if episode.right else -1.0)
        for episode in measured
    )
    assert {tuple(parts) for parts in by_attempt.values()} == {
        ("outcome", "tool_bonus", "overlong")
    }
    for step, mean in numbers["reward/mean"]:
        totals = [sum(parts.values()) for parts in earned[step].values()]
        assert sum(totals) / len(totals) == pytest.approx(mean)


def test_groups_that_do_not_teach_are_kept_with_what_they_earned_as_far_as_it_is_known(tmp_path):
    def judge(token, key):
        if key.rollout == 0:
            return Verdict.not_measured("lost")
        return Verdict.right() if key.group[-1] in "012" else hits(token, key)

    costly = {"reward": {"penalties": {"divergence": 0.1, "format": 0.1}}}
    training = Training(tmp_path, judge, steps=1, draws=5, more=costly).run()
    numbers, groups, (earned,) = training.journal()
    measured = [episode for group in groups for episode in group.measured]
    assert [*earned] == [episode.id for episode in measured]
    unasked = {name for name, parts in earned.items() if isnan(parts["divergence"])}
    assert len(measured) - len(unasked) == 4 * 15  # of the groups that teach
    assert unasked
    for episode in measured:
        assert earned[episode.id]["outcome"] == (1.0 if episode.right else -1.0)
        assert earned[episode.id]["format"] == (0.0 if episode.right else -0.1)
    taught = [sum(parts.values()) for name, parts in earned.items() if name not in unasked]
    assert numbers["reward/mean"] == [(0, pytest.approx(sum(taught) / len(taught)))]


def test_a_few_attempts_that_were_not_measured_are_borne_and_counted(tmp_path):
    def judge(token, key):
        return Verdict.not_measured("lost") if key.rollout == 0 else hits(token, key)

    (report,) = Training(tmp_path, judge, steps=1).run().reports
    assert report["attempts/not_measured"] == 4 / 64


@pytest.mark.parametrize(
    ("odd_one", "moves"), [(Verdict.not_measured("lost"), False), (Verdict.wrong(), True)]
)
def test_an_attempt_that_was_not_measured_moves_no_weight(odd_one, moves, tmp_path):
    def judge(token, key):
        return odd_one if key.rollout == 3 else Verdict.right()

    training = Training(tmp_path, judge, steps=1)
    before = weights(training.model.network)
    training.run()
    assert same_weights(weights(training.model.network), before) is not moves


@pytest.mark.parametrize("mark", ["right", "wrong"])
@pytest.mark.parametrize("uninformative", ["count", "leave_out"])
def test_a_round_without_a_difference_changes_no_weight(mark, uninformative, tmp_path):
    verdict = {"right": Verdict.right(), "wrong": Verdict.wrong()}[mark]
    training = Training(tmp_path, lambda token, key: verdict, steps=2, uninformative=uninformative)
    before = weights(training.model.network)
    training.run()
    assert [report["updates"] for report in training.reports] == [0.0, 0.0]
    assert [report["weights/version"] for report in training.reports] == [0.0, 0.0]
    # What no update measured is not told, not even as 0.
    assert not {"loss", "grad_norm", "approx_kl_k3"} & set().union(*training.reports)
    assert same_weights(weights(training.model.network), before)


def idle_for(limit):
    return {"limits": {"rounds_without_update": limit}}


def test_rounds_that_teach_nothing_stop_the_run_and_what_was_learnt_stays(tmp_path):
    def judge(token, key):
        learnt = key.group.startswith("rl/0/")
        return hits(token, key) if learnt else Verdict.wrong()

    stopped = Training(tmp_path, judge, steps=9, more=idle_for(3))
    words = (
        r"rl: rounds 1 to 3 taught nothing \(rl\.limits\.rounds_without_update = 3\): 0% of .*"
        r"easier problems.*rl\.group_size = 16.*rl\.selection\.draws = 1.*goes on"
    )
    with pytest.raises(RecipeError, match=words):
        stopped.run()
    assert [report["updates"] for report in stopped.reports] == [2.0, 0.0, 0.0, 0.0]
    longer = Training(tmp_path, judge, steps=9, more=idle_for(6))
    with pytest.raises(RecipeError, match="rounds 1 to 6 taught nothing"):
        longer.run()
    assert len(longer.reports) == 3  # from the round after the one that stopped it
    assert same_weights(weights(longer.model.network), weights(stopped.model.network))


def test_rounds_right_throughout_beside_others_wrong_throughout_stop_the_run_too(tmp_path):
    def judge(token, key):
        return Verdict.wrong() if key.group[-1] == "0" else Verdict.right()

    with pytest.raises(RecipeError, match=r"rounds 0 to 1 taught nothing.*harder problems"):
        Training(tmp_path, judge, steps=9, more=idle_for(2)).run()


def test_rounds_of_which_a_correction_leaves_nothing_are_told_apart(tmp_path):
    correction = {"sequence_bounds": (2.0, 3.0)}
    more = {"off_policy": {"old": "recomputed", "correction": correction}, **idle_for(2)}
    with pytest.raises(RecipeError, match=r"rounds 0 to 1 .*widen what rl\.off_policy\.correction"):
        Training(tmp_path, steps=9, more=more).run()


def test_a_run_with_nothing_left_to_learn_ends_and_is_done(tmp_path):
    def judge(token, key):
        return hits(token, key) if key.group.startswith("rl/0/") else Verdict.right()

    ended = Training(tmp_path, judge, steps=9, more=idle_for(3)).run()
    assert [report["updates"] for report in ended.reports] == [2.0, 0.0, 0.0, 0.0]
    again = Training(tmp_path, judge, steps=9, more=idle_for(3)).run()
    assert again.reports == []
    assert same_weights(weights(again.model.network), weights(ended.model.network))


@pytest.mark.parametrize("limit", [0, 4])
def test_rounds_without_an_update_that_are_not_too_many_in_a_row_are_borne(limit, tmp_path):
    def judge(token, key):
        return hits(token, key) if key.group.startswith("rl/3/") else Verdict.wrong()

    training = Training(tmp_path, judge, steps=7, more=idle_for(limit)).run()
    assert [bool(report["updates"]) for report in training.reports] == [False] * 3 + [True] + [
        False
    ] * 3


@pytest.mark.parametrize("killed_after", [1, 2])
def test_rounds_before_a_kill_count_as_rounds_without_an_update(killed_after, tmp_path):
    def wrong(token, key):
        return Verdict.wrong()

    how = {"steps": 9, "save_every": 1, "more": idle_for(4)}
    with pytest.raises(KeyboardInterrupt):
        Training(tmp_path, wrong, stop_after=killed_after, **how).run()
    resumed = Training(tmp_path, wrong, **how)
    with pytest.raises(RecipeError, match="rounds 0 to 3 taught nothing"):
        resumed.run()
    assert len(resumed.reports) == 3 - killed_after


@pytest.mark.parametrize("save_every", [1, 4])
def test_an_error_in_a_round_rises_as_itself_and_the_run_goes_on_from_there(save_every, tmp_path):
    def judge(token, key):
        if key.group.startswith("rl/2/") and not mended:
            raise RuntimeError("boom")
        return hits(token, key)

    mended = False
    broken = Training(tmp_path, judge, steps=5, save_every=save_every)
    with pytest.raises(RuntimeError, match="boom"):
        broken.run()
    assert len(broken.reports) == 2
    with Run.read(tmp_path / "run") as run:
        assert (run.steps("rl"), run.stage("rl").finished) == ([0, 1], False)
    mended = True
    resumed = Training(tmp_path, judge, steps=5, save_every=save_every).run()
    assert len(resumed.reports) == (3 if save_every == 1 else 5)
    whole = Training(tmp_path / "whole", steps=5, save_every=save_every).run()
    assert same_weights(weights(resumed.model.network), weights(whole.model.network))


def test_further_draws_replace_groups_that_teach_nothing(tmp_path):
    def judge(token, key):
        return Verdict.right() if key.group[-1] in "012" else hits(token, key)

    training = Training(tmp_path, judge, steps=2, draws=5).run()
    _, groups, _ = training.journal()
    for step, report in enumerate(training.reports):
        mine = [group for group in groups if group.id.split("/")[1].split(".")[0] == str(step)]
        assert 2 <= report["groups/draws"] <= 5
        assert len(mine) == 4 * report["groups/draws"]
        assert report["groups/informative"] == 1.0
        # The accuracy is that of everything that was attempted.
        everyone = [episode.right for group in mine for episode in group.episodes]
        assert report["accuracy"] == sum(everyone) / len(everyone)
    assert len({group.id for group in groups}) == len(groups)


def test_draws_end_where_nothing_can_be_learnt(tmp_path):
    training = Training(tmp_path, lambda *_: Verdict.right(), steps=1, draws=3)
    before = weights(training.model.network)
    (report,) = training.run().reports
    assert (report["groups/draws"], report["updates"]) == (3.0, 0.0)
    assert same_weights(weights(training.model.network), before)


def test_the_learners_own_old_logprobs_make_first_ratios_exactly_one(tmp_path):
    recomputed = {"off_policy": {"old": "recomputed"}}
    one = Training(tmp_path / "one", steps=1, updates=1, more=recomputed).run()
    (report,) = one.reports
    assert report["ratio_max"] == 1.0
    assert report["approx_kl_k3"] == 0.0
    assert 0.0 <= report["mismatch/k3"] < 1e-6
    other = Training(tmp_path / "other", steps=1, updates=1).run()
    for found, expected in zip(
        one.model.network.parameters(), other.model.network.parameters(), strict=True
    ):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)
    (report,) = Training(tmp_path / "two", steps=1, updates=2, more=recomputed).run().reports
    assert report["approx_kl_k3"] > 1e-3  # both share the policy before the first


@pytest.mark.parametrize(
    "correction",
    [{"sequence_bounds": (2.0, 3.0)}, {"weight": "sequence_mis", "bounds": (2.0, 3.0)}],
)
def test_what_is_rejected_or_weighs_nothing_is_not_trained(correction, tmp_path):
    more = {"off_policy": {"old": "recomputed", "correction": correction}}
    training = Training(tmp_path, steps=1, more=more)
    before = weights(training.model.network)
    (report,) = training.run().reports
    assert report["updates"] == 0.0
    assert same_weights(weights(training.model.network), before)


def test_what_is_steered_changes_the_loss_and_is_told(tmp_path):
    clip = {"schedule": "linear-floor", "start": 0.3, "fall": 0.2, "floor": 0.15}
    reports = Training(tmp_path, steps=4, more={"control": {"clip": clip}}).run().reports
    told = [report["control/clip_high"] for report in reports]
    assert told[0] == 0.3
    assert told == sorted(told, reverse=True)
    assert told[-1] < 0.2
    tight = {"schedule": "constant", "start": 1e-3}
    wide = {"schedule": "constant", "start": 10.0}
    clipped = [
        Training(tmp_path / name, steps=1, more={"control": {"clip": clip}}).run().reports[0]
        for name, clip in (("tight", tight), ("wide", wide))
    ]
    assert clipped[0]["clip_high"] > 0.0
    assert clipped[1]["clip_high"] == 0.0


def test_a_steered_run_that_was_killed_and_resumed_is_the_run_that_was_not_to_the_bit(tmp_path):
    steered = {
        "control": {
            "clip": {"schedule": "entropy-feedback", "start": 0.3, "step": 0.02},
            "entropy": {"target": 5.0, "delta": 1e-3},
            "kl": {"rule": "adaptive", "start": 0.01, "most": 1.0, "target": 0.05, "horizon": 64},
        }
    }
    how = {"steps": 6, "save_every": 2, "more": steered}
    whole = Training(tmp_path / "whole", **how).run()
    with pytest.raises(KeyboardInterrupt):
        Training(tmp_path / "killed", stop_after=4, **how).run()
    resumed = Training(tmp_path / "killed", **how).run()
    assert same_weights(weights(resumed.model.network), weights(whole.model.network))
    assert resumed.journal() == whole.journal()
    for name in ("entropy_coefficient", "kl_coefficient"):
        told = [report[f"control/{name}"] for report in whole.reports]
        assert len(set(told)) > 2


def test_the_kl_rule_is_told_how_many_attempts_a_round_has_and_not_how_many_were_asked_for(
    tmp_path,
):
    kl = {"rule": "adaptive", "start": 0.1, "most": 1.0, "target": 1e-9, "horizon": 100_000}
    more = {"problems": 64, "control": {"kl": kl}}  # the pool deals 4
    first, second = Training(tmp_path, steps=2, more=more).run().reports
    assert first["reference_kl"] > 2e-9
    found = adapted(0.1, first["reference_kl"], target=1e-9, samples=4 * 16, horizon=100_000)
    assert second["control/kl_coefficient"] == found == pytest.approx(0.1000128)


def test_a_checkpoint_that_was_steered_otherwise_is_refused(tmp_path):
    clip = {"control": {"clip": {"schedule": "constant", "start": 0.3}}}
    with pytest.raises(KeyboardInterrupt):
        Training(tmp_path, steps=6, save_every=2, stop_after=3, more=clip).run()
    with pytest.raises(RecipeError, match="steered by clip"):
        Training(tmp_path, steps=6, save_every=2).run()


GAE = {"credit": {"type": "gae", "critic": {"rate": 1.0}}}


def test_a_critic_learns_what_to_expect_and_the_policy_learns_by_it(tmp_path):
    training = Training(tmp_path, steps=12, more=GAE).run()
    accuracy = [report["accuracy"] for report in training.reports]
    assert accuracy[0] < 0.4
    assert accuracy[-1] > 0.9
    head = value_head_of(training.model.network)
    assert head is not None
    assert head.weight.abs().max() > 0
    assert all("critic/explained" in report for report in training.reports)


def test_a_run_with_a_critic_resumes_to_the_bit(tmp_path):
    how = {"steps": 6, "save_every": 2, "more": GAE}
    whole = Training(tmp_path / "whole", **how).run()
    with pytest.raises(KeyboardInterrupt):
        Training(tmp_path / "killed", stop_after=4, **how).run()
    resumed = Training(tmp_path / "killed", **how).run()
    assert same_weights(weights(resumed.model.network), weights(whole.model.network))
    assert resumed.journal() == whole.journal()
    folder = tmp_path / "whole" / "run" / "checkpoints" / "rl" / "5"
    assert not any("value_head" in name for name in load_file(folder / "model.safetensors"))
    assert load_local(str(folder)).parameters == training_parameters(whole) - 25


def training_parameters(training):
    return sum(each.numel() for each in training.model.network.parameters())


@pytest.mark.parametrize("credit", [{}, {"credit": {"type": "turn_rloo"}}, GAE], ids=str)
def test_a_cost_of_divergence_keeps_the_policy_near_where_it_began(credit, tmp_path):
    costly = {"reward": {"penalties": {"divergence": 5.0}}}
    free = Training(tmp_path / "free", steps=8, more=credit).run()
    held = Training(tmp_path / "held", steps=8, more=costly | credit).run()
    assert held.reports[0]["reward/divergence"] == pytest.approx(0.0, abs=1e-5)
    assert held.reports[-1]["reward/divergence"] != 0.0
    began = local_model(vocab_size=8, spread=0.15)

    def went(training):
        prompt = torch.tensor([[1, 2]])
        with torch.no_grad():
            now, then = (
                each.network(prompt).logits[0, -1].log_softmax(-1)
                for each in (training.model, began)
            )
        return float((now.exp() * (now - then)).sum())

    assert went(held) < went(free) / 3
