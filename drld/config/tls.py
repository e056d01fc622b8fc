"""A server's certificate, its key and its clients' authorities: the files, as a context for TLS."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Protocol

from drld.config.certificate import expiry
from drld.config.keys import check_private
from drld.config.problems import Location, Problems, dotted
from drld.config.regular_file import check_regular
from drld.spec import ServerTls


class TlsTable(Protocol):
    """A table with paths of files for TLS, which may be left out."""

    certificate: str | None
    key: str | None
    client_ca: str | None


def read_tls(where: Location, table: TlsTable, problems: Problems) -> ServerTls | None:
    """The context of a table's files; None: the table names none, or has mistakes."""
    before = len(problems.lines)
    for key, other in (
        ("certificate", "key"),
        ("key", "certificate"),
        ("client_ca", "certificate"),
    ):
        if getattr(table, key) is not None and getattr(table, other) is None:
            problems.add([*where, other], f"is required with {dotted([*where, key])}")
    if table.certificate is None or table.key is None or len(problems.lines) > before:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A client of TLS 1.2 could otherwise make the daemon shake hands all the time.
    context.options |= ssl.OP_NO_RENEGOTIATION
    expires = 0.0
    for key, path in (
        ("certificate", table.certificate),
        ("key", table.key),
        ("client_ca", table.client_ca),
    ):
        if path is None:
            continue
        try:
            _load(context, key, path, table.certificate)
            if key == "certificate":
                expires = expiry(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            problems.add([*where, key], f"{path}: {_reason(where, key, error)}")
            return None
    return ServerTls(context, expires)


def _load(context: ssl.SSLContext, key: str, path: str, certificate: str) -> None:
    """Read the file of one key.

    Raises:
        OSError, ValueError: it cannot be used.
    """
    found = Path(path).stat()
    check_regular(found)
    if key == "certificate":
        # Apart, so that a mistake in it is not taken for one in the key.
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    elif key == "key":
        check_private(found)
        # An empty password, so that OpenSSL does not ask for one.
        context.load_cert_chain(certificate, path, password="")
    else:
        context.load_verify_locations(path)
        context.verify_mode = ssl.CERT_REQUIRED


def _reason(where: Location, key: str, error: OSError | ValueError) -> str:
    if not isinstance(error, ssl.SSLError):
        return (error.strerror if isinstance(error, OSError) else None) or str(error)
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"must be the key of {dotted([*where, 'certificate'])}"
    if key != "key":
        return "must have certificates in PEM form"
    return "must have a private key in PEM form, without a password"
