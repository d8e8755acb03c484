"""Hosts that have no room for another process: one call is refused, and nothing stays behind."""

import asyncio
import os
import subprocess
from functools import partial
from pathlib import Path

import pytest

from forethought.core.errors import SandboxError
from forethought.tools.sandbox.pool import Pool
from forethought.tools.sandbox.server import Launch, start_server
from tools.conftest import SMALL, SYSTEM_PYTHON
from tools.test_supervision import (
    becomes,
    below,
    parents,
    started,
    state,
    supervisors,
    waits,
)

ALONE = SMALL.model_copy(
    update={"tier": "landlock", "servers": 1, "wall_seconds": 300.0, "python": SYSTEM_PYTHON}
)
WITHOUT_ROOM = """
import os, resource, socket, sys
folder, user = sys.argv[1], int(sys.argv[2])
sys.path.append(folder)
from inside.limits import Limits
from inside.supervisor import supervise
ours, theirs = socket.socketpair()
os.setresgid(user, user, user)
os.setresuid(user, user, user)
resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
supervise(theirs, Limits("landlock", 5.0, 5, 64, 8, 60.0, (), (), ()))
print(ours.recv(1000))
"""


BECOMES = """
import os, resource, sys
user, processes, *command = sys.argv[1:]
os.setresgid(int(user), int(user), int(user))
os.setresuid(int(user), int(user), int(user))
resource.setrlimit(resource.RLIMIT_NPROC, (int(processes), int(processes)))
os.execv(command[0], command)
"""


def test_a_call_that_no_process_can_be_started_for_is_refused_and_the_server_goes_on(
    with_fewer_rights,
):
    folder = with_fewer_rights("user").keywords["launch"].folder
    room = "4"  # a supervisor, a zygote and two calls
    command = (SYSTEM_PYTHON, "-c", BECOMES, str(300_000 + os.getpid()), room)
    start = partial(start_server, launch=Launch(command=command, folder=folder))

    async def run():
        before = {*supervisors()}
        async with Pool(ALONE, start) as pool:
            (supervisor,) = {*supervisors()} - before
            held: list[asyncio.Task[object]] = []
            for name in ("takes_room", "takes_the_rest"):
                held.append(asyncio.create_task(pool.run(waits(name, 300))))
                await started(name)
            with pytest.raises(SandboxError, match="no process could be started"):
                await pool.run("1")
            zygote, *calls = below(supervisor)
            for each in held:
                each.cancel()
            await asyncio.gather(*held, return_exceptions=True)
            assert becomes(lambda: not {*calls} & {*parents()} and len(below(supervisor)) > 1)
            for process in (*below(zygote), zygote, supervisor):
                assert becomes(lambda process=process: state(process) == "S")
            return (await pool.run("6 * 7")).out, dict(pool.replaced)

    assert asyncio.run(run()) == (b"42\n", {})


def test_a_server_that_cannot_start_its_zygote_leaves_no_folder(with_fewer_rights):
    folder = with_fewer_rights("user").keywords["launch"].folder
    user = 200_000 + os.getpid()
    command = (SYSTEM_PYTHON, "-c", WITHOUT_ROOM, str(folder), str(user))
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "temporarily unavailable" in said
    left = [path for where in ("/dev/shm", "/tmp") for path in Path(where).glob("forethought-*")]
    assert user not in [path.stat().st_uid for path in left if path.exists()]
