"""Disks that fill up or may not be read: a small one in memory, a limit, another user."""

import os
import resource
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

ALONE = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c")
MOUNTED = 'mount -t tmpfs -o size=$1k tmpfs "$2" && shift 2 && exec "$@"'


NOBODY = 65534


@contextmanager
def largest_file(size):
    """The kernel refuses to let any file of this process grow beyond `size` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def as_nobody():
    """This process has the rights of nobody. Skips the test where it may not change its own."""
    if os.geteuid() != 0:
        pytest.skip("giving up and regaining rights takes root")
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def on_small_disk(place, kilobytes, *words):
    """Run Python with a disk of so many kilobytes mounted at `place`; the finished process.

    Skips the test where users have no mounts of their own.
    """
    place.mkdir(exist_ok=True)
    mounted = [*ALONE, MOUNTED, "sh", str(kilobytes), str(place)]
    if subprocess.run([*mounted, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this system gives its users no mounts of their own")
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    return subprocess.run(
        [*mounted, sys.executable, *map(str, words)],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
    )
