"""Values to HTML: one template, everything escaped, nothing fetched."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from forethought.watch.exams import interval, percent, points


def render(template: str, **values: Any) -> str:
    """The page that `template` (a file beside this one) makes of `values`."""
    return _environment().get_template(template).render(**values)


def duration(seconds: float | None) -> str:
    """A time span as people say it.

    >>> duration(0.0123), duration(12.5), duration(61), duration(7300)
    ('12 ms', '12.5 s', '1 min 1 s', '2 h 1 min')
    """
    if seconds is None:
        return "—"
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def number(value: float) -> str:
    """A number with the digits that matter.

    >>> number(0.123456), number(1234567.0)
    ('0.123', '1.23e+06')
    """
    return format(value, ".3g")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        percent=percent,
        interval=interval,
        points=points,
        duration=duration,
        number=number,
        pretty=_pretty,
    )
    return environment


def _pretty(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)
