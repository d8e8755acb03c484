"""The learner: its steps, what it tells the sampler, and what it leaves on disk."""

import asyncio
from dataclasses import dataclass
from queue import SimpleQueue

import pytest
import torch

from forethought.core.errors import RecipeError
from forethought.core.trajectory import Tokens
from forethought.learning.batch import pad
from forethought.learning.checkpoint import Checkpoints
from forethought.learning.finite import SkippedUpdate
from forethought.learning.logprobs import Reading, token_logprobs
from forethought.learning.losses.catalogue import Objective, objective
from forethought.learning.losses.result import LossResult
from forethought.learning.losses.settings import LossSettings
from forethought.learning.losses.sft import sft
from forethought.learning.settings import ComputeSettings
from forethought.policy.local.decoder import Decoder
from forethought.policy.local.linear import Arithmetic
from forethought.policy.local.models import load_local, with_adapters
from forethought.policy.local.packed import Effort
from forethought.policy.local.replica import Port, Replica, trained_parameters
from forethought.policy.protocol import SamplingSettings
from learning.rows import crew_of, learner_of, random_rows
from tiny import local_model, same_weights, weights

BATCH = pad(random_rows(6), [1.0] * 6)


def infinite(logprobs_BT, streams, denominators):
    """A loss whose gradient is infinite."""
    result = sft(logprobs_BT, streams, denominators)
    return LossResult(loss=result.loss * float("inf"), tally=result.tally)


explode = Objective(loss=infinite, reads_every_row=True)


@pytest.fixture(params=[0, 2], ids=["in process", "forked"])
def started(request):
    """A model and its crew."""
    model = local_model()
    crew = crew_of(model, request.param)
    yield model, crew
    crew.close()


async def sample(sampler, prompts, settings):
    seats = [sampler.sit() for _ in prompts]
    turns = await asyncio.gather(
        *(
            seat.sample(prompt, (), settings, seed)
            for seed, (seat, prompt) in enumerate(zip(seats, prompts, strict=True))
        )
    )
    for seat in seats:
        seat.leave()
    return turns


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_what_was_sampled_is_worth_the_same_to_the_learner(started, temperature):
    model, crew = started
    learner = learner_of(model, crew, temperature=temperature)
    settings = SamplingSettings(temperature=temperature, max_tokens=25)
    prompts = [(1, 2, 3), (4, 5), (6, 7, 8, 9), (1, 2, 3)]

    async def run():
        turns = await sample(learner.sampler, prompts, settings)
        rows = [
            Tokens.join(
                (
                    Tokens.given(prompt),
                    Tokens(ids=turn.ids, sampled=(True,) * len(turn.ids), logprobs=turn.logprobs),
                )
            )
            for prompt, turn in zip(prompts, turns, strict=True)
        ]
        batch = pad(rows, [1.0, -1.0, 0.5, -0.5])
        return batch, await learner.update(batch, objective(LossSettings(name="grpo_t")))

    batch, report = asyncio.run(run())
    assert report["approx_kl_k3"] == pytest.approx(0.0, abs=1e-6)
    assert report["ratio_max"] == pytest.approx(1.0, abs=1e-4)
    assert report["clip_low"] == report["clip_high"] == 0.0
    with torch.no_grad():
        effort = Effort(arithmetic=Arithmetic())
        found = token_logprobs(
            Decoder(local_model().network), Reading.of(batch), temperature, 100, effort
        )
    torch.testing.assert_close(found, batch.sampled_logprobs_BT, rtol=0, atol=1e-4)


def test_workers_speak_with_the_new_weights_at_once_and_say_their_version(started):
    model, crew = started
    learner = learner_of(model, crew, rate=0.1)
    settings = SamplingSettings(temperature=0.0, max_tokens=10)

    async def run():
        (before,) = await sample(learner.sampler, [(1, 2)], settings)
        await learner.update(BATCH, sft)
        learner.publish()
        (after,) = await sample(learner.sampler, [(1, 2)], settings)
        return before, after

    before, after = asyncio.run(run())
    assert (before.weight_version, after.weight_version) == (0, 1)
    assert after.ids != before.ids
    whole = torch.tensor([[1, 2, *after.ids[:-1]]])
    with torch.no_grad():
        expected = model.network(whole).logits[0, 1:].argmax(-1)
    assert list(after.ids) == expected.tolist()


def test_imitation_makes_the_imitated_likelier(started):
    learner = learner_of(*started)

    async def run():
        return [(await learner.update(BATCH, sft))["loss"] for _ in range(8)]

    losses = asyncio.run(run())
    assert losses[-1] < 0.8 * losses[0]


def test_forked_and_in_process_learners_take_the_same_steps():
    found = []
    for workers in (0, 2):
        model = local_model()
        crew = crew_of(model, workers)
        learner = learner_of(model, crew)
        asyncio.run(updates(learner, 2))
        crew.close()
        found.append(weights(model.network))
    for name, weight in found[0].items():
        torch.testing.assert_close(weight, found[1][name], rtol=0, atol=1e-4)


async def updates(learner, count, loss=sft):
    return [await learner.update(BATCH, loss) for _ in range(count)]


def test_a_gradient_that_is_not_finite_changes_no_weight_and_is_counted(started):
    model, crew = started
    learner = learner_of(model, crew)
    before = weights(model.network)
    with pytest.warns(SkippedUpdate, match="update 1: its loss or gradient is not finite"):
        (report,) = asyncio.run(updates(learner, 1, explode))
    assert report["update/skipped"] == 1.0
    assert not {"grad_norm", "update/ratio"} & set(report)  # not measured, and not 0
    assert same_weights(weights(model.network), before)
    (report,) = asyncio.run(updates(learner, 1))
    assert report["update/skipped"] == 0.0
    assert not same_weights(weights(model.network), before)


def test_weights_that_are_no_longer_finite_end_the_training():
    model = local_model()
    learner = learner_of(model, crew_of(model))
    with torch.no_grad():
        next(iter(learner._optimizers[0].param_groups))["params"][0].fill_(3e38)
    learner._optimizers[0].param_groups[0]["weight_decay"] = 1e300
    with pytest.raises(RecipeError, match="left weights that are not finite"):
        asyncio.run(updates(learner, 3, silent))


def zero(logprobs_BT, streams, denominators):
    """A loss that says nothing, whatever the model does."""
    result = sft(torch.where(streams.mask_BT, logprobs_BT * 0.0, 0.0), streams, denominators)
    return LossResult(loss=torch.nan_to_num(result.loss) * 0.0, tally=result.tally)


silent = Objective(loss=zero, reads_every_row=True)


def test_a_step_is_no_longer_than_the_clipped_gradient_allows():
    model = local_model()
    learner = learner_of(model, crew_of(model))
    (report,) = asyncio.run(updates(learner, 1))
    assert report["grad_norm"] > 1.0  # the norm before it was cut
    moments = learner._optimizers[0].state_dict()["state"]
    norm = sum(float(each["exp_avg"].square().sum()) for each in moments.values()) ** 0.5
    assert norm / (1 - 0.9) == pytest.approx(1.0, abs=1e-3)


def test_the_reported_rate_follows_the_schedule():
    model = local_model()
    learner = learner_of(model, crew_of(model), rate=0.1, warmup=2, schedule="cosine", steps=4)
    rates = [report["learning_rate"] for report in asyncio.run(updates(learner, 4))]
    assert rates == pytest.approx([0.05, 0.1, 0.1, 0.055])


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_six_steps_are_three_steps_a_checkpoint_and_three_steps_to_the_bit(kind, tmp_path):
    chosen = {"type": kind, "warmup": 2, "schedule": "cosine", "steps": 6}
    straight = local_model()
    whole = learner_of(straight, crew_of(straight), **chosen)
    asyncio.run(updates(whole, 6))

    begun = local_model()
    first = learner_of(begun, crew_of(begun), **chosen)
    asyncio.run(updates(first, 3))
    folder = Checkpoints(folder=tmp_path).save("2", first.write, first.state)

    resumed = load_local(str(folder))
    second = learner_of(resumed, crew_of(resumed), **chosen)
    second.read(folder)
    assert (second.steps_taken, second.sampler.version) == (3, 3)
    asyncio.run(updates(second, 3))
    assert same_weights(weights(resumed.network), weights(straight.network))
    assert moments(second) == moments(whole)


def moments(learner):
    """Every moment of every optimiser, as bytes."""
    return [
        {
            (place, name): value.numpy().tobytes()
            for place, values in optimizer.state_dict()["state"].items()
            for name, value in values.items()
        }
        for optimizer in learner._optimizers
    ]


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")
@pytest.mark.parametrize("workers", [0, 2])
def test_only_adapters_learn_and_they_resume_to_the_bit(workers, tmp_path):
    local_model().save(tmp_path / "base")
    model = with_adapters(load_local(str(tmp_path / "base")), rank=2, alpha=4)
    before = weights(model.network)
    crew = crew_of(model, workers)
    learner = learner_of(model, crew)
    asyncio.run(updates(learner, 2))
    after = weights(model.network)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert len(changed) == len(trained_parameters(model.network)) == 28
    assert all(".lora_" in name for name in changed)
    folder = Checkpoints(folder=tmp_path / "sft").save("1", learner.write, learner.state)
    asyncio.run(updates(learner, 1))
    crew.close()

    loaded = load_local(str(folder))
    resumed_crew = crew_of(loaded, workers)
    resumed = learner_of(loaded, resumed_crew)
    resumed.read(folder)
    asyncio.run(updates(resumed, 1))
    resumed_crew.close()
    assert same_weights(weights(loaded.network), weights(model.network))
    assert moments(resumed) == moments(learner)


@pytest.mark.filterwarnings("ignore::forethought.learning.finite.SkippedUpdate")
def test_training_stops_once_ten_gradients_in_a_row_were_not_finite():
    model = local_model()
    crew = crew_of(model, 0)
    learner = learner_of(model, crew)
    learner._guard.section = "rl.optimizer"

    async def run():
        await updates(learner, 9, explode)
        await updates(learner, 1)
        before = weights(model.network)
        await updates(learner, 9, explode)
        with pytest.raises(RecipeError) as refusal:
            await updates(learner, 1, explode)
        return before, str(refusal.value)

    before, message = asyncio.run(run())
    assert message.startswith(f"rl.optimizer.rate = {learner.optimizer.rate}: 10 updates in a row")
    assert "the last finite one was update 10; lower the rate" in message
    assert same_weights(before, weights(model.network))


class ThreadlessCrew:
    """The model in this thread, where a test can watch what autograd keeps."""

    def __init__(self, model):
        self.model, self.size = model, 1
        self.replica = Replica(model=model, decoder=Decoder(model))

    async def run(self, job, payloads, emit):
        port = Port(emit=lambda value: emit(0, value), inbox=SimpleQueue())
        return [job(self.replica, each, port) for each in payloads]

    def collect_gradients(self):
        pass


def step_of(**compute):
    """The report of one update, the weights after it, and the numbers kept for the way back."""
    model = local_model("llama", spread=0.15)
    learner = learner_of(model, ThreadlessCrew(model.network), compute=ComputeSettings(**compute))
    kept = []

    def keep(tensor):
        kept.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        report = asyncio.run(learner.update(BATCH, sft))
    return report, weights(model.network), sum(kept)


@pytest.mark.filterwarnings("ignore::forethought.learning.precision.SlowPrecision")
def test_precision_decides_in_which_number_type_is_multiplied():
    exact, rough = (step_of(precision=each)[0]["loss"] for each in ("float32", "bfloat16"))
    assert exact == step_of(precision="auto")[0]["loss"]
    assert rough != exact
    assert rough == pytest.approx(exact, rel=1e-2)


@dataclass(frozen=True)
class Multiplied:
    """The loss of imitation, made so much larger; a worker is handed it."""

    factor: float

    def __call__(self, logprobs_BT, streams, denominators):
        result = sft(logprobs_BT, streams, denominators)
        return LossResult(loss=result.loss * self.factor, tally=result.tally)


def times(factor):
    return Objective(loss=Multiplied(factor), reads_every_row=False)


@pytest.fixture(params=[0, 2], ids=["in process", "forked"])
def grown(request):
    """Makes an update of a loss: its report, AdamW's first moments of it, and the learner."""
    crews = []

    def grow(precision, loss, *, factor=None):
        model = local_model("llama", spread=0.15)
        crews.append(crew_of(model, request.param))
        learner = learner_of(model, crews[-1], compute=ComputeSettings(precision=precision))
        learner.optimizer = learner.optimizer.model_copy(update={"clip_norm": 1e30})
        if factor is not None:
            learner._scale.factor = factor
        (report,) = asyncio.run(updates(learner, 1, loss))
        moments = learner._optimizers[0].state_dict()["state"].values()
        learnt_N = torch.cat([torch.zeros(0), *(each["exp_avg"].flatten() for each in moments)])
        return report, learnt_N, learner

    yield grow
    for crew in crews:
        crew.close()


def apart(found_N, expected_N):
    return float((found_N - expected_N).norm() / expected_N.norm())


@pytest.mark.filterwarnings("ignore::forethought.learning.precision.SlowPrecision")
def test_what_float16_would_take_for_zero_is_scaled_up_on_the_way_back(grown):
    faint = times(1e-6)
    _, expected, _ = grown("float32", faint)
    report, found, _ = grown("float16", faint)
    _, lost, _ = grown("float16", faint, factor=1.0)
    assert report["update/loss_scale"] == 2.0**16
    assert apart(found, expected) < 0.02
    assert apart(lost, expected) > 0.2


@pytest.mark.filterwarnings("ignore::forethought.learning.precision.SlowPrecision")
def test_a_gradient_too_large_for_float16_is_made_again_with_a_smaller_scale(grown):
    loud = times(1e4)
    _, expected, _ = grown("float32", loud)
    report, found, _ = grown("float16", loud)
    assert report["update/skipped"] == 0.0
    assert 1.0 < report["update/loss_scale"] < 2.0**16
    assert apart(found, expected) < 0.02


@pytest.mark.filterwarnings("ignore::forethought.learning.precision.SlowPrecision")
def test_a_gradient_too_large_for_any_scale_is_skipped(grown):
    with pytest.warns(SkippedUpdate):
        report, _, learner = grown("float16", times(1e9), factor=2.0)
    assert (report["update/skipped"], report["update/loss_scale"]) == (1.0, 2.0)
    with (
        pytest.raises(RecipeError, match=r'set compute\.precision = "float32"'),
        pytest.warns(SkippedUpdate),
    ):
        asyncio.run(updates(learner, 9, times(1e9)))


def test_without_float16_no_loss_is_scaled(grown):
    report, _, learner = grown("float32", sft)
    assert "update/loss_scale" not in report
    assert learner._scale.factor == 1.0


@pytest.mark.filterwarnings("ignore::forethought.learning.precision.SlowPrecision")
def test_the_scale_of_a_loss_goes_with_the_checkpoint(grown, tmp_path):
    _, _, learner = grown("float16", times(1e4))
    folder = Checkpoints(folder=tmp_path).save("0", learner.write, learner.state)
    _, _, other = grown("float16", sft)
    assert other._scale != learner._scale
    other.read(folder)
    assert other._scale == learner._scale


def test_gradient_checkpointing_decides_what_is_kept_for_the_way_back():
    without, again = (step_of(gradient_checkpointing=each) for each in (False, True))
    assert again[2] < without[2] / 2
    assert same_weights(without[1], again[1])
    assert without[0] == again[0]


def test_rows_without_an_advantage_change_a_gradient_only_by_being_counted():
    rows = random_rows(6)
    advantages = [1.0, 0.0, -1.0, 0.0, 0.0, 0.5]
    told = [number for number, advantage in enumerate(advantages) if advantage]

    def report_of(batch, **denominators):
        model = local_model()
        crew = crew_of(model)
        learner = learner_of(model, crew)
        loss = objective(LossSettings(aggregation="token-sum", **denominators))
        return asyncio.run(learner.update(batch, loss)), weights(model.network)

    whole = report_of(pad(rows, advantages))
    part = report_of(pad([rows[n] for n in told], [advantages[n] for n in told]))
    assert whole[0] == pytest.approx(part[0])
    assert same_weights(whole[1], part[1])


def test_rows_without_an_advantage_stay_in_the_denominator():
    rows = random_rows(6)
    advantages = [1.0, 0.0, -1.0, 0.0, 0.0, 0.5]
    batch = pad(rows, advantages)
    told = batch.take([0, 2, 5])
    share = float(told.mask_BT.sum() / batch.mask_BT.sum())

    def norm_of(batch):
        model = local_model()
        learner = learner_of(model, crew_of(model))
        return asyncio.run(learner.update(batch, objective(LossSettings())))["grad_norm"]

    assert norm_of(batch) == pytest.approx(share * norm_of(told), rel=1e-4)
