"""Rewrites of compiled BPF instructions for older kernels and compilers, as pure functions."""
