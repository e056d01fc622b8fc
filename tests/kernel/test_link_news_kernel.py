"""The kernel tells of interfaces that come and go."""

from __future__ import annotations

import contextlib

from drld.capture.kernel.link_news import LinkNews

from .topology import Topology


def test_an_interface_that_comes_or_goes_is_news_once(topology: Topology) -> None:
    with contextlib.closing(topology.within("limiter", LinkNews)) as news:
        assert not news.any()
        pair = ["link", "add", "news0", "type", "veth", "peer", "name", "news1"]
        for command in (pair, ["link", "set", "news0", "up"], ["link", "del", "news0"]):
            topology.run("limiter", "ip", *command)
            assert news.any()
            assert not news.any()
    news.close()
