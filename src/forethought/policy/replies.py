"""Tool replies as a policy sees them: of one that takes too many tokens, the two ends.

A tool cuts what it shows by characters, of which a tokenizer may make one token or four. Here the
words are cut, before they are tokens: what is encoded is what the policy sees, no character is
split, and a conversation that is written again from its words is the same.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace

from forethought.core.excerpt import cut
from forethought.core.messages import Message, ToolReply
from forethought.policy.formats import ChatFormat


def shortened(
    chat: ChatFormat, messages: Sequence[Message], most: int | None
) -> tuple[Message, ...]:
    """The messages; no tool reply in them takes more than `most` tokens, its frame included.

    Of a longer one, so many characters of both ends are kept as fit beside the number of those
    left out between, which alone stays where there is no room at all. None: all stay whole.
    """
    if most is None:
        return tuple(messages)
    return tuple(
        _shortened(chat, message, most) if isinstance(message, ToolReply) else message
        for message in messages
    )


def _shortened(chat: ChatFormat, reply: ToolReply, most: int) -> ToolReply:
    frame = len(chat.hear(()))

    def with_ends(kept: int) -> ToolReply:
        return replace(reply, text=cut(reply.text, kept))

    def taken(kept: int) -> int:
        return len(chat.hear((with_ends(kept),))) - frame

    whole = len(reply.text)
    if taken(whole) <= most:
        return reply
    return with_ends(max(0, bisect_right(range(whole), most, key=taken) - 1))
