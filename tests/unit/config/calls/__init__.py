"""A plane that only tests know: calls of services."""
