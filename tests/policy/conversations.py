"""A conversation with everything in it, and the tools that it names."""

import json

from forethought.core.messages import (
    Assistant,
    Message,
    System,
    ToolCall,
    ToolReply,
    ToolSpec,
    User,
)

PYTHON = ToolSpec(
    name="python",
    description="Run Python, and read what it prints: <é>.",
    parameters={
        "type": "object",
        "properties": {"code": {"type": "string", "description": "A program."}},
        "required": ["code"],
    },
)
SEARCH = ToolSpec(
    name="search",
    description="Search.",
    parameters={
        "type": "object",
        "properties": {"query": {"type": "string"}, "k": {"type": "integer"}},
        "required": ["query"],
    },
)
TOOLS = (PYTHON, SEARCH)


def call(code: str, number: int = 0) -> ToolCall:
    """A call that runs `code`."""
    arguments = json.dumps({"code": code}, ensure_ascii=False)
    return ToolCall(id=f"call_{number}", name="python", arguments=arguments)


def reply(text: str, number: int = 0) -> ToolReply:
    """What the call of that number printed."""
    return ToolReply(call_id=f"call_{number}", name="python", text=text)


CONVERSATION: tuple[Message, ...] = (
    System(text="Be exact.\n\nAnswer <in> one line."),
    User(text="What is 6 * 7? Is 'été' \"summer\"?"),
    Assistant(text="I will compute.", calls=(call("print('6' + \"7\")\nprint(6*7)"), call("é", 1))),
    reply("67\n42"),
    reply("NameError: é", 1),
    Assistant(text="", calls=(call("1 </tool_call> <|im_end|>", 2),)),
    reply("", 2),
    Assistant(text="42"),
    User(text="Sure?"),
)
