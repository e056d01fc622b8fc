"""Laws of the gate, whatever changes: order, nothing lost or doubled, each limit's envelope."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from drld.messages.counts import Counts
from drld.messages.datapath import MessageDatapath
from drld.messages.frame import Frame, Place
from drld.messages.gate import Fate, Held, Lane, Queue
from drld.messages.hold import Hold, Released
from drld.messages.spec import ITEM, ByClient, Excess
from drld.messages.topics import Topic
from drld.messages.waiting import WaitingClient
from drld.model import NS_PER_S, Enforcement
from drld.policy import Mode
from drld.spec import LimitSpec
from tests.unit.messages.made import BROKERS, MS, message_limit, record

LANES = 3
TOPICS = ("a/x", "a/y", "b/x", "b/y", "c")
FILTERS = ("a/#", "#", "+/x", "b/y", "c")
FOREVER_NS = 10**15


class Charge(NamedTuple):
    """A message that a bucket let through."""

    at_ns: int
    bucket: int


class LoggedBucket(WaitingClient):
    """Notes when it charges a message."""

    __slots__ = ("_charges", "_number")

    def log(self, charges: list[Charge], number: int) -> LoggedBucket:
        """Note them here, with this number of the bucket."""
        self._charges = charges
        self._number = number
        return self

    def enter(self, lane: Lane, now_ns: int) -> Fate | Queue:
        found = super().enter(lane, now_ns)
        if found is Fate.FORWARD:
            self._charges.append(Charge(now_ns, self._number))
        return found

    def release(self, now_ns: int, until_ns: int | None = None) -> Iterator[Released[Held]]:
        for released in super().release(now_ns, until_ns):
            at_ns = released.message.came_ns + released.waited_ns
            self._charges.append(Charge(at_ns, self._number))
            yield released


class LoggedDatapath(MessageDatapath):
    """Notes when its buckets charge messages."""

    def __init__(self) -> None:
        super().__init__(BROKERS, Random(1))
        self.charges: list[Charge] = []
        self.buckets = 0

    def _waiting(self, counts: Counts, record: Enforcement, now_ns: int) -> LoggedBucket:
        self.buckets += 1
        bucket = LoggedBucket(self.gate, counts, record, now_ns)
        return bucket.log(self.charges, self.buckets)

    _client = _waiting


class Offer(NamedTuple):
    lane: int
    topic: str | None
    place: Place


class Release(NamedTuple):
    pass


class Change(NamedTuple):
    limits: tuple[LimitSpec, ...]


def limits(excesses: list[Excess], modes: list[Mode]) -> st.SearchStrategy[tuple[LimitSpec, ...]]:
    """Up to five limits, each with an id of its own."""
    each = st.tuples(
        st.sampled_from(FILTERS), st.integers(1, 40), st.integers(1, 4), st.sampled_from(excesses),
        st.sampled_from(modes), st.sampled_from([None, None, ByClient.ADDRESS]), st.booleans(),
    )  # fmt: skip

    def made(found: list[tuple[str, int, int, Excess, Mode, ByClient | None, bool]]) -> tuple[
        LimitSpec, ...
    ]:  # fmt: skip
        return tuple(
            message_limit(
                topic, id=number, rate=rate * 25, burst=burst, excess=excess, mode=mode,
                client=client,
            )
            for number, (topic, rate, burst, excess, mode, client, there) in enumerate(found, 1)
            if there
        )  # fmt: skip

    return st.lists(each, max_size=5).map(made)


offers = st.builds(
    Offer,
    st.integers(0, LANES - 1),
    st.sampled_from([*TOPICS, None]),
    st.sampled_from([Place.KEEPS] * 5 + [Place.OVERTAKES]),
)
pauses = st.integers(0, 60).map(lambda it: it * MS)


def steps(change: st.SearchStrategy[tuple[LimitSpec, ...]] | None) -> st.SearchStrategy[
    list[tuple[int, Offer | Release | Change]]
]:  # fmt: skip
    """Pauses, ns, and what happens after each; most are messages."""
    changes = [] if change is None else [st.builds(Change, change)]
    some = st.one_of(offers, offers, offers, st.builds(Release), *changes)
    return st.lists(st.tuples(pauses, some), max_size=60)


class Run:
    """The frames of a run, and their fates."""

    def __init__(self, first: tuple[LimitSpec, ...]) -> None:
        self.made = LoggedDatapath()
        self.made.attach([(it, record(it)) for it in first], 0)
        self.lanes = [self.made.gate.lane("mqtt", f"{number}") for number in range(LANES)]
        self.now_ns = 0
        self.sent: dict[Lane, list[int]] = {lane: [] for lane in self.lanes}
        """Numbers of frames that keep their places, by connection."""
        self.left: dict[Lane, list[int]] = {lane: [] for lane in self.lanes}
        self.fates: list[Fate] = []

    def step(self, pause_ns: int, what: Offer | Release | Change) -> None:
        self.now_ns += pause_ns
        gate = self.made.gate
        if isinstance(what, Offer):
            lane = self.lanes[what.lane]
            number = len(self.sent[lane])
            topic = None if what.topic is None else Topic(what.topic)
            frame = Frame(b"x" * (number % 5), number, topic, what.place)
            fate = gate.offer(lane, frame, self.now_ns)
            if what.place is Place.OVERTAKES:
                assert fate is Fate.FORWARD
                return
            self.sent[lane].append(number)
            if fate is not Fate.WAIT:
                self.left[lane].append(number)
                self.fates.append(fate)
        elif isinstance(what, Release):
            self.release(self.now_ns)
        else:
            self.made.attach([(it, record(it)) for it in what.limits], self.now_ns)

    def release(self, now_ns: int) -> None:
        for lane, frame, fate in self.made.gate.release(now_ns):
            self.left[lane].append(frame.end)
            self.fates.append(fate)
        due_ns = self.made.gate.due_ns
        assert due_ns is None or due_ns > now_ns

    def look(self, until_ns: int) -> None:
        """Release whatever is due until then, as a daemon does that always looks in time."""
        while (due_ns := self.made.gate.due_ns) is not None and due_ns <= until_ns:
            self.release(due_ns)

    def check_order(self) -> None:
        for lane in self.lanes:
            # Those that have left are the first that were sent, once each and in their order.
            assert self.left[lane] == self.sent[lane][: len(self.left[lane])]
            assert len(lane) == len(self.sent[lane]) - len(self.left[lane])
        assert self.made.gate.held_bytes == sum(lane.held_bytes for lane in self.lanes)

    def check_all_left(self) -> None:
        assert self.left == self.sent
        assert self.made.gate.held_bytes == 0
        assert self.made.gate.due_ns is None


@given(first=limits([*Excess], [*Mode]), what=steps(limits([*Excess], [*Mode])))
def test_nothing_is_lost_doubled_or_reordered_whatever_changes(
    first: tuple[LimitSpec, ...], what: list[tuple[int, Offer | Release | Change]]
) -> None:
    run = Run(first)
    for pause_ns, each in what:
        run.step(pause_ns, each)
        run.check_order()
    run.look(FOREVER_NS)
    run.check_order()
    run.check_all_left()


@given(first=limits([*Excess], [*Mode]), what=steps(limits([*Excess], [*Mode])))
def test_all_messages_leave_at_once_when_the_limits_are_gone(
    first: tuple[LimitSpec, ...], what: list[tuple[int, Offer | Release | Change]]
) -> None:
    run = Run(first)
    for pause_ns, each in what:
        run.step(pause_ns, each)
    run.made.attach((), run.now_ns)
    run.release(run.now_ns)
    run.check_all_left()


def most(charges: list[int], rate: int, depth: int) -> int:
    """How much more than b + r dt passed in the worst window, tokens x 10**-9."""
    worst = -depth * NS_PER_S
    for first, begin_ns in enumerate(charges):
        for count, end_ns in enumerate(charges[first:], 1):
            passed = count * ITEM * NS_PER_S
            worst = max(worst, passed - depth * NS_PER_S - rate * (end_ns - begin_ns))
    return worst


@given(
    first=limits([Excess.WAIT], [Mode.ENFORCE]),
    what=steps(None),
    changes=st.lists(st.integers(1, 40), max_size=3),
)
def test_no_window_has_more_than_the_envelope(
    first: tuple[LimitSpec, ...],
    what: list[tuple[int, Offer | Release | Change]],
    changes: list[int],
) -> None:
    """Also while the rate of a limit falls and rises, for the largest rate and burst of all."""
    run = Run(first)
    rates = {limit.id: limit.policy.rate for limit in first if limit.policy.keyed is None}
    every = max(len(what) // (len(changes) + 1), 1)
    for number, (pause_ns, each) in enumerate(what, 1):
        run.step(pause_ns, each)
        if changes and number % every == 0:
            rate = changes.pop() * 25 * ITEM
            for limit_id, before in rates.items():
                rates[limit_id] = max(before, rate)
                depth = next(it.policy.burst for it in first if it.id == limit_id)
                run.made.program(limit_id, Enforcement(fill_rate=rate, depth=depth), (), run.now_ns)
    run.look(FOREVER_NS)
    run.check_all_left()
    charges: dict[int, list[int]] = defaultdict(list)
    for at_ns, bucket in run.made.charges:
        charges[bucket].append(at_ns)
    rate = max([*rates.values(), *(limit.policy.rate for limit in first)], default=0)
    depth = max((limit.policy.burst for limit in first), default=0)
    for its in charges.values():
        assert its == sorted(its)
        assert most(its, rate, depth) <= 0


def test_the_check_of_the_envelope_sees_one_message_too_many() -> None:
    assert most([0, 0, 0, 10 * MS], 100 * ITEM, 3 * ITEM) == 0
    assert most([0, 0, 0, 10 * MS - 1], 100 * ITEM, 3 * ITEM) > 0
    assert most([0, 0, 0, 0], 100 * ITEM, 3 * ITEM) > 0


def charges_until(hold: Hold[int], now_ns: int) -> list[int]:
    """The times of charges until now, by a daemon that always looks in time."""
    charges = []
    while (due_ns := hold.due_ns) is not None and due_ns <= now_ns:
        charges += [it.message + it.waited_ns for it in hold.release(due_ns)]
    return charges


@given(what=steps(None), rate=st.integers(1, 40), depth=st.integers(1, 4))
def test_one_limit_is_one_bucket_for_all_connections(
    what: list[tuple[int, Offer | Release | Change]], rate: int, depth: int
) -> None:
    """Charges are those of a bucket that gets the same messages without gate and connections."""
    limit = message_limit("#", rate=rate * 25, burst=depth)
    run = Run((limit,))
    hold: Hold[int] = Hold(record(limit), 0)
    expected = []
    for pause_ns, each in what:
        run.look(run.now_ns + pause_ns)
        run.step(pause_ns, each)
        if isinstance(each, Offer) and each.topic is not None and each.place is Place.KEEPS:
            now_ns = run.now_ns
            expected += charges_until(hold, now_ns)
            if hold.offer(now_ns, now_ns):
                expected.append(now_ns)
    expected += charges_until(hold, FOREVER_NS)
    run.look(FOREVER_NS)
    assert [charge.at_ns for charge in run.made.charges] == sorted(expected)
    assert run.made.waits(1).waiting == 0


@given(what=steps(None), first=limits([Excess.WAIT], [Mode.ENFORCE]))
def test_the_time_of_a_release_changes_no_charge(
    what: list[tuple[int, Offer | Release | Change]], first: tuple[LimitSpec, ...]
) -> None:
    """A daemon that runs late delays messages and changes no account, at any number of limits."""
    late, punctual = Run(first), Run(first)
    for pause_ns, each in what:
        until_ns = punctual.now_ns + pause_ns
        while (due_ns := punctual.made.gate.due_ns) is not None and due_ns <= until_ns:
            punctual.release(due_ns)
        punctual.step(pause_ns, each)
        late.now_ns += pause_ns
        if isinstance(each, Offer):
            late.step(0, each)
    for run in (late, punctual):
        run.look(FOREVER_NS)
    assert sorted(late.made.charges) == sorted(punctual.made.charges)
