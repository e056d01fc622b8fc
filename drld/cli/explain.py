"""`drlctl explain`: which limits an item meets, why, and what would happen to it now."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import IO, Any, cast
from urllib.parse import urlencode

import click

from drld.cli.client import Daemon, Refused
from drld.cli.output import NONE, json_option, rate_or_none, write_json, write_table
from drld.errors import InputError
from drld.explanation import Explanation, Words, read_item
from drld.model import NS_PER_S
from drld.planes import first_to_read
from drld.units import human_amount

_HEADERS = ("LIMIT", "MODE", "VERDICT", "WHY", "BUCKET", "DEPTH", "FAIR RATE")
_KEPT = 4096
"""Answers that are kept while a capture is explained: many of its items are alike."""

_CAPTURES = (".pcap", ".pcapng", ".cap", ".jsonl", ".log")
"""Names of files: what ends so is no item."""

Ask = Callable[[str], list[Explanation]]


@click.command()
@click.argument("item", nargs=-1, required=True)
@click.option("--config", metavar="FILE", help="Ask no daemon: the limits of FILE, as they start.")
@json_option
@click.pass_obj
def explain(daemon: Daemon, item: tuple[str, ...], config: str | None, as_json: bool) -> None:
    """Show which limits an item meets, why it misses the others, and its verdict now.

    ITEM is a packet, in words or as hexadecimal bytes from the IP header on; a request, as
    NAME=VALUE pairs; or a file: a capture (pcap, pcapng), or a log of requests (docs/requests.md).
    Each item of a file is judged as if it came now. Words behind a capture say where packets cross
    this host; without "in" and "out" they cross every interface that a limit names. Words behind a
    log are pairs of all its requests. Nothing is charged. --json writes an object for each item of
    a file, one a line.

    \b
    drlctl explain "tcp 10.0.0.1:1234 > 10.9.2.3:80 in eth0 out eth1 size 1500"
    drlctl explain "udp [fd00::1]:53 > [fd00::2]:53 out eth1 size 80 mark 0x10 ecn"
    drlctl explain trace.pcap out eth1
    drlctl explain namespace=api user=alice cost=3
    """
    text = " ".join(item)
    ask = _file(config) if config else _daemon(daemon)
    path, _, words = text.partition(" ")
    if Path(path).is_file() or path.endswith(_CAPTURES):
        try:
            with Path(path).open("rb") as stream:
                _explain_capture(stream, words, ask, as_json)
        except InputError as error:
            raise Refused(f"{path}: {error}") from None
        except OSError as error:
            raise Refused(f"{path}: {error.strerror}") from None
        return
    try:
        _explain_one(text, ask, as_json)
    except InputError as error:
        raise click.UsageError(str(error)) from None


def _daemon(daemon: Daemon) -> Ask:
    """The limits of the daemon, in their present state."""

    def ask(text: str) -> list[Explanation]:
        return cast(list[Explanation], daemon.get(f"/v1/explain?{urlencode({'item': text})}"))

    return ask


def _file(path: str) -> Ask:
    """The limits of a configuration, as a daemon starts: static shares and full buckets."""
    from drld.config import load
    from drld.errors import ConfigError
    from drld.limiter import share_of, static_share
    from drld.police.policer import Policer

    try:
        spec = load(path)
    except ConfigError as error:
        raise Refused("\n".join(error.problems)) from None
    records = {
        limit.id: static_share(
            limit.policy, share_of(limit.policy.shares, spec.name, len(spec.members))
        )
        for limit in spec.limits
    }

    def ask(text: str) -> list[Explanation]:
        plane, item = read_item(text)
        return [
            *plane.explain(
                item,
                spec.limits,
                lambda limit, _: (Policer(limit.policy, records[limit.id], 0), records[limit.id]),
                0,
            )
        ]

    return ask


def _explain_one(text: str, ask: Ask, as_json: bool) -> None:
    plane, item = read_item(text)
    rows = ask(text)
    if as_json:
        write_json(_answer(plane, item, rows))
        return
    click.echo(f"{item}")
    for remark in plane.remarks(item):
        click.echo(remark)
    if rows:
        write_table(_HEADERS, [_row(row, _shown(plane)) for row in rows], left=4)
    verdict, by = _overall(rows)
    click.echo(f"now: {_shown(plane)[verdict]}" + (f" by {by}" if by else ""))


def _explain_capture(stream: IO[bytes], words: str, ask: Ask, as_json: bool) -> None:
    """Explain each item of a capture to programs, and their verdicts in sum to people.

    Raises:
        InputError: it is no capture, or damaged; the items before the damage are explained.
    """
    verdicts: Counter[tuple[str, str]] = Counter()
    remarks: Counter[str] = Counter()
    known: dict[Any, list[Explanation]] = {}
    plane, captured = first_to_read("explain", lambda it: (it, _captured(it, stream, words)))
    damage = None
    while True:
        try:
            time_ns, text = next(captured)
        except StopIteration:
            break
        except InputError as error:
            damage = error
            break
        item, rows = None, list[Explanation]()
        if text is not None:
            item = plane.read(text)
            if item not in known:
                if len(known) >= _KEPT:
                    known.clear()
                known[item] = [row for row in ask(text) if row["misses"] is None]
            rows = known[item]
        if as_json:
            click.echo(json.dumps({"t": time_ns / NS_PER_S, **_answer(plane, item, rows)}))
            continue
        verdict, by = _overall(rows)
        verdicts[_shown(plane)[verdict], by or ", ".join(row["limit"] for row in rows) or NONE] += 1
        remarks.update(["No limit sees it."] if item is None else plane.remarks(item))
    if not as_json:
        _write_sums(verdicts, remarks)
    if damage:
        raise damage


def _write_sums(verdicts: Counter[tuple[str, str]], remarks: Counter[str]) -> None:
    """Write how many items got which verdict, and how many each remark is about."""
    counted = [(*key, str(count)) for key, count in verdicts.most_common()]
    write_table(("VERDICT", "LIMIT", "COUNT"), counted, left=2)
    for remark, count in remarks.most_common():
        click.echo(f"{count}: {remark}")


def _captured(plane: ModuleType, stream: IO[bytes], words: str) -> Iterator[tuple[int, str | None]]:
    """The plane's items in a capture, from its beginning."""
    stream.seek(0)
    captured: Iterator[tuple[int, str | None]] = plane.captured(stream, words)
    return captured


def _overall(rows: Sequence[Explanation]) -> tuple[str, str | None]:
    """What happens to an item, and the limit that refuses or marks it."""
    for verdict in ("drop", "mark"):
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
