"""What the plane of requests registers."""
