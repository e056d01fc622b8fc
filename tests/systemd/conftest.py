"""Fixtures of the tests under systemd: the installed unit, an interface for its limits, figures."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Generator, Iterator

import pytest

from .service import CACHE, CLONE, CONFIG, UNIT, Service, run

FIGURES: list[str] = []


@pytest.fixture
def figure() -> Callable[[str], None]:
    """Keeps a line that is printed at the end of the run."""
    return FIGURES.append


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if FIGURES:
        terminalreporter.section("figures")
        for line in FIGURES:
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def installed() -> None:
    """Install drld by docs/operations.md, section "Deploy"; the clone is at /opt/drld already."""
    for folder in ("sysusers", "tmpfiles"):
        file = CLONE / f"scripts/debian/drld.{folder}"
        run("install", "-D", "-m", "644", file, f"/etc/{folder}.d/drld.conf")
        run(f"systemd-{folder}", *(["--create"] if folder == "tmpfiles" else []), "drld.conf")
    run("install", "-D", "-m", "644", CLONE / "docs/drld.example.toml", CONFIG)
    key = CONFIG.parent / "fleet.key"
    if not key.exists():
        run(CLONE / ".venv/bin/drlctl", "keys", "generate", key)
        run("chown", "drld", key)
    checked = run(CLONE / ".venv/bin/drld", "--check", "--config", CONFIG)
    assert "ok" in checked.stdout
    run("cp", CLONE / "scripts/drld.service", UNIT.parent)
    run("systemctl", "daemon-reload")
    run("systemctl", "enable", "drld")
    for line in (
        "netns add sink",
        f"link add {Service.device} type veth peer name eth0 netns sink",
        f"addr add 10.9.0.1/24 dev {Service.device}",
        f"link set {Service.device} up",
        "-n sink addr add 10.9.0.2/24 dev eth0",
        "-n sink link set eth0 up",
    ):
        run("ip", *line.split())


@pytest.fixture
def service(installed: None) -> Iterator[Service]:
    """The stopped unit; compiled programs stay."""
    service = Service()
    service.set()
    service.configure()
    yield service
    service.systemctl("stop")
    run("systemctl", "reset-failed", "drld", check=False)


@pytest.fixture
def no_cache() -> None:
    """Make the next daemon compile."""
    shutil.rmtree(CACHE, ignore_errors=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    service = getattr(item, "funcargs", {}).get("service")
    if report.failed and isinstance(service, Service):
        report.sections.append(("journal", service.journal()))
    return report
