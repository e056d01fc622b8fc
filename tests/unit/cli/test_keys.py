"""drlctl keys: what is shown, what is changed, and that no key is ever seen."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from drld.config.keys import read_key
from drld.gossip.wire.keyring import KeyRing, fingerprint
from tests.control_fake import FakeDaemon
from tests.unit.cli.drlctl import drlctl, invoke, lines, output, refused

KEY = bytes(range(16, 32))


async def test_keys_are_rotated(control: Path, daemon: FakeDaemon, tmp_path: Path) -> None:
    assert await output(control, "keys", "list") == lines("""
        ID  FINGERPRINT  USE
        1   82c3dc3e     sends and receives
    """)
    file = tmp_path / "new.key"
    file.write_bytes(base64.b64encode(KEY) + b"\n")
    shown = await output(control, "keys", "install", 2, file)
    assert shown == lines("""
        ID  FINGERPRINT  USE
        1   82c3dc3e     sends and receives
        2   014c77ff     receives
        The configuration file has other keys: these last until a restart.
    """)
    assert daemon.ring.keys[2] == KEY
    used = json.loads(await output(control, "keys", "use", 2, "--json"))
    assert (used["use"], used["as_configured"]) == (2, False)
    removed = json.loads(await output(control, "keys", "remove", 1, "--json"))
    assert [key["id"] for key in removed["keys"]] == [2]
    daemon.configured = daemon.ring
    assert json.loads(await output(control, "keys", "list", "--json"))["as_configured"]


async def test_a_daemon_without_keys_says_so(control: Path, daemon: FakeDaemon) -> None:
    daemon.ring = daemon.configured = KeyRing()
    assert await output(control, "keys", "list") == lines("""
        ID  FINGERPRINT  USE
        0   -            sends and receives without a key
    """)


async def test_migration_is_shown(control: Path, daemon: FakeDaemon) -> None:
    daemon.ring = daemon.configured = KeyRing({1: KEY}, use=1, accept_unauthenticated=True)
    assert "0   -            receives without a key\n" in await output(control, "keys", "list")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("use", 2), "must be the id of a key (got 2)"),
        (("use", 0), "unless accept_unauthenticated is true"),
        (("remove", 1), "is in use"),
        (("remove", 3), "is not there"),
    ],
)
async def test_changes_that_keys_do_not_allow_are_refused(
    control: Path, daemon: FakeDaemon, args: tuple[object, ...], said: str
) -> None:
    before = daemon.ring
    assert said in refused(await drlctl(control, "keys", *args))
    assert daemon.ring is before


async def test_the_key_in_use_is_not_replaced(
    control: Path, daemon: FakeDaemon, tmp_path: Path
) -> None:
    file = tmp_path / "new.key"
    file.write_text(KEY.hex())
    said = refused(await drlctl(control, "keys", "install", 1, file))
    assert "is in use; install the new one under another id" in said
    assert daemon.ring == daemon.configured


@pytest.mark.parametrize("text", ["", "secret", KEY[:15].hex(), (KEY * 3).hex(), "é"])
async def test_a_file_without_a_key_is_refused_and_not_shown(
    control: Path, daemon: FakeDaemon, tmp_path: Path, text: str
) -> None:
    file = tmp_path / "new.key"
    file.write_text(text)
    said = refused(await drlctl(control, "keys", "install", 2, file))
    assert "must be a key" in said
    assert not text or text not in said
    assert daemon.ring == daemon.configured


def test_a_generated_key_is_private_and_new(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a.key", "b.key")]
    made = [invoke("keys", "generate", file) for file in files]
    assert [result.exit_code for result in made] == [0, 0]
    one, other = (read_key(str(file)) for file in files)
    assert len(one) == len(other) == 32
    assert one != other
    assert fingerprint(one) in made[0].stdout
    assert one.hex() not in made[0].stdout
    assert files[0].stat().st_mode & 0o777 == 0o600
    assert "File exists" in refused(invoke("keys", "generate", files[0]))
    assert read_key(str(files[0])) == one
