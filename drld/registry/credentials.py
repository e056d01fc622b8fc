"""The files that a session with etcd needs: password and certificates.

They are read for each session, so that new files need no restart, and with the configuration, so
that mistakes are reported there.
"""

from __future__ import annotations

import errno
import ssl
import stat
from pathlib import Path

from drld.errors import RegistryError
from drld.registry.http import reason
from drld.spec import RegistrySpec

_MAX_PASSWORD_BYTES = 4096


def read_password(registry: RegistrySpec) -> str:
    """The password of `registry.user`; empty without a `registry.password_file`.

    Raises:
        RegistryError: the file is unreadable, or holds no password.
    """
    path = registry.password_file
    if path is None:
        return ""
    try:
        _check_regular(path)
        with Path(path).open("rb") as file:
            data = file.read(_MAX_PASSWORD_BYTES + 1)
    except OSError as error:
        raise RegistryError(f"registry.password_file: {path}: {error.strerror}") from error
    try:
        password = data.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        password = ""  # The error's text would show a part of the password.
    if not password or len(data) > _MAX_PASSWORD_BYTES:
        raise RegistryError(f"registry.password_file: {path}: not a password")
    return password


def read_trust(registry: RegistrySpec) -> ssl.SSLContext:
    """The trusted authorities and our certificate, for servers with TLS.

    Raises:
        RegistryError: a file is unreadable, or holds no certificate or key.
    """
    what = f"registry.ca: {registry.ca}"
    try:
        if registry.ca is not None:
            _check_regular(registry.ca)
        context = ssl.create_default_context(cafile=registry.ca)
        if registry.cert is not None:
            files = [path for path in (registry.cert, registry.key) if path is not None]
            what = f"registry.cert, registry.key: {', '.join(files)}"
            for path in files:
                _check_regular(path)
            context.load_cert_chain(registry.cert, registry.key, password="")
    except ssl.SSLError as error:
        said = reason(error) if error.reason else "not a certificate and its key in PEM form"
        raise RegistryError(f"{what}: {said}") from error
    except OSError as error:
        raise RegistryError(f"{what}: {error.strerror}") from error
    return context


def _check_regular(path: str) -> None:
    """Refuse anything but a regular file: reading a pipe could block the daemon.

    Raises:
        OSError: the file is missing, or not a regular one.
    """
    if not stat.S_ISREG(Path(path).stat().st_mode):
        raise OSError(errno.EINVAL, "not a file")
