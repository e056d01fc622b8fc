"""What a decision on a request costs, beside what a user would choose instead (`contest`).

Each file of `rows` is one contestant: it names an `ENTRY`. A new file is a new row.
"""
