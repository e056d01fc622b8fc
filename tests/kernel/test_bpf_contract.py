"""bpf/drld.h and drld/capture/kernel_layout.py describe the same bytes."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

from drld.capture import kernel_layout as layout
from drld.capture import packet
from drld.capture.kernel.datapath import limiter_programs
from drld.ebpf.compiler import SOURCES, compiled
from drld.police import flow_bucket

from .bench import TEST_FLAGS

SIZES = {
    "drld_record": layout.RECORD.size,
    "drld_flow_record": layout.FLOW_RECORD.size,
    "drld_limit": layout.LIMIT.size,
    "drld_command": layout.COMMAND.size,
    "drld_control": layout.CONTROL.size,
    "drld_counts": layout.COUNTS.size,
    "drld_parse_anomalies": layout.PARSE_ANOMALIES.size,
    "drld_flow": layout.FLOW.size,
    "drld_flow_bucket": layout.FLOW_BUCKET.size,
    "drld_flows": layout.FLOWS_BYTES,
    "drld_entry": layout.ENTRY.size,
    "drld_key4": layout.KEY4.size,
    "drld_key6": layout.KEY6.size,
    "drld_found": layout.FOUND.size,
    "drld_group": layout.GROUP.size,
    "drld_family": layout.FAMILY_BYTES,
    "drld_hook": layout.HOOK_BYTES,
    "drld_range": layout.RANGE.size,
    "drld_ports": layout.PORTS.size,
    "drld_test": layout.TEST.size,
}
OFFSETS = {
    **{("drld_limit", field): offset for field, offset in layout.LIMIT_OFFSETS.items()},
    **{("drld_control", field): offset for field, offset in layout.CONTROL_OFFSETS.items()},
    ("drld_flows", "bucket"): layout.BUCKETS_OFFSET,
    ("drld_family", "group"): layout.FAMILY.size,
    ("drld_hook", "family"): layout.HOOK.size,
}
NUMBERS = {
    "DRLD_ABI": layout.ABI,
    "DRLD_COPY_BYTES": packet.COPY_BYTES,
    "DRLD_MAX_JUMBO": packet.MAX_JUMBO_PAYLOAD,
    "DRLD_MAX_EXTENSIONS": packet.MAX_EXTENSIONS,
    "DRLD_MAX_LIST": layout.MAX_LIST,
    "DRLD_MAX_GROUPS": layout.MAX_GROUPS,
    "DRLD_MAX_ENTRIES": layout.MAX_ENTRIES,
    "DRLD_MAX_RANGES": layout.MAX_RANGES,
    "DRLD_FLOW_SETS * DRLD_FLOW_WAYS": layout.FLOW_SLOTS,
    "DRLD_ANY_PROTOCOL": layout.ANY_PROTOCOL,
    "DRLD_VALUE_HOOK": layout.VALUE_HOOK,
    "DRLD_BUCKET": layout.BUCKET,
    "DRLD_DRAIN": layout.DRAIN,
    "DRLD_SHADOW": layout.SHADOW,
    "DRLD_MARK": layout.MARK,
    "DRLD_SCALE_BITS": flow_bucket.SCALE_BITS,
    "DRLD_MARKED_SPANS": flow_bucket.MARKED_SPANS,
}


def test_sizes_offsets_and_numbers_are_those_of_the_header(tmp_path: Path) -> None:
    lines = [f'printf("%zu,", sizeof(struct {name}));' for name in SIZES]
    lines += [f'printf("%zu,", offsetof(struct {name}, {field}));' for name, field in OFFSETS]
    lines += [f'printf("%d,", {name});' for name in NUMBERS]
    source = tmp_path / "contract.c"
    source.write_text(
        "#include <linux/types.h>\n#include <stddef.h>\n#include <stdio.h>\n"
        '#include "drld.h"\nint main(void) {\n' + "\n".join(lines) + "\nreturn 0; }\n"
    )
    binary = tmp_path / "contract"
    subprocess.run(["gcc", f"-I{SOURCES}", "-o", binary, source], check=True)
    said = subprocess.run([binary], capture_output=True, text=True, check=True).stdout
    expected = [*SIZES.values(), *OFFSETS.values(), *NUMBERS.values()]
    assert [int(number) for number in said.rstrip(",").split(",")] == expected


def test_every_struct_of_the_header_is_checked() -> None:
    declared = re.findall(r"^struct (\w+) \{", (SOURCES / "drld.h").read_text(), re.MULTILINE)
    assert set(declared) == set(SIZES)


def test_only_the_test_build_takes_time_and_randomness_from_a_map(tmp_path: Path) -> None:
    production, test = limiter_programs(), limiter_programs(TEST_FLAGS)
    for name in ("police", "apply"):
        assert "test" not in production[name].maps.values()
    assert "test" in test["police"].maps.values()
    # Helpers: ktime_get_ns, get_prandom_u32, jiffies64, ktime_get_coarse_ns.
    real = {5, 7, 118, 160}
    assert real <= helpers(production["police"].instructions)
    assert not real & helpers(test["police"].instructions)


def test_compiled_programs_are_kept(tmp_path: Path) -> None:
    fresh = compiled("arrival", cache=tmp_path)
    (file,) = tmp_path.iterdir()
    kept = json.loads(file.read_text())
    assert set(kept) == {"stamp"}
    kept["stamp"]["maps"] = {"0": "none"}
    file.write_text(json.dumps(kept))
    assert compiled("arrival", cache=tmp_path)["stamp"].maps == {0: "none"}
    file.write_text("{")
    assert compiled("arrival", cache=tmp_path) == fresh


def helpers(instructions: bytes) -> set[int]:
    """Numbers of the helpers that a program calls."""
    return {
        int.from_bytes(instructions[at + 4 : at + 8], "little")
        for at in range(0, len(instructions), 8)
        if instructions[at] == 0x85
    }
