"""The table [http], and the files that it names."""

from __future__ import annotations

import os
import ssl
import subprocess
from datetime import datetime, timezone
from pathlib import Path

import pytest

from drld import config, reload
from drld.config.certificate import expiry
from drld.errors import ConfigError
from drld.spec import HttpSpec, LimiterSpec
from tests.certificates import Certificate, authority, signed
from tests.unit.config.good import GOOD, problems
from tests.unit.config.test_remarks import remarks


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Certificate, Certificate]:
    """An authority, and a server's certificate."""
    directory = tmp_path_factory.mktemp("tls")
    ca = authority(directory, "ca")
    return ca, signed(directory, "server", ca, "serverAuth")


def http(listen: str, *lines: str) -> str:
    return GOOD + "\n".join(["[http]", f"listen = {listen}", *lines, ""])


def parsed(listen: str, *lines: str) -> LimiterSpec:
    return config.parse(http(listen, *lines), "drld.toml")


def test_one_address_or_several_are_read() -> None:
    assert config.parse(GOOD, "drld.toml").http is None
    assert parsed('"0.0.0.0:9617"').http == HttpSpec((("0.0.0.0", 9617),))
    assert parsed('["127.0.0.1:1", "[::]:1", "[FD00::1]:2"]').http == HttpSpec(
        (("127.0.0.1", 1), ("::", 1), ("fd00::1", 2))
    )


def test_the_page_is_not_shown_over_the_network_without_tls(
    files: tuple[Certificate, Certificate],
) -> None:
    _, own = files
    assert problems(http('["127.0.0.1:1", "10.0.0.1:1"]', "page = true")) == [
        "drld.toml: http.page: must be false without http.certificate, but on loopback addresses"
    ]
    tls = f'certificate = "{own.cert}"', f'key = "{own.key}"'
    for spec in (parsed('["127.0.0.1:1", "[::1]:1"]', "page = true"),
                 parsed('"0.0.0.0:1"', "page = true", *tls)):  # fmt: skip
        assert spec.http is not None
        assert spec.http.page
    with pytest.raises(ConfigError, match=r"http\.page: cannot change from the default to True"):
        reload.check(parsed('"127.0.0.1:1"'), parsed('"127.0.0.1:1"', "page = true"))


@pytest.mark.parametrize(
    ("listen", "said"),
    [
        ("[]", "1 to 16 addresses, each with a port"),
        (str([f"10.0.0.{n}:1" for n in range(17)]), "1 to 16 addresses, each with a port"),
    ],
)
def test_invalid_addresses_are_refused(listen: str, said: str) -> None:
    got = "an empty array" if listen == "[]" else "an array"
    assert problems(http(listen)) == [f"drld.toml: http.listen: must be {said} (got {got})"]


def test_a_certificate_has_a_key_and_clients_need_one_where_the_server_has(
    files: tuple[Certificate, Certificate],
) -> None:
    ca, own = files
    lines = [f'certificate = "{own.cert}"', f'key = "{own.key}"']
    found = parsed('"10.0.0.1:1"', *lines).http
    assert found is not None
    assert found.tls is not None
    assert found.tls.context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert found.tls.context.options & ssl.OP_NO_RENEGOTIATION
    assert found.tls.context.verify_mode == ssl.CERT_NONE
    found = parsed('"10.0.0.1:1"', *lines, f'client_ca = "{ca.cert}"').http
    assert found is not None
    assert found.tls is not None
    assert found.tls.context.verify_mode == ssl.CERT_REQUIRED
    for line, missing, given in (
        (lines[0], "key", "certificate"),
        (lines[1], "certificate", "key"),
        (f'client_ca = "{ca.cert}"', "certificate", "client_ca"),
    ):
        assert problems(http('"10.0.0.1:1"', line)) == [
            f"drld.toml: http.{missing}: is required with http.{given}"
        ]


def test_the_certificate_s_date_is_known(files: tuple[Certificate, Certificate]) -> None:
    """The date is the one that openssl reads; the first certificate of a chain counts."""
    ca, own = files
    command = ["openssl", "x509", "-noout", "-enddate", "-in", str(own.cert)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    expires = ssl.cert_time_to_seconds(said.strip().removeprefix("notAfter="))
    found = parsed('"10.0.0.1:1"', f'certificate = "{own.cert}"', f'key = "{own.key}"').http
    assert found is not None
    assert found.tls is not None
    assert found.tls.expires == expires
    assert expiry(own.cert.read_text() + ca.cert.read_text()) == expires


def test_dates_before_and_after_2049_are_read() -> None:
    """UTCTime and GeneralizedTime (RFC 5280, 4.1.2.5); a certificate may lack a version."""
    for text, tag, year in (("491231235959Z", 0x17, 2049), ("20500101000000Z", 0x18, 2050)):
        date = bytes([tag, len(text)]) + text.encode()
        validity = b"\x30" + bytes([2 * len(date)]) + 2 * date
        for version in (b"", b"\xa0\x03\x02\x01\x02"):
            inner = version + b"\x02\x01\x01" + 2 * b"\x30\x00" + validity
            body = b"\x30\x81" + bytes([len(inner)]) + inner
            der = b"\x30\x81" + bytes([len(body)]) + body
            at = datetime.fromtimestamp(expiry(ssl.DER_cert_to_PEM_cert(der)), timezone.utc)
            assert at.year == year


def test_files_that_cannot_be_used_are_named(
    files: tuple[Certificate, Certificate], tmp_path: Path
) -> None:
    ca, own = files
    (text := tmp_path / "text").write_text("no certificate")
    text.chmod(0o600)
    os.mkfifo(pipe := tmp_path / "pipe")
    (public := tmp_path / "public").write_text(own.key.read_text())
    public.chmod(0o644)
    subprocess.run(
        ["openssl", "pkey", "-in", own.key, "-aes128", "-passout", "pass:x", "-out", "sealed"],
        check=True,
        cwd=tmp_path,
        capture_output=True,
    )
    (sealed := tmp_path / "sealed").chmod(0o600)
    no_key = "must have a private key in PEM form, without a password"
    for key, file, said in (
        ("certificate", tmp_path / "none", "No such file or directory"),
        ("certificate", text, "must have certificates in PEM form"),
        ("certificate", own.key, "must have certificates in PEM form"),
        ("certificate", pipe, "must be a regular file (got a pipe)"),
        ("certificate", ca.cert, ""),
        ("key", pipe, "must be a regular file (got a pipe)"),
        ("key", public, "must be private: run chmod 600 on it (got mode 644)"),
        ("key", text, no_key),
        ("key", sealed, no_key),
        ("key", ca.key, "must be the key of http.certificate"),
        ("client_ca", text, "must have certificates in PEM form"),
    ):
        its = {"certificate": own.cert, "key": own.key, "client_ca": ca.cert, key: file}
        lines = [f'{name} = "{path}"' for name, path in its.items()]
        where = f"http.{key}: {file}: {said}"
        if not said:  # It is one, and the key is another's.
            where = f"http.key: {own.key}: must be the key of http.certificate"
        assert problems(http('"10.0.0.1:1"', *lines)) == [f"drld.toml: {where}"]


def test_a_key_in_the_place_of_its_file_is_not_shown() -> None:
    (line,) = problems(http('"10.0.0.1:1"', 'key = "secret"'))
    assert line == (
        'drld.toml: http.key: must be an absolute path of a file such as "/etc/drld/ca.pem" '
        "(got a text)"
    )


def test_unencrypted_metrics_draw_a_remark(
    files: tuple[Certificate, Certificate],
) -> None:
    _, own = files
    assert remarks(http('["127.0.0.1:1", "[::1]:1"]')) == []
    assert remarks(http('["127.0.0.1:1", "[::]:1"]')) == [
        "http.listen: [::]:1: figures are sent without TLS: set http.certificate, or listen on a "
        "loopback address"
    ]
    lines = [f'certificate = "{own.cert}"', f'key = "{own.key}"']
    assert remarks(http('"[::]:1"', *lines)) == []


def test_addresses_change_with_a_restart_and_certificates_with_a_reload(
    files: tuple[Certificate, Certificate],
) -> None:
    _, own = files
    lines = [f'certificate = "{own.cert}"', f'key = "{own.key}"']
    reload.check(parsed('"[::1]:1"'), parsed('"[::1]:1"', *lines))
    for old, new, said in (
        (parsed('"[::1]:1"'), parsed('"[::1]:2"'), "from ['[::1]:1'] to ['[::1]:2']"),
        (config.parse(GOOD, "f"), parsed('"[::1]:2"'), "from the default to ['[::1]:2']"),
    ):
        with pytest.raises(ConfigError) as caught:
            reload.check(old, new)
        assert caught.value.problems == [
            f"http.listen: cannot change {said} while the daemon runs: restart it"
        ]
