"""A number that is not finite changes no weight, and is told with whose it was."""

import asyncio
from dataclasses import replace

import pytest
import torch

from forethought.learning.batch import pad
from forethought.learning.credit.settings import CriticSettings
from forethought.learning.finite import SkippedUpdate
from forethought.learning.gradient import EntropyTerm
from forethought.learning.losses.catalogue import LOSSES, Objective, objective
from forethought.learning.losses.result import LossResult
from forethought.learning.losses.settings import LossSettings
from forethought.learning.settings import ComputeSettings
from forethought.policy.local.value_head import add_value_head, value_head_of
from learning.rows import crew_of, learner_of, random_rows
from learning.test_rl import Training
from tiny import local_model, same_weights, weights

NAN = float("nan")
COUNT = 6
ODD = 28
ROWS = [
    replace(row, ids=(ODD if number == 3 else 1, *(each % ODD for each in row.ids[1:])))
    for number, row in enumerate(random_rows(COUNT, seed=4))
]
"""Of which the fourth alone has the odd id, at its beginning."""
BATCH = replace(
    pad(ROWS, [(-1.0) ** number for number in range(COUNT)]),
    names=tuple(f"e/{number}" for number in range(COUNT)),
)
PLAIN = objective(LossSettings(name="grpo_t"))
PENALISED = objective(LossSettings(name="grpo_t", kl_coefficient=0.1))
ONE = r"^update 1: its loss or gradient is not finite \(not finite: e/3\), so it was not made$"


def spoilt(stream_BT):
    """The stream with NaN at a trained token of the fourth row."""
    found_BT = stream_BT.clone()
    found_BT[3, int(BATCH.mask_BT[3].nonzero()[0])] = NAN
    return found_BT


def prepared(workers=0, *, reference=None, critic=False):
    """A model and a learner of it, which reads a few rows at a time."""
    model = local_model(spread=0.15)
    if critic:
        add_value_head(model.network)
    learner = learner_of(
        model,
        crew_of(model, workers, reference),
        compute=ComputeSettings(micro_tokens=30),
        critic=CriticSettings() if critic else None,
    )
    return model, learner


def skip(model, learner, batch, match, loss=PLAIN, entropy=None):
    """One update that is not made, with the warning for it."""
    before = weights(model.network)
    try:
        with pytest.warns(SkippedUpdate, match=match):
            report = asyncio.run(learner.update(batch, loss, entropy))
    finally:
        learner.crew.close()
    assert report["update/skipped"] == 1.0
    assert "loss" not in report
    assert same_weights(weights(model.network), before)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "stream", ["sampled_logprobs_BT", "old_logprobs_BT", "advantages_BT", "weights_BT"]
)
def test_the_attempt_with_a_number_that_is_not_finite_is_named(stream, workers):
    given = getattr(BATCH, stream)
    given = BATCH.mask_BT.float() if given is None else given
    skip(*prepared(workers), replace(BATCH, **{stream: spoilt(given)}), ONE)


@pytest.mark.parametrize("name", LOSSES)
def test_no_loss_passes_over_a_samplers_number_that_is_not_finite(name):
    batch = replace(BATCH, sampled_logprobs_BT=spoilt(BATCH.sampled_logprobs_BT))
    model, learner = prepared()
    learner.budget = 20.0
    skip(model, learner, batch, ONE, objective(LossSettings(name=name)))


def overflowing():
    """A model of which nothing finite comes where it reads the odd id."""
    model = local_model(spread=0.15, tie_word_embeddings=False)
    with torch.no_grad():
        model.network.get_input_embeddings().weight[ODD] = float("inf")
    return model


def test_an_attempt_of_which_the_reference_says_nothing_finite_is_named():
    skip(*prepared(reference=overflowing().network), BATCH, ONE, PENALISED)


@pytest.mark.parametrize("stream", ["old_values_BT", "returns_BT"])
def test_an_attempt_with_a_return_or_an_old_value_that_is_not_finite_is_named(stream):
    zeros_BT = torch.zeros_like(BATCH.advantages_BT)
    batch = replace(BATCH, old_values_BT=zeros_BT, returns_BT=zeros_BT)
    batch = replace(batch, **{stream: spoilt(zeros_BT)})
    skip(*prepared(critic=True), batch, ONE)


def test_where_a_critic_says_nothing_finite_of_anybody_as_many_are_named_as_can_be_read():
    model, learner = prepared(critic=True)
    with torch.no_grad():
        value_head_of(model.network).weight.fill_(float("inf"))
    zeros_BT = torch.zeros_like(BATCH.advantages_BT)
    batch = replace(BATCH, old_values_BT=zeros_BT, returns_BT=zeros_BT)
    skip(model, learner, batch, r"\(not finite: e/\d, e/\d, e/\d, e/\d and 2 more\)")


def rooted(logprobs_BT, streams, denominators):
    """A finite loss whose gradient is infinite at the tokens whose advantage is 7."""
    odd_BT = streams.kept(streams.advantages_BT) == 7.0
    apart_BT = torch.where(odd_BT, logprobs_BT - logprobs_BT.detach(), 1.0)
    plain = PLAIN(logprobs_BT, streams, denominators)
    return LossResult(loss=plain.loss + apart_BT.sqrt().sum(), tally=plain.tally)


def test_the_attempt_at_which_the_gradient_of_a_finite_loss_is_infinite_is_named():
    advantages_BT = torch.where(torch.arange(COUNT)[:, None] == 3, 7.0, 1.0) * BATCH.mask_BT
    loss = Objective(loss=rooted, reads_every_row=True)
    skip(*prepared(), replace(BATCH, advantages_BT=advantages_BT), ONE, loss)


def test_where_only_the_models_own_gradient_is_not_finite_nobody_is_named():
    model, learner = prepared()
    model.network.model.norm.weight.register_hook(lambda gradient: gradient * float("inf"))
    skip(model, learner, BATCH, r"\(no single attempt could be told\)")


def test_an_entropy_that_is_not_finite_is_named_by_its_attempt():
    model = overflowing()
    learner = learner_of(model, crew_of(model), compute=ComputeSettings(micro_tokens=30))
    term = EntropyTerm(coefficient=0.1, aggregation="token-mean")
    skip(model, learner, BATCH, ONE, entropy=term)


CORRECTIONS = [
    {"weight": "icepop"},
    {"weight": "sequence_mis", "normalize": True},
    {"sequence_bounds": (0.5, 2.0)},
    {"most_k3": 0.01, "veto_below": 1e-4},
    {},
]


def deaf(episode):
    """The fourth attempt of each group, of whose token the sampler does not know the logprob."""
    if not episode.id.endswith("/3"):
        return episode
    (trajectory,) = episode.trajectories
    (segment,) = trajectory.segments
    logprobs = tuple(NAN if sampled else 0.0 for sampled in segment.sampled)
    whole = replace(trajectory, segments=(replace(segment, logprobs=logprobs),))
    return replace(episode, trajectories=(whole,))


@pytest.mark.parametrize("correction", CORRECTIONS)
def test_no_rollout_correction_hides_a_samplers_logprob_that_is_not_a_number(correction, tmp_path):
    more = {"off_policy": {"old": "recomputed", "correction": correction}}
    training = Training(tmp_path, steps=1, updates=1, spoil=deaf, more=more)
    before = weights(training.model.network)
    with pytest.warns(SkippedUpdate, match=r"\(not finite: (rl/0/\d/\w+/3(, )?){1,4}\)"):
        training.run()
    (report,) = training.reports
    assert report["update/skipped"] == 1.0
    assert same_weights(weights(training.model.network), before)
