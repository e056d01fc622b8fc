"""A folder's place says whether it is pure, and what its modules may import.

Pure modules import no clock, socket, event loop, log or kernel interface, and no module of a shell.
Shells may do all of that.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from drld import planes

ROOT = Path(__file__).resolve().parent.parent
PURE = (
    "drld",
    "drld/allocators",
    "drld/capture",
    "drld/capture/registered",
    "drld/cli/view",
    "drld/client/protocol",
    "drld/control/schema",
    "drld/doctor",
    "drld/ebpf/bytecode",
    "drld/estimate",
    "drld/gossip/fabrics",
    "drld/gossip/health",
    "drld/gossip/wire",
    "drld/messages",
    "drld/messages/registered",
    "drld/planes",
    "drld/police",
    "drld/registry/model",
    "drld/requests",
    "drld/requests/buckets",
    "drld/requests/grpc",
    "drld/requests/registered",
)
"""Each without its subfolders."""
SHELLS = (
    "drld/capture/kernel",
    "drld/capture/nfqueue",
    "drld/capture/registered/daemon",
    "drld/capture/registered/doctor",
    "drld/cli",
    "drld/client",
    "drld/config",
    "drld/control",
    "drld/daemon",
    "drld/doctor/facts",
    "drld/ebpf",
    "drld/gossip",
    "drld/messages/front",
    "drld/messages/registered/commands",
    "drld/messages/registered/daemon",
    "drld/messages/registered/doctor",
    "drld/messages/registered/metrics",
    "drld/messages/registered/routes",
    "drld/registry",
    "drld/requests/front",
    "drld/requests/registered/commands",
    "drld/requests/registered/daemon",
    "drld/requests/registered/doctor",
    "drld/requests/registered/metrics",
    "drld/requests/registered/routes",
)
PART_OF_A_SHELL = {
    "drld/capture/registered": "drld.config.",
    "drld/messages/registered": "drld.config.",
    "drld/registry/model": "drld.config.",
    "drld/requests/registered": "drld.config.",
}
"""Pure folders that check tables of the configuration, and the part of a shell that they may
import. `drld.config` itself reads the file."""
PLANES = ("drld.capture", "drld.messages", "drld.requests")
"""Kinds of traffic. They share what no plane owns."""
DATAPATHS = ("drld.capture.kernel", "drld.capture.nfqueue")
OF_PLANES = ("drld/capture", "drld/messages", "drld/requests")
"""The folders of planes, with their subfolders. No other module knows a plane."""
FORBIDDEN = {
    "asyncio",
    "bcc",
    "concurrent",
    "ctypes",
    "datetime",
    "fcntl",
    "http",
    "io",
    "logging",
    "mmap",
    "multiprocessing",
    "netfilterqueue",
    "os",
    "pathlib",
    "pyroute2",
    "secrets",
    "select",
    "selectors",
    "shutil",
    "signal",
    "socket",
    "subprocess",
    "tempfile",
    "threading",
    "time",
    "trio",
    "uuid",
}
IO = {"input", "open", "print"}
"""Built-in functions that do what these modules do."""


def modules(folder: str) -> Iterator[Path]:
    """The modules of one folder without `__main__`, which only starts a shell."""
    return (path for path in (ROOT / folder).glob("*.py") if path.name != "__main__.py")


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


def hidden_io(tree: ast.AST) -> set[str]:
    """I/O that needs no import of a forbidden module: built-in functions, and the hidden generator
    of `random`. `random.Random` may be named: it is a type."""
    names = {node.func for node in ast.walk(tree) if isinstance(node, ast.Call)}
    found = {name.id for name in names if isinstance(name, ast.Name)} & IO
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "random":
            found.add(f"random.{node.attr}")
        elif isinstance(node, ast.ImportFrom) and node.module == "random":
            found.update(f"random.{alias.name}" for alias in node.names)
    return found - {"random.Random"}


def folder_of(name: str) -> str | None:
    """The folder of an imported module of ours, or the package itself; None: it is neither."""
    path = ROOT / name.replace(".", "/")
    if path.with_suffix(".py").is_file():
        return str(path.parent.relative_to(ROOT))
    return str(path.relative_to(ROOT)) if (path / "__init__.py").is_file() else None


def within(name: str, package: str) -> bool:
    """Whether a module is of a package."""
    return f"{name}.".startswith(f"{package}.")


PURE_MODULES = sorted(path for folder in PURE for path in modules(folder))
ALL = sorted((ROOT / "drld").rglob("*.py"))


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_each_folder_is_pure_or_a_shell() -> None:
    assert {relative(path.parent) for path in ALL} == {*PURE, *SHELLS}
    assert not set(PURE) & set(SHELLS)


def test_no_import_is_relative_and_so_escapes() -> None:
    for path in ALL:
        nodes = ast.walk(ast.parse(path.read_text()))
        assert not [node for node in nodes if isinstance(node, ast.ImportFrom) and node.level], path


@pytest.mark.parametrize("path", PURE_MODULES, ids=relative)
def test_pure_modules_do_no_io(path: Path) -> None:
    roots = {name.split(".")[0] for name in imports(path)}
    assert not roots & FORBIDDEN
    assert not hidden_io(ast.parse(path.read_text()))


def test_io_without_an_import_is_found() -> None:
    source = "import random\ndraw = random.random\nfrom random import choice, Random\nopen('f')"
    assert hidden_io(ast.parse(source)) == {"random.random", "random.choice", "open"}
    assert not hidden_io(ast.parse("import random\nself.open()\nx: random.Random"))


@pytest.mark.parametrize("path", PURE_MODULES, ids=relative)
def test_pure_modules_import_no_shell(path: Path) -> None:
    excepted = PART_OF_A_SHELL.get(relative(path.parent), "-")
    names = {name for name in imports(path) if not name.startswith(excepted)}
    assert {folder_of(name) for name in names} <= {None, *PURE}


def test_modules_that_planes_share_import_no_plane() -> None:
    """Registered modules are found by their names, which stand in one place."""
    assert {*planes.PLANES} <= {*PLANES}
    for path in ALL:
        if not relative(path).startswith(OF_PLANES):
            assert not [name for name in imports(path) for it in PLANES if within(name, it)], path


def test_gossip_knows_no_limits_configuration() -> None:
    """Digests are of bytes that the owner of a limit registers."""
    for path in ALL:
        if relative(path).startswith("drld/gossip"):
            assert not imports(path) & {"drld.policy.Policy", "drld.spec.LimitSpec"}, path


@pytest.mark.parametrize("siblings", [PLANES, DATAPATHS])
def test_siblings_do_not_import_each_other(siblings: tuple[str, ...]) -> None:
    for path in ALL:
        module = relative(path.with_suffix("")).replace("/", ".")
        for own in siblings:
            if within(module, own):
                others = set(siblings) - {own}
                assert not [n for n in imports(path) for it in others if within(n, it)], path


@pytest.mark.parametrize("path", sorted(modules("testbed/tcp")), ids=relative)
def test_the_simulated_tcp_knows_neither_fleet_nor_limiter(path: Path) -> None:
    assert not {name.split(".")[0] for name in imports(path)} & FORBIDDEN
    ours = {name for name in imports(path) if folder_of(name) is not None}
    assert {name for name in ours if not within(name, "testbed.tcp")} <= {
        "testbed", "drld.model", "drld.police.policer",
    }  # fmt: skip


def test_the_client_library_knows_nothing_of_the_limiter() -> None:
    """An application that imports it imports neither trio nor the reader of configurations."""
    for path in (ROOT / "drld/client").rglob("*.py"):
        ours = {name for name in imports(path) if folder_of(name) is not None}
        assert {name for name in ours if not within(name, "drld.client")} <= {
            "drld", "drld.errors", "drld.model", "drld.police.token_bucket",
        }, path  # fmt: skip


def test_scapy_stays_out_of_the_product() -> None:
    for path in ALL:
        assert "scapy" not in {name.split(".")[0] for name in imports(path)}, path


@pytest.mark.parametrize("folder", ["drld/allocators", "drld/estimate", "drld/gossip"])
def test_the_code_that_divides_a_limit_sees_no_target(folder: str) -> None:
    for path in (ROOT / folder).rglob("*.py"):
        assert not imports(path) & {"drld.spec.LimitSpec", "drld.spec.Target"}, path


def test_every_exception_to_a_linter_has_a_reason() -> None:
    bare = re.compile(r"#\s*(?:noqa(?:: [A-Z0-9, ]+)?|type: ignore(?:\[[a-z, -]+\])?)\s*$")
    found = [
        f"{relative(path)}:{number}"
        for folder in ("drld", "testbed", "tests")
        for path in (ROOT / folder).rglob("*.py")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if bare.search(line)
    ]
    assert found == []
