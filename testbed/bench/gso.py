"""The effect of TCP's super-packets on policing with a small bucket.

The kernel datapath sees a super-packet of up to 64 kB as a whole and passes or drops it as a whole.
A few Reno flows pass one limit. The cases differ in the depth of its bucket, the round trip, and
the packets that the sender's interface permits: super-packets, small ones, or 1,500 bytes. All
cases run at once, each through its own interfaces and bucket. Only acknowledgements are delayed, in
the limiter's namespace, as a delay line would segment data.
"""

from __future__ import annotations

from functools import partial
from itertools import product

from testbed import netns
from testbed.bench.contestants import Program, everything
from testbed.bench.lanes import SOURCE, Field, Lane, Place, Setting, wired
from testbed.bench.summary import Outcome, Row
from testbed.bench.traffic import Tcp
from testbed.link import Link, choose_links
from testbed.topology import set_offloads

USED = ("goodput / limit", "")
_OFFLOADS = ("tso", "gso")
_RATE = 1_250_000
_DEPTHS = (15_000, 30_000, 75_000, 150_000, 300_000)
_RTTS = {"no delay": 0, "40 ms": 40_000_000}
_SENDERS = ("GSO, 64 kB", "gso_max_size 8192", "no GSO")
_FLOWS = 5
_WINDOW_S, _WARMUP_S = 6.0, 3.0


async def measure(setting: Setting) -> Outcome:
    """Measure all cases at once, in windows of some seconds."""
    cases = list(product(_RTTS, _SENDERS, _DEPTHS))
    lanes = [Lane(number, "limiter") for number in range(1, len(cases) + 1)]
    limits = [{**everything()(lane)[0], "id": lane.number, "name": f"limit-{lane.number}"}
              for lane in lanes]  # fmt: skip
    records = [{"fill_rate": _RATE, "depth": depth} for _, _, depth in cases]
    police = Program("drld", lambda _: limits, records)
    notes = []
    async with wired(setting, lanes, _OFFLOADS) as members:
        setting.progress.step("starting")
        for lane, (_, sender, _) in zip(lanes, cases, strict=True):
            _set_sender(lane.source.device, sender)
        await police.start(Place(setting, members, lanes[0]))
        links = choose_links("auto")
        delayed = (
            Link(lane.entry.device, _RTTS[rtt])
            for lane, (rtt, _, _) in zip(lanes, cases, strict=True)
            if _RTTS[rtt]
        )
        await links.start(members, lanes[0].namespace, tuple(delayed))
        field = Field(setting, members, lanes, [police])
        tcp = await Tcp.start(field, _FLOWS * len(lanes), _WINDOW_S, _WARMUP_S)
        windows = []
        for number in range(count := setting.choose(7, 2)):
            setting.progress.step(f"window {number + 1} of {count}")
            windows.append(await tcp.each(lanes))
        report = await links.stop()
        if report is not None and (problem := report.problem()):
            notes.append(f"the round trips were not exact: {problem}")
    rows = [
        Row(f"{rtt}, {sender}", f"{depth // 1000} kB", *USED,
            [bps / 8 / _RATE for bps in seen], x=depth / 1000)
        for (rtt, sender, depth), seen in zip(cases, zip(*windows, strict=True), strict=True)
    ]  # fmt: skip
    return Outcome(rows, USED[0], notes, "depth of the bucket (kB)")


def _set_sender(device: str, sender: str) -> None:
    source = netns.namespace(SOURCE)
    if sender == "no GSO":
        netns.within(source, partial(set_offloads, [device], _OFFLOADS, on=False))
    elif sender == "gso_max_size 8192":
        netns.run(["ip", "-n", source, "link", "set", "dev", device, "gso_max_size", "8192"])
