"""The token bucket: filling, draining, credits, and times that run backward."""

from hypothesis import given
from hypothesis import strategies as st

from drld.model import NS_PER_S, Enforcement
from drld.police.token_bucket import TokenBucket

from ..factories import MS

RATE = 1_250_000


def bucket(fill_rate: int = RATE, depth: int | None = 75_000) -> TokenBucket:
    return TokenBucket(Enforcement(fill_rate=fill_rate, depth=depth), now_ns=0)


def take(tokens: TokenBucket, length: int, now_ns: int) -> bool:
    tokens.settle(now_ns)
    if not tokens.conforms(length):
        return False
    tokens.charge(length)
    return True


def test_begins_full_and_empties_to_the_byte() -> None:
    tokens = bucket()
    assert take(tokens, 75_000, 0)
    assert not take(tokens, 1, 0)


def test_fills_at_its_rate_and_keeps_the_fraction() -> None:
    tokens = bucket()
    take(tokens, 75_000, 0)
    # 1.25 MB/s is a byte every 800 ns.
    assert not take(tokens, 1, 799)
    assert take(tokens, 1, 800)
    for now_ns in range(900, 1600, 100):
        assert not take(tokens, 1, now_ns)
    assert take(tokens, 1, 1600)


def test_time_never_runs_backward() -> None:
    tokens = bucket()
    take(tokens, 75_000, 10 * MS)
    tokens.settle(0)
    tokens.settle(10 * MS)
    assert tokens.tokens == 0


def test_a_negative_rate_drains_to_zero_and_no_further() -> None:
    tokens = bucket(fill_rate=-RATE)
    tokens.settle(NS_PER_S)
    assert tokens.tokens == 0
    tokens.program(Enforcement(fill_rate=RATE, depth=75_000), NS_PER_S)
    tokens.settle(NS_PER_S + 800)
    assert tokens.tokens == 1


def test_program_settles_at_the_old_rate_first() -> None:
    tokens = bucket()
    take(tokens, 75_000, 0)
    tokens.program(Enforcement(fill_rate=0, depth=75_000), 8 * MS)
    tokens.settle(NS_PER_S)
    assert tokens.tokens == 10_000


def test_shrinking_clamps_and_growing_adds_nothing() -> None:
    tokens = bucket()
    tokens.program(Enforcement(fill_rate=0, depth=10_000), 0)
    assert tokens.tokens == 10_000
    tokens.program(Enforcement(fill_rate=0, depth=75_000), 0)
    assert tokens.tokens == 10_000


def test_a_credit_is_granted_once_and_within_the_depth() -> None:
    tokens = bucket(fill_rate=0, depth=20_000)
    tokens.charge(20_000)
    record = Enforcement(fill_rate=0, depth=20_000, credit=15_000, credit_id=1)
    tokens.program(record, 0)
    tokens.program(record, 0)
    assert tokens.tokens == 15_000
    tokens.program(Enforcement(fill_rate=0, depth=20_000, credit=15_000, credit_id=2), 0)
    assert tokens.tokens == 20_000


def test_no_depth_is_no_bucket() -> None:
    tokens = bucket(depth=None)
    assert all(take(tokens, 65_535, 0) for _ in range(100))
    tokens.program(Enforcement(fill_rate=0, depth=1500), 0)
    assert tokens.tokens == 1500


def test_a_packet_larger_than_the_depth_passes_a_full_bucket_into_debt() -> None:
    tokens = bucket(fill_rate=1_000_000, depth=18_000)
    assert take(tokens, 64_000, 0)
    assert tokens.tokens == -46_000
    assert not take(tokens, 1, 46 * MS)
    assert take(tokens, 1000, 47 * MS)
    # The bucket is not full before it was left alone for the time that fills it.
    assert not take(tokens, 64_000, 64 * MS)
    assert take(tokens, 64_000, 65 * MS)


def test_a_bucket_without_depth_passes_nothing() -> None:
    assert not take(bucket(fill_rate=0, depth=0), 1, NS_PER_S)


def test_draining_neither_makes_nor_pays_a_debt() -> None:
    tokens = bucket(fill_rate=0, depth=1000)
    assert take(tokens, 1500, 0)
    tokens.program(Enforcement(fill_rate=-RATE, depth=1000), 0)
    tokens.settle(NS_PER_S)
    assert tokens.tokens == -500


packets = st.lists(
    st.tuples(st.integers(0, 100 * MS), st.integers(1, 65_535)), min_size=1, max_size=200
)


@given(packets, st.integers(0, 10**10), st.integers(1, 10**6))
def test_never_forwards_more_than_rate_times_time_plus_depth_and_a_packet(
    trace: list[tuple[int, int]], rate: int, depth: int
) -> None:
    tokens = bucket(rate, depth)
    now_ns = passed = debt = 0
    for gap_ns, length in trace:
        now_ns += gap_ns
        if take(tokens, length, now_ns):
            passed += length
            # A packet larger than the depth leaves a debt.
            debt = max(debt, length - depth)
        assert passed * NS_PER_S <= rate * now_ns + (depth + debt) * NS_PER_S


@given(packets, st.integers(-3, 3) | st.integers(-(10**8), 10**8), st.integers(1, 10**6))
def test_how_often_it_is_settled_does_not_matter(
    trace: list[tuple[int, int]], rate: int, depth: int
) -> None:
    seldom, often = bucket(rate, depth), bucket(rate, depth)
    now_ns = 0
    for gap_ns, length in trace:
        for part in (3, 2):
            often.settle(now_ns + gap_ns // part)
        now_ns += gap_ns
        assert take(seldom, length, now_ns) == take(often, length, now_ns)
        assert seldom.tokens == often.tokens
