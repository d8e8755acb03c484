import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forethought.core.messages import Assistant, ToolCall, ToolSpec
from forethought.policy.arguments import argument_fault, typed_value
from forethought.policy.parsing import parse_assistant

PYTHON = ToolSpec(
    name="python",
    description="Run Python.",
    parameters={
        "type": "object",
        "properties": {"code": {"type": "string"}},
        "required": ["code"],
    },
)
TYPED = ToolSpec(
    name="typed",
    description="Takes one value of each kind.",
    parameters={
        "type": "object",
        "properties": {
            "flag": {"type": ["boolean", "null"]},
            "n": {"type": "integer"},
            "s": {"type": "string"},
            "xs": {"type": "array"},
        },
    },
)
TOOLS = (PYTHON, TYPED)


def calls_of(text: str) -> tuple[ToolCall, ...]:
    return parse_assistant(text, TOOLS).message.calls


def wrapped(body: str) -> str:
    return f"<tool_call>{body}</tool_call>"


def python_call(code: str) -> str:
    return wrapped(json.dumps({"name": "python", "arguments": {"code": code}}))


def tagged(**values: str) -> str:
    parameters = "".join(f"<parameter={key}>\n{raw}\n</parameter>\n" for key, raw in values.items())
    return wrapped(f"\n<function=typed>\n{parameters}</function>\n")


def test_a_turn_is_split_into_thinking_text_and_calls_in_order():
    text = f"<think>\nhard\n</think>\n\nFirst.\n{python_call('1')}\n{python_call('2')}"
    assert parse_assistant(text, TOOLS, first_id=3).message == Assistant(
        text="First.",
        thinking="hard",
        calls=(
            ToolCall(id="call_3", name="python", arguments='{"code": "1"}'),
            ToolCall(id="call_4", name="python", arguments='{"code": "2"}'),
        ),
    )


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("{}", "no name and arguments"),
        ('{"name": null, "arguments": {}}', "name of a call"),
        ('{"name": "python"}', "no arguments"),
        ('{"name": "python", "arguments": null}', "the arguments must be a JSON object"),
        ("[]", "the call must be a JSON object"),
        ('"python"', "the call must be a JSON object"),
        ("42", "the call must be a JSON object"),
        ("", "incomplete"),
        ('{"name": "no_such_tool", "arguments": {}}', "no tool no_such_tool"),
        ('{"name": "python", "arguments": {}}', "the argument code is missing"),
        ('{"name": "python", "arguments": {"code": 1}}', "code must be a string"),
        ('{"name": "python", "arguments": {"code": "1", "x": 2}}', "unknown argument x"),
    ],
)
def test_a_call_with_a_wrong_shape_is_kept_with_a_fault_that_names_it(body: str, reason: str):
    (call,) = calls_of(wrapped(body))
    assert reason in call.fault
    assert call.arguments in body


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ('{"name": "python", "arguments": {"code": "print(1)"', "incomplete JSON, it stops at"),
        ('{"name": "python", "arguments": {"code": "print(1)', "incomplete JSON, it stops at"),
        ('{"name": "python", "arguments": {"code": "1",}}', "not JSON"),
        ("{'name': 'python', 'arguments': {'code': '1'}}", "at character 1"),
        ('{"name": "python", "arguments": {"code": "a\nb"}}', "at character 43"),
        ('{"name": "python", "arguments": ["print(1)"]}', "must be a JSON object"),
        ('{"name": "python", "arguments": {"code": "1"}}}', "at character 46"),
        ('{"name": "python", "arguments": "print(1)"}', "not JSON"),
        ("[" * 100_000, "cannot be read"),
        ('{"name": "python", "arguments": ' + "9" * 5000 + "}", "cannot be read"),
    ],
)
def test_broken_json_is_neither_mended_nor_run_and_its_place_is_named(body: str, reason: str):
    (call,) = calls_of(wrapped(body))
    assert reason in call.fault
    assert (call.name, call.arguments) == ("", body)


def test_what_a_fault_echoes_of_a_long_text_is_bounded():
    long = "x" * 10_000
    for body in (long, f'{{"name": "{long[:100]}", "arguments": {{"{long}": 1}}}}'):
        assert 0 < len(calls_of(wrapped(body))[0].fault) < 400
    assert 0 < len(calls_of(wrapped(f'{{"name": "python", "arguments": "{long}"}}'))[0].fault) < 400


def test_a_name_that_is_no_text_cannot_break_what_is_written_to_disk():
    (call,) = calls_of(wrapped(r'{"name": "\ud800", "arguments": {"\ud800": 1}}'))
    assert call.fault
    assert f"{call.name}{call.arguments}{call.fault}".encode()
    (call,) = calls_of(wrapped(r'{"name": "python", "arguments": {"code": "", "\ud800": 1}}'))
    assert b"\\ud800" in call.fault.encode()


def test_a_closing_tag_and_loose_braces_inside_a_string_do_not_end_a_call():
    code = "d = '}{{'\nprint('</tool_call>', len(d))"
    parsed = parse_assistant(f"Now.{python_call(code)} Done.", TOOLS).message
    assert [json.loads(call.arguments)["code"] for call in parsed.calls] == [code]
    assert parsed.text == "Now.\nDone."
    assert parsed.calls[0].fault == ""


def test_a_call_that_is_never_closed_has_a_fault():
    (call,) = calls_of('<tool_call>{"name": "python", "arguments": {"code": "1"}}')
    assert "not closed" in call.fault


def test_only_the_call_after_the_thinking_runs():
    parsed = parse_assistant(f"<think>maybe {python_call('1')}</think>\n{python_call('2')}", TOOLS)
    assert [call.arguments for call in parsed.message.calls] == ['{"code": "2"}']
    assert "maybe" in parsed.message.thinking
    assert not parsed.unclosed_thinking


def test_no_call_runs_when_thinking_is_not_closed():
    for text in (
        f"<think>never closed {python_call('3')}",
        f"{python_call('3')}<think>after a call",
        f"<think>a</think>b<think>{python_call('3')}",
    ):
        parsed = parse_assistant(text, TOOLS)
        assert parsed.message.calls == ()
        assert parsed.unclosed_thinking


def test_thinking_reaches_to_its_last_closing_tag():
    inner = python_call("print('</think>')")
    parsed = parse_assistant(f"<think>a {inner} b</think>c", TOOLS)
    assert (parsed.message.text, parsed.message.calls) == ("c", ())
    parsed = parse_assistant(f"a <think>b</think> {python_call('1')}</think>{python_call('2')}", ())
    assert [call.id for call in parsed.message.calls] == ["call_0"]
    assert '{"code": "2"}' in parsed.message.calls[0].arguments


def test_a_think_tag_inside_a_call_is_part_of_the_call():
    parsed = parse_assistant(python_call("print('<think>')"), TOOLS)
    assert (len(parsed.message.calls), parsed.unclosed_thinking) == (1, False)


def test_thinking_that_the_prompt_opened_ends_at_its_closing_tag():
    reply = "six times seven is 42\n</think>\n\n42"
    expected = Assistant(text="42", thinking="six times seven is 42")
    assert parse_assistant(reply, TOOLS, in_thinking=True).message == expected
    assert parse_assistant(reply, TOOLS).message == expected
    assert parse_assistant("still at it", TOOLS, in_thinking=True).unclosed_thinking


@pytest.mark.parametrize("bad_place", range(3))
def test_a_bad_call_stops_no_other_and_each_keeps_its_place(bad_place: int):
    bodies = [python_call(str(number)) for number in range(3)]
    bodies[bad_place] = wrapped('{"name": "python", "arguments": {"code": "print(1)"')
    calls = calls_of("\n".join(bodies))
    assert [call.id for call in calls] == ["call_0", "call_1", "call_2"]
    assert [place for place, call in enumerate(calls) if call.fault] == [bad_place]


def test_arguments_may_be_an_object_or_the_text_of_one():
    as_object, as_text = calls_of(
        wrapped('{"name": "python", "arguments": {"code": "print(3)"}}')
        + wrapped(r'{"name": "python", "arguments": "{\"code\": \"print(3)\"}"}')
    )
    assert as_object.arguments == as_text.arguments == '{"code": "print(3)"}'
    assert as_object.fault == as_text.fault == ""


def test_arguments_are_the_text_that_the_model_wrote():
    raw = '{ "code" :"caf\\u00e9 😀" }'
    (call,) = calls_of(wrapped(f' {{"arguments" : {raw} , "name":"python"}} '))
    assert (call.arguments, call.fault) == (raw, "")


def test_tagged_values_become_what_the_schema_types_them_as():
    (call,) = calls_of(tagged(flag="False", s="00123", xs="[true, null, 1]", n="-7"))
    assert (call.name, call.fault) == ("typed", "")
    assert json.loads(call.arguments) == {
        "flag": False,
        "s": "00123",
        "xs": [True, None, 1],
        "n": -7,
    }
    (call,) = calls_of(tagged(flag="null", s="null"))
    assert json.loads(call.arguments) == {"flag": None, "s": "null"}


def test_a_tagged_value_that_does_not_fit_keeps_its_call_and_is_named():
    (call,) = calls_of(tagged(n="2031-05-06", flag="perhaps"))
    assert "n must be an integer" in call.fault
    assert "flag must be a boolean or null" in call.fault
    assert json.loads(call.arguments)["n"] == "2031-05-06"


def test_a_tagged_value_may_hold_tags_and_keeps_its_inner_newlines():
    code = "\nprint('</parameter>')\n\nprint('</tool_call>')"
    body = f"<function=python>\n<parameter=code>\n{code}\n</parameter>\n</function>"
    (call,) = calls_of(wrapped(body))
    assert (json.loads(call.arguments), call.fault) == ({"code": code}, "")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("<function=python><parameter=code>1</parameter>", "must end with </function>"),
        ("<function=python>print(1)</function>", "at character 17"),
        (
            "<function=python><parameter=code>1</parameter><parameter=code>2</parameter></function>",
            "given twice",
        ),
        ("<function=python></function>", "code is missing"),
        ("<function=none></function>", "no tool none"),
        ("<function=a,b></function>", "name of a tool"),
    ],
)
def test_a_broken_tagged_call_is_kept_with_a_fault(body: str, reason: str):
    (call,) = calls_of(wrapped(body))
    assert reason in call.fault


@pytest.mark.parametrize(
    ("raw", "schema", "value"),
    [
        ("True", {"type": "boolean"}, True),
        ("1", {"type": "boolean"}, "1"),
        ("007", {"type": "integer"}, 7),
        ("1.0", {"type": "integer"}, "1.0"),
        ("1.5", {"type": "number"}, 1.5),
        ("null", {"anyOf": [{"type": "integer"}, {"type": "null"}]}, None),
        ("None", {"type": ["string", "null"]}, None),
        ("5", {"type": ["integer", "string"]}, "5"),
        ("5", {}, "5"),
        ('{"a": 1}', {"type": "object"}, {"a": 1}),
        ("[1, 2", {"type": "array"}, "[1, 2"),
    ],
)
def test_bare_text_is_typed_by_one_rule(raw: str, schema: dict[str, object], value: object):
    typed = typed_value(raw, schema)
    assert (type(typed), typed) == (type(value), value)


def test_a_schema_checks_no_more_than_it_says():
    assert argument_fault({"anything": 1}, {"type": "object"}) == ""
    assert argument_fault({"x": 1}, {"properties": {"x": {"enum": [1]}}}) == ""
    assert argument_fault({"x": 1}, {"properties": {"x": {"anyOf": [{}, {"type": "null"}]}}}) == ""
    assert argument_fault({"x": 1}, {"properties": {"x": {"type": "money"}}}) == ""
    assert argument_fault({"y": 1}, {"properties": {"x": {}}, "additionalProperties": True}) == ""
    assert argument_fault({"x": True}, {"properties": {"x": {"type": "integer"}}}) != ""


@given(st.lists(st.sampled_from(
    ["<think>", "</think>", "<tool_call>", "</tool_call>", '{"name": "python", "arguments": ',
     '{"code": "1"}', "}", '"', "\\", "<function=python>", "<parameter=code>", "</parameter>",
     "</function>", "word", "\n", " "]), max_size=25), st.booleans())  # fmt: skip
def test_any_text_becomes_a_message_whose_calls_are_numbered(pieces: list[str], opened: bool):
    parsed = parse_assistant("".join(pieces), TOOLS, first_id=5, in_thinking=opened)
    calls = parsed.message.calls
    assert [call.id for call in calls] == [f"call_{5 + place}" for place in range(len(calls))]
    assert not (parsed.unclosed_thinking and calls)
    for call in calls:
        assert call.fault or isinstance(json.loads(call.arguments), dict)
