"""What the plane of calls registers."""
