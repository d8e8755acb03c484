"""What a model wrote in one turn: its thinking, its words and its calls.

The rules, the same for training and for exams:

* A call stands between `<tool_call>` and `</tool_call>`; a closing tag inside a JSON string does
  not end it. Text around calls stays text.
* What stands in `<think>…</think>` is thinking. Thinking reaches to the last `</think>` that is
  outside a call, also when a tag that opens it is missing (the prompt may have opened it).
* A call inside thinking never runs. When thinking is not closed, no call of the turn runs.
* What is not a call that can run becomes a call with a `fault`; it is never dropped or mended.

Works on decoded text, so it does not matter whether a tokenizer has tokens for the tags. Text
that is only meant to *mention* a tag cannot be told from the tag.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from forethought.core.messages import Assistant, ToolCall, ToolSpec
from forethought.policy.calls import CALL, read_call

THINK, THINK_END = "<think>", "</think>"

_CLOSING = re.compile(THINK_END)
_MARK = re.compile("|".join((THINK, THINK_END, CALL)))
_THINK_TAG = re.compile("|".join((THINK, THINK_END)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """A turn as a message, and whether its thinking was never closed.

    >>> Parsed(message=Assistant(text="42")).unclosed_thinking
    False
    """

    message: Assistant
    unclosed_thinking: bool = False


def parse_assistant(
    text: str, tools: Sequence[ToolSpec], first_id: int = 0, *, in_thinking: bool = False
) -> Parsed:
    """Read one turn. Its calls are `call_<first_id>`, `call_<first_id + 1>`, … in order.

    `in_thinking` says that the prompt ended with an opened `<think>`. Thinking and text lose the
    white space around them; pieces that tags part are joined by a newline.

    >>> parse_assistant("<think>easy</think>42", ()).message
    Assistant(text='42', thinking='easy', calls=(), role='assistant')
    """
    thoughts: list[str] = []
    said: list[str] = []
    calls: list[ToolCall] = []
    position = thinking_until = 0
    while mark := (_CLOSING if in_thinking else _MARK).search(text, position):
        passed = text[position : mark.start()]
        position = mark.end()
        if in_thinking:
            thoughts.append(passed)
            in_thinking = False
        elif mark.group() == THINK_END:
            thinking_until = mark.start()
            thoughts, said, calls = [], [], []
        else:
            said.append(passed)
            in_thinking = mark.group() == THINK
            if not in_thinking:
                call, position = read_call(text, position, f"call_{first_id + len(calls)}", tools)
                calls.append(call)
    (thoughts if in_thinking else said).append(text[position:])
    message = Assistant(
        text=_joined(said),
        thinking=_joined([_THINK_TAG.sub("", text[:thinking_until]), *thoughts]),
        calls=() if in_thinking else tuple(calls),
    )
    return Parsed(message=message, unclosed_thinking=in_thinking)


def _joined(pieces: Sequence[str]) -> str:
    return "\n".join(piece.strip() for piece in pieces if piece.strip())
