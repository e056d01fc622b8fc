"""Hosts without resources: a full disk, and no free descriptors."""

from __future__ import annotations

import contextlib
import resource
import signal
import socket
import time
from pathlib import Path

import trio

from testbed.chaos.fault import KERNEL, NFQUEUE, Episode, Fault, took_s
from testbed.chaos.members import Member
from testbed.chaos.promises import RESTARTED, RESTARTED_CLOSED, promised
from testbed.chaos.scene import Scene
from testbed.harness.finding import Check

_VICTIM = "l1"
"""The limiter with its control socket and log on a disk of its own."""
_SECONDS = {False: 8.0, True: 2.5}
_DISK = "size=64k,nr_inodes=32"
_CLIENTS = 100
_SPARE = 1
_TAKEN = 200
_PATIENCE_S = 20.0


def _own_disk(member: Member, state: Path) -> None:
    if member.name != _VICTIM:
        return
    disk = state / "disk"
    disk.mkdir()
    member.control = disk / "control.sock"
    member.shell = f"mount -t tmpfs -o {_DISK} disk {disk} && exec 2>{disk}/log"
    member.log = disk / "log"


def _fill(disk: Path) -> None:
    """Fill the disk: no room for a byte or a file."""
    with contextlib.suppress(OSError), (disk / "fill").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    with contextlib.suppress(OSError):
        for number in range(1000):
            (disk / f"fill{number}").touch()


def _empty(disk: Path) -> None:
    for file in disk.glob("fill*"):
        file.unlink()


async def _disk_full(scene: Scene, quick: bool) -> Episode:
    victim = scene.members[_VICTIM]
    disk = victim.socket.parent
    begin_s = time.monotonic()
    _fill(disk)
    answers = []
    while time.monotonic() - begin_s < _SECONDS[quick]:
        answers.append(await victim.reload())
        await victim.ask("/v1/status")
        await trio.sleep(0.2)
    _empty(disk)
    refused = len(answers) - answers.count(_TAKEN)
    checks = [Check("reloads refused", refused, most=0)]
    lines = 2 * len(answers) + 4
    if quick:
        return Episode(begin_s, time.monotonic(), recover_s=2.0, lines=lines, checks=checks)
    absent_s = await _start_full(scene, victim)
    what = RESTARTED if scene.datapath == KERNEL else RESTARTED_CLOSED
    return Episode(
        begin_s, time.monotonic(), recover_s=4.0, lines=lines, checks=checks,
        lost_s=absent_s if scene.datapath == NFQUEUE else 0.0,
        least=promised(what, scene.load.fabric),
    )  # fmt: skip


async def _start_full(scene: Scene, victim: Member) -> float:
    """Kill the daemon, and start it with a full disk, which also has its cache of programs; return
    the time in between."""
    begin_s = time.monotonic()
    disk = victim.control.parent
    victim.kill()
    victim.environment["CACHE_DIRECTORY"] = str(disk)
    victim.shell = f"{victim.shell} && {{ head -c 1M /dev/zero >{disk}/fill || true; }}"
    await scene.revive([victim])
    return time.monotonic() - begin_s + 0.2


async def _descriptors(scene: Scene, quick: bool) -> Episode:
    (victim,) = scene.pick(1)
    soft, hard = resource.prlimit(victim.pid, resource.RLIMIT_NOFILE)
    path = str(victim.socket)
    begin_s = time.monotonic()
    taken = victim.health().descriptors + _SPARE
    resource.prlimit(victim.pid, resource.RLIMIT_NOFILE, (taken, hard))
    try:
        with contextlib.ExitStack() as clients:
            for _ in range(_CLIENTS):
                client = clients.enter_context(socket.socket(socket.AF_UNIX))
                client.setblocking(False)
                if client.connect_ex(path):
                    break
            # A reload needs programs, tables or rules, and has no descriptor for them.
            while time.monotonic() - begin_s < _SECONDS[quick]:
                victim.signal(signal.SIGHUP)
                await trio.sleep(0.5)
    finally:
        resource.prlimit(victim.pid, resource.RLIMIT_NOFILE, (soft, hard))
    healed_s = time.monotonic()

    async def reloads() -> bool:
        # Clients that gave up are still in the socket's queue.
        return await victim.reload() == _TAKEN

    again_s = await took_s(reloads, healed_s, _PATIENCE_S)
    return Episode(
        begin_s, healed_s, recover_s=2.0, lines=4 + 4 * round((healed_s - begin_s) / 0.5),
        checks=[Check("reloads succeed again after", again_s, "s", most=5.0)],
    )  # fmt: skip


FAULTS = (
    Fault("disk-full", "no room for log, socket or cache", _disk_full, prepare=_own_disk),
    Fault("descriptors", "no descriptor is left, while clients connect", _descriptors),
)
