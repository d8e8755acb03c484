"""A small run of every stage, written through the journal as the loops would write it."""

import math
import random

from forethought.core.messages import Assistant, System, ToolCall, ToolReply, ToolStatus, User
from forethought.core.problem import Problem
from forethought.core.trajectory import Episode, Finish, Group, Stop, Trajectory, Turn
from forethought.core.verdict import Verdict
from forethought.evaluation.exam import summarise_exam
from forethought.evaluation.results import ExamResult, ToolUse

FAMILIES = ("count primes", "gcd", "letter counting", "weekday")
CONDITIONS = {"temperature": 1.0, "max_tokens": 96}
PHASES = [
    {"name": "tool_only", "steps": 60, "tool_free": 0.0, "stop_at": 0.3},
    {"name": "mixed", "steps": 40, "tool_free": 0.5, "stop_at": None},
]
RECIPE = {
    "seed": 1,
    "sft": {"phases": PHASES},
    "rl": {"steps": 40, "note": "</pre><script>recipe()</script>"},
}
HOSTILE = (
    "<script>alert('owned')</script><img src=x onerror=alert(1)>\0\x1b[31m"
    "</pre></div>\u202e \"quoted' & <b>bold</b>"
)


def problem(number, **data):
    family = FAMILIES[number % len(FAMILIES)]
    return Problem(
        id=f"{family}-{number}",
        prompt=f"what is the gcd of {12 + number} and {30 + number}? reply with a number.",
        answer=f"{number % 7}",
        domain=family,
        data=data,
    )


def called(code, text, status=ToolStatus.OK):
    """A turn that calls the tool and hears `text`."""
    call = ToolCall(id="call_0", name="python", arguments=f'{{"code": {quoted(code)}}}')
    reply = ToolReply(call_id="call_0", name="python", text=text, status=status, seconds=0.012)
    message = Assistant(text="compute it with a short program", calls=(call,))
    return Turn(
        message=message, finish=Finish.END_OF_TURN, replies=(reply,), tokens=28, entropy=0.4
    )


def said(text):
    message = Assistant(text=text)
    return Turn(message=message, finish=Finish.END_OF_TURN, tokens=9, entropy=0.2)


def quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def attempt(name, problem, turns, verdict, stop=Stop.ANSWERED):
    opening = (System(text="<tools>python(code)</tools>"), User(text=problem.prompt))
    spoken = Trajectory(agent="solver", opening=opening, turns=tuple(turns), stop=stop)
    return Episode(id=name, problem=problem, trajectories=(spoken,), verdict=verdict)


def drawn(name, problem, chance, *, tool, right_with=0.9, right_without=0.25, hostile=""):
    """One attempt by a model that calls the tool with probability `tool`."""
    uses = chance.random() < tool
    right = chance.random() < (right_with if uses else right_without)
    answer = problem.answer if right else "9"
    verdict = Verdict.right(answer) if right else Verdict.wrong(answer, f"9 is not {answer}")
    if not uses:
        return attempt(name, problem, [said(f"the answer is {answer}")], verdict)
    code = f"import math\nprint(math.gcd({len(problem.prompt)}, 12))"
    turns = [called(code, f"{hostile}\n{answer}\n"), said(f"so it is {answer}")]
    if chance.random() < 0.2:
        trace = "Traceback (most recent call last):\n  File main.py, line 1\nNameError: gcd"
        turns.insert(0, called("print(gcd(8, 12))", trace, ToolStatus.MODEL_ERROR))
    return attempt(name, problem, turns, verdict)


def groups(name, *, problems, size, seed, new_wordings=False, **ability):
    chance = random.Random(seed)
    made = []
    for place, number in enumerate(problems):
        asked = problem(number, **({"new_template": number % 2 == 1} if new_wordings else {}))
        key = f"{name}/{place}/{asked.id}"
        episodes = tuple(drawn(f"{key}/{i}", asked, chance, **ability) for i in range(size))
        made.append(Group(id=key, problem=asked, episodes=episodes))
    return made


def write_exam(run, stage, key, *, problems=40, size=4, seed=0, **ability):
    sampled = groups(f"{key}/sampled", problems=range(problems), size=size, seed=seed, **ability)
    greedy = groups(f"{key}/greedy", problems=range(problems), size=1, seed=seed + 1, **ability)
    result = summarise_exam(key, sampled, greedy, CONDITIONS)
    journal = run.stage(stage)
    if stage.startswith("eval"):
        journal.begin({"problems": problems})
        journal.keep(0, [*sampled, *greedy])
        journal.log(0, {"seconds/exam": 14.0 + seed})
        journal.commit(0)
    journal.put(f"exam/{key}", result.model_dump(mode="json"))
    if stage.startswith("eval"):
        journal.finish()
    return result


def write_series(run, stage, steps, series):
    journal = run.stage(stage)
    journal.begin({"steps": steps})
    for step in range(steps):
        journal.log(step, {name: value(step / steps) for name, value in series.items()})
        journal.commit(step)
    journal.finish()


def write_whole_run(run, *, steps=40, hostile=HOSTILE):
    """All five stages of the quickstart, with an honest gain in every exam figure."""
    chance = random.Random(5)

    def noisy(value, spread):
        return lambda t: value(t) + chance.gauss(0, spread)

    write_series(
        run,
        "sft",
        steps,
        {
            "loss": noisy(lambda t: 0.2 + 3.8 * math.exp(-6 * t), 0.06),
            "pilot/sampled": noisy(lambda t: 0.35 * t, 0.02),
            "learning_rate": lambda t: 1e-3 * (1 - t),
            "seconds/learn": lambda t: 1.9,
        },
    )
    write_exam(run, "sft", "tool_only", seed=2, tool=0.95, right_with=0.45)
    write_exam(run, "eval_before", "before", seed=3, tool=0.55, right_with=0.6)
    rates = {f"p{i}": min(8, int(9 * chance.betavariate(0.7, 0.7))) / 8 for i in range(300)}
    measure = run.stage("measure")
    measure.put(
        "difficulty",
        {
            "pass_rates": rates,
            "kept": sum(0 < rate < 1 for rate in rates.values()),
            "dropped_all_right": sum(rate == 1 for rate in rates.values()),
            "dropped_all_wrong": sum(rate == 0 for rate in rates.values()),
        },
    )
    measure.finish()
    write_series(
        run,
        "rl",
        steps,
        {
            "reward/mean": noisy(lambda t: -0.3 + 1.0 * t, 0.12),
            "accuracy": noisy(lambda t: 0.4 + 0.4 * t, 0.06),
            "entropy": noisy(lambda t: 0.5 - 0.25 * t, 0.02),
            "tool/rate": noisy(lambda t: 0.55 + 0.4 * t, 0.03),
            "tool/success": noisy(lambda t: 0.7 + 0.25 * t, 0.03),
            "tokens/mean": noisy(lambda t: 60 - 12 * t, 2.0),
            "groups/informative": noisy(lambda t: 0.6 - 0.1 * t, 0.05),
            "grad_norm": noisy(lambda t: 0.9, 0.2),
            "kl/<weird>": lambda t: math.nan if t < 0.1 else t,
            "seconds/attempt": lambda t: 3.1,
            "seconds/learn": lambda t: 1.2,
        },
    )
    write_exam(run, "eval_after", "after", seed=4, tool=0.95, right_with=0.9, hostile=hostile)


def exam(name="before", *, problems=50, right=2, n=4, rate=0.5, with_tool=0.8, without=0.2, **more):
    """An exam result whose every problem has `right` of `n` attempts right."""
    chance = random.Random(0)
    spread = [min(n, max(0, right + chance.choice((-1, 0, 1)))) for _ in range(problems)]
    mean = sum(spread) / n / problems
    values = {"value": mean, "low": mean - 0.05, "high": mean + 0.05}
    tools = ToolUse(
        rate=rate, calls=rate, success=0.9, right_with_tool=with_tool, right_without_tool=without
    )
    return ExamResult.model_validate(
        {
            "name": name,
            "attempts": n,
            "settings": CONDITIONS,
            "problems": [
                {"id": f"p{i}", "domain": "gcd", "n": n, "c": c, "majority": c / n, "greedy": c > 1}
                for i, c in enumerate(spread)
            ],
            "not_measured": 0,
            "average": values,
            "coverage": values,
            "majority": values,
            "greedy": values,
            "sampled_tools": tools,
            "greedy_tools": tools,
            "entropy": 0.4,
            "tokens": 50.0,
            "unfinished": 0.02,
            **more,
        }
    )
