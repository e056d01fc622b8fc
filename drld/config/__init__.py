"""The configuration: files of TOML in, a validated `drld.spec.LimiterSpec` out."""

from __future__ import annotations

from drld.config.document import from_document
from drld.config.files import (
    Files,
    drop_ins,
    load,
    load_registry,
    parse,
    parsed,
    read,
    read_drop_ins,
    read_limits,
    read_shared,
)
from drld.config.limits import read_limit
from drld.config.remarks import remarks

__all__ = [
    "Files",
    "drop_ins",
    "from_document",
    "load",
    "load_registry",
    "parse",
    "parsed",
    "read",
    "read_drop_ins",
    "read_limit",
    "read_limits",
    "read_shared",
    "remarks",
]
