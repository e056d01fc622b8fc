"""The fleet's registry in etcd: who belongs to the fleet, and which limits it has.

Theory, semantics and the reasons for them: docs/registry.md. `keys` is the layout, `records` what
the values are, `state` the pure part, `merge` makes a configuration of it; `etcd` and `agent` are
the shells, `cache` the file that outlives a restart without etcd.
"""
