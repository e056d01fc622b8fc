"""The fleet's registry in etcd: its members and its limits.

Theory, semantics and the reasons for them: docs/registry.md. `model` is the pure part: the layout
of keys, the state, and the configuration made of it. `records` reads and writes the values. `etcd`
and `agent` are the shells, `cache` the file that outlives a restart without etcd.
"""
