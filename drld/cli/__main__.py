"""`python -m drld.cli`."""

from drld.cli import main

main(prog_name="drlctl")
