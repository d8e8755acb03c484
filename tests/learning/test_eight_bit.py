"""AdamW with moments of 8 bits: what it refuses, which tensors it takes, and how it resumes."""

import asyncio
import sys
from importlib.util import find_spec

import pytest
import torch

from forethought.core.errors import RecipeError
from forethought.learning.batch import pad
from forethought.learning.checkpoint import Checkpoints, load_optimizer, save_optimizer
from forethought.learning.credit.settings import CriticSettings
from forethought.learning.eight_bit import moments_size, refuse_unusable
from forethought.learning.finite import SkippedUpdate
from forethought.learning.losses.catalogue import Objective
from forethought.learning.losses.result import LossResult
from forethought.learning.losses.sft import sft
from forethought.learning.optimizers import build_optimizers
from forethought.learning.settings import OptimizerSettings
from forethought.policy.local.models import load_local
from forethought.policy.local.value_head import add_value_head
from learning.rows import crew_of, learner_of, random_rows
from tiny import local_model, network, same_weights, weights

CPU = torch.device("cpu")
SIZES = {"hidden_size": 64, "intermediate_size": 72, "vocab_size": 96}
BATCH = pad(random_rows(6), [1.0] * 6)

there = pytest.mark.skipif(find_spec("bitsandbytes") is None, reason="bitsandbytes is not there")
missing = pytest.mark.usefixtures("without_bitsandbytes")


@pytest.fixture
def without_bitsandbytes(monkeypatch):
    """As if it were not installed."""
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)  # Python takes it for absent


def settings_of(kind="adamw_8bit", **chosen):
    return OptimizerSettings(**{"type": kind, "rate": 0.01} | chosen)


@missing
def test_without_the_package_key_value_and_remedy_are_named():
    with pytest.raises(RecipeError) as refusal:
        refuse_unusable(settings_of(), CPU, "rl.optimizer")
    assert str(refusal.value) == (
        'rl.optimizer.type = "adamw_8bit": bitsandbytes is not installed; run pip install '
        "'forethought[8bit]', or set it to \"adamw\""
    )


@missing
def test_an_optimiser_that_cannot_be_had_is_not_built():
    with pytest.raises(RecipeError, match=r"rl\.optimizer\.type = .*not installed"):
        build_optimizers(network(), settings_of(), section="rl.optimizer")


def test_pages_need_a_gpu():
    with pytest.raises(RecipeError) as refusal:
        refuse_unusable(settings_of("paged_adamw_8bit"), CPU, "sft.phases.0.optimizer")
    assert str(refusal.value) == (
        'sft.phases.0.optimizer.type = "paged_adamw_8bit": only a GPU\'s memory has pages that can '
        'move, and the device is cpu; set it to "adamw_8bit" or "adamw"'
    )


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_other_optimisers_ask_for_nothing(kind):
    refuse_unusable(settings_of(kind), CPU, "optimizer")


@there
def test_a_device_on_which_no_step_can_be_made_is_refused():
    refuse_unusable(settings_of(), CPU, "optimizer")
    with pytest.raises(RecipeError, match=r"does not work on mps \(.+\); run pip install -U"):
        refuse_unusable(settings_of(), torch.device("mps"), "optimizer")


def stepped(model, optimizers, *seeds):
    """Steps along drawn gradients."""
    for seed in seeds:
        drawn = torch.Generator().manual_seed(seed)
        for parameter in model.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=drawn)
        for optimizer in optimizers:
            optimizer.step()


def owned(optimizer):
    return [each for group in optimizer.param_groups for each in group["params"]]


@there
@pytest.mark.parametrize("tied", [True, False])
def test_large_matrices_have_8_bits_and_embedding_norms_and_small_ones_32(tied):
    model = network("qwen2", tie_word_embeddings=tied, **SIZES)
    add_value_head(model)
    optimizers = build_optimizers(model, settings_of(), head_rate=0.1)
    stepped(model, optimizers, 1)
    names = {id(each): name for name, each in model.named_parameters()}
    found = [names[id(each)] for optimizer in optimizers for each in owned(optimizer)]
    assert sorted(found) == sorted(names.values())
    quantized = {
        names[id(each)]
        for optimizer in optimizers
        for each in owned(optimizer)
        if torch.uint8 in {value.dtype for value in tensors(optimizer.state[each])}
    }
    large = ("q_proj.weight", "o_proj.weight", "gate_proj.weight", "up_proj.weight")
    expected = {name for name in found if name.endswith((*large, "down_proj.weight"))}
    assert quantized == expected | (set() if tied else {"lm_head.weight"})


def tensors(state):
    return [value for value in state.values() if isinstance(value, torch.Tensor)]


@there
@pytest.mark.parametrize("kind", ["adamw", "adamw_8bit"])
def test_moments_are_as_large_as_is_said(kind):
    model = network("qwen2", **SIZES)
    next(model.parameters()).requires_grad_(False)
    optimizers = build_optimizers(model, settings_of(kind))
    stepped(model, optimizers, 1)
    moments = ("exp_avg", "exp_avg_sq", "state1", "state2", "absmax1", "absmax2")
    found = [
        state[name].nbytes
        for optimizer in optimizers
        for state in optimizer.state.values()
        for name in moments
        if name in state
    ]
    assert moments_size(model, settings_of(kind)) == sum(found)


@there
def test_it_goes_where_adamw_goes():
    ends = {}
    for kind in ("adamw", "adamw_8bit"):
        model = network(**SIZES)
        start = weights(model)
        stepped(model, build_optimizers(model, settings_of(kind)), *range(8))
        ends[kind] = torch.cat([(weights(model)[name] - start[name]).flatten() for name in start])
    apart = (ends["adamw_8bit"] - ends["adamw"]).norm() / ends["adamw"].norm()
    assert 0.0 < apart < 0.05


@there
def test_settings_reach_it():
    optimizers = build_optimizers(
        network(**SIZES), settings_of(beta_1=0.8, beta_2=0.9, weight_decay=0.125)
    )
    for group in (optimizer.param_groups[0] for optimizer in optimizers):
        assert (group["betas"], group["weight_decay"]) == ((0.8, 0.9), 0.125)
        assert group["lr"] == group["full_rate"] == 0.01


@there
def test_moments_come_back_to_the_bit(tmp_path):
    straight, begun = network(**SIZES), network(**SIZES)
    whole = build_optimizers(straight, settings_of())
    stepped(straight, whole, 1, 2, 3, 4)
    first = build_optimizers(begun, settings_of())
    stepped(begun, first, 1, 2)
    for number, optimizer in enumerate(first):
        save_optimizer(optimizer, tmp_path / f"{number}")
    halfway = weights(begun)
    for start in ("fresh", "used"):
        resumed = network(**SIZES)
        second = build_optimizers(resumed, settings_of())
        if start == "used":
            stepped(resumed, second, 7, 8, 9)
        resumed.load_state_dict(halfway)
        for number, optimizer in enumerate(second):
            load_optimizer(optimizer, tmp_path / f"{number}")
        stepped(resumed, second, 3, 4)
        assert same_weights(weights(resumed), weights(straight))
        assert [bits(one) for one in second] == [bits(one) for one in whole]


@there
def test_a_state_of_before_the_first_step_comes_back_as_none(tmp_path):
    model = network(**SIZES)
    for number, optimizer in enumerate(build_optimizers(model, settings_of())):
        save_optimizer(optimizer, tmp_path / f"{number}")
    used = build_optimizers(model, settings_of())
    stepped(model, used, 1)
    for number, optimizer in enumerate(used):
        load_optimizer(optimizer, tmp_path / f"{number}")
        assert bits(optimizer) == [{}] * len(owned(optimizer))


def bits(optimizer):
    """The state of every parameter, as bytes and numbers."""
    return [
        {
            name: value.numpy().tobytes() if isinstance(value, torch.Tensor) else value
            for name, value in optimizer.state.get(each, {}).items()
        }
        for each in owned(optimizer)
    ]


async def updates(learner, count, loss=sft):
    return [await learner.update(BATCH, loss) for _ in range(count)]


@there
@pytest.mark.parametrize("workers", [0, 2], ids=["in process", "forked"])
def test_a_learner_resumes_to_the_bit(workers, tmp_path):
    chosen = {"type": "adamw_8bit", "warmup": 2, "schedule": "cosine", "steps": 6}
    chosen["critic"] = CriticSettings()

    def begin(model):
        add_value_head(model.network)
        crew = crew_of(model, workers)
        return learner_of(model, crew, **chosen), crew

    straight = local_model(**SIZES | {"vocab_size": 320})
    whole, crew = begin(straight)
    asyncio.run(updates(whole, 3))
    folder = Checkpoints(folder=tmp_path).save("2", whole.write, whole.state)
    asyncio.run(updates(whole, 3))
    crew.close()

    resumed = load_local(str(folder))
    second, crew = begin(resumed)
    second.read(folder)
    reports = asyncio.run(updates(second, 3))
    crew.close()
    assert same_weights(weights(resumed.network), weights(straight.network))
    assert list(map(bits, second._optimizers)) == list(map(bits, whole._optimizers))
    assert all(0 < report["update/ratio"] < 1 for report in reports)
    assert all(report["grad_norm"] > 0 for report in reports)


@there
def test_the_learner_warms_it_up_and_keeps_broken_gradients_from_it():
    model = local_model(**SIZES | {"vocab_size": 320})
    learner = learner_of(model, crew_of(model), type="adamw_8bit", rate=0.1, warmup=2)
    rates = [report["learning_rate"] for report in asyncio.run(updates(learner, 2))]
    assert rates == pytest.approx([0.05, 0.1])
    assert [one.param_groups[0]["lr"] for one in learner._optimizers] == [0.1, 0.1]
    before, state = weights(model.network), list(map(bits, learner._optimizers))

    def explode(logprobs_BT, streams, denominators):
        result = sft(logprobs_BT, streams, denominators)
        return LossResult(loss=result.loss * float("inf"), tally=result.tally)

    with pytest.warns(SkippedUpdate):
        (report,) = asyncio.run(updates(learner, 1, Objective(loss=explode, reads_every_row=True)))
    assert report["update/skipped"] == 1.0
    assert same_weights(weights(model.network), before)
    assert list(map(bits, learner._optimizers)) == state
