"""Floods: gossip that no limiter has sent, and more packets than a daemon on nfqueue can judge."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from testbed.chaos.fault import NFQUEUE, Episode, Fault
from testbed.chaos.members import Member
from testbed.chaos.promises import STEADY, left_by
from testbed.chaos.scene import Scene
from testbed.harness.finding import Check
from testbed.topology import GOSSIP_PORT, data_device

_PER_S = 10_000
_FORGING_S = {False: 10.0, True: 4.0}
_LEAST_PER_S = 5_000
"""Least rate of a useful test, which a busy host can send."""
_COUNTED = 0.95
"""Least counted part of the sent datagrams; a busy host may lose the rest at a full socket."""
_FLOODING_S = {False: 5.0, True: 2.0}
_FLOODS = 3
"""Number of sending processes, as a daemon may keep up with one."""
_PATIENCE_S = 30.0


async def _sent(
    scene: Scene, module: str, jobs: Sequence[dict[str, Any]]
) -> tuple[list[dict[str, Any]], float]:
    """Let a process for each job send into the network between limiters.

    Returns their answers, and the time of the last one.
    """
    senders = [
        await scene.crew.start_module(f"{module} {number}", scene.wan, f"chaos.{module}", job)
        for number, job in enumerate(jobs)
    ]
    answers = [await sender.receive(job["seconds"] + _PATIENCE_S)
               for sender, job in zip(senders, jobs, strict=True)]  # fmt: skip
    ended_s = time.monotonic()
    await scene.crew.dismiss(senders)
    return answers, ended_s


async def _refused(member: Member) -> int:
    """The number of datagrams and updates without effect."""
    gossip = (await member.ask("/v1/status"))["gossip"]
    peers = await member.ask("/v1/peers")
    counts = [*gossip["rejected"].values(), *(peer["late"] + peer["rejected"] for peer in peers)]
    return sum(counts)


def _forge(kind: str) -> Callable[[Scene, bool], Awaitable[Episode]]:
    async def act(scene: Scene, quick: bool) -> Episode:
        members = scene.members.values()
        before = sum([await _refused(member) for member in members])
        job = {
            "kind": kind, "seconds": _FORGING_S[quick], "per_s": _PER_S, "port": GOSSIP_PORT,
            "limits": 3, "seed": scene.rng.randrange(1 << 32),
        }  # fmt: skip
        begin_s = time.monotonic()
        (answer,), healed_s = await _sent(scene, "forger", [job])
        sent = answer["result"]
        refused = sum([await _refused(member) for member in members]) - before
        # In a datagram with several updates each counts.
        share = min(refused / sent, 1.0)
        return Episode(
            begin_s, healed_s, recover_s=2.0,
            checks=[
                Check("packets a second", sent / answer["seconds"], least=_LEAST_PER_S),
                Check("refused and counted", share, "of them", least=_COUNTED),
            ],
        )  # fmt: skip

    return act


async def _overflow(scene: Scene, quick: bool) -> Episode:
    (victim,) = scene.pick(1)
    layout = scene.layout
    group = next(group for group, name in layout.path.items() if name == victim.name)
    device = data_device(group)
    (link,) = (veth for veth in layout.veths if veth.near.device == device)
    job = {
        "device": device,
        "macs": [link.near.mac, link.far.mac],
        "addresses": [layout.source_address[group], layout.sink_address[victim.name]],
        "seconds": _FLOODING_S[quick],
    }
    before = (await victim.ask("/v1/status"))["datapath"]["counters"]
    begin_s = time.monotonic()
    answers, healed_s = await _sent(scene, "flood", [job] * _FLOODS)
    after = (await victim.ask("/v1/status"))["datapath"]["counters"]
    rate = sum(answer["result"] for answer in answers) / (healed_s - begin_s)
    return Episode(
        # A full queue drops packets of all limits.
        begin_s, healed_s, recover_s=6.0, lost_s=healed_s - begin_s + 0.5,
        least=STEADY * left_by(1),
        checks=[
            Check("flooded with", rate, "packets/s", least=1_000),
            Check("counted as overflow", after["overflow"] - before["overflow"], least=1),
            Check("errors", after["errors"], most=0),
        ],
    )  # fmt: skip


FAULTS = (
    Fault("corrupt", "10,000 corrupted updates a second", _forge("corrupt")),
    Fault("forge", "10,000 forged updates and handshakes a second", _forge("forge")),
    Fault("replay", "10,000 recorded updates a second, again and again", _forge("replay")),
    Fault("overflow", "more packets than a daemon on nfqueue can judge", _overflow, (NFQUEUE,)),
)
