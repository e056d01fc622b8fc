"""Packets: headers, matching and the contents of maps and rules, as pure functions.

Two folders are shells around them, one for each datapath: `kernel` (a BPF program polices) and
`nfqueue` (the daemon polices packets that the kernel queues for it).
"""
