"""`drlctl replay`: the verdicts that limits would have given on a captured trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import click

from drld.cli.client import Daemon, Refused
from drld.cli.in_force import limits_of
from drld.cli.output import json_option, write_fields, write_json, write_table
from drld.cli.progress import Progress
from drld.cli.suggestion import suggestion_fields
from drld.errors import InputError
from drld.planes import first_to_read
from drld.planes.explanation import Words
from drld.spec import LimitSpec
from drld.units import BYTES, human_amount, human_duration, human_rate

_SEED = 1
"""Seed of random drops: the same trace gives the same verdicts."""


@click.command()
@click.argument("trace", type=click.Path())
@click.argument("words", nargs=-1)
@click.option(
    "--config",
    "file",
    type=click.Path(),
    metavar="FILE",
    help="The limits of FILE, not of a daemon.",
)
@click.option("--rate", help='One limit for all, such as "10mbit" or "100/s", and no others.')
@click.option("--burst", help='Its burst, such as "75kB" or 200; default: 0.25 s of the rate.')
@click.option(
    "--allocator",
    type=click.Choice(["static", "fair"]),
    default="static",
    help="static: one bucket; fair: the only limiter of a fleet.",
)
@click.option("--suggest", is_flag=True, help="Also suggest a rate and a burst for each limit.")
@click.option(
    "--plot",
    type=click.Path(),
    metavar="PNG",
    help="Draw the rates over time; needs matplotlib.",
)
@json_option
@click.pass_obj
def replay(
    daemon: Daemon,
    trace: str,
    words: tuple[str, ...],
    *,
    file: str | None,
    rate: str | None,
    burst: str | None,
    allocator: str,
    suggest: bool,
    plot: str | None,
    as_json: bool,
) -> None:
    """Show what limits would have done to TRACE at its own times.

    TRACE is a capture (pcap, pcapng), or a log of requests: JSON lines, or an access log
    (docs/requests.md). The limits are those of the daemon (without a registry's), of --config, or
    one of --rate. WORDS say where packets cross this host; without them, at each interface that a
    limit names. For a log, they are pairs of all its requests. Each limit has its whole rate.
    Limits in shadow mode count and drop nothing.

    \b
    drlctl replay trace.pcap out eth1
    drlctl replay trace.pcap --rate 10mbit --burst 75kB --plot trace.png
    drlctl replay access.log namespace=web plan=free
    drlctl replay requests.jsonl --rate 100/s --burst 200
    """
    if rate is None and burst is not None:
        raise click.UsageError("--burst is for the limit of --rate: give both")
    if rate is not None and (file is not None or words):
        raise click.UsageError("--rate is one limit for all: leave --config and words out")
    pyplot = _pyplot() if plot else None
    limits = () if rate is not None else limits_of(daemon, file)
    try:
        with Path(trace).open("rb") as stream:

            def read(plane: ModuleType) -> Any:
                def made(its: Sequence[LimitSpec]) -> Any:
                    stream.seek(0)
                    return plane.Replay(stream, " ".join(words), its, allocator, Random(_SEED))

                # A plane that cannot read the file need not make a limit.
                made(())
                its = limits if rate is None else _by_hand(plane, rate, burst)
                return made(its)

            replayed = first_to_read("replay", read)
            damage = _run(replayed, Progress(stream, Path(trace), replayed.items))
    except InputError as error:
        raise Refused(f"{trace}: {error}") from None
    except OSError as error:
        raise Refused(f"{trace}: {error.strerror or error}") from None
    results = replayed.results()
    if plot and pyplot:
        _draw(pyplot, results, plot)
    if as_json:
        whole = {
            replayed.items: replayed.count,
            **({"not_ip": replayed.strange} if replayed.unseen else {}),
            "back_in_time": replayed.back,
            "s": replayed.seconds,
            "damage": damage,
        }
        write_json({"trace": whole, "limits": results})
    else:
        _write(replayed, results, suggest)
    if damage:
        raise Refused(f"{trace}: {damage}")


def _write(replayed: Any, results: Sequence[Mapping[str, Any]], suggest: bool) -> None:
    """Write the results for people."""
    seconds = human_duration(replayed.seconds)
    unseen = f", {replayed.strange} of them {replayed.unseen}" if replayed.unseen else ""
    items = replayed.items.removesuffix("s") if replayed.count == 1 else replayed.items
    click.echo(f"{replayed.count} {items} in {seconds}{unseen}")
    if replayed.back:
        click.echo(f"{replayed.back} of them go back in time: are captures joined out of order?")
    words: Words = replayed.words
    headers = ["LIMIT", "MODE", "RATE", "BURST", replayed.items, "ARRIVED", words.forwarded]
    headers += [words.dropped, "MARKED", "WORST SECOND"]
    write_table([it.upper() for it in headers], [_row(it) for it in results], left=2)
    for it in results:
        _write_flows(it, words)
        if suggest and it["keyed"]:
            click.echo(
                f"\n{it['limit']}: no suggestion: it has a bucket for each key, and what single "
                "keys need is not known"
            )
        elif suggest and it["suggestion"] is None:
            click.echo(
                f"\n{it['limit']}: too few seconds with traffic for a suggestion: 100 needed, "
                f"{it['seconds']} seen"
            )
        elif suggest:
            click.echo()
            write_fields(suggestion_fields(it["suggestion"]))


def _by_hand(plane: ModuleType, rate: str, burst: str | None) -> Sequence[LimitSpec]:
    """A limit that covers all items of a plane."""
    from drld import config
    from drld.errors import ConfigError

    depth = int(burst) if burst and burst.isdecimal() else burst or "auto"
    limit = {"id": 1, "name": "all", "rate": rate, "burst": depth, "match": plane.EVERYTHING}
    own = {"name": "replay", "listen": "127.0.0.1:1"}
    document = {"limiter": own, **plane.BESIDE, "limit": [limit]}
    try:
        return config.from_document(document, "options").limits
    except ConfigError as error:
        raise Refused("\n".join(error.problems)) from None


def _run(replayed: Any, progress: Progress) -> str | None:
    """Replay the items; return the damage that ended it, if any."""
    damage = None
    try:
        for count in replayed.run():
            progress.show(count)
    except InputError as error:
        damage = str(error)
    progress.end(replayed.count)
    return damage


def _row(it: Mapping[str, Any]) -> tuple[str, ...]:
    worst, unit = it["worst_second"], it["unit"]
    return (
        it["limit"],
        it["mode"],
        human_rate(it["rate_bps"], unit),
        human_amount(it["burst_bytes"], unit),
        str(it["arrived_packets"]),
        human_amount(it["arrived_bytes"], unit),
        human_amount(it["forwarded_bytes"], unit),
        human_amount(it["dropped_bytes"], unit),
        human_amount(it["marked_bytes"], unit),
        f"{human_amount(worst['dropped_bytes'], unit)} at {worst['at_s']} s" if worst else "-",
    )


def _write_flows(it: Mapping[str, Any], words: Words) -> None:
    if not it["flows"]:
        return
    click.echo()
    rows = [
        (
            flow["flow"],
            human_amount(flow["arrived_bytes"], it["unit"]),
            human_amount(flow["forwarded_bytes"], it["unit"]),
            f"{flow['share']:.1%}",
        )
        for flow in it["flows"]
    ]
    first = f"{words.flow.upper()}S OF {it['limit']}"
    write_table((first, "ARRIVED", words.forwarded.upper(), "SHARE"), rows, left=1)


def _pyplot() -> Any:
    try:
        import matplotlib as mpl

        mpl.use("agg")
        from matplotlib import pyplot
    except ImportError:
        raise Refused("--plot needs matplotlib: install python3-matplotlib") from None
    return pyplot


def _draw(pyplot: Any, results: Sequence[Mapping[str, Any]], path: str) -> None:
    """Draw the rates of each limit over time, one below the other."""
    figure, axes = pyplot.subplots(
        max(len(results), 1), squeeze=False, figsize=(9, 3 * max(len(results), 1)), sharex=True
    )
    for axis, it in zip(axes[:, 0], results, strict=False):
        width = it["span_s"]
        # Rates of bytes are read in Mbit/s, those of other units as they are.
        in_bytes = it["unit"] == BYTES.name
        scale = 8 / 1e6 if in_bytes else 1
        times = [at * width for at in range(len(it["spans"]))]
        for place, name in enumerate(("arrived", "forwarded", "dropped")):
            rates = [span[place] * scale / width for span in it["spans"]]
            axis.step(times, rates, where="post", label=name)
        rate = it["rate_bps"] / 1e6 if in_bytes else it["rate_bps"]
        axis.axhline(rate, color="grey", linestyle=":", label="rate")
        axis.set(title=it["limit"], ylabel="Mbit/s" if in_bytes else f"{it['unit']}/s")
        axis.legend()
    axes[-1, 0].set_xlabel("s")
    figure.tight_layout()
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise Refused(f"{path}: {error}") from None
    finally:
        pyplot.close(figure)
