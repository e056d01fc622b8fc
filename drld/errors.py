"""The errors that drld raises on purpose; everything else is a bug.

`ConfigError` and `InputError` are the operator's fault, `WireError` a peer's (or a stranger's),
`DatapathError` the host's (a missing kernel feature, a refused rule), `RegistryError` etcd's.
"""

from __future__ import annotations

from collections.abc import Mapping


def printable(text: str) -> str:
    """A text with escapes in the place of what a terminal would obey, or cannot show."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


class DrldError(Exception):
    """Base of every error that drld raises on purpose."""


class ConfigError(DrldError):
    """The configuration cannot be used; `problems` holds one line for each mistake found.

    A file or a value may have any characters in it: the lines have printable ones.
    """

    def __init__(self, problems: list[str]) -> None:
        self.problems = [printable(line) for line in problems]
        super().__init__("\n".join(self.problems))


class WireError(DrldError):
    """A datagram that is not a valid drld message.

    `reason` is a short stable word (`length`, `version`, `kind`, `tag`, `value`, ...) that
    the rejection counters are keyed by.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason


class DatapathError(DrldError):
    """The host refuses, or lacks, something the datapath needs.

    `limits` says by id which limits cannot be had here, beside those that come before them in the
    configuration, and why; nothing, where that is not known.
    """

    def __init__(self, message: str, limits: Mapping[int, str] | None = None) -> None:
        super().__init__(message)
        self.limits = limits or {}


class InputError(DrldError):
    """An item or a capture that an operator gave to a command cannot be read."""


class RegistryError(DrldError):
    """The registry (etcd) cannot be reached, refuses, or answers what no etcd would."""


class FrameError(DrldError):
    """Bytes on a connection to a message broker that are no frames of its protocol.

    `answer` is what the protocol has for the client before its connection is closed, if anything.
    """

    def __init__(self, problem: str, answer: bytes = b"") -> None:
        super().__init__(printable(problem))
        self.answer = answer
