"""Packets: headers, matching, and the contents of maps and rules, as pure functions.

Each datapath has a shell in a subfolder: `kernel` (a BPF program polices) and `nfqueue` (the daemon
polices packets that the kernel queues for it).
"""
