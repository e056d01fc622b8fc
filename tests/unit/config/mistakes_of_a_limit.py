"""Mistakes in [[limit]], its allocator and its shares."""

from __future__ import annotations

from tests.unit.config.good import (
    GOOD,
    LIMIT,
    changed,
    with_limit_key,
)

WRONG: dict[str, tuple[str, str]] = {
    # [[limit]]
    "limit id 0": (
        changed(("id = 1", "id = 0")),
        "limit[0].id: 0: greater than or equal to 1",
    ),
    "limit id too high": (
        changed(("id = 1", "id = 65536")),
        "limit[0].id: 65536: less than or equal to 65535",
    ),
    "enormous limit id": (
        changed(("id = 1", "id = 0x1" + "0" * 5000)),
        "limit[0].id: an integer beyond 64 bits: less than or equal to 65535",
    ),
    "limit id twice": (
        GOOD + LIMIT.replace('"a"', '"b"'),
        "limit[1].id: 1: unique, but limit[0].id is the same",
    ),
    "limit name twice": (
        GOOD + LIMIT.replace("id = 1", "id = 2"),
        "limit[1].name: 'a': unique, but limit[0].name is the same",
    ),
    "limit name with a slash": (
        changed(('"a"', '"a/b"')),
        "limit[0].name: 'a/b': a name: 1 to 64 letters, digits, dots, dashes or underscores",
    ),
    "rate with a typing error": (
        changed(("10mbit", "10mbot")),
        "limit[0].rate: '10mbot': a rate such as \"10mbit\"",
    ),
    "rate as a number": (
        changed(('"10mbit"', "10_000_000")),
        'limit[0].rate: 10000000: a rate such as "10mbit"',
    ),
    "ambiguous rate": (
        changed(("10mbit", "10mbps")),
        'limit[0].rate: \'10mbps\': a rate such as "10mbit"; "mbps" is ambiguous '
        '(tc reads it as bytes, others as bits): write "mbit" or "MB/s"',
    ),
    "rate of nothing": (
        changed(("10mbit", "0bit")),
        'limit[0].rate: \'0bit\': a rate from "10kbit" to "400gbit"',
    ),
    "rate below the lowest": (
        changed(("10mbit", "9.999kbit")),
        'limit[0].rate: \'9.999kbit\': a rate from "10kbit" to "400gbit"',
    ),
    "rate above the highest": (
        changed(("10mbit", "400.000001gbit")),
        'limit[0].rate: \'400.000001gbit\': a rate from "10kbit" to "400gbit"',
    ),
    "burst below a packet": (
        changed(("400kB", "1499B")),
        "limit[0].burst: '1499B': "
        '"auto", or a size such as "75kB", from "1500B" (one full-size packet) to "4GB"',
    ),
    "burst in bits": (
        changed(("400kB", "600kbit")),
        'limit[0].burst: \'600kbit\': "auto", or a size in bytes such as "75kB" or "64KiB"',
    ),
    "burst as a number": (
        changed(('"400kB"', "75000")),
        "limit[0].burst: 75000: "
        '"auto", or a size such as "75kB", from "1500B" (one full-size packet) to "4GB"',
    ),
    "burst above the largest": (
        changed(("400kB", "4.1GB")),
        "limit[0].burst: '4.1GB': "
        '"auto", or a size such as "75kB", from "1500B" (one full-size packet) to "4GB"',
    ),
    "automatic burst in capitals": (
        changed(("400kB", "AUTO")),
        'limit[0].burst: \'AUTO\': "auto", or a size in bytes such as "75kB" or "64KiB"',
    ),
    "interval beyond the longest": (
        with_limit_key("interval = '11s'"),
        'limit[0].interval: \'11s\': a duration such as "50ms", from "10ms" to "10s"',
    ),
    "ewma of 1": (with_limit_key("ewma = 1.0"), "limit[0].ewma: 1.0: less than 1"),
    "negative ewma": (
        with_limit_key("ewma = -0.1"),
        "limit[0].ewma: -0.1: greater than or equal to 0",
    ),
    "ewma that is no number": (with_limit_key("ewma = nan"), "limit[0].ewma: nan: a finite number"),
    "ewma as a text": (with_limit_key("ewma = '0.1'"), "limit[0].ewma: '0.1': a valid number"),
    "unknown mode": (
        with_limit_key("mode = 'monitor'"),
        "limit[0].mode: 'monitor': 'enforce' or 'shadow'",
    ),
    "unknown failure mode": (
        with_limit_key("on_failure = 'fail-open'"),
        "limit[0].on_failure: 'fail-open': 'share', 'open' or 'closed'",
    ),
    "unknown excess": (
        with_limit_key("excess = 'ecn'"),
        "limit[0].excess: 'ecn': 'drop' or 'mark'",
    ),
    # allocator
    "unknown allocator": (
        with_limit_key("allocator = 'FPS'"),
        "limit[0].allocator: 'FPS': "
        "an allocator: one of ctb, static, gtb, grd, fps, fps-random-drop",
    ),
    "unknown allocator in a table": (
        with_limit_key("allocator = { name = 'wfq' }"),
        "limit[0].allocator.name: 'wfq': "
        "an allocator: one of ctb, static, gtb, grd, fps, fps-random-drop",
    ),
    "allocator without a name": (
        with_limit_key("allocator = { headroom = 0.2 }"),
        "limit[0].allocator.name: missing",
    ),
    "allocator as an array": (
        with_limit_key("allocator = ['fps']"),
        "limit[0].allocator: an array: "
        "an allocator: one of ctb, static, gtb, grd, fps, fps-random-drop",
    ),
    "unknown parameter": (
        with_limit_key("allocator = { name = 'fps', head_room = 0.2 }"),
        'limit[0].allocator.head_room: unknown key; did you mean "headroom"?',
    ),
    "parameter of an allocator that has none": (
        with_limit_key("allocator = { name = 'gtb', headroom = 0.2 }"),
        "limit[0].allocator.headroom: unknown key; none is known here",
    ),
    "parameter as a text": (
        with_limit_key("allocator = { name = 'fps', headroom = '20%' }"),
        "limit[0].allocator.headroom: '20%': a valid number",
    ),
    "infinite parameter": (
        with_limit_key("allocator = { name = 'fps', growth = inf }"),
        "limit[0].allocator.growth: inf: a finite number",
    ),
    "fraction of a packet": (
        with_limit_key("allocator = { name = 'fps', depth_packets = 1.5 }"),
        "limit[0].allocator.depth_packets: 1.5: a valid integer",
    ),
    "parameter the allocator refuses": (
        with_limit_key("allocator = { name = 'fps', saturation = 1.5 }"),
        "limit[0].allocator.saturation: 1.5 is not in (0, 1]",
    ),
    "central bucket with peers": (
        with_limit_key("allocator = 'ctb'"),
        "limit[0].allocator: 'ctb': an allocator for a fleet: ctb is for one limiter alone",
    ),
    # shares
    "share of a stranger": (
        with_limit_key("shares = { lim1 = 0.5, lim2 = 0.5, lim3 = 0 }"),
        'limit[0].shares.lim3: lim3 is not a limiter of this fleet; did you mean "lim2"?',
    ),
    "share left out": (
        with_limit_key("shares = { lim1 = 1.0 }"),
        "limit[0].shares: missing lim2: every limiter of the fleet has a share",
    ),
    "shares below 1": (
        with_limit_key("shares = { lim1 = 0.3333, lim2 = 0.6666 }"),
        "limit[0].shares: sum to 0.9999: the shares of a fleet sum to 1",
    ),
    "share above 1": (
        with_limit_key("shares = { lim1 = 30, lim2 = 0.7 }"),
        "limit[0].shares.lim1: 30: less than or equal to 1",
    ),
    "share as a text": (
        with_limit_key("shares = { lim1 = '50%', lim2 = 0.5 }"),
        "limit[0].shares.lim1: '50%': a valid number",
    ),
    "shares as an array": (
        with_limit_key("shares = [0.5, 0.5]"),
        "limit[0].shares: an array: a table",
    ),
    # weights
    "weight of a stranger": (
        with_limit_key("weights = { lim9 = 2 }"),
        'limit[0].weights.lim9: lim9 is not a limiter of this fleet; did you mean "lim2"?',
    ),
    "weight of a stranger with another name": (
        with_limit_key("weights = { lim1 = 2, edge = 2 }"),
        "limit[0].weights.edge: edge is not a limiter of this fleet; known here: lim1, lim2",
    ),
    "weight of no name": (
        with_limit_key("weights = { 'lim/1' = 2 }"),
        "limit[0].weights.'lim/1': 'lim/1': "
        "a name: 1 to 64 letters, digits, dots, dashes or underscores",
    ),
    "weight of 0": (
        with_limit_key("weights = { lim1 = 0 }"),
        "limit[0].weights.lim1: 0: a number above 0 and at most 1000",
    ),
    "negative weight": (
        with_limit_key("weights = { lim1 = -1.5 }"),
        "limit[0].weights.lim1: -1.5: a number above 0 and at most 1000",
    ),
    "weight too high": (
        with_limit_key("weights = { lim1 = 1000.1 }"),
        "limit[0].weights.lim1: 1000.1: a number above 0 and at most 1000",
    ),
    "weight that is no number": (
        with_limit_key("weights = { lim1 = nan }"),
        "limit[0].weights.lim1: nan: a number above 0 and at most 1000",
    ),
    "weight as a text": (
        with_limit_key("weights = { lim1 = '2' }"),
        "limit[0].weights.lim1: '2': a number above 0 and at most 1000",
    ),
    "weight as a boolean": (
        with_limit_key("weights = { lim1 = true }"),
        "limit[0].weights.lim1: True: a number above 0 and at most 1000",
    ),
    "weights as a number": (
        with_limit_key("weights = 2"),
        "limit[0].weights: 2: a table",
    ),
}
"""The change to a good file, and the one line that is said of it."""
