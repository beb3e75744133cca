"""The gateway and the kernel's own server beside each other in this guest, measured in turns by the kernel's client.

Not a check: the host is told `figure LOAD | OURS | THEIRS` (MB/s, best round). Reads are direct, so that each goes to the
server; writes are buffered and end with fsync."""

import mmap
import os
import time

import lab
import servers
from lab import check, must_equal

MIB = 1 << 20
SIZE = 256 * MIB
ROUNDS = 5
PEER = "/mnt/peer"


def timed(call, *args):
    began = time.monotonic()
    call(*args)
    return SIZE / 1e6 / (time.monotonic() - began)


def write(path):
    data = bytes(range(256)) * (MIB // 256)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for _ in range(SIZE // MIB):
        must_equal(os.write(fd, data), MIB, "written")
    os.fsync(fd)
    os.close(fd)


def read(path, at_once):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    with mmap.mmap(-1, at_once) as buffer:
        for at in range(0, SIZE, at_once):
            must_equal(os.preadv(fd, [buffer], at), at_once, "read")
    os.close(fd)


LOADS = (
    ("write 256 MiB, fsync", write, ()),
    ("read 256 MiB, 1 MiB at a time", read, (MIB,)),
    ("read 256 MiB, 8 MiB at a time", read, (8 * MIB,)),
)


def measure(top):
    for name, call, more in LOADS:
        best = [0.0, 0.0]
        for _ in range(ROUNDS):
            for i, path in enumerate((f"{top}/file", f"{PEER}/file")):
                best[i] = max(best[i], timed(call, path, *more))
        lab.tell_host(f"figure {name} | {best[0]:.0f} | {best[1]:.0f}")


def job(top):
    os.makedirs(PEER, exist_ok=True)
    lab.run("mount", "-t", "nfs", "-o", lab.options(port=servers.PEER_PORT, mountport=servers.PEER_MOUNT_PORT),
            f"{servers.ADDRESS}:{servers.PEER_FOLDER}", PEER)
    check("beside/measure", measure, top)
    lab.umount(PEER)
