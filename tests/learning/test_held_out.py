"""What is held out is measured as the library's model would measure it, and never trained on."""

import asyncio
from dataclasses import replace
from functools import partial

import pytest
import torch

from forethought.core.messages import Assistant, User
from forethought.core.trajectory import Tokens
from forethought.learning.batch import pad
from forethought.learning.held_out import (
    HeldOut,
    best_first,
    is_among_best,
    learns_by_heart,
)
from forethought.learning.logprobs import Reading, token_logprobs
from forethought.learning.settings import ComputeSettings
from forethought.learning.token_kinds import KINDS, NOT_TRAINED, token_kinds
from forethought.policy.formats import chat_format, trained_stream
from forethought.policy.local.decoder import Decoder
from forethought.policy.local.linear import Arithmetic
from forethought.policy.local.packed import Effort
from forethought.policy.tokenizing import decode
from learning.rows import crew_of, random_rows, row
from policy.tokenizers_on_hand import FRAME, FRAME_END, real_tokenizer, small_tokenizer
from scripted import PYTHON, call
from tiny import VOCABULARY, local_model, same_weights, weights

MODEL = local_model(spread=0.4)
ROWS = random_rows(9, seed=4, longest=14)


def measured(rows, workers=0, **compute):
    crew = crew_of(MODEL, workers)
    try:
        held_out = HeldOut.of(rows, MODEL.tokenizer, crew, ComputeSettings(**compute))
        return asyncio.run(held_out.measure())
    finally:
        crew.close()


def by_the_library(rows):
    """Mean negative log-likelihood and share of likeliest tokens, row by row, with logits."""
    nll, right = [], []
    for each in rows:
        with torch.no_grad():
            logits_TV = MODEL.network(torch.tensor([each.ids])).logits[0].double()
        for place in range(1, len(each)):
            if each.sampled[place]:
                nll.append(-logits_TV[place - 1].log_softmax(-1)[each.ids[place]].item())
                right.append(logits_TV[place - 1].argmax().item() == each.ids[place])
    return sum(nll) / len(nll), sum(right) / len(right)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("portions", [{}, {"micro_tokens": 20, "logit_tokens": 3}])
def test_loss_and_accuracy_are_those_of_the_librarys_model(workers, portions):
    likeliest = [*ROWS]
    with torch.no_grad():  # one row says what the model would say, so that some are right
        best = MODEL.network(torch.tensor([ROWS[0].ids])).logits[0].argmax(-1).tolist()
    likeliest[0] = replace(ROWS[0], ids=(*ROWS[0].ids[:-1], best[-2]))
    loss, accuracy = by_the_library(likeliest)
    report = measured(likeliest, workers, **portions)
    assert accuracy > 0
    assert report["held_out/loss"] == pytest.approx(loss, rel=1e-5)
    assert report["held_out/accuracy"] == pytest.approx(accuracy)


def test_measuring_changes_neither_weights_nor_gradients():
    before = weights(MODEL.network)
    measured(ROWS)
    assert same_weights(weights(MODEL.network), before)
    assert all(parameter.grad is None for parameter in MODEL.network.parameters())


def test_a_row_says_nothing_of_the_rows_it_is_packed_with():
    prompt = tuple(range(1, 9))
    mine = Tokens(ids=(*prompt, 3, 4), sampled=(False,) * 8 + (True,) * 2, logprobs=(0.0,) * 10)
    theirs = [replace(mine, ids=(*prompt, 7, id)) for id in (0, VOCABULARY - 1)]
    effort = Effort(arithmetic=Arithmetic())
    found = []
    for other in theirs:
        reading = Reading.of(pad([mine, other, mine], [0.0] * 3))
        with torch.no_grad():
            found.append(token_logprobs(Decoder(MODEL.network), reading, 1.0, 1024, effort))
    assert torch.equal(found[0][[0, 2]], found[1][[0, 2]])
    assert not torch.equal(found[0][1], found[1][1])
    alone = Reading.of(pad([mine], [0.0]))
    with torch.no_grad():
        by_itself = token_logprobs(Decoder(MODEL.network), alone, 1.0, 1024, effort)
    torch.testing.assert_close(found[0][:1], by_itself)


THINKS = Assistant(text="So: ", thinking="six sevens é", calls=(call('{"code": "6*7"}'),))
ANSWERS = Assistant(text="42 ✓")


def spelt(name, tokenizer, *messages):
    """What the trained tokens of each kind spell."""
    chat = chat_format(name, tokenizer)
    tokens = trained_stream(chat, messages, () if name == "plain" else [PYTHON])
    kinds = token_kinds(tokens, tokenizer)
    assert [kind == NOT_TRAINED for kind in kinds] == [not own for own in tokens.sampled]
    return {
        kind: decode(
            tokenizer, [id for id, each in zip(tokens.ids, kinds, strict=True) if each == n]
        )
        for n, kind in enumerate(KINDS)
    }


TOKENIZERS = {
    "small": small_tokenizer,
    "with a frame": partial(small_tokenizer, FRAME, FRAME_END),
    "qwen2_5": partial(real_tokenizer, "qwen2_5"),
    "smollm2": partial(real_tokenizer, "smollm2"),
}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_tokens_are_told_apart_by_what_they_are_part_of(name):
    tokenizer = TOKENIZERS[name]()
    found = spelt("hermes", tokenizer, User(text="<think> 6 * 7?"), THINKS, User(text="?"), ANSWERS)
    call = '<tool_call>\n{"name": "python", "arguments": {"code": "6*7"}}\n</tool_call>'
    assert found["call"] == call
    assert found["thinking"].startswith("<think>\nsix sevens é\n</think>")
    assert found["answer"].replace("\n", "") == "So: <|im_end|>42 ✓<|im_end|>"


def test_a_turn_whose_prompt_opens_its_thinking_begins_with_thinking():
    found = spelt("hermes-thinking", small_tokenizer(), User(text="6 * 7?"), THINKS)
    assert found["thinking"].startswith("six sevens é\n</think>")
    assert "So: " in found["answer"]
    assert "<tool_call>" in found["call"]


def test_kinds_that_are_not_there_are_not_reported():
    report = measured([row(".sss")])
    assert {name for name in report if name.count("/") == 2} == {
        "held_out/loss/answer",
        "held_out/accuracy/answer",
    }
    assert report["held_out/loss/answer"] == report["held_out/loss"]


def test_the_best_are_the_least_losses_and_the_earliest_of_equals():
    losses = [(9, 2.0), (19, 1.0), (29, float("nan")), (39, 1.0), (49, 3.0)]
    assert best_first(losses) == [19, 39, 9, 49]
    assert best_first([]) == []


@pytest.mark.parametrize(
    ("loss", "count", "expected"),
    [(1.0, 0, False), (0.5, 1, True), (1.0, 1, False), (1.5, 2, True), (float("nan"), 9, False)],
)
def test_a_loss_is_among_the_best_when_few_are_as_low(loss, count, expected):
    assert is_among_best(loss, [(9, 1.0), (19, 2.0)], count) is expected


RISING = [(1, 1.0), (3, 1.1), (5, 1.2), (7, 1.3)]
FALLING = [(step, 1.0 - 0.1 * step) for step in range(12)]


@pytest.mark.parametrize(
    ("held_out", "train", "expected"),
    [
        (RISING, FALLING, True),
        (RISING[:3], FALLING, False),
        ([(0, 0.9), *RISING], FALLING, False),  # said one measurement ago
        ([(0, 1.5), *RISING], FALLING, True),
        (RISING, [(step, 1.0 + step) for step, _ in FALLING], False),
        ([*RISING[:3], (7, 1.2)], FALLING, False),
        ([], FALLING, False),
    ],
)
def test_learning_by_heart_is_three_rises_in_a_row_while_training_loss_falls(
    held_out, train, expected
):
    assert learns_by_heart(held_out, train) is expected
