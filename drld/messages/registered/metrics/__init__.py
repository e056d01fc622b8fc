"""Figures of messages for `GET /metrics`."""

from __future__ import annotations

from collections.abc import Iterator

from drld.control.backend import Backend
from drld.control.exposition import Sample, counter, gauge, summary
from drld.messages.datapath import MessageDatapath
from drld.messages.spec import MessagesSpec
from drld.model import NS_PER_S
from drld.police.waits import QUANTILES

_EXPIRES = gauge(
    "broker_certificate_expiry_timestamp_seconds", "When the certificate of a [[broker]] expires."
)
_HELD = gauge("messages_held_bytes", "Memory of messages that wait, of all brokers.")
_WAITING = gauge("limit_messages_waiting", "Messages that wait; in shadow mode, that would wait.")
_WAITED = counter("limit_messages_waited", "Messages that had to wait, or would have had to.")
_CLIENTS = gauge("limit_clients", "Clients with a bucket of their own.")
_DELAY = summary(
    "limit_access_delay_seconds", "Access delay of the last minute's messages, by quantile."
)


def samples(backend: Backend) -> Iterator[Sample]:
    """When certificates expire, the memory of messages that wait, and the figures of each limit."""
    datapath = backend.datapath_of(MessageDatapath)
    if datapath is None:
        return
    for broker in backend.plane_spec(MessagesSpec).brokers:
        if broker.tls is not None:
            yield Sample(_EXPIRES, broker.tls.expires, (("broker", broker.name),))
    yield Sample(_HELD, datapath.gate.held_bytes)
    for limit in datapath.limits:
        try:
            waits = datapath.waits(limit.id)
        except KeyError:
            continue  # A reload has removed the limit since the last sample.
        label = ("limit", limit.name)
        yield Sample(_WAITING, waits.waiting, (label,))
        yield Sample(_WAITED, waits.waited, (label,))
        yield Sample(_CLIENTS, waits.clients, (label,))
        for part, delay_ns in zip(QUANTILES, waits.delays.quantiles_ns, strict=True):
            yield Sample(_DELAY, delay_ns / NS_PER_S, (label, ("quantile", f"{part:g}")))
