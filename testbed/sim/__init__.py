"""The simulator: the testbed's experiments under virtual time, by packets (docs/simulator.md).

The limiters are drld's own pure code; TCP, links and gossip's network are modelled.
"""
