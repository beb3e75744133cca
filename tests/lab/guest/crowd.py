"""More connections than the RDMA device can hold: who comes too many is refused, with a line in the log that names the device and
the remedy; those who are there go on, TCP serves, and when some have left, new ones are served.

The queues of a connection are memory that the device shares with the process. The kernel lets a process have so many pieces of
memory (`vm.max_map_count`), and the device can make no queue pair where it has no more. `cmtime` is rdma-core's."""

import os
import subprocess

import connects
import lab
import servers
from lab import check, must, must_equal, wait_until

PIECES = "/proc/sys/vm/max_map_count"
# A connection has at least one piece. The gateway has many more than any other program here, so it alone meets the limit.
ROOM, CROWD = 24, 40


def come(count):
    """So many connect, and then leave; how many of them were refused."""
    command = ["cmtime", "-s", servers.ADDRESS, "-p", "20049", "-c", str(count)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return (done.stdout + done.stderr).count("REJECTED")


def settle():
    wait_until(lambda: len(connects.status()["connections"]) <= 1, "connections to end")


def limit():
    """A little more than it has with one connection, but for what it needs once for all of them."""
    come(1)
    settle()
    pid = lab.pread_all(servers.PID).decode().strip()
    servers.write(PIECES, str(len(lab.pread_all(f"/proc/{pid}/maps").splitlines()) + ROOM))


def some_are_refused():
    refused = come(CROWD)
    must(0 < refused < CROWD, f"{refused} of {CROWD} were refused")
    settle()
    lines = [line for line in lab.pread_all(servers.LOG).decode().splitlines() if "gives no further" in line]
    for words in (f"RDMA device {servers.device()} gives no further", "`connections:`", "vm.max_map_count"):
        must(any(words in line for line in lines), f"no {words!r} in {lines[:1]}")


def the_mount_went_on(top, before):
    lab.drop_caches()
    must_equal(lab.pread_all(os.path.join(top, "there")), b"before", "data")
    must_equal(lab.xprt_counters(lab.TOP)["connect"], before, "times that the mount was connected")


def tcp_serves():
    lab.mount("/mnt/by-tcp", proto="tcp")
    lab.umount("/mnt/by-tcp")


def the_next_is_served():
    must_equal(come(1), 0, "refused")


def job(top):
    servers.write(os.path.join(top, "there"), "before")
    before, usual = lab.xprt_counters(lab.TOP)["connect"], lab.pread_all(PIECES).decode()
    limit()
    try:
        check("crowd/some-are-refused", some_are_refused)
        check("crowd/the-mount-went-on", the_mount_went_on, top, before)
        check("crowd/tcp-serves", tcp_serves)
        check("crowd/the-next-is-served", the_next_is_served)
    finally:
        servers.write(PIECES, usual)
