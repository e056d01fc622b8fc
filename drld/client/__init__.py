"""The client library: an application asks its limiter whether a request may pass.

`Client` waits in threads. `drld.client.on_asyncio` and `drld.client.on_trio` have the same for
event loops, and `drld.client.asgi` and `drld.client.wsgi` middleware (docs/requests-clients.md).
"""

from drld.client.decorator import RateLimitedError, limited
from drld.client.on_threads import Client
from drld.client.protocol.model import Answer, Question

__all__ = ["Answer", "Client", "Question", "RateLimitedError", "limited"]
