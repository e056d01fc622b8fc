"""The client of `scripts/bench rls`, and a server of h2's that it talks to."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import DataReceived, PingAckReceived

from drld.requests.grpc.open_call import framed
from drld.requests.grpc.schema import RATE_LIMIT_RESPONSE
from testbed.bench.rls.client import Client, question
from testbed.errors import MeasurementError

PING = b"12345678"
CALLS = 3


class Server(threading.Thread):
    """Answers calls, each with a ping before it; the last with GOAWAY."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.acknowledged: list[bytes] = []

    def run(self) -> None:
        connection, _ = self.listener.accept()
        http = H2Connection(H2Configuration(client_side=False))
        http.initiate_connection()
        answered = 0
        with connection:
            while data := connection.recv(65_536):
                for event in http.receive_data(data):
                    if isinstance(event, PingAckReceived):
                        self.acknowledged.append(event.ping_data)
                    elif isinstance(event, DataReceived):
                        answered += 1
                        self.answer(http, event.stream_id, answered == CALLS)
                connection.sendall(http.data_to_send())

    def answer(self, http: H2Connection, stream: int, last: bool) -> None:
        if last:
            http.close_connection(ErrorCodes.ENHANCE_YOUR_CALM, b"ping_timeout")
            return
        http.ping(PING)
        http.send_headers(stream, [(":status", "200")])
        http.send_data(stream, framed(RATE_LIMIT_RESPONSE.encode({"overall_code": 2})))
        http.send_headers(stream, [("grpc-status", "0")], end_stream=True)


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    with server.listener:
        server.start()
        yield server


def test_the_client_answers_pings_and_says_why_a_server_hangs_up(server: Server) -> None:
    with closing(Client(server.port)) as client:
        asked = [question("alice", "free")]
        assert [client.ask(asked) for _ in range(CALLS - 1)] == [1, 1]
        with pytest.raises(MeasurementError) as raised:
            client.ask(asked)
    said = f"the server on port {server.port} sent GOAWAY: error 11 ping_timeout"
    assert str(raised.value) == said
    server.join()
    assert server.acknowledged == [PING] * (CALLS - 1)
