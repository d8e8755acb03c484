"""The two ends of a text that is too long."""


def cut(text: str, most: int, gone: int = 0) -> str:
    """The text, or its beginning and its end with the number of characters left out between.

    `gone` counts what was left out of the middle before.

    >>> cut("aaaabbbbcccc", 8)
    'aaaa\\n[4 characters left out]\\ncccc'
    """
    left_out = max(0, len(text) - most) + gone
    if not left_out:
        return text
    tail = min(most, len(text)) // 2
    head = min(most, len(text)) - tail
    return f"{text[:head]}\n[{left_out} characters left out]\n{text[len(text) - tail :]}"
