"""A series of runs of a case, for the harness."""

from __future__ import annotations

from testbed.harness.virtual import CaseSeries
from testbed.messages.case import Case


class MessageSeries(CaseSeries[Case]):
    """Runs of a case of messages."""

    plane = "messages"
    compared = "brokers"
    code_files = ("drld/messages/*.py", "drld/police/token_bucket.py", "testbed/messages/*.py")
