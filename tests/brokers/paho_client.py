"""A client by paho-mqtt."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.brokers.clients import Heard, Job, jobs, report

PATIENCE_S = 120.0


def publish(asked: Job) -> Heard:
    received: list[str] = []
    reasons: list[int] = []
    subscribed, complete = threading.Event(), threading.Event()
    lost: list[str] = []

    def on_message(client: Any, data: Any, message: mqtt.MQTTMessage) -> None:
        received.append(message.payload.decode())
        if len(received) == asked.count:
            complete.set()

    def on_publish(client: Any, data: Any, mid: int, reason: Any, properties: Any) -> None:
        reasons.append(reason.value)

    def on_disconnect(client: Any, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            lost.append(str(reason))

    client = mqtt.Client(
        mqtt.CallbackAPIVersion.VERSION2,  # type: ignore[attr-defined]  # it re-exports it without saying so
        protocol=mqtt.MQTTv5 if asked.version == 5 else mqtt.MQTTv311,
    )
    client.on_message = on_message
    client.on_publish = on_publish
    client.on_disconnect = on_disconnect
    client.on_subscribe = lambda *_: subscribed.set()
    if asked.context is not None:
        client.tls_set_context(asked.context)
    client.connect("127.0.0.1", asked.port, keepalive=asked.keep_alive_s)
    client.loop_start()
    if asked.listens:
        client.subscribe(asked.topic, asked.qos)
        assert subscribed.wait(PATIENCE_S)
    sent = []
    for number in range(asked.count):
        properties = None
        if asked.alias:
            properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]  # paho has no types here
            properties.TopicAlias = 1
        topic = "" if asked.alias and number else asked.topic
        payload = asked.payload(number)
        sent.append(client.publish(topic, payload, asked.qos, properties=properties))
    for info in sent:
        info.wait_for_publish(PATIENCE_S)
        assert info.is_published()
    if asked.listens:
        assert complete.wait(PATIENCE_S), received
    client.disconnect()
    client.loop_stop()
    assert not lost, lost
    return received, reasons


if __name__ == "__main__":
    asked = jobs()
    with ThreadPoolExecutor(len(asked)) as threads:
        report(threads.map(publish, asked))
