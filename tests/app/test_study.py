"""The study over seeds, as far as it can be seen without one."""

import importlib.util
from pathlib import Path

import pytest

from disks import largest_file
from forethought.core.errors import RecipeError
from forethought.journal.files import explained

STUDY = Path(__file__).parents[2] / "benchmarks" / "study.py"


@pytest.fixture(scope="module")
def study():
    spec = importlib.util.spec_from_file_location("study", STUDY)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_copy_is_whole_or_is_not_there(study, tmp_path):
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    (run / "checkpoints" / "weights").write_text("all")
    left = tmp_path / ".copy.partial"  # by a process that was killed while it copied
    left.mkdir()
    (left / "half").write_text("")
    study.copy_whole(run, tmp_path / "copy")
    found = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.glob("copy/**/*"))
    assert found == ["copy/checkpoints", "copy/checkpoints/weights"]
    assert not left.exists()


def test_a_copy_that_fails_leaves_no_folder_of_its_name(study, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "dangling").symlink_to(tmp_path / "nothing")
    with pytest.raises(OSError, match="dangling"):
        study.copy_whole(tmp_path / "run", tmp_path / "copy")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_disk_that_is_too_full_for_a_copy_is_explained(study, tmp_path):
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    (run / "checkpoints" / "weights").write_bytes(bytes(20_000))
    copy, told = tmp_path / "copy", pytest.raises(RecipeError, match="MB are free")
    with largest_file(10_000), told, explained(copy):
        study.copy_whole(run, copy)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
