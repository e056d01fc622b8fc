"""`python -m testbed arrival`: that it shows what it says, and that nothing stays behind."""

from __future__ import annotations

import os
from pathlib import Path

from testbed import netns
from testbed.arrival import Stream, compare, table
from testbed.harness.progress import Progress
from testbed.stamps import Recorder

from .topology import Topology, wait_for

STREAM = Stream(
    rate_bps=20_000_000, depth_bytes=30_000, packet_bytes=1000, load=0.9, seconds=2, busy=3
)


async def test_a_conforming_stream_loses_nothing_to_a_bucket_with_stamps() -> None:
    with Path(os.devnull).open("w", encoding="ascii") as silence:
        result = await compare(STREAM, ("ebpf", "read"), 1, Progress(silence))
    stamped, read = result["runs"]
    assert stamped["sent"] == read["sent"] == 4500
    assert stamped["dropped"] <= stamped["beyond"]
    for run in (stamped, read):
        assert run["arrived"] + run["overflow"] + run["lost"] == run["sent"]
        charged = run["stamped_ebpf"] + run["stamped_kernel"], run["unstamped"]
        assert charged == ((run["arrived"], 0) if run is stamped else (0, run["arrived"]))
    assert len(table(result).splitlines()) == 3
    assert netns.own() == []
    assert not netns.state_directory().exists()


def test_the_recorder_records_packets_and_counts_those_it_misses(
    topology: Topology,
) -> None:
    recorder = topology.within("limiter", lambda: Recorder("in0", 32))
    try:
        with topology.udp("source", "10.91.1.1") as sender:
            for size in range(3):
                sender.sendto(bytes(size), ("10.91.2.1", 9000))
            arrivals = wait_for(recorder.arrivals, lambda found: len(found) == 3)
            times = [time_ns for time_ns, _ in arrivals]
            assert times == sorted(times)
            assert [length for _, length in arrivals] == [28, 29, 30]
            assert recorder.missed() == 0
            for _ in range(40):
                sender.sendto(b"", ("10.91.2.1", 9000))
        assert wait_for(recorder.missed, bool) > 0
    finally:
        recorder.close()
