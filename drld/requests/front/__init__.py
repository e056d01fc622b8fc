"""The front of requests: the server that clients ask."""
