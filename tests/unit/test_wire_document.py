"""docs/wire-format.md is true: its tables, its examples and its reasons."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from drld.gossip.fabrics.mesh_update import MESH
from drld.gossip.fabrics.pushsum_update import PUSHSUM
from drld.gossip.fabrics.tree_ranks import Role, rank
from drld.gossip.fabrics.tree_update import TREE
from drld.gossip.wire.control_codec import (
    BODY,
    HELLO,
    NO_END,
    RUMOUR,
    Control,
    End,
    Hello,
    Kind,
    Rumour,
    State,
)
from drld.gossip.wire.counts_codec import COUNTS
from drld.gossip.wire.datagram_tag import CONTROL, UPDATE
from drld.gossip.wire.datagram_tag import HELLO as HELLO_TAG
from drld.gossip.wire.layout import Table
from drld.gossip.wire.message import HEADER
from drld.gossip.wire.session import Session
from drld.model import Quantity, Update

from ..tags import tagger
from ..wire import CODECS, decode_control_untrusted, encode, encode_control, mesh, pushsum, tree

DOCUMENT = (Path(__file__).resolve().parents[2] / "docs" / "wire-format.md").read_text()
KEY = bytes(range(16))
ONE, TWO = End(0x0102030405060708, 1), End(0x1112131415161718, 2)
UPDATES = [
    tree(1, 258, Role.CHILD, 3.5, 4, quantity=Quantity.WEIGHT),
    mesh(1, 258, 3.5, Quantity.WEIGHT, rest=0.25),
    pushsum(1, 258, 3.5, 0.25, Quantity.WEIGHT, epoch=5),
]
GREETING = Hello(ONE, NO_END, 0x2122232425262728, 0)
PROBE = Control(
    Kind.PROBE,
    7,
    rank("lim2")[0],
    0x3132333435363738,
    (Rumour(rank("lim3")[0], 0x4142434445464748, 9, State.SUSPECT),),
)


def examples() -> list[bytes]:
    blocks = re.findall(r"(?:^ {4}(?:[0-9a-f]{2} ?)+\n)+", DOCUMENT, re.MULTILINE)
    return [bytes.fromhex(block) for block in blocks]


def ends() -> bytes:
    session = Session(ONE, b"")
    session.theirs = TWO
    return session.ends[0]


def test_the_examples_are_what_is_sent() -> None:
    def sealed(update: Update, key: bytes, key_id: int, size: int) -> bytes:
        return tagger(key, "lim1", "lim2", ends=ends(), kind=UPDATE, size=size).seal(
            encode(update, key_id)
        )

    hello = tagger(KEY, "lim1", "lim2", kind=HELLO_TAG, size=16)
    control = tagger(KEY, "lim1", "lim2", ends=ends(), kind=CONTROL, size=16)
    assert examples() == [
        *(sealed(update, b"", 0, 4) for update in UPDATES),
        *(sealed(UPDATES[0], KEY, 1, size) for size in (4, 8, 16)),
        hello.seal(encode_control(GREETING, 1, 0)),
        control.seal(encode_control(PROBE, 1, 3)),
    ]


def test_the_examples_are_what_is_understood() -> None:
    for shown, update in zip(examples(), [*UPDATES, *[UPDATES[0]] * 3], strict=False):
        assert CODECS[type(update)].decode_untrusted(shown[:16]) == [update]
    assert [decode_control_untrusted(shown[:-16]) for shown in examples()[6:]] == [
        (GREETING, 0),
        (PROBE, 3),
    ]


@pytest.mark.parametrize(
    ("heading", "tables"),
    [
        ("### In a tree", [TREE.table]),
        ("### In a mesh", [MESH.table]),
        ("### In push-sum", [PUSHSUM.table]),
        ("## Control messages", [HEADER]),
        ("### HELLO", [HEADER, HELLO]),
        ("### PROBE", [HEADER, BODY]),
        ("Each rumour:", [RUMOUR]),
        ("### COUNTS", [HEADER, COUNTS]),
    ],
)
def test_the_tables_have_every_word_at_its_place(heading: str, tables: list[Table]) -> None:
    shown = DOCUMENT.partition(heading)[2].partition("| offset |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (\d+) \| (?:(\d+)|[\d ]+bits) \|", shown, re.MULTILINE)
    first = sum(table.size for table in tables[:-1])
    offset = first
    places = []
    for word in tables[-1].words:
        places.append(offset)
        offset += sum(bits for _, bits in word.fields) // 8
    assert offset == sum(table.size for table in tables)
    assert [int(row[0]) for row in rows] == places
    sizes = [after - before for before, after in zip(places, [*places[1:], offset], strict=True)]
    assert all(int(size or 1) == actual for (_, size), actual in zip(rows, sizes, strict=True))


def test_every_reason_is_there() -> None:
    section = DOCUMENT.split("## What a receiver refuses")[1]
    reasons = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    root = Path(__file__).resolve().parents[2] / "drld" / "gossip"
    # These three are the reasons of the transport and of its owner.
    raised = {"address", "fabric", "unheeded"}
    for path in root.rglob("*.py"):
        raised |= set(re.findall(r'WireError\(\s*"(\w+)"', path.read_text()))
        if path.name.endswith(("update_codec.py", "_update.py")):
            raised |= set(re.findall(r'return "(\w+)", f"', path.read_text()))
    assert set(reasons) == raised
    assert len(reasons) == len(set(reasons))
