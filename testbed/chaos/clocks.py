"""Wall clocks that jump.

The host's clock stays unchanged, as all processes use it. Each daemon runs with a few replaced
functions of libc (`clock_shim.c`), which add an offset from a file to the wall clock only. The
kernel's wall-clock stamps of packets do not jump, and are wrong as long as the offset lasts. So
this is harder than a real jump. Daemons on nfqueue charge packets by these stamps, as they do where
the host has no eBPF.
"""

from __future__ import annotations

import json
import struct
import time
from pathlib import Path

import trio

from testbed import netns
from testbed.chaos.fault import NFQUEUE, Episode, Fault
from testbed.chaos.members import LOAD, Member
from testbed.chaos.scene import Scene
from testbed.errors import MeasurementError

_SHIM = Path(__file__).with_name("clock_shim.c")
_OFFSET = struct.Struct("=q")
_HOUR_S = 3600
_EACH_S = {False: 4.0, True: 1.5}
_NEAR_S = 60.0


def library(state: Path) -> Path:
    """The replaced functions, compiled into this directory."""
    made = state / "clock_shim.so"
    if not made.exists():
        netns.run(f"cc -shared -fPIC -O1 -o {made} {_SHIM} -ldl".split())
    return made


def environment(shim: Path, clock: Path) -> dict[str, str]:
    """The environment of a daemon whose clock has the offset that a file holds."""
    return {"LD_PRELOAD": str(shim), "DRLD_CHAOS_CLOCK": str(clock)}


def set_offset(clock: Path, offset_s: int) -> None:
    """Write the offset in place, as the daemon has mapped the file."""
    with clock.open("r+b" if clock.exists() else "wb") as file:
        file.write(_OFFSET.pack(offset_s))


def _file(member: Member) -> Path:
    return member.file.with_suffix(".clock")


def _prepare(member: Member, state: Path) -> None:
    set_offset(_file(member), 0)
    member.environment |= environment(library(state), _file(member))
    packets = member.document["packets"]
    if packets["datapath"] == NFQUEUE:
        packets["timestamps"] = "kernel"


async def _expect(member: Member, offset_s: int) -> None:
    """Check that the daemon's clock has the offset.

    Raises:
        MeasurementError: it does not, so the fault did not happen.
    """
    async with (
        member.client() as client,
        client.stream("GET", f"/v1/limits/{LOAD}/trace") as trace,
    ):
        line = await anext(trace.aiter_lines())
    if abs(json.loads(line)["t"] - time.time() - offset_s) > _NEAR_S:
        raise MeasurementError(f"{member.name}: its clock did not jump by {offset_s} s")


async def _jump(scene: Scene, quick: bool) -> Episode:
    early, late = scene.pick(2)
    begin_s = time.monotonic()
    for ahead_s in (_HOUR_S, -_HOUR_S, 0):
        for member, offset_s in ((early, ahead_s), (late, -ahead_s)):
            set_offset(_file(member), offset_s)
            await _expect(member, offset_s)
        if ahead_s:
            await trio.sleep(_EACH_S[quick])
    return Episode(begin_s, time.monotonic(), recover_s=2.0)


FAULTS = (
    Fault("clock-jumps", "wall clocks an hour ahead and an hour behind, and back", _jump,
          prepare=_prepare),
)  # fmt: skip
