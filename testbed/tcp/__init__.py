"""The simulator's TCP: senders, receivers and the links between them, under virtual time. Pure.

It knows neither experiments nor fleets; what is between sender and receiver is a `Hop`.
"""
