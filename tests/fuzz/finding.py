"""An input for which a property does not hold: told apart, made smaller, kept and replayed."""

from __future__ import annotations

import hashlib
import time
import traceback
from collections.abc import Callable
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"


def failure(check: Callable[[bytes], object], data: bytes) -> str | None:
    """Which exception came from which line; None if none did."""
    try:
        check(data)
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} at {frame.filename}:{frame.lineno}"
    return None


def shrink(check: Callable[[bytes], object], data: bytes, seconds: float = 20.0) -> bytes:
    """A shorter input that fails in the same way, by leaving out ever smaller pieces."""
    wanted = failure(check, data)
    if wanted is None:
        return data
    deadline = time.monotonic() + seconds
    size = max(len(data) // 2, 1)
    while size and time.monotonic() < deadline:
        start, before = 0, len(data)
        while start < len(data) and time.monotonic() < deadline:
            shorter = data[:start] + data[start + size :]
            if failure(check, shorter) == wanted:
                data = shorter
            else:
                start += size
        if size == 1 and len(data) == before:
            break
        size = max(size // 2, 1)
    return data


def keep(target: str, data: bytes, corpus: Path = CORPUS) -> Path:
    """Write it where tests/fuzz/test_corpus.py replays it from now on."""
    path = corpus / target / hashlib.sha256(data).hexdigest()[:16]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path
