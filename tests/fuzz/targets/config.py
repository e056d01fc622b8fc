"""Configuration files: a spec that a limiter can start with, or a ConfigError naming keys."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from drld import config
from drld.capture.matcher import Matcher
from drld.capture.plane import packets
from drld.config.layers import Layer
from drld.config.problems import dotted
from drld.engine import Engine
from drld.errors import ConfigError
from drld.spec import LimiterSpec
from tests.engine_fakes import FakeDatapath
from tests.factories import example
from tests.fuzz.targets.base import Target

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE = "drld.toml"
DROP_IN = "drld.toml.d/a.toml"
SECTIONS = ("limiter", "gossip", "peer", "limit")


def check(data: bytes) -> bool:
    """The text of a file."""
    return check_text(data.decode(errors="replace"))


def check_text(text: str) -> bool:
    """A text that is no TOML is one problem; in TOML, every problem names a key."""
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError):
        document = None
    if document is not None and isinstance(limits := document.get("limit"), list):
        check_drop_in(limits)
    return _judge(lambda: config.parse(text, FILE), document)


def check_document(document: Mapping[str, Any]) -> bool:
    """Check a document of TOML; its limits alone are a drop-in of another file."""
    if isinstance(limits := document.get("limit"), list):
        check_drop_in(limits)
    return _judge(lambda: config.from_document(document, FILE), document)


def check_drop_in(limits: list[Any]) -> bool:
    """Limits over those of a good file: every problem names a file and a limit."""
    problems: list[str] = []
    try:
        layers = [Layer(DROP_IN, limits)]
        check_spec(config.from_document(tomllib.loads(example()), FILE, layers))
    except ConfigError as error:
        problems = error.problems
    for line in problems:
        assert line.startswith((f"{DROP_IN}: limit[", f"{FILE}: limit[")), line
        assert len(line.splitlines()) == 1
        assert len(line) < 1000
    return not problems


def _judge(read: Callable[[], LimiterSpec], document: Mapping[str, Any] | None) -> bool:
    try:
        spec = read()
    except ConfigError as error:
        check_problems(error.problems, document)
        return False
    check_spec(spec)
    return True


def check_problems(problems: list[str], document: Mapping[str, Any] | None) -> None:
    """A short line for each mistake, with the file and the key (or what is wrong with the TOML)."""
    assert problems
    for line in problems:
        assert line.startswith(f"{FILE}: ")
        assert len(line.splitlines()) == 1
        assert len(line) < 1000
    if document is None:
        assert len(problems) == 1
        return
    keys = (*SECTIONS, *(dotted([key]) for key in document))
    for line in problems:
        assert line[len(FILE) + 2 :].startswith(keys), line


def check_spec(spec: object) -> None:
    """A limiter can be built of it, and tick."""
    assert isinstance(spec, LimiterSpec)
    Matcher(spec.limits)
    if len(spec.limits) > 20:
        return
    planes = [packets(FakeDatapath())]
    engine = Engine(spec, planes, SilentTransport(), Random(1))  # type: ignore[arg-type]  # it sends nothing
    engine.start(0)
    for tick in range(1, 4):
        engine.tick(tick * spec.gossip.interval_ns)
    engine.stop()


class SilentTransport:
    """Whatever is asked of it: nothing comes, and what is sent goes nowhere."""

    def __getattr__(self, _: str) -> Callable[..., list[Any]]:
        return lambda *_arguments, **_options: []


def seeds() -> list[bytes]:
    minimal = b"""
[limiter]
name = "lim1"
listen = "[fd00::1]:7946"
control_group = 1000
[packets]
datapath = "nfqueue"
[[limit]]
id = 65535
name = "a"
rate = "1Gbit"
burst = "4GB"
match = { in = "eth0", source = "fd00::/64", protocol = "udp", destination_port = [80, "8-9"] }
allocator = { name = "fps", headroom = 0.2 }
on_failure = "closed"
excess = "mark"
weights = { lim1 = 0.5 }
"""
    return [
        example().encode(),
        minimal,
        b"peer = []" + minimal.replace(b'"4GB"', b'"auto"'),
    ]


WORDS = (
    *(
        b"[limiter]\n",
        b"[packets]\n",
        b"[gossip]\n",
        b"[[peer]]\n",
        b"[[limit]]\n",
        b"{ ",
        b" }",
        b" = ",
        b"[",
        b"]",
    ),
    *(b'"', b"'", b'"""', b"\n", b"\\u0000", b"inf", b"nan", b"-0.0", b"1e400", b"0x", b"true"),
    *(b"name", b"listen", b"control", b"control_group", b"datapath", b"firewall", b"queue"),
    *(
        b"timestamps",
        b"remove",
        b"fabric",
        b"branching",
        b"interval",
        b"address",
        b"id",
        b"rate",
        b"burst",
    ),
    *(b"allocator", b"ewma", b"mode", b"on_failure", b"shares", b"match", b"in", b"out"),
    *(b"remove", b"flow", b'"source"', b'"source/24"', b'"source/24/56"', b'"5-tuple"'),
    *(b"excess", b"weights", b'"mark"', b'"drop"', b"{ lim1 = 2 }", b'"400gbit"', b'"10kbit"'),
    *(b"source", b"destination", b"protocol", b"source_port", b"destination_port", b"mark"),
    *(b'"auto"', b'"kernel"', b'"nfqueue"', b'"mesh"', b'"pushsum"', b'"tree"', b'"ctb"', b'"grd"'),
    *(b'"gtb"', b'"static"', b'"fps"', b'"fps-random-drop"', b'"shadow"', b'"open"', b'"share"'),
    *(b'"10mbit"', b'"75kB"', b'"50ms"', b'"1h"', b'"10.0.0.1:7946"', b'"[::1]:1"', b'"::/0"'),
    *(
        b'"10.9.2.0/24"',
        b'"fe80::1%a"',
        b'"tcp"',
        b'"icmpv6"',
        b'"0x10/0xff"',
        b"99999999999999999999",
    ),
    *(b"1979-05-27T07:32:00Z", b"headroom", b'"lim1"', b'"\xc3\xa9"', b"\xff", b"\x00", b"9" * 20),
)

TARGET = Target(check, seeds, words=WORDS, max_bytes=8000)
