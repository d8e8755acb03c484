"""The quickstart over several seeds, beside the control: the same time in further imitation.

    python benchmarks/study.py --seeds 0 1 2 --folder runs/study

For each seed: the quickstart as it is, then, from the checkpoint that RL started from, more
steps of the last SFT phase for as many seconds as difficulty measurement and RL took together,
and the same exam. Writes `table.md` into the folder. Runs that exist are gone on with.
"""

import argparse
import asyncio
import sys
from importlib.resources import as_file, files
from pathlib import Path

from rich.console import Console

from forethought.app.cli import main as forethought
from forethought.app.context import Context, phase_stage
from forethought.app.recipe import Recipe, read_recipe
from forethought.app.show import Show
from forethought.app.stages.exam import sit_exam
from forethought.app.stages.sft import sft
from forethought.app.study.running import copy_whole
from forethought.core.errors import ForethoughtError
from forethought.evaluation.comparison import paired_difference
from forethought.evaluation.results import ExamResult
from forethought.journal.run import Run

COLUMNS = "| run | avg@8 | greedy | pass@8 | maj@8 | tool rate | right with tool | entropy |"


def seconds(run: Run, stages: tuple[str, ...]) -> float:
    """How long the named stages worked, by their own clocks."""
    return sum(
        value
        for stage in stages
        for metric in run.metrics(stage)
        if metric.startswith("seconds/")
        for _, value in run.series(stage, metric)
    )


def further(recipe: Recipe, run: Run) -> Recipe:
    """The recipe with one more SFT phase, as long as measurement and RL took in `run`."""
    last = recipe.sft.phases[-1]
    stage = phase_stage(last)
    a_step = seconds(run, (stage,)) / len(run.steps(stage))
    steps = round(seconds(run, ("measure", "rl")) / a_step)
    phase = last.model_copy(update={"name": "further", "steps": steps})
    phases = (*recipe.sft.phases, phase)
    return recipe.model_copy(update={"sft": recipe.sft.model_copy(update={"phases": phases})})


async def control(recipe: Recipe, path: Path, console: Console) -> None:
    """Imitate on in a copy of the run, and sit the exam."""
    with Run.create_or_open(path, recipe.model_dump(mode="json")) as run:
        context = Context(recipe, run, Show(console))
        await sft(context)
        await sit_exam(context, "further", phase_stage(recipe.sft.phases[-1]))


def exam(run: Run, name: str) -> ExamResult:
    """A stored exam."""
    return ExamResult.model_validate(run.document(f"eval_{name}", f"exam/{name}"))


def row(name: str, result: ExamResult) -> str:
    """One exam as a table row."""
    tools = result.sampled_tools
    cells = (
        name,
        str(result.average),
        str(result.greedy),
        str(result.coverage),
        str(result.majority),
        f"{tools.rate:.2f}",
        "" if tools.right_with_tool is None else f"{tools.right_with_tool:.2f}",
        f"{result.entropy:.3f}",
    )
    return f"| {' | '.join(cells)} |"


def table(folder: Path, seeds: list[int]) -> str:
    """Every exam of every seed, and the paired differences."""
    lines = [COLUMNS, "|---" * 8 + "|"]
    changes = ["", "| seed | comparison | avg@8 | greedy |", "|---|---|---|---|"]
    for seed in seeds:
        with Run.read(folder / f"seed{seed}") as run:
            found = {name: exam(run, name) for name in ("tool_only", "before", "after")}
        with Run.read(folder / f"control{seed}") as run:
            found["further SFT"] = exam(run, "further")
        lines += [row(f"seed {seed}: {name}", result) for name, result in found.items()]
        for name in ("before", "tool_only", "further SFT"):
            pair = (found[name], found["after"])
            average, greedy = (paired_difference(*pair, what) for what in ("average", "greedy"))
            changes.append(f"| {seed} | after - {name} | {average} | {greedy} |")
    return "\n".join([*lines, *changes]) + "\n"


def main() -> int:
    """Run what is missing and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--folder", type=Path, default=Path("runs/study"))
    options = parser.parse_args()
    console = Console()
    for seed in options.seeds:
        path = options.folder / f"seed{seed}"
        code = forethought(["quickstart", "--run", str(path), "--seed", str(seed)])
        if code:
            return code
        with as_file(files("forethought.app") / "quickstart.toml") as file:
            recipe = read_recipe(file, ["--seed", str(seed)])
        with Run.read(path) as run:
            longer = further(recipe, run)
        copy = options.folder / f"control{seed}"
        if not copy.exists():
            copy_whole(path, copy)
        try:
            asyncio.run(control(longer, copy, console))
        except ForethoughtError as error:
            print(error, file=sys.stderr)
            return 2
    text = table(options.folder, options.seeds)
    (options.folder / "table.md").write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
