"""The pure core imports no clock, no socket, no event loop and no kernel interface."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FORBIDDEN = {
    "asyncio",
    "bcc",
    "datetime",
    "netfilterqueue",
    "os",
    "pathlib",
    "pyroute2",
    "select",
    "socket",
    "subprocess",
    "threading",
    "time",
    "trio",
}
PURE = sorted(
    path
    for pattern in (
        "drld/burst.py",
        "drld/model.py",
        "drld/spec.py",
        "drld/units.py",
        "drld/limiter.py",
        "drld/reload.py",
        "drld/entry.py",
        "drld/estimate/*.py",
        "drld/allocators/*.py",
        "drld/gossip/*.py",
        "drld/registry/model/keys.py",
        "drld/registry/model/state.py",
        "drld/registry/model/merge.py",
        "drld/registry/model/takeover.py",
        "drld/police/arrival_time.py",
        "drld/capture/packet.py",
        "drld/capture/matcher.py",
        "drld/police/policer.py",
        "drld/ebpf/bytecode/atomics.py",
        "drld/ebpf/bytecode/loops.py",
        "drld/capture/kernel_classifier.py",
        "drld/capture/kernel_layout.py",
        "drld/capture/gate.py",
        "drld/capture/rules.py",
        "drld/capture/verdicts.py",
    )
    for path in ROOT.glob(pattern)
    if path.name != "transport.py"
)


def imports(path: Path) -> set[str]:
    """Modules a file imports, by their full names."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def test_the_list_of_pure_modules_is_not_empty() -> None:
    assert len(PURE) > 20


@pytest.mark.parametrize("path", PURE, ids=lambda path: str(path.relative_to(ROOT)))
def test_pure_modules_do_no_io(path: Path) -> None:
    roots = {name.split(".")[0] for name in imports(path)}
    assert not roots & FORBIDDEN
    # random.Random may be named as a type; the module's own hidden generator may not be used.
    assert not imports(path) & {"random.random", "random.randint", "random.choice"}


@pytest.mark.parametrize("path", PURE, ids=lambda path: str(path.relative_to(ROOT)))
def test_pure_modules_import_no_shell(path: Path) -> None:
    shells = {
        "drld.ebpf.bpf",
        "drld.capture.kernel.datapath",
        "drld.capture.kernel.state",
        "drld.capture.nfqueue.datapath",
        "drld.capture.nfqueue.firewall",
        "drld.config",
        "drld.control",
        "drld.daemon.process",
        "drld.daemon.engine",
        "drld.gossip.transport",
    }
    assert not imports(path) & shells


def test_scapy_stays_out_of_the_product() -> None:
    for path in (ROOT / "drld").rglob("*.py"):
        assert "scapy" not in {name.split(".")[0] for name in imports(path)}, path
