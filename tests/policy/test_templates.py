import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jinja2
import pytest

from forethought.core.messages import Assistant, Message, System, ToolSpec, User
from forethought.policy.chat_template import chat_template
from forethought.policy.formats import FORMATS, chat_format, stripped_history
from forethought.policy.openai_form import messages_to_openai
from forethought.policy.tokenizing import decode
from policy.conversations import CONVERSATION, PYTHON, TOOLS, call, reply
from policy.tokenizers_on_hand import (
    FRAME,
    FRAME_END,
    published_template,
    real_tokenizer,
    small_tokenizer,
)


def published(path: str, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> str:
    """What a published template makes of a conversation."""
    return rendered(published_template(path), messages, tools)


def rendered(template: str, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> str:
    """What a template makes of a conversation, rendered as chat libraries do."""
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    rows: list[dict[str, Any]] = messages_to_openai(messages)
    for row in rows:
        for made in row.get("tool_calls", []):
            made["function"]["arguments"] = json.loads(made["function"]["arguments"])
    return environment.from_string(template).render(
        messages=rows,
        tools=[tool.as_function() for tool in tools],
        add_generation_prompt=True,
    )


@pytest.mark.parametrize("template", ["trl_qwen2_5", "trl_qwen3"])
@pytest.mark.parametrize("tools", [TOOLS, (PYTHON,), ()])
def test_hermes_writes_what_the_published_templates_write(template: str, tools: Sequence[ToolSpec]):
    tokenizer = real_tokenizer("qwen2_5")
    ids = chat_format("hermes", tokenizer).opening(CONVERSATION, tools)
    text = published(f"chat_templates/{template}.jinja", CONVERSATION, tools)
    assert decode(tokenizer, ids) == text


@pytest.mark.parametrize("template", ["trl_qwen2_5", "trl_qwen3"])
def test_hermes_makes_the_ids_that_a_model_was_trained_on(template: str):
    tokenizer = real_tokenizer("qwen2_5")
    harmless = (*CONVERSATION[:5], Assistant(text="42"), User(text="Sure?"))
    ids = chat_format("hermes", tokenizer).opening(harmless, TOOLS)
    text = published(f"chat_templates/{template}.jinja", harmless, TOOLS)
    assert ids == tokenizer.encode(text).ids


def test_thinking_of_the_running_answer_is_written_as_qwen3_writes_it():
    tokenizer = real_tokenizer("qwen2_5")
    messages = (
        User(text="6 * 7?"),
        Assistant(text="So:", thinking="six sevens", calls=(call("print(6*7)"),)),
        reply("42"),
    )
    ids = chat_format("hermes", tokenizer).opening(messages, TOOLS)
    text = published("chat_templates/trl_qwen3.jinja", messages, TOOLS)
    assert ids == tokenizer.encode(text).ids


def test_hermes_writes_chats_without_tools_as_smollm2_reads_them():
    tokenizer = real_tokenizer("smollm2")
    chat = chat_format("hermes", tokenizer)
    messages = (System(text="Be brief."), User(text="Hi"), Assistant(text="Ho"), User(text="Hm"))
    text = published("tokenizers/smollm2_chat_template.jinja", messages, ())
    assert chat.opening(messages, ()) == tokenizer.encode(text).ids


THOUGHT = tuple(
    replace(message, thinking="six\nsevens") if isinstance(message, Assistant) else message
    for message in CONVERSATION
)


@pytest.mark.parametrize("messages", [CONVERSATION, CONVERSATION[1:], THOUGHT, ()])
@pytest.mark.parametrize("tools", [TOOLS, (PYTHON,), ()])
def test_the_template_of_compact_writes_what_the_format_writes(
    messages: Sequence[Message], tools: Sequence[ToolSpec]
):
    tokenizer = small_tokenizer(FRAME, FRAME_END)
    for thinking, seen in (("keep", messages), ("strip", stripped_history(messages))):
        ids = chat_format("compact", tokenizer).opening(seen, tools)
        assert rendered(chat_template("compact", thinking), messages, tools) == decode(
            tokenizer, ids
        )


def test_the_template_of_compact_makes_the_ids_that_a_model_was_trained_on():
    tokenizer = small_tokenizer(FRAME, FRAME_END)
    harmless = (*CONVERSATION[:5], Assistant(text="42"), User(text="Sure?"))
    ids = chat_format("compact", tokenizer).opening(harmless, TOOLS)
    text = rendered(chat_template("compact", None), harmless, TOOLS)
    assert ids == tokenizer.encode(text).ids


def test_formats_whose_templates_are_published_have_none_here():
    assert [name for name in FORMATS if chat_template(name, "keep")] == ["compact"]
