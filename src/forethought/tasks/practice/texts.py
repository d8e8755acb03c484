"""Practice families about letters, days of the week and dates."""

from datetime import date, datetime
from random import Random

from forethought.tasks.practice.family import Exercise, Family, Item, Shape

_LETTERS = Shape(
    wordings=(
        "how many {letter} are in '{text}'?",
        "count the letter {letter} in '{text}'.",
        "the text '{text}' has how many {letter}?",
        "find the number of {letter} in '{text}'.",
    ),
    plan="count the letter with python.",
    program="print('{text}'.count('{letter}'))",
    check="x>0",
)

# Small counts are by far the commonest: kept in full, always answering 1 would do well.
_KEPT = {"1": 0.06, "2": 0.4}

_DAYS = "mon tue wed thu fri sat sun"

_DAY_AFTER = Shape(
    wordings=(
        "today is {day}. which day is it in {n} days?",
        "which day comes {n} days after {day}?",
        "it is {day}. name the day {n} days later.",
        "find the day that is {n} days after {day}.",
    ),
    plan="count on in the week.",
    program=f"d='{_DAYS}'.split()\nprint(d[(d.index('{{day}}')+{{n}})%7])",
    check="x in d",
)

_DAY_BEFORE = Shape(
    wordings=(
        "today is {day}. which day was it {n} days ago?",
        "which day comes {n} days before {day}?",
        "it is {day}. name the day {n} days ago.",
        "find the day that was {n} days before {day}.",
    ),
    plan="count back in the week.",
    program=f"d='{_DAYS}'.split()\nprint(d[(d.index('{{day}}')-{{n}})%7])",
    check="x in d",
)

_DATE = Shape(
    wordings=(
        "which date is {n} days after {start}?",
        "add {n} days to {start}.",
        "start at {start} and go on {n} days. which date?",
        "today is {start}. which date is it in {n} days?",
    ),
    plan="add the days with datetime.",
    program="from datetime import *\nprint(date({y},{m},{d})+timedelta({n}))",
    check="x>date({y},{m},{d})",
)


def _letters(item: Item, rng: Random) -> Exercise | None:
    text = " ".join(item.facts["span"]).lower()
    letter = item.facts["target_letter"]
    plain = text.isascii() and text.replace(" ", "").isalpha()
    if not plain or len(text) > 24 or rng.random() > _KEPT.get(item.answer, 1.0):
        return None
    return Exercise(shape=_LETTERS, values={"text": text, "letter": letter}, answer=item.answer)


def _weekday(item: Item, rng: Random) -> Exercise | None:
    del rng  # the item leaves nothing open
    days, offset = _DAYS.split(), int(item.facts["offset_days"])
    if abs(offset) < 8:
        return None
    day = days[date.fromisoformat(item.facts["start_date"]).weekday()]
    shape = _DAY_AFTER if offset > 0 else _DAY_BEFORE
    answer = item.answer.lower()[:3]
    return Exercise(shape=shape, values={"day": day, "n": abs(offset)}, answer=answer)


def _date(item: Item, rng: Random) -> Exercise | None:
    del rng  # the item leaves nothing open
    n = int(item.answer.split()[0])
    if n < 10:
        return None
    start = datetime.fromisoformat(item.facts["start_time"]).date()
    end = datetime.fromisoformat(item.facts["end_time"]).date()
    y, m, d = start.year, start.month, start.day
    values = {"y": y, "m": m, "d": d, "n": n, "start": f"{y}-{m}-{d}"}
    return Exercise(shape=_DATE, values=values, answer=end.isoformat())


_YEARS = {"task_types": ["date"], "min_date": date(1990, 1, 1), "max_date": date(2030, 1, 1)}

FAMILIES = (
    Family(
        name="letters",
        dataset="letter_counting",
        easy={"min_words": 1, "max_words": 2},
        hard={"min_words": 3, "max_words": 5},
        read=_letters,
    ),
    Family(
        name="weekdays",
        dataset="calendar_arithmetic",
        easy={"tasks": ["weekday_offset"], "offset_upper_bound": 99},
        hard={"tasks": ["weekday_offset"], "offset_upper_bound": 999},
        read=_weekday,
    ),
    Family(
        name="dates",
        dataset="time_intervals",
        easy={"max_date_difference_days": 99, **_YEARS},
        hard={"max_date_difference_days": 999, **_YEARS},
        read=_date,
    ),
)
"""Families about text and the calendar."""
