"""Generating many rows at once: prompts in, sampled turns out, each as soon as it is done.

A prompt shared by several rows is computed once. Rows that have ended leave the batch. The
cache lives for one call: history is read again at the next turn.

Shapes: B rows, P distinct prompts, T positions, E width, V vocabulary.
"""

# The library underneath is typed in part.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from forethought.core.trajectory import Finish
from forethought.policy.local.choice import Choice, choose, uniforms
from forethought.policy.local.decoder import Cache, Decoder
from forethought.policy.protocol import Sampled, SamplingSettings

CROWDED = 0.8
"""Rows are compacted when fewer than this share of them is alive."""
PREFILL_TOKENS = 16_384
"""Padded prompt tokens computed at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One turn to sample: the ids so far, the ids that end it, how, and its seed."""

    ids: tuple[int, ...]
    stop: frozenset[int]
    settings: SamplingSettings
    seed: int


@dataclass(slots=True, kw_only=True)
class _Row:
    number: int
    request: Request
    context: int
    ids: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])
    entropies: list[float] = field(default_factory=list[float])

    @property
    def position(self) -> int:
        """Where the next token is written."""
        return len(self.request.ids) + len(self.ids)

    @property
    def finish(self) -> Finish | None:
        """Why the row has ended; None while it goes on."""
        if self.ids and self.ids[-1] in self.request.stop:
            return Finish.END_OF_TURN
        if self.position >= self.context:
            return Finish.CONTEXT_FULL
        if len(self.ids) >= self.request.settings.max_tokens:
            return Finish.TOKEN_LIMIT
        return None


Emit = Callable[[int, Sampled], None]


@torch.inference_mode()
def generate(decoder: Decoder, requests: Sequence[Request], version: int, emit: Emit) -> None:
    """Sample every request; `emit(number, sampled)` is called once for each, when it ends.

    A row that has ended stays in the batch, writing over its own last place, until enough rows
    have ended for moving the cache to pay.
    """
    rows = [
        _Row(number=number, request=request, context=decoder.context)
        for number, request in enumerate(requests)
    ]
    alive = _part(rows, version, emit)
    if not alive:
        return
    rows = alive
    hidden_BE, cache = prefill(decoder, [row.request.ids for row in rows])
    while True:
        _extend(rows, _choose(decoder.logits(hidden_BE), rows))
        alive = _part(alive, version, emit)
        if not alive:
            return
        if len(alive) < CROWDED * len(rows):
            places = [place for place, row in enumerate(rows) if row.finish is None]
            cache.pick(torch.tensor(places, device=decoder.device))
            rows = alive
        last_B = torch.tensor([row.ids[-1] for row in rows], device=decoder.device)
        where_B = torch.tensor([row.position - 1 for row in rows], device=decoder.device)
        hidden_BE = decoder.step(last_B, where_B, cache)


def prefill(decoder: Decoder, prompts: Sequence[tuple[int, ...]]) -> tuple[Tensor, Cache]:
    """The last hidden state [B, E] and the cache of each prompt; equal prompts computed once."""
    distinct = list(dict.fromkeys(prompts))
    longest = max(map(len, distinct))
    share = max(1, PREFILL_TOKENS // longest)
    hidden, caches = zip(
        *(
            _prefill(decoder, distinct[start : start + share], longest)
            for start in range(0, len(distinct), share)
        ),
        strict=True,
    )
    layers = range(len(caches[0].keys))
    cache = Cache(
        keys=[torch.cat([part.keys[layer] for part in caches]) for layer in layers],
        values=[torch.cat([part.values[layer] for part in caches]) for layer in layers],
    )
    place = {prompt: number for number, prompt in enumerate(distinct)}
    rows_B = torch.tensor([place[prompt] for prompt in prompts], device=decoder.device)
    cache.pick(rows_B)
    return torch.cat(hidden)[rows_B], cache


def _prefill(
    decoder: Decoder, prompts: Sequence[tuple[int, ...]], longest: int
) -> tuple[Tensor, Cache]:
    ids_PT = torch.tensor(
        [[*prompt, *[0] * (longest - len(prompt))] for prompt in prompts], device=decoder.device
    )
    cache = Cache(keys=[], values=[])
    hidden_PTE = decoder.hidden(ids_PT, cache)
    ends_P = torch.tensor([len(prompt) - 1 for prompt in prompts], device=decoder.device)
    return hidden_PTE[torch.arange(len(prompts), device=decoder.device), ends_P], cache


def _choose(logits_BV: Tensor, rows: Sequence[_Row]) -> Choice:
    device = logits_BV.device
    settings = [row.request.settings for row in rows]
    drawn_B = uniforms(
        np.array([row.request.seed for row in rows], dtype=np.uint64),
        np.array([len(row.ids) for row in rows], dtype=np.uint64),
    )
    return choose(
        logits_BV,
        torch.tensor([each.temperature for each in settings], device=device),
        torch.tensor([each.top_p for each in settings], device=device),
        torch.from_numpy(drawn_B).to(device),
    )


def _extend(rows: Sequence[_Row], choice: Choice) -> None:
    ids: list[int] = choice.ids_B.tolist()
    logprobs: list[float] = choice.logprobs_B.tolist()
    entropies: list[float] = choice.entropies_B.tolist()
    for row, token, logprob, entropy in zip(rows, ids, logprobs, entropies, strict=True):
        if row.finish is not None:
            continue
        row.ids.append(token)
        row.logprobs.append(logprob)
        row.entropies.append(entropy)


def _part(rows: Sequence[_Row], version: int, emit: Emit) -> list[_Row]:
    """Hand over the rows that have ended; return those that go on."""
    going: list[_Row] = []
    for row in rows:
        finish = row.finish
        if finish is None:
            going.append(row)
            continue
        sampled = Sampled(
            ids=tuple(row.ids),
            logprobs=tuple(row.logprobs),
            entropies=tuple(row.entropies),
            finish=finish,
            weight_version=version,
        )
        emit(row.number, sampled)
    return going
