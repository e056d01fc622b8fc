"""The cost of a packet under 1 to 10,000 limits on the kernel datapath, and on two processors.

Each limit has one address. Packets go round all addresses, so that caches do not help, or all to
one. Then senders on two processors charge one limit at once, compared with a limit for each sender,
and with one sender.
"""

from __future__ import annotations

from collections.abc import Sequence

from testbed.bench.bpf_stats import statistics_on, timed
from testbed.bench.contestants import Program, prefixes
from testbed.bench.cost import OVER_EMPTY
from testbed.bench.lanes import Lane, Sample, Setting, contest, differences
from testbed.bench.summary import Outcome, Row
from testbed.bench.traffic import LARGE_FRAME, Blast

COUNTS = (1, 10, 100, 1_000, 10_000)
_RECORDS = [{"fill_rate": 10**10, "depth": 10**9}]
_SLICE_S, _WARMUP_S = 0.3, 0.1


async def measure(setting: Setting) -> Outcome:
    """Measure each number of limits, then two processors that charge one limit."""
    counts = COUNTS[::2] if setting.quick else COUNTS
    with statistics_on():
        rows = [*await _by_count(setting, counts), *await _by_processors(setting)]
    return Outcome(rows, OVER_EMPTY[0], axis="limits")


async def _by_count(setting: Setting, counts: Sequence[int]) -> list[Row]:
    programs = [Program(f"{count} limits", prefixes(count), _RECORDS) for count in counts]
    rows = []
    async with contest(setting, [Program("empty"), *programs]) as field:
        for pattern, spread in {"packets to all": True, "packets to one": False}.items():
            most = dict(enumerate([1, *counts], 1)) if spread else {}

            async def through(lane: Lane, addresses: dict[int, int] = most) -> Sample:
                blast = Blast(
                    field, LARGE_FRAME, _SLICE_S,
                    addresses=addresses.get(lane.number, 1), warmup_s=_WARMUP_S,
                )  # fmt: skip
                return await blast.measure(lane)

            empty, *others = await field.alternate(
                pattern, setting.choose(11, 2), timed(field, through)
            )
            rows += [
                Row(pattern, f"{count:,}", *OVER_EMPTY, differences(seen, empty, "ns"), x=count)
                for count, seen in zip(counts, others, strict=True)
            ]
    return rows


async def _by_processors(setting: Setting) -> list[Row]:
    cases = {
        "one sender": (1, False),
        "two senders, a limit each": (2, True),
        "two senders, the same limit": (2, False),
    }
    seen = {}
    async with contest(
        setting, [Program("empty"), Program("2 limits", prefixes(2), _RECORDS)]
    ) as field:
        for case, (senders, apart) in cases.items():
            blast = Blast(
                field, LARGE_FRAME, _SLICE_S,
                cpus=setting.cpus[:senders], apart=apart, warmup_s=_WARMUP_S,
            )  # fmt: skip
            seen[case] = await field.alternate(
                case, setting.choose(11, 2), timed(field, blast.measure)
            )
    return [
        Row("contention", case, *OVER_EMPTY, differences(loaded, empty, "ns"))
        for case, (empty, loaded) in seen.items()
    ]
