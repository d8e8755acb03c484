"""Recorded trajectories become rows; every row is used once before any is used again."""

from dataclasses import replace

import pytest

from forethought.core.errors import RecipeError
from forethought.core.messages import Assistant, ToolReply, ToolSpec, ToolStatus, User
from forethought.core.trajectory import Finish, Stop, Trajectory, Turn
from forethought.learning.batch import pad
from forethought.learning.demonstrations import Demonstrations, render, set_apart
from forethought.policy.formats import chat_format, stripped_streams, trained_stream
from learning.rows import row
from scripted import PYTHON, call
from tiny import tokenizer

WORDS = tokenizer()
CHAT = chat_format("compact", WORDS)


def turn(text, *statuses):
    calls = tuple(call(f'{{"code": "{text}"}}', id=f"call_{n}") for n in range(len(statuses)))
    replies = tuple(
        ToolReply(call_id=f"call_{n}", name="python", text=f"{status}", status=status)
        for n, status in enumerate(statuses)
    )
    message = Assistant(text="" if statuses else text, calls=calls)
    return Turn(message=message, finish=Finish.END_OF_TURN, replies=replies)


def recorded(*turns, prompt="6 * 7?"):
    return Trajectory(
        agent="teacher", opening=(User(text=prompt),), turns=turns, stop=Stop.ANSWERED
    )


OK, BAD = ToolStatus.OK, ToolStatus.MODEL_ERROR
PLAIN = recorded(turn("42"))
CALLED = recorded(turn("print(42)", OK), turn("42"))
RECOVERED = recorded(turn("oops", BAD), turn("print(42)", OK), turn("42"))


def rendered(*trajectories, longest=1000, train_failed_calls=False):
    return render(
        trajectories, CHAT, [PYTHON], longest=longest, train_failed_calls=train_failed_calls
    )


def trained_text(tokens):
    ids = [id for id, trained in zip(tokens.ids, tokens.sampled, strict=True) if trained]
    return WORDS.decode(ids, skip_special_tokens=False)


def test_only_the_authors_words_are_trained():
    data = rendered(CALLED)
    frame = '<tool_call>{"name": "python", "arguments": {"code": "print(42)"}}</tool_call>'
    assert trained_text(data.with_calls[0]) == f"{frame}<|im_end|>42<|im_end|>"


def test_trajectories_are_told_apart_by_whether_they_call():
    unanswered = replace(CALLED, turns=(replace(CALLED.turns[0], replies=()),))
    data = rendered(PLAIN, CALLED, unanswered)
    assert (len(data.tool_free), len(data.with_calls), data.too_long) == (1, 2, 0)
    assert trained_text(data.with_calls[1]).endswith('print(42)"}}</tool_call><|im_end|>')


def test_what_others_say_between_turns_is_context():
    asked_on = replace(turn("42"), heard=(User(text="and 7 * 7?"),))
    (row,) = rendered(recorded(asked_on, turn("49"))).tool_free
    assert trained_text(row) == "42<|im_end|>49<|im_end|>"
    said = WORDS.decode(row.ids, skip_special_tokens=False)
    assert "42<|im_end|>\n<|im_start|>user\nand 7 * 7?<|im_end|>\n<|im_start|>assistant\n49" in said


def test_the_tools_that_a_trajectory_brings_are_announced_in_place_of_the_runs():
    search = ToolSpec(name="search", description="Find.", parameters={"type": "object"})
    own, none, runs = (replace(PLAIN, tools=tools) for tools in ((search,), (), None))
    announced = [
        WORDS.decode(row.ids, skip_special_tokens=False)
        for row in rendered(own, none, runs).tool_free
    ]
    assert ["search()" in text for text in announced] == [True, False, False]
    assert ["<tools>" in text for text in announced] == [True, False, True]
    assert ["python(code)" in text for text in announced] == [False, False, True]


def test_a_turn_whose_call_failed_is_context_unless_it_is_asked_for():
    (context,) = rendered(RECOVERED).with_calls
    (trained,) = rendered(RECOVERED, train_failed_calls=True).with_calls
    assert context.ids == trained.ids
    assert "oops" in WORDS.decode(context.ids)
    assert "oops" not in trained_text(context)
    assert "oops" in trained_text(trained)


def with_thinking(*thoughts):
    """What was recorded of a call and its answer, each turn with its thinking."""
    return replace(
        CALLED,
        turns=tuple(
            replace(turn, message=replace(turn.message, thinking=thought))
            for turn, thought in zip(CALLED.turns, thoughts, strict=True)
        ),
    )


def test_earlier_thinking_is_stripped_from_demonstrations_as_it_will_be_when_sampled():
    thought = with_thinking("t1", "")
    messages = thought.messages
    how = {"longest": 1000, "train_failed_calls": False}
    stripped = render([thought], CHAT, [PYTHON], thinking="strip", **how).with_calls
    assert stripped == stripped_streams(CHAT, messages, [PYTHON], [True, True])
    assert len(stripped) == 2
    (kept,) = render([thought], CHAT, [PYTHON], thinking="keep", **how).with_calls
    assert kept == trained_stream(CHAT, messages, [PYTHON], [True, True])
    assert "t1" in WORDS.decode(kept.ids)
    assert ["t1" in WORDS.decode(row.ids) for row in stripped] == [True, False]


def test_trajectories_that_are_too_long_are_counted_and_left_out():
    length = len(rendered(CALLED).with_calls[0])
    data = rendered(PLAIN, CALLED, longest=length - 1)
    assert (len(data.tool_free), data.with_calls, data.too_long) == (1, (), 1)
    assert rendered(CALLED, longest=length).too_long == 0


def test_a_trajectory_with_nothing_to_imitate_is_named():
    failed = recorded(turn("oops", BAD), prompt="What went wrong?")
    with pytest.raises(RecipeError, match=r"trajectory 1 \('What went wrong\?'\).*failed_calls"):
        rendered(PLAIN, failed)


@pytest.mark.parametrize(("trajectories", "long"), [((), 0), ((PLAIN, CALLED), 2)])
def test_nothing_left_to_train_on_is_refused_with_the_reason(trajectories, long):
    with pytest.raises(RecipeError, match=rf"no trajectory is left.*\({long} are longer.*= 3 "):
        rendered(*trajectories, longest=3)


def numbered(count, first):
    return tuple(replace(row(".s"), ids=(0, first + n)) for n in range(count))


DATA = Demonstrations(with_calls=numbered(5, 100), tool_free=numbered(3, 200), too_long=0)


def ids(rows):
    return [each.ids[1] for each in rows]


def test_a_step_holds_the_share_of_each_kind():
    drawn = ids(DATA.draw(0, 8, 0.25, seed=0))
    assert [each >= 200 for each in drawn] == [True] * 2 + [False] * 6


@pytest.mark.parametrize(
    ("batch", "tool_free"), [(32, 0.015), (1, 0.5), (3, 0.5), (7, 1 / 3), (5, 0.99)]
)
def test_a_share_that_is_no_whole_number_of_rows_holds_over_steps(batch, tool_free):
    free = [
        sum(each >= 200 for each in ids(DATA.draw(step, batch, tool_free, seed=0)))
        for step in range(200)
    ]
    for steps in range(1, 201):
        assert abs(sum(free[:steps]) - steps * batch * tool_free) <= 0.5 + 1e-9
    assert max(free) - min(free) <= 1


@pytest.mark.parametrize("tool_free", [0.0, 0.3, 0.5, 1.0])
def test_every_row_is_used_once_an_epoch(tool_free):
    steps = [ids(DATA.draw(step, 2, tool_free, seed=3)) for step in range(30)]
    for kind, count in (((100, 200), 5), ((200, 300), 3)):
        mine = [each for step in steps for each in step if each in range(*kind)]
        for start in range(0, len(mine) - count + 1, count):
            assert len(set(mine[start : start + count])) == count


def test_an_epoch_has_an_order_of_its_own_that_follows_from_the_seed():
    epochs = [tuple(ids(DATA.draw(step, 5, 0.0, seed=1))) for step in range(6)]
    assert len(set(epochs)) > 2
    assert epochs == [tuple(ids(DATA.draw(step, 5, 0.0, seed=1))) for step in range(6)]
    assert epochs != [tuple(ids(DATA.draw(step, 5, 0.0, seed=2))) for step in range(6)]


@pytest.mark.parametrize("tool_free", [0.0, 1.0])
def test_a_share_of_a_kind_that_was_not_collected_is_refused(tool_free):
    one = replace(DATA, **{"with_calls" if tool_free == 0.0 else "tool_free": ()})
    with pytest.raises(RecipeError, match=r"not collected.*tool_free share"):
        one.draw(0, 4, tool_free, seed=0)


def test_the_rows_of_a_step_are_a_function_of_the_step_whoever_asks():
    straight = [ids(DATA.draw(step, 4, 0.25, seed=0)) for step in range(6)]
    again = replace(DATA)
    assert [ids(again.draw(step, 4, 0.25, seed=0)) for step in (3, 4, 5)] == straight[3:]
    assert len({*straight[0], *straight[3]}) > 4  # another step, other rows


ASKED = tuple(recorded(turn(f"{n}"), prompt=f"case {n // 2}?") for n in range(20))


def test_a_share_of_the_questions_is_held_out_and_each_is_on_one_side():
    training, held_out = set_apart(ASKED, 0.3, seed=1)
    assert (len(training), len(held_out)) == (14, 6)
    sides = [{each.opening for each in side} for side in (training, held_out)]
    assert sides[0].isdisjoint(sides[1])
    assert sorted(map(repr, (*training, *held_out))) == sorted(map(repr, ASKED))
    assert set_apart(ASKED, 0.3, seed=1) == (training, held_out)
    assert set_apart(ASKED, 0.3, seed=2) != (training, held_out)
    assert len(set_apart(ASKED, 0.001, seed=1)[1]) == 2  # one question, which was asked twice


def test_holding_everything_out_is_refused_in_numbers():
    with pytest.raises(RecipeError, match=r"held_out = 0\.9: 2 different .* holding 2 of them"):
        set_apart(ASKED[:4], 0.9, seed=1)


def test_rows_of_the_kinds_that_a_phase_draws_from():
    assert ids(DATA.drawn_from(0.0)) == [100, 101, 102, 103, 104]
    assert ids(DATA.drawn_from(1.0)) == [200, 201, 202]
    assert ids(DATA.drawn_from(0.5)) == [200, 201, 202, 100, 101, 102, 103, 104]


@pytest.mark.parametrize("name", ["hermes", "hermes-thinking", "compact"])
def test_each_turn_is_trained_from_its_first_token_to_the_one_that_ends_it(name):
    chat = chat_format(name, WORDS)
    (tokens,) = render([CALLED], chat, [PYTHON], longest=1000, train_failed_calls=False).with_calls
    first, second = (each.message for each in CALLED.turns)
    spoken = [*chat.assistant(first), *chat.assistant(second)]
    trained = [id for id, own in zip(tokens.ids, tokens.sampled, strict=True) if own]
    assert trained == spoken
    ends = [place for place, id in enumerate(tokens.ids) if id == chat.end_of_turn]
    own_ends = [place for place in ends if tokens.sampled[place]]
    assert len(own_ends) == 2
    after = own_ends[0] + 1
    assert WORDS.decode([tokens.ids[after]]).startswith("\n")  # the glue between turns
    assert not tokens.sampled[after]


def test_the_end_of_turn_is_trained_also_where_rows_are_filled_up_with_the_same_id():
    # What fills a row up is told apart by its place, never by its id.
    end = CHAT.end_of_turn
    short = replace(row(".ss"), ids=(5, 6, end))
    filled = pad([short, row("....s")], [0.0, 0.0])
    same = filled.ids_BT.masked_fill(filled.ids_BT == 0, end)
    assert same[0].tolist() == [5, 6, end, end, end]
    assert filled.mask_BT[0].tolist() == [False, True, True, False, False]
    longer = pad([short, row("........s")], [0.0, 0.0])
    assert longer.mask_BT[0, :5].tolist() == filled.mask_BT[0].tolist()
