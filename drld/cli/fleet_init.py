"""`drlctl fleet init`: a key, and a configuration for each host, of a fleet without a registry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from shutil import rmtree
from typing import IO

import click

from drld.cli.client import Refused
from drld.cli.completion import fabrics
from drld.cli.keys import create, create_key
from drld.cli.output import json_option, write_json

_PORT = 7946
"""The port of the examples and of docs/quickstart.md."""
_KEY, _HOSTS = "fleet.key", "hosts"


@click.command()
@click.argument("directory", type=click.Path(path_type=Path))
@click.argument("hosts", metavar="[NAME=ADDRESS]...", nargs=-1)
@click.option(
    "--hosts",
    "hosts_file",
    type=click.File(encoding="utf-8"),
    help="Further hosts: a line NAME ADDRESS for each one.",
)
@click.option(
    "--limits",
    type=click.Path(),
    metavar="FILE",
    help="The fleet's [[limit]] tables, and others that each host gets, such as [requests]; "
    "default: no limit.",
)
@click.option(
    "--fabric",
    metavar="NAME",
    shell_complete=fabrics,
    help='"tree", "mesh" or "pushsum"; default: "tree", which suits any size.',
)
@click.option(
    "--key-file",
    metavar="PATH",
    default="/etc/drld/fleet.key",
    show_default=True,
    help="Path of the key on the hosts.",
)
@json_option
def init(
    *,
    directory: Path,
    hosts: Sequence[str],
    hosts_file: IO[str] | None,
    limits: str | None,
    fabric: str | None,
    key_file: str,
    as_json: bool,
) -> None:
    """Make a key and a configuration for each host of a new fleet, in the new folder DIRECTORY.

    An ADDRESS without a port gets port 7946. The key is a secret: only its owner may read the
    files. Nothing is overwritten. `scripts/deploy DIRECTORY` copies the files to the hosts.

    \b
    drlctl fleet init edge lim1=10.0.0.1 lim2=10.0.0.2 --limits limits.toml
    """
    from drld.config import from_document, read_shared
    from drld.config.toml_text import toml
    from drld.errors import ConfigError

    addresses = dict(_hosts(hosts, hosts_file))
    if not addresses:
        raise click.UsageError("nothing to make: give hosts as NAME=ADDRESS, or --hosts")
    gossip: dict[str, object] = {} if fabric is None else {"fabric": fabric}
    try:
        tables = read_shared(limits) if limits else {}
        # The files differ in the host's own name and address alone: one check serves for all.
        first = next(iter(addresses))
        from_document(_document(first, addresses, gossip, tables), f"host {first}")
    except ConfigError as error:
        raise Refused("\n".join(error.problems)) from None
    gossip["keys"] = [{"id": 1, "file": key_file}]
    try:
        directory.mkdir(mode=0o700)
    except OSError as error:
        raise Refused(f"{directory}: {error.strerror}") from None
    try:
        fingerprint = create_key(directory / _KEY)
        create(directory / _HOSTS, "".join(f"{name} {at}\n" for name, at in addresses.items()))
        for name in addresses:
            document = _document(name, addresses, gossip, tables)
            create(directory / f"{name}.toml", toml(document))
    except Refused:
        # A part of a fleet could be taken for the whole.
        rmtree(directory)
        raise
    if as_json:
        made = [
            {"name": name, "address": address, "file": str(directory / f"{name}.toml")}
            for name, address in addresses.items()
        ]
        key = {"file": str(directory / _KEY), "fingerprint": fingerprint}
        write_json({"key": key, "hosts": made})
    else:
        click.echo(f"{directory}: {len(addresses)} configurations, and a key ({fingerprint})")


def _hosts(given: Iterable[str], file: Iterable[str] | None) -> Iterable[tuple[str, str]]:
    """Names and endpoints; the configuration checks them later."""
    pairs = [host.partition("=")[::2] for host in given]
    try:
        pairs += [" ".join(line.split()).partition(" ")[::2] for line in file or () if line.strip()]
    except UnicodeDecodeError:
        raise Refused("--hosts: the file must be UTF-8") from None
    seen: dict[str, str] = {}
    for name, address in pairs:
        if not address:
            raise _mistake(name, "must have an address, as in NAME=ADDRESS")
        if name in seen.values():
            raise _mistake(name, "must be named once")
        endpoint = _endpoint(address)
        if (other := seen.setdefault(endpoint, name)) != name:
            raise _mistake(name, f"must have an address of its own: {other} has {endpoint}")
        yield name, endpoint


def _mistake(host: str, claim: str) -> Refused:
    return Refused(f"host {host}: {claim}")


def _endpoint(address: str) -> str:
    from drld.spec import format_endpoint

    with suppress(ValueError):  # the address has a port, or is a mistake
        return format_endpoint(str(ip_address(address.removeprefix("[").removesuffix("]"))), _PORT)
    return address


def _document(
    name: str, addresses: dict[str, str], gossip: dict[str, object], shared: Mapping[str, object]
) -> dict[str, object]:
    """The configuration of one host."""
    return {
        "limiter": {"name": name, "listen": addresses[name]},
        "gossip": gossip,
        "peer": [
            {"name": other, "address": at} for other, at in addresses.items() if other != name
        ],
        "limit": [],
        **shared,
    }
