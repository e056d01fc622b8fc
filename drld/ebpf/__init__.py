"""eBPF: the system call, the compiler, and how programs are attached to hooks."""
