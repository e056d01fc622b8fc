"""The local control API: HTTP and JSON over a unix socket (docs/control-api.md)."""
