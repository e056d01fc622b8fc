"""Floods of gossip that no limiter has sent."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from testbed.chaos.fault import Bounds, Episode, Fault
from testbed.chaos.members import Member
from testbed.chaos.scene import Scene
from testbed.harness.finding import Check
from testbed.topology import GOSSIP_PORT

_PER_S = 10_000
_SECONDS = {False: 10.0, True: 4.0}
_PATIENCE_S = 30.0
_LEAST_PER_S = 5_000
"""Least rate of a useful test, which a busy host can send."""
_COUNTED = 0.95
"""Least counted part of the sent datagrams; a busy host may lose the rest at a full socket."""


async def _refused(member: Member) -> int:
    """The number of datagrams and updates without effect."""
    gossip = (await member.ask("/v1/status"))["gossip"]
    peers = await member.ask("/v1/peers")
    refused: int = sum(gossip["rejected"].values())
    for peer in peers:
        refused += peer["late"] + peer["rejected"]
    return refused


def _flood(kind: str) -> Callable[[Scene, bool], Awaitable[Episode]]:
    async def act(scene: Scene, quick: bool) -> Episode:
        members = scene.members.values()
        before = {member.name: await _refused(member) for member in members}
        begin_s = time.monotonic()
        forger = await scene.crew.start_module(
            f"forger {kind}",
            scene.wan,
            "chaos.forger",
            {
                "kind": kind,
                "seconds": _SECONDS[quick],
                "per_s": _PER_S,
                "port": GOSSIP_PORT,
                "limits": 3,
                "seed": scene.rng.randrange(1 << 32),
            },
        )
        report = await forger.receive(_SECONDS[quick] + _PATIENCE_S)
        sent: int = report["result"]
        healed_s = time.monotonic()
        await scene.crew.dismiss([forger])
        refused = sum([await _refused(member) - before[member.name] for member in members])
        # In a datagram with several updates each counts.
        share = min(refused / sent, 1.0)
        return Episode(
            Bounds(recover_s=2.0),
            begin_s,
            healed_s,
            checks=[
                Check("packets a second", round(sent / report["seconds"]), least=_LEAST_PER_S),
                Check("refused and counted", round(share, 4), "of them", least=_COUNTED),
            ],
        )  # fmt: skip

    return act


FAULTS = (
    Fault("corrupt", "10,000 corrupted updates a second", _flood("corrupt")),
    Fault("forge", "10,000 forged updates and handshakes a second", _flood("forge")),
    Fault("replay", "10,000 recorded updates a second, again and again", _flood("replay")),
)
