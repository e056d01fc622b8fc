"""`drlctl doctor` with a daemon, without one, and with a file that cannot be used."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from drld.doctor.facts import host
from tests.control_fake import FakeDaemon
from tests.unit.cli.drlctl import drlctl, invoke

FILE = 'limit = []\n[limiter]\nname = "lim1"\nlisten = "127.0.0.1:7946"\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "drld.toml"
    path.write_text(FILE)
    return path


async def test_a_daemon_and_its_peers_are_judged(
    control: Path, daemon: FakeDaemon, file: Path
) -> None:
    assert daemon.report["probes"] is not None
    daemon.report["probes"]["disagreeing"] = {}
    result = await drlctl(control, "doctor", "--config", file, "--json")
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert report["wrong"]
    found = {each["check"]: each for each in report["findings"]}
    assert found["daemon"]["level"] == "ok"
    assert found["peer lim3"]["level"] == "wrong"
    assert found["peer lim3"]["what"] == "10.0.0.3:7946: dead"
    assert "listen" in found["peer lim3"]["do"]
    shown = await drlctl(control, "doctor", "--config", file)
    assert shown.exit_code == 1
    assert "wrong   peer lim3: 10.0.0.3:7946: dead\n  why   " in shown.stdout
    assert "daemon: ready" not in shown.stdout
    assert "ok      daemon: ready" in (await drlctl(control, "doctor", "--all")).stdout


def test_without_a_daemon_the_file_and_the_host_are_judged(file: Path, tmp_path: Path) -> None:
    (tmp_path / "drld.toml.d").mkdir(mode=0o755)
    (tmp_path / "drld.toml.d" / "10-a.conf").write_text("")
    result = invoke("--socket", tmp_path / "none", "doctor", "--config", file)
    assert result.exit_code == 0, result.stdout
    assert "remark  daemon: cannot reach a daemon at" in result.stdout
    assert "what a killed one left does as on_failure says" in result.stdout
    assert "remark  drop-ins: " in result.stdout
    assert result.stdout.splitlines()[-1].endswith("0 wrong")


def test_the_second_port_of_limits_with_keys_is_checked(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def checks() -> list[str]:
        result = invoke(
            "--socket", tmp_path / "none", "doctor", "--config", file, "--all", "--json"
        )
        return [f"{it['check']}: {it['what']}" for it in json.loads(result.stdout)["findings"]]

    assert not [it for it in checks() if "7947" in it]
    file.write_text(
        FILE.removeprefix("limit = []\n")
        + '[requests]\nlisten = "127.0.0.1:8099"\n[[limit]]\nid = 1\nname = "users"\n'
        'rate = "10/s"\nmatch = { namespace = "api", per = ["user"] }\n'
    )
    assert [it for it in checks() if it.startswith("port of keys: 127.0.0.1, UDP port 7947: ")]
    # Without root, rules of the firewall cannot be read.
    monkeypatch.setattr(host, "chains", lambda: None)
    assert len([it for it in checks() if it.startswith("firewall: ")]) == 1


def test_a_time_namespace_is_wrong_for_packets_alone(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "self").mkdir()
    offsets = "monotonic          -4 500000000\nboottime            0         0\n"
    (tmp_path / "self/timens_offsets").write_text(offsets)
    monkeypatch.setattr(host, "PROC", tmp_path)
    assert host.shifted_s(None) == -3.5
    shown = invoke("--socket", tmp_path / "none", "doctor", "--config", file, "--all").stdout
    assert "time namespace" not in shown
    limit = '{ id = 1, name = "a", rate = "10mbit", match = { out = "lo" } }'
    file.write_text(FILE.replace("[]", f"[{limit}]"))
    shown = invoke("--socket", tmp_path / "none", "doctor", "--config", file, "--all").stdout
    assert "wrong   time namespace: the monotonic clock is shifted by -3.5 s\n" in shown


def test_a_broker_that_takes_no_connections_is_wrong(file: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as broker:
        port = broker.getsockname()[1]
        file.write_text(
            FILE + f'[[broker]]\nname = "m"\nprotocol = "mqtt"\nlisten = "/run/m"\nserver = '
            f'"127.0.0.1:{port}"\n[[broker]]\nname = "n"\nprotocol = "nats"\nlisten = "/run/n"\n'
            f'server = "{tmp_path}/none"\n'
        )
        arguments = ("--socket", tmp_path / "none", "doctor", "--config", file, "--all")
        there = invoke(*arguments).stdout
    assert f"ok      broker m: 127.0.0.1:{port} takes connections\n" in there
    assert f"wrong   broker n: {tmp_path}/none: No such file or directory\n" in there
    gone = invoke(*arguments).stdout
    assert f"wrong   broker m: 127.0.0.1:{port}: Connection refused\n  why   its clients" in gone


def test_a_mistake_in_the_file_is_named(file: Path, tmp_path: Path) -> None:
    file.write_text(FILE + 'speed = "fast"\n')
    result = invoke("--socket", tmp_path / "none", "doctor", "--config", file)
    assert result.exit_code == 1
    assert f"wrong   configuration file: {file}: limiter.speed: " in result.stdout
