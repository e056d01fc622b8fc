"""`drlctl explain` foretells the gate's verdict on a packet; asking changes nothing."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from drld.capture.gate import Gate
from drld.capture.notation import read
from drld.capture.registered.explain import Explainer
from drld.capture.spec import Match
from drld.model import Enforcement
from drld.police.direction import Direction
from drld.police.policer import DROP, FORWARD, MARK, Excess
from drld.police.source_sample import SourcePrefix
from drld.policy import Mode

from ..factories import MS, limit_spec
from ..fuzz.targets.packet import ipv4

VERDICTS = {"drop": DROP, "forward": FORWARD, "mark": MARK}
PAYLOAD = bytes([0, 80, 0, 90]) + bytes(476)
FRAMES = [
    bytes([data[0], ecn]) + data[2:]
    for protocol in (6, 17, 47)
    for ecn in (0, 2)
    for data in [ipv4(protocol, PAYLOAD)]
]
RECORDS = st.builds(
    Enforcement,
    drop_probability=st.sampled_from([0.0, 0.0, 0.0, 1.0]),
    fill_rate=st.sampled_from([10_000, 1_000_000]),
    depth=st.sampled_from([None, 400, 3000, 20_000]),
    flow_rate=st.sampled_from([0, 1000, 10_000]),
    flow_depth=st.sampled_from([600, 2000]),
    reserve=st.sampled_from([0, 1500, 20_000]),
)
LIMITS = st.builds(
    lambda mode, excess, flow, protocol: limit_spec(
        mode=mode,
        excess=excess,
        flow=flow,
        match=Match("eth1", Direction.OUT, protocol=protocol),
    ),
    st.sampled_from(Mode),
    st.sampled_from(Excess),
    st.sampled_from([None, SourcePrefix(24)]),
    st.sampled_from([None, 6, 17]),
)


@given(
    st.lists(st.tuples(LIMITS, RECORDS), min_size=1, max_size=3),
    st.lists(st.tuples(st.sampled_from(FRAMES), st.integers(0, 30)), min_size=1, max_size=40),
)
def test_an_explanation_agrees_with_the_verdict(pairs, traffic) -> None:  # type: ignore[no-untyped-def]  # strategies
    limits = []
    for number, (limit, record) in enumerate(pairs, 1):
        policy = replace(limit.policy, id=number, name=f"l{number}")
        paused = policy.mode is Mode.PAUSE
        limits.append((replace(limit, policy=policy), Enforcement() if paused else record))
    records = {limit.id: record for limit, record in limits}
    explainer = Explainer(limit for limit, _ in limits)
    gate = Gate(Random(1))
    gate.replace(limits, 0)
    now_ns = 0
    for data, wait_ms in traffic:
        now_ns += wait_ms * MS
        packet = read(f"{data.hex()} out eth1")
        rows = [
            *explainer.explain(
                packet,
                lambda limit, _: (gate.copy_of(limit.id), records[limit.id]),
                now_ns,
            )
        ]
        said = [VERDICTS[row["verdict"]] for row in rows if row["verdict"]]
        verdict = DROP if DROP in said else max(said, default=FORWARD)
        if not gate.marks:
            packet = packet._replace(capable=False)
        assert gate.judge(data, "eth1", Direction.OUT, 0, now_ns) == verdict, rows
        for row in rows:
            assert bool(row["misses"]) + bool(row["reason"]) == 1
            assert (row["verdict"] is None) == (
                row["misses"] is not None or row["reason"].startswith("not checked")
            )
