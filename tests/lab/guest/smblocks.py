"""Locks, sharing and caching between two SMB clients: this mount, and one by TCP from another network namespace.

Byte-range locks of SMB are mandatory: they keep the other's data away, not only its locks."""

import fcntl
import os
import time

import lab
import servers
from lab import check, must, must_equal, must_hold, must_raise, pread_all
from locks import DENIED, OTHER, both, closing_releases, lock, waiting_gets_it
from semantics import put

def other(path):
    return path.replace(lab.TOP, OTHER)


def exclusive_excludes(top):
    with both(top, "exclusive") as (a, b):
        lock(a, fcntl.F_WRLCK, 0, 100)
        must_raise(DENIED, lock, b, fcntl.F_WRLCK, 50, 10)
        must_raise(DENIED, lock, b, fcntl.F_RDLCK, 99, 1)
        lock(b, fcntl.F_WRLCK, 100, 100)
        lock(a, fcntl.F_UNLCK, 0, 100)
        lock(b, fcntl.F_WRLCK, 0, 100)


def shared_shares(top):
    """Shared locks stand beside each other; there is no upgrade, one's own shared lock is in the way, too."""
    with both(top, "shared") as (a, b):
        lock(a, fcntl.F_RDLCK, 10, 10)
        lock(b, fcntl.F_RDLCK, 10, 10)
        must_raise(DENIED, lock, b, fcntl.F_WRLCK, 15, 1)
        lock(a, fcntl.F_UNLCK, 10, 10)
        lock(b, fcntl.F_UNLCK, 10, 10)
        lock(b, fcntl.F_WRLCK, 15, 1)


def locks_are_mandatory(top):
    """Reading and writing within the other's exclusive lock is refused, beside it is not."""
    with both(top, "mandatory") as (a, b):
        lock(a, fcntl.F_WRLCK, 0, 100)
        must_raise(DENIED, write_through, b, 50)
        write_through(b, 200)
        lock(a, fcntl.F_UNLCK, 0, 100)
        write_through(b, 50)


def write_through(file, at):
    os.pwrite(file.fileno(), b"x", at)
    os.fsync(file.fileno())


def writes_are_seen(top):
    """A client with a lease gives it up when the other writes, and reads what the other wrote."""
    path = put(f"{top}/leased", b"first")
    with open(path, "rb") as f:
        f.read()
        for turn in range(5):
            began = time.monotonic()
            put(other(path), f"turn {turn}".encode())
            must(time.monotonic() - began < 15, "the write waited for too long")
            lab.wait_until(lambda: pread_all(path) == f"turn {turn}".encode(), "the other's write")


def written_behind_is_seen(top):
    """What one has written and only cached is written back when the other opens the file."""
    path = f"{top}/behind"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        os.write(fd, b"cached, not yet sent")
        began = time.monotonic()
        there = os.open(other(path), os.O_RDONLY | os.O_DIRECT)  # Linux 6.12 fills pages beyond the size it knew with zeros.
        must_equal(os.fstat(there).st_size, 20, "size as the other opens it")
        must_equal(os.read(there, 4096), b"cached, not yet sent")
        os.close(there)
        must(time.monotonic() - began < 15, "the read waited for too long")
    finally:
        os.close(fd)


def names_are_seen(top):
    path = put(f"{top}/gone")
    os.unlink(other(path))
    lab.wait_until(lambda: "gone" not in os.listdir(top), "the removal")
    os.mkdir(other(f"{top}/made-there"))
    lab.wait_until(lambda: "made-there" in os.listdir(top), "the folder")


def count_together(top):
    """100 increments under a lock by each of two clients give 200."""
    path = put(f"{top}/counter", b"0000")
    children = []
    for place in (path, other(path)):
        pid = os.fork()
        if pid == 0:
            count_up(place, 100)
            os._exit(0)
        children.append(pid)
    must_equal([os.waitpid(pid, 0)[1] for pid in children], [0, 0], "exit codes")
    lab.drop_caches()
    must_hold(int(pread_all(path)), 200, "the sum")


def count_up(path, times):
    for _ in range(times):
        with open(path, "r+b", buffering=0) as f:
            while True:
                try:
                    lock(f, fcntl.F_WRLCK, 1000, 1)
                    break
                except OSError as e:
                    must(e.errno in DENIED, f"lock: {e}")
                    time.sleep(0.002)
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            value = int(os.pread(f.fileno(), 4, 0)) + 1
            os.pwrite(f.fileno(), b"%04d" % value, 0)
            os.fsync(f.fileno())
            lock(f, fcntl.F_UNLCK, 1000, 1)


CHECKS = (exclusive_excludes, shared_shares, locks_are_mandatory, closing_releases, waiting_gets_it, writes_are_seen,
          written_behind_is_seen, names_are_seen, count_together)


def job(top):
    if not check("smblocks/second-client", servers.mount_as_other_client, OTHER):
        return
    for call in CHECKS:
        check(f"smblocks/{call.__name__.replace('_', '-')}", call, top)
    check("smblocks/second-unmount", lab.umount, OTHER)
