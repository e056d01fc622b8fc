"""`python -m testbed.messages stamps` and `capture`: the use of arrival times, and their errors."""

from __future__ import annotations

import json
import statistics
from functools import partial
from pathlib import Path
from typing import Any

import click

from testbed.attempts import undisturbed
from testbed.harness.ledger import RESULT
from testbed.harness.markdown import aligned, prose, table
from testbed.harness.page import Page
from testbed.harness.progress import Progress
from testbed.interrupt import run_to_end
from testbed.messages import capture, lateness
from testbed.options import OUT
from testbed.provenance import conditions, head

CLOSE_NS = 100_000
"""The most by which an arrival may differ from that by a packet capture."""
_TITLES = {
    "hogs": "Busy processes compete with the daemon",
    "stops": "The daemon is stopped for 200 ms every two seconds",
}
_PAGE = Page(
    "messages-stamps", "Conforming messages that wait because the daemon runs late",
    "sudo .venv/bin/python -m testbed.messages stamps --docs", "../docs/messages-arrival.md",
    list(_TITLES),
)  # fmt: skip


@click.command()
@click.option("--messages", type=click.IntRange(100), default=10_000, show_default=True,
              help="In each run.")  # fmt: skip
@click.option("--hogs", type=click.IntRange(0, 1000), default=4, show_default=True,
              help="Busy processes; more are added until messages wait with read.")  # fmt: skip
@click.option("--stops", is_flag=True, help="Stop the daemon for 200 ms every two seconds.")
@click.option("--repeat", type=click.IntRange(1, 100), default=10, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=OUT / "stamps", show_default=True)
@click.option("--docs", is_flag=True, help="Write the result into results/messages-stamps.md.")
def stamps(*, messages: int, hogs: int, stops: bool, repeat: int, out: Path, docs: bool) -> None:
    """Count conforming messages that wait because the daemon runs late."""
    progress = Progress()
    chosen = lateness.Stream(
        connections=1000, messages=messages, rate=1000, burst=15, load=0.95, hogs=hogs, stops=stops
    )
    result = run_to_end(partial(lateness.compare, chosen, lateness.SOURCES, repeat, progress))
    progress.end()
    click.echo(aligned([lateness.HEADER, *lateness.rows(result)], left=1))
    _write(out, result)
    if docs:
        name = "stops" if chosen.stops else "hogs"
        click.echo(f"{_PAGE.write({name: _section(name, chosen, result)})}")


def _section(name: str, stream: lateness.Stream, result: dict[str, Any]) -> str:
    how = (
        f"{conditions(head(quick=False))}. {stream.connections:,} connections, "
        f"{stream.rate * stream.load:,.0f} messages/s, a bucket of {stream.rate:,}/s and "
        f"{stream.burst} messages. `beyond`: messages that did not conform when they arrived at "
        "the host."
    )
    if stream.hogs:
        how += (
            f" `hogs`: busy processes; {stream.hogs} at first, then one more for each processor "
            f"until more than {lateness.ENOUGH:.0%} of the messages waited with `{lateness.READ}`."
        )
    return "\n".join(
        [f"## {_TITLES[name]}", "", prose(how), "",
         *table(lateness.HEADER, lateness.rows(result))]
    )  # fmt: skip


@click.command("capture")
@click.option("--messages", type=click.IntRange(100, 1_000_000), default=100_000, show_default=True)
@click.option("--traced", is_flag=True, help="Trace the kernel's TCP instead, where it can be.")
@click.option("--out", type=click.Path(path_type=Path), default=OUT / "capture", show_default=True)
def capture_command(messages: int, traced: bool, out: Path) -> None:
    """Compare the socket filter's times with a packet capture's, at losses and disorder of 1 %.

    The exit status is 1 if one differs by more than 100 us.
    """
    rows = []
    for ipv6 in (False, True):
        stream = capture.Stream(messages, ipv6, traced=traced)
        found = run_to_end(partial(undisturbed, partial(capture.compare, stream)))
        if not found.same_segments():
            raise click.ClickException("the filter and the capture have other segments")
        late = sorted(found.differences())
        rows.append({
            "IP": 6 if ipv6 else 4, "messages": len(late), "segments": len(found.captured),
            "repeated": found.repeated(), "disorder": found.out_of_order(),
            "unstamped": found.unstamped, "median_us": statistics.median(late) / 1000,
            "p99.9_us": late[len(late) * 999 // 1000] / 1000, "worst_us": late[-1] / 1000,
            "least_us": late[0] / 1000, "beyond_100us": found.beyond(CLOSE_NS),
        })  # fmt: skip
    click.echo(" ".join(f"{head:>11}" for head in rows[0]))
    for row in rows:
        click.echo(" ".join(f"{value:>11.6g}" for value in row.values()))
    _write(out, {"runs": rows})
    if beyond := sum(row["beyond_100us"] for row in rows):
        raise click.ClickException(f"{beyond} messages are more than 100 us away from the capture")


def _write(out: Path, result: Any) -> None:
    out.mkdir(parents=True, exist_ok=True)
    file = out / RESULT
    file.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    click.echo(f"{file}")
