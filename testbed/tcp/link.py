"""One direction of a link: loss, delay, and a rate with a drop-tail queue behind the delay.

The model of a link that `testbed.link` makes of a delay line and the kernel's token bucket filter.
A link is a FIFO. Packets come at least `SPACING_NS` apart. Each takes longer by an exponentially
distributed time, `NOISE_NS` on average, as in the testbed's delay line. With less noise, flows of
one round-trip time move in step. A link without delay has no delay line, only the way between two
hosts' stacks. On the testbed, packets leave 0.8 us apart there, and a lone one is acknowledged
after 20 to 90 us.

The rate is a token bucket of `BURST` bytes that shapes: a packet waits for tokens in a queue of
limited bytes. A packet that finds the queue full is lost.
"""

from __future__ import annotations

from collections import deque
from math import log
from random import Random
from typing import Any

from drld.model import NS_PER_S
from testbed import TBF_BURST
from testbed.tcp.clock import Action, Clock

NOISE_NS = 100_000
SPACING_NS = 10_000
NOISE_WITHOUT_DELAY_NS = 20_000
SPACING_WITHOUT_DELAY_NS = 1_000


class Link:
    """Carries packets one way."""

    __slots__ = (
        "_clock", "_last_due_ns", "_loss", "_noise_ns", "_random", "_shaper", "_spacing_ns",
        "delay_ns", "dropped",
    )  # fmt: skip

    def __init__(self, clock: Clock, delay_ns: int, rng: Random, loss: float = 0.0) -> None:
        """`loss` is the probability that a packet is lost."""
        self._clock = clock
        self.delay_ns = delay_ns
        self._loss = loss
        self._noise_ns = NOISE_NS if delay_ns else NOISE_WITHOUT_DELAY_NS
        self._spacing_ns = SPACING_NS if delay_ns else SPACING_WITHOUT_DELAY_NS
        self._random = rng.random
        self._last_due_ns = 0
        self._shaper: _Shaper | None = None
        self.dropped = 0
        """Packets lost at random, and at a full queue."""

    def send(self, length: int, arrive: Action, packet: Any) -> None:
        """Send `length` bytes; `arrive(packet)` is called at the far end, unless they are lost."""
        random, clock = self._random, self._clock
        if self._loss and random() < self._loss:
            self.dropped += 1
            return
        due_ns = clock.now_ns + self.delay_ns - int(log(1.0 - random()) * self._noise_ns)
        due_ns = max(due_ns, self._last_due_ns + self._spacing_ns)
        self._last_due_ns = due_ns
        if self._shaper is None:
            clock.at(due_ns, arrive, packet)
        else:
            clock.at(due_ns, self._shape, (length, arrive, packet))

    def set_rate(self, rate: int | None, queue: int) -> None:
        """Shape to `rate` bytes/s from now on, with a queue of `queue` bytes; None: no shaping.

        Waiting packets are lost when shaping ends, as when the kernel's shaper is removed.
        """
        if rate is None:
            if self._shaper is not None:
                self.dropped += self._shaper.close()
            self._shaper = None
        elif self._shaper is None:
            self._shaper = _Shaper(self._clock, rate, queue)
        else:
            self._shaper.change(rate, queue)

    def _shape(self, packet: tuple[int, Action, Any]) -> None:
        if self._shaper is None:
            _, arrive, content = packet
            arrive(content)
        elif not self._shaper.enqueue(packet):
            self.dropped += 1


class _Shaper:
    """A token bucket with a queue; tokens are bytes x 10**-9, as in drld."""

    def __init__(self, clock: Clock, rate: int, queue: int) -> None:
        self._clock = clock
        self._waiting: deque[tuple[int, Action, Any]] = deque()
        self._waiting_bytes = 0
        self._rate = rate
        self._limit = queue
        self._tokens = TBF_BURST * NS_PER_S
        self._updated_ns = clock.now_ns
        self._serving: object = None
        """Identifies the event that serves the head of the queue; others are ignored."""

    def change(self, rate: int, queue: int) -> None:
        """Change rate and queue; waiting packets stay, and the bucket is full, as in the kernel."""
        self._rate = rate
        self._limit = queue
        self._tokens = TBF_BURST * NS_PER_S
        self._updated_ns = self._clock.now_ns
        self._schedule()

    def close(self) -> int:
        """Forget the waiting packets; return their number."""
        self._serving = None
        return len(self._waiting)

    def enqueue(self, packet: tuple[int, Action, Any]) -> bool:
        """Queue a packet; False if the queue is full."""
        length = packet[0]
        if self._waiting_bytes + length > self._limit:
            return False
        self._waiting.append(packet)
        self._waiting_bytes += length
        if len(self._waiting) == 1:
            self._schedule()
        return True

    def _schedule(self) -> None:
        """Serve the head of the queue as soon as there are tokens."""
        self._serving = None
        if not self._waiting:
            return
        self._settle()
        missing = self._waiting[0][0] * NS_PER_S - self._tokens
        wait_ns = max(-(-missing // self._rate), 0)
        self._serving = token = object()
        self._clock.at(self._clock.now_ns + wait_ns, self._serve, token)

    def _serve(self, token: object) -> None:
        if token is not self._serving:
            return
        self._settle()
        length, arrive, content = self._waiting.popleft()
        self._waiting_bytes -= length
        self._tokens -= length * NS_PER_S
        self._schedule()
        arrive(content)

    def _settle(self) -> None:
        now_ns = self._clock.now_ns
        self._tokens += self._rate * (now_ns - self._updated_ns)
        self._tokens = min(self._tokens, TBF_BURST * NS_PER_S)
        self._updated_ns = now_ns
