"""Who samples and who learns mean the same by a log-probability, also after updates."""

import asyncio
from dataclasses import replace

import pytest
import torch

from forethought.core.errors import RecipeError
from forethought.core.messages import Assistant
from forethought.core.trajectory import Episode, Finish, Group, Stop, Tokens, Trajectory, Turn
from forethought.core.verdict import Verdict
from forethought.learning.agreement import refuse_other_temperature, refuse_prefix_breaks
from forethought.learning.batch import pad
from forethought.learning.losses.catalogue import Objective, objective
from forethought.learning.losses.result import LossResult
from forethought.learning.losses.settings import LossSettings
from forethought.learning.metrics import summarise
from forethought.policy.local.choice import choose
from forethought.policy.local.models import load_local, with_adapters
from forethought.policy.protocol import SamplingSettings
from learning.rows import crew_of, learner_of, row
from learning.test_rl import GAE, Training, hits
from scripted import PROBLEM
from tiny import local_model, same_weights, weights

PROMPTS = [(1, 2, 3), (4, 5), (6, 7, 8, 9), (1, 2, 3)]


async def rows_of(sampler, settings, prompts=PROMPTS):
    """Rows that a sampler continues, and the versions of the weights that spoke."""
    seats = [sampler.sit() for _ in prompts]
    turns = await asyncio.gather(
        *(
            seat.sample(prompt, (), settings, seed)
            for seed, (seat, prompt) in enumerate(zip(seats, prompts, strict=True))
        )
    )
    for seat in seats:
        seat.leave()
    rows = [
        Tokens.join(
            (
                Tokens.given(prompt),
                Tokens(ids=turn.ids, sampled=(True,) * len(turn.ids), logprobs=turn.logprobs),
            )
        )
        for prompt, turn in zip(prompts, turns, strict=True)
    ]
    return rows, {turn.weight_version for turn in turns}


def difference(logprobs_BT, streams, denominators):
    """A loss that is how far the learner's log-probabilities are from the sampler's, in sum.

    It has no gradient, so that asking for it changes nothing.
    """
    apart_BT = streams.kept((logprobs_BT - streams.old_logprobs_BT).abs())
    return LossResult(loss=apart_BT.sum().detach() + 0.0 * logprobs_BT.sum(), tally=None)


distance = Objective(loss=difference, reads_every_row=True)


async def apart(model, crew, batch, temperature=1.0):
    """How far the two are on a batch, as a learner of the model's present weights finds it."""
    still = learner_of(model, crew, temperature=temperature, weight_decay=0.0)
    return (await still.update(batch, distance))["loss"]


@torch.no_grad()
def apart_from(network, batch):
    """How far what was sampled is from what a network of transformers would say, in sum."""
    logprobs_BTV = network(batch.ids_BT).logits.log_softmax(-1)
    said_BT = logprobs_BTV[:, :-1].gather(2, batch.ids_BT[:, 1:, None])[..., 0]
    return float((said_BT - batch.sampled_logprobs_BT[:, 1:])[batch.mask_BT[:, 1:]].abs().sum())


def test_a_logit_divided_by_the_temperature_is_worth_the_same_on_both_sides():
    logits_V = torch.tensor([2.0, 1.0, 0.0])
    choice = choose(
        logits_V[None], torch.tensor([0.5]), torch.ones(1), torch.zeros(1, dtype=torch.float64)
    )
    assert choice.ids_B.tolist() == [0]
    assert choice.logprobs_B.item() == pytest.approx(-0.142932, abs=1e-6)

    model = local_model(vocab_size=3, tie_word_embeddings=False)
    with torch.no_grad():
        hidden_E = model.network.model(torch.tensor([[1]])).last_hidden_state[0, 0]
        model.network.lm_head.weight.copy_(logits_V[:, None] * hidden_E / hidden_E.square().sum())
    said = Tokens(ids=(0,), sampled=(True,), logprobs=(0.0,))
    batch = pad([Tokens.join((Tokens.given((1,)), said))], [1.0])
    found = asyncio.run(apart(model, crew_of(model), batch, temperature=0.5))
    assert found == pytest.approx(0.142932, abs=1e-5)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.3])
def test_equal_weights_give_ratios_of_one_at_any_temperature(temperature):
    model = local_model()
    crew = crew_of(model)
    learner = learner_of(model, crew, temperature=temperature)

    async def run():
        settings = SamplingSettings(temperature=temperature, max_tokens=25)
        rows, _ = await rows_of(learner.sampler, settings)
        batch = pad(rows, [1.0, -1.0, 0.5, -0.5])
        found = [await apart(model, crew, batch, each) for each in (temperature, 0.9)]
        return found, await learner.update(batch, objective(LossSettings(name="grpo_t")))

    (same, other), report = asyncio.run(run())
    assert same < 1e-3
    assert other > 0.1
    assert report["ratio_max"] == pytest.approx(1.0, abs=1e-3)


def spoken_at(*temperatures, mark="+"):
    """A group with one attempt whose turns were sampled at these temperatures."""
    turns = tuple(
        Turn(message=Assistant(text="x"), finish=Finish.END_OF_TURN, tokens=1, temperature=each)
        for each in temperatures
    )
    trajectory = Trajectory(agent="a", opening=(), turns=turns, stop=Stop.ANSWERED)
    verdict = Verdict.right() if mark == "+" else Verdict.not_measured("lost")
    episode = Episode(id="e/0", problem=PROBLEM, trajectories=(trajectory,), verdict=verdict)
    return Group(id="e", problem=PROBLEM, episodes=(episode,))


@pytest.mark.parametrize("other", [0.5, 0.0, None])
def test_a_turn_sampled_at_another_temperature_than_the_learners_is_an_error(other):
    refuse_other_temperature([spoken_at(0.7, 0.7), spoken_at(1.0, mark="?")], 0.7)
    with pytest.raises(RecipeError, match=rf"attempt e/0 .* at temperature {other}.* at 0\.7: "):
        refuse_other_temperature([spoken_at(0.7, other)], 0.7)


def test_a_turn_in_which_nothing_was_sampled_has_no_temperature():
    silent = Turn(message=Assistant(text=""), finish=Finish.CONTEXT_FULL)
    group = spoken_at(0.7)
    (episode,) = group.episodes
    (trajectory,) = episode.trajectories
    longer = replace(trajectory, turns=(*trajectory.turns, silent))
    refuse_other_temperature(
        [replace(group, episodes=(replace(episode, trajectories=(longer,)),))], 0.7
    )


def test_a_round_sampled_at_another_temperature_is_not_learnt_from(tmp_path):
    training = Training(tmp_path, hits, steps=2, temperature=0.5)
    before = weights(training.model.network)
    with pytest.raises(RecipeError, match=r"at temperature 1\.0, but .* at 0\.5"):
        training.run()
    assert same_weights(weights(training.model.network), before)


def in_segments(*counts):
    """A group of attempts with so many segments each."""
    said = Turn(message=Assistant(text="x"), finish=Finish.END_OF_TURN, tokens=1)
    episodes = tuple(
        Episode(
            id=f"e/{number}",
            problem=PROBLEM,
            trajectories=(
                Trajectory(
                    agent="a",
                    opening=(),
                    turns=(said,),
                    stop=Stop.ANSWERED,
                    segments=(row(".s"),) * count,
                ),
            ),
            verdict=Verdict.right(),
        )
        for number, count in enumerate(counts)
    )
    return Group(id="e", problem=PROBLEM, episodes=episodes)


def test_breaks_are_counted_and_too_large_a_share_of_broken_attempts_is_refused():
    group = in_segments(1, 3, 2, 0)
    assert summarise([group])["prefix_breaks"] == 3.0
    refuse_prefix_breaks([group], 0.5)
    words = r"in 2 of 4 attempts \(50%\) .* rl\.limits\.prefix_breaks = 0\.4: .*\"strip\".*\"keep\""
    with pytest.raises(RecipeError, match=words):
        refuse_prefix_breaks([group], 0.4)


def with_breaks(episode):
    (trajectory,) = episode.trajectories
    twice = replace(trajectory, segments=trajectory.segments * 2)
    return replace(episode, trajectories=(twice,))


def test_a_run_whose_prompts_break_too_often_stops_before_it_learns(tmp_path):
    training = Training(tmp_path, hits, steps=2, prefix_breaks=0.9, spoil=with_breaks)
    before = weights(training.model.network)
    with pytest.raises(RecipeError, match=r"64 of 64 attempts.*limits\.prefix_breaks = 0\.9"):
        training.run()
    assert same_weights(weights(training.model.network), before)
    borne = Training(tmp_path / "borne", hits, steps=1, spoil=with_breaks).run()
    assert borne.reports[0]["prefix_breaks"] == 64.0


def test_a_critic_does_not_learn_from_attempts_that_were_seen_in_several_parts(tmp_path):
    training = Training(tmp_path, hits, steps=1, spoil=with_breaks, more=GAE)
    before = weights(training.model.network)
    with pytest.raises(RecipeError, match=r'seen by the model in several parts.*"keep"'):
        training.run()
    after = weights(training.model.network)
    assert same_weights({name: after[name] for name in before}, before)


def adapted(folder):
    """A saved model, and the same with adapters whose every number is drawn."""
    local_model().save(folder)
    model = with_adapters(load_local(str(folder)), rank=2, alpha=4)
    drawn = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, weight in model.network.named_parameters():
            if ".lora_B." in name:
                weight.copy_(0.2 * torch.randn(weight.shape, generator=drawn))
    return load_local(str(folder)), model


def without_adapters(model):
    """The weights that nobody trains."""
    return {k: v for k, v in weights(model.network).items() if ".lora_" not in k}


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")
@pytest.mark.parametrize("workers", [0, 2])
def test_the_sampler_speaks_with_the_adapters_as_they_are_after_every_update(workers, tmp_path):
    base, model = adapted(tmp_path / "base")
    crew = crew_of(model, workers)
    learner = learner_of(model, crew, rate=3e-2)
    found = []

    async def run():
        for _ in range(3):
            rows, versions = await rows_of(learner.sampler, SamplingSettings(max_tokens=12))
            batch = pad(rows, [1.0, -1.0, 0.5, -0.5])
            before = await apart(model, crew, batch)
            await learner.update(batch, objective(LossSettings(name="grpo_t")))
            learner.publish()
            found.append((versions, before, await apart(model, crew, batch), batch))

    try:
        asyncio.run(run())
    finally:
        crew.close()
    assert [versions for versions, *_ in found] == [{0}, {1}, {2}]
    for _, before, after, batch in found:
        assert before < 1e-3
        assert after > 0.1
        assert apart_from(base.network, batch) > 0.1


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")
@pytest.mark.parametrize("workers", [0, 1])
def test_a_hundred_updates_of_adapters_with_a_turn_between_leave_the_base_as_it_was_to_the_bit(
    workers, tmp_path
):
    _, model = adapted(tmp_path / "base")
    before = without_adapters(model)
    crew = crew_of(model, workers)
    learner = learner_of(model, crew)
    batch = pad([row("..ss.s")], [1.0])
    versions = []

    async def run():
        for _ in range(100):
            _, spoke = await rows_of(learner.sampler, SamplingSettings(max_tokens=2), [(1, 2)])
            versions.extend(spoke)
            await learner.update(batch, objective(LossSettings(name="grpo_t")))
            learner.publish()
        rows, spoke = await rows_of(learner.sampler, SamplingSettings(max_tokens=12))
        versions.extend(spoke)
        return await apart(model, crew, pad(rows, [1.0] * len(rows)))

    try:
        found = asyncio.run(run())
    finally:
        crew.close()
    assert same_weights(before, without_adapters(model))
    assert versions == [*range(101)]
    assert found < 1e-3


def test_a_round_tells_which_weights_spoke(tmp_path):
    reports = Training(tmp_path, hits, steps=3).run().reports
    assert [report["weights/version"] for report in reports] == [0.0, 2.0, 4.0]
