"""The memory of replicas, by a stated accounting and as Python has it.

Accounting, bytes: a key takes 32, a counter's state 16 and 12 an entry, a queue's element 16, a
ledger's cell 14 and its floor 8. A delta state counts in two ways. `copied` counts each pending
entry as one of a state. `shared` counts a pointer of 8 for each, as in a runtime whose immutable
terms several delta states share; a counter's is one pointer, to the whole state.
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
_POINTER = 8
_STATE = {Form.COUNTER: (_KEY + 16, 12), Form.QUEUE: (_KEY, 16), Form.LEDGER: (_KEY + 8, 14)}
"""Bytes of a key's state, and of each entry."""


class Size(NamedTuple):
    """Bytes of a fleet's state."""

    local: int
    """Without delta states."""
    copied: int
    shared: int


def size(replicas: Iterable[Replica], form: Form) -> Size:
    """The accounted bytes of replicas."""
    of_key, of_entry = _STATE[form]
    local = copied = shared = 0
    for replica in replicas:
        entries = {key: bucket.entries for key, bucket in replica.buckets.items()}
        local += sum(of_key + of_entry * count for count in entries.values())
        for one in replica.pending.values():
            for key, news in one.news.items():
                whole = form is Form.COUNTER
                copied += of_key + of_entry * (entries.get(key, 0) if whole else len(news))
                shared += _POINTER * (1 if whole else len(news))
    return Size(local, local + copied, local + shared)


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
