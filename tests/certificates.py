"""Certificates for tests, made by the openssl command."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path
from typing import NamedTuple

_PLAIN = "[req]\ndistinguished_name = name\n[name]\n"
"""The system's configuration would have extensions of its own."""


class Certificate(NamedTuple):
    """PEM files."""

    cert: Path
    key: Path


def authority(directory: Path, name: str) -> Certificate:
    """An authority that signs others; its certificate says so, as Python 3.13 requires."""
    return _made(
        directory,
        name,
        "basicConstraints=critical,CA:TRUE",
        "keyUsage=critical,keyCertSign,cRLSign",
    )


def signed(
    directory: Path, name: str, by: Certificate, *usage: str, host: str = "127.0.0.1"
) -> Certificate:
    """A certificate for `usage`, of `serverAuth` and `clientAuth`."""
    return _made(
        directory,
        name,
        f"extendedKeyUsage={','.join(usage)}",
        f"subjectAltName=IP:{host}",
        signer=("-CA", str(by.cert), "-CAkey", str(by.key)),
    )


def trusting(ca: Certificate, own: Certificate | None = None) -> ssl.SSLContext:
    """The context of a client that trusts an authority, and may have a certificate of its own."""
    context = ssl.create_default_context(cafile=str(ca.cert))
    if own:
        context.load_cert_chain(own.cert, own.key)
    return context


def _made(
    directory: Path, name: str, *extensions: str, signer: tuple[str, ...] = ()
) -> Certificate:
    made = Certificate(directory / f"{name}.pem", directory / f"{name}.key")
    plain = directory / "openssl.cnf"
    plain.write_text(_PLAIN)
    command = ["openssl", "req", "-x509", "-config", str(plain), "-subj", f"/CN={name}", "-nodes"]
    command += ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-days", "2"]
    command += ["-out", str(made.cert), "-keyout", str(made.key), *signer]
    for extension in extensions:
        command += ["-addext", extension]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return made
