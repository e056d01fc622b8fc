"""The kernel datapath: BPF programs at the interfaces' hooks, and their maps."""
