"""The kernel tells of interfaces that come and go, or move to another network namespace."""

from __future__ import annotations

import contextlib
import socket

from drld.capture.kernel.link_news import LinkNews, News

from .topology import Topology


def test_an_interface_that_comes_or_goes_is_news_once(topology: Topology) -> None:
    with contextlib.closing(topology.within("limiter", LinkNews)) as news:
        assert not news.read().any
        pair = ["link", "add", "news0", "type", "veth", "peer", "name", "news1"]
        for command in (pair, ["link", "set", "news0", "up"], ["link", "del", "news0"]):
            topology.run("limiter", "ip", *command)
            assert news.read().any
            assert not news.read().any
    news.close()


def test_an_interface_that_is_moved_to_another_namespace_is_news(topology: Topology) -> None:
    pair = ("ip", "link", "add", "news0", "type", "veth", "peer", "name", "news1")
    with contextlib.closing(topology.within("limiter", LinkNews)) as news:
        topology.run("limiter", *pair)
        topology.run("limiter", "ip", "link", "del", "news0")
        topology.run("limiter", *pair)
        index = topology.within("limiter", lambda: socket.if_nametoindex("news1"))
        assert news.read() == News(True, set())
        topology.run("limiter", "ip", "link", "set", "news1", "netns", topology.names["sink"])
        assert news.read() == News(True, {index})
        topology.run("limiter", "ip", "link", "del", "news0")
        assert news.read() == News(True, set())
