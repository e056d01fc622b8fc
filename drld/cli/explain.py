"""`drlctl explain`: the limits that an item falls under, and its verdict now."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import IO, TYPE_CHECKING, Any, Protocol, cast
from urllib.parse import urlencode

import click

from drld.cli.client import Daemon, Refused
from drld.cli.output import NONE, json_option, rate_or_none, write_json, write_table
from drld.cli.progress import Progress
from drld.errors import InputError
from drld.model import NS_PER_S, Enforcement
from drld.planes import first_to_read
from drld.planes.explanation import CapturedItem, Explanation, Words, read_item
from drld.units import human_amount

if TYPE_CHECKING:
    from drld.model import FlowKey
    from drld.police.policer import Policer
    from drld.spec import LimitSpec

_HEADERS = ("LIMIT", "MODE", "VERDICT", "WHY", "BUCKET", "DEPTH", "FAIR RATE")
_KEPT = 32_768
"""The most answers that are kept, because many items of a capture are alike. As JSON, with two
limits, they take about 50 MB."""
_AT_ONCE = 8192
"""Items that are read before the limits judge the new ones among them: about a second of work."""
_BODY_BYTES = 65_000
"""Bytes of the items in one question to the daemon; the whole question may have 65,536."""

_CAPTURES = (".pcap", ".pcapng", ".cap", ".jsonl", ".log")
"""Endings of file names: an argument with one of these is no item."""


class Limits(Protocol):
    """Limits that judge items."""

    def one(self, text: str) -> list[Explanation]:
        """Explain an item: the verdict of each limit.

        Raises:
            InputError: the text is no item.
        """

    def many(self, found: Sequence[CapturedItem]) -> Iterator[list[Explanation]]:
        """Explain each of some items: the verdicts of the limits that it falls under."""


@click.command()
@click.argument("item", type=click.Path(), nargs=-1, required=True)
@click.option(
    "--config",
    type=click.Path(),
    metavar="FILE",
    help="Ask no daemon: the limits of FILE, as they start.",
)
@json_option
@click.pass_obj
def explain(daemon: Daemon, item: tuple[str, ...], config: str | None, as_json: bool) -> None:
    """Show the limits that an item falls under, why it misses the others, and its verdict now.

    ITEM is a packet, in words or as hexadecimal bytes from the IP header on; a request or a
    message, as NAME=VALUE pairs; or a file: a capture (pcap, pcapng), or a log of requests
    (docs/requests.md). Each item of a file is judged as if it came now. Words behind a capture say
    where packets cross this host; without "in" and "out" they cross every interface that a limit
    names. Words behind a log are pairs of all its requests. Nothing is charged. --json writes an
    object for each item of a file, one a line.

    \b
    drlctl explain "tcp 10.0.0.1:1234 > 10.9.2.3:80 in eth0 out eth1 size 1500"
    drlctl explain "udp [fd00::1]:53 > [fd00::2]:53 out eth1 size 80 mark 0x10 ecn"
    drlctl explain trace.pcap out eth1
    drlctl explain namespace=api user=alice cost=3
    drlctl explain broker=mqtt topic=city/traffic/7 client=sensor1
    """
    text = " ".join(item)
    limits = _File(config) if config else _Daemon(daemon)
    path, _, words = text.partition(" ")
    if _is_file(path) or path.endswith(_CAPTURES):
        try:
            with Path(path).open("rb") as stream:
                _explain_capture(stream, Path(path), words, limits, as_json)
        except InputError as error:
            raise Refused(f"{path}: {error}") from None
        except BrokenPipeError:
            raise  # Of the output, and not of the file.
        except OSError as error:
            raise Refused(f"{path}: {error.strerror or error}") from None
        return
    try:
        _explain_one(text, limits, as_json)
    except InputError as error:
        raise Refused(str(error)) from None


def _is_file(path: str) -> bool:
    try:
        return Path(path).is_file()
    except OSError:
        return False  # A packet in hexadecimal digits may be longer than names are.


class _Daemon:
    """The limits of the daemon, in their present state."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon

    def one(self, text: str) -> list[Explanation]:
        return cast(list[Explanation], self._daemon.get(f"/v1/explain?{urlencode({'item': text})}"))

    def many(self, found: Sequence[CapturedItem]) -> Iterator[list[Explanation]]:
        texts: list[str] = []
        size = 0
        for it in found:
            length = len(json.dumps(it.text)) + len(", ")
            if texts and size + length > _BODY_BYTES:
                yield from self._asked(texts)
                texts, size = [], 0
            texts.append(it.text)
            size += length
        yield from self._asked(texts)

    def _asked(self, texts: Sequence[str]) -> Iterator[list[Explanation]]:
        for rows in self._daemon.post("/v1/explain", {"items": texts}):
            if isinstance(rows, dict):
                raise InputError(rows["error"])
            yield rows


class _File:
    """The limits of a configuration, as a daemon starts: static shares and full buckets."""

    def __init__(self, path: str) -> None:
        """Read the file.

        Raises:
            Refused: the file cannot be used.
        """
        from drld.config import load
        from drld.errors import ConfigError
        from drld.limiter import share_of, static_share

        try:
            spec = load(path)
        except ConfigError as error:
            raise Refused("\n".join(error.problems)) from None
        self._limits = spec.limits
        self._records = {
            limit.id: static_share(
                limit.policy, share_of(limit.policy.shares, spec.name, len(spec.members))
            )
            for limit in spec.limits
        }

    def one(self, text: str) -> list[Explanation]:
        plane, item = read_item(text)
        return [*plane.Explainer(self._limits).explain(item, self._policing, 0)]

    def many(self, found: Sequence[CapturedItem]) -> Iterator[list[Explanation]]:
        plane, _ = read_item(found[0].text)
        explainer = plane.Explainer(self._limits, misses=False)
        for it in found:
            yield [*explainer.explain(it.item, self._policing, 0)]

    def _policing(self, limit: LimitSpec, _: FlowKey) -> tuple[Policer, Enforcement]:
        from drld.police.policer import Policer

        record, policy = self._records[limit.id], limit.policy
        if policy.keyed is not None:
            # Each limiter enforces the whole rate and burst of a key.
            record = Enforcement(fill_rate=policy.rate, depth=policy.burst)
        return Policer(limit.policy, record, 0), record


def _explain_one(text: str, limits: Limits, as_json: bool) -> None:
    plane, item = read_item(text)
    rows = limits.one(text)
    if as_json:
        write_json(_answer(plane, item, rows))
        return
    click.echo(f"{item}")
    for remark in plane.remarks(item):
        click.echo(remark)
    if rows:
        write_table(_HEADERS, [_row(row, _shown(plane)) for row in rows], left=4)
    verdict, by = _overall(rows)
    preposition = "for" if verdict == "wait" else "by"
    click.echo(f"now: {_shown(plane)[verdict]}" + (f" {preposition} {by}" if by else ""))


def _explain_capture(
    stream: IO[bytes], path: Path, words: str, limits: Limits, as_json: bool
) -> None:
    """Explain each item of a capture to programs, and their verdicts in sum to people.

    Raises:
        InputError: the file is no capture, or damaged; items before the damage are explained.
    """
    plane, captured = first_to_read(
        "explain", lambda it: (it, _captured(it, stream, words)), having="captured"
    )
    shown = _EachAsJson(plane) if as_json else _Sums(plane)
    progress = Progress(stream, path, f"{plane.WORDS.item}s")
    known: dict[Any, Any] = {None: shown.judged(None, [])}
    damage, done = None, 0
    while damage is None:
        some: list[CapturedItem] = []
        try:
            for it in islice(captured, _AT_ONCE):
                some.append(it)
        except InputError as error:
            damage = error
        if not some and damage is None:
            break
        new = {it.item: it for it in some if it.item not in known}
        if len(known) + len(new) > _KEPT:
            known = {None: known[None]}
            new = {it.item: it for it in some if it.item is not None}
        if new:
            for item, rows in zip(new, limits.many([*new.values()]), strict=True):
                known[item] = shown.judged(item, rows)
        for it in some:
            shown.add(it.time_ns, known[it.item])
        done += len(some)
        progress.show(done)
    progress.end(done)
    shown.end()
    if damage:
        raise damage


class _EachAsJson:
    """Writes an object for each item, one a line."""

    def __init__(self, plane: ModuleType) -> None:
        self._plane = plane

    def judged(self, item: Any, rows: list[Explanation]) -> str:
        """The object for all equal items, without its beginning."""
        return json.dumps(_answer(self._plane, item, rows))[1:]

    def add(self, time_ns: int, kept: str) -> None:
        """Write an item."""
        click.echo(f'{{"t": {json.dumps(time_ns / NS_PER_S)}, {kept}')

    def end(self) -> None:
        """Do nothing: all objects are written."""


class _Sums:
    """Counts items by verdict and limits, and by remark."""

    def __init__(self, plane: ModuleType) -> None:
        self._plane = plane
        self._verdicts: Counter[tuple[str, str]] = Counter()
        self._remarks: Counter[str] = Counter()

    def judged(self, item: Any, rows: list[Explanation]) -> tuple[tuple[str, str], Sequence[str]]:
        """Verdict, limits and remarks of all equal items."""
        verdict, by = _overall(rows)
        limits = by or ", ".join(row["limit"] for row in rows) or NONE
        remarks = ["No limit sees it."] if item is None else self._plane.remarks(item)
        return (_shown(self._plane)[verdict], limits), remarks

    def add(self, _: int, kept: tuple[tuple[str, str], Sequence[str]]) -> None:
        """Count an item."""
        self._verdicts[kept[0]] += 1
        self._remarks.update(kept[1])

    def end(self) -> None:
        """Write the sums."""
        counted = [(*key, str(count)) for key, count in self._verdicts.most_common()]
        write_table(("VERDICT", "LIMIT", "COUNT"), counted, left=2)
        for remark, count in self._remarks.most_common():
            click.echo(f"{count}: {remark}")


def _captured(plane: ModuleType, stream: IO[bytes], words: str) -> Iterator[CapturedItem]:
    """The plane's items in a capture, from its beginning."""
    stream.seek(0)
    captured: Iterator[CapturedItem] = plane.captured(stream, words)
    return captured


def _overall(rows: Sequence[Explanation]) -> tuple[str, str | None]:
    """The verdict on an item, and the limit that refuses it, marks it or makes it wait."""
    for verdict in ("drop", "mark", "wait"):
        for row in rows:
            if row["verdict"] == verdict:
                return verdict, row["limit"]
    return "forward", None


def _answer(plane: ModuleType, item: Any, rows: Sequence[Explanation]) -> dict[str, Any]:
    """The object about one item; `item` is None if no limit sees it."""
    verdict, by = _overall(rows)
    return {
        "item": None if item is None else str(item),
        "remarks": [] if item is None else plane.remarks(item),
        "verdict": verdict,
        "by": by,
        "limits": rows,
    }


def _shown(plane: ModuleType) -> dict[str | None, str]:
    """How people read verdicts on a plane's items."""
    words: Words = plane.WORDS
    return {
        "forward": words.forwarded,
        "mark": "marked",
        "wait": "waits",
        "drop": words.dropped,
        None: "not checked",
    }


def _row(row: Explanation, shown: dict[str | None, str]) -> tuple[str, ...]:
    tokens, depth, unit = row["tokens_bytes"], row["depth_bytes"], row["unit"]
    return (
        row["limit"],
        row["mode"],
        NONE if row["misses"] else shown[row["verdict"]],
        row["misses"] or row["reason"],
        NONE if tokens is None else human_amount(tokens, unit),
        NONE if depth is None else human_amount(depth, unit),
        rate_or_none(row["flow_rate_bps"], unit),
    )
