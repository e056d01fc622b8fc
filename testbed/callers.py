"""The callers of a run, as a process of the testbed in the limiter's namespace.

`python -m testbed.callers` asks for all of them: every `TURN_NS` one array of questions has the
calls that have come due. It counts the bytes that were asked for, and those that were admitted, in
steps of the run's samples.
"""

from __future__ import annotations

import json
import time
from http.client import HTTPConnection
from typing import Any

from testbed import child
from testbed.calls import ADDRESS, NAMESPACE, PATH, CallsTable, due
from testbed.errors import MeasurementError

TURN_NS = 20_000_000
"""Time between two arrays of questions: a call waits so long at most."""
_TIMEOUT_S = 5.0
_HEADERS = {"Content-Type": "application/json"}


def work() -> None:
    """Ask until the end of the run."""
    job = child.receive()
    table = CallsTable.model_construct(**job["table"])
    step_ns, duration_ns = job["step_ns"], job["duration_ns"]
    asked, admitted = ([0] * (duration_ns // step_ns) for _ in range(2))
    of_callers = [0] * table.count
    child.send(ready=True)
    begin_ns: int = child.receive()["start_ns"]
    connection = HTTPConnection(ADDRESS, timeout=_TIMEOUT_S)
    done_ns = 0
    while done_ns < duration_ns:
        until_ns = min(done_ns + TURN_NS, duration_ns)
        wait_ns = begin_ns + until_ns - time.monotonic_ns()
        if wait_ns > 0:
            time.sleep(wait_ns / 1e9)
        callers = due(table, done_ns, until_ns)
        done_ns = until_ns
        answers = _ask(connection, table, callers) if callers else []
        # An answer counts in the step in which it arrives, and not after the end of the run.
        step = (time.monotonic_ns() - begin_ns) // step_ns
        if step >= len(asked):
            break
        for caller, yes in zip(callers, answers, strict=True):
            asked[step] += table.size
            admitted[step] += table.size * yes
            of_callers[caller] += table.size * yes
    child.send(result={"asked": asked, "admitted": admitted, "callers": of_callers})


def _ask(connection: HTTPConnection, table: CallsTable, callers: list[int]) -> list[bool]:
    """Ask about calls, and return whether each of them is admitted.

    Raises:
        MeasurementError: the daemon does not answer.
    """
    questions = [
        {"namespace": NAMESPACE, "bytes": table.size, "caller": f"caller{caller}"}
        for caller in callers
    ]
    connection.request("POST", PATH, json.dumps(questions), _HEADERS)
    response = connection.getresponse()
    body = response.read()
    if response.status != 200:
        raise MeasurementError(f"the daemon answers {response.status}: {body.decode()}")
    answers: list[dict[str, Any]] = json.loads(body)
    return [answer["admitted"] for answer in answers]


if __name__ == "__main__":
    child.main(work)
