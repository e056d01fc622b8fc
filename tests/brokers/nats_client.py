"""A client by nats-py: it publishes through drld, and hears what comes to the server.

Arguments: drld's port, the server's, a scene (a function here), and for TLS a certificate.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from typing import Any

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg

PATIENCE_S = 120
COUNT = 20
SUBJECT = "limited.a"


class Heard(list[Msg]):
    """The messages that a subscriber has got; nats-py appends after the answer to a later flush."""

    def __init__(self) -> None:
        super().__init__()
        self._complete = asyncio.Event()

    async def take(self, message: Msg) -> None:
        self.append(message)
        if len(self) == COUNT:
            self._complete.set()

    async def all(self) -> None:
        """Return when all messages have come."""
        await asyncio.wait_for(self._complete.wait(), PATIENCE_S)


async def flushed(client: Client) -> None:
    """Return when the server has all that the client has sent.

    nats-py writes a PING before what it has not written yet, so that only a second one is behind
    it.
    """
    for _ in range(2):
        await client.flush(PATIENCE_S)


async def all_sent(through: Client, direct: Client) -> None:
    """Return when the server says that it has all, and has passed it on."""
    await flushed(through)
    await direct.flush(PATIENCE_S)


async def plain(through: Client, direct: Client) -> list[Any]:
    """A flush returns when the server has all messages, and not before."""
    heard = Heard()
    await direct.subscribe(SUBJECT, cb=heard.take)
    await flushed(direct)
    for number in range(COUNT):
        await through.publish(SUBJECT, b"%d" % number)
    await all_sent(through, direct)
    await heard.all()
    return [int(message.data) for message in heard]


async def headers(through: Client, direct: Client) -> list[Any]:
    """Headers come along."""
    heard = Heard()
    await direct.subscribe(SUBJECT, cb=heard.take)
    await flushed(direct)
    for number in range(COUNT):
        await through.publish(SUBJECT, b"x", headers={"number": f"{number}"})
    await all_sent(through, direct)
    await heard.all()
    return [int((message.headers or {})["number"]) for message in heard]


async def large(through: Client, direct: Client) -> list[Any]:
    """Payloads of 300 kB."""
    heard = Heard()
    await direct.subscribe(SUBJECT, cb=heard.take)
    await flushed(direct)
    for number in range(COUNT):
        await through.publish(SUBJECT, f"{number} ".ljust(300_000, "x").encode())
    await all_sent(through, direct)
    await heard.all()
    return [int(message.data.split()[0]) for message in heard if len(message.data) == 300_000]


async def requests(through: Client, direct: Client) -> list[Any]:
    """Requests get their replies, which come back through drld."""

    async def answer(message: Msg) -> None:
        await message.respond(message.data)

    await direct.subscribe(SUBJECT, cb=answer)
    await flushed(direct)
    return [
        int((await through.request(SUBJECT, b"%d" % number, timeout=PATIENCE_S)).data)
        for number in range(COUNT)
    ]


async def queues(through: Client, direct: Client) -> list[Any]:
    """Subscribers of a queue group behind drld get each message once."""
    heard = Heard()
    for _ in range(3):
        await through.subscribe(SUBJECT, queue="workers", cb=heard.take)
    await flushed(through)
    for number in range(COUNT):
        await direct.publish(SUBJECT, b"%d" % number)
    await all_sent(direct, through)
    await heard.all()
    return sorted(int(message.data) for message in heard)


async def main() -> None:
    port, server, scene = int(sys.argv[1]), int(sys.argv[2]), globals()[sys.argv[3]]
    context = ssl.create_default_context(cafile=sys.argv[4]) if len(sys.argv) > 4 else None
    through = await nats.connect(
        f"{'tls' if context else 'nats'}://127.0.0.1:{port}",
        name="client",
        tls=context,
        tls_hostname="127.0.0.1" if context else None,
        allow_reconnect=False,
        verbose=scene is headers,
    )
    direct = await nats.connect(f"nats://127.0.0.1:{server}", allow_reconnect=False)
    numbers = await scene(through, direct)
    servers = [str(uri.netloc) for uri in through.discovered_servers]
    await through.close()
    await direct.close()
    print(json.dumps({"numbers": numbers, "servers": servers}))


if __name__ == "__main__":
    asyncio.run(main())
