"""Overload: more packets than a daemon on nfqueue can judge."""

from __future__ import annotations

import time

from testbed.chaos.fault import NFQUEUE, Bounds, Episode, Fault
from testbed.chaos.promises import STEADY, left_by
from testbed.chaos.scene import Scene
from testbed.harness.finding import Check
from testbed.topology import data_device

_SECONDS = {False: 5.0, True: 2.0}
_FLOODS = 3
"""Number of sending processes, as a daemon may keep up with one."""
_PATIENCE_S = 30.0


async def _overflow(scene: Scene, quick: bool) -> Episode:
    (victim,) = scene.pick(1)
    group = next(group for group, name in scene.layout.path.items() if name == victim.name)
    device = data_device(group)
    (link,) = (veth for veth in scene.layout.veths if veth.near.device == device)
    before = (await victim.ask("/v1/status"))["datapath"]["counters"]["overflow"]
    begin_s = time.monotonic()
    job = {
        "device": device,
        "macs": [link.near.mac, link.far.mac],
        "addresses": [
            scene.layout.source_address[group],
            scene.layout.sink_address[victim.name],
        ],
        "seconds": _SECONDS[quick],
    }
    floods = [
        await scene.crew.start_module(f"flood {number}", scene.wan, "chaos.flood", job)
        for number in range(_FLOODS)
    ]
    sent = 0
    for flood in floods:
        sent += (await flood.receive(_SECONDS[quick] + _PATIENCE_S))["result"]
    healed_s = time.monotonic()
    await scene.crew.dismiss(floods)
    counters = (await victim.ask("/v1/status"))["datapath"]["counters"]
    return Episode(
        # A full queue drops packets of all limits.
        Bounds(
            recover_s=6.0,
            lost_s=healed_s - begin_s + 0.5,
            least=STEADY * left_by(1),
        ),
        begin_s,
        healed_s,
        checks=[
            Check("flooded with", round(sent / (healed_s - begin_s)), "packets/s", least=1_000),
            Check("counted as overflow", counters["overflow"] - before, least=1),
            Check("errors", counters["errors"], most=0),
        ],
    )


FAULTS = (
    Fault("overflow", "more packets than a daemon on nfqueue can judge", _overflow, (NFQUEUE,)),
)
