"""Forethought's gradients beside plain ones: `benchmarks.training_speed` as a subject."""

from benchmarks.speed.subjects.answer import Cases, Task, answer
from benchmarks.training_speed import measured


def measure(task: Task) -> tuple[Cases, dict[str, object]]:
    """What every way came to in each case, which is a name and the options of the script."""
    cases = {
        f"{case['name']}: {way}": figures
        for case in task["cases"]
        for way, figures in measured(case["words"]).items()
    }
    return cases, {}


if __name__ == "__main__":
    answer(measure)
