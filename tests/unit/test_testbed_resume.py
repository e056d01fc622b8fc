"""The runs of an earlier result that are kept, and those that are repeated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from testbed import provenance
from testbed.harness.ledger import failed
from testbed.harness.resume import changes, resume
from tests.testbed_factories import document

DEFINITION = document(repeat=2)
RUN = {"allocator": "fps", "repetition": 1}
FAILED = {"allocator": "fps", "repetition": 2, "reason": "late"}


def a_header(**changes: Any) -> dict[str, Any]:
    return {
        "schema": 1,
        "definition": DEFINITION,
        "code": "abc",
        "setting": {"datapath": "auto", "links": "netem"},
        "kernel": "6.1",
        "machine": "x86_64",
        "commit": "1",
        **changes,
    }


def earlier(**changes: Any) -> dict[str, Any]:
    found = a_header(runs=[RUN], discarded=[FAILED], **changes)
    return json.loads(json.dumps(found))  # type: ignore[no-any-return]  # JSON


def test_no_earlier_result_gives_no_runs() -> None:
    assert resume(None, a_header()) == ([], [], [])


def test_runs_of_the_same_definition_are_kept() -> None:
    assert resume(earlier(commit="another"), a_header()) == ([RUN], [FAILED], [])


def test_a_disturbed_run_is_done_again() -> None:
    found = {**earlier(), "runs": [{**RUN, "disturbances": ["late"]}]}
    assert resume(found, a_header()).runs == []


@pytest.mark.parametrize(
    "change", [{"repeat": 9}, {"allocators": ["gtb"]}, {"description": "better"}]
)
def test_the_number_of_runs_changes_none_of_them(change: dict[str, Any]) -> None:
    assert changes(earlier(), a_header(definition={**DEFINITION, **change})) == []


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"definition": document(seconds=9)}, "definition (seconds)"),
        ({"definition": document(gossip={"rtt": "1ms"}, warmup="2s")}, "(gossip.rtt, warmup)"),
        ({"definition": document(flows=document()["flows"][:1])}, "definition (flows)"),
        ({"code": "abd"}, "code"),
        ({"setting": {"datapath": "kernel", "links": "netem"}}, "datapath"),
        ({"kernel": "6.2"}, "kernel"),
        ({"machine": "aarch64"}, "machine"),
        ({"schema": 2}, "format"),
    ],
)
def test_runs_of_another_definition_are_repeated_and_named(
    change: dict[str, Any], named: str
) -> None:
    runs, discarded, changed = resume(earlier(), a_header(**change))
    assert (runs, discarded) == ([], [])
    assert len(changed) == 1
    assert named in changed[0]


def test_a_run_that_came_in_the_end_is_not_missing() -> None:
    twice = [FAILED, FAILED]
    assert failed({"runs": [], "discarded": twice}) == ["fps, repetition 2"]
    assert failed({"runs": [{**RUN, "repetition": 2}], "discarded": twice}) == []


@pytest.mark.parametrize(
    ("file", "simulated", "decides"),
    [
        ("drld/allocators/fps.py", False, True),
        ("bpf/limiter.c", False, True),
        ("testbed/traffic.py", False, True),
        ("testbed/tcp/sender.py", False, False),
        ("testbed/tcp/sender.py", True, True),
        ("testbed/sim/host.py", True, True),
        ("bpf/limiter.c", True, False),
        ("testbed/plot.py", False, False),
        ("testbed/harness/report.py", False, False),
        ("docs/testbed.md", False, False),
        ("testbed/harness/page.py", False, False),
        ("testbed/harness/markdown.py", False, False),
    ],
)
def test_the_code_digest_covers_the_measuring_files(
    file: str, simulated: bool, decides: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    monkeypatch.setattr(provenance, "_TESTBED", tmp_path / "testbed")
    path.write_text("before")
    before = provenance.provenance(simulated=simulated)["code"]
    path.write_text("after")
    assert (provenance.provenance(simulated=simulated)["code"] != before) is decides
