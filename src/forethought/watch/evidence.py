"""What an attempt's calls have to do with its answer: a right answer may be luck."""

from collections.abc import Iterator

from forethought.core.messages import ToolCall, ToolReply, ToolStatus
from forethought.core.trajectory import Episode
from forethought.tasks.answers import same_value

FAILED = {ToolStatus.MODEL_ERROR, ToolStatus.TIMEOUT, ToolStatus.MEMORY}
"""How a call fails by the model's own doing."""


def statuses(episode: Episode) -> list[ToolStatus]:
    """How each call of an attempt went, in order."""
    return [reply.status for told in episode.trajectories for reply in told.replies]


def read_off(episode: Episode) -> bool:
    """Whether the answer is what some program of the attempt printed last."""
    return any(_gives_the_answer(episode, reply) for told in _calls(episode) for _, reply in told)


def recovered(episode: Episode) -> bool:
    """Whether after a failed call a changed one went well, and printed the right answer given."""
    return episode.right and any(_recovered(episode, told) for told in _calls(episode))


def prints(output: str, answer: str) -> bool:
    """Whether the last line of an output is the answer, alone or at its end.

    >>> prints("Traceback ...", "5"), prints("1\\n5.0\\n", "5"), prints("x = 5", "5")
    (False, True, True)
    """
    *_, line = output.strip().splitlines() or [""]
    *_, word = line.split() or [""]
    return bool(line) and (same_value(line, answer) or same_value(word, answer))


def _calls(episode: Episode) -> Iterator[list[tuple[ToolCall, ToolReply]]]:
    """Each agent's calls with their replies, in order."""
    for told in episode.trajectories:
        replies = {(place, r.call_id): r for place, t in enumerate(told.turns) for r in t.replies}
        yield [
            (call, replies[place, call.id])
            for place, turn in enumerate(told.turns)
            for call in turn.message.calls
            if (place, call.id) in replies
        ]


def _recovered(episode: Episode, calls: list[tuple[ToolCall, ToolReply]]) -> bool:
    failed: set[str] = set()
    for call, reply in calls:
        if reply.status in FAILED:
            failed.add(call.arguments.strip())
        elif failed and call.arguments.strip() not in failed and _gives_the_answer(episode, reply):
            return True
    return False


def _gives_the_answer(episode: Episode, reply: ToolReply) -> bool:
    answer = episode.verdict.answer
    return reply.status is ToolStatus.OK and answer is not None and prints(reply.text, answer)
