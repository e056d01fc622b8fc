"""Options and profiles of the whole suite, and which tests run at the same time.

With pytest-xdist (`-n`) tests run in several processes. Kernel tests run beside each other and
beside the pure tests, which compute. Tests marked `alone` or `realtime` wait until no kernel test
runs, and none begins until they have ended. Meanwhile the other processes of the run have the
processor time that is left over, for pure tests.

The order keeps the processors busy: the `realtime` tests, which take minutes and mostly wait, come
first; then those marked `alone`; then the other kernel tests, spread among the pure tests. What
kernel tests share is made once for each process.
"""

import contextlib
import fcntl
import gc
import os
from collections.abc import Generator, Iterator
from pathlib import Path

import hypothesis
import pytest
from hypothesis import Phase

# No database: root runs the kernel tests and would leave files that the next user cannot write.
# In scripts/test the same code gets the same examples, but for a few constants that Hypothesis
# takes from the modules that a process has imported by then; others explore.
_FIND = (Phase.explicit, Phase.generate)
for name, examples, same, phases in (
    ("default", 40, False, tuple(Phase)),  # the loop of a day
    ("ci", 100, True, _FIND),  # scripts/test: a failure is shown as it was found, which is at once
    ("shrink", 100, True, tuple(Phase)),  # the same, made small: minutes, where it is a fleet
    ("thorough", 1000, False, tuple(Phase)),  # a night: HYPOTHESIS_PROFILE=thorough
):
    hypothesis.settings.register_profile(
        name,
        max_examples=examples,
        derandomize=same,
        phases=phases,
        deadline=None,
        print_blob=True,
        database=None,
    )
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    # Imported modules and collected tests stay; the garbage collector need not look at them.
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        # Simulated fleets allocate many objects that live long: look at them less often.
        gc.set_threshold(50_000, 20, 50)
        gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fail-on-skip", action="store_true", help="a skipped test fails the run")


_PLACES = {"realtime": (0.0, 0.0), "alone": (0.2, 0.4), "kernel": (0.3, 1.0), "pure": (0.0, 1.0)}
"""Where in the run tests of a kind begin and end. Beside the `realtime` tests run those of fuzz,
property and sim: a quarter of the pure tests, and more than half of their processor time."""
_PID_FILE = "{}.pid"
"""Names a process of the run, in the directory of the run."""


def _kind(item: pytest.Item) -> str:
    """The first of these that the test is marked with."""
    return next((kind for kind in _PLACES if item.get_closest_marker(kind)), "pure")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    places: dict[pytest.Item, float] = {}
    for kind, (begin, end) in _PLACES.items():
        some = [item for item in items if _kind(item) == kind]
        for number, item in enumerate(some):
            places[item] = begin + (end - begin) * (number + 0.5) / len(some)
    items.sort(key=places.__getitem__)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return (yield)
    # Each process has a directory of its own in the run's; outside fixtures it has no public name.
    own: Path = item.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    run = own.parent
    (run / _PID_FILE.format(os.getpid())).touch()
    kind = _kind(item)
    if kind == "pure":
        return (yield)
    exclusive = kind != "kernel"
    with (run / "turnstile.lock").open("w") as turnstile, (run / "running.lock").open("w") as lock:
        # A test that waits to run alone holds the turnstile, or the others would never let it.
        fcntl.flock(turnstile, fcntl.LOCK_EX)
        fcntl.flock(lock, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
        fcntl.flock(turnstile, fcntl.LOCK_UN)
        with _others_step_back(run) if exclusive else contextlib.nullcontext():
            return (yield)


@contextlib.contextmanager
def _others_step_back(run: Path) -> Iterator[None]:
    """Have the other processes of the run compute only while nothing else wants to."""
    before: dict[int, tuple[int, os.sched_param]] = {}
    for file in run.glob(_PID_FILE.format("*")):
        pid = int(file.stem)
        with contextlib.suppress(ProcessLookupError):  # it has ended
            if pid != os.getpid():
                before[pid] = os.sched_getscheduler(pid), os.sched_getparam(pid)
                os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))
    try:
        yield
    finally:
        for pid, (policy, parameters) in before.items():
            with contextlib.suppress(ProcessLookupError):
                os.sched_setscheduler(pid, policy, parameters)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if not session.config.getoption("--fail-on-skip") or exitstatus != pytest.ExitCode.OK:
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
