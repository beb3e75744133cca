"""The contract of queue pairs, asked of the RDMA device in this guest by tests that the host built (rdma-transport/tests/verbs)."""

import os
import re
import subprocess

import lab
import servers
from lab import check, must

# The kernel's siw does not ask whether what a peer reads may be read.
LAX = {"siw": "read what may be written"}


def job(_top):
    env = {**os.environ, "VERBS_AT": servers.ADDRESS, "VERBS_LAX": LAX.get(lab.ENV["DEVICE"], "")}
    command = ["/scratch/contract", "--test-threads=1"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    results = re.findall(r"^test ([\w:]+) \.\.\. (\w+)$", done.stdout, re.M)
    must(len(results) > 24, f"{len(results)} tests: {done.stdout[-300:]} {done.stderr[-300:]}")
    for name, result in results:
        check(f"contract/{name.replace('::', '/')}", lambda: must(result == "ok", done.stdout[-600:]))
    must(done.returncode == 0, f"ended with {done.returncode}")
