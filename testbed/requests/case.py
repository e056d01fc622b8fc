"""A study of buckets as data. It imports little (`testbed.harness.case_worker`)."""

from __future__ import annotations

from dataclasses import dataclass

from drld.requests.buckets.policy import Policy

NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Case:
    """Data, buckets, fleet and paths. Defaults are tables 4.1 and 4.2 of the thesis."""

    data: str
    """One of `testbed.requests.workload.DATA_SETS`."""
    buckets: tuple[str, ...]
    """Of `testbed.requests.variants.VARIANTS`."""
    repeat: int = 10
    seconds: float = 60.0
    capacity: int = 300
    rate: int = 3
    """Tokens each `per_s`: 0.001 c a second."""
    per_s: int = 10
    nodes: int = 30
    interval_ms: int = 300
    duty: float = 0.4
    """ON time of data set B's users; 0: uniform arrivals."""
    delay_ms: int = 0
    jitter_ms: int = 0
    loss: float = 0.0
    duplicate: float = 0.0
    repeat_ms: int = 0
    """Unacknowledged news are told again after this time; 0: never, as in the thesis."""
    cut: tuple[int, int] = (0, 0)
    """From and until when a third of the limiters is cut off, ms."""
    skewed_s: int = 0
    """How far the first limiter's clock is ahead."""
    drift_ppm: int = 0
    """How much too fast the first limiter's clock runs."""
    restart_ms: int = 0
    """When a third of the limiters begins another life, without knowledge; 0: never."""
    copies: bool = True
    """Whether peers send all they know to a limiter that returns; in the thesis they do not."""
    load: float = 0.0
    """Requests/s of the data sets `many-keys`, `steady` and `one-millisecond`."""
    users: int = 5000
    """Of data set C."""
    sessions: bool = True
    """Whether requests of data set C come in sessions of some; otherwise each comes alone."""
    quiet_s: int = 0
    """After the last message: how long the fleet then runs on, before garbage is counted."""

    @property
    def policy(self) -> Policy:
        """Of every user."""
        return Policy(self.capacity, self.rate, self.per_s * NS_PER_S)

    @property
    def rate_s(self) -> float:
        """Tokens/s."""
        return self.rate / self.per_s
