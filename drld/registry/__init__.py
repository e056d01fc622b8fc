"""The fleet's registry in etcd: its members and its limits.

docs/registry.md has theory, semantics and reasons. `model` is pure: the layout of keys, the state,
and the configuration made of it. `records` reads and writes values. `etcd` and `agent` are shells.
`cache` is a file for a start while etcd is away.
"""
