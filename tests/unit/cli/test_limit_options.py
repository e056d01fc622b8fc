"""`drlctl limit add` and `set` have an option for each key of `[[limit]]`."""

from __future__ import annotations

import pytest

from drld.cli.limit import limit
from drld.config.plane_tables import planes

NO_OPTION = {
    "id": "it is what `set` finds the limit by; `add` has --id",
    "match": "each of its keys has an option",
    "shares": "a table with a value for each limiter, which a file can have",
    "weights": "a table with a value for each limiter, which a file can have",
}
"""The keys without an option, with the reason."""
OTHERS = {"add": {"tables_file", "id"}, "set": {"limit"}}
"""The arguments and options that are no keys, or, with `id`, those of one verb alone."""
OF_ALL = {"fleet", "save", "file", "wait_s", "as_json"}
"""The options of both verbs that are no keys."""


@pytest.mark.parametrize("verb", ["add", "set"])
def test_each_key_of_a_limit_has_an_option(verb: str) -> None:
    options = {str(it.name) for it in limit.commands[verb].params} - OTHERS[verb] - OF_ALL
    keys = {name for plane in planes() for name in plane.limit.model_fields}
    match = {
        f"match_{field.alias or name}"
        for plane in planes()
        for name, field in plane.match.model_fields.items()
    }
    assert not (lacking := (keys | match) - options - NO_OPTION.keys()), (
        f"drlctl limit {verb} lacks options for {sorted(lacking)}: add them to drld/cli/limit.py "
        "or target_options.py, or name them here with the reason"
    )
    assert not (extra := options - keys - match), f"no table has the keys {sorted(extra)}"
    assert keys >= NO_OPTION.keys()
