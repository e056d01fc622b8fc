"""Compiles the programs in bpf/ with bcc, in a process of its own.

bcc brings LLVM, which takes over 100 MB of memory and aborts the process on some errors. So it runs
in a child that ends once the instructions are there: `python -m drld.ebpf.compiler` writes
them to its standard output. They hold no address, size or number of this machine, so they are kept
in a cache directory, and a daemon that starts again compiles nothing.
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
from pathlib import Path

from drld.capture.kernel_layout import MAPS, VALUES
from drld.ebpf.bpf import Code, references
from drld.ebpf.bytecode.atomics import with_atomics
from drld.ebpf.bytecode.loops import closed_by_jumps
from drld.errors import DatapathError

SOURCES = Path(__file__).parents[2] / "bpf"
PROGRAMS = {"limiter": ("police", "apply"), "arrival": ("stamp",)}
"""By source."""

HEADERS = SOURCES.parent / ".venv/kernel-headers"
"""Where scripts/setup puts kernel headers if there are none for the running kernel."""

_INCLUDE = re.compile(r'^#include "(\w+\.h)"$', re.MULTILINE)
_TIMEOUT_S = 120


def compiled(
    flags: tuple[str, ...] = (), cache: Path | None = None, source: str = "limiter"
) -> dict[str, Code]:
    """A source's programs by name, compiled with these preprocessor flags or from the cache.

    Raises:
        DatapathError: bcc, headers or sources are missing, or the compiler refuses.
    """
    directory = cache if cache is not None else _cache_directory()
    file = directory / f"bpf-{_fingerprint(source, flags)}.json"
    try:
        return _decode(file.read_text(encoding="ascii"))
    except (OSError, ValueError, KeyError):
        pass  # none yet, or one that a full disk cut off
    text = _compile_in_child(source, flags)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        partial = file.with_suffix(f".{os.getpid()}")
        partial.write_text(text, encoding="ascii")
        partial.replace(file)
    except OSError:
        pass  # a read-only host compiles at each start
    return _decode(text)


def _cache_directory() -> Path:
    return Path(os.environ.get("CACHE_DIRECTORY", "/var/cache/drld").split(":")[0])


def _fingerprint(source: str, flags: tuple[str, ...]) -> str:
    digest = hashlib.blake2s(digest_size=12)
    try:
        parts = [path.read_bytes() for path in sorted(SOURCES.glob("*.[ch]"))]
    except OSError as error:
        raise DatapathError(f"the BPF sources: {error}") from error
    if not parts:
        raise DatapathError(f"the BPF sources are missing from {SOURCES}")
    for part in (*parts, platform.release().encode(), repr((source, flags)).encode(), b"3"):
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def _compile_in_child(source: str, flags: tuple[str, ...]) -> str:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    if not environment.get("BCC_KERNEL_SOURCE") and not _running_headers() and HEADERS.is_dir():
        environment["BCC_KERNEL_SOURCE"] = str(HEADERS)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "drld.ebpf.compiler", source, *flags],
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
                f"no kernel headers for {platform.release()}: scripts/setup fetches some, or "
                "BCC_KERNEL_SOURCE names their folder"
            )
        told = next((line for line in said if "error:" in line.lower()), said[-1])
        raise DatapathError(f"the BPF compiler: {told.strip()}")
    return done.stdout


def _one_text(name: str) -> str:
    """A source with what it includes: bcc understands operations on maps in the main file alone."""
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


def main(source: str, flags: list[str]) -> int:
    """What the child does."""
    try:
        from bcc import BPF
        from bcc.libbcc import lib
    except ImportError:
        print("error: bcc is not installed (python3-bpfcc)", file=sys.stderr)
        return 1
    try:
        module = BPF(
            text=_one_text(f"{source}.c"),
            cflags=["-Wno-unused-function", *flags],
        )
    except Exception as error:
        # The compiler has written its errors to standard error by itself.
        print(f"error: {error}", file=sys.stderr)
        return 1
    names = {lib.bpf_table_fd(module.module, name.encode()): name for name in MAPS}
    programs = {}
    for name in PROGRAMS[source]:
        instructions = closed_by_jumps(with_atomics(module.dump_func(name)))
        programs[name] = Code(instructions, references(instructions, names, VALUES))
    sys.stdout.write(_encode(programs))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
