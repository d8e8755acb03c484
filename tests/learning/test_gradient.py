"""However a batch is divided, its gradient is that of the padded whole."""

import asyncio
from dataclasses import replace
from queue import Empty

import pytest
import torch

from forethought.core.errors import PolicyError
from forethought.learning.batch import pad
from forethought.learning.forecast import ForecastWork, forecast
from forethought.learning.gradient import EntropyTerm, GradientWork, accumulate
from forethought.learning.logprobs import Scale
from forethought.learning.losses.catalogue import objective
from forethought.learning.losses.settings import LossSettings
from forethought.learning.losses.sft import sft
from forethought.learning.streams import Denominators, Streams
from forethought.policy.local.crew import ForkedCrew, LocalCrew
from forethought.policy.local.decoder import Decoder
from forethought.policy.local.replica import CLOSED, Port, Replica, trained_parameters
from learning.rows import random_rows
from tiny import network

ROWS = random_rows(9, seed=4)
ADVANTAGES = [1.5, -0.5, 0.25, -2.0, 0.0, 1.0, -1.0, 0.75, 0.5]
PENALISED = objective(LossSettings(name="grpo_tcr", kl_coefficient=0.1))
OBJECTIVES = {
    "sft": sft,
    "token mean": objective(LossSettings(name="grpo_tcr")),
    "sequence ratio": objective(LossSettings(name="grpo_scr")),
}


def model_of(seed=0):
    return network(seed=seed, spread=0.15)


def silent(worker, value):
    raise AssertionError("a gradient job emits nothing")


def divided(crew, loss, *, micro_tokens=64, order=None, logit_tokens=1000, **how):
    """The loss, the tally's numbers and the flat gradient of the batch over a crew."""
    order = order or range(len(ROWS))
    batch = pad([ROWS[n] for n in order], [ADVANTAGES[n] for n in order])
    works = [
        GradientWork(
            batch=batch.take(rows),
            denominators=batch.denominators(None),
            objective=loss,
            temperature=1.0,
            micro_tokens=micro_tokens,
            logit_tokens=logit_tokens,
            **how,
        )
        for rows in batch.deal(crew.size)
    ]
    shares = asyncio.run(crew.run(accumulate, works, silent))
    crew.collect_gradients()
    tallies = [share.tally for share in shares if share.tally is not None]
    total = tallies[0] if len(tallies) == 1 else tallies[0] + tallies[1]
    gradient = torch.cat([each.grad.flatten() for each in trained_parameters(crew.model)])
    return sum(share.loss for share in shares), total.read(), gradient


def reference(loss, reference_model=None):
    """The same from one padded pass of the library's own model."""
    model = model_of()
    batch = pad(ROWS, ADVANTAGES)

    def logprobs_of(model):
        logprobs = model(batch.ids_BT).logits[:, :-1].log_softmax(-1)
        chosen = logprobs.gather(2, batch.ids_BT[:, 1:, None])[..., 0]
        return torch.nn.functional.pad(chosen, (1, 0))

    streams = Streams(
        mask_BT=batch.mask_BT,
        advantages_BT=batch.advantages_BT,
        old_logprobs_BT=batch.sampled_logprobs_BT,
        weights_BT=torch.ones_like(batch.advantages_BT),
        ref_logprobs_BT=None if reference_model is None else logprobs_of(reference_model).detach(),
    )
    result = loss(logprobs_of(model), streams, Denominators.count([batch.mask_BT]))
    result.loss.backward()
    gradient = torch.cat([each.grad.flatten() for each in model.parameters()])
    return float(result.loss.detach()), result.tally.read(), gradient


def agree(found, expected):
    assert found[0] == pytest.approx(expected[0], abs=1e-5)
    assert found[1] == pytest.approx(expected[1], rel=1e-4, abs=1e-5)
    scale = float(expected[2].norm())
    assert scale > 1e-2
    torch.testing.assert_close(found[2] / scale, expected[2] / scale, rtol=0, atol=1e-6)


@pytest.fixture(params=[0, 1, 2], ids=["in process", "one worker", "two workers"])
def crew(request):
    crew = ForkedCrew(model_of(), request.param) if request.param else LocalCrew(model_of())
    yield crew
    crew.close()


@pytest.mark.parametrize("micro_tokens", [64, 4096])
@pytest.mark.parametrize("name", OBJECTIVES)
def test_any_division_gives_the_gradient_of_the_whole(crew, name, micro_tokens):
    agree(divided(crew, OBJECTIVES[name], micro_tokens=micro_tokens), reference(OBJECTIVES[name]))


def test_the_order_of_rows_does_not_matter(crew):
    order = [4, 8, 0, 2, 7, 1, 6, 3, 5]
    agree(divided(crew, OBJECTIVES["token mean"], order=order), reference(OBJECTIVES["token mean"]))


def test_logits_in_portions_give_the_same_gradient(crew):
    agree(divided(crew, sft, logit_tokens=5), reference(sft))


def test_layers_that_are_computed_again_give_an_equal_gradient(crew):
    whole, again = (divided(crew, sft, checkpointing=each) for each in (False, True))
    assert torch.equal(whole[2], again[2])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_in_two_bytes_the_gradient_is_close(crew, dtype):
    exact, rough = divided(crew, sft), divided(crew, sft, dtype=dtype)
    assert rough[2].dtype is torch.float32
    assert 0 < (rough[2] - exact[2]).norm() < 0.03 * exact[2].norm()


def test_a_gradient_does_not_hold_what_the_one_before_left(crew):
    first = divided(crew, sft)
    again = divided(crew, sft)
    assert torch.equal(first[2], again[2])


@pytest.mark.parametrize("workers", [0, 2])
def test_a_penalty_reads_the_frozen_reference(workers):
    other = model_of(1)
    crew = ForkedCrew(model_of(), workers, other) if workers else LocalCrew(model_of(), other)
    try:
        found = divided(crew, PENALISED)
    finally:
        crew.close()
    agree(found, reference(PENALISED, model_of(1)))
    assert found[1]["reference_kl"] > 0.01


def test_a_worker_without_rows_adds_nothing():
    crew = ForkedCrew(model_of(), 2)
    lonely = pad(ROWS[:1], [1.0])
    works = [
        GradientWork(
            batch=lonely.take(rows),
            denominators=lonely.denominators(None),
            objective=sft,
            temperature=1.0,
            micro_tokens=64,
            logit_tokens=64,
        )
        for rows in lonely.deal(2)
    ]
    try:
        divided(crew, sft)  # leaves a gradient with both workers
        one, other = asyncio.run(crew.run(accumulate, works, silent))
        crew.collect_gradients()
        gradient = next(iter(trained_parameters(crew.model))).grad.clone()
    finally:
        crew.close()
    alone = LocalCrew(model_of())
    asyncio.run(alone.run(accumulate, works[:1], silent))
    assert (other.loss, other.tally) == (0.0, None)
    assert one.loss > 0
    torch.testing.assert_close(gradient, next(iter(trained_parameters(alone.model))).grad)


class ClosedAfter:
    """An inbox into which nothing comes until it has been looked at so often."""

    def __init__(self, looks):
        self.looks = looks

    def get_nowait(self):
        self.looks -= 1
        if self.looks >= 0:
            raise Empty
        return CLOSED


@pytest.mark.parametrize("checkpointing", [False, True])
def test_a_gradient_can_be_put_away_at_every_layer_and_in_the_head_there_and_back(checkpointing):
    model = model_of()
    batch = pad(ROWS, ADVANTAGES)
    work = GradientWork(
        batch=batch,
        denominators=batch.denominators(None),
        objective=sft,
        temperature=1.0,
        micro_tokens=10_000,
        logit_tokens=1000,
        checkpointing=checkpointing,
    )
    replica = Replica(model=model, decoder=Decoder(model))

    def compute(looks):
        accumulate(replica, work, Port(emit=silent, inbox=ClosedAfter(looks)))

    places = 2 * (len(Decoder(model).blocks) + 1)
    for looks in range(places):
        with pytest.raises(PolicyError, match="put away"):
            compute(looks)
    compute(places)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("aggregation", ["token-mean", "seq-mean-token-mean"])
def test_entropy_beside_a_loss_has_the_gradient_of_the_librarys_logits(aggregation, workers):
    term = EntropyTerm(coefficient=0.3, aggregation=aggregation)
    crew = ForkedCrew(model_of(), workers) if workers else LocalCrew(model_of())
    try:
        loss, _, found = divided(crew, OBJECTIVES["token mean"], entropy=term)
        plain, _, without = divided(crew, OBJECTIVES["token mean"])
    finally:
        crew.close()
    batch = pad(ROWS, ADVANTAGES)
    model = model_of()
    logits = model(batch.ids_BT).logits[:, :-1]
    entropies_BT = torch.distributions.Categorical(logits=logits).entropy()
    mask_BT = batch.mask_BT[:, 1:]
    sums_B = (entropies_BT * mask_BT).sum(1)
    lengths_B = mask_BT.sum(1)
    mean = (
        sums_B.sum() / lengths_B.sum()
        if aggregation == "token-mean"
        else (sums_B / lengths_B.clamp(min=1)).sum() / (lengths_B > 0).sum()
    )
    (-0.3 * mean).backward()
    expected = torch.cat([each.grad.flatten() for each in trained_parameters(model)])
    assert loss - plain == pytest.approx(-0.3 * mean.item(), abs=1e-5)
    scale = expected.abs().max()
    torch.testing.assert_close((found - without) / scale, expected / scale, rtol=0, atol=1e-4)


@pytest.mark.parametrize("micro_tokens", [40, 10_000])
def test_a_forecast_is_what_a_gradient_sees_to_the_bit(micro_tokens):
    crew = LocalCrew(model_of())
    batch = pad(ROWS, ADVANTAGES)
    work = ForecastWork(
        batch=batch, scale=Scale(temperature=0.8, logit_tokens=50), micro_tokens=micro_tokens
    )
    (found_BT,) = asyncio.run(crew.run(forecast, [work], silent))
    seen = []

    def watching(logprobs_BT, streams, denominators):
        seen.append(logprobs_BT.detach()[streams.mask_BT])
        return sft(logprobs_BT, streams, denominators)

    gradient = GradientWork(
        batch=batch,
        denominators=batch.denominators(None),
        objective=watching,
        temperature=0.8,
        micro_tokens=micro_tokens,
        logit_tokens=50,
    )
    asyncio.run(crew.run(accumulate, [gradient], silent))
    forecast_of = [found_BT[rows][batch.mask_BT[rows]] for rows in batch.portions(micro_tokens)]
    assert torch.equal(torch.cat(seen), torch.cat(forecast_of))
    assert not found_BT[~batch.mask_BT].any()


def test_a_reference_is_asked_as_it_was_and_only_where_there_is_one():
    model, reference = model_of(), model_of(seed=7)
    batch = pad(ROWS, ADVANTAGES)
    scale = Scale(temperature=1.0, logit_tokens=50)
    work = ForecastWork(batch=batch, scale=scale, micro_tokens=500, of="reference")
    (found_BT,) = asyncio.run(LocalCrew(model, reference).run(forecast, [work], silent))
    plain = ForecastWork(batch=batch, scale=scale, micro_tokens=500)
    (expected_BT,) = asyncio.run(LocalCrew(reference).run(forecast, [plain], silent))
    assert torch.equal(found_BT, expected_BT)
    with pytest.raises(PolicyError, match="no reference"):
        asyncio.run(LocalCrew(model).run(forecast, [work], lambda place, value: None))


def test_an_attempt_whose_numbers_are_not_finite_is_named():
    batch = pad(ROWS, ADVANTAGES)
    spoilt_BT = batch.sampled_logprobs_BT.clone()
    row = int(batch.mask_BT.any(dim=1).nonzero()[2])
    spoilt_BT[row][batch.mask_BT[row]] = float("nan")
    names = tuple(f"rl/3/{number}" for number in range(len(ROWS)))
    work = GradientWork(
        batch=replace(batch, sampled_logprobs_BT=spoilt_BT, names=names),
        denominators=batch.denominators(None),
        objective=OBJECTIVES["token mean"],
        temperature=1.0,
        micro_tokens=40,
        logit_tokens=50,
    )
    (share,) = asyncio.run(LocalCrew(model_of()).run(accumulate, [work], silent))
    assert share.broken == (f"rl/3/{row}",)
