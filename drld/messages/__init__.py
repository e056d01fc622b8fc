"""The plane of messages: limits for topics of message brokers, whose excess waits."""
