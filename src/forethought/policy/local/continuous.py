"""Continuous batching: rows join when their turn begins and leave at the token that ends it.

A row is read first (what its conversation has not read yet), then speaks in the batch. What a
conversation has read is kept for its next turn; what several rows begin with is read once, and
kept once where that pays. A conversation that waits for a tool holds memory and costs no time.

A batch lives for one version of the weights: another version begins with nothing read.

Shapes: B rows that speak.
"""

# The library underneath is typed in part.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from forethought.core.errors import PolicyError
from forethought.policy.local.choice import Choice, choose, uniforms
from forethought.policy.local.inference import Inference, Piece
from forethought.policy.local.openings import BORROWED_FROM, Openings, Reading
from forethought.policy.local.prefixes import Prefix, alike
from forethought.policy.local.slots import Slots
from forethought.policy.local.turns import Request, Row
from forethought.policy.protocol import Sampled

READ_AT_ONCE = 512
"""Tokens read between two steps of the rows that speak."""
NOT_FINITE = (
    "the model's numbers are not finite: its weights are ruined, or too large for "
    'compute.precision = "float16"; set that to "float32"'
)
OPENINGS_KEPT = 4096
"""Tokens of finished openings that are kept for rows which begin alike, the latest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Roster:
    """What a step needs of the rows that speak, as tensors: made when they change."""

    temperatures_B: Tensor
    top_ps_B: Tensor
    seeds_B: NDArray[np.uint64]


class ContinuousBatch:
    """The turns that one replica samples at the moment."""

    def __init__(
        self,
        inference: Inference,
        version: int,
        *,
        read_at_once: int = READ_AT_ONCE,
        openings_kept: int = OPENINGS_KEPT,
    ) -> None:
        """No rows; `version` names the weights that will speak. Limits are in tokens."""
        self._inference = inference
        self._version = version
        self._read_at_once = read_at_once
        nothing_Y2KLD = inference.nothing_read()
        self._slots = Slots(
            nothing_Y2KLD,
            apart=inference.device.type == "cpu",
            pays_to_share=inference.pays_to_share,
        )
        self._speaking: list[Row] = []
        self._roster: _Roster | None = None
        self._readings: list[Reading] = []
        self._openings = Openings(nothing_Y2KLD, inference.pays_to_share, openings_kept)
        self._kept: dict[int, Prefix] = {}
        self._ended: list[tuple[int, Sampled]] = []

    @property
    def busy(self) -> bool:
        """Whether `step` has anything to do."""
        return bool(self._speaking or self._readings or self._ended)

    @property
    def rows(self) -> int:
        """How many turns have begun and not ended."""
        return len(self._speaking) + sum(len(reading.rows) for reading in self._readings)

    def admit(self, seat: int, request: Request) -> None:
        """Begin a turn of the conversation in `seat`."""
        row = Row(seat=seat, request=request, context=self._inference.context)
        if self._end(row):
            return
        # The last id is read as the first step of speaking: it is what the next one is chosen by.
        context = request.ids[:-1]
        prefix = self._kept.pop(seat, None)
        if prefix is None:
            reading = self._openings.open(context)
        else:
            prefix.keep_common(context)
            reading = Reading(prefix=prefix, ids=context)
        reading.rows.append(row)
        if reading not in self._readings:
            self._readings.append(reading)

    def forget(self, seat: int) -> None:
        """The conversation in `seat` is over, whatever it was doing."""
        self._kept.pop(seat, None)
        for reading in self._readings:
            reading.rows = [row for row in reading.rows if row.seat != seat]
        # What is left of an opening waits for the next one that begins so.
        self._readings = [reading for reading in self._readings if reading.rows]
        for slot, row in enumerate(self._speaking):
            if row.seat == seat:
                self._leave([slot])
                break

    def step(self) -> list[tuple[int, Sampled]]:
        """Read a portion or, once all is read, choose a token for each row; the turns that ended.

        Rows that speak wait for those that are read: a step takes little longer with them.
        """
        if self._readings:
            self._read()
        if self._speaking and not self._readings:
            self._speak()
        ended, self._ended = self._ended, []
        return ended

    def _read(self) -> None:
        """Read a portion, then seat the rows whose reading is complete."""
        left = self._read_at_once
        pieces: list[Piece] = []
        begun: list[tuple[int, ...]] = []
        for reading in (each for each in self._readings if each.missing):
            if not left:
                break
            if not reading.prefix.length:
                lender, common = self._openings.lender(reading.ids)
                if any(alike(ids, reading.ids) >= common + BORROWED_FROM for ids in begun):
                    continue  # after this portion it can borrow more
                self._openings.begin(reading, lender, common)
                begun.append(reading.ids)
                if not reading.missing:
                    continue
            reading.prefix.reserve(len(reading.ids))
            start = reading.prefix.length
            ids = reading.ids[start : start + left]
            pieces.append(Piece(prefix=reading.prefix, ids=ids))
            left -= len(ids)
        if pieces:
            self._inference.read(pieces)
        self._seat([reading for reading in self._readings if not reading.missing])
        self._readings = [reading for reading in self._readings if reading.missing]

    def _seat(self, complete: Iterable[Reading]) -> None:
        """Give slots to the rows that wait for these readings."""
        newcomers: list[tuple[Prefix, Prefix | None]] = []
        for reading in complete:
            newcomers += [(reading.prefix, self._root(reading))] * len(reading.rows)
            self._speaking += reading.rows
            reading.rows.clear()
        if newcomers:
            self._slots.join(newcomers)
            self._roster = None
        self._openings.forget_old()

    def _root(self, reading: Reading) -> Prefix | None:
        """What the rows that wait for a reading will stand on: all of it, where that pays."""
        prefix = reading.prefix
        if not reading.is_root:
            if not self._inference.pays_to_share([(prefix.length, len(reading.rows))]):
                return prefix.root
            prefix.settle()
            reading.is_root = True
        return prefix

    def _speak(self) -> None:
        rows = self._speaking
        self._slots.make_room()
        newest_B = torch.tensor([row.newest for row in rows], device=self._inference.device)
        self._extend(self._choose(self._inference.speak(newest_B, self._slots)))
        over = [slot for slot, row in enumerate(rows) if row.finish is not None]
        for row, prefix in self._leave(over):
            self._kept[row.seat] = prefix
            self._end(row)

    def _choose(self, logits_BV: Tensor) -> Choice:
        roster = self._roster or self._call_roll(logits_BV.device)
        places_B = np.array([len(row.ids) for row in self._speaking], dtype=np.uint64)
        drawn_B = torch.from_numpy(uniforms(roster.seeds_B, places_B))
        return choose(
            logits_BV, roster.temperatures_B, roster.top_ps_B, drawn_B.to(logits_BV.device)
        )

    def _call_roll(self, device: torch.device) -> _Roster:
        settings = [row.request.settings for row in self._speaking]
        self._roster = _Roster(
            temperatures_B=torch.tensor([each.temperature for each in settings], device=device),
            top_ps_B=torch.tensor([each.top_p for each in settings], device=device),
            seeds_B=np.array([row.request.seed for row in self._speaking], dtype=np.uint64),
        )
        return self._roster

    def _extend(self, choice: Choice) -> None:
        ids: list[int] = choice.ids_B.tolist()
        logprobs: list[float] = choice.logprobs_B.tolist()
        if not all(map(math.isfinite, logprobs)):
            raise PolicyError(NOT_FINITE)
        entropies: list[float] = choice.entropies_B.tolist()
        for row, token, logprob, entropy in zip(
            self._speaking, ids, logprobs, entropies, strict=True
        ):
            row.ids.append(token)
            row.logprobs.append(logprob)
            row.entropies.append(entropy)

    def _leave(self, slots: Sequence[int]) -> list[tuple[Row, Prefix]]:
        """Free these slots: the rows that were there, and what they have read."""
        if not slots:
            return []
        rows = self._speaking
        read = {slot: (*rows[slot].request.ids, *rows[slot].ids)[:-1] for slot in slots}
        prefixes = self._slots.leave(read)
        self._speaking = [row for slot, row in enumerate(rows) if slot not in read]
        self._roster = None
        return [(rows[slot], prefix) for slot, prefix in zip(slots, prefixes, strict=True)]

    def _end(self, row: Row) -> bool:
        """Hand the row's turn over if it has ended."""
        finish = row.finish
        if finish is None:
            return False
        self._ended.append((row.seat, row.sampled(finish, self._version)))
        return True
