"""The bounds of one gRPC connection.

Strangers write the input of a connection, so everything that it can cause has a bound:

| bounded | bound | beyond it |
|---|---|---|
| open calls | `MAX_CALLS` | the end |
| bytes of a call's headers | `MAX_HEADER_BYTES` | the end |
| bytes without a whole frame or header block | `MAX_SILENT_BYTES` | the end |
| bytes of a message, and of all held messages | `MAX_MESSAGE_BYTES`, `MAX_HELD_BYTES` | a refusal |
| time until a call, or a stream's next message, is complete | `CALL_S` | a status |
| time until an answer is taken | `ANSWER_S` | the call is reset |
| bytes of answers that are not taken | `MAX_UNREAD_BYTES` | the end |
| frames that complete no call | `SPARE_FRAMES` and `SPARE_FRAMES_PER_S` | the end |
| time without a call, except calls that stay | `CALL_S`, `IDLE_S` | GOAWAY, the end in `DRAIN_S` |
| memory of closed streams, sent headers and unknown settings | `Http2` | forgotten |

The end is that of the connection, with GOAWAY. The status is DEADLINE_EXCEEDED. The refusal is the
handler's (`Handler.too_large`), or RESOURCE_EXHAUSTED.
"""

from __future__ import annotations

MAX_CALLS = 100
"""The most open calls: the least bound that RFC 9113 recommends. Calls are answered as they come,
so few are open."""
MAX_HEADER_BYTES = 65_536
"""The most bytes of headers. Envoy's calls have some hundred; but where it traces, it adds headers
of its client (`tracestate`), which may have 60 KiB."""
MAX_MESSAGE_BYTES = 65_536
"""The most bytes of a message, as of bodies over HTTP/1.1: many times the largest descriptors."""
MAX_HELD_BYTES = 4 * MAX_MESSAGE_BYTES
"""The most bytes of incomplete messages of one connection."""
MAX_SILENT_BYTES = 5 * (16_384 + 9)
"""The most bytes without a complete frame: a header block in five of the largest frames."""
MAX_UNREAD_BYTES = 262_144
"""The most bytes of answers that a client has not read: some hundred answers of one connection."""
CALL_S = 5.0
"""The time for a call, s, as over HTTP/1.1."""
ANSWER_S = 20.0
"""The time for taking an answer, s, as over HTTP/1.1."""
SPARE_FRAMES = 500
SPARE_FRAMES_PER_S = 100.0
"""The pace of pings, settings, windows and resets: clients send a few in a round trip."""
FRAMES_OF_CALL = 4.0
"""The frames that a complete call allows: its data, windows that the client opens, a reset."""
IDLE_S = 300.0
"""The time after which a connection without calls ends, s; the client may open another."""
DRAIN_S = 0.2
"""The time in which a client learns that it should use another connection, s: ten times as long as
Envoy waits for an answer by default."""
TAKEN_BYTES = 16_384
"""The bytes of complete calls after which the client's window opens again: a quarter of it."""
