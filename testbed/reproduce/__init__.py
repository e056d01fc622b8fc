"""The paper's figures and tables, one file each, each by one command (docs/reproduction.md)."""
