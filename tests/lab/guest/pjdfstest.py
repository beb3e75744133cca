"""The cases of pjdfstest on the mount: what each system call on files returns and changes."""

import os
import re
import subprocess

import lab
from lab import check, must

CONFIGURATION = """
[features]
posix_fallocate = {}
rename_ctime = {}
utimensat = {}
utime_now = {}
[settings]
naptime = 0.05
allow_remount = false
[dummy_auth]
entries = [["nobody", "nogroup"], ["games", "games"]]
"""

# A client keeps the blocks of an open file that it removed, under another name. In version 3 times end in 2106.
FAIL_ON_EVERY_SERVER = {"unlink::open_file_not_freed"} | ({"utimensat::y2038"} if lab.VERS == "3" else set())


def cases(top):
    """The results by the names of the cases, and what is said of those that failed."""
    with open("/tmp/pjdfstest.toml", "w") as f:
        f.write(CONFIGURATION)
    os.chmod(top, 0o777)
    command = (lab.ENV["PJDFSTEST"], "-c", "/tmp/pjdfstest.toml", "-p", top)
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=400, cwd="/tmp")
    results = re.findall(r"^(\S+::\S+)\s+(ok|FAILED|skipped.*)$((?:\n\t.*)*)", done.stdout, re.MULTILINE)
    must(len(results) > 300, f"{len(results)} results: {done.stdout[-300:]} {done.stderr[-300:]}")
    return results


def passes(result, said):
    must(result != "FAILED", " ".join(said.split()))


def job(top):
    for name, result, said in cases(top):
        if name not in FAIL_ON_EVERY_SERVER and not result.startswith("skipped"):
            check(f"pjdfstest/{name}", passes, result, said)
