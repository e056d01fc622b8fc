"""Options and profiles of the whole suite."""

import os

import hypothesis
import pytest

# No database: root runs the kernel tests and would leave files that the next user cannot write.
for name, examples in (
    ("default", 40),  # the loop of a day
    ("ci", 100),  # scripts/test
    ("thorough", 1000),  # a night: HYPOTHESIS_PROFILE=thorough
):
    hypothesis.settings.register_profile(
        name, max_examples=examples, deadline=None, print_blob=True, database=None
    )
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fail-on-skip", action="store_true", help="a skipped test fails the run")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if not session.config.getoption("--fail-on-skip") or exitstatus != pytest.ExitCode.OK:
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
