"""TCP through a limiter with a limit that never binds, against no limiter and other meters.

Slices without and with a limiter form pairs, and the figure is the ratio within a pair. The
sender's processor handles all packets of a lane, up to the sink's socket, and is the bottleneck. So
the ratio shows the extra time of a packet. An empty lane against another one shows the noise of
this host.
"""

from __future__ import annotations

from collections.abc import Sequence

from testbed.bench.contestants import HASHLIMIT, NFT, POLICE, Drld
from testbed.bench.lanes import Contestant, Setting, contest, ratios, values
from testbed.bench.summary import Outcome, Row
from testbed.bench.traffic import Tcp
from testbed.errors import HostError

FLOWS = 4
RATIO, _RATE = ("rate over none's", ""), ("rate", "Gbit/s")
OFFLOADS: dict[str, Sequence[str]] = {"1,500-byte packets": (), "GSO": ("tso", "gso")}
_SLICE_S, _WARMUP_S = 0.5, 0.1
_FIELDS, _ROUNDS = 4, 5
"""Numbers of fields and rounds. Each field makes new lanes, every other one in the opposite order,
as one of two empty lanes may be some per cent faster for its lifetime."""


async def measure(setting: Setting) -> Outcome:
    """Compare all contestants, with and without offloads."""
    peers = (NFT, HASHLIMIT, POLICE)
    missing: dict[str, str] = {}
    for peer in peers:
        try:
            async with contest(setting, [peer]):
                pass
        except HostError as error:
            missing[peer.name] = f"{peer.name} is not available here: {_reason(error)}"
    rows: list[Row] = []
    there = [peer for peer in peers if peer.name not in missing]
    rivals = [Contestant(), Drld("kernel"), Drld("nfqueue"), *there]
    notes = list(missing.values())
    for group, offloads in OFFLOADS.items():
        found, disqualified = await _against_none(setting, rivals, group, offloads)
        rows += found
        notes += [f"{group}: {reason}." for reason in disqualified]
    return Outcome(rows, RATIO[0], notes)


async def _against_none(
    setting: Setting, rivals: Sequence[Contestant], group: str, offloads: Sequence[str]
) -> tuple[list[Row], list[str]]:
    """The rows of the contestants that count, and the reasons why others do not."""
    ratio: dict[str, list[float]] = {rival.name: [] for rival in rivals}
    rate: dict[str, list[float]] = {rival.name: [] for rival in rivals}
    disqualified: dict[str, str] = {}
    none = Contestant()
    for number in range(setting.choose(_FIELDS, 1)):
        lanes = [none, *rivals]
        if number % 2:
            lanes.reverse()
        async with contest(setting, lanes, offloads) as field:
            tcp = await Tcp.start(field, FLOWS, _SLICE_S, _WARMUP_S)
            for rival in rivals:
                without, with_it = await field.alternate(
                    f"{group}, {rival.name}",
                    setting.choose(_ROUNDS, 3),
                    tcp.measure,
                    (lanes.index(none), lanes.index(rival)),
                )
                ratio[rival.name] += ratios(with_it, without, "bps")
                rate[rival.name] += [bps / 1e9 for bps in values(with_it, "bps")]
        disqualified |= field.disqualified
    rows = []
    for rival in rivals:
        if rival.name not in disqualified:
            goal = 0.97 if rival.name == "drld kernel" else None
            rows += [
                Row(group, rival.name, *RATIO, ratio[rival.name], at_least=goal),
                Row(group, rival.name, *_RATE, rate[rival.name]),
            ]
    return rows, list(disqualified.values())


def _reason(error: HostError) -> str:
    """The tool's message, without our command."""
    said = str(error)
    return (said.partition("Error: ")[2] or said).splitlines()[0]
