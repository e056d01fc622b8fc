"""The brokers' front door: sockets, and when their bytes arrived."""
