"""Studies that are not from the paper; `scripts/reproduce NAME` runs them like a figure."""
