"""SMB Direct by the gateway's own client, which has no device: its iWARP in user space, against the server's device in another
guest. The device goes away under load and comes back, and the client is served again. Linux' own client stands still there now
and then (see xtask/src/lab/scenarios.rs)."""

import contextlib
import json
import subprocess

import lab
import servers
from lab import check, must, must_equal, wait_until

TARGET = f"smb://{lab.USER}@{servers.ADDRESS}:5445/data?transport=rdma"
PASSWORD = "/tmp/password-of-ours"


def bench(*options, protect=""):
    command = ["/scratch/headgate", "bench", TARGET + protect, "--password-file", PASSWORD, "--size", "32MiB", "--json", *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def is_served(protect=""):
    """Bulk data both ways, and small reads."""
    loads = ("write", "read", "random-read")
    load = bench("--only", ",".join(loads), "--time", "200ms", protect=protect)
    out, why = load.communicate(timeout=100)
    must_equal((load.returncode, why.strip()), (0, ""), "exit code and errors")
    rates = {row["load"]: row["rate"] for row in json.loads(out)["targets"][0]["loads"]}
    must(all(rates.get(name, 0) > 0 for name in loads), f"rates: {rates}")


def loses_its_device():
    load = bench("--only", "random-read", "--time", "60s")
    servers.make_trouble("unplug")
    _, why = load.communicate(timeout=100)
    must(load.returncode != 0 and why.strip(), "its device went away, and the client did not notice")


def is_served_again():
    def served():
        with contextlib.suppress(lab.Failed):
            is_served()
            return True

    wait_until(served, "served again")


def job(_top):
    servers.write(PASSWORD, f"{lab.PASSWORD}\n")
    subprocess.run(["chmod", "600", PASSWORD], check=True)
    check("ours/is-served", is_served)
    check("ours/is-served-signed", lambda: is_served("&protect=sign"))
    check("ours/is-served-encrypted", lambda: is_served("&protect=seal"))
    check("ours/loses-its-device", loses_its_device)
    check("ours/is-served-again", is_served_again)
