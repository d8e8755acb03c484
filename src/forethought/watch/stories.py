"""Three attempts worth reading: one that got better, one that recovered, one that failed."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from forethought.core.messages import Assistant, Message, ToolCall, ToolReply, ToolStatus
from forethought.core.trajectory import Episode, Stop, Trajectory
from forethought.core.verdict import Outcome
from forethought.journal.run import Run
from forethought.watch.attempts import Attempts
from forethought.watch.exams import percent

_SHOWN = 3000
# Characters that a page would drop or obey are shown as pictures of themselves.
_PICTURES = {
    **{code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"},
    **dict.fromkeys((*range(0x80, 0xA0), *range(0xD800, 0xE000)), 0xFFFD),
    **dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A)), 0xFFFD),
    0x7F: 0x2421,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call as shown: `code` is its only argument's text, or the raw arguments."""

    name: str
    code: str
    fault: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One message as shown; `status` and `seconds` are a tool reply's."""

    role: str
    text: str
    thinking: str = ""
    calls: tuple[Call, ...] = ()
    status: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One attempt as shown; `limits` says what ended it early, if anything did."""

    label: str
    outcome: Outcome
    answer: str | None
    why: str
    limits: str
    tokens: int
    opening: tuple[Line, ...]
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """A problem and one attempt at it, or two side by side."""

    title: str
    remark: str
    prompt: str
    answer: str
    domain: str
    sides: tuple[Side, ...]


def stories(run: Run, before: Attempts, after: Attempts) -> list[Story]:
    """At most three attempts to read; fewer where there are none of a kind.

    `after` holds the last exam's attempts, `before` those that it is compared with. Without
    any, the run's latest practice is told.
    """
    latest = after.episodes or _practice(run)
    told = [_improvement(before, after), _recovery(latest), _failure(latest)]
    return [story for story in told if story is not None]


def _practice(run: Run) -> list[Episode]:
    """The attempts of the last step that kept any, in a run without an exam."""
    for stage in reversed(run.stages()):
        for step in reversed(run.steps(stage.name)):
            episodes = [one for group in run.groups(stage.name, step) for one in group.episodes]
            if episodes:
                return episodes
    return []


def _improvement(before: Attempts, after: Attempts) -> Story | None:
    """A wrong and then a right attempt, at a problem whose pass rate rose.

    Of a problem that is solved sometimes, some pair tells of a gain whichever way it went.
    """
    was, now = _pass_rates(before), _pass_rates(after)
    wrong: dict[str, Episode] = {}
    for episode in before.episodes:
        name = episode.problem.id
        if episode.measured and not episode.right and now.get(name, 0.0) > was.get(name, 1.0):
            wrong.setdefault(name, episode)
    pairs = [(wrong[e.problem.id], e) for e in after.episodes if e.right and e.problem.id in wrong]
    if not pairs:
        return None
    # An attempt with a call that went well shows most of what there is to learn.
    old, new = min(pairs, key=lambda pair: (not _statuses(pair[1]), bool(_statuses(pair[0]))))
    earlier, later = percent(was[old.problem.id]), percent(now[new.problem.id])
    return _story(
        "Wrong before, right after",
        "The same problem, attempted before and after training; of its sampled attempts, "
        f"{earlier} were right before and {later} after.",
        [("before", old), ("after", new)],
    )


def _pass_rates(attempts: Attempts) -> dict[str, float]:
    """The share of right attempts of each problem that has a measured one, sampled ones only."""
    return {
        group.problem.id: fmean(episode.right for episode in group.measured)
        for group in attempts.sampled
        if group.measured
    }


def _recovery(episodes: Iterable[Episode]) -> Story | None:
    for episode in episodes:
        statuses = _statuses(episode)
        failed = [place for place, status in enumerate(statuses) if status is not ToolStatus.OK]
        if episode.right and failed and ToolStatus.OK in statuses[failed[0] :]:
            remark = "A call failed, the model read why, and went on to the right answer."
            return _story("Recovered from an error", remark, [("", episode)])
    return None


def _failure(episodes: Iterable[Episode]) -> Story | None:
    wrong = [episode for episode in episodes if episode.measured and not episode.right]
    if not wrong:
        return None
    chosen = min(wrong, key=lambda episode: not _statuses(episode))
    return _story("Still wrong", "What the model does not manage yet.", [("", chosen)])


def _statuses(episode: Episode) -> list[ToolStatus]:
    return [reply.status for told in episode.trajectories for reply in told.replies]


def _story(title: str, remark: str, attempts: Sequence[tuple[str, Episode]]) -> Story:
    problem = attempts[0][1].problem
    return Story(
        title=title,
        remark=remark,
        prompt=shown(problem.prompt),
        answer=shown(problem.answer),
        domain=problem.domain,
        sides=tuple(_side(label, episode) for label, episode in attempts),
    )


def _side(label: str, episode: Episode) -> Side:
    told, verdict = episode.trajectories, episode.verdict
    return Side(
        label=label,
        outcome=verdict.outcome,
        answer=None if verdict.answer is None else shown(verdict.answer),
        why=shown(verdict.why),
        limits=", ".join(_limit(one) for one in told if one.stop is not Stop.ANSWERED),
        tokens=sum(trajectory.sampled_tokens for trajectory in told),
        opening=tuple(_line(message) for one in told for message in one.opening),
        lines=tuple(_line(m) for one in told for m in one.messages[len(one.opening) :]),
    )


def _limit(trajectory: Trajectory) -> str:
    ended = trajectory.stop.replace("_", " ")
    *_, error = trajectory.error.splitlines() or [""]
    return f"{ended}: {shown(error)}" if error else ended


def _line(message: Message) -> Line:
    text = shown(message.text)
    if isinstance(message, ToolReply):
        return Line(role="tool", text=text, status=message.status, seconds=message.seconds)
    if isinstance(message, Assistant):
        calls = tuple(_call(call) for call in message.calls)
        return Line(role="assistant", text=text, thinking=shown(message.thinking), calls=calls)
    return Line(role=message.role, text=text)


def _call(call: ToolCall) -> Call:
    return Call(name=shown(call.name), code=shown(_code(call.arguments)), fault=shown(call.fault))


def _code(arguments: str) -> str:
    """The text of a call's only argument, which reads better than JSON around it."""
    try:
        values = list(json.loads(arguments).values())
    except (ValueError, AttributeError, RecursionError):
        return arguments
    return values[0] if len(values) == 1 and isinstance(values[0], str) else arguments


def shown(text: str) -> str:
    """Text that a page can show: control characters as pictures, the middle of long text cut."""
    if len(text) > _SHOWN:
        half = _SHOWN // 2
        cut = len(text) - 2 * half
        text = f"{text[:half]}\n… {cut:,} characters are not shown …\n{text[-half:]}"
    return text.translate(_PICTURES)
