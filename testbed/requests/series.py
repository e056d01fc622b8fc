"""A series of runs of a case, for the harness."""

from __future__ import annotations

from typing import ClassVar

from testbed.harness.virtual import CaseSeries
from testbed.requests.case import Case


class RequestSeries(CaseSeries[Case]):
    """Runs of a case of requests."""

    plane = "requests"
    compared = "buckets"
    code_files: ClassVar[tuple[str, ...]] = (
        "drld/requests/buckets/*.py", "drld/gossip/wire/message.py", "testbed/requests/*.py",
        "testbed/sim/network.py", "testbed/tcp/clock.py",
    )  # fmt: skip
