"""Options and profiles of the whole suite, and which tests run at the same time.

With pytest-xdist (`-n`) tests run in several processes. Tests marked `alone` or `realtime` then
wait until no other test runs, and no other begins until they have ended. They come last, so that
the processes wait for each other only there. Before them kernel tests, which wait most of the time,
are spread among the others, so that the processors are never idle; what kernel tests share is made
once for the session.

Tests that only compute may run beside those that run alone: in the class SCHED_IDLE of sched(7),
which has the processor time that nothing else wants. Where the kernel makes a scheduling group of
every session (autogroup), the class counts within the session alone; there they run as others do.
"""

import contextlib
import fcntl
import functools
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


_AUTOGROUP = Path("/proc/sys/kernel/sched_autogroup_enabled")
_COMPUTING = ("tests/property/", "tests/sim/")
"""Folders of tests that start no daemon and know no time but their own."""
_ALONE = ("alone", "realtime")
_PLACES = {
    "other": (0.0, 1.0),
    "kernel": (0.0, 1.0),
    "computing": (1.0, 2.0),
    "realtime": (1.0, 2.0),
    "alone": (1.75, 2.0),
}
"""Where in the run the tests of a kind begin and end; they are spread evenly. Those that are
`realtime` take minutes, in which one processor has time for those that compute."""


@functools.cache
def _yields() -> bool:
    """Whether a process of the class SCHED_IDLE yields to all others, and may leave the class."""
    grouped = _AUTOGROUP.exists() and _AUTOGROUP.read_text(encoding="ascii").strip() != "0"
    return os.geteuid() == 0 and not grouped


def _kind(item: pytest.Item) -> str:
    if item.get_closest_marker("realtime") and _yields():
        return "realtime"
    if any(item.get_closest_marker(marker) for marker in _ALONE):
        return "alone"
    if item.nodeid.startswith(_COMPUTING) and _yields():
        return "computing"
    return "kernel" if item.get_closest_marker("kernel") else "other"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places: dict[pytest.Item, float] = {}
    if "PYTEST_XDIST_WORKER" in os.environ:
        for kind, (begin, end) in _PLACES.items():
            some = [item for item in items if _kind(item) == kind]
            for number, item in enumerate(some):
                places[item] = begin + (end - begin) * number / len(some)
    items.sort(key=lambda item: places.get(item, 2.0 if _kind(item) in _ALONE else 0.0))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return (yield)
    kind = _kind(item)
    if kind == "computing":
        with _idle():
            return (yield)
    # Each process has a directory of its own in the run's; outside fixtures it has no public name.
    own: Path = item.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # private
    with (
        (own.parent / "turnstile.lock").open("w") as turnstile,
        (own.parent / "running.lock").open("w") as lock,
    ):
        # A test that waits to run alone holds the turnstile, or the others would never let it.
        fcntl.flock(turnstile, fcntl.LOCK_EX)
        fcntl.flock(lock, fcntl.LOCK_EX if kind in _ALONE else fcntl.LOCK_SH)
        fcntl.flock(turnstile, fcntl.LOCK_UN)
        return (yield)


@contextlib.contextmanager
def _idle() -> Iterator[None]:
    """Compute only while nothing else wants to."""
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    try:
        yield
    finally:
        os.sched_setscheduler(0, policy, parameters)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if not session.config.getoption("--fail-on-skip") or exitstatus != pytest.ExitCode.OK:
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
