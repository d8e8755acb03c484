"""The command: measure one part, several, or all; or write the page from what was measured."""

import argparse
import sys
import time
from pathlib import Path

from benchmarks.speed.children import ROOT, SubjectError
from benchmarks.speed.environments import InstallError
from benchmarks.speed.models import TeachingError
from benchmarks.speed.parts import (
    decode,
    growth,
    machine,
    sampling,
    sandbox,
    step,
    tools,
    training,
)
from benchmarks.speed.results import keep, render, revision
from benchmarks.speed.rounds import Options

PARTS = {
    part.name: part
    for part in (
        machine.PART,
        decode.PART,
        growth.PART,
        tools.PART,
        sandbox.PART,
        training.PART,
        sampling.PART,
        step.PART,
    )
}
PAGE = ROOT / "docs" / "performance.md"


def main() -> int:
    """Do what is asked; 1 when a part could not be measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed", description=__doc__)
    parser.add_argument("parts", nargs="+", choices=(*PARTS, "all", "render"), metavar="PART")
    parser.add_argument("--quick", action="store_true", help="small, once: does everything work?")
    parser.add_argument("--rounds", type=int, default=3, help="repetitions of everything")
    parser.add_argument("--threads", type=int, default=2, help="cores for each subject")
    parser.add_argument("--problems", type=Path, help="a GSM8K file; otherwise problems are made")
    parser.add_argument("--results", type=Path, default=ROOT / "runs" / "speed")
    parser.add_argument(
        "--cache",
        type=Path,
        default=Path.home() / ".cache" / "forethought-bench",
        help="where environments and models are kept",
    )
    given = parser.parse_args()
    options = Options(
        cache=given.cache.resolve(),
        results=given.results.resolve(),
        problems=given.problems,
        rounds=1 if given.quick else given.rounds,
        threads=given.threads,
        quick=given.quick,
    )
    wanted = (
        list(PARTS) if "all" in given.parts else [each for each in PARTS if each in given.parts]
    )
    failed = [name for name in wanted if not measured(name, options)]
    if {"all", "render"} & set(given.parts):
        print(f"{PAGE}: {', '.join(render(PARTS, options.results, PAGE)) or 'no results yet'}")
    return 1 if failed else 0


def measured(name: str, options: Options) -> bool:
    """Measure one part and print its table; False, with the reason printed, when it fails."""
    part = PARTS[name]
    print(f"{name}:", flush=True)
    code, began = revision(ROOT), time.perf_counter()
    try:
        outcome = part.measure(options)
    except (SubjectError, InstallError, TeachingError) as error:
        print(f"{name} could not be measured: {error}", file=sys.stderr, flush=True)
        return False
    seconds = time.perf_counter() - began
    text = keep(part, outcome, seconds, options, code)
    print(f"{text}\n{name} took {seconds:.0f} s\n", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main())
