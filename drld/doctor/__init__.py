"""Judgements of `drlctl doctor` on facts about a host and its daemon. They do no I/O.

A check is a function from facts to findings. `drld.doctor.facts` gathers the facts; a plane adds
the checks of its traffic (`registered.doctor`, see `drld.planes`).
"""
