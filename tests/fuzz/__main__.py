"""The coverage-guided fuzzer by command: scripts/fuzz [TARGET...] [--seconds N] [--replay FILE].

Without names, all targets but `bpf`, which takes root. Each runs for N seconds in a process of its
own, from its valid inputs, all that was ever found and what earlier runs got far with
(.fuzz/TARGET). A finding is made smaller and written to tests/fuzz/corpus/TARGET. Exit status 1 if
there was one.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.fuzz.finding import CORPUS, keep, shrink
from tests.fuzz.targets import KERNEL_TARGET, TARGETS, find

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / ".fuzz"
NAMES = (*TARGETS, KERNEL_TARGET)
SLOW_S = 30
"""An input that takes longer is a finding."""
MEMORY_MB = 2048
_REPORT_S = 10.0
_PROGRESS = re.compile(r"#(\d+)\s+\w+\s+cov: (\d+) ft: \d+ corp: (\d+)/")
_EXECUTED = re.compile(r"stat::number_of_executed_units:\s+(\d+)")


@dataclass
class Progress:
    """How far a run has got, by what libFuzzer says."""

    executions: int = 0
    edges: int = 0
    inputs: int = 0

    def take(self, line: str) -> None:
        """Read a line of libFuzzer's."""
        if match := _PROGRESS.search(line):
            self.executions, self.edges, self.inputs = map(int, match.groups())
        elif match := _EXECUTED.search(line):
            self.executions = int(match[1])

    def __str__(self) -> str:
        return f"{self.executions:,} executions, {self.edges:,} edges, {self.inputs:,} inputs"


def main(argv: list[str] | None = None) -> int:
    """Run; return the exit status."""
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--seconds", type=int, default=60, metavar="N", help="for each target")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="judge one kept input")
    args = parser.parse_args(argv)
    if unknown := [name for name in args.targets if find(name) is None]:
        parser.error(f"no such target: {', '.join(unknown)} (there are {', '.join(NAMES)})")
    if args.replay:
        return replay(args.replay)
    runs = {name: fuzz(name, args.seconds) for name in args.targets or TARGETS}
    return 0 if all(runs.values()) else 1


def replay(path: Path) -> int:
    """Judge an input by the target whose folder it is in; return the exit status."""
    name = path.resolve().parent.name
    target = find(name)
    if target is None:
        print(f"{path}: not in a folder of a target ({', '.join(NAMES)})", file=sys.stderr)
        return 2
    try:
        accepted = target.check(path.read_bytes())
    except Exception:
        traceback.print_exc()
        return 1
    print(f"{path}: the property of {name} holds ({'accepted' if accepted else 'refused'})")
    return 0


def fuzz(name: str, seconds: int) -> bool:
    """Run one target; whether nothing was found."""
    target = find(name)
    assert target is not None
    explored = WORK / name
    explored.mkdir(parents=True, exist_ok=True)
    progress = Progress()
    with tempfile.TemporaryDirectory() as directory:
        seeds, found = Path(directory, "seeds"), Path(directory, "found")
        seeds.mkdir()
        found.mkdir()
        for number, seed in enumerate(target.seeds()):
            (seeds / str(number)).write_bytes(seed)
        words = Path(directory, "words")
        # libFuzzer refuses an empty file.
        words.write_text("".join(f'"{_quoted(word)}"\n' for word in target.words or [b"\0"]))
        command = [
            *(sys.executable, "-m", "tests.fuzz.guided", name, f"-max_total_time={seconds}"),
            *(f"-timeout={SLOW_S}", f"-rss_limit_mb={MEMORY_MB}", f"-max_len={target.max_bytes}"),
            *(f"-dict={words}", f"-artifact_prefix={found}/", "-print_final_stats=1"),
            *(
                str(explored),
                str(seeds),
                *([str(CORPUS / name)] if (CORPUS / name).is_dir() else []),
            ),
        ]
        with subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            assert process.stdout is not None
            try:
                last = follow(name, process.stdout, progress)
            finally:
                process.kill()
        findings = [path.read_bytes() for path in found.iterdir()]
    if process.returncode == 0 and not findings:
        print(f"{name}: nothing found; {progress}", flush=True)
        return True
    print("".join(last))
    for data in findings:
        path = keep(name, shrink(target.check, data)).relative_to(ROOT)
        print(f"{name}: FOUND {path}; {progress}\n  replay: scripts/fuzz --replay {path}")
    if not findings:
        print(f"{name}: the fuzzer failed with exit status {process.returncode}; {progress}")
    return False


def follow(name: str, output: IO[str], progress: Progress) -> list[str]:
    """Show progress now and then until the process ends; return its last lines."""
    began = shown = time.monotonic()
    last: list[str] = []
    for line in output:
        progress.take(line)
        last = [*last[-60:], line]
        now = time.monotonic()
        if now - shown >= _REPORT_S:
            shown = now
            print(f"{name}: {now - began:.0f} s, {progress}", flush=True)
    return last


def _quoted(word: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word)


if __name__ == "__main__":
    sys.exit(main())
