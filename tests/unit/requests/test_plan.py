"""A decision by a plan is the decision, and leaves the same counts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from drld.model import Enforcement
from drld.policy import Mode
from drld.requests.model import Request
from drld.requests.spec import ITEM

from .test_datapath import bucket, limit, limited, of_plan

REQUESTS = st.builds(
    Request,
    st.sampled_from(["api", "other"]),
    st.sampled_from([{}, {"plan": "free"}]),
    cost=st.sampled_from([0, 1, 1, 1, 3, 200]),
    caller=st.sampled_from(["alice", "bob"]),
    at_least=st.sampled_from([None, None, 1]),
    charge=st.sampled_from([False, False, True]),
).filter(lambda it: not (it.at_least and (it.charge or it.cost < it.at_least)))
FAIR = Enforcement(
    fill_rate=5 * ITEM, depth=6 * ITEM, flow_rate=ITEM, flow_depth=2 * ITEM, reserve=ITEM
)


@given(st.lists(REQUESTS, max_size=20), st.booleans(), st.integers(0, 10**9))
def test_a_plan_decides_as_the_datapath_does(
    requests: list[Request], shadow: bool, gap_ns: int
) -> None:
    limits = (
        (limit(), FAIR),
        (of_plan(2, mode=Mode.SHADOW if shadow else Mode.ENFORCE), bucket(3, rate=1)),
        (of_plan(3, mode=Mode.PAUSE), Enforcement()),
    )
    one, other = limited(*limits), limited(*limits)
    for place, request in enumerate(requests):
        now_ns = place * gap_ns
        assert other.decide_planned(other.plan(request), now_ns) == one.decide(request, now_ns)
    assert other.counters() == one.counters()
    for number in (1, 2, 3):
        assert other.read(number, 10**10) == one.read(number, 10**10)


def test_a_plan_ends_with_the_limits_that_it_was_made_for() -> None:
    path = limited((limit(), bucket(3)))
    plan = path.plan(Request("api", {}))
    assert path.decide_planned(plan, 0) is not None
    limited((limit(2), bucket(3)), datapath=path)
    assert path.decide_planned(plan, 0) is None
