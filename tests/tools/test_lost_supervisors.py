"""A server whose supervisor is killed during a look leaves no process and no folder behind."""

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from forethought.tools.sandbox.server import ServerDiedError, start_server
from forethought.tools.settings import PythonSettings
from tools.conftest import LOWER, SYSTEM_PYTHON
from tools.test_supervision import becomes, below, parents, state, supervisors

TIERS = ("namespaces", *LOWER, "none")
FORKS = "import os, time\nif os.fork(): time.sleep(600)\nwhile True: pass"
COMPUTES = "while True: pass"
SEVERAL_LOOKS = 0.3
LONG = PythonSettings(servers=1, wall_seconds=600.0, cpu_seconds=60)


def seconds(process):
    """How long a process has computed; 0 if it is gone."""
    with suppress(FileNotFoundError, ProcessLookupError):
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) / os.sysconf("SC_CLK_TCK")
    return 0.0


async def computing(zygote):
    """A program's process that computes."""
    while not (found := [each for each in below(zygote) if seconds(each) > 0.2]):
        await asyncio.sleep(0.01)
    return found[0]


async def stop_in_a_look(zygote, supervisor, *, answered):
    """Stop a zygote that has been told to look, or a supervisor that was given an answer."""
    os.kill(zygote, signal.SIGSTOP)
    await asyncio.sleep(SEVERAL_LOOKS)
    if answered:
        os.kill(supervisor, signal.SIGSTOP)
        os.kill(zygote, signal.SIGCONT)
        assert becomes(lambda: state(zygote) == "S")


@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize("tier", TIERS)
def test_a_supervisor_that_is_killed_during_a_look_leaves_nothing(request, tier, answered):
    start = start_server
    if tier in LOWER:
        start = request.getfixturevalue("with_fewer_rights")(LOWER[tier])
    python = SYSTEM_PYTHON if tier in LOWER else ""
    settings = LONG.model_copy(update={"tier": tier, "python": python})
    code = COMPUTES if tier == "landlock" else FORKS  # there, programs start no processes

    async def run():
        before = {*supervisors()}
        server = await start(settings)
        try:
            (supervisor,) = {*supervisors()} - before
            (zygote,) = (p for p, parent in parents().items() if parent == supervisor)
            program = asyncio.create_task(server.run(code.encode()))
            folder = Path(f"/proc/{await computing(zygote)}/cwd").readlink().parent
            await stop_in_a_look(zygote, supervisor, answered=answered)
            family = {supervisor, zygote, *below(zygote)}
            os.kill(supervisor, signal.SIGKILL)
            with suppress(ProcessLookupError):
                os.kill(zygote, signal.SIGCONT)
            with pytest.raises(ServerDiedError):
                await program
            return family, folder
        finally:
            await server.close()

    family, folder = asyncio.run(run())
    assert len(family) > 4
    assert becomes(lambda: not family & {*parents()})
    assert tier == "namespaces" or becomes(lambda: not folder.exists())
