"""Samples in the text format of Prometheus, version 0.0.4: for many scrapes, and many limits.

The format is written by hand: 10,000 limits have 140,000 samples, and prometheus-client makes them
all without a pause, which would keep ticks waiting. Here:

- They are made in steps of `_BATCH_S`, each in its turn, and kept in pieces of `_PIECE_BYTES`.
- Simultaneous scrapes share one run. After a run there is a pause of `_REST` times its length, up
  to 2 s. So clients that scrape without end get a fifth of a core.
- A client must take its answer within `ANSWER_S`. This bounds the runs that slow clients keep: 20 s
  of making at a fifth of a core, 60 MB at 15 MB/s, if all connections are slow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import trio
from starlette.types import Receive, Scope, Send

from drld.control.pieces import begin, proceed
from drld.control.turns import Turns
from drld.daemon.single_flight import SingleFlight

MEDIA_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
ANSWER_S = 20.0
_BATCH_S = 0.002
_PIECE_BYTES = 1 << 16
_REST = 4.0


class Family(NamedTuple):
    """Samples of one name."""

    name: str
    """Name of the family, without the prefix `drld_`."""
    kind: str
    """`counter` (the name ends in `_total`), `gauge` or `summary` (with `quantile`)."""
    help: str


class Sample(NamedTuple):
    """One value; None is left out."""

    family: Family
    value: float | None
    labels: tuple[tuple[str, str], ...] = ()
    """Labels: their values are names from the configuration or the code, and never contents of
    traffic."""


def counter(name: str, text: str) -> Family:
    """A family that only grows while the daemon lives."""
    return Family(f"{name}_total", "counter", text)


def gauge(name: str, text: str) -> Family:
    """A family that goes up and down."""
    return Family(name, "gauge", text)


def summary(name: str, text: str) -> Family:
    """A family of quantiles: each sample has the label `quantile`, which no other kind may have."""
    return Family(name, "summary", text)


def line(sample: Sample) -> str:
    """A sample as the format has it."""
    value = sample.value
    assert value is not None
    text = str(int(value)) if float(value).is_integer() else repr(float(value))
    if not sample.labels:
        return f"drld_{sample.family.name} {text}\n"
    labels = ",".join(f'{name}="{_escaped(label)}"' for name, label in sample.labels)
    return f"drld_{sample.family.name}{{{labels}}} {text}\n"


def _escaped(label: str) -> str:
    return label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def headed(family: Family) -> str:
    """The lines before a family's samples."""
    name = f"drld_{family.name}"
    return f"# HELP {name} {family.help}\n# TYPE {name} {family.kind}\n"


class Exposition:
    """The application that answers GET /metrics."""

    def __init__(self, samples: Callable[[], Iterator[Sample]], turns: Turns) -> None:
        """Have `samples` make the samples of a run."""
        self._samples = samples
        self._turns = turns
        self._one = SingleFlight(self._make, rest=_REST, shortest_s=0.0)
        self._asking = 0
        self._pieces: list[bytes] = []

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer with samples that are made after this request."""
        self._asking += 1
        try:
            await self._one()
            pieces = self._pieces
        finally:
            self._asking -= 1
            if not self._asking:
                self._pieces = []
        # Without an end, the answer ends the connection.
        with trio.move_on_after(ANSWER_S):
            await begin(send, MEDIA_TYPE)
            for piece in pieces:
                await self._turns.wait()
                await proceed(send, piece, more=True)
            await proceed(send, b"", more=False)

    async def _make(self) -> None:
        families: dict[Family, list[bytes]] = {}
        lines: dict[Family, list[str]] = {}
        until = trio.current_time() + _BATCH_S
        for sample in self._samples():
            if sample.value is not None:
                lines.setdefault(sample.family, []).append(line(sample))
            if trio.current_time() >= until:
                _move(lines, families)
                await self._turns.wait()
                until = trio.current_time() + _BATCH_S
        _move(lines, families)
        pieces: list[bytes] = []
        for family, texts in families.items():
            await self._turns.wait()
            pieces += _joined([headed(family).encode(), *texts])
        self._pieces = pieces


def _move(lines: dict[Family, list[str]], families: dict[Family, list[bytes]]) -> None:
    """Keep the lines as bytes, which take a third of the memory."""
    for family, its in lines.items():
        families.setdefault(family, []).append("".join(its).encode())
    lines.clear()


def _joined(texts: Iterable[bytes]) -> Iterator[bytes]:
    """The texts in pieces of at least `_PIECE_BYTES`, but for the last."""
    piece: list[bytes] = []
    size = 0
    for text in texts:
        piece.append(text)
        size += len(text)
        if size >= _PIECE_BYTES:
            yield b"".join(piece)
            piece, size = [], 0
    yield b"".join(piece)
