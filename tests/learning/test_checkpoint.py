"""A checkpoint is there whole, or not at all."""

import math
import multiprocessing
import os
import random
import re
import signal
import sys
import tempfile
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from disks import as_nobody, largest_file, on_small_disk
from forethought.core.errors import RecipeError
from forethought.learning.checkpoint import (
    Checkpoints,
    load_optimizer,
    read_state,
    refuse_damaged,
    save_optimizer,
)
from forethought.learning.optimizers import build_optimizers
from forethought.learning.seal import altered
from forethought.learning.settings import OptimizerSettings
from forethought.policy.local.models import load_local, with_adapters
from forethought.policy.local.value_head import add_value_head, save_value_head
from tiny import local_model, network


def writes(text):
    def write(folder):
        (folder / "weights").write_text(text)
        return {}

    return write


def breaks(folder):
    (folder / "weights").write_text("half")
    raise OSError(28, "No space left on device")


def read(folder):
    return (folder / "weights").read_text(), read_state(folder)


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
    expected = rf"checkpoint {tmp_path}/2: No space left on device; it needs.*free space.*--run"
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
        return save_optimizer(optimizer, folder / "optimizer_0.safetensors")

    with largest_file(20_000), pytest.raises(RecipeError, match=rf"checkpoint {tmp_path}/2.*free"):
        checkpoints.save("2", write, {})
    assert names(tmp_path) == []


def test_a_model_that_leaves_a_run_is_not_told_to_keep_fewer_checkpoints(tmp_path):
    exported = Checkpoints(folder=tmp_path / "models", elsewhere="another folder")
    with pytest.raises(RecipeError, match="No space left on device; it needs") as refusal:
        exported.save("mine", breaks, {})
    assert "free space on that disk or choose another folder, then run" in str(refusal.value)
    assert "checkpoints" not in str(refusal.value).partition("; it needs")[2]


def test_a_name_that_no_folder_can_have_is_not_called_a_full_disk(tmp_path):
    with pytest.raises(RecipeError, match="File name too long; name another path"):
        Checkpoints(folder=tmp_path).save("n" * 300, writes("one"), {})
    assert names(tmp_path) == []


def test_a_checkpoint_that_may_not_be_read_is_not_called_damaged():
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        saved = Checkpoints(folder=Path(name)).save("1", writes("one"), {})
        (saved / "files.json").chmod(0o600)
        with as_nobody(), pytest.raises(RecipeError) as refusal:
            refuse_damaged(saved)
    assert f"checkpoint {saved} cannot be read (Permission denied" in str(refusal.value)
    assert str(refusal.value).endswith("allow this user to read it")


def test_what_a_killed_process_left_half_written_is_neither_read_nor_in_the_way(tmp_path):
    checkpoints = Checkpoints(folder=tmp_path)
    (tmp_path / ".2.partial").mkdir()
    (tmp_path / ".2.partial" / "stale").write_text("half")
    assert checkpoints.newest(9) is None
    final = checkpoints.save("2", writes("two"), {})
    assert names(final) == ["files.json", "state.json", "weights"]


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
        contents = model.save(folder)
        cut(folder / "model.safetensors")
        return contents

    with pytest.raises(RecipeError, match=rf"checkpoint {tmp_path}/2: model\.safetensors.*--run"):
        checkpoints.save("2", write_short, {"n": 2})
    assert names(tmp_path) == ["1"]
    assert read_state(earlier) == {"n": 1}


def middle_of_the_numbers(path):
    """A place in a safetensors file halfway between its header and its end."""
    begin = 8 + int.from_bytes(path.read_bytes()[:8], "little")
    return (begin + path.stat().st_size) // 2


def write_model(folder):
    return local_model(num_hidden_layers=1, hidden_size=8, intermediate_size=8).save(folder)


def write_moments(folder):
    (optimizer,) = stepped(network(), "adamw", 1)
    return save_optimizer(optimizer, folder / "optimizer_0.safetensors")


def write_adapters(folder):
    local_model().save(folder.parent / "base")
    model = with_adapters(load_local(str(folder.parent / "base")), rank=2, alpha=4)
    return model.save(folder)


def write_head(folder):
    model = network()
    add_value_head(model)
    return save_value_head(model, folder)


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")
@pytest.mark.parametrize("write", [write_model, write_moments, write_adapters, write_head])
def test_a_bit_that_turned_on_its_way_to_the_disk_is_found_before_a_checkpoint_has_its_name(
    write, tmp_path
):
    checkpoints = Checkpoints(folder=tmp_path / "rl")
    earlier = checkpoints.save("1", write, {"n": 1})

    def write_wrongly(folder):
        contents = write(folder)
        (path,) = folder.glob("*.safetensors")
        turn_a_bit(path, middle_of_the_numbers(path))
        return contents

    words = rf"checkpoint {tmp_path}/rl/2: .*\.safetensors holds another .* than was written"
    with pytest.raises(RecipeError, match=words):
        checkpoints.save("2", write_wrongly, {"n": 2})
    assert "2" not in names(tmp_path / "rl")
    assert checkpoints.newest(9) == (1, earlier)


@pytest.mark.parametrize(
    "held",
    [
        torch.tensor([1.0, math.nan]),
        torch.tensor(1.0),
        torch.zeros(0),
        torch.tensor([[1, 2], [3, 4]], dtype=torch.int32).t(),
        torch.tensor([0.5, -0.0], dtype=torch.bfloat16),
    ],
)
def test_a_tensor_of_any_kind_that_came_back_is_the_one_in_memory(held, tmp_path):
    save_file({"one": held.contiguous()}, tmp_path / "a.safetensors")
    assert altered(tmp_path, {"a.safetensors": {"one": held}}) is None
    others = [held.double(), held.flatten()[None], torch.full_like(held, 7)]
    for other in others[: None if held.numel() else 2]:
        found = altered(tmp_path, {"a.safetensors": {"one": other}})
        assert found == "a.safetensors holds another one than was written"
    assert altered(tmp_path, {"*.safetensors": {}}) is not None


def test_a_minus_sign_of_zero_is_a_difference(tmp_path):
    save_file({"one": torch.tensor([0.0])}, tmp_path / "a.safetensors")
    assert altered(tmp_path, {"*": {"one": torch.tensor([-0.0])}}) is not None


def test_everything_is_on_the_disk_before_it_has_its_name_and_then_its_name_is(tmp_path):
    checkpoints = Checkpoints(folder=tmp_path / "rl")
    (tmp_path / "rl").mkdir()
    happened = []

    def note(frame, event, argument):
        if event == "c_call" and argument in (os.fsync, os.rename):
            happened.append(argument.__name__)

    sys.setprofile(note)
    try:
        final = checkpoints.save("1", write_model, {"n": 1})
    finally:
        sys.setprofile(None)
    each = [final, *final.iterdir()]
    assert happened == [*["fsync"] * len(each), "rename", "fsync"]


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


def checkpoints_of(folder, *steps, **settings):
    """Checkpoints of these steps, and what was said of them."""
    said = []
    checkpoints = Checkpoints(folder=folder, say=said.append, **settings)
    for step in steps:
        checkpoints.save(str(step), writes(f"step {step}"), {"step": step})
    return checkpoints, said


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def turn_a_bit(path, place=0):
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def empty(path):
    path.write_bytes(b"")


def gone(path):
    path.unlink()


DAMAGE = {
    "cut by a byte": (cut, "weights", "weights has 5 bytes, 6 were written"),
    "one bit turned": (turn_a_bit, "weights", "weights holds other bytes than were written"),
    "a file missing": (gone, "weights", "weights is missing"),
    "an empty state": (empty, "state.json", "state.json has 0 bytes, 11 were written"),
    "no state": (gone, "state.json", "state.json is missing"),
    "an empty record": (empty, "files.json", "files.json cannot be read"),
    "another record": (lambda path: path.write_text("[]"), "files.json", "cannot be read"),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_the_newest_is_whole_and_what_was_skipped_is_said_with_the_reason(how, tmp_path):
    damage, name, reason = DAMAGE[how]
    checkpoints, said = checkpoints_of(tmp_path, 1, 2)
    damage(tmp_path / "2" / name)
    (tmp_path / "notes").mkdir()
    (tmp_path / "3").write_text("a file, not a folder")
    assert checkpoints.newest(9) == (1, tmp_path / "1")
    assert len(said) == 1
    assert f"checkpoint {tmp_path}/2 is skipped: " in said[0]
    assert reason in said[0]
    checkpoints.forget_after(1)
    assert names(tmp_path) == ["1", "3", "notes"]


def test_that_none_is_whole_is_said(tmp_path):
    checkpoints, said = checkpoints_of(tmp_path / "rl", 1)
    empty(tmp_path / "rl" / "1" / "weights")
    assert checkpoints.newest(9) is None
    assert said[-1] == "no checkpoint of rl is whole: it begins again at step 0"


def test_files_that_others_put_into_a_checkpoint_do_not_damage_it(tmp_path):
    checkpoints, said = checkpoints_of(tmp_path, 1)
    (tmp_path / "1" / "README.md").write_text("my best")
    assert checkpoints.newest(1) == (1, tmp_path / "1")
    assert said == []


def test_what_cannot_be_read_at_all_is_not_passed_over(tmp_path):
    checkpoints, said = checkpoints_of(tmp_path, 1, 2)
    gone(tmp_path / "2" / "files.json")
    (tmp_path / "2" / "files.json").symlink_to("files.json")  # which the system does not follow
    with pytest.raises(RecipeError, match=rf"checkpoint {tmp_path}/2 .*restore it from a copy"):
        checkpoints.newest(2)
    assert said == []


def test_a_checkpoint_of_an_earlier_version_is_whole_when_its_files_open(tmp_path):
    checkpoints, said = checkpoints_of(tmp_path)
    model = local_model("llama", num_hidden_layers=1, hidden_size=8, intermediate_size=8)
    for step in ("1", "2"):
        checkpoints.save(step, model.save, {})
        gone(tmp_path / step / "files.json")
    assert checkpoints.newest(9) == (2, tmp_path / "2")
    cut(tmp_path / "2" / "model.safetensors")
    assert checkpoints.newest(9) == (1, tmp_path / "1")
    assert "model.safetensors cannot be read" in said[0]


def test_files_in_folders_below_are_part_of_a_checkpoint(tmp_path):
    checkpoints, said = checkpoints_of(tmp_path)

    def write(folder):
        (folder / "deep").mkdir()
        (folder / "deep" / "weights").write_text("deep")
        return {}

    checkpoints.save("1", write, {})
    assert checkpoints.newest(1) == (1, tmp_path / "1")
    cut(tmp_path / "1" / "deep" / "weights")
    assert checkpoints.newest(1) is None
    assert "weights has 3 bytes, 4 were written" in said[0]


def test_what_interrupted_processes_left_is_removed_and_nothing_else(tmp_path):
    checkpoints, _ = checkpoints_of(tmp_path, 1)
    for name in (".2.partial", ".0.gone", "notes", ".hidden", ".partial"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "content").write_text("something")
    checkpoints.forget_after(1)
    assert names(tmp_path) == [".hidden", ".partial", "1", "notes"]


def test_the_best_stay_beside_the_last(tmp_path):
    there, _ = checkpoints_of(
        tmp_path, *range(8), keep_last=2, keep_best=2, ranking=lambda: [9, 3, 7, 1, 0]
    )
    there.forget_old()
    assert names(tmp_path) == ["3", "6", "7"]


@pytest.mark.parametrize("keep_last", [1, 2])
def test_restarts_leave_no_more_checkpoints_than_are_to_be_kept(keep_last, tmp_path):
    (tmp_path / "notes").mkdir()
    for restart in range(3):
        checkpoints, _ = checkpoints_of(tmp_path, keep_last=keep_last)
        checkpoints.forget_after(restart * 2 - 1)
        for step in (restart * 2, restart * 2 + 1):
            checkpoints.save(str(step), writes("text"), {})
            checkpoints.forget_old()
    assert names(tmp_path) == [*(str(5 - n) for n in reversed(range(keep_last))), "notes"]


def saves_for_ever(folder):
    """Save checkpoints of a megabyte, each but the last two removed again."""
    checkpoints = Checkpoints(folder=folder)
    found = checkpoints.newest(10**9)
    first = 0 if found is None else found[0] + 1
    for step in range(first, 10**9):
        checkpoints.save(str(step), lambda path, step=step: fill(path, step), {"step": step})
        checkpoints.forget_old()


def fill(folder, step):
    for number in range(4):
        (folder / f"weights_{number}").write_bytes(bytes([step % 256]) * 250_000)
    return {}


def test_a_process_killed_at_any_moment_of_saving_leaves_a_whole_newest_checkpoint(tmp_path):
    started = time.monotonic()
    Checkpoints(folder=tmp_path).save("0", lambda path: fill(path, 0), {"step": 0})
    one_save = time.monotonic() - started
    moments, last = random.Random(5), 0
    context = multiprocessing.get_context("fork")
    for kill in range(20):
        process = context.Process(target=saves_for_ever, args=(tmp_path,))
        process.start()
        while max(Checkpoints(folder=tmp_path).numbered()) < last + kill % 3:
            assert process.is_alive()
            time.sleep(0.001)
        time.sleep(moments.uniform(0, 1.5 * one_save))
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        step, folder = Checkpoints(folder=tmp_path).newest(10**9)
        assert step >= last + kill % 3
        assert read_state(folder) == {"step": step}
        for number in range(4):
            assert (folder / f"weights_{number}").read_bytes() == bytes([step % 256]) * 250_000
        last = step
    Checkpoints(folder=tmp_path).forget_after(last)
    assert not [name for name in names(tmp_path) if name.startswith(".")]


ON_A_SMALL_DISK = """
import sys
from pathlib import Path
from forethought.core.errors import RecipeError
from forethought.learning.checkpoint import Checkpoints, read_state
from tiny import local_model

folder = Path(sys.argv[1])
checkpoints = Checkpoints(folder=folder / "checkpoints" / "rl", keep_last=1)
model = local_model("llama", num_hidden_layers=1, hidden_size=64, intermediate_size=8)
first = checkpoints.save("10", model.save, {"n": 10})
try:
    checkpoints.save("20", model.save, {"n": 20})
except RecipeError as error:
    print(error)
print(checkpoints.newest(99) == (10, first), read_state(first), sorted(
    path.name for path in first.parent.iterdir()
))
model.load_weights(first)
"""


def test_a_disk_that_fills_up_while_saving_keeps_the_checkpoint_before(tmp_path):
    disk = tmp_path / "disk"
    done = on_small_disk(disk, 150, "-c", ON_A_SMALL_DISK, disk)
    assert done.returncode == 0, done.stderr
    message, state = done.stdout.strip().splitlines()
    assert f"checkpoint {disk}/checkpoints/rl/20: " in message
    assert "No space left on device" in message
    found = re.search(
        r"it needs (.*) [kM]B, as an earlier one, (.*) kB are free; free space", message
    )
    needed, free = map(float, found.groups())
    assert 50 < needed < 100
    assert free < needed
    assert f"`{disk}/checkpoints` holds {needed} kB of checkpoints" in message
    assert state == "True {'n': 10} ['10']"


def test_a_place_that_takes_no_folder_is_not_called_full(tmp_path):
    (tmp_path / "file").write_text("in the way")
    checkpoints = Checkpoints(folder=tmp_path / "file", elsewhere="another shelf")
    expected = rf"see to it that {tmp_path}/file is a folder.* or choose another shelf"
    with pytest.raises(RecipeError, match=expected) as refusal:
        checkpoints.save("1", writes("one"), {})
    assert "space" not in str(refusal.value)
