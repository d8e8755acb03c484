"""The command `doctor sandbox`: which tiers of the Python tool this host allows, and why not."""

import argparse
import asyncio
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from forethought.app.recipe import read_recipe
from forethought.core.errors import RecipeError
from forethought.tools.sandbox.facts import host_facts
from forethought.tools.sandbox.tiers import LADDER, REMEDIES, Examined, examine, refuse_host
from forethought.tools.settings import PythonSettings


def add_doctor(commands: Any) -> None:
    """Register the command with the parser's `commands`."""
    doctor = commands.add_parser("doctor", help="what this host allows", allow_abbrev=False)
    doctor.add_argument("what", choices=("sandbox",), help="what to look at")
    doctor.add_argument("--recipe", type=Path, help="whose [tool] settings to use")
    doctor.set_defaults(run_command=_doctor)


def _doctor(options: argparse.Namespace, overrides: list[str], console: Console) -> None:
    with as_file(files("forethought.app") / "quickstart.toml") as embedded:
        settings = read_recipe(options.recipe or embedded, overrides).tool
    refuse_host()
    found = asyncio.run(_examine_all(settings))
    console.print(_facts())
    console.print(_tiers(found))
    if any(each.attacks for each in found):
        console.print(_attacks(found))
    _conclude(found, console)


async def _examine_all(settings: PythonSettings) -> list[Examined]:
    found: list[Examined] = []
    for tier in LADDER:
        examined, pool = await examine(settings, tier)
        found.append(examined)
        if pool is not None:
            await pool.__aexit__(None, None, None)
    return found


def _facts() -> Table:
    table = Table("this host", "", show_header=True)
    for name, value in host_facts().items():
        table.add_row(name, value)
    return table


def _tiers(found: list[Examined]) -> Table:
    table = Table("tier", "here", "why not, and what would help")
    for each in found:
        reason = f"{each.refusal}. Remedy: {REMEDIES[each.tier]}" if each.refusal else ""
        table.add_row(each.tier, "refused" if each.refusal else "available", reason)
    table.add_row("remote", "if asked for", "needs tool.url; its isolation is that of the service")
    table.add_row("none", "if asked for", "no isolation at all; needs a variable besides")
    return table


def _attacks(found: list[Examined]) -> Table:
    table = Table("attack", *(each.tier for each in found))
    names = dict.fromkeys(name for each in found for name in each.attacks)
    for name in names:
        marks = {None: "not tried", True: "SUCCEEDED", False: "withstood"}
        table.add_row(name, *(marks[each.attacks.get(name)] for each in found))
    return table


def _conclude(found: list[Examined], console: Console) -> None:
    best = next((each.tier for each in found if not each.refusal), None)
    if best is None:
        raise RecipeError(
            'no tier withstands its attacks here: tool.tier="auto" would refuse to start'
        )
    console.print(f'tool.tier = "auto" runs programs in the tier "{best}" here.')
