"""The command `doctor sandbox`: a table of tiers, of what each withstood, and of the host."""

import pytest

from app.small import forethought


def test_the_doctor_shows_tiers_attacks_and_facts(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert forethought("doctor", "sandbox", "--tool.memory_mb=128", "--tool.processes=8") == 0
    shown = capsys.readouterr().out
    for word in ("kernel", "Landlock", "namespaces", "landlock-uid", "remote", "withstood"):
        assert word in shown
    assert "SUCCEEDED" not in shown
    assert 'tool.tier = "auto" runs programs in the tier "namespaces" here.' in shown


def test_a_module_that_is_not_there_is_named_for_every_tier(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert forethought("doctor", "sandbox", "--tool.preload=['nonsense']") == 2
    seen = capsys.readouterr()
    assert "No module named" in seen.out
    assert "refused" in seen.out
    assert "no tier withstands" in seen.err


def test_the_doctor_looks_only_at_what_it_knows(capsys):
    with pytest.raises(SystemExit):
        forethought("doctor", "teeth")
    assert "sandbox" in capsys.readouterr().err
