"""Three attempts worth reading: one that got better, one that recovered, one that failed."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from forethought.core.messages import Assistant, Message, ToolCall, ToolReply
from forethought.core.trajectory import Episode, Stop, Trajectory
from forethought.core.verdict import Outcome
from forethought.journal.run import Run
from forethought.watch.attempts import Attempts
from forethought.watch.evidence import FAILED, read_off, recovered, statuses
from forethought.watch.exams import percent

Rewards = Mapping[str, Mapping[str, float]]
"""What attempts earned: each component by name, by the attempt's id."""

_SHOWN = 3000
_NO_REWARDS: Rewards = {}
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
    """One attempt as shown; `limits` says what ended it early, if anything did.

    `earned` tells its reward, in all and by component; it is empty of one that was not scored.
    """

    label: str
    outcome: Outcome
    answer: str | None
    why: str
    limits: str
    tokens: int
    earned: str
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The attempts to read; `no_recovery` says why none of them recovered, if none did."""

    stories: tuple[Story, ...]
    no_recovery: str


def stories(run: Run, before: Attempts, after: Attempts) -> Reading:
    """At most three attempts to read; fewer where there are none of a kind.

    `after` holds the last exam's attempts, `before` those that it is compared with. Without
    any, the run's latest practice is told.
    """
    latest, rewards = (after.episodes, _NO_REWARDS) if after.episodes else _practice(run)
    recovery = next((episode for episode in latest if recovered(episode)), None)
    told = [
        _improvement(before, after),
        _recovery(recovery, rewards),
        _failure(latest, after, rewards),
    ]
    return Reading(
        stories=tuple(story for story in told if story is not None),
        no_recovery=_no_recovery(latest) if latest and recovery is None else "",
    )


def _practice(run: Run) -> tuple[list[Episode], Rewards]:
    """The attempts of the last step that kept any, in a run without an exam; what they earned."""
    for stage in reversed(run.stages()):
        for step in reversed(run.steps(stage.name)):
            episodes = [one for group in run.groups(stage.name, step) for one in group.episodes]
            if episodes:
                return episodes, run.rewards(stage.name, step)
    return [], _NO_REWARDS


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
    # An answer that a program printed shows most of what there is to learn; luck shows nothing.
    old, new = min(pairs, key=lambda pair: (not read_off(pair[1]), bool(statuses(pair[0]))))
    earlier, later = percent(was[old.problem.id]), percent(now[new.problem.id])
    source = (
        "The answer afterwards is what a program of its own printed."
        if read_off(new)
        else "No program printed the answer given afterwards: it may be luck."
    )
    return _story(
        "Wrong before, right after",
        "The same problem, attempted before and after training; of its sampled attempts, "
        f"{earlier} were right before and {later} after. {source}",
        [("before", old), ("after", new)],
    )


def _pass_rates(attempts: Attempts) -> dict[str, float]:
    """The share of right attempts of each problem that has a measured one, sampled ones only."""
    return {
        group.problem.id: fmean(episode.right for episode in group.measured)
        for group in attempts.sampled
        if group.measured
    }


def _recovery(episode: Episode | None, rewards: Rewards) -> Story | None:
    if episode is None:
        return None
    remark = (
        "A call failed; a changed one went well, and what it printed is the right answer given."
    )
    return _story("Recovered from an error", remark, [("", episode)], rewards)


def _no_recovery(episodes: Sequence[Episode]) -> str:
    """Why none of the attempts is told as a recovery."""
    failed = sum(not FAILED.isdisjoint(statuses(episode)) for episode in episodes)
    text = f"Recovered from an error: no example. Of {len(episodes)} attempts, {failed} had a call"
    if not failed:
        return f"{text} that failed."
    return (
        f"{text} that failed; in none of them did a changed call then print the right answer that "
        "was given."
    )


def _failure(episodes: Iterable[Episode], after: Attempts, rewards: Rewards) -> Story | None:
    """A wrong attempt, at the problem that is solved least; best one that called."""
    wrong = [episode for episode in episodes if episode.measured and not episode.right]
    if not wrong:
        return None
    rates = _pass_rates(after)
    chosen = min(wrong, key=lambda one: (rates.get(one.problem.id, 0.0), not statuses(one)))
    rate = rates.get(chosen.problem.id)
    remark = (
        "A wrong attempt."
        if rate is None
        else f"A wrong attempt; of the sampled attempts at its problem, {percent(rate)} were right."
    )
    return _story("Still wrong", remark, [("", chosen)], rewards)


def _story(
    title: str,
    remark: str,
    attempts: Sequence[tuple[str, Episode]],
    rewards: Rewards = _NO_REWARDS,
) -> Story:
    problem = attempts[0][1].problem
    return Story(
        title=title,
        remark=remark,
        prompt=shown(problem.prompt),
        answer=shown(problem.answer),
        domain=problem.domain,
        sides=tuple(_side(label, episode, rewards.get(episode.id)) for label, episode in attempts),
    )


def _side(label: str, episode: Episode, components: Mapping[str, float] | None) -> Side:
    told, verdict = episode.trajectories, episode.verdict
    return Side(
        label=label,
        outcome=verdict.outcome,
        answer=None if verdict.answer is None else shown(verdict.answer),
        why=shown(verdict.why),
        limits=", ".join(_limit(one) for one in told if one.stop is not Stop.ANSWERED),
        tokens=sum(trajectory.sampled_tokens for trajectory in told),
        earned="" if components is None else told_reward(components),
        opening=tuple(_line(message) for one in told for message in one.opening),
        lines=tuple(_line(m) for one in told for m in one.messages[len(one.opening) :]),
    )


def told_reward(components: Mapping[str, float]) -> str:
    """A reward in words, in all and by component.

    >>> told_reward({"outcome": 1.0, "tool_bonus": 0.25}), told_reward({"judge": math.nan})
    ('1.25: outcome 1, tool bonus 0.25', 'not known: judge not known')
    """
    parts = (f"{name.replace('_', ' ')} {_amount(one)}" for name, one in components.items())
    return f"{_amount(sum(components.values()))}: {', '.join(parts)}"


def _amount(value: float) -> str:
    return "not known" if math.isnan(value) else format(value, ".3g")


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
