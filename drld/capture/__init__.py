"""Datapaths: what takes packets from the kernel, counts them and carries out verdicts."""
