"""The JSON of the control API (docs/control-api.md), shared by the daemon and drlctl.

Rates are bits/s (as operators write them), sizes bytes, times seconds. Of a limit whose `unit` is
not `bytes`, rates are items/s and sizes items, although the keys say `_bps` and `_bytes`. Counters
count since the daemon started. These modules import nothing but typing: drlctl starts fast.
"""
