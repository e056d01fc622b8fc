"""The batch protocol between an application and its limiter, without any I/O."""
