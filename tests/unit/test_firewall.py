"""A host that only remembers what it was told to run, and a real shell."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from drld.capture.iptables_rules import iptables_install, iptables_state
from drld.capture.nfqueue.firewall import (
    IptablesFirewall,
    ManualFirewall,
    NftFirewall,
    choose,
    operator_rules,
    remove_leftovers,
    remove_rules,
    run,
)
from drld.capture.nft_rules import nft_install, nft_release, nft_remove
from drld.capture.queue_hooks import Hook
from drld.errors import DatapathError
from drld.police.direction import Direction

IN, OUT = Direction.IN, Direction.OUT
SETS = (
    Hook("eth0", IN, True, (4, 6)),
    Hook("eth1", OUT, False, (4, 6), "daddr", {4: ("10.9.2.0/24",), 6: ("fd00::/64",)}),
)
SAVED = """*mangle
:PREROUTING ACCEPT [3:180]
:drld-lim1-in - [0:0]
-A PREROUTING -j drld-lim1-in
-A drld-lim1-in -i eth0 -j NFQUEUE --queue-num 17
COMMIT
"""
SETS_RULE = "-A drld-lim1-out -o eth1 -d 10.9.2.0/24 -j NFQUEUE --queue-num 18"


class FakeHost:
    """Remembers commands; answers from a table, fails where the answer is an error."""

    def __init__(self, answers: dict[str, str | DatapathError] | None = None) -> None:
        self.answers = answers or {}
        self.commands: list[tuple[str, str]] = []

    def run(self, command: Sequence[str], stdin: str) -> str:
        line = " ".join(command)
        self.commands.append((line, stdin))
        answer = self.answers.get(line, "")
        if isinstance(answer, DatapathError):
            raise answer
        return answer


def test_nft_runs_one_transaction() -> None:
    host = FakeHost()
    NftFirewall("lim1", host.run).install(SETS, 17)
    assert host.commands == [("nft -f -", nft_install("lim1", SETS, 17))]


@pytest.mark.parametrize("queue", ["num 17", "num 17 bypass", "to 17", "flags bypass to 17"])
def test_nft_sees_that_rules_are_missing(queue: str) -> None:
    """The words are those of nft 1.0.6, and of later versions."""
    table = [
        "table inet drld-lim1 {",
        "\tchain in {",
        "\t\ttype filter hook prerouting priority -149; policy accept;",
        f'\t\tiifname "eth0" queue {queue}',
        "\t}",
        "\tchain out {",
        f'\t\toifname "eth1" ip daddr {{ 10.9.2.0/24 }} queue {queue}',
        f'\t\toifname "eth1" ip6 daddr {{ fd00::/64 }} queue {queue}',
        "\t}",
        "}",
    ]
    for listed, complete in ((table, True), (table[:6] + table[7:], False), ([], False)):
        answers = {
            "nft list tables": "table inet drld-lim1\n",
            "nft list table inet drld-lim1": "\n".join(listed),
        }
        assert NftFirewall("lim1", FakeHost(dict(answers)).run).complete(SETS) is complete
    assert not NftFirewall("lim1", FakeHost().run).complete(SETS)


@pytest.mark.parametrize(
    ("without", "complete"),
    [
        ("nothing", True),
        ("-A POSTROUTING -j drld-lim1-out\n", False),
        (f"{SETS_RULE}\n", False),
        (f":drld-lim1-out - [0:0]\n-A POSTROUTING -j drld-lim1-out\n{SETS_RULE}\n", False),
    ],
)
def test_iptables_sees_that_rules_are_missing(without: str, complete: bool) -> None:
    saved = SAVED.replace(
        "COMMIT", f":drld-lim1-out - [0:0]\n-A POSTROUTING -j drld-lim1-out\n{SETS_RULE}\nCOMMIT"
    )
    answers: dict[str, str | DatapathError] = {
        "iptables-save": saved.replace(without, ""),
        "ip6tables-save": saved,
    }
    assert IptablesFirewall("lim1", FakeHost(answers).run).complete(SETS) is complete


def test_nft_releases_by_a_transaction_of_its_own() -> None:
    host = FakeHost()
    NftFirewall("lim1", host.run).release()
    assert host.commands == [("nft -f -", nft_release("lim1"))]


def test_nft_removes_only_a_table_that_is_there() -> None:
    for listed, removed in (
        ("table inet drld-lim1\n", True),
        ("table inet drld-lim10\ntable ip drld-lim1\n", False),
        ("", False),
    ):
        host = FakeHost({"nft list tables": listed})
        NftFirewall("lim1", host.run).remove()
        assert (("nft -f -", nft_remove("lim1")) in host.commands) is removed


def test_iptables_looks_first_and_does_nothing_without_need() -> None:
    host = FakeHost({"iptables-save": SAVED})
    IptablesFirewall("lim1", host.run).install(SETS[1:], 17)
    commands = dict(host.commands)
    states = iptables_state("lim1", SAVED)
    wanted = iptables_install("lim1", SETS[1:], 17, 4, states)
    assert commands["iptables-restore --noflush --wait 5"] == wanted

    host = FakeHost()
    IptablesFirewall("lim1", host.run).remove()
    assert {line for line, _ in host.commands} <= {"iptables-save", "ip6tables-save"}


def test_iptables_that_is_refused_for_one_family_puts_the_other_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(IptablesFirewall, "_tools", lambda _: [("iptables", 4), ("ip6tables", 6)])
    six = "ip6tables-restore --noflush --wait 5"
    host = FakeHost({"iptables-save": SAVED, six: DatapathError("out of cheese")})

    def run(command: Sequence[str], stdin: str) -> str:
        said = host.run(command, stdin)
        if command[0] == "iptables-restore":
            host.answers["iptables-save"] = f"*mangle\n:drld-lim1-out - [0:0]\n{SETS_RULE}\nCOMMIT"
        return said

    with pytest.raises(DatapathError, match="out of cheese"):
        IptablesFirewall("lim1", run).install(SETS[1:], 18)
    there, back = (said for line, said in host.commands if line.startswith("iptables-restore"))
    assert "--queue-num 18" in there
    assert "-X drld-lim1-in" in there
    assert "-A drld-lim1-in -i eth0 -j NFQUEUE --queue-num 17\n-A PREROUTING" in back
    assert "-X drld-lim1-out" in back
    assert caplog.text == ""


def test_without_a_firewall_the_log_has_the_rules(
    caplog: pytest.LogCaptureFixture,
) -> None:
    host = FakeHost()
    firewall, _ = choose("none", "lim1", host.run)
    firewall.install(SETS, 17)
    firewall.remove()
    remove_leftovers(firewall, "lim1", host.run)
    assert host.commands == []
    assert operator_rules("lim1", SETS, 17) in caplog.text


def test_the_configured_firewall_is_taken_unseen() -> None:
    host = FakeHost()
    assert isinstance(choose("nft", "lim1", host.run)[0], NftFirewall)
    assert isinstance(choose("iptables", "lim1", host.run)[0], IptablesFirewall)
    assert isinstance(choose("none", "lim1", host.run)[0], ManualFirewall)
    assert host.commands == []


def test_auto_asks_the_kernel_for_the_queue_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    willing = FakeHost()
    assert isinstance(choose("auto", "lim1", willing.run)[0], NftFirewall)
    ((line, script),) = willing.commands
    assert line == "nft -c -f -"
    assert "queue num" in script

    refusing = FakeHost({"nft -c -f -": DatapathError("nft -c -f -: Error:\n no queue")})
    monkeypatch.setattr("shutil.which", lambda name, path: f"/usr/sbin/{name}")
    firewall, reason = choose("auto", "lim1", refusing.run)
    assert isinstance(firewall, IptablesFirewall)
    assert reason == "nft cannot queue here: nft -c -f -: Error: no queue"

    monkeypatch.setattr("shutil.which", lambda name, path: None)
    with pytest.raises(DatapathError, match=r"no firewall .*no queue; no iptables"):
        choose("auto", "lim1", refusing.run)


def test_leftovers_of_the_other_tool_are_removed_and_a_missing_tool_is_no_error() -> None:
    host = FakeHost({"nft list tables": "table inet drld-lim1\n"})
    remove_leftovers(IptablesFirewall("lim1", host.run), "lim1", host.run)
    assert host.commands == [("nft list tables", ""), ("nft -f -", nft_remove("lim1"))]

    host = FakeHost({"iptables-save": DatapathError("iptables-save: not there")})
    remove_leftovers(NftFirewall("lim1", host.run), "lim1", host.run)
    assert host.commands == [("iptables-save", "")]


def test_a_datapath_without_rules_removes_those_of_both_tools() -> None:
    host = FakeHost({
        "nft list tables": "table inet drld-lim1\n",
        "iptables-save": DatapathError("iptables-save: not there"),
    })  # fmt: skip
    remove_rules("lim1", host.run)
    assert host.commands == [
        ("nft list tables", ""),
        ("nft -f -", nft_remove("lim1")),
        ("iptables-save", ""),
    ]


# Running commands


def test_a_command_gets_its_input_and_a_fixed_language() -> None:
    assert run(["sh", "-c", 'cat; printf "$LC_ALL"'], "text ") == "text C"


def test_system_directories_are_searched_too() -> None:
    assert run(["sh", "-c", 'printf "$PATH"']).endswith(":/usr/sbin:/sbin")


def test_failures_name_the_command_and_its_output() -> None:
    with pytest.raises(DatapathError, match=r"^sh -c echo oops >&2; exit 3: oops$"):
        run(["sh", "-c", "echo oops >&2; exit 3"])
    with pytest.raises(DatapathError, match=r"^sh -c echo oops; exit 3: oops$"):
        run(["sh", "-c", "echo oops; exit 3"])
    with pytest.raises(DatapathError, match=r"^drld-no-such-tool x: .*No such file"):
        run(["drld-no-such-tool", "x"])


def test_input_is_handed_over_byte_for_byte(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    text = nft_install("lim1", SETS, 17)
    run(["tee", str(copy)], text)
    assert copy.read_text() == text


def test_comments_of_foreign_rules_may_have_any_bytes() -> None:
    saved = run(["printf", r'-A INPUT -m comment --comment "\377" -j ACCEPT'])
    assert run(["cat"], saved) == saved
    assert iptables_state("lim1", saved) == iptables_state("lim1", "")


def test_a_tool_for_which_there_are_no_descriptors_costs_none() -> None:
    code = """
import resource
from pathlib import Path
from drld.capture.nfqueue.firewall import run
from drld.errors import DatapathError

before = sorted(Path("/proc/self/fd").iterdir())
# Room for half of the pipes that it takes.
resource.setrlimit(resource.RLIMIT_NOFILE, (int(max(p.name for p in before[:3])) + 4, 4096))
for _ in range(5):
    try:
        run(["true"])
    except DatapathError as error:
        assert "Too many open files" in str(error), error
    else:
        raise AssertionError("there was room")
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
assert sorted(Path("/proc/self/fd").iterdir()) == before, sorted(Path("/proc/self/fd").iterdir())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
