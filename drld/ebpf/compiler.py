"""Compiles the programs in bpf/ with bcc, in a child process.

bcc loads LLVM, which takes over 100 MB of memory and aborts the process on some errors. So it runs
in a child: `python -m drld.ebpf.compiler` writes the instructions to its standard output and ends.
The instructions hold no address, size or descriptor of this machine. They stay in a cache
directory, so that a daemon that starts again compiles nothing. A package ships them beside the
sources (scripts/debian), and its hosts need neither bcc nor headers: the sources use only what
is stable for all kernels (UAPI).
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

from drld.ebpf.bpf import Code, references
from drld.ebpf.bytecode.atomics import with_atomics
from drld.ebpf.bytecode.loops import closed_by_jumps
from drld.errors import DatapathError

SOURCES = Path(__file__).parents[1] / "bpf"
"""A link to the folder of the clone; where drld is installed, the folder itself."""

HEADERS = Path(__file__).parents[2] / ".venv/kernel-headers"
"""Kernel headers from scripts/setup, used if the running kernel has none."""

_INCLUDE = re.compile(r'^#include "(\w+\.h)"$', re.MULTILINE)
_MAP = re.compile(r"^BPF_(?:TABLE\(.*, |RINGBUF_OUTPUT\()(\w+), 1\);$", re.MULTILINE)
_TIMEOUT_S = 120


def compiled(
    source: str,
    values: Mapping[int, str] = MappingProxyType({}),
    flags: tuple[str, ...] = (),
    cache: Path | None = None,
) -> dict[str, Code]:
    """The programs of a C file of bpf/, by name: compiled, or from the cache.

    Args:
        source: the file's name without `.c`.
        values: maps by the numbers that stand for the addresses of their values in the file.
        flags: options of the preprocessor.
        cache: directory of earlier results; None: the host's. Results in `SOURCES` serve any host.

    Raises:
        DatapathError: bcc, headers or sources are missing, or the compiler refuses.
    """
    directory = cache if cache is not None else _cache_directory()
    arguments = [source, json.dumps(dict(values)), *flags]
    for file in (_file(SOURCES, arguments), _file(directory, arguments)):
        try:
            return _decode(file.read_text(encoding="ascii"))
        except (OSError, ValueError, KeyError):
            pass  # no file yet, or a damaged one
    text = _compile_in_child(arguments)
    partial = file.with_suffix(f".{os.getpid()}")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        partial.write_text(text, encoding="ascii")
        partial.replace(file)
    except OSError:
        # On a read-only host, or one with a full disk, each start compiles.
        with suppress(OSError):
            partial.unlink()
    return _decode(text)


def _cache_directory() -> Path:
    return Path(os.environ.get("CACHE_DIRECTORY", "/var/cache/drld").split(":")[0])


def _file(directory: Path, arguments: list[str]) -> Path:
    """The file of a compiled source: for the running kernel, or in `SOURCES` for all kernels."""
    release = "" if directory == SOURCES else platform.release()
    digest = hashlib.blake2s(digest_size=12)
    try:
        parts = [path.read_bytes() for path in sorted(SOURCES.glob("*.[ch]"))]
    except OSError as error:
        raise DatapathError(f"the BPF sources: {error}") from error
    if not parts:
        raise DatapathError(f"the BPF sources are missing from {SOURCES}")
    for part in (*parts, release.encode(), repr(arguments).encode(), b"3"):
        digest.update(len(part).to_bytes(8, "big") + part)
    return directory / f"bpf-{digest.hexdigest()}.json"


def _compile_in_child(arguments: list[str]) -> str:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    if not environment.get("BCC_KERNEL_SOURCE") and not _running_headers() and HEADERS.is_dir():
        environment["BCC_KERNEL_SOURCE"] = str(HEADERS)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "drld.ebpf.compiler", *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DatapathError(f"the BPF compiler: {error}") from error
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        if any(line.startswith("chdir(") for line in said):
            raise DatapathError(
                f"no kernel headers for {platform.release()}: run scripts/setup, or set "
                "BCC_KERNEL_SOURCE to their folder"
            )
        told = next((line for line in said if "error:" in line.lower()), said[-1])
        raise DatapathError(f"the BPF compiler: {told.strip()}")
    return done.stdout


def _one_text(name: str) -> str:
    """A source and its includes in one text: bcc rewrites map operations only in the main file."""
    return _INCLUDE.sub(
        lambda found: _one_text(found[1]), (SOURCES / name).read_text(encoding="utf-8")
    )


def _running_headers() -> bool:
    try:
        return (Path("/lib/modules") / platform.release() / "build").exists()
    except PermissionError:  # a sandbox that hides the modules
        return False


def _decode(text: str) -> dict[str, Code]:
    return {
        name: Code(
            bytes.fromhex(program["instructions"]),
            {int(index): target for index, target in program["maps"].items()},
        )
        for name, program in json.loads(text).items()
    }


def _encode(programs: Mapping[str, Code]) -> str:
    return json.dumps(
        {
            name: {"instructions": code.instructions.hex(), "maps": dict(code.maps)}
            for name, code in programs.items()
        }
    )


def main(source: str, values: str, *flags: str) -> int:
    """Compile in the child, with the arguments of `compiled` (`values` in JSON).

    Returns:
        The exit status.
    """
    try:
        from bcc import BPF
        from bcc.libbcc import lib
    except ImportError:
        print("error: bcc is not installed (python3-bpfcc)", file=sys.stderr)
        return 1
    try:
        text = _one_text(f"{source}.c")
        module = BPF(text=text, cflags=["-Wno-unused-function", *flags])
    except Exception as error:
        # The compiler itself has written its errors to standard error.
        print(f"error: {error}", file=sys.stderr)
        return 1
    maps = {lib.bpf_table_fd(module.module, name.encode()): name for name in _MAP.findall(text)}
    named = {int(number): name for number, name in json.loads(values).items()}
    programs = {}
    for number in range(lib.bpf_num_functions(module.module)):
        name = lib.bpf_function_name(module.module, number).decode()
        instructions = closed_by_jumps(with_atomics(module.dump_func(name)))
        programs[name] = Code(instructions, references(instructions, maps, named))
    sys.stdout.write(_encode(programs))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
