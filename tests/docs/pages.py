"""The pages of the documentation, and what can be found in them."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PACKAGE = ROOT / "src" / "forethought"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_BESIDE = re.compile(r"`([\w/]+\.py)`\)?, `(\w+(?:\.(?!py\b)\w+)?)`")


def title(page: Path) -> str:
    """A page's name for people."""
    return str(page.relative_to(ROOT))


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks in one language; "" for those that name none."""
    return [body for named, body in _FENCE.findall(page.read_text()) if named == language]


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return _FENCE.sub("", page.read_text())


def links(page: Path) -> list[str]:
    """Where a page's links inside the repository lead, without those to the web."""
    return [link for link in _LINK.findall(prose(page)) if "://" not in link]


def anchors(page: Path) -> set[str]:
    """The names of a page's headings in links, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def paths(page: Path) -> Iterator[str]:
    """What a page writes as code that is a path of this repository."""
    folders = {folder.name for place in (ROOT, PACKAGE) for folder in place.iterdir()}
    for span in _SPAN.findall(prose(page)):
        if not re.fullmatch(r"[\w./-]+", span) or span.startswith("runs/"):
            continue
        inside = "/" in span and span.partition("/")[0] in folders
        if inside or span.endswith((".py", ".md")):
            yield span


def found(path: str) -> list[Path]:
    """The files and folders that a written path may mean; a bare file may lie anywhere."""
    here = [place / path for place in (ROOT, PACKAGE) if (place / path).exists()]
    return here or ([] if "/" in path else sorted(PACKAGE.rglob(path)))


def functions(page: Path) -> list[tuple[str, str]]:
    """Each (path, name) of a name that a page writes beside a path."""
    return _BESIDE.findall(" ".join(prose(page).split()))
