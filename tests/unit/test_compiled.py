"""What `DRLD_COMPILED=1 scripts/test` tests is compiled, and what other runs test is not."""

import os
import re
from importlib.util import find_spec
from pathlib import Path

import drld

SETUP = Path(__file__).parents[2] / "setup.py"
NAMED = re.findall(r"^([a-z/]+): ([a-z_ ]+)$", SETUP.read_text(), re.MULTILINE)
WANTED = os.environ.get("DRLD_COMPILED") == "1"


def test_the_modules_that_setup_names_are_compiled_if_wanted() -> None:
    """Compiled files of an earlier run would hide changes: `scripts/setup` removes them."""
    names = [f"drld.{folder.replace('/', '.')}.{it}" for folder, its in NAMED for it in its.split()]
    assert len(names) > 20
    origins = {name: Path(str(spec.origin)) for name in names if (spec := find_spec(name))}
    assert set(origins) == set(names)
    assert {name for name, it in origins.items() if it.suffix == ".so"} == set(names * WANTED)
    assert drld.compiled() is WANTED
