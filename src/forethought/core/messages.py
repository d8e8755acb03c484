"""What is said: the messages of one conversation, and the tools they may name."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool as a model is told of it. `parameters` is a JSON schema of type `object`.

    >>> code = {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]}
    >>> ToolSpec(name="python", description="Run Python.", parameters=code).name
    'python'
    """

    name: str
    description: str
    parameters: Mapping[str, Any]

    def as_function(self) -> dict[str, Any]:
        """The tool as chat templates and chat-completions endpoints are told of it."""
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": dict(self.parameters),
        }
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call that the model wrote. `arguments` is its raw text, read only by the tool.

    `fault` says why the text is not a call that can run; a faulty call is answered with it and
    nothing is executed.

    >>> ToolCall(id="call_0", name="python", arguments='{"code": "print(1)"}').fault
    ''
    """

    id: str
    name: str
    arguments: str
    fault: str = ""


class ToolStatus(StrEnum):
    """How a call went. Only `INFRASTRUCTURE` is not the model's doing."""

    OK = "ok"
    MODEL_ERROR = "model_error"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    TRUNCATED = "truncated"
    INFRASTRUCTURE = "infrastructure"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolReply:
    """What came back from one call; `seconds` is the time that the tool itself took.

    >>> ToolReply(call_id="call_0", name="python", text="1").status
    <ToolStatus.OK: 'ok'>
    """

    call_id: str
    name: str
    text: str
    status: ToolStatus = ToolStatus.OK
    seconds: float = 0.0
    role: Literal["tool"] = "tool"


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """Instructions that precede the conversation.

    >>> System(text="Answer briefly.").role
    'system'
    """

    text: str
    role: Literal["system"] = "system"


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """What the user says.

    >>> User(text="6 * 7?").role
    'user'
    """

    text: str
    role: Literal["user"] = "user"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assistant:
    """What the model says: `text` without its thinking and without its calls.

    >>> Assistant(text="Let me compute.").calls
    ()
    """

    text: str
    thinking: str = ""
    calls: tuple[ToolCall, ...] = ()
    role: Literal["assistant"] = "assistant"


Message = System | User | Assistant | ToolReply
