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
        "limit[0].id: must be at least 1 (got 0)",
    ),
    "limit id too high": (
        changed(("id = 1", "id = 65536")),
        "limit[0].id: must be at most 65535 (got 65536)",
    ),
    "enormous limit id": (
        changed(("id = 1", "id = 0x1" + "0" * 5000)),
        "limit[0].id: must be at most 65535 (got an integer beyond 64 bits)",
    ),
    "limit id twice": (
        GOOD + LIMIT.replace('"a"', '"b"'),
        "limit[1].id: must be unique, but limit[0].id is the same (got 1)",
    ),
    "limit name twice": (
        GOOD + LIMIT.replace("id = 1", "id = 2"),
        "limit[1].name: must be unique, but limit[0].name is the same (got 'a')",
    ),
    "limit name with a slash": (
        changed(('"a"', '"a/b"')),
        "limit[0].name: must be a name: 1 to 64 letters, digits, dots, dashes or underscores "
        "(got 'a/b')",
    ),
    "rate with a typing error": (
        changed(("10mbit", "10mbot")),
        "limit[0].rate: must be a rate such as \"10mbit\" (got '10mbot')",
    ),
    "rate as a number": (
        changed(('"10mbit"', "10_000_000")),
        'limit[0].rate: must be a rate such as "10mbit", from "10kbit" to "400gbit" (got 10000000)',
    ),
    "ambiguous rate": (
        changed(("10mbit", "10mbps")),
        'limit[0].rate: must be a rate such as "10mbit"; "mbps" is ambiguous (tc reads it as '
        'bytes, others as bits): write "mbit" or "MB/s" (got \'10mbps\')',
    ),
    "rate of nothing": (
        changed(("10mbit", "0bit")),
        'limit[0].rate: must be a rate from "10kbit" to "400gbit" (got \'0bit\')',
    ),
    "rate below the lowest": (
        changed(("10mbit", "9.999kbit")),
        'limit[0].rate: must be a rate from "10kbit" to "400gbit" (got \'9.999kbit\')',
    ),
    "rate above the highest": (
        changed(("10mbit", "400.000001gbit")),
        'limit[0].rate: must be a rate from "10kbit" to "400gbit" (got \'400.000001gbit\')',
    ),
    "burst below a packet": (
        changed(("400kB", "1499B")),
        'limit[0].burst: must be "auto", or a size such as "75kB", from "1500B" to '
        "\"4GB\" (got '1499B')",
    ),
    "burst in bits": (
        changed(("400kB", "600kbit")),
        'limit[0].burst: must be "auto", or a size in bytes such as "75kB" or "64KiB" (got '
        "'600kbit')",
    ),
    "burst as a number": (
        changed(('"400kB"', "75000")),
        'limit[0].burst: must be "auto", or a size such as "75kB", from "1500B" to "4GB" '
        "(got 75000)",
    ),
    "burst above the largest": (
        changed(("400kB", "4.1GB")),
        'limit[0].burst: must be "auto", or a size such as "75kB", from "1500B" to '
        "\"4GB\" (got '4.1GB')",
    ),
    "automatic burst in capitals": (
        changed(("400kB", "AUTO")),
        'limit[0].burst: must be "auto", or a size in bytes such as "75kB" or "64KiB" (got '
        "'AUTO')",
    ),
    "interval beyond the longest": (
        with_limit_key("interval = '11s'"),
        'limit[0].interval: must be a duration such as "50ms", from "10ms" to "10s" (got \'11s\')',
    ),
    "ewma too near to 1": (
        with_limit_key("ewma = 0.9999999999999999"),
        "limit[0].ewma: must be at most 0.999 (got 0.9999999999999999)",
    ),
    "negative ewma": (
        with_limit_key("ewma = -0.1"),
        "limit[0].ewma: must be at least 0 (got -0.1)",
    ),
    "ewma that is no number": (
        with_limit_key("ewma = nan"),
        "limit[0].ewma: must be a finite number (got nan)",
    ),
    "ewma as a text": (
        with_limit_key("ewma = '0.1'"),
        "limit[0].ewma: must be a number (got '0.1')",
    ),
    "unknown mode": (
        with_limit_key("mode = 'monitor'"),
        "limit[0].mode: must be 'enforce', 'shadow' or 'pause' (got 'monitor')",
    ),
    "unknown failure mode": (
        with_limit_key("on_failure = 'fail-open'"),
        "limit[0].on_failure: must be 'share', 'open' or 'closed' (got 'fail-open')",
    ),
    **{
        f"flow = {written}": (
            with_limit_key(f"flow = {written}"),
            'limit[0].flow: must be "5-tuple", "source", or "source" with prefix lengths: '
            '"source/24" for IPv4 (1 to 32), "source/24/56" for IPv4 and IPv6 (1 to 128) '
            f"(got {written})",
        )
        for written in ("'port'", "'source/0'", "'source/33'", "'source/24/129'", "'source/'", "24")
    },
    "unknown excess": (
        with_limit_key("excess = 'ecn'"),
        "limit[0].excess: must be 'drop' or 'mark' (got 'ecn')",
    ),
    # allocator
    "unknown allocator": (
        with_limit_key("allocator = 'FPS'"),
        "limit[0].allocator: must be an allocator: one of ctb, static, gtb, grd, fair, "
        "fps, fps-random-drop, fps-paper (got 'FPS')",
    ),
    "unknown allocator in a table": (
        with_limit_key("allocator = { name = 'wfq' }"),
        "limit[0].allocator.name: must be an allocator: one of ctb, static, gtb, grd, fair, "
        "fps, fps-random-drop, fps-paper (got 'wfq')",
    ),
    "allocator without a name": (
        with_limit_key("allocator = { headroom = 0.2 }"),
        "limit[0].allocator.name: is required",
    ),
    "allocator as an array": (
        with_limit_key("allocator = ['fps']"),
        "limit[0].allocator: must be an allocator: one of ctb, static, gtb, grd, fair, "
        "fps, fps-random-drop, fps-paper (got an array)",
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
        "limit[0].allocator.headroom: must be a number (got '20%')",
    ),
    "infinite parameter": (
        with_limit_key("allocator = { name = 'fps', growth = inf }"),
        "limit[0].allocator.growth: must be a finite number (got inf)",
    ),
    "fraction of a packet": (
        with_limit_key("allocator = { name = 'fps', depth_packets = 1.5 }"),
        "limit[0].allocator.depth_packets: must be an integer (got 1.5)",
    ),
    "parameter the allocator refuses": (
        with_limit_key("allocator = { name = 'fps', saturation = 1.5 }"),
        "limit[0].allocator.saturation: must be above 0 and at most 1 (got 1.5)",
    ),
    "central bucket with peers": (
        with_limit_key("allocator = 'ctb'"),
        "limit[0].allocator: must be an allocator for several limiters: ctb is for one limiter "
        "alone (got 'ctb')",
    ),
    # shares
    "share of a stranger": (
        with_limit_key("shares = { lim1 = 0.5, lim2 = 0.5, lim3 = 0 }"),
        'limit[0].shares.lim3: lim3 is not a limiter of this fleet; did you mean "lim2"?',
    ),
    "share left out": (
        with_limit_key("shares = { lim1 = 1.0 }"),
        "limit[0].shares: must name every limiter of the fleet (missing: lim2)",
    ),
    "shares below 1": (
        with_limit_key("shares = { lim1 = 0.3333, lim2 = 0.6666 }"),
        "limit[0].shares: must sum to 1 (got 0.9999)",
    ),
    "share above 1": (
        with_limit_key("shares = { lim1 = 30, lim2 = 0.7 }"),
        "limit[0].shares.lim1: must be at most 1 (got 30)",
    ),
    "share as a text": (
        with_limit_key("shares = { lim1 = '50%', lim2 = 0.5 }"),
        "limit[0].shares.lim1: must be a number (got '50%')",
    ),
    "shares as an array": (
        with_limit_key("shares = [0.5, 0.5]"),
        "limit[0].shares: must be a table (got an array)",
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
        "limit[0].weights.'lim/1': must be a name: 1 to 64 letters, digits, dots, dashes or "
        "underscores (got 'lim/1')",
    ),
    "weight too low": (
        with_limit_key("weights = { lim1 = 1e-300 }"),
        "limit[0].weights.lim1: must be a number from 0.001 to 1000 (got 1e-300)",
    ),
    "negative weight": (
        with_limit_key("weights = { lim1 = -1.5 }"),
        "limit[0].weights.lim1: must be a number from 0.001 to 1000 (got -1.5)",
    ),
    "weight too high": (
        with_limit_key("weights = { lim1 = 1000.1 }"),
        "limit[0].weights.lim1: must be a number from 0.001 to 1000 (got 1000.1)",
    ),
    "weight that is no number": (
        with_limit_key("weights = { lim1 = nan }"),
        "limit[0].weights.lim1: must be a number from 0.001 to 1000 (got nan)",
    ),
    "weight as a text": (
        with_limit_key("weights = { lim1 = '2' }"),
        "limit[0].weights.lim1: must be a number from 0.001 to 1000 (got '2')",
    ),
    "weight as a boolean": (
        with_limit_key("weights = { lim1 = true }"),
        "limit[0].weights.lim1: must be a number from 0.001 to 1000 (got true)",
    ),
    "weights as a number": (
        with_limit_key("weights = 2"),
        "limit[0].weights: must be a table (got 2)",
    ),
}
"""The change to a good file, and the one line that is said of it."""
