"""docs/messages-operations.md: the commands of its beginning limit the topics of a mosquitto.

The first command, which installs, is left out: `scripts/setup` has run where tests run.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from testbed.programs import environment, program

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "messages-operations.md"
READY = "until drlctl status | grep -q '^state *ready'; do sleep 0.1; done"
WAITED = "until drlctl limits | grep -q '^city-each .* [1-9][0-9.]* m\\?s *$'; do sleep 0.1; done"
"""The last column is the 99th percentile of the access delay in the last minute."""
BROKER = "until mosquitto_pub -p 1884 -t up -m 1; do sleep 0.1; done"


def test_the_beginning_of_the_page_limits_a_topic() -> None:
    first, second, *_ = re.findall(
        r"^```sh\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    install, begin = first.split("\n", 1)
    assert install.startswith("scripts/setup runtime && ")
    script = "\n".join(
        ["mount -t tmpfs tmpfs /run", "ip link set lo up", begin, BROKER, READY, second, WAITED]
    )
    folders = {str(Path(program(name)).parent) for name in ("mosquitto", "mosquitto_pub")}
    path = ":".join([f"{ROOT}/.venv/bin", *sorted(folders), os.environ["PATH"]])
    done = subprocess.run(
        ["unshare", *["--net", "--mount", "--pid", "--fork", "--kill-child"], "bash", "-c", script],
        env={**environment("mosquitto"), "PATH": path},
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = re.findall("^city-each .*", done.stdout, re.MULTILINE)
    assert " 100 messages/s" in line
