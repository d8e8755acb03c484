"""A checkpoint is there whole, or not at all."""

import resource
from contextlib import contextmanager

import pytest
import torch

from forethought.core.errors import RecipeError
from forethought.learning.checkpoint import (
    Checkpoints,
    load_optimizer,
    read_state,
    save_optimizer,
)
from forethought.learning.optimizers import build_optimizers
from forethought.learning.settings import OptimizerSettings
from tiny import local_model, network


def writes(text):
    def write(folder):
        (folder / "weights").write_text(text)

    return write


def breaks(folder):
    (folder / "weights").write_text("half")
    raise OSError(28, "No space left on device")


def read(folder):
    return (folder / "weights").read_text(), read_state(folder)


@contextmanager
def largest_file(size):
    """The kernel refuses to let any file of this process grow beyond `size` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def names(folder):
    return sorted(each.name for each in folder.iterdir())


def test_what_was_saved_is_read(tmp_path):
    checkpoints = Checkpoints(folder=tmp_path / "rl")
    final = checkpoints.save("3", writes("three"), {"done": False})
    assert final == tmp_path / "rl" / "3"
    assert read(final) == ("three", {"done": False})
    assert names(tmp_path / "rl") == ["3"]


def test_a_writer_that_breaks_leaves_the_earlier_one_and_no_part_of_its_own(tmp_path):
    checkpoints = Checkpoints(folder=tmp_path)
    earlier = checkpoints.save("1", writes("one"), {"n": 1})
    expected = rf"checkpoint {tmp_path}/2: No space left on device; free space.*--run"
    with pytest.raises(RecipeError, match=expected):
        checkpoints.save("2", breaks, {"n": 2})
    assert names(tmp_path) == ["1"]
    assert read(earlier) == ("one", {"n": 1})


def test_a_checkpoint_that_could_not_be_replaced_stays_as_it_was(tmp_path):
    checkpoints = Checkpoints(folder=tmp_path)
    final = checkpoints.save("1", writes("one"), {"n": 1})
    with pytest.raises(RecipeError, match="No space left"):
        checkpoints.save("1", breaks, {"n": 2})
    assert read(final) == ("one", {"n": 1})


@pytest.mark.parametrize("width", [8, 64], ids=["tokenizer", "weights"])
def test_a_disk_that_refuses_a_part_of_a_real_model_is_explained(width, tmp_path):
    checkpoints = Checkpoints(folder=tmp_path)
    model = local_model("llama", num_hidden_layers=1, hidden_size=width, intermediate_size=8)
    with largest_file(8_000), pytest.raises(RecipeError, match=rf"checkpoint {tmp_path}/2.*free"):
        checkpoints.save("2", model.save, {})
    assert names(tmp_path) == []


def test_a_disk_that_refuses_the_moments_is_explained(tmp_path):
    checkpoints = Checkpoints(folder=tmp_path)
    optimizer = stepped(network(), "adamw", 1)[0]

    def write(folder):
        save_optimizer(optimizer, folder / "optimizer_0.safetensors")

    with largest_file(20_000), pytest.raises(RecipeError, match=rf"checkpoint {tmp_path}/2.*free"):
        checkpoints.save("2", write, {})
    assert names(tmp_path) == []


def test_what_a_killed_process_left_half_written_is_neither_read_nor_in_the_way(tmp_path):
    checkpoints = Checkpoints(folder=tmp_path)
    (tmp_path / ".2.partial").mkdir()
    (tmp_path / ".2.partial" / "stale").write_text("half")
    assert checkpoints.newest(9) is None
    assert names(checkpoints.save("2", writes("two"), {})) == ["state.json", "weights"]


def test_only_folders_that_are_named_by_a_step_count(tmp_path):
    checkpoints = Checkpoints(folder=tmp_path)
    for name in ("2", "10", "best"):
        checkpoints.save(name, writes(name), {})
    assert list(checkpoints.numbered()) == [2, 10]
    assert Checkpoints(folder=tmp_path / "none").numbered() == {}


@pytest.mark.parametrize(("last", "expected"), [(-1, None), (1, None), (5, 2), (10, 10), (99, 10)])
def test_the_newest_is_no_newer_than_what_is_known_to_be_committed(last, expected, tmp_path):
    checkpoints = Checkpoints(folder=tmp_path)
    for name in ("2", "10"):
        checkpoints.save(name, writes(name), {})
    found = checkpoints.newest(last)
    assert found == (None if expected is None else (expected, tmp_path / str(expected)))


def test_old_ones_are_forgotten_by_step_and_not_by_spelling(tmp_path):
    checkpoints = Checkpoints(folder=tmp_path, keep_last=2)
    for name in ("8", "9", "10", "11"):
        checkpoints.save(name, writes(name), {})
    checkpoints.forget_old()
    assert names(tmp_path) == ["10", "11"]
    checkpoints.forget_old()
    assert names(tmp_path) == ["10", "11"]


def test_later_ones_are_forgotten_by_step_and_named_ones_stay(tmp_path):
    checkpoints = Checkpoints(folder=tmp_path)
    for name in ("2", "9", "10", "best"):
        checkpoints.save(name, writes(name), {})
    checkpoints.forget_after(2)
    assert names(tmp_path) == ["2", "best"]
    checkpoints.forget_after(-1)
    assert names(tmp_path) == ["best"]
    Checkpoints(folder=tmp_path / "none").forget_after(-1)


def test_a_checkpoint_that_cannot_be_read_back_never_gets_its_name(tmp_path):
    checkpoints = Checkpoints(folder=tmp_path)
    model = local_model("llama", num_hidden_layers=1, hidden_size=8, intermediate_size=8)
    earlier = checkpoints.save("1", model.save, {"n": 1})

    def write_short(folder):
        model.save(folder)
        whole = (folder / "model.safetensors").read_bytes()
        (folder / "model.safetensors").write_bytes(whole[:-1])

    with pytest.raises(RecipeError, match=rf"checkpoint {tmp_path}/2: .*incomplete.*--run"):
        checkpoints.save("2", write_short, {"n": 2})
    assert names(tmp_path) == ["1"]
    assert read_state(earlier) == {"n": 1}


def stepped(model, kind, seed):
    """Optimisers of a model after one step along a drawn gradient."""
    optimizers = build_optimizers(model, OptimizerSettings(type=kind, rate=0.01))
    drawn = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=drawn)
    for optimizer in optimizers:
        optimizer.step()
    return optimizers


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_moments_come_back_to_the_bit_and_settings_do_not(kind, tmp_path):
    full_rates = (0.5, 0.02)
    for number, optimizer in enumerate(stepped(network(), kind, 1)):
        save_optimizer(optimizer, tmp_path / f"{number}")
        other = build_optimizers(network(), OptimizerSettings(type=kind, rate=0.5))[number]
        load_optimizer(other, tmp_path / f"{number}")
        one, two = optimizer.state_dict(), other.state_dict()
        assert one["state"].keys() == two["state"].keys() != set()
        for place, moments in one["state"].items():
            assert moments.keys() == two["state"][place].keys()
            assert all(torch.equal(moments[name], two["state"][place][name]) for name in moments)
        assert two["param_groups"][0]["full_rate"] == full_rates[number]


def test_an_optimiser_that_never_stepped_is_saved_and_read_too(tmp_path):
    (fresh,) = build_optimizers(network(), OptimizerSettings())
    save_optimizer(fresh, tmp_path / "moments")
    (used,) = stepped(network(), "adamw", 1)
    load_optimizer(used, tmp_path / "moments")
    assert used.state_dict()["state"] == {}


@pytest.mark.parametrize("content", [b"", b"{", b"\xff"])
def test_a_damaged_state_is_named_with_what_to_do(content, tmp_path):
    (tmp_path / "state.json").write_bytes(content)
    with pytest.raises(RecipeError, match=r"state\.json is damaged.*restore it.*--run"):
        read_state(tmp_path)


def test_damaged_moments_are_named_with_what_to_do(tmp_path):
    (optimizer,) = stepped(network(), "adamw", 1)
    moments = tmp_path / "optimizer_0.safetensors"
    save_optimizer(optimizer, moments)
    moments.write_bytes(moments.read_bytes()[:-1])
    with pytest.raises(RecipeError, match=r"optimizer_0\.safetensors is damaged.*restore it"):
        load_optimizer(optimizer, moments)
    moments.unlink()
    with pytest.raises(RecipeError, match=r"optimizer_0\.safetensors is damaged"):
        load_optimizer(optimizer, moments)
