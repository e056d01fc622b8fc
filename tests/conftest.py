"""Options and profiles of the whole suite, and which tests run at the same time.

With pytest-xdist (`-n`) tests run in several processes. Tests marked `alone` or `realtime` then
wait until no other test runs, and no other begins until they have ended. They come last, so that
the processes wait for each other only there. Before them kernel tests, which wait most of the time,
are spread among those that compute, so that the processors are never idle; what kernel tests share
is made once for the session.
"""

import fcntl
import gc
import os
from collections.abc import Generator
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


def _runs_alone(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(marker) for marker in ("alone", "realtime"))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places: dict[pytest.Item, float] = {}
    if "PYTEST_XDIST_WORKER" in os.environ:
        for waits in (False, True):
            some = [
                item
                for item in items
                if not _runs_alone(item) and bool(item.get_closest_marker("kernel")) is waits
            ]
            places |= {item: (number + 0.5) / len(some) for number, item in enumerate(some)}
    items.sort(key=lambda item: 1.0 if _runs_alone(item) else places.get(item, 0.0))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return (yield)
    # Each process has a directory of its own in the run's; outside fixtures it has no public name.
    own: Path = item.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # private
    with (
        (own.parent / "turnstile.lock").open("w") as turnstile,
        (own.parent / "running.lock").open("w") as lock,
    ):
        # A test that waits to run alone holds the turnstile, or the others would never let it.
        fcntl.flock(turnstile, fcntl.LOCK_EX)
        fcntl.flock(lock, fcntl.LOCK_EX if _runs_alone(item) else fcntl.LOCK_SH)
        fcntl.flock(turnstile, fcntl.LOCK_UN)
        return (yield)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if not session.config.getoption("--fail-on-skip") or exitstatus != pytest.ExitCode.OK:
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
