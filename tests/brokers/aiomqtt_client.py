"""A client by aiomqtt."""

from __future__ import annotations

import asyncio

import aiomqtt

from tests.brokers.clients import Heard, Job, play

PATIENCE_S = 120.0


async def publish(asked: Job) -> Heard:
    received: list[str] = []
    async with aiomqtt.Client(
        "127.0.0.1",
        asked.port,
        protocol=aiomqtt.ProtocolVersion(asked.version),
        keepalive=asked.keep_alive_s,
        timeout=PATIENCE_S,
        tls_context=asked.context,
    ) as client:
        await client.subscribe(asked.topic, asked.qos)
        for number in range(asked.count):
            await client.publish(asked.topic, asked.payload(number), asked.qos)
        messages = aiter(client.messages)
        while len(received) < asked.count:
            message = await asyncio.wait_for(anext(messages), PATIENCE_S)
            assert isinstance(message.payload, bytes)
            received.append(message.payload.decode())
    return received, []


if __name__ == "__main__":
    play(publish)
