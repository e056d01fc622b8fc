"""`python -m testbed.messages`: measurements of limits on messages."""

from __future__ import annotations

import click

from testbed.messages.hold import hold
from testbed.messages.real.oracle_command import oracle
from testbed.messages.shift import shift
from testbed.messages.stamp_commands import capture_command, stamps


@click.group(commands=[oracle, hold, shift, stamps, capture_command])
def main() -> None:
    """Limits on messages: real brokers, real TCP, in network namespaces."""


if __name__ == "__main__":
    main()
