"""All files, headings, modules and tests that the documents name exist."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
RESULTS = sorted((ROOT / "results").glob("*.md"))
TESTS = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
STANDS_FOR = re.compile(r"\b[A-Z]{4,}\b")
"""A name to be filled in: `drld/allocators/NAME.py`."""

documents = pytest.mark.parametrize(
    "document", [*DOCUMENTS, *RESULTS], ids=lambda path: f"{path.relative_to(ROOT)}"
)


def anchors(document: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a document."""
    text = re.sub(r"^```.*?^```", "", document.read_text(encoding="utf-8"), flags=re.M | re.S)
    headings = (
        re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", line)
        for line in re.findall(r"^#+ (.+)$", text, re.M)
    )
    return {slug(line) for line in headings}


def slug(heading: str) -> str:
    """The anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-")


@documents
def test_links_lead_somewhere(document: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", document.read_text(encoding="utf-8")):
        if link.startswith("https://"):
            continue
        name, _, anchor = link.partition("#")
        target = document.parent / name if name else document
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@documents
def test_files_modules_and_tests_are_there(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    for name in re.findall(
        r"(?<![\w/.])(?:bpf|docs|drld|results|scripts|testbed|tests)/[\w./-]*\w", text
    ):
        there = STANDS_FOR.search(name) or (ROOT / name).exists()
        assert there, name
    for module in re.findall(r"python -m ((?:testbed|tests)[\w.]*\w)", text):
        path = ROOT / module.replace(".", "/")
        assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), module
    for name in re.findall(r"`(test_\w+)`", text):
        assert f"def {name}(" in TESTS, name
    for selected in re.findall(r"pytest (?:\S+ )*?-k (\w+)", text):
        assert re.search(rf"def test_\w*{selected}", TESTS), selected


def test_sections_that_code_names_are_there() -> None:
    """As `docs/gossip.md#who-is-alive`, or `docs/chaos.md, "The fleet"`; a beginning is enough."""
    files = [
        path
        for folder in ("bpf", "drld", "scripts", "testbed", "tests")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".h", ".c", ".toml", ".bash") and path != Path(__file__)
    ]
    named = set()
    for path in files:
        text = re.sub(r"\n[ #*/]*", " ", path.read_text(encoding="utf-8"))
        for page, anchor, title in re.findall(
            r"\b((?:docs|results)/[\w-]+\.md)(?:#([a-z0-9-]+)|, \"([^\"]+)\")", text
        ):
            named.add((page, anchor or slug(title)))
    assert len(named) > 10
    missing = [
        (page, anchor)
        for page, anchor in sorted(named)
        if not any(known.startswith(anchor) for known in anchors(ROOT / page))
    ]
    assert missing == []


def test_the_readme_and_the_index_lead_to_every_document() -> None:
    named = {ROOT / "README.md", ROOT / "CHANGELOG.md"}
    for page in (ROOT / "README.md", ROOT / "docs" / "index.md"):
        links = re.findall(r"\]\(([^)#\s]+\.md)\)", page.read_text(encoding="utf-8"))
        named |= {(page.parent / link).resolve() for link in links}
    assert set(DOCUMENTS) <= named


def test_the_index_of_results_leads_to_every_page_of_figures() -> None:
    index = ROOT / "results" / "README.md"
    links = re.findall(r"^\| \[[\w-]+\]\(([\w-]+\.md)\) ", index.read_text(encoding="utf-8"), re.M)
    assert sorted(links) == [path.name for path in RESULTS if path != index]


def test_the_architecture_names_classes_and_methods_that_are_there() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    code = [path.read_text(encoding="utf-8") for path in (ROOT / "drld").rglob("*.py")]
    named = re.findall(r"`([A-Z]\w+)\.(\w+)`", text)
    assert len(named) > 10
    for owner, method in named:
        files = [text for text in code if re.search(rf"^class {owner}\b", text, re.MULTILINE)]
        assert any(f"def {method}(" in text for text in files), f"{owner}.{method}"


def test_all_files_that_the_installation_puts_into_etc_are_removed_again() -> None:
    """Otherwise the next boot would make folders for a daemon that is gone."""
    page = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```", page, re.M | re.S)
    install, remove = (
        next(block for block in blocks if first in block)
        for first in ("scripts/setup runtime\n", "apt purge drld")
    )
    made = {
        f"{path}{source.rpartition('/')[2]}" if path.endswith("/") else path
        for source, path in re.findall(r"^(?:install|cp) .*?(\S+) (/etc/\S+)", install, re.M)
    }
    assert len(made) == 3
    removed = subprocess.run(
        ["bash", "-c", f"systemctl() {{ :; }}; apt() {{ :; }}; rm() {{ echo $*; }}\n{remove}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert made <= {*removed.stdout.split()}
