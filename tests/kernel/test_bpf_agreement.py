"""The BPF program and the Python parser agree about frames of every kind, and so does scapy."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drld.capture.kernel.datapath import limiter_programs

from ..fuzz.finding import CORPUS
from ..fuzz.frames import frame, random_frame
from ..fuzz.targets.packet import packets
from .agreement import Agreement, check, seeds
from .bench import TEST_FLAGS

MARKS = [0, 0x10, 0x1F, 0xFFFFFFFF]
FRAMES = 5000


@pytest.fixture(scope="session")
def agreement() -> Iterator[Agreement]:
    made = Agreement(limiter_programs(TEST_FLAGS))
    yield made
    made.close()


def test_packets_cut_off_at_every_byte_are_parsed_alike(agreement: Agreement) -> None:
    for packet in packets():
        for end in range(len(packet) + 1):
            agreement.check_packet(packet[:end])


def test_frames_cut_off_at_every_byte_are_parsed_alike(agreement: Agreement) -> None:
    """Inside the VLAN tags, too."""
    for tags in range(4):
        data = frame(packets()[1], 0)
        data = data[:12] + b"\x81\x00\x00\x0a" * tags + data[12:]
        for end in range(14, len(data) + 1):
            agreement.check(data[:end])


def test_packets_with_any_byte_changed_are_parsed_alike(agreement: Agreement) -> None:
    for packet in packets():
        for place in range(min(len(packet), 72)):
            for value in (0, 0xFF, packet[place] ^ 1, packet[place] ^ 0x80):
                agreement.check(frame(packet[:place] + bytes([value]) + packet[place + 1 :]))


def test_findings_of_fuzzers_are_parsed_alike(agreement: Agreement) -> None:
    found = [path for path in (CORPUS / "packet").iterdir() if path.is_file()]
    assert found
    for path in found:
        agreement.check_packet(path.read_bytes()[2:])
    for path in (CORPUS / "bpf").iterdir():
        assert check(path.read_bytes()) in (True, False)


def test_the_seeds_of_the_fuzzer_are_sound() -> None:
    for seed in seeds():
        assert check(seed)


def test_random_frames_are_parsed_alike(agreement: Agreement) -> None:
    rng = Random(7)
    sound = sum(agreement.check(random_frame(rng), rng.choice(MARKS)) for _ in range(FRAMES))
    assert FRAMES / 3 < sound < FRAMES


@given(rng=st.randoms(use_true_random=False), mark=st.sampled_from(MARKS))
def test_any_frames_are_parsed_alike(agreement: Agreement, rng: Random, mark: int) -> None:
    agreement.check(random_frame(rng), mark)


@given(data=st.binary(min_size=14, max_size=120), tags=st.integers(0, 2))
def test_any_bytes_are_parsed_alike(agreement: Agreement, data: bytes, tags: int) -> None:
    agreement.check(data)
    agreement.check(frame(data, tags))
