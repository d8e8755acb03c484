"""Disks that fill up: a small one in memory that only one command sees."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ALONE = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c")
MOUNTED = 'mount -t tmpfs -o size=$1k tmpfs "$2" && shift 2 && exec "$@"'


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
