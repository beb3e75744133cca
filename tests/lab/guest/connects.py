"""Many connections come and go, and nothing of them stays: what the kernel holds of RDMA for whom, and the gateway's memory and
its own list, are the same before and after. The client is rdma-core's `cmtime`, whose connections carry no message. And who speaks
another protocol, is told so."""

import json
import subprocess
import urllib.request

import lab
import servers
from lab import check, must, must_equal, wait_until

# Of a device in software a process gets no more queue pairs than a few tens.
AT_ONCE, ROUNDS = 50, 10
ADMIN = "http://127.0.0.1:9464/status"


def status():
    with urllib.request.urlopen(ADMIN, timeout=60) as answer:
        return json.load(answer)


def held():
    """Resources of the kernel; buffers in use; connections."""
    s = status()
    return {**servers.resources(), "buffers": sum(c["used"] for c in s["pool"]), "connections": len(s["connections"])}


def opened():
    return sum(n for way, n in status()["opened"].items() if way == f"nfs/{lab.ENV['RDMA']}")


def come_and_go():
    command = ["cmtime", "-s", servers.ADDRESS, "-p", "20049", "-c", str(AT_ONCE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    must_equal((done.returncode, done.stderr), (0, ""), "exit code and errors of cmtime")


def nothing_stays():
    come_and_go()  # What a device has once for all of its connections is there from now on.
    wait_until(lambda: held()["connections"] <= 1, "connections to end")
    before, opened_before = held(), opened()
    for _ in range(ROUNDS):
        come_and_go()
    try:
        wait_until(lambda: held() == before, "as before")
    except lab.Failed:
        must_equal(held(), before, "held")
    # Who has gone before it is looked which user of this host it is does not count as opened.
    came = opened() - opened_before
    must(came >= AT_ONCE * ROUNDS * 4 // 5, f"only {came} connections came")


def stranger_is_refused():
    """rdma-core's `rping` has a protocol of its own: its first message is of no version of RPC-over-RDMA, and what it is answered
    is longer than what it knows."""
    command = ["timeout", "50", "rping", "-c", "-v", "-C", "1", "-a", servers.ADDRESS, "-p", "20049"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    # It ends with 0, too, where it hears of the end of the connection first.
    must(done.returncode != 124 and "ping data" not in done.stdout, f"{done.returncode}: {done.stdout} {done.stderr}")
    wait_until(lambda: b"rpcrdma.header" in lab.pread_all(servers.LOG), "the rule that was broken, in the log")


def job(top):
    check("connects/nothing-stays", nothing_stays)
    check("connects/stranger-is-refused", stranger_is_refused)
