"""Fleets of real daemons over loopback, asked by one user, beside those under virtual time."""
