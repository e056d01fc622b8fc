"""Removals of the limiter's firewall rules, from a netlink socket of nf_tables.

A restart of nftables or firewalld, or `nft flush ruleset`, removes all rules of the host. The
kernel reports removals of the rules of nft and of iptables-nft, and not of those of
iptables-legacy.
"""

from __future__ import annotations

from drld.capture.nft_rules import nft_table
from drld.capture.queue_hooks import TABLES
from drld.ebpf import netlink
from drld.errors import DatapathError

_NETLINK_NETFILTER = 12
_GROUP_NFTABLES = 7
_SUBSYSTEM = 10  # NFNL_SUBSYS_NFTABLES
_DELTABLE, _DELCHAIN, _DELRULE = 2, 5, 8
_REMOVALS = {_SUBSYSTEM << 8 | kind for kind in (_DELTABLE, _DELCHAIN, _DELRULE)}
_TABLE = 1  # NFTA_TABLE_NAME, NFTA_CHAIN_TABLE, NFTA_RULE_TABLE
_FAMILY_BYTES = 4  # struct nfgenmsg


class RuleNews:
    """Removals in the current network namespace, from now on."""

    def __init__(self, limiter: str) -> None:
        """Subscribe to the kernel's messages about rules.

        Raises:
            DatapathError: the kernel has no nf_tables, or no descriptor is left.
        """
        self._tables = frozenset({nft_table(limiter), *TABLES})
        try:
            self._socket = netlink.subscribed(_NETLINK_NETFILTER, _GROUP_NFTABLES)
        except OSError as error:
            raise DatapathError(f"netlink: {error}") from error

    def removed(self) -> bool:
        """Whether rules of the limiter's tables, which iptables shares, were removed since the last
        call, by whomever."""
        try:
            news = [*netlink.come(self._socket)]
        except OSError:
            return True  # some are lost, so anything may have happened
        return any(_removes(data, self._tables) for data in news)

    def close(self) -> None:
        """Unsubscribe; safe to call twice."""
        self._socket.close()


def _removes(data: bytes, tables: frozenset[str]) -> bool:
    return any(
        message in _REMOVALS and _table(body[_FAMILY_BYTES:]) in tables
        for message, body in netlink.messages(data)
    )


def _table(attributes: bytes) -> str:
    """The name of the table that a message is about; empty if it has none."""
    name = netlink.attributes(attributes, (_TABLE,)).get(_TABLE, b"")
    return name.rstrip(b"\0").decode("utf-8", "replace")
