"""One connection in the batch protocol (drld.client.protocol): many checks a frame, pipelined.

- A mistake in a question is the answer to this question. If a frame itself cannot be read, the
  connection ends, after the answers to all earlier frames.
- The front decides all frames of a read at once, and answers them by one write. No check has a
  task, and adjacent checks under the same limit are decided together. After `SLICE_NS` of work for
  all connections in one pass of the event loop, the next piece waits for its turn.
- A client completes a greeting or a frame within `REQUEST_S` of its first byte, and takes answers
  within `WRITE_S`. A connection without a byte for `IDLE_S` ends, and frees its place.
- The memory of a connection is that of one frame, of the bytes of one read, and of the answers.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import islice
from typing import TypeAlias

import trio

from drld.client.protocol import check_codec
from drld.client.protocol.check_codec import ADMITTED, AT_LEAST, CHARGE, ERROR, REMAINING, SIZE
from drld.client.protocol.frame import MAX_BODY_BYTES, Frames, Kind
from drld.client.protocol.greeting import HELLO_BYTES, read_hello, welcome
from drld.client.protocol.limit_table import LimitInfo, key_text, table_frame
from drld.control.connection import REQUEST_S, WRITE_S
from drld.control.turns import Turns
from drld.errors import InputError, WireError
from drld.policy import Mode, Override
from drld.requests import question
from drld.requests.answer import failure_word, quota_of, tightest
from drld.requests.caller import Client, caller_of
from drld.requests.datapath import RequestDatapath, Shaped
from drld.requests.model import Answer, Request, Standing
from drld.requests.question import MAX_AMOUNT
from drld.requests.shape import Shape
from drld.requests.spec import match_of
from drld.spec import LimitSpec

IDLE_S = 60.0
"""The longest time without a question. For a client that asks less often, a new connection for each
question costs little."""
SLICE_NS = 2_000_000
_CHECKS_A_LOOK = 32
"""The checks between two readings of the clock: half a millisecond on a slow host."""
_READ_BYTES = 65_536
MAX_OVERRIDES = 1000
"""The most overrides that a client is told: some 50 kB. It needs them for `RateLimit-Policy`."""
_MAX_SHAPES = 512
"""The most shapes that the front remembers: about 10 MB."""

Check: TypeAlias = "tuple[tuple[int, ...], bytes]"
"""The record of a question, and its text."""
Written: TypeAlias = "tuple[bytes, bytes]"
"""The record of an answer, and its text."""


class _Run:
    """Adjacent questions that fall under the same limits."""

    __slots__ = ("costs", "held", "numbers", "together")

    def __init__(self, held: Sequence[Shaped] | None) -> None:
        """`held`: the limits; None: they are not known before each question is read."""
        self.held = held
        self.together = held is not None and len(held) == 1 and not held[0][2]
        """Whether the questions are decided together: under one limit without keys."""
        self.numbers: list[int] = []
        self.costs: list[int] = []


class BatchFront:
    """The state that all connections in this protocol share."""

    def __init__(self, datapath: RequestDatapath, clock: Callable[[], int], turns: Turns) -> None:
        """Make the front.

        Args:
            datapath: decides.
            clock: the clock of the daemon's ticks, ns.
            turns: shared with the daemon's other servers.
        """
        self.datapath = datapath
        self.clock = clock
        self.turns = turns
        self._processes: Counter[int] = Counter()
        """The number of connections of each process of clients."""
        self.worked_ns = 0
        """The work since the last turn, or in this pass of the event loop (`Passes`), ns."""
        self._shapes: dict[tuple[bytes, ...], Shape[Shaped]] = {}
        """The shapes of recent questions, by namespace and names."""
        self._generation = 0
        """The generation of the limits for which the shapes are made."""

    def connection(self, stream: trio.abc.Stream, peer: object) -> BatchConnection:
        """Return the connection that serves one client."""
        assert isinstance(peer, Client)
        return BatchConnection(self, stream, caller_of(peer, (), ()))

    def table(self) -> bytes:
        """Return the frame that tells a client the limits."""
        limits = self.datapath.limits.values()
        told = sum(len(_overrides_of(it)) for it in limits) <= MAX_OVERRIDES
        return table_frame([self._info(it, told) for it in limits], len(self._processes))

    @contextmanager
    def client(self, process: int) -> Iterator[None]:
        """Count a connection of this process."""
        self._processes[process] += 1
        try:
            yield
        finally:
            self._processes[process] -= 1
            self._processes += Counter()  # Forgets those without a connection.

    def renew(self) -> None:
        """Forget the shapes if the limits have changed."""
        if self._generation != self.datapath.generation:
            self._generation = self.datapath.generation
            self._shapes.clear()

    def answers(self, checks: Iterable[Check], caller: str, now_ns: int) -> list[Written]:
        """Decide about questions that come together.

        Most questions name the same pairs as one before, and have no option. Of these only the
        values are read.
        """
        written: list[Written] = []
        run = _Run(None)
        for record, text in checks:
            number, cost, _, _, flags, _ = record
            parts = text.split(check_codec.SEPARATOR)
            named = tuple(parts[::2])
            shape, held = self._shapes.get(named), None
            # The second part is the caller. A text with a mistake may have one part.
            plain = not flags and 0 < cost <= MAX_AMOUNT and len(parts) > 1 and not parts[1]
            if shape is not None and plain:
                held = shape.find(parts[3::2])
            if held is not run.held:
                written += self._decided(run, caller, now_ns)
                run = _Run(held)
            if run.together:
                run.numbers.append(number)
                run.costs.append(cost)
            elif held is not None:
                shaped = self.datapath.decide_shaped(held, parts[3::2], caller, cost, now_ns)
                written.append(_written(number, shaped))
            else:
                written.append(self._read(record, text, caller, now_ns))
        written += self._decided(run, caller, now_ns)
        return written

    def _decided(self, run: _Run, caller: str, now_ns: int) -> Iterator[Written]:
        """Decide about the questions of a run: together, as far as they pass without doubt.

        Behind one that is refused, the next is likely to be refused, too. So the others are decided
        together again behind one that passes.
        """
        held, numbers, costs = run.held, run.numbers, run.costs
        if not held or not numbers:
            return
        policy, flags, write = held[0][0].policy, ADMITTED | REMAINING, check_codec.answer_record
        name, shown = policy.name.encode(), policy.unit.shown_amount
        place, together = 0, True
        while place < len(numbers):
            if together:
                rest = costs[place:]
                fills = self.datapath.pass_first(held[0], rest, caller, now_ns)
                for number, cost, (tokens, reset_ns) in zip(
                    numbers[place:], rest, fills, strict=False
                ):
                    left = shown(tokens)
                    record = write(
                        number, flags, name, granted=cost, reset_ns=reset_ns, remaining=left
                    )
                    yield record, name
                place += len(fills)
            if place < len(numbers):
                answer = self.datapath.decide_shaped(held, (), caller, costs[place], now_ns)
                yield _written(numbers[place], answer)
                together = answer.admitted
                place += 1

    def _read(self, record: tuple[int, ...], text: bytes, caller: str, now_ns: int) -> Written:
        """Decide about a question of which all is read."""
        number = record[0]
        try:
            request = self._request(record, text, caller)
        except InputError as error:
            text = str(error).encode(errors="replace")
            return check_codec.answer_record(number, ERROR, text), text
        named = tuple(text.split(check_codec.SEPARATOR)[::2])
        if named not in self._shapes:
            self._remember(named, request)
        return _written(number, self.datapath.decide(request, now_ns))

    def _remember(self, named: tuple[bytes, ...], request: Request) -> None:
        """Remember the shape of this question."""
        if len(self._shapes) >= _MAX_SHAPES:
            # Frequent shapes come back at once.
            self._shapes.clear()
        self._shapes[named] = self.datapath.shape(request.namespace, [*request.descriptor])

    def _request(self, record: tuple[int, ...], text: bytes, caller: str) -> Request:
        """Read a question.

        Raises:
            InputError: the question has a mistake.
        """
        _, cost, least, size, flags, _ = record
        check_codec.check_flags(flags)
        amounts: dict[str, object] = {"cost": cost}
        if flags:
            amounts["charge"] = flags & CHARGE != 0
            if flags & SIZE:
                amounts["bytes"] = size
            if flags & AT_LEAST:
                amounts["at_least"] = least
        return question.of_batch(check_codec.parts_of(text), amounts, caller)

    def _info(self, limit: LimitSpec, told: bool) -> LimitInfo:
        policy, match, share = limit.policy, match_of(limit), self.datapath.share(limit)
        quota, window_s = _quota(limit)
        own = {key_text(it.key): _quota(limit, it.rate) for it in _overrides_of(limit) if told}
        return LimitInfo(
            name=limit.name,
            namespace=match.namespace,
            where=match.where,
            on_failure=failure_word(limit),
            enforced=policy.mode is Mode.ENFORCE,
            unit=policy.unit.name,
            item=policy.unit.item,
            quota=quota,
            window_s=window_s,
            rate=policy.rate,
            share_rate=max(share.fill_rate, 0),
            share_burst=share.depth,
            per=match.per,
            burst=policy.burst,
            overrides=own if told or not _overrides_of(limit) else None,
        )


class Passes(trio.abc.Instrument):
    """Tells a front of each pass of the event loop, as other tasks have their time then."""

    def __init__(self, front: BatchFront) -> None:
        self._front = front

    def after_io_wait(self, timeout: float) -> None:  # noqa: ARG002 -- trio passes it
        """Count the work of the pass that begins now."""
        self._front.worked_ns = 0


class BatchConnection:
    """One client; `serve` ends with it."""

    def __init__(self, front: BatchFront, stream: trio.abc.Stream, caller: str) -> None:
        """`caller` is the caller of questions that name none."""
        self._front = front
        self._stream = stream
        self._caller = caller
        self._frames = Frames(MAX_BODY_BYTES)
        self._scope = trio.CancelScope()
        self._idle = False
        """Whether the connection waits for the first byte of a frame."""
        self._draining = False
        self._turn_ns = 0
        """The time at which the work since the last turn began, ns."""

    async def serve(self) -> None:
        """Answer until the client closes the connection or is too slow."""
        async with self._stream:
            with suppress(trio.BrokenResourceError, WireError):
                data = b""
                with trio.move_on_after(REQUEST_S):
                    while len(data) < HELLO_BYTES:
                        if not (more := await self._stream.receive_some(_READ_BYTES)):
                            return
                        data += more
                version, process = read_hello(data[:HELLO_BYTES])
                await self._stream.send_all(welcome(version))
                if version:
                    with self._front.client(process):
                        await self._converse(data[HELLO_BYTES:])

    def drain(self) -> None:
        """End the connection: at once if no frame has begun, otherwise after the answers."""
        self._draining = True
        if self._idle:
            self._scope.cancel()

    async def _converse(self, data: bytes) -> None:
        due = 0.0
        # One scope serves all waits: a scope for each wait would cost as much as a decision.
        with self._scope:
            while True:
                complete, begun = False, self._frames.partial
                if data:
                    complete = await self._answer(data)
                if not self._frames.partial:
                    if self._draining:
                        return
                    self._idle = True
                    due = trio.current_time() + IDLE_S
                elif complete or not begun:
                    due = trio.current_time() + REQUEST_S
                self._scope.deadline = due
                data = bytes(await self._stream.receive_some(_READ_BYTES))
                self._idle = False
                if not data:
                    return

    async def _answer(self, data: bytes) -> bool:
        """Answer the frames that these bytes complete; return whether there are any.

        Raises:
            WireError: the bytes after them are no frame.
        """
        answers: list[bytes] = []
        complete = False
        if self._front.worked_ns > SLICE_NS:
            await self._turn()
        self._turn_ns = self._front.clock()
        try:
            for kind, count, body in self._frames.feed(data):
                complete = True
                if kind is Kind.CHECKS:
                    answers.append(await self._decide(count, body))
                elif kind is Kind.ASK_LIMITS:
                    # The table is much longer than its question: the client takes it first.
                    await self._send(b"".join(answers) + self._front.table())
                    answers.clear()
                    await self._turn()
                else:
                    raise WireError("kind", f"a client sends no frame of the kind {kind}")
        finally:
            self._front.worked_ns += self._front.clock() - self._turn_ns
            if answers:
                await self._send(b"".join(answers))
        return complete

    async def _turn(self) -> None:
        # The client has no deadline meanwhile: this delay is the daemon's.
        self._scope.deadline = math.inf
        await self._front.turns.wait()
        self._front.worked_ns = 0
        self._turn_ns = self._front.clock()

    async def _decide(self, count: int, body: bytes) -> bytes:
        """Return the frame that answers a frame of questions."""
        front, written, now_ns = self._front, list[Written](), self._front.clock()
        front.renew()
        checks = check_codec.read_checks(count, body)
        while some := [*islice(checks, _CHECKS_A_LOOK)]:
            written += front.answers(some, self._caller, now_ns)
            now_ns = front.clock()
            if now_ns - self._turn_ns > SLICE_NS and len(written) < count:
                await self._turn()
                now_ns = self._turn_ns
                front.renew()
        return check_codec.answer_frame(written)

    async def _send(self, data: bytes) -> None:
        self._scope.deadline = trio.current_time() + WRITE_S
        await self._stream.send_all(data)


def _overrides_of(limit: LimitSpec) -> Sequence[Override]:
    """Return the overrides of a limit."""
    return limit.policy.keyed.overrides if limit.policy.keyed else ()


def _quota(limit: LimitSpec, rate: int | None = None) -> tuple[int, int]:
    """Return the quota of the limit, or of another rate under it, and its window, s."""
    if rate is not None:
        limit = replace(limit, policy=replace(limit.policy, rate=rate))
    return quota_of(Standing(limit, 0, None, None, None))


def _written(number: int, answer: Answer) -> Written:
    """Return an answer's record and text."""
    admitted, standings, _, _, granted = answer
    standing = standings[0] if len(standings) == 1 else tightest(answer)
    flags = ADMITTED if admitted else 0
    if standing is None:
        return check_codec.answer_record(number, flags, b"", granted=granted), b""
    limit, _, tokens, reset_ns, _ = standing
    policy, left = limit.policy, 0.0
    if tokens is not None:
        flags |= REMAINING
        left = policy.unit.shown_amount(tokens)
    name = policy.name.encode()
    retry_ns = None if admitted else answer.retry_ns
    record = check_codec.answer_record(
        number, flags, name, granted=granted, retry_ns=retry_ns, reset_ns=reset_ns, remaining=left
    )
    return record, name
