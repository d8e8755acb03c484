"""How much memory is left, by made-up files of a kernel: the least of all limits counts."""

import psutil
import pytest

from forethought.tools.host_memory import free_memory
from forethought.tools.sandbox.pool import most_aside
from forethought.tools.settings import PythonSettings

KB = 1024
V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
V2 = ("memory.max", "memory.current", "inactive_file")


def member(root, *lines):
    """The groups that a process is in."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text("\n".join(lines))


def group(folder, names, limit, usage, given_back=0):
    """The files of one group."""
    folder.mkdir(parents=True, exist_ok=True)
    limit_name, usage_name, given_back_name = names
    (folder / limit_name).write_text(f"{limit}\n")
    (folder / usage_name).write_text(f"{usage}\n")
    (folder / "memory.stat").write_text(f"anon 5\n{given_back_name} {given_back}\nslab 7\n")


@pytest.mark.parametrize(
    ("line", "place", "names"),
    [
        ("0::/box/7", "box/7", V2),
        ("0::/box/7", "unified/box/7", V2),
        ("4:memory:/box/7", "memory/box/7", V1),
        ("4:cpu,memory:/box/7", "memory/box/7", V1),
        ("0::/", ".", V2),
        ("0::/what/the/host/calls/it", ".", V2),
        ("4:memory:/what/the/host/calls/it", "memory", V1),
        ("0::/../other", ".", V2),
    ],
)
def test_a_limit_leaves_what_is_not_used_or_is_given_back(tmp_path, line, place, names):
    member(tmp_path, "9:name=systemd:/", line)
    group(tmp_path / "sys/fs/cgroup" / place, names, 100 * KB, 70 * KB, 20 * KB)
    assert free_memory(tmp_path) == 50 * KB


def test_a_limit_around_the_own_group_holds_too(tmp_path):
    member(tmp_path, "0::/slice/box")
    group(tmp_path / "sys/fs/cgroup/slice/box", V2, 100 * KB, 10 * KB)
    group(tmp_path / "sys/fs/cgroup/slice", V2, 200 * KB, 160 * KB)
    assert free_memory(tmp_path) == 40 * KB


def test_a_limit_of_another_group_does_not_hold(tmp_path):
    member(tmp_path, "0::/box", "2:cpu:/other")
    group(tmp_path / "sys/fs/cgroup/box", V2, 100 * KB, 10 * KB)
    group(tmp_path / "sys/fs/cgroup/other", V2, 20 * KB, 10 * KB)
    group(tmp_path / "sys/fs/cgroup/memory/other", V1, 20 * KB, 10 * KB)
    assert free_memory(tmp_path) == 90 * KB


def test_a_group_that_is_over_its_limit_has_nothing_left(tmp_path):
    member(tmp_path, "0::/")
    group(tmp_path / "sys/fs/cgroup", V2, 100 * KB, 130 * KB)
    assert free_memory(tmp_path) == 0


@pytest.mark.parametrize(("names", "most"), [(V1, 2**63 - 4096), (V2, "max")])
def test_without_a_limit_it_is_what_the_host_has(tmp_path, names, most):
    member(tmp_path, "0::/", "4:memory:/")
    group(tmp_path / "sys/fs/cgroup", names, most, 0)
    group(tmp_path / "sys/fs/cgroup/memory", names, most, 0)
    assert 0 < free_memory(tmp_path) <= psutil.virtual_memory().total


def test_without_groups_it_is_what_the_host_has(tmp_path):
    assert 0 < free_memory(tmp_path) <= psutil.virtual_memory().total
    assert 0 < free_memory() <= psutil.virtual_memory().total


def test_long_programs_step_aside_only_where_a_container_has_room(tmp_path):
    settings = PythonSettings(servers=1, calls_per_server=2, memory_mb=16)
    member(tmp_path, "0::/")
    group(tmp_path / "sys/fs/cgroup", V2, 100 * 2**20, 50 * 2**20)
    assert most_aside(settings, free_memory(tmp_path)) == 1
