r"""Reading a final answer out of text, and saying whether two answers are the same.

Numbers are compared by value and exactly; everything else as text. Nothing is evaluated, so
`2+3` is not 5, and no symbolic mathematics is done: `\sqrt{4}` is not 2.
"""

import re
from fractions import Fraction

_BRACES = re.compile(r"\\boxed\s*\{|\\[{}]|[{}]")
_NUMBER = r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]*)?|\.[0-9]+"
_DECIMAL = re.compile(rf"([+-]?)({_NUMBER})(?:[eE]([+-]?[0-9]{{1,3}}))?")
_RATIO = re.compile(r"([^/]+)/([^/]+)")
_FRAC = re.compile(r"([+-]?)\\[dt]?frac\{([^{}]*)\}\{([^{}]*)\}")
_DEGREES = re.compile(r"(?:\^\s*(?:\\circ|\{\s*\\circ\s*\})|°)$")
_WRITTEN = {
    "": "{sign}{size}",
    "degrees": "{sign}{size}°",
    "percent": "{sign}{size}%",
    "dollars": "{sign}${size}",
}
_LONGEST_NUMBER = 1000
"""Longer texts are compared as text: reading digits takes time that grows with their square."""


def boxed_answer(text: str) -> str | None:
    r"""What stands in the last `\boxed{...}` whose braces balance; None where there is none.

    A brace after a backslash is a character, not a delimiter. Of two nested boxes the inner one
    is the later.

    >>> boxed_answer(r"so \boxed{3}, no: \boxed{\frac{1}{2}}")
    '\\frac{1}{2}'
    """
    opened: list[int] = []  # where each open brace's content starts; 0 where it is no box's
    last = (0, 0)
    for brace in _BRACES.finditer(text):
        if brace[0] == "}":
            if opened:
                last = max(last, (opened.pop(), brace.start()))
        elif brace[0] == "{":
            opened.append(0)
        elif brace[0].startswith("\\boxed"):
            opened.append(brace.end())
    start, end = last
    return text[start:end].strip() if start else None


def same_value(first: str, second: str) -> bool:
    r"""Whether two answers are the same number or, failing that, the same text.

    A number may be written as an integer with or without leading zeros and commas between
    thousands, as a decimal with or without an exponent, as `a/b` or as `\frac{a}{b}`, between
    dollar signs or not. A mark of degrees, dollars or percent is a unit: it may be left out
    (`336^\circ` is 336, `\$5` is 5, and `50\%` is 50 but not 0.5), yet two different units are
    not the same. Text is compared exactly, but for the amount of white space.

    >>> same_value("2,125", "2125.0"), same_value(r"\frac{3}{4}", "0.75"), same_value("a", "A")
    (True, True, False)
    """
    one, other = _quantity(first), _quantity(second)
    if one is None or other is None:
        return " ".join(first.split()) == " ".join(second.split())
    (value, unit), (other_value, other_unit) = one, other
    return value == other_value and (unit == other_unit or not unit or not other_unit)


def canonical_answer(text: str) -> str:
    r"""One spelling of an answer, so that votes for one value are votes for one text.

    A number becomes its exact value with its unit, other text keeps its case and loses surplus
    white space. Two answers of one unit have one canonical form exactly when they are the same.

    >>> canonical_answer("2,125.0"), canonical_answer(r"50\%"), canonical_answer(" So  much")
    ('2125', '50%', 'So much')
    """
    quantity = _quantity(text)
    if quantity is None:
        return " ".join(text.split())
    value, unit = quantity
    return _WRITTEN[unit].format(sign="-" if value < 0 else "", size=abs(value))


def _quantity(text: str) -> tuple[Fraction, str] | None:
    """The value and the unit ("" for none) that a text writes, or None for other text."""
    text = text.strip().replace("\u2212", "-")
    if len(text) > _LONGEST_NUMBER:
        return None
    if len(text) > 2 and text[0] == text[-1] == "$":
        text = text[1:-1].strip()
    text, unit = _without_unit(text)
    value = _value(text)
    return None if value is None else (value, unit)


def _without_unit(text: str) -> tuple[str, str]:
    shorter = _DEGREES.sub("", text)
    if shorter != text:
        return shorter.rstrip(), "degrees"
    if text.endswith("%"):
        return text[:-1].removesuffix("\\").rstrip(), "percent"
    sign = "-" if text.startswith("-") else ""
    amount = text.removeprefix("-").removeprefix("\\")
    if amount.startswith("$"):
        return sign + amount[1:].lstrip(), "dollars"
    return text, ""


def _value(text: str) -> Fraction | None:
    plain = _decimal(text)
    if plain is not None:
        return plain
    sign = 1
    ratio = _RATIO.fullmatch(text)
    if ratio is None:
        fraction = _FRAC.fullmatch(text)
        if fraction is None:
            return None
        sign = -1 if fraction[1] == "-" else 1
        parts = fraction[2], fraction[3]
    else:
        parts = ratio[1], ratio[2]
    above, below = (_decimal(part.strip()) for part in parts)
    return None if above is None or not below else sign * above / below


def _decimal(text: str) -> Fraction | None:
    found = _DECIMAL.fullmatch(text)
    if found is None:
        return None
    sign, digits, exponent = found.groups()
    value = Fraction(digits.replace(",", "")) * Fraction(10) ** int(exponent or 0)
    return -value if sign == "-" else value
