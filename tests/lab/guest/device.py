"""SMB Direct by the gateway's own client and the device of this guest, which both ends use by libibverbs: in clear, signed and
encrypted. The gateway counts what went by RDMA; a wrong byte of protected data is an error to either side. Rates are told."""

import json
import os
import subprocess

import lab
import servers
from lab import check, must, must_equal

TARGET = f"smb+rdma://{lab.USER}@{servers.ADDRESS}/data?device=on"
PASSWORD = "/tmp/password-of-device"
WAYS = (("clear", ""), ("signed", "&protect=sign"), ("encrypted", "&protect=seal"))
BY_SENDS = "&transforms=off"


def bench(how):
    """MB/s of a file that is written and of one that is read, the better of two rounds. A smaller file shows what the first use of
    memory costs: the guest needs a fifth of a second to have it registered."""
    command = ["/scratch/headgate", "bench", TARGET + how, "--password-file", PASSWORD, "--only", "write,read", "--size", "128MiB"]
    done = subprocess.run([*command, "--rounds", "2", "--json"], capture_output=True, text=True, timeout=200)
    must_equal((done.returncode, done.stderr.strip()), (0, ""), "exit code and errors")
    return [row["rate"] for row in json.loads(done.stdout)["targets"][0]["loads"]]


def log():
    return lab.pread_all(servers.LOG).decode(errors="replace")


def standing():
    """Connections that the gateway has not told the end of."""
    said = log()
    return said.count("connection open") - said.count("connection end")


def placed():
    """Bytes that ended connections have moved by RDMA, by the gateway's log."""
    return sum(int(w.split("=")[1]) for w in log().split() if w.startswith(("rdma_write=", "rdma_read=")))


def is_served(name, how, is_direct):
    others, before = standing(), placed()
    rates = bench(how)
    must(all(rates), f"rates: {rates}")
    # The bench may be gone before the gateway tells of its last connection.
    lab.wait_until(lambda: standing() == others, "the end of the bench's connections in the log")
    must_equal(placed() > before, is_direct, "bytes by RDMA in the log")
    lab.tell_host(f"figure {name} by {lab.ENV['DEVICE']}: write {rates[0]:.0f} MB/s, read {rates[1]:.0f} MB/s")


def moves_every_size():
    env = {**os.environ, "VERBS_AT": servers.ADDRESS}
    done = subprocess.run(["/scratch/device"], env=env, capture_output=True, text=True, timeout=400)
    must("1 passed" in done.stdout and done.returncode == 0, done.stdout[-900:] + done.stderr[-300:])


def job(_top):
    check("device/every-size-by-every-algorithm", moves_every_size)
    servers.write(PASSWORD, f"{lab.PASSWORD}\n")
    subprocess.run(["chmod", "600", PASSWORD], check=True)
    for name, how in WAYS:
        check(f"device/{name}", is_served, name, how, True)
    for name, how in WAYS[1:]:
        check(f"device/{name}-by-sends", is_served, f"{name}, by Sends,", how + BY_SENDS, False)
