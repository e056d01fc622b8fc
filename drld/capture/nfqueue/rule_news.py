"""Removals of the limiter's firewall rules, from a netlink socket of nf_tables.

A restart of nftables or firewalld, or `nft flush ruleset`, removes all rules of the host. The
kernel reports removals of the rules of nft and of iptables-nft, and not of those of
iptables-legacy.
"""

from __future__ import annotations

import socket
import struct

from drld.capture.nft_rules import nft_table
from drld.capture.queue_hooks import TABLES
from drld.errors import DatapathError

_NETLINK_NETFILTER = 12
_GROUP_NFTABLES = 7
_SUBSYSTEM = 10  # NFNL_SUBSYS_NFTABLES
_DELTABLE, _DELCHAIN, _DELRULE = 2, 5, 8
_REMOVALS = {_SUBSYSTEM << 8 | kind for kind in (_DELTABLE, _DELCHAIN, _DELRULE)}
_TABLE = 1  # NFTA_TABLE_NAME, NFTA_CHAIN_TABLE, NFTA_RULE_TABLE
_HEADER, _ATTRIBUTE = struct.Struct("=IHHII"), struct.Struct("=HH")
_FAMILY_BYTES = 4  # struct nfgenmsg
_BYTES = 1 << 16


class RuleNews:
    """Removals in the current network namespace, from now on."""

    def __init__(self, limiter: str) -> None:
        """Subscribe to the kernel's messages about rules.

        Raises:
            DatapathError: the kernel has no nf_tables, or no descriptor is left.
        """
        self._tables = frozenset({nft_table(limiter), *TABLES})
        try:
            self._socket = socket.socket(
                socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_NETFILTER
            )
            try:
                self._socket.setblocking(False)
                self._socket.bind((0, 1 << _GROUP_NFTABLES - 1))
            except OSError:
                self._socket.close()
                raise
        except OSError as error:
            raise DatapathError(f"netlink: {error}") from error

    def removed(self) -> bool:
        """Whether rules of the limiter's tables, which iptables shares, were removed since the last
        call, by whomever."""
        found = False
        while True:
            try:
                found |= _removes(self._socket.recv(_BYTES), self._tables)
            except BlockingIOError:
                return found
            except OSError:
                return True  # the socket's buffer overflowed, so anything may have happened

    def close(self) -> None:
        """Unsubscribe; safe to call twice."""
        self._socket.close()


def _removes(data: bytes, tables: frozenset[str]) -> bool:
    at = 0
    while at < len(data):
        length, message, *_ = _HEADER.unpack_from(data, at)
        body = data[at + _HEADER.size + _FAMILY_BYTES : at + length]
        if message in _REMOVALS and _table(body) in tables:
            return True
        at += (length + 3) & ~3
    return False


def _table(attributes: bytes) -> str:
    """The name of the table that a message is about; empty if it has none."""
    at = 0
    while at < len(attributes):
        length, kind = _ATTRIBUTE.unpack_from(attributes, at)
        if kind == _TABLE:
            name = attributes[at + _ATTRIBUTE.size : at + length]
            return name.rstrip(b"\0").decode("utf-8", "replace")
        at += (length + 3) & ~3
    return ""
