"""What the documentation says is there is there, and its examples run."""

import contextlib
import re
import shlex
import tomllib

import pytest

from docs.pages import (
    DOCS,
    PACKAGE,
    PAGES,
    ROOT,
    anchors,
    blocks,
    found,
    functions,
    links,
    paths,
    title,
)
from docs.recipe_keys import refreshed, tables
from forethought.app.cli import main
from forethought.app.recipe import Recipe, checked

GUIDE = DOCS / "guides" / "recipe.md"
TREE = (ROOT / "README.md").read_text().partition("## The tree")[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SITE = tomllib.loads((ROOT / "zensical.toml").read_text())
EMBEDDED = tomllib.loads((PACKAGE / "app" / "quickstart.toml").read_text())
every_page = pytest.mark.parametrize("page", PAGES, ids=title)


def pages_with(language):
    return pytest.mark.parametrize(
        "page", [page for page in PAGES if blocks(page, language)], ids=title
    )


@pages_with("python")
def test_the_examples_of_a_page_run_one_after_the_other(page, tmp_path):
    names = {"__name__": "example"}
    with contextlib.chdir(tmp_path):
        for block in blocks(page, "python"):
            exec(compile(block, title(page), "exec"), names)


@pages_with("toml")
def test_the_recipes_of_a_page_are_valid_over_the_embedded_one(page):
    for block in blocks(page, "toml"):
        recipe = checked(EMBEDDED | tomllib.loads(block), title(page))
        assert recipe != checked(EMBEDDED, "embedded"), "an example that changes nothing"


@every_page
def test_every_path_that_a_page_mentions_exists(page):
    assert [path for path in paths(page) if not found(path)] == []


@every_page
def test_every_name_that_a_page_puts_beside_a_path_is_defined_there(page):
    missing = [
        f"{path}, {name}"
        for path, name in functions(page)
        if not any(defines(file.read_text(), name.rpartition(".")[2]) for file in found(path))
    ]
    assert missing == []


@every_page
def test_every_link_inside_the_repository_leads_somewhere(page):
    broken = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path) if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


@every_page
def test_every_command_that_a_page_shows_is_known(page, capsys):
    lines = [line for block in blocks(page, "") for line in block.splitlines()]
    calls = [shlex.split(line, comments=True) for line in lines if "forethought " in line]
    commands = {
        call[1] for call in calls if len(call) > 1 and call[0].rpartition("/")[2] == "forethought"
    }
    for command in commands:
        with pytest.raises(SystemExit) as ended:
            main([command, "--help"])
        assert ended.value.code == 0, command


@every_page
def test_every_make_target_that_a_page_mentions_is_in_the_makefile(page):
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    mentioned = re.findall(r"(?:^|`)make (\w+)", page.read_text(), re.MULTILINE)
    assert set(mentioned) <= set(targets)


@every_page
def test_the_checkpoint_of_the_quickstart_that_a_page_names_is_its_last(page):
    named = re.findall(r"runs/quickstart/checkpoints/rl/(\d+)", page.read_text())
    assert set(named) <= {str(EMBEDDED["rl"]["steps"] - 1)}


def test_the_guide_says_of_every_recipe_key_what_its_model_says():
    guide = GUIDE.read_text()
    assert guide.splitlines() == refreshed(guide).splitlines(), (
        "run: python tests/docs/recipe_keys.py docs/guides/recipe.md"
    )


def test_the_guide_has_the_sections_that_recipes_have_each_with_a_table():
    headings = re.findall(r"^## (.*)$", GUIDE.read_text(), re.MULTILINE)
    assert headings == list(tables(Recipe))
    assert GUIDE.read_text().count("\n|---|---|---|\n") == len(headings)


def test_the_guide_names_every_plain_key_at_the_top_of_a_recipe():
    covered = {heading.split("`")[1].partition(".")[0] for heading in tables(Recipe)}
    head = GUIDE.read_text().partition("\n## ")[0]
    assert [key for key in Recipe.model_fields if key not in covered | {"seed"}] == []
    assert "`seed`" in head


def test_the_tree_in_the_readme_lists_every_room_and_no_other():
    rooms = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert set(re.findall(r"^  (\w+)/", TREE, re.MULTILINE)) == rooms


def test_the_tour_names_every_room():
    table = (DOCS / "tour.md").read_text().partition("## Nouns")[0]
    rooms = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert rooms <= set(re.findall(r"`(\w+)/`", table))


def test_every_dependency_has_a_decision():
    decided = " ".join(page.read_text() for page in sorted((DOCS / "decisions").glob("*.md")))
    extras = PROJECT["project"]["optional-dependencies"]
    wanted = PROJECT["project"]["dependencies"]
    wanted = [*wanted, *extras["8bit"], *extras["dev"], *extras["docs"]]
    names = [re.split(r"[><=~!\[]", each)[0].lower() for each in wanted]
    assert [name for name in names if name not in decided.lower()] == []


def test_the_site_shows_every_page_once():
    listed = [link for part in SITE["project"]["nav"] for link in leaves(part)]
    assert sorted(listed) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


def test_the_start_page_links_to_every_decision():
    decisions = {f"decisions/{page.name}" for page in (DOCS / "decisions").glob("*.md")}
    assert decisions <= set(links(DOCS / "index.md"))


def leaves(part):
    """The pages below one entry of the site's navigation."""
    if isinstance(part, str):
        return [part]
    inner = part.values() if isinstance(part, dict) else part
    return [page for each in inner for page in leaves(each)]


def defines(source, name):
    """Whether a file defines a function, a class or a constant."""
    return re.search(rf"(?:def|class) {name}\b|^{name}\b", source, re.MULTILINE) is not None
