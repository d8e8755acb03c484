"""How full a folder is: what lies too deep to be looked at quickly counts as too much."""

import pytest

from forethought.tools.sandbox.inside import scratch


@pytest.mark.parametrize(("levels", "too_much"), [(32, False), (33, True), (300, True)])
def test_folders_may_be_thirty_two_deep(tmp_path, levels, too_much):
    (tmp_path / "/".join("d" * levels)).mkdir(parents=True)
    assert scratch.exceeds(str(tmp_path), 1 << 20, 4096) == too_much
    scratch.remove(str(tmp_path))
    assert not tmp_path.exists()


def test_bytes_and_files_are_counted_below_a_folder(tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "file").write_bytes(bytes(8192))
    assert not scratch.exceeds(str(tmp_path), 1 << 14, 2)
    assert scratch.exceeds(str(tmp_path), 4096, 2)
    assert scratch.exceeds(str(tmp_path), 1 << 14, 1)
