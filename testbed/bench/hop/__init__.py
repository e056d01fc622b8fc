"""What a hop through drld costs messages, beside other proxies."""
