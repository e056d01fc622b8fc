"""The reference in docs/configuration.md is that of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from drld.allocators import ALLOCATORS
from drld.capture.notation import PROTOCOLS
from drld.config import reference
from drld.config.document import SECTIONS
from drld.config.plane_tables import planes

ROOT = Path(__file__).resolve().parents[3]


def test_the_page_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert reference.main(["--check"]) == 0, "run: python -m drld.config.reference"
    assert capsys.readouterr().err == ""


def test_a_page_that_is_out_of_date_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = reference.PAGE.read_text(encoding="utf-8")
    page = tmp_path / "configuration.md"
    page.write_text(good.replace("1 to 65535", "1 to 65534"), encoding="utf-8")
    monkeypatch.setattr(reference, "PAGE", page)
    assert reference.main(["--check"]) == 1
    assert reference.main([]) == 0
    assert page.read_text(encoding="utf-8") == good
    assert reference.main(["--check"]) == 0


def test_the_package_has_all_example_files() -> None:
    files = (ROOT / "scripts/debian/drld.examples").read_text().split()
    assert files == [f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.toml"))]


def test_every_table_allocator_and_protocol_is_in_it() -> None:
    text = reference.reference()
    headings = re.findall(r"^## `\[+(\w+)\]+`", text, re.MULTILINE)
    assert sorted(headings) == sorted((*SECTIONS, *(plane.key for plane in planes())))
    for name in (*ALLOCATORS, *PROTOCOLS):
        assert f"`{name}`" in text


def test_the_reference_is_made_from_the_models() -> None:
    text = reference.reference()
    for row in (
        "| `id` | integer, 1 to 65535 | required | ",
        "| `rate` | rate, `10kbit` to `400gbit` | required | ",
        "| `ewma` | number, 0 to 0.999 | `0.1` | ",
        '| `mode` | `"enforce"`, `"shadow"` or `"pause"` | `"enforce"` | ',
        '| `period` | duration, `10ms` to `10s` | `"1s"`; wan `"5s"` | ',
        '| `in` | name of an interface, or a pattern such as `"veth*"` | one of '
        "`in` and `out` is required | ",
        "| `control` | absolute path, up to 107 bytes | `/run/drld/NAME.sock`; where that "
        "cannot be written, `$XDG_RUNTIME_DIR/drld/NAME.sock` | ",
        "| `margin` | number, from 0 to 1 | `0.2` | ",
        "| `depth_packets` | integer, from 1 to 1000000 | `12` | ",
    ):
        assert row in text, row
