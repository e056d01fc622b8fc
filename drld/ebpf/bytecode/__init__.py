"""Rewrites compiled BPF instructions for older kernels and compilers: pure functions."""
