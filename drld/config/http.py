"""`[http]`: what its keys are together, and the files that it names, as a context for TLS."""

from __future__ import annotations

import ssl
from ipaddress import ip_address
from pathlib import Path

from drld.config.certificate import expiry
from drld.config.keys import check_private, check_regular
from drld.config.problems import Location, Problems
from drld.config.schema import HttpTable
from drld.spec import HttpSpec


def read_http(where: Location, table: HttpTable, problems: Problems) -> HttpSpec | None:
    """What a table asks for; None where there are mistakes."""
    before = len(problems.lines)
    for key, other in (
        ("certificate", "key"),
        ("key", "certificate"),
        ("client_ca", "certificate"),
    ):
        if getattr(table, key) is not None and getattr(table, other) is None:
            problems.add([*where, other], f"is required with {where[0]}.{key}")
    local = all(ip_address(host).is_loopback for host, _ in table.listen)
    if table.page and table.certificate is None and not local:
        # Without TLS, a stranger's page in an operator's browser could read it (DNS rebinding).
        needs = f"must be false without {where[0]}.certificate, but on loopback addresses"
        problems.add([*where, "page"], needs)
    if table.certificate is None or table.key is None or len(problems.lines) > before:
        return None if len(problems.lines) > before else HttpSpec(table.listen, page=table.page)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A client of TLS 1.2 could otherwise make the daemon shake hands all the time.
    context.options |= ssl.OP_NO_RENEGOTIATION
    expires = None
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
            problems.add([*where, key], f"{path}: {_reason(key, error)}")
            return None
    return HttpSpec(table.listen, context, expires, table.page)


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


def _reason(key: str, error: OSError | ValueError) -> str:
    if not isinstance(error, ssl.SSLError):
        return (error.strerror if isinstance(error, OSError) else None) or str(error)
    if error.reason == "KEY_VALUES_MISMATCH":
        return "must be the key of http.certificate"
    if key != "key":
        return "must have certificates in PEM form"
    return "must have a private key in PEM form, without a password"
