"""The plane of requests: limits for calls, which a client asks about before it carries one out."""
