"""How drlctl writes: aligned tables and fields for people, JSON for programs."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import click

from drld.cli.client import Daemon, Refused
from drld.cli.view.cells import NO_ROWS
from drld.control.schema.changes import Difference
from drld.units import human_rate

F = TypeVar("F", bound=Callable[..., Any])

NONE = "-"
_WHOLE = 1000
"""Characters of a summary: all. click's own limit cuts it in the middle of a sentence."""


class Commands(click.Group):
    """A group that lists its commands with their whole summaries, as all groups in it do."""

    group_class = type

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse, which writes the help or the version. See `invoke` for a full disk."""
        try:
            return super().parse_args(ctx, args)
        except BrokenPipeError:
            raise  # click ends quietly.
        except OSError as error:
            raise Refused(f"standard output: {error.strerror}") from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Say so if its output cannot be written, as on a full disk, or if it
        cannot read the daemon's answer. A reader that closes a pipe ends it as SIGPIPE would."""
        try:
            return super().invoke(ctx)
        except UnicodeEncodeError as error:
            raise click.UsageError(f"an argument must be UTF-8 (got {error.object!r})") from error
        except BrokenPipeError:
            # What is left in the buffer can go nowhere: Python would complain about it at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(128 + signal.SIGPIPE)
        except OSError as error:
            raise Refused(f"{error.filename or 'standard output'}: {error.strerror}") from error
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            daemon = ctx.find_object(Daemon)
            if daemon is None or not daemon.answered:
                raise  # A mistake of drlctl's own.
            raise daemon.unreadable(f"{type(error).__name__}: {error}") from error

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each command with its whole summary; click would cut it at the line's end."""
        with formatter.section("Commands"):
            formatter.write_dl(
                [
                    (name, its.get_short_help_str(_WHOLE))
                    for name, its in sorted(self.commands.items())
                ]
            )


def json_option(command: F) -> F:
    """Add `--json` to a command, which gets it as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Write JSON.")(command)


def write_json(value: object) -> None:
    """Write one value, indented."""
    click.echo(json.dumps(value, indent=2))


def write_fields(fields: Iterable[tuple[str, str]]) -> None:
    """Write names and values, aligned; the further lines of a value are aligned with its first."""
    fields = list(fields)
    width = max(len(name) for name, _ in fields)
    for name, value in fields:
        first, *rest = value.split("\n")
        click.echo(f"{name:<{width}}  {first}")
        for line in rest:
            click.echo(f"{'':<{width}}  {line}")


def write_table(headers: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> None:
    """Write a table: the first `left` columns are texts, the others numbers."""
    columns = zip(headers, *rows, strict=True)
    widths = [max(map(len, column)) for column in columns]
    for row in (headers, *rows):
        click.echo(table_row(row, widths, left))
    if not rows:
        click.echo(NO_ROWS)


def table_row(row: Sequence[str], widths: Sequence[int], left: int) -> str:
    """One line of a table."""
    cells = [
        f"{cell:<{width}}" if index < left else f"{cell:>{width}}"
        for index, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join(cells).rstrip()


def write_differences(found: Iterable[Difference]) -> None:
    """Write what differs between two configurations: a line for each table or key."""
    for it in found:
        if it["change"] != "changed":
            click.echo(f"{it['table']}: {it['change']}")
            continue
        for key, values in it["keys"].items():
            old, new = ("(left out)" if value is None else json.dumps(value) for value in values)
            click.echo(f"{it['table']}: {key}: {old} -> {new}")


def burst(depth: str, automatic: bool) -> str:
    """The depth of a limit's bucket: `312 kB (auto)`."""
    return f"{depth} (auto)" if automatic else depth


def rate_or_none(rate: float | None, unit: str) -> str:
    """A rate of a limit that counts this unit, or a dash where there is none."""
    return NONE if rate is None else human_rate(rate, unit)


def counts(counters: Mapping[str, int]) -> str:
    """Named counters: `overflow 2, truncated 0`."""
    return ", ".join(f"{name} {count}" for name, count in counters.items())
