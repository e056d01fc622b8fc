"""Pages of results/: measured tables and plots, each written by a command.

A page has a title, an introduction and sections. Each section follows a line `<!-- NAME -->`. A
command replaces the sections that it measured. All others stay, so a page grows by parts.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.harness.markdown import prose

RESULTS = Path(__file__).parents[2] / "results"
PLOTS = "plots"
"""The folder of the images beside the pages."""
_MARK = re.compile(r"^<!-- ([\w-]+) -->$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Page:
    """A page and the sections that it may have."""

    name: str
    """The file's name without its ending."""
    title: str
    command: str
    """The command that writes the page."""
    explained: str
    """The document that explains the figures, relative to the page."""
    sections: Sequence[str]
    """All names, in order. A section with another name is dropped."""
    overview: Callable[[Mapping[str, str]], str] | None = None
    """Makes the text above the sections from the sections by name."""

    def updated(self, text: str, new: Mapping[str, str]) -> str:
        """The page with new sections; `text` is the page so far, or empty."""
        _, *parts = _MARK.split(text)
        found = {**dict(zip(parts[::2], parts[1::2], strict=True)), **new}
        known = {name: found[name].strip() for name in self.sections if name in found}
        blocks = [
            f"# {self.title}",
            prose(f"`{self.command}` writes this page. [{Path(self.explained).name}]"
                  f"({self.explained}) explains it."),
            *([self.overview(known)] if self.overview else []),
            *(f"<!-- {name} -->\n\n{section}" for name, section in known.items()),
        ]  # fmt: skip
        return "\n\n".join(blocks) + "\n"

    def write(
        self, new: Mapping[str, str], plots: Iterable[Path] = (), directory: Path = RESULTS
    ) -> Path:
        """Write new sections and copy their images; return the page's file."""
        file = directory / f"{self.name}.md"
        (directory / PLOTS).mkdir(parents=True, exist_ok=True)
        for plot in plots:
            shutil.copy(plot, directory / PLOTS)
        text = file.read_text(encoding="utf-8") if file.exists() else ""
        file.write_text(self.updated(text, new), encoding="utf-8")
        return file


def image(title: str, file: str) -> str:
    """A link to an image of a section."""
    return f"![{title}]({PLOTS}/{file})"
