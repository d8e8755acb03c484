"""ChatML with Hermes-style tools: the turns of Qwen, SmolLM2 and our own tiny models.

A turn is `<|im_start|>role`, a newline, its content and `<|im_end|>`; turns are parted by a
newline. A `Style` says how tools are announced and how much white space there is. Default system
prompts that some published templates add are not added: what is said is what the recipe says.
"""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from tokenizers import Tokenizer

from forethought.core.errors import RecipeError
from forethought.core.messages import Assistant, Message, System, ToolCall, ToolReply, ToolSpec
from forethought.policy.calls import CALL, CALL_END
from forethought.policy.parsing import THINK, THINK_END, Parsed, parse_assistant
from forethought.policy.tokenizing import Mark, Piece, added_tokens, decode, marked_ids

_START, _END = Mark("<|im_start|>"), Mark("<|im_end|>")
_CALL, _CALL_END = Mark(CALL), Mark(CALL_END)
_THINK, _THINK_END = Mark(THINK), Mark(THINK_END)
_REPLY, _REPLY_END = Mark("<tool_response>"), Mark("</tool_response>")
_TOOLS, _TOOLS_END = Mark("<tools>"), Mark("</tools>")
_SINGLE_TEXT = re.compile(r'(\{"\w+": ")(.*)("\})', re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """How one family writes. `gap` stands inside tags and between them, doubled after thinking.

    `announce` renders the tools for the system turn. `opens_thinking` is for models whose prompt
    ends with an opened `<think>`.
    """

    name: str
    gap: str
    announce: Callable[[Sequence[ToolSpec]], list[Piece]]
    opens_thinking: bool = False


class ChatML:
    """A `ChatFormat` of this family for one tokenizer.

    Raises `RecipeError` when the tokenizer has no control tokens for turns.
    """

    def __init__(self, tokenizer: Tokenizer, style: Style) -> None:
        added = added_tokens(tokenizer)
        for mark in (_START, _END):
            if mark.text not in added:
                raise RecipeError(
                    f"the chat format {style.name!r} needs the control token {mark.text}, which "
                    "the tokenizer lacks: choose a model whose tokenizer has it, or add it"
                )
        self.name = style.name
        self.end_of_turn = added[_END.text]
        self._tokenizer = tokenizer
        self._style = style

    def opening(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[int]:
        """The ids of a whole conversation so far, up to where the assistant speaks."""
        head: list[int] = []
        if tools:
            first = messages[0] if messages else None
            said = [first.text, self._style.gap * 2] if isinstance(first, System) else []
            head = self._ids([*_turn("system", [*said, *self._style.announce(tools)]), "\n"])
            messages = messages[len(said) > 0 :]
        return head + self._history(messages) + self._header()

    def assistant(self, message: Assistant) -> list[int]:
        """The ids of one assistant turn from its words, `end_of_turn` included."""
        return self._ids([*self._thinking(message), *self._said(message), _END])

    def hear(self, messages: Sequence[Message]) -> list[int]:
        """The ids between an assistant's `end_of_turn` and its next turn."""
        return self._ids(["\n"]) + self._history(messages) + self._header()

    def read(self, ids: Sequence[int], tools: Sequence[ToolSpec], first_id: int) -> Parsed:
        """What sampled ids say."""
        kept = ids[:-1] if ids and ids[-1] == self.end_of_turn else ids
        text = decode(self._tokenizer, kept)
        return parse_assistant(text, tools, first_id, in_thinking=self._style.opens_thinking)

    def _ids(self, pieces: Iterable[Piece]) -> list[int]:
        return marked_ids(self._tokenizer, pieces)

    def _header(self) -> list[int]:
        thinking = [_THINK, self._style.gap] if self._style.opens_thinking else []
        return self._ids([_START, "assistant\n", *thinking])

    def _history(self, messages: Sequence[Message]) -> list[int]:
        ids: list[int] = []
        for is_reply, group in groupby(messages, lambda message: isinstance(message, ToolReply)):
            if is_reply:
                ids += self._ids([*_turn("user", self._replies(tuple(group))), "\n"])
                continue
            for message in group:
                if isinstance(message, Assistant):
                    ids += self._header() + self.assistant(message) + self._ids(["\n"])
                else:
                    ids += self._ids([*_turn(message.role, [message.text]), "\n"])
        return ids

    def _replies(self, replies: Sequence[Message]) -> list[Piece]:
        gap = self._style.gap
        pieces: list[Piece] = []
        for reply in replies:
            pieces += [gap] if pieces else []
            pieces += [_REPLY, gap, reply.text, gap, _REPLY_END]
        return pieces

    def _thinking(self, message: Assistant) -> list[Piece]:
        gap = self._style.gap
        if not message.thinking and not self._style.opens_thinking:
            return []
        opened: list[Piece] = [] if self._style.opens_thinking else [_THINK, gap]
        return [*opened, message.thinking, gap, _THINK_END, gap * 2]

    def _said(self, message: Assistant) -> list[Piece]:
        gap = self._style.gap
        pieces: list[Piece] = [message.text] if message.text else []
        for call in message.calls:
            pieces += [gap] if pieces else []
            pieces += [_CALL, gap, *_written(call), gap, _CALL_END]
        return pieces


def _turn(role: str, content: Iterable[Piece]) -> list[Piece]:
    return [_START, f"{role}\n", *content, _END]


def _written(call: ToolCall) -> list[Piece]:
    """The text of a call, with marks where a small tokenizer may have a token for its frame."""
    # A call that could not be read has no name: its text is all in `arguments`.
    if not call.name:
        return [call.arguments]
    name = json.dumps(call.name, ensure_ascii=False)
    single = _SINGLE_TEXT.fullmatch(call.arguments)
    if single is None:
        return [f'{{"name": {name}, "arguments": {call.arguments}}}']
    before, value, after = single.groups()
    return [Mark(f'{{"name": {name}, "arguments": {before}'), value, Mark(f"{after}}}")]


def _announce_in_prose(tools: Sequence[ToolSpec]) -> list[Piece]:
    signatures = [json.dumps(tool.as_function(), ensure_ascii=False) for tool in tools]
    return [
        "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
        "You are provided with function signatures within ",
        *(_TOOLS, _TOOLS_END, " XML tags:\n", _TOOLS),
        "".join(f"\n{signature}" for signature in signatures),
        *("\n", _TOOLS_END),
        "\n\nFor each function call, return a json object with function name and arguments within ",
        *(_CALL, _CALL_END, " XML tags:\n", _CALL),
        '\n{"name": <function-name>, "arguments": <args-json-object>}\n',
        _CALL_END,
    ]


def _announce_in_short(tools: Sequence[ToolSpec]) -> list[Piece]:
    signatures = [
        f"{tool.name}({', '.join(tool.parameters.get('properties', ()))})" for tool in tools
    ]
    return [_TOOLS, " ".join(signatures), _TOOLS_END]


def _cannot_announce(tools: Sequence[ToolSpec]) -> list[Piece]:
    names = ", ".join(tool.name for tool in tools)
    raise RecipeError(
        f"the chat format 'plain' cannot announce tools, and the recipe gives {names}: "
        "take the format 'hermes' or 'compact', or give no tools"
    )


HERMES = Style(name="hermes", gap="\n", announce=_announce_in_prose)
"""Qwen2.5, Qwen3 and other models that were trained on Hermes tools."""
HERMES_THINKING = Style(
    name="hermes-thinking", gap="\n", announce=_announce_in_prose, opens_thinking=True
)
"""The same for models that only think: the prompt opens their thinking."""
COMPACT = Style(name="compact", gap="", announce=_announce_in_short)
"""Tiny models: tools by their signatures alone, and no white space inside tags."""
PLAIN = Style(name="plain", gap="\n", announce=_cannot_announce)
"""Chat models that know no tools."""
