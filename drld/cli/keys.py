"""`drlctl keys`: the keys with which limiters seal their datagrams (docs/security.md)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

import click

from drld.cli.client import Daemon, Refused
from drld.cli.output import NONE, Commands, json_option, write_json, write_table
from drld.control.schema.keys import KeysReport

_NEW_KEY_BYTES = 32
_MAX_FILE = 1024

key_id = click.argument("key_id", metavar="ID", type=click.IntRange(1, 3))


@click.group(cls=Commands)
def keys() -> None:
    """Show and change the keys of the running daemon.

    A change lasts until the daemon restarts, or reloads a file with other keys than before: change
    the file as well.

    \b
    drlctl keys list
    """


@keys.command("list")
@json_option
@click.pass_obj
def list_keys(daemon: Daemon, as_json: bool) -> None:
    """Show the keys; equal fingerprints mean equal keys.

    \b
    drlctl keys list
    """
    _show(cast(KeysReport, daemon.get("/v1/keys")), as_json)


@keys.command()
@key_id
@click.argument("file", type=click.File("rb"))
@json_option
@click.pass_obj
def install(daemon: Daemon, key_id: int, file: Any, as_json: bool) -> None:
    """Add the key in FILE (- for standard input), and accept datagrams that are sealed with it.

    \b
    drlctl keys install 2 /etc/drld/fleet-2.key
    """
    from drld.gossip.wire.keyring import parse_key

    try:
        key = parse_key(file.read(_MAX_FILE + 1))
    except ValueError as error:
        raise Refused(f"{file.name}: {error}") from error
    report = daemon.post(f"/v1/keys/{key_id}/install", {"key": key.hex()})
    _show(cast(KeysReport, report), as_json)


@keys.command()
@click.argument("key_id", metavar="ID", type=click.IntRange(0, 3))
@json_option
@click.pass_obj
def use(daemon: Daemon, key_id: int, as_json: bool) -> None:
    """Seal outgoing datagrams with this key from now on; 0 stands for no key.

    \b
    drlctl keys use 2
    """
    _show(cast(KeysReport, daemon.post(f"/v1/keys/{key_id}/use")), as_json)


@keys.command()
@key_id
@json_option
@click.pass_obj
def remove(daemon: Daemon, key_id: int, as_json: bool) -> None:
    """Remove a key that seals no outgoing datagrams.

    \b
    drlctl keys remove 1
    """
    _show(cast(KeysReport, daemon.post(f"/v1/keys/{key_id}/remove")), as_json)


@keys.command()
@click.argument("file", type=click.Path(path_type=Path))
@json_option
def generate(file: Path, as_json: bool) -> None:
    """Write a new key to FILE, which only its owner may read; needs no daemon.

    \b
    drlctl keys generate /etc/drld/fleet.key
    """
    fingerprint = create_key(file)
    if as_json:
        write_json({"file": str(file), "fingerprint": fingerprint})
    else:
        click.echo(f"{file}: a key with the fingerprint {fingerprint}")


def create_key(file: Path) -> str:
    """Write a new key to a new file; return its fingerprint.

    Raises:
        Refused: as `create`.
    """
    import secrets

    from drld.gossip.wire.keyring import fingerprint

    key = secrets.token_bytes(_NEW_KEY_BYTES)
    create(file, key.hex() + "\n")
    return fingerprint(key)


def create(file: Path, text: str) -> None:
    """Write a new file that only its owner may read.

    Raises:
        Refused: the file exists, or cannot be written; then nothing is left of it.
    """
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                stream.write(text)
        except OSError:
            file.unlink()
            raise
    except OSError as error:
        raise Refused(f"{file}: {error.strerror}") from error


def _show(report: KeysReport, as_json: bool) -> None:
    if as_json:
        write_json(report)
        return
    rows = [
        (str(key["id"]), key["fingerprint"], "sends and receives" if key["in_use"] else "receives")
        for key in report["keys"]
    ]
    sends_without = report["use"] == 0
    if sends_without or report["accept_unauthenticated"]:
        does = "receives" if not sends_without else "sends and receives"
        rows.insert(0, ("0", NONE, f"{does} without a key"))
    write_table(("ID", "FINGERPRINT", "USE"), rows, left=3)
    if not report["as_configured"]:
        click.echo("The configuration file has other keys: these last until a restart.")
