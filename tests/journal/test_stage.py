"""What a stage writes is what everyone reads, bit for bit and step by step."""

import math
import sqlite3
import struct
from contextlib import closing

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from forethought.core.errors import RecipeError
from forethought.core.trajectory import Group
from forethought.journal.protocol import StageJournal
from forethought.journal.run import Run
from journal.journal_values import groups, small_group


@pytest.fixture
def run(tmp_path):
    with Run.create_or_open(tmp_path / "run", {}) as run:
        yield run


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(kept=st.lists(groups(), max_size=3))
def test_groups_come_back_exactly_as_they_were_kept(run, kept):
    stage = run.stage("rl")
    stage.keep(0, kept)
    stage.commit(0)
    assert repr(list(run.groups("rl"))) == repr(kept)


@example(value=-0.0, step=0)
@given(value=st.floats(), step=st.integers(0, 2**40))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_metric_comes_back_to_the_bit_and_nan_as_nan(run, value, step):
    stage = run.stage("sft")
    stage.rewind(0)
    stage.log(step, {"loss": value})
    stage.commit(step)
    [(at, back)] = run.series("sft", "loss")
    assert at == step
    unsigned = value + 0.0  # the database knows no negative zero
    assert math.isnan(back) if math.isnan(value) else _bits(back) == _bits(unsigned)


def test_log_probabilities_that_are_not_finite_survive(run):
    group = small_group("g", size=1)
    [segment] = group.episodes[0].trajectories[0].segments
    odd = type(segment)(ids=segment.ids, sampled=segment.sampled, logprobs=(math.nan, -math.inf))
    episode = group.episodes[0]
    spoken = episode.trajectories[0]
    changed = type(spoken)(
        agent="a", opening=spoken.opening, turns=(), stop=spoken.stop, segments=(odd,)
    )
    kept = type(episode)(
        id="e", problem=group.problem, trajectories=(changed,), verdict=episode.verdict
    )
    stage = run.stage("rl")
    stage.keep(0, [Group(id="g", problem=group.problem, episodes=(kept,))])
    stage.commit(0)
    [back] = run.groups("rl")
    first, second = back.episodes[0].trajectories[0].segments[0].logprobs
    assert math.isnan(first)
    assert second == -math.inf


def test_a_stage_is_the_journal_that_loops_ask_for(run):
    stage: StageJournal = run.stage("rl")
    with stage.timed(0, "attempt"):
        stage.log(0, {"reward/mean": 0.5})
    stage.commit(0)
    assert run.metrics("rl") == ["reward/mean", "seconds/attempt"]
    assert stage.next_step == 1


def test_two_blocks_of_one_name_add_their_seconds(run):
    stage = run.stage("rl")
    stage.log(0, {"seconds/attempt": 100.0})
    with stage.timed(0, "attempt"):
        stage.log(0, {"accuracy": 1.0})
    stage.commit(0)
    [(_, seconds)] = run.series("rl", "seconds/attempt")
    assert seconds >= 100.0


def test_what_is_noted_is_invisible_until_its_step_is_committed(run, tmp_path):
    stage = run.stage("rl")
    stage.log(0, {"accuracy": 0.5})
    stage.keep(0, [small_group("g")])
    with Run.read(tmp_path / "run") as reader:
        assert reader.series("rl", "accuracy") == []
        stage.commit(0)
        assert reader.series("rl", "accuracy") == [(0, 0.5)]
        assert [group.id for group in reader.groups("rl", step=0)] == ["g"]


COMPONENT = st.floats(allow_infinity=False)


@given(rewards=st.lists(st.none() | st.dictionaries(st.text(), COMPONENT), max_size=4))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_rewards_come_back_to_the_bit_by_component_and_nan_as_nan(run, rewards):
    group = small_group("g", size=len(rewards))
    earned = {
        episode.id: components
        for episode, components in zip(group.episodes, rewards, strict=True)
        if components is not None
    }
    stage = run.stage("rl")
    stage.keep(0, [group])
    stage.keep_rewards(0, earned)
    stage.commit(0)
    assert repr(run.rewards("rl", 0)) == repr(earned)


def totals(path):
    with closing(sqlite3.connect(path / "journal.sqlite")) as connection:
        query = "select episode_id, reward, components from episodes order by step, place"
        return connection.execute(query).fetchall()


def test_an_attempts_reward_stands_beside_its_outcome_and_what_is_not_known_is_null(run):
    stage = run.stage("rl")
    stage.keep(0, [small_group("g", size=3)])
    stage.keep_rewards(
        0, {"g/0": {"outcome": 1.0, "judge": 0.25}, "g/1": {"outcome": -1.0, "judge": math.nan}}
    )
    stage.commit(0)
    assert totals(run.path) == [
        ("g/0", 1.25, '{"outcome": 1.0, "judge": 0.25}'),
        ("g/1", None, '{"outcome": -1.0, "judge": null}'),
        ("g/2", None, None),
    ]


def test_rewards_appear_with_their_step_and_are_forgotten_with_it(run):
    stage = run.stage("rl")
    for step in range(2):
        stage.keep(step, [small_group(f"{step}", size=1)])
        stage.keep_rewards(step, {f"{step}/0": {"outcome": float(step)}})
    assert run.rewards("rl", 0) == {}
    stage.commit(0)
    assert run.rewards("rl", 0) == {"0/0": {"outcome": 0.0}}
    stage.rewind(0)
    stage.keep(1, [small_group("1", size=1)])
    stage.commit(1)
    assert (run.rewards("rl", 0), run.rewards("rl", 1)) == ({}, {})


def test_committing_a_step_again_replaces_all_of_it(run):
    stage = run.stage("rl")
    stage.log(0, {"accuracy": 0.5, "old": 1.0})
    stage.keep(0, [small_group("first", size=4), small_group("second")])
    stage.commit(0)
    stage.log(0, {"accuracy": 0.75})
    stage.keep(0, [small_group("third")])
    stage.commit(0)
    assert run.metrics("rl") == ["accuracy"]
    assert run.series("rl", "accuracy") == [(0, 0.75)]
    assert [group.id for group in run.groups("rl")] == ["third"]


def test_rewinding_forgets_later_steps_of_this_stage_only_and_reopens_it(run):
    stage, other = run.stage("rl"), run.stage("sft")
    for step in range(4):
        for each in (stage, other):
            each.log(step, {"loss": float(step)})
            each.keep(step, [small_group(f"{step}")])
            each.commit(step)
    stage.finish()
    stage.rewind(4)
    assert stage.finished
    stage.log(3, {"never": 1.0})
    stage.rewind(2)
    assert not stage.finished
    assert stage.next_step == 2
    assert [group.id for group in run.groups("rl")] == ["0", "1"]
    assert other.next_step == 4
    stage.commit(3)
    assert "never" not in run.metrics("rl")


def test_documents_are_replaced_and_keep_their_place(run):
    stage = run.stage("eval")
    stage.put("exam/a", {"value": 1})
    stage.put("exam/b", {"value": [1.5, None, "\u2028"]})
    stage.put("exam/a", {"value": 2})
    assert run.documents("eval") == ["exam/a", "exam/b"]
    assert stage.get("exam/a") == {"value": 2}
    assert run.document("eval", "exam/b") == {"value": [1.5, None, "\u2028"]}
    assert stage.get("exam/c") is None


def test_stages_are_listed_as_begun_with_their_steps(run):
    sft, rl = run.stage("sft"), run.stage("rl")
    sft.commit(0)
    sft.commit(1)
    sft.finish()
    rl.put("note", {})
    first, second = run.stages()
    assert (first.name, first.steps, first.finished) == ("sft", 2, True)
    assert (second.name, second.steps, second.finished) == ("rl", 0, False)
    assert first.ended_at is not None
    assert first.begun_at <= first.ended_at


def test_a_stage_begun_with_other_settings_is_refused_naming_each(run):
    stage = run.stage("rl")
    stage.begin({"seed": 1, "loss": {"name": "grpo_t", "clip": [0.2, 0.2]}, "gone": True})
    stage.commit(0)
    with pytest.raises(RecipeError) as refused:
        run.stage("rl").begin({"seed": 2, "loss": {"name": "grpo_t", "clip": [0.2, 0.3]}})
    message = str(refused.value)
    assert "stage rl" in message
    assert "seed was 1, is now 2" in message
    assert "loss.clip was [0.2, 0.2], is now [0.2, 0.3]" in message
    assert "gone was true, is now absent" in message
    assert "loss.name" not in message
    assert "--run" in message


def test_a_stage_without_a_step_takes_other_settings(run):
    run.stage("rl").begin({"train": "mistyped.jsonl"})
    run.stage("rl").begin({"train": "train.jsonl"})
    run.stage("rl").commit(0)
    with pytest.raises(RecipeError, match=r"train\.jsonl"):
        run.stage("rl").begin({"train": "other.jsonl"})


def test_a_stage_begun_again_with_the_same_settings_goes_on(run):
    stage = run.stage("rl")
    stage.begin({"seed": 1, "pair": (1, 2)})
    stage.commit(0)
    again = run.stage("rl")
    again.begin({"pair": (1, 2), "seed": 1})
    assert again.next_step == 1


def test_free_settings_may_differ_and_are_told_once(run):
    stage = run.stage("rl")
    assert stage.begin({"compute": {"at_once": 1, "threads": 2}, "seed": 1}) == []
    stage.commit(0)
    changed = {"compute": {"at_once": 5, "threads": 2}, "seed": 1}
    told = ["compute.at_once was 1, is now 5"]
    assert stage.begin(changed, ("compute.*", "rl.checkpoints.*")) == told
    assert stage.begin(changed, ("compute.*",)) == []
    with pytest.raises(RecipeError, match=r"settings: seed was 1, is now 2\. Restore"):
        stage.begin({"compute": {"at_once": 7, "threads": 2}, "seed": 2}, ("compute.*",))


def test_a_table_that_was_not_set_is_told_as_one(run):
    stage, kl = run.stage("rl"), {"rule": "adaptive", "band": {"low": 0.1, "high": None}, "of": []}
    stage.begin({"kl": None, "seed": 1})
    stage.commit(0)
    words = (
        r"settings: kl was not set, is now rule = \"adaptive\", band\.low = 0\.1, of = \[\]\. Re"
    )
    with pytest.raises(RecipeError, match=words):
        stage.begin({"kl": kl, "seed": 1})
    stage.begin({"kl": kl, "seed": 1}, ("kl",))
    with pytest.raises(
        RecipeError, match=r"settings: kl was rule = .*, is now not set; seed was 1"
    ):
        stage.begin({"kl": None, "seed": 2})


def test_settings_are_compared_with_what_is_known_of_the_earlier_ones(run):
    stage = run.stage("rl")
    stage.begin({"seed": 1})
    stage.commit(0)
    known = {"seed": 1, "limit": 0.1}
    with pytest.raises(RecipeError, match=r"limit was 0\.1, is now 0\.2\."):
        stage.begin({"seed": 1, "limit": 0.2}, earlier=known)
    assert stage.begin(known, earlier=known) == []
    assert stage.get("fingerprint") == known


def test_a_finished_stage_keeps_the_settings_that_it_was_made_with(run):
    stage = run.stage("rl")
    stage.begin({"compute": 1})
    stage.commit(0)
    stage.finish()
    assert stage.begin({"compute": 2}, ("compute",)) == []
    assert stage.get("fingerprint") == {"compute": 1}


def test_a_stage_tells_its_own_numbers_by_step_once_they_are_committed(run):
    stage = run.stage("rl")
    for step in (2, 0, 1):
        stage.log(step, {"loss": step / 2})
        stage.commit(step)
    stage.log(3, {"loss": 9.0})
    run.stage("sft").log(0, {"loss": 5.0})
    run.stage("sft").commit(0)
    assert stage.series("loss") == [(0, 0.0), (1, 0.5), (2, 1.0)]
    assert stage.series("nothing") == []


def _bits(value):
    return struct.pack("<d", value)
