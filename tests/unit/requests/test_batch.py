"""The batch protocol at the front, over real sockets: answers, bounds on strangers, and the end."""

from __future__ import annotations

import itertools
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, memory_stream_pair

from drld import config
from drld.client.protocol import greeting
from drld.client.protocol.conversation import Conversation, Event
from drld.client.protocol.frame import HEAD, MAX_CHECKS, Kind, frame
from drld.client.protocol.limit_table import LimitTable
from drld.client.protocol.model import Answer, Question
from drld.control.connection import REQUEST_S, WRITE_S
from drld.control.turns import Turns
from drld.model import Enforcement
from drld.requests import caller
from drld.requests.front import batch
from drld.requests.front.batch import IDLE_S, SLICE_NS, BatchFront, Passes
from drld.requests.spec import ITEM
from drld.spec import OnFailure

from ...fleets.requests import RequestFleet, request_limit
from .fronts import front
from .good import GOOD
from .made import bucket, limit, limited, of_plan

PEER = caller.Client("192.0.2.1")
API = Question("api")
FREE = Question("api", {"plan": "free"}, caller="alice")


class Client:
    """One connection, as a test drives it."""

    def __init__(self, stream: trio.abc.Stream, process: int = 1) -> None:
        self.stream = stream
        self.conversation = Conversation()
        self.process = process

    async def greet(self) -> None:
        await self.stream.send_all(self.conversation.greeting(self.process))

    async def read(self, number: int = 1) -> list[Event]:
        """Events, at least so many."""
        events: list[Event] = []
        while len(events) < number:
            data = bytes(await self.stream.receive_some())
            assert data, "the limiter has ended the connection"
            events += self.conversation.receive(data)
        return events

    async def ask(self, *questions: Question) -> list[Answer]:
        sent, numbers = self.conversation.ask(questions)
        await self.stream.send_all(sent)
        found = dict(it for it in await self.read(len(numbers)) if not isinstance(it, LimitTable))
        return [found[number] for number in numbers if isinstance(number, int)]

    async def table(self) -> LimitTable:
        await self.stream.send_all(self.conversation.limits())
        (table,) = await self.read()
        assert isinstance(table, LimitTable)
        return table


@asynccontextmanager
async def connected(made: BatchFront, process: int = 1) -> AsyncIterator[tuple[Client, trio.Event]]:
    """A client of one connection, and an event of the connection's end."""
    ours, theirs = memory_stream_pair()
    ended = trio.Event()

    async def serve() -> None:
        await made.connection(theirs, PEER).serve()
        ended.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        client = Client(ours, process)
        await client.greet()
        yield client, ended
        await ours.aclose()
        with trio.fail_after(5):
            await ended.wait()


def fronted() -> BatchFront:
    datapath = limited(
        (limit(on_failure=OnFailure.OPEN), bucket(5, rate=1)), (of_plan(2), bucket(2))
    )
    return BatchFront(datapath, lambda: 0, Turns())


async def test_any_address_speaks_it_beside_http(tmp_path: Path) -> None:
    datapath = limited((limit(), bucket(3, rate=1)), (of_plan(2), bucket(1)))
    async with front(tmp_path, datapath) as made, made.client() as http:
        assert (await http.get("/v1/check?namespace=api")).status_code == 200
        path = made.addresses[1]
        assert isinstance(path, str)
        for stream in (await made.stream(), await trio.open_unix_socket(path)):
            async with stream:
                client = Client(stream)
                await client.greet()
                (answer,) = await client.ask(API)
                assert answer.admitted
        (refused,) = (await http.get("/v1/check?namespace=api"),)
        assert refused.status_code == 429
        # Two connections, two callers: an address, and a user of this host.
        assert len(datapath.read(1, 1).flows) == 2


async def test_answers_say_what_those_of_http_say() -> None:
    async with connected(fronted()) as (client, _):
        admitted, second, refused, other, free = await client.ask(
            FREE, FREE, FREE, Question("other"), API._replace(cost=0)
        )
    assert admitted == Answer(True, 1, "limit-2", 1.0, None, None)
    assert second.admitted
    assert second.remaining == 0
    assert refused == Answer(False, 0, "limit-2", 0.0, None, None)
    assert other == Answer(True, 1)
    assert free == Answer(True, 0, "limit-1", 3.0, 2.0, None)


async def test_a_refusal_says_when_to_come_back() -> None:
    async with connected(fronted()) as (client, _):
        *_, refused = await client.ask(*[API] * 6)
        assert refused == Answer(False, 0, "limit-1", 0.0, 5.0, 1.0)


async def test_a_part_is_granted_and_what_is_done_is_charged() -> None:
    async with connected(fronted()) as (client, _):
        _, part, charged, sized, refused = await client.ask(
            API,
            API._replace(cost=100, at_least=2),
            API._replace(cost=3, charge=True),
            API._replace(size=7, cost=0),
            API,
        )
        assert (part.admitted, part.granted, part.remaining) == (True, 4, 0)
        assert (charged.admitted, charged.granted, charged.reset_s) == (True, 3, 8.0)
        assert (sized.admitted, sized.granted) == (False, 0)
        assert (refused.admitted, refused.retry_after_s) == (False, 4.0)


async def test_a_mistake_is_the_answer_to_its_question_alone() -> None:
    async with connected(fronted()) as (client, _):
        answers = await client.ask(
            Question(""),
            Question("api", {"cost": "x"}),
            Question("api", {str(number): "x" for number in range(9)}),
            Question("api", {"x" * 256: "a"}),
            API._replace(cost=2**31),
            API._replace(size=0),
            API._replace(caller="x" * 257),
            API._replace(cost=2, at_least=3),
            API._replace(cost=0, charge=True),
            API._replace(at_least=1, charge=True),
            API,
        )
        assert [answer.error for answer in answers] == [
            "namespace: is required, as a text",
            "cost: is no name for a descriptor, as a query uses it",
            "a descriptor must have 8 pairs at most (got 9)",
            "a descriptor must have 256 bytes at most (got 257)",
            "cost: must be a whole number from 0 to 2147483647",
            "bytes: must be a whole number from 1 to 2147483647",
            "caller: must be a text of 1 to 256 bytes",
            "at_least: must be a whole number from 1 to 2",
            "charge: must have a cost of at least 1, or bytes",
            "at_least: must not be given with charge, as a charge is never refused",
            None,
        ]
        assert [answer.admitted for answer in answers] == [False] * 10 + [True]
        # What no client of ours sends: a flag of the future, a pair twice, half a pair.
        for flags, text, error in (
            (8, b"api\xff", "flags that this limiter does not know"),
            (0, b"api\xff\xffa\xffb\xffa\xffb", "a: must not be given twice"),
            (0, b"api\xff\xffa", "a namespace, a caller, and pairs"),
        ):
            record = struct.pack(">IIIIHH", 9, 1, 0, 0, flags, len(text))
            await client.stream.send_all(frame(Kind.CHECKS, 1, record + text))
            ((number, answer),) = await client.read()  # type: ignore[misc]  # one answer
            assert number == 9
            assert isinstance(answer, Answer)
            assert error in (answer.error or "")


async def test_frames_are_pipelined_and_may_come_in_pieces() -> None:
    async with connected(fronted()) as (client, _):
        first, _ = client.conversation.ask([API])
        second, _ = client.conversation.ask([FREE, Question("")])
        sent = first + client.conversation.limits() + second
        for byte in sent:
            await client.stream.send_all(bytes([byte]))
        events = await client.read(4)
        assert [it[0] for it in events if not isinstance(it, LimitTable)] == [0, 1, 2]


async def test_the_limits_and_the_processes_are_told() -> None:
    made = fronted()
    async with connected(made, 1) as (first, _), connected(made, 1), connected(made, 2):
        await first.ask(API)
        table = await first.table()
        assert table.processes == 2
        api, plan = table.limits
        assert (api.name, api.namespace, api.where, api.on_failure) == (
            "limit-1",
            "api",
            {},
            "open",
        )
        assert (api.share_rate, api.share_burst, api.item) == (10**6, 5 * 10**6, 10**6)
        assert (api.quota, api.window_s, api.enforced) == (100, 1, True)
        assert (plan.where, plan.on_failure) == ({"plan": "free"}, "share")
        # The share follows the peers; what is in force now is another matter.
        made.datapath.set_share(1, bucket(4, rate=3))
        assert (await first.table()).limits[0].share_rate == 3 * 10**6
    async with connected(made, 3) as (third, _):
        assert (await third.table()).processes == 1


def test_the_share_is_that_of_the_limiter_among_its_peers() -> None:
    fleet = RequestFleet([[request_limit()], [request_limit()]])
    fleet.run(1)
    assert [node.datapath.shares[1].fill_rate for node in fleet.nodes] == [50 * ITEM] * 2


@pytest.mark.parametrize(
    "sent",
    [
        HEAD.pack(2**31, 1, 0, 1),
        HEAD.pack(0, 1, 0, MAX_CHECKS + 1),
        frame(Kind.ANSWERS, 1, b""),
        frame(Kind.CHECKS, 1, b"short"),
        frame(Kind.CHECKS, 0, b""),
    ],
)
async def test_where_no_frame_can_be_read_the_connection_ends_after_the_answers(
    sent: bytes,
) -> None:
    async with connected(fronted()) as (client, ended):
        asked, _ = client.conversation.ask([API])
        await client.stream.send_all(asked + sent)
        ((number, _),) = await client.read()  # type: ignore[misc]  # one answer
        assert number == 0
        assert await client.stream.receive_some() == b""
        await ended.wait()


async def test_a_client_of_another_version_is_told_so() -> None:
    ours, theirs = memory_stream_pair()
    await ours.send_all(greeting.MAGIC + bytes([2, 2]) + bytes(8))
    await fronted().connection(theirs, PEER).serve()
    assert await ours.receive_some() == greeting.welcome(0)


async def test_slow_and_silent_clients_have_so_much_time(autojump_clock: MockClock) -> None:
    begun = trio.current_time()
    ours, theirs = memory_stream_pair()
    await ours.send_all(greeting.hello(1)[:-1])
    await fronted().connection(theirs, PEER).serve()
    assert trio.current_time() - begun == pytest.approx(REQUEST_S)

    async with connected(fronted()) as (client, ended):
        await trio.sleep(IDLE_S - 1)
        asked, _ = client.conversation.ask([API])
        begun = trio.current_time()
        await client.stream.send_all(asked[:10])
        await trio.sleep(REQUEST_S / 2)
        # More of the same frame gains no time.
        await client.stream.send_all(asked[10:12])
        await ended.wait()
        assert trio.current_time() - begun == pytest.approx(REQUEST_S)

    async with connected(fronted()) as (client, ended):
        begun = trio.current_time()
        await ended.wait()
        assert trio.current_time() - begun == pytest.approx(IDLE_S)


async def test_a_client_that_takes_no_answers_is_left(autojump_clock: MockClock) -> None:
    ours, theirs = memory_stream_pair()

    async def stuck() -> None:
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(fronted().connection(theirs, PEER).serve)
        client = Client(ours)
        await client.greet()
        await client.ask(API)
        theirs.send_stream.send_all_hook = stuck
        await ours.send_all(client.conversation.ask([API])[0])
        begun = trio.current_time()
    assert trio.current_time() - begun == pytest.approx(WRITE_S)


class CountedTurns(Turns):
    taken = 0

    async def wait(self) -> None:
        self.taken += 1
        await super().wait()


async def test_a_large_frame_leaves_others_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look moves the clock on, as if the work took that long."""
    monkeypatch.setattr(batch, "_CHECKS_A_LOOK", 100)
    turns = CountedTurns()
    clock = itertools.count(SLICE_NS, SLICE_NS).__next__
    made = BatchFront(limited((limit(), bucket(5, rate=1))), clock, turns)
    async with connected(made) as (client, _):
        answers = await client.ask(*[API] * 1000)
        assert len(answers) == 1000
        assert turns.taken >= 5


async def test_keys_have_buckets_of_their_own_and_clients_are_told_of_them() -> None:
    text = GOOD.replace('"api" }', '"api", per = ["user"] }').replace("burst = 200", "burst = 3")
    (keyed,) = config.parse(text.replace("100/s", "9/d"), "f").limits
    datapath = limited((keyed, Enforcement()))
    datapath.keyed.configure({"l2", "l3"}, 10**8, b"secret", 0)
    made = BatchFront(datapath, lambda: 10**15, Turns())
    async with connected(made) as (client, _):
        for user in ("a", "b"):
            asked = [Question("api", {"user": user})] * 5
            answers = await client.ask(*asked)
            assert [it.admitted for it in answers] == [True] * 3 + [False] * 2, answers
        (info,) = (await client.table()).limits
        assert info.per == ("user",)
        # Without the fleet, a key's third is this limiter's.
        assert (info.share_rate, info.share_burst) == (104 // 3, 10**6)


@pytest.mark.parametrize("number", [1, 999, 1000])
async def test_clients_are_told_the_quotas_of_overrides_up_to_a_bound(number: int) -> None:
    token = "x" * 65
    overrides = [f'{{ user = "{user}", rate = "7/min" }}' for user in (token, *range(number))]
    per = f'"api", per = ["user"] }}\noverrides = [{", ".join(overrides)}]'
    (keyed,) = config.parse(GOOD.replace('"api" }', per), "f").limits
    made = BatchFront(limited((keyed, Enforcement())), lambda: 10**15, Turns())
    async with connected(made) as (client, _):
        (info,) = (await client.table()).limits
    told = number < 1000
    for user, quota in ((token, (7, 60)), ("0", (7, 60)), ("bob", (100, 1))):
        assert info.quota_of({"user": user}) == (quota if told else None)


async def test_a_reload_is_in_force_for_questions_that_were_asked_before() -> None:
    made = fronted()
    async with connected(made) as (client, _):
        assert [it.admitted for it in await client.ask(FREE, FREE, FREE)] == [True, True, False]
        limited((limit(3), bucket(9)), datapath=made.datapath)
        assert [(it.limit, it.remaining) for it in await client.ask(FREE, FREE)] == [
            ("limit-3", 8),
            ("limit-3", 7),
        ]


def busy(burst: float) -> tuple[BatchFront, CountedTurns]:
    """A front of which each look at the clock moves it on by half a slice, as if it worked so
    long; and its turns."""
    clock, turns = itertools.count(SLICE_NS // 2, SLICE_NS // 2), CountedTurns()
    return BatchFront(limited((limit(), bucket(burst))), clock.__next__, turns), turns


async def test_many_small_pieces_of_work_wait_for_turns_too() -> None:
    made, turns = busy(5)
    async with connected(made) as (client, _):
        for _ in range(20):
            await client.ask(API)
    assert 5 <= turns.taken <= 20


async def test_pieces_of_work_in_different_passes_of_the_loop_wait_for_no_turn() -> None:
    """The client asks again only when it has its answer."""
    made, turns = busy(25)
    passes = Passes(made)
    trio.lowlevel.add_instrument(passes)
    try:
        async with connected(made) as (client, _):
            for _ in range(20):
                assert [it.admitted for it in await client.ask(API)] == [True]
    finally:
        trio.lowlevel.remove_instrument(passes)
    assert turns.taken == 0


async def test_frames_that_have_begun_are_answered_when_the_daemon_stops(tmp_path: Path) -> None:
    async with front(tmp_path) as made, await made.stream() as idle, await made.stream() as begun:
        clients = [Client(idle), Client(begun)]
        for client in clients:
            await client.greet()
            await client.ask(API)
        asked, _ = clients[1].conversation.ask([API])
        await begun.send_all(asked[:9])
        made.stopping.set()
        with trio.fail_after(5):
            assert await idle.receive_some() == b""
            await begun.send_all(asked[9:])
            assert await clients[1].read()
            assert await begun.receive_some() == b""
