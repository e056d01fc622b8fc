"""eBPF: the system call, the compiler, and the attachment of programs to hooks."""
