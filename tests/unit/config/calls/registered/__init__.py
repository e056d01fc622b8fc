"""The registered parts of the plane of calls."""
