"""The service goes from one node to the other while this guest works on it: by order, and because the first node is killed,
loses its link, or stands still.

One thread writes and flushes, one makes files, a second client asks for a lock that this one holds all the time, and one reads
from a service of the second node, which nothing may disturb. $TTL is that of the owner's lease, in seconds."""

import contextlib
import fcntl
import mmap
import os
import threading
import time

import lab
from lab import check, must, must_equal, must_hold, must_raise, pread_all, run
from locks import DENIED, lock
from survive import flush

OTHER, BESIDE = "/mnt/other", "/mnt/beside"
BESIDE_SERVER = "10.77.0.11"
WAYS = ("drain", "kill", "cut", "stop")
BLOCK = 4096
TTL = int(lab.ENV["TTL"])
# Seconds. By order nobody waits for the lease. In CephFS the next owner has the sessions of the one before ended and mounts the
# folder, which takes 1.4 to 3.7 s.
MOUNTS = 4 if lab.ON_CEPH else 0
STALL_MAX = {way: TTL + 1.5 + MOUNTS for way in WAYS} | {"drain": 1.0 + MOUNTS}
# A client that was refused at first asks for the connection once a second.
STALL_MAX["kill"] += 1
# What is read of the other service.
BESIDE_BLOCKS = 256


class Worker:
    """Does something again and again until it is told to end, and knows when each time ended and how long it took."""

    def __init__(self, work, pause, close=lambda: None):
        self.work, self.pause, self.close = work, pause, close
        self.done, self.error, self.ends = [], None, False
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        try:
            while not self.ends:
                began = time.monotonic()
                self.work(len(self.done))
                self.done.append((time.monotonic(), time.monotonic() - began))
                time.sleep(self.pause)
        except Exception as e:  # It is told later, by the thread that counts checks.
            self.error = e

    def took(self, since):
        """How long each took that has ended since then, in order of size."""
        return sorted(took for end, took in self.done if end >= since)

    def must_go_on(self, what, count=5):
        """So many more of them end."""
        before = len(self.done)
        try:
            lab.wait_until(lambda: self.error or len(self.done) >= before + count, what, 60)
        except lab.Failed:
            for words in ("ip neigh", "ss -tno", "ip -n other neigh"):
                print(run(*words.split()))
            lab.show_who_waits()
            raise
        must(self.error is None, f"{what}: {self.error!r}")

    def stop(self):
        self.ends = True
        self.thread.join()


def block(n):
    return (f"{n:012} ".encode() * (BLOCK // 13 + 1))[:BLOCK]


def writer(path):
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)

    def work(n):
        must_equal(os.pwrite(fd, block(n), n * BLOCK), BLOCK, "written")
        flush(fd, path)

    return Worker(work, 0.005, lambda: os.close(fd))


def maker(top):
    def make(path):
        try:
            return open(path, "xb")
        except FileExistsError:
            # What was made, and neither recorded nor answered when its server died, is made again. By NFS that is noticed by a mark
            # on the file, which in CephFS is a second operation.
            if not (lab.CIFS or lab.ON_CEPH):
                raise
            must_equal(os.path.getsize(path), 0, "a file that is there already")
            return open(path, "wb")

    def work(n):
        with make(f"{top}/made-{n}") as f:
            f.write(block(n))

    return Worker(work, 0.02)


def prober(path):
    """Another client that wants what is locked: each time it must be refused."""
    file = open(path, "r+b")
    worker = Worker(lambda _: must_raise(DENIED, lock, file, fcntl.F_WRLCK, 0, 100), 0.02, file.close)
    worker.file = file
    return worker


def reader(path):
    """Each block from the server, by itself."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    page = mmap.mmap(-1, BLOCK)

    def work(n):
        number = n * 7 % BESIDE_BLOCKS
        must_equal(os.preadv(fd, [page], number * BLOCK), BLOCK, "read")
        must_hold(page[:], block(number), "a block of the other service")

    return Worker(work, 0.005, lambda: os.close(fd))


def other_network():
    """Another network, for another client."""
    run("ip", "netns", "add", "other")
    run("ip", "link", "set", "vec1", "netns", "other")
    run("ip", "-n", "other", "addr", "add", "10.77.0.4/24", "dev", "vec1")
    run("ip", "-n", "other", "link", "set", "vec1", "up")


def mount_as_other(command):
    """With another name in that network."""
    os.makedirs(command[-1], exist_ok=True)
    run("nsenter", "--net=/run/netns/other", "unshare", "--uts", "sh", "-c", f"hostname other && {' '.join(command)}")


def other_client():
    """Another client, by TCP, of both services. The data of the second lies there already."""
    other_network()
    how = {"extra": "actimeo=0"} if lab.CIFS else {"vers": "4.2"} if lab.V3_LOCKS else {}
    first = lab.mount_command(OTHER, proto="tcp", **how)
    second = lab.mount_command(BESIDE, "/beside", BESIDE_SERVER, cifs=False, vers="4.2", proto="tcp", extra="")
    mount_as_other(first)
    mount_as_other(second)
    with open(f"{BESIDE}/data", "wb") as f:
        f.write(b"".join(map(block, range(BESIDE_BLOCKS))))


def host_does(words):
    done = f"/scratch/{words.replace(' ', '-')}"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(done)
    lab.tell_host(words)
    lab.wait_until(lambda: os.path.exists(done), words, 120)


def milliseconds(took, part):
    return f"{took[min(len(took) - 1, int(len(took) * part))] * 1000:.1f}"


def goes(way, workers):
    writes, makes, probes, reads = workers
    before = time.monotonic()
    reads.must_go_on("reads of the other service", 200)
    calm = reads.took(before)
    began = time.monotonic()
    host_does(f"takeover {way}")
    for what, worker in zip(("writes", "new files", "probes of the lock"), (writes, makes, probes)):
        worker.must_go_on(f"{what} after {way}")
    must(reads.error is None, f"the other service: {reads.error!r}")
    during = reads.took(began)
    stalls = [max(worker.took(began)) for worker in (writes, makes, probes)]
    figures = [f"{stall * 1000:.0f}" for stall in stalls]
    figures += [milliseconds(took, part) for took in (calm, during) for part in (0.5, 0.99)]
    lab.tell_host(f"figure {lab.LABEL} {way} | {' | '.join(figures)}")
    must(stalls[0] <= STALL_MAX[way], f"writes stood for {stalls[0]:.2f} s, at most {STALL_MAX[way]} s")


def is_back(workers):
    host_does("mend")
    for worker in workers:
        worker.must_go_on("work with the first node again")
    # A client that was sent away twice at once would say nothing of the second time.
    time.sleep(1)


def everything_is_there(top, writes, makes):
    lab.drop_caches()
    for at in (top, top.replace(lab.TOP, OTHER)):
        data = pread_all(f"{at}/written")
        must_hold(data[: len(writes.done) * BLOCK], b"".join(map(block, range(len(writes.done)))), f"{at}/written")
        for n in range(0, len(makes.done), 17):
            must_hold(pread_all(f"{at}/made-{n}"), block(n), f"{at}/made-{n}")


def job(top):
    if not check("takeover/second-client", other_client):
        return
    with open(f"{top}/held", "wb") as f:
        f.write(bytes(200))
    held = open(f"{top}/held", "r+b")
    lock(held, fcntl.F_WRLCK, 0, 100)
    probes = prober(f"{top}/held".replace(lab.TOP, OTHER))
    workers = (writer(f"{top}/written"), maker(top), probes, reader(f"{BESIDE}/data"))
    try:
        for way in WAYS:
            check(f"takeover/{way}", goes, way, workers)
            if not check(f"takeover/{way}-mended", is_back, workers):
                break
    finally:
        for worker in workers:
            worker.stop()
    check("takeover/no-error", must_equal, [w.error for w in workers], [None] * 4)
    lock(held, fcntl.F_UNLCK, 0, 100)
    check("takeover/lock-goes-over", lock, probes.file, fcntl.F_WRLCK, 0, 100)
    held.close()
    for worker in workers:
        check("takeover/closes", worker.close)
    check("takeover/everything-is-there", everything_is_there, top, workers[0], workers[1])
    lab.leave("takeover", lab.TOP, os.path.relpath(top, lab.TOP))
    for at in (OTHER, BESIDE):
        check(f"takeover/unmount{at.replace('/', '-')}", lab.umount, at)
