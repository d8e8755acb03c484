"""What the turns of an attempt show of its way to an answer, before any weight.

One function a figure, with one number a turn, trajectory after trajectory. Figures of search agents
are those of 2505.11821, section 5.2, and of its study of tool calls.
"""

import re
from itertools import accumulate, chain

from forethought.core.trajectory import Episode
from forethought.learning.rewards.calls import executed, fingerprint, successes, turns_of


def execution(episode: Episode) -> tuple[float, ...]:
    """Each turn's calls that went well, over all calls of the attempt that were run.

    The sum is the attempt's rate of success, so that calling more often does not add to it.
    """
    ran = sum(len(executed(turn)) for turn in turns_of(episode))
    return tuple(len(successes(turn)) / ran if ran else 0.0 for turn in turns_of(episode))


def retrieval(episode: Episode) -> tuple[float, ...]:
    """1 for each turn in which a new call that went well brought the answer, otherwise 0.

    The answer must stand in the reply as a word of its own. It counts for nothing once a call has
    held it: a program that prints what it was given has found nothing.
    """
    known = _word(episode.problem.answer)
    held, seen, hits = False, set[str](), list[float]()
    for turn in turns_of(episode):
        held |= any(known.search(call.arguments) for call in turn.message.calls)
        fresh = [reply for call, reply in successes(turn) if fingerprint(call) not in seen]
        seen |= {fingerprint(call) for call, _ in successes(turn)}
        hits.append(float(not held and any(known.search(reply.text) for reply in fresh)))
    return tuple(hits)


def well_formed(episode: Episode) -> tuple[float, ...]:
    """1 for each turn with calls of which all could be parsed."""
    return tuple(
        float(bool(turn.message.calls) and not any(call.fault for call in turn.message.calls))
        for turn in turns_of(episode)
    )


def malformed(episode: Episode) -> tuple[float, ...]:
    """1 for each turn with a call that could not be parsed."""
    return tuple(
        float(any(call.fault for call in turn.message.calls)) for turn in turns_of(episode)
    )


def calls_so_far(episode: Episode) -> tuple[float, ...]:
    """For each turn with calls, how many its agent has made up to then, its own included."""
    made = (
        zip(
            trajectory.turns,
            accumulate(len(turn.message.calls) for turn in trajectory.turns),
            strict=True,
        )
        for trajectory in episode.trajectories
    )
    return tuple(
        float(count if turn.message.calls else 0) for turn, count in chain.from_iterable(made)
    )


def _word(answer: str) -> re.Pattern[str]:
    """The answer between what is no part of a word or number; any white space for its own."""
    text = r"\s+".join(map(re.escape, answer.split()))
    return re.compile(rf"(?<![\w.]){text}(?!\w|\.\d)", re.IGNORECASE)
