"""Real brokers behind real daemons, with publishers that keep to a schedule."""
