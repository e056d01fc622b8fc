"""The key of a fleet, changed while it works: installed, used and removed, step by step."""

from __future__ import annotations

import secrets
import time
from pathlib import Path
from typing import Any, NamedTuple

import trio

from testbed.chaos.fault import Episode, Fault
from testbed.chaos.members import Member
from testbed.chaos.scene import Scene
from testbed.errors import MeasurementError
from testbed.harness.finding import Check

_CHANGES = {False: 10, True: 2}
"""Pairs of changes: to a new key, and back to that of the file."""
_KEY_BYTES = 32
_STEP_S = 0.25
"""Time between steps, in which datagrams sealed with the old key arrive and are opened at a
tick."""


class _Lost(NamedTuple):
    """Counts of the whole fleet that a change of keys could raise."""

    updates: int
    refused: int
    sessions: int


async def _lost(scene: Scene) -> _Lost:
    found = [0, 0, 0]
    for member in scene.members.values():
        gossip = (await member.ask("/v1/status"))["gossip"]
        peers: list[dict[str, Any]] = await member.ask("/v1/peers")
        found[0] += sum(peer["lost"] for peer in peers)
        found[1] += sum(gossip["rejected"].values())
        found[2] += gossip["sessions"]
    return _Lost(*found)


async def _change(members: list[Member], old: int, new: int, key: str) -> None:
    """Each step on all limiters before the next step, as docs/security.md says."""
    for path, body in (
        (f"/v1/keys/{new}/install", {"key": key}),
        (f"/v1/keys/{new}/use", None),
        (f"/v1/keys/{old}/remove", None),
    ):
        for member in members:
            status = await member.post(path, body)
            if status not in range(200, 300):
                raise MeasurementError(f"{member.name}{path}: HTTP status {status}")
        await trio.sleep(_STEP_S)


async def _rekey(scene: Scene, quick: bool) -> Episode:
    members = list(scene.members.values())
    (configured,) = members[0].document["gossip"]["keys"]
    key = Path(configured["file"]).read_text(encoding="ascii").strip()
    before = await _lost(scene)
    begin_s = time.monotonic()
    for _ in range(_CHANGES[quick]):
        await _change(members, 1, 2, secrets.token_hex(_KEY_BYTES))
        await _change(members, 2, 1, key)
    healed_s = time.monotonic()
    lost = [after - was for was, after in zip(before, await _lost(scene), strict=True)]
    kept = [(await member.ask("/v1/keys"))["as_configured"] for member in members]
    return Episode(
        begin_s, healed_s, recover_s=2.0, lines=12 * _CHANGES[quick],
        checks=[
            Check("changes of the key", 2 * _CHANGES[quick], least=1),
            Check("updates lost", lost[0], most=0),
            Check("datagrams refused", lost[1], most=0),
            Check("sessions begun again", lost[2], most=0),
            Check("limiters without the file's key at the end", kept.count(False), most=0),
        ],
    )  # fmt: skip


FAULTS = (Fault("rekey", "the key of the fleet is changed, again and again", _rekey),)
