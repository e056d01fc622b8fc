"""Series of runs of a case, for the harness."""

from __future__ import annotations

from testbed.harness.case_series import CaseSeries, RealCaseSeries
from testbed.messages.case import Case
from testbed.messages.real.case import RealCase


class MessageSeries(CaseSeries[Case]):
    """Runs of a case of messages in virtual time."""

    plane = "messages"
    compared = "brokers"
    code_files = ("drld/messages/*.py", "drld/police/token_bucket.py", "testbed/messages/*.py")


class RealMessageSeries(RealCaseSeries[RealCase]):
    """Runs of a case with real brokers.

    A run needs about half a processor, and has real-time priority; two would starve ordinary
    processes. Linux then runs these first for 50 ms of each second, and the publishers are late.
    """

    plane = "messages.real"
    compared = "brokers"
    code_files = (
        "drld/**/*.py", "bpf/*", "testbed/messages/*.py", "testbed/messages/real/*.py",
    )  # fmt: skip
    start_s = 10.0

    def run_s(self, quick: bool) -> float:
        """See `CaseSeries`."""
        case = self.load(quick)
        return self.start_s + case.dilate * (case.warm_s + case.seconds)
