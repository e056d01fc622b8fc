"""What pyproject.toml cannot say: with DRLD_COMPILED=1, mypyc compiles a part of drld.

It is what each packet or message passes, and the arithmetic of `fair` in a tick. What is gained:
docs/performance.md. Classes that tests replace, such as `Fair` and its account, stay plain. The
modules are plain Python: without this, they run as they are. `mypyc_attr` marks the classes that
plain ones inherit from, those of tests included, or that `copy` copies.
"""

import os

from setuptools import setup

COMPILED = """
estimate: ewma flows
allocators: burst_need fair_bucket fair_flows fair_wants random_drop water_level
police: arrival_time flow_bucket policer policer_set tally token_bucket wall_clock
capture: gate matcher packet patterns
capture/nfqueue: arrival datapath
messages: counts envelope frame gate hold mqtt mqtt_packet per_client segments topics waiting
"""

modules = []
if os.environ.get("DRLD_COMPILED") == "1":
    from mypyc.build import mypycify

    lines = (line.split(": ") for line in COMPILED.split("\n") if line)
    files = [f"drld/{folder}/{name}.py" for folder, names in lines for name in names.split()]
    modules = mypycify(files, group_name="drld.compiled")
setup(ext_modules=modules)
