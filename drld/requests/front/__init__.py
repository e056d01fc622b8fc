"""The front of requests: where clients ask, over HTTP."""
