"""The benchmark: the cost of limiting, compared with other tools (docs/performance.md).

One file a benchmark; `registry` lists them. All of them alternate short slices of traffic between
lanes that differ in one thing only (`lanes`), and report medians with their spread (`summary`).
"""
