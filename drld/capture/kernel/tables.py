"""The maps of one hook, made from `kernel_classifier.tables`."""

from __future__ import annotations

import struct

from drld.capture import kernel_layout as layout
from drld.capture.kernel_classifier import Tables
from drld.ebpf import bpf
from drld.ebpf.bpf import Map
from drld.errors import DatapathError

_NUMBER = struct.Struct("=I")


def hook_maps(tables: Tables) -> dict[str, Map]:
    """The maps of one hook, filled.

    Raises:
        DatapathError: the kernel refuses.
    """
    arrays = {"hook": [tables.hook], "entries": tables.entries, "ports": tables.ports}
    keys = {"keys4": (layout.KEY4, tables.keys4), "keys6": (layout.KEY6, tables.keys6)}
    made: dict[str, Map] = {}
    try:
        for name, values in arrays.items():
            size = len(values[0]) if values else layout.ENTRY.size
            made[name] = Map.create(
                bpf.ARRAY, name, (4, size), max(len(values), 1), bpf.PROGRAM_READS_ONLY
            )
            made[name].fill({_NUMBER.pack(number): value for number, value in enumerate(values)})
        made["hook"].freeze()
        for name, (key, content) in keys.items():
            made[name] = Map.create(
                bpf.HASH,
                name,
                (key.size, layout.FOUND.size),
                max(len(content), 1),
                bpf.PROGRAM_READS_ONLY,
            )
            made[name].fill(content)
        made["scratch"] = Map.create(bpf.PERCPU_ARRAY, "scratch", (4, layout.SCRATCH_BYTES), 1)
    except BaseException as error:
        for each in made.values():
            each.close()
        if isinstance(error, OSError):
            raise DatapathError(f"BPF maps: {error}") from error
        raise
    return made
