"""Configuration files and their drop-ins, as they are on disk: TOML, not validated."""

from __future__ import annotations

import os
import sys
from codecs import BOM_UTF8
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from drld.config.document import from_document, limits_of
from drld.config.layers import Layer, merge
from drld.config.problems import Problems
from drld.config.registry import read_registry
from drld.config.regular_file import check_folder, check_owner, check_writers, read_regular
from drld.config.schema import RegistryTable
from drld.config.sections import read_section
from drld.errors import ConfigError
from drld.spec import LimiterSpec, RegistrySpec

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MAX_FILE_BYTES = 64_000_000
"""Largest file: more than ten thousand limits need, with every key of each."""


@dataclass(frozen=True, slots=True)
class Files:
    """A configuration file and its drop-ins, as they were read."""

    file: str
    document: Mapping[str, object]
    drop_ins: tuple[Layer, ...] = ()
    """The drop-ins in the order of their names."""

    def spec(self, *changes: Layer) -> LimiterSpec:
        """Validate what they make together, after these changes.

        Raises:
            ConfigError: it cannot be used; `problems` has a line for each mistake.
        """
        return from_document(self.document, self.file, (*self.drop_ins, *changes))

    def merged(self, *changes: Layer) -> Mapping[str, object]:
        """The file and its drop-ins as one document, after these changes."""
        limits = limits_of(self.document)
        if not isinstance(limits, list):
            return self.document
        layers = (*self.drop_ins, *changes)
        return {**self.document, "limit": merge(limits, layers, Problems(self.file))}


def load(path: str | os.PathLike[str]) -> LimiterSpec:
    """Read and validate a configuration file and its drop-ins.

    Raises:
        ConfigError: they cannot be read or used; `problems` has a line for each mistake.
    """
    return read(path).spec()


def read(path: str | os.PathLike[str], layers: tuple[Layer, ...] | None = None) -> Files:
    """Read a configuration file and its drop-ins, FILE.d/*.toml, in the order of their names.

    With `layers` it has these drop-ins instead.

    Raises:
        ConfigError: one cannot be read, is not TOML, or is a drop-in with more than limits.
    """
    document, file = read_document(path, check_writers)
    try:
        check_folder(Path(path))
    except (OSError, ValueError) as error:
        raise ConfigError([f"{file}: {_reason(error)}"]) from error
    return Files(file, document, read_drop_ins(file) if layers is None else layers)


def read_drop_ins(file: str) -> tuple[Layer, ...]:
    """Read the drop-ins of a configuration file, in the order of their names.

    Raises:
        ConfigError: as `read`.
    """
    directory = drop_ins(file)
    try:
        found = sorted(drop_in for drop_in in directory.iterdir() if _is_drop_in(drop_in.name))
        check_writers(directory.stat())
        check_owner(Path(file), directory)
    except FileNotFoundError:
        found = []
    except (OSError, ValueError) as error:
        raise ConfigError([f"{directory}: {_reason(error)}"]) from error
    problems: list[str] = []
    layers: list[Layer] = []
    for drop_in in found:
        try:
            theirs, source = read_document(drop_in, check_writers)
            limits = theirs.get("limit", [])
            if not isinstance(limits, list) or theirs.keys() - {"limit"}:
                raise ConfigError([f"{source}: must have [[limit]] tables, and nothing else"])
            layers.append(Layer(source, limits))
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return tuple(layers)


def drop_ins(file: str) -> Path:
    """The directory with the drop-ins of a configuration file."""
    return Path(f"{file}.d")


def _is_drop_in(name: str) -> bool:
    return name.endswith(".toml") and not name.startswith(".")


def read_limits(path: str | os.PathLike[str]) -> list[object]:
    """The `[[limit]]` tables of a file that has nothing else, not validated.

    Raises:
        ConfigError: it cannot be read, or has something else.
    """
    document, file = read_document(path)
    limits = document.get("limit")
    if not isinstance(limits, list) or not limits or document.keys() != {"limit"}:
        raise ConfigError([f"{file}: must have [[limit]] tables, and nothing else"])
    return limits


def read_shared(path: str | os.PathLike[str]) -> Mapping[str, object]:
    """The tables of a file that each host of a fleet has, such as `[[limit]]` and `[requests]`,
    not validated.

    Raises:
        ConfigError: it cannot be read, or has a table with a host's place in the fleet.
    """
    document, file = read_document(path)
    own = [key for key in ("limiter", "peer", "gossip", "registry") if key in document]
    if own:
        claim = "must be left out: each host's file has its own"
        raise ConfigError([f"{file}: {key}: {claim}" for key in own])
    return document


def read_document(
    path: str | os.PathLike[str], check: Callable[[os.stat_result], None] = lambda _: None
) -> tuple[Mapping[str, object], str]:
    """Read a TOML file that passes `check`; return the document, and the file's name for
    messages."""
    file = os.fspath(path)
    try:
        data = read_regular(path, MAX_FILE_BYTES + 1, check)
    except (OSError, ValueError) as error:
        raise ConfigError([f"{file}: {_reason(error)}"]) from error
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError([f"{file}: more than {MAX_FILE_BYTES} bytes"])
    # Editors of Windows mark UTF-8 in front of the text.
    data = data.removeprefix(BOM_UTF8)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError([f"{file}: must be UTF-8, and is not at line {line}"]) from error
    return parsed(text, file), file


def _reason(error: OSError | ValueError) -> object:
    """The reason why a file cannot be read, without the file's name."""
    return (error.strerror if isinstance(error, OSError) else None) or error


def parsed(text: str, file: str) -> Mapping[str, object]:
    """The document that a text is, not validated.

    Raises:
        ConfigError: it is not TOML.
    """
    try:
        document: Mapping[str, object] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError([f"{file}: must be TOML: {' '.join(str(error).split())}"]) from error
    except ValueError as error:
        # This is the one error of int().
        raise ConfigError([f"{file}: has an integer with too many digits"]) from error
    except RecursionError as error:
        raise ConfigError([f"{file}: has tables or arrays that are nested too deeply"]) from error
    return document


def load_registry(path: str | os.PathLike[str]) -> RegistrySpec:
    """Read the table `[registry]` of a configuration file, and ignore the rest of it.

    Raises:
        ConfigError: as `load`; there is none.
    """
    document, file = read_document(path)
    problems = Problems(file)
    table = read_section("registry", RegistryTable, document.get("registry"), problems)
    spec = read_registry(table, "drlctl", problems)
    if spec is None or problems.lines:
        raise ConfigError(problems.lines)
    return spec


def parse(text: str, file: str) -> LimiterSpec:
    """Validate the text of a configuration file; `file` names it in messages.

    Raises:
        ConfigError: as `load`.
    """
    return from_document(parsed(text, file), file)
