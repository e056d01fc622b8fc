"""Series of runs of a case, for the harness."""

from __future__ import annotations

from testbed.harness.case_series import CaseSeries, RealCaseSeries
from testbed.requests.case import Case


class RequestSeries(CaseSeries[Case]):
    """Runs of a case of requests in virtual time."""

    plane = "requests"
    compared = "buckets"
    code_files = (
        "drld/requests/buckets/*.py", "drld/gossip/wire/message.py", "testbed/requests/*.py",
        "testbed/sim/network.py", "testbed/tcp/clock.py",
    )  # fmt: skip


class RealSeries(RealCaseSeries[Case]):
    """Runs of a case with real daemons."""

    plane = "requests.real"
    compared = "buckets"
    code_files = ("drld/**/*.py", "testbed/requests/real/*.py")
    start_s = 15.0
