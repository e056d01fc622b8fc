"""The command line of `drld`, and its exit statuses."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from pathlib import Path

import trio

import drld
from drld.config import remarks
from drld.daemon import log_output
from drld.daemon.daemon import Daemon
from drld.daemon.reloader import read_configuration
from drld.errors import ConfigError, DrldError, printable

if sys.version_info < (3, 11):
    from exceptiongroup import BaseExceptionGroup


def main(argv: list[str] | None = None) -> int:
    """Run `drld` with these arguments; return its exit status.

    0: it was told to stop. 1: it failed. 2: the configuration is bad. 3: it could not start, for
    the host refused something.
    """
    args = _parser().parse_args(argv)
    log_output.set_up(args.log_format)
    try:
        configuration = read_configuration(args.config)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    spec = configuration.in_force
    if args.check:
        file = printable(str(args.config))
        for line in remarks(spec):
            print(f"{file}: {printable(line)}", file=sys.stderr)
        try:
            print(f"{file}: ok (limits: {len(spec.limits)}, peers: {len(spec.peers)})", flush=True)
        except OSError as error:
            # What is left in the buffer can go nowhere: Python would complain about it at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            print(f"drld: standard output: {error.strerror}", file=sys.stderr)
            return 1
        return 0
    daemon = None
    try:
        daemon = Daemon(args.config, configuration)
        trio.run(daemon.run)
    except Exception as raised:
        # A nursery wraps the errors of its tasks, also a single one.
        cause: BaseException = raised
        while isinstance(cause, BaseExceptionGroup) and len(cause.exceptions) == 1:
            cause = cause.exceptions[0]
        if isinstance(cause, DrldError):
            print(f"drld: {cause}", file=sys.stderr)
        else:
            traceback.print_exception(raised)
        return 1 if daemon and daemon.ready else 3
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="drld",
        description="A distributed rate limiter.",
        epilog="Example: drld --config /etc/drld/drld.toml --check. Exit status: 0 stopped in "
        "order, 1 failed while it ran, 2 the configuration has mistakes, 3 the host refused "
        "something at the start.",
    )
    parser.add_argument(
        "--config",
        required=True,
        type=Path,
        metavar="FILE",
        help="configuration, with its drop-ins in FILE.d (docs/configuration.md)",
    )
    parser.add_argument(
        "--check", action="store_true", help="print mistakes and remarks, or ok, and exit"
    )
    parser.add_argument(
        "--log-format",
        choices=log_output.FORMATS,
        default="auto",
        help="auto: fields of the journal if systemd leads stderr there, else text",
    )
    version = f"drld {drld.__version__}" + (" (compiled)" if drld.compiled() else "")
    parser.add_argument("--version", action="version", version=version)
    return parser
