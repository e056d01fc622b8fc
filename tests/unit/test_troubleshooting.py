"""docs/troubleshooting.md, and a page of messages, list every warning and error that the code can
log or raise.

The templates are read from the source. Their placeholders stand for any text, and a template is
listed if a code span of the page has its form. Templates without words (`%s`, `{}: {}`) pass on
what others wrote: a `Notice` about a peer, and remarks, which are returned.
Mistakes in configurations are left out: they name the key, and docs/configuration.md has all keys.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "drld"
PAGES = [ROOT / "docs" / name for name in ("troubleshooting.md", "messages-operations.md")]

ANY = "\0"
"""A placeholder."""
LOGGED = {"warning", "error", "exception", "critical", "warn"}
RAISED = {"DatapathError", "RegistryError", "Refused", "CompactedError"}
"""`UsageError` is absent: it is about options that a user has just typed, and names a remedy."""
MISTAKES = "ConfigError"
"""Raised with a list; those of `drld/config` are left out."""


def texts(node: ast.expr) -> Iterator[str]:
    """The texts that an expression may be, as templates."""
    match node:
        case ast.Constant(value=str(text)):
            yield re.sub(r"%[\d.]*[sdrf]", ANY, text)
        case ast.JoinedStr(values=values):
            yield "".join(
                str(value.value) if isinstance(value, ast.Constant) else ANY for value in values
            )
        case ast.IfExp(body=body, orelse=orelse):
            yield from texts(body)
            yield from texts(orelse)
        case ast.List(elts=elements):
            for element in elements:
                yield from texts(element)
        case ast.ListComp(elt=element):
            yield from texts(element)


def called(node: ast.Call) -> str:
    return ast.unparse(node.func).rpartition(".")[2]


def templates_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Call(func=ast.Attribute(), args=[first, *_]) if called(node) in LOGGED:
                yield from texts(first)
            case ast.Call(args=[first, *_]) if called(node) in RAISED or (
                called(node) == MISTAKES and SOURCE / "config" not in path.parents
            ):
                yield from texts(first)
            case ast.Call(args=[first, *_]) if called(node) == "Notice":
                yield from texts(first)
            case ast.Return(value=ast.expr() as value) if path.stem == "remarks":
                yield from texts(value)


def templates() -> list[str]:
    found = {text for path in SOURCE.rglob("*.py") for text in templates_of(path)}
    return sorted(text for text in found if re.search(r"[a-zA-Z]{2}", text))


def spans() -> list[str]:
    text = "\n".join(page.read_text() for page in PAGES)
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose)]


def form(template: str) -> str:
    """A regular expression for what the template may say."""
    return ".+".join(re.escape(part) for part in " ".join(template.split()).split(ANY))


def test_pages_list_all_that_the_source_says() -> None:
    found, known = templates(), spans()
    # Some that every start may log.
    assert "no kernel datapath, nfqueue instead: \0" in found
    assert "peer \0 is back" in found
    assert any(text.startswith("limit.burst: below 0.25 s of the rate") for text in found)
    assert len(found) > 80
    unlisted = [it for it in found if not any(re.fullmatch(form(it), span) for span in known)]
    assert [it.replace(ANY, "...") for it in unlisted] == []
