"""The memory of replicas: by a stated accounting, as Erlang might have it, and as Python has it.

Accounting, bytes: a key takes 32, a counter's state 16 and 12 an entry, a queue's element 16, a
ledger's cell 14 and its floor 8. A delta state has a copy of each pending entry.

Erlang, words of 8 bytes, by its Efficiency Guide: a process 338; a map 5, and 2 a pair; a key of
32 characters 8; a list's cell 2; a tuple 1 and its elements. Terms are immutable, so delta states
share them: a counter's have a pair for a key, a queue's also a cell for each element.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable
from types import FunctionType, ModuleType
from typing import NamedTuple

from drld.requests.buckets.delta_codec import Form
from drld.requests.buckets.replica import Replica

_KEY = 32
_STATE = {Form.COUNTER: (_KEY + 16, 12), Form.QUEUE: (_KEY, 16), Form.LEDGER: (_KEY + 8, 14)}
"""Bytes of a key's state, and of each entry."""
_PAIR, _CELL, _MAP, _PROCESS = 2, 2, 5, 338
_WORDS = {Form.COUNTER: (_PAIR + 8 + 4 + _MAP, _PAIR), Form.QUEUE: (_PAIR + 8, _CELL + 3),
          Form.LEDGER: (_PAIR + 8 + 3 + _MAP, _PAIR + 3 + 3)}  # fmt: skip
"""The same in words."""


class Size(NamedTuple):
    """Bytes of a fleet's state."""

    local: int
    """Without delta states, by the accounting."""
    whole: int
    """With them."""
    erlang: int


def size(replicas: Iterable[Replica], form: Form) -> Size:
    """The accounted bytes of replicas."""
    of_key, of_entry = _STATE[form]
    key_words, entry_words = _WORDS[form]
    local = pending = words = 0
    for replica in replicas:
        entries = {key: bucket.entries for key, bucket in replica.buckets.items()}
        total = sum(entries.values())
        local += of_key * len(entries) + of_entry * total
        words += _PROCESS + key_words * len(entries) + entry_words * total
        for one in replica.pending.values():
            words += _MAP
            for key, news in one.news.items():
                whole = form is Form.COUNTER
                pending += of_key + of_entry * (entries.get(key, 0) if whole else len(news))
                words += _PAIR + (0 if whole else _CELL * len(news))
    return Size(local, local + pending, 8 * words)


def resident(replicas: Iterable[Replica]) -> int:
    """Bytes of all Python objects of replicas; code and modules are left out."""
    seen: set[int] = set()
    waiting: list[object] = list(replicas)
    total = 0
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, (type, ModuleType, FunctionType)):
            continue
        seen.add(id(one))
        total += sys.getsizeof(one)
        waiting += gc.get_referents(one)
    return total
