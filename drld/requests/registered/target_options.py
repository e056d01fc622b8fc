"""The options of `drlctl limit` for the target of a limit on requests."""

from __future__ import annotations

OPTIONS: dict[str, tuple[str | None, str | None]] = {
    "namespace": ("NAME", "Requests of this namespace."),
    "where": ("NAME=VALUE,...", "Requests whose descriptor has these pairs."),
    "per": ("NAME,...", "A bucket for each combination of values of these pairs."),
}
"""By key of `match`: the placeholder of its value in the help, and the help text."""
WORDS = {"unit": ("requests", "bytes")}
"""Words for a shell to complete, by key of a limit."""
