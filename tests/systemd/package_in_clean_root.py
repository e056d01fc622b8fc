"""The Debian package from installation to purge; scripts/test-package runs it in a clean root.

It takes nothing but the standard library, as nothing else is there.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from .service import CONFIG, Service, run
from .traffic import traffic

SINK = "10.9.0.2"
RATE_BPS, DEPTH = 10e6, 75e3
SLACK = 0.008 * RATE_BPS / 8 + 5 * 1028
"""Bytes above rate and depth; see `unit_under_systemd`."""
EXPOSURE = 2.0
"""Largest allowed exposure of `systemd-analyze security`."""
APT_DEADLINE_S = 1200
"""An installation compiles a thousand Python files; a busy host needs minutes."""
LIMIT = """
[[limit]]
id = 1
name = "a"
rate = "20mbit"
allocator = "ctb"
match = {{ out = "{device}", protocol = "udp" }}
"""
DROP_IN = Path("/etc/drld/drld.toml.d/99-drlctl.toml")
PAGES = ("drld", "drlctl", "drlctl-limit-add", "drld.toml")
STATE = (
    *("/var/log/", "/var/cache/", "/var/lib/dpkg/", "/var/lib/apt/", "/var/lib/systemd/"),
    *("/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow", "/etc/.pwd.lock"),
)
"""Files that other programs write when a package or a user is added."""


class Installed(Service):
    """The package's service; its commands are on the path."""

    def ctl(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run drlctl as root."""
        return run("drlctl", *arguments, check=check)


def files() -> set[str]:
    """Every file and folder of the root file system, without mounts."""
    found = run("find", "/", "-xdev", "-print0", check=False).stdout
    return set(found.split("\0"))


def apt(*arguments: str) -> str:
    """Run apt-get without questions."""
    command = ("apt-get", "--yes", "--no-install-recommends", *arguments)
    return run(*command, deadline_s=APT_DEADLINE_S).stdout


def commands() -> str:
    """The command lines of all processes."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # the process has ended
            found.append(path.read_bytes().replace(b"\0", b" ").decode())
    return "\n".join(found)


def main(first: str, following: str) -> None:
    """Do everything that an operator does to a host, from installation to purge."""
    service = Installed()
    before = files()
    installs(service, first)
    try:
        starts(service)
        upgrades(service, following)
        refuses_a_bad_configuration(service, following)
        is_removed(service, before)
    except BaseException:
        print(service.journal())
        raise
    print("package: ok")


def installs(service: Installed, package: str) -> None:
    """An installed package without a configuration starts nothing."""
    apt("install", package)
    assert run("drld", "--version").stdout.startswith("drld 0.")
    assert "limit" in run("drlctl", "--help").stdout
    for page in PAGES:
        assert "NAME" in run("man", page).stdout, page
    completed = run(
        *("bash", "-c"),
        "source /usr/share/bash-completion/completions/drlctl; "
        "COMP_WORDS=(drlctl lim) COMP_CWORD=1; _drlctl_completion drlctl; echo ${COMPREPLY[*]}",
    ).stdout
    assert completed.split() == ["limit", "limits"], completed
    daemons = "source /usr/share/bash-completion/completions/drld; complete -p drld"
    assert "--log-format" in run("bash", "-c", daemons).stdout
    assert run("id", "drld").returncode == 0
    assert run("systemctl", "is-enabled", "drld").stdout == "enabled\n"
    assert service.state == "inactive"
    said = run("systemd-analyze", "security", "--no-pager", "drld").stdout.splitlines()[-1]
    level = re.search(r"drld.service: ([0-9.]+)", said)
    print(said.strip("→ "))
    assert level
    assert float(level[1]) <= EXPOSURE


def starts(service: Installed) -> None:
    """Follow docs/operations.md, section "Deploy"; the package has compiled programs."""
    for line in (
        "netns add sink",
        f"link add {service.device} type veth peer name eth0 netns sink",
        f"addr add 10.9.0.1/24 dev {service.device}",
        f"link set {service.device} up",
        "-n sink addr add 10.9.0.2/24 dev eth0",
        "-n sink link set eth0 up",
    ):
        run("ip", *line.split())
    shutil.copy("/usr/share/doc/drld/examples/drld.example.toml", CONFIG)
    run("drlctl", "keys", "generate", CONFIG.with_name("fleet.key"))
    assert "ok" in run("drld", "--config", CONFIG, "--check").stdout
    CONFIG.with_name("fleet.key").unlink()
    CONFIG.unlink()
    deploys(service)
    assert Path(f"/proc/{service.pid}").owner() == "drld"
    assert service.ask("status")["datapath"]["name"] == "kernel"
    assert not list(Path("/var/cache/drld").iterdir()), "it has compiled"
    service.ctl("limit", "set", "a", "--burst", f"{DEPTH / 1e3:.0f}kB", "--save")
    assert Path(DROP_IN).owner() == "drld"


@contextlib.contextmanager
def sshd(service: Installed) -> Iterator[None]:
    """An ssh server on the loopback address that root may log in to, with a key made for it."""
    own, host_key = Path("/root/.ssh"), Path("/etc/ssh/ssh_host_ed25519_key.pub")
    own.mkdir(mode=0o700, exist_ok=True)  # the package of the ssh client makes it
    assert not [*own.iterdir()]
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", own / "id_ed25519")
    shutil.copy(own / "id_ed25519.pub", own / "authorized_keys")
    (own / "known_hosts").write_text(f"127.0.0.1 {host_key.read_text()}")
    Path("/run/sshd").mkdir(exist_ok=True)
    server = subprocess.Popen(["/usr/sbin/sshd", "-D", "-o", "ListenAddress=127.0.0.1"])
    try:
        answers = ("ssh", "root@127.0.0.1", "true")
        service.wait_for(lambda: run(*answers, check=False).returncode == 0, "no sshd")
        yield
    finally:
        server.terminate()
        server.wait()
        for file in own.iterdir():
            file.unlink()


def deploys(service: Installed) -> None:
    """`drlctl fleet init` and scripts/deploy, by ssh."""
    limits, fleet = Path("/tmp/limits.toml"), Path("/tmp/fleet")
    limits.write_text(LIMIT.format(device=service.device))
    run("drlctl", "fleet", "init", fleet, "lim1=127.0.0.1", "--limits", limits)
    with sshd(service):
        brings(service, fleet)


def brings(service: Installed, fleet: Path) -> None:
    """scripts/deploy, once to a host without a configuration, and then with others."""
    deploy = (Path("scripts/deploy").absolute(), fleet)
    run(*deploy)
    assert service.state == "active"
    pid, file = service.pid, fleet / "lim1.toml"
    assert service.ask("limit", "show", "a")["rate_bps"] == 20e6
    assert len(service.ask("keys", "list")["keys"]) == 1
    file.write_text(file.read_text().replace("20mbit", "10mbot"))
    assert run(*deploy, check=False).returncode != 0
    assert service.ask("limit", "show", "a")["rate_bps"] == 20e6
    file.write_text(file.read_text().replace("10mbot", "10mbit"))
    run(*deploy)
    assert service.ask("limit", "show", "a")["rate_bps"] == RATE_BPS
    assert service.pid == pid
    assert sorted(path.name for path in CONFIG.parent.iterdir()) == [
        *("drld.toml", "drld.toml.d", "fleet.key")
    ]


def upgrades(service: Installed, package: str) -> None:
    """Under traffic: the limit stays in force, and the new version enforces it."""
    pid = service.pid
    with traffic(service.device, SINK) as seen:
        apt("install", package)
        service.wait_for_next(pid)
    assert service.ask("status")["version"] == "99"
    assert "taken over" in service.ask("status")["datapath"]["reason"]
    print(
        f"upgrade: {seen.rate_bps() / 1e6:.2f} of {RATE_BPS / 1e6:.0f} Mbit/s pass, "
        f"{seen.burst(RATE_BPS) / 1e3:.1f} kB above the rate at most"
    )
    # The fallback has its own bucket, and so has the next daemon.
    assert seen.burst(RATE_BPS) <= 2 * DEPTH + SLACK
    assert DROP_IN.exists()


def refuses_a_bad_configuration(service: Installed, package: str) -> None:
    """A version that refuses the file does not replace the running one."""
    pid, content = service.pid, CONFIG.read_text()
    CONFIG.write_text(content.replace("10mbit", "10mbot"))
    apt("install", "--reinstall", package)
    assert service.pid == pid
    assert service.state == "active"
    CONFIG.write_text(content)


def is_removed(service: Installed, before: set[str]) -> None:
    """After removal nothing is limited, and the operator's files stay. A purge removes them."""
    assert "/usr/bin/drld" in commands()
    kept = {path: path.read_bytes() for path in (CONFIG, DROP_IN, CONFIG.with_name("fleet.key"))}
    apt("remove", "drld")
    assert "/usr/bin/drld" not in commands()
    with traffic(service.device, SINK) as seen:
        time.sleep(1)
    assert seen.rate_bps() > 2 * RATE_BPS, "a program was left on the interface"
    assert {path: path.read_bytes() for path in kept} == kept
    assert not Path("/usr/lib/drld").exists()
    apt("purge", "drld")
    left = {path for path in files() - before if not path.startswith(STATE) or "drld" in path}
    # man caches the pages that it has shown, until its own cleanup.
    left = {path for path in left if not path.startswith("/var/cache/man/")}
    assert not left, sorted(left)
    missing = {path for path in before - files() if not path.startswith(STATE)}
    assert not missing, sorted(missing)


if __name__ == "__main__":
    main(*sys.argv[1:])
