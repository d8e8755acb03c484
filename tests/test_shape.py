"""The shape that the code keeps: small files and functions, documented, with examples that run."""

import ast
import doctest
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "forethought"
FILES = sorted(SOURCE.rglob("*.py"))
TREES = {path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text()) for path in FILES}
ROOMS = sorted(path.name for path in SOURCE.iterdir() if (path / "__init__.py").is_file())

LONGEST_FILE = 300
LONGEST_FUNCTION = 50
FORBIDDEN_NAMES = {"utils", "common", "manager", "helper", "helpers", "base", "misc"}

# Where a process begins or ends: whatever happened there must reach the one who waits for it.
PROCESS_EDGES = {
    "core/errors.py",
    "policy/local/worker.py",
    "tools/sandbox/inside/program.py",
    "tools/sandbox/inside/supervisor.py",
    "tools/sandbox/inside/zygote.py",
}

GOLDEN = {
    "01_group_advantages",
    "02a_grpo_t",
    "02b_grpo_t_kl",
    "02c_grpo_original_seq_mean",
    "03_grpo_tcr",
    "04_grpo_scr_gspo",
    "05_dapo",
    "06_dr_grpo",
    "07_cispo",
    "08_reinforcepp_rloo",
    "09_turn_level",
    "10_gigpo",
    "11_tis_icepop",
    "12_kl_estimators",
    "13_entropy_control",
    "14_passk_majk_stats",
    "15_loss_aggregation",
    "16_passk_training",
    "17_data_curriculum",
    "18_other_losses",
    "19_negative_examples",
    "20_trajectory_quality",
    "21_mas_orchestra",
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def nodes(kind):
    return [
        (name, node)
        for name, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, kind)
    ]


def members(tree, inside_private=False):
    """The functions and classes of a module that others may use, methods included."""
    for node in tree.body:
        private = inside_private or (
            isinstance(node, Function | ast.ClassDef) and node.name.startswith("_")
        )
        if isinstance(node, Function | ast.ClassDef) and not private:
            yield node
        if isinstance(node, ast.ClassDef):
            yield from members(node, private)


def test_the_package_is_found():
    assert len(FILES) > 50
    assert {"core", "app", "learning", "tools"} <= set(ROOMS)


def test_files_are_short():
    lengths = {path: len(path.read_text().splitlines()) for path in FILES}
    assert {path: length for path, length in lengths.items() if length > LONGEST_FILE} == {}


def test_functions_are_short():
    lengths = {
        f"{name}:{node.name}": (node.end_lineno or 0) - node.lineno + 1
        for name, node in nodes(Function)
    }
    assert {name: length for name, length in lengths.items() if length > LONGEST_FUNCTION} == {}


def test_modules_are_documented():
    silent = [name for name, tree in TREES.items() if tree.body and not ast.get_docstring(tree)]
    assert silent == []


def test_classes_and_functions_are_documented():
    silent = [
        f"{name}:{node.name}"
        for name, tree in TREES.items()
        for node in members(tree)
        if not ast.get_docstring(node)
    ]
    assert silent == []


def test_functions_say_what_they_take_and_give():
    untyped = [
        f"{name}:{node.name}"
        for name, node in nodes(Function)
        if node.returns is None
        or any(
            each.annotation is None and each.arg not in ("self", "cls")
            for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        )
    ]
    exempt = {"__post_init__", "__init__"}
    assert [name for name in untyped if name.rpartition(":")[2] not in exempt] == []


def broad(handler):
    """Whether an `except` takes everything, or nearly."""
    caught = [] if handler.type is None else [*ast.walk(handler.type)]
    names = {node.id for node in caught if isinstance(node, ast.Name)}
    return handler.type is None or bool(names & {"Exception", "BaseException"})


def raises_again(handler):
    return any(isinstance(node, ast.Raise) and node.exc is None for node in ast.walk(handler))


def test_errors_are_swallowed_nowhere_but_at_the_edges():
    swallowing = {
        name for name, node in nodes(ast.ExceptHandler) if broad(node) and not raises_again(node)
    }
    assert swallowing <= PROCESS_EDGES


def test_nothing_is_left_for_later():
    marks = re.compile(r"\b(TODO|FIXME|XXX|HACK|NotImplementedError)\b")
    assert [path.name for path in FILES if marks.search(path.read_text())] == []


def test_nothing_is_printed():
    printing = [
        name
        for name, node in nodes(ast.Call)
        if isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert printing == []


def test_modules_are_named_after_what_they_hold():
    names = {part for path in FILES for part in path.relative_to(SOURCE).with_suffix("").parts}
    assert names & FORBIDDEN_NAMES == set()


def test_tests_are_no_packages_and_mirror_the_rooms():
    assert list((ROOT / "tests").rglob("__init__.py")) == []
    assert [room for room in ROOMS if not list((ROOT / "tests" / room).glob("test_*.py"))] == [
        room for room in ROOMS if room == "core"
    ]


def test_the_golden_files_are_all_there():
    assert {path.stem for path in (ROOT / "tests" / "golden").glob("*.json")} == GOLDEN


def test_the_tree_in_the_readme_names_every_room():
    tree = (ROOT / "README.md").read_text().partition("## The tree")[2]
    assert [room for room in ROOMS if not re.search(rf"^  {room}/ +\S", tree, re.MULTILINE)] == []


def with_examples():
    """The modules whose docstrings hold examples, found without importing them."""
    shown = [name for name in TREES if ">>> " in (SOURCE / name).read_text()]
    return ["forethought." + name.removesuffix(".py").replace("/", ".") for name in shown]


def test_most_rooms_show_examples():
    assert len(with_examples()) > 20


@pytest.mark.parametrize("name", with_examples())
def test_the_examples_in_docstrings_are_true(name):
    module = importlib.import_module(name)
    result = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.attempted > 0
    assert result.failed == 0
