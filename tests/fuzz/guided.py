"""One target under the coverage-guided fuzzer (atheris), which never returns.

`python -m tests.fuzz.guided TARGET [libFuzzer's options and folders]`; scripts/fuzz runs it.
"""

from __future__ import annotations

import sys

import atheris

INSTRUMENTED = ["drld", "tomllib", "tomli", "h11"]


def main(arguments: list[str]) -> None:
    """Fuzz until libFuzzer's options say that it is enough, or something is found."""
    name, *options = arguments
    with atheris.instrument_imports(include=INSTRUMENTED):
        from tests.fuzz.targets import find

        target = find(name)
    assert target is not None
    check = target.check

    def once(data: bytes) -> None:
        check(data)

    atheris.Setup([sys.argv[0], *options], once)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
