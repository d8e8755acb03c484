"""Hypothesis strategies for what a journal keeps, and one group to write by hand."""

import hypothesis.strategies as st

from forethought.core.messages import (
    Assistant,
    System,
    ToolCall,
    ToolReply,
    ToolSpec,
    ToolStatus,
    User,
)
from forethought.core.problem import Problem
from forethought.core.trajectory import Episode, Finish, Group, Stop, Tokens, Trajectory, Turn
from forethought.core.verdict import Outcome, Verdict

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from(
    ["\0", "a\u2028b\u2029c", "\ufeff\u202e\U0001f9ea", '{"x": [1, "]"]}', "\r\n\x85\x1b[0m"]
)
NUMBER = st.floats(allow_nan=False)
COUNT = st.integers(0, 2**40)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | NUMBER | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
PROBLEMS = st.builds(
    Problem,
    id=TEXT,
    prompt=TEXT,
    answer=TEXT,
    domain=TEXT,
    tools=st.lists(TEXT, max_size=2).map(tuple),
    data=st.dictionaries(TEXT, JSON, max_size=3),
)
CALLS = st.builds(ToolCall, id=TEXT, name=TEXT, arguments=TEXT, fault=TEXT)
REPLIES = st.builds(
    ToolReply,
    call_id=TEXT,
    name=TEXT,
    text=TEXT,
    status=st.sampled_from(ToolStatus),
    seconds=NUMBER,
    role=st.just("tool"),
)
ASSISTANTS = st.builds(
    Assistant,
    text=TEXT,
    thinking=TEXT,
    calls=st.lists(CALLS, max_size=2).map(tuple),
    role=st.just("assistant"),
)
WORDS = st.one_of(
    st.builds(System, text=TEXT, role=st.just("system")),
    st.builds(User, text=TEXT, role=st.just("user")),
)
MESSAGES = st.one_of(WORDS, ASSISTANTS, REPLIES)
TOOLS = st.builds(
    ToolSpec, name=TEXT, description=TEXT, parameters=st.dictionaries(TEXT, JSON, max_size=2)
)
TURNS = st.builds(
    Turn,
    message=ASSISTANTS,
    finish=st.sampled_from(Finish),
    replies=st.lists(REPLIES, max_size=2).map(tuple),
    tokens=COUNT,
    entropy=NUMBER,
    weight_version=COUNT,
    temperature=st.none() | NUMBER,
    seconds=NUMBER,
    heard=st.lists(WORDS, max_size=2).map(tuple),
)
TOKENS = st.lists(st.tuples(COUNT, st.booleans(), NUMBER), max_size=6).map(
    lambda rows: Tokens(
        ids=tuple(row[0] for row in rows),
        sampled=tuple(row[1] for row in rows),
        logprobs=tuple(row[2] for row in rows),
    )
)
TRAJECTORIES = st.builds(
    Trajectory,
    agent=TEXT,
    opening=st.lists(MESSAGES, max_size=2).map(tuple),
    turns=st.lists(TURNS, max_size=2).map(tuple),
    stop=st.sampled_from(Stop),
    segments=st.lists(TOKENS, max_size=2).map(tuple),
    error=TEXT,
    tools=st.none() | st.lists(TOOLS, max_size=2).map(tuple),
)
VERDICTS = st.builds(
    Verdict,
    outcome=st.sampled_from(Outcome),
    score=st.floats(0, 1),
    answer=st.none() | TEXT,
    why=TEXT,
)


@st.composite
def groups(draw):
    """A group whose attempts are at its own problem, at an equal one or at another."""
    problem = draw(PROBLEMS)
    episode = st.builds(
        Episode,
        id=TEXT,
        problem=st.just(problem) | PROBLEMS,
        trajectories=st.lists(TRAJECTORIES, max_size=2).map(tuple),
        verdict=VERDICTS,
    )
    return Group(
        id=draw(TEXT), problem=problem, episodes=tuple(draw(st.lists(episode, max_size=3)))
    )


def small_group(name, size=2):
    """A group of `size` short attempts of which the first is right."""
    problem = Problem(id=f"problem of {name}", prompt="6 * 7?", answer="42", domain="product")
    call = ToolCall(id="call_0", name="python", arguments='{"code": "print(6 * 7)"}')
    reply = ToolReply(call_id="call_0", name="python", text="42\u2028", seconds=0.01)
    turns = (
        Turn(
            message=Assistant(text="compute", thinking="hm", calls=(call,)),
            finish=Finish.END_OF_TURN,
            replies=(reply,),
            tokens=3,
        ),
        Turn(message=Assistant(text="42"), finish=Finish.END_OF_TURN, tokens=2),
    )
    spoken = Trajectory(
        agent="solver",
        opening=(System(text="Be brief."), User(text=problem.prompt)),
        turns=turns,
        stop=Stop.ANSWERED,
        segments=(Tokens(ids=(1, 2), sampled=(False, True), logprobs=(0.0, -0.1)),),
    )
    episodes = tuple(
        Episode(
            id=f"{name}/{number}",
            problem=problem,
            trajectories=(spoken,),
            verdict=Verdict.wrong("41") if number else Verdict.right("42"),
        )
        for number in range(size)
    )
    return Group(id=name, problem=problem, episodes=episodes)
