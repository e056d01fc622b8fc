"""Keys of the fleet in the configuration: files that no other user may read."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from drld import config
from drld.gossip.wire.keyring import KeyRing

from .good import assert_one_line, changed, problems

KEY, OTHER = bytes(range(16)), bytes(range(100, 132))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "fleet.key"
    path.write_text(KEY.hex() + "\n")
    path.chmod(0o600)
    return path


def with_gossip(*lines: str) -> str:
    return changed(("[[peer]]", "\n".join(["[gossip]", *lines, "[[peer]]"])))


def ring(*lines: str) -> KeyRing:
    return config.parse(with_gossip(*lines), "drld.toml").ring


def remarks(*lines: str) -> list[str]:
    return config.remarks(config.parse(with_gossip(*lines), "drld.toml"))


def entry(key_id: int, path: Path) -> str:
    return f'{{ id = {key_id}, file = "{path}" }}'


def test_without_keys_there_is_no_ring() -> None:
    assert ring() == KeyRing()


def test_one_key_is_used(file: Path) -> None:
    assert ring(f"keys = [{entry(2, file)}]") == KeyRing({2: KEY}, use=2)
    assert ring(f"keys = [{entry(2, file)}]", "tag = 16").tag_size == 16


def test_use_chooses_one_of_several_keys(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.key"
    other.write_bytes(base64.b64encode(OTHER))
    other.chmod(0o440)
    keys = f"keys = [{entry(1, file)}, {entry(3, other)}]"
    assert ring(keys, "use = 3") == KeyRing({1: KEY, 3: OTHER}, use=3)
    assert_one_line(
        with_gossip(keys),
        "gossip.use: is required with several keys: the id of the key to send with",
    )
    assert_one_line(with_gossip(keys, "use = 2"), "gossip.use: must be the id of a key (got 2)")


def test_without_keys_in_use_unauthenticated_updates_must_be_accepted(file: Path) -> None:
    keys = f"keys = [{entry(1, file)}]"
    migrating = ring(keys, "use = 0", "accept_unauthenticated = true")
    assert migrating == KeyRing({1: KEY}, use=0, accept_unauthenticated=True)
    assert_one_line(
        with_gossip(keys, "use = 0"),
        "gossip.use: must be the id of a key unless accept_unauthenticated is true (got 0)",
    )


def test_a_migration_that_is_not_over_is_remarked_upon(file: Path) -> None:
    key = f"keys = [{entry(1, file)}]"
    (remark,) = remarks(key, "accept_unauthenticated = true")
    assert remark.startswith("gossip.accept_unauthenticated: datagrams without a key are accepted")
    assert remarks(key, "use = 0", "accept_unauthenticated = true") == [remark]
    assert remarks(key) == remarks() == []


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o620, 0o644, 0o666])
def test_a_file_that_others_may_read_or_write_is_refused(file: Path, mode: int) -> None:
    file.chmod(mode)
    assert_one_line(
        with_gossip(f"keys = [{entry(1, file)}]"),
        f"gossip.keys[0].file: {file}: must be private: run chmod 600 on it (got mode {mode:o})",
    )


@pytest.mark.parametrize(
    "content",
    [b"", b"\n", KEY[:15].hex().encode(), (KEY * 3).hex().encode(), b"no key!", b"\xff" * 40],
)
def test_a_file_without_a_key_is_refused_and_not_shown(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    (line,) = problems(with_gossip(f"keys = [{entry(1, file)}]"))
    assert line == (
        f"drld.toml: gossip.keys[0].file: {file}: must be a key: 16 to 32 bytes in hexadecimal "
        "digits or base64"
    )


def test_a_path_that_is_no_file_is_refused(file: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    for path, reason in (
        (tmp_path / "none", "No such file or directory"),
        (pipe, "must be a regular file (got a pipe)"),
        (tmp_path, "must be a regular file (got a directory)"),
    ):
        (line,) = problems(with_gossip(f"keys = [{entry(1, path)}]"))
        assert line == f"drld.toml: gossip.keys[0].file: {path}: {reason}"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("tag = 5", "gossip.tag: must be 4, 8 or 16 (got 5)"),
        ('tag = "4"', "gossip.tag"),
        ("use = 4", "gossip.use: must be at most 3 (got 4)"),
        ("use = true", "gossip.use: must be an integer (got true)"),
        ('keys = [{ id = 0, file = "/k" }]', "gossip.keys[0].id: must be at least 1 (got 0)"),
        ('keys = [{ id = 4, file = "/k" }]', "gossip.keys[0].id: must be at most 3 (got 4)"),
        ('keys = [{ id = 1, file = "k" }]', "gossip.keys[0].file: "),
        ("keys = [{ id = 1 }]", "gossip.keys[0].file: is required"),
        ('keys = "secret"', "gossip.keys"),
        (
            "accept_unauthenticated = 1",
            "gossip.accept_unauthenticated: must be true or false (got 1)",
        ),
    ],
)
def test_mistakes_name_the_key(line: str, said: str) -> None:
    assert any(said in problem for problem in problems(with_gossip(line))), problems(
        with_gossip(line)
    )


def test_an_id_is_given_once(file: Path) -> None:
    assert_one_line(
        with_gossip(f"keys = [{entry(1, file)}, {entry(1, file)}]", "use = 1"),
        "gossip.keys[1].id: must be unique (got 1)",
    )


def test_keys_are_not_shown_by_accident(file: Path) -> None:
    spec = config.parse(with_gossip(f"keys = [{entry(1, file)}]"), "drld.toml")
    assert repr(KEY) not in repr(spec)
    assert KEY.hex() not in repr(spec)
