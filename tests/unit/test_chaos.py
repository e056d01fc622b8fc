"""Parts of the chaos suite: logs, canaries, which faults are done, hostile packets, a soak."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.chaos.fault import KERNEL, NFQUEUE
from testbed.chaos.flood import checksummed
from testbed.chaos.forger import corrupted, forged, packet
from testbed.chaos.logs import Log, most_news, news
from testbed.chaos.members import Health
from testbed.chaos.registry import FAULTS, NOT_QUICK, stages
from testbed.chaos.scene import Canary
from testbed.chaos.soak import Sample, slope


def test_missing_canaries_are_counted() -> None:
    canary = Canary(sent=[0.0, 1.0, 2.0, 3.0], received={0, 3})
    assert canary.lost(0.5, 9.0) == 2
    assert canary.lost(2.5, 9.0) == 0


def test_a_log_is_read_as_it_grows(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text("one\ntw")
    log = Log(file)
    assert log.look() == 1
    with file.open("a") as more:
        more.write("o\nthree\n")
    assert log.look() == 3
    assert log.lines == ["one", "two", "three"]


@pytest.mark.parametrize(
    ("line", "thing"),
    [
        ("drld: no peer answers this limiter: check its network and key", "answers"),
        ("drld: peers answer again", "answers"),
        ("drld: peer l2 is dead: no limiter hears from it", "peer l2's verdict"),
        ("drld: peer l2 is back", "peer l2's verdict"),
        ("drld: peer l2 has left", "peer l2's verdict"),
        (
            "drld: peer l2 has a different configuration: limits missing here: id 7",
            "peer l2's limits",
        ),
        ("drld: peer l2 has the same configuration again", "peer l2's limits"),
        ("drld: ready: limits: 2", None),
    ],
)
def test_lines_about_peers_are_found(line: str, thing: str | None) -> None:
    assert news(line) == thing


def test_repeated_lines_are_counted_together() -> None:
    lines = ["drld: no peer answers", "drld: peers answer again", "drld: peer a is back", "else"]
    assert most_news(lines) == 2
    assert most_news(["else", "else"]) == 0


def test_every_fault_is_done_on_every_datapath_it_is_for() -> None:
    done = [(way, name) for way, names in stages([], None, quick=False) for name in names]
    assert len(done) == len(set(done))
    assert set(done) == {(way, fault.name) for fault in FAULTS.values() for way in fault.datapaths}


def test_quick_does_every_fault_once_that_needs_no_history() -> None:
    done = [name for _, names in stages([], None, quick=True) for name in names]
    assert sorted([*done, *NOT_QUICK[1]]) == sorted(FAULTS)
    assert stages(["upgrade"], None, quick=True) == [(KERNEL, ("upgrade",))]


def test_names_and_datapath_choose() -> None:
    assert stages(["kill-all"], None, quick=False) == [
        (KERNEL, ("kill-all",)),
        (NFQUEUE, ("kill-all",)),
    ]
    assert stages(["kill-all"], NFQUEUE, quick=True) == [(NFQUEUE, ("kill-all",))]


@given(st.binary(min_size=1, max_size=60), st.randoms(use_true_random=False))
def test_a_corrupted_datagram_differs_from_the_recorded_one(recorded: bytes, rng: Random) -> None:
    assert corrupted(rng, recorded) != recorded


@given(st.randoms(use_true_random=False), st.booleans())
def test_a_forged_datagram_has_the_size_of_gossip(rng: Random, deltas: bool) -> None:
    assert len(forged(rng, 3, deltas=deltas)) <= 200


def test_a_packet_has_the_lengths_of_its_headers() -> None:
    made = packet(bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2]), 7946, b"abc")
    assert (len(made), made[12:20]) == (31, bytes([10, 0, 0, 1, 10, 0, 0, 2]))
    assert made[20:26] == bytes([0x1F, 0x0A, 0x1F, 0x0A, 0, 11])


def test_a_header_s_checksum_makes_its_sum_all_ones() -> None:
    made = packet(bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2]), 7946, b"abc")
    header = checksummed(made[:20], len(made))
    total = sum(int.from_bytes(header[at : at + 2], "big") for at in range(0, 20, 2))
    assert total % 0xFFFF == 0
    assert header[2:4] == bytes([0, 31])


def test_memory_that_grows_has_a_slope() -> None:
    sizes = {time_s: 50_000_000 + max(time_s - 300, 0) * 10 for time_s in range(0, 1000, 10)}
    samples = [Sample(time_s, Health(size, 9)) for time_s, size in sizes.items()]
    assert slope(samples, 300.0) == pytest.approx(36_000)
