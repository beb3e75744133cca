"""fcntl locks between two clients (NFS 4). The second is this kernel in another network namespace and under another
host name: a client id, a transport and an address of its own. It comes by TCP, so that locks meet across transports."""

import contextlib
import errno
import fcntl
import os
import struct
import time

import lab
import servers
from lab import check, must, must_equal, must_raise

OTHER = "/mnt/other"
# SMB's answer to a lock that is in the way is no other than that to a write that may not be.
DENIED = (errno.EAGAIN, *[errno.EACCES] * lab.CIFS)


def lock(fd, kind, start=0, length=0, wait=False):
    fcntl.fcntl(fd, fcntl.F_OFD_SETLKW if wait else fcntl.F_OFD_SETLK,
                struct.pack("hhqqi4x", kind, os.SEEK_SET, start, length, 0))


def blocker(fd, kind, start=0, length=0):
    """What F_OFD_GETLK says: the kind of the lock in the way, its start and length."""
    asked = struct.pack("hhqqi4x", kind, os.SEEK_SET, start, length, 0)
    found, _, start, length, _ = struct.unpack("hhqqi4x", fcntl.fcntl(fd, fcntl.F_OFD_GETLK, asked))
    return (found, start, length) if found != fcntl.F_UNLCK else None


@contextlib.contextmanager
def both(top, name):
    """The same file opened by both clients."""
    path = f"{top}/{name}"
    with open(path, "wb") as f:
        f.write(bytes(1000))
    with open(path, "r+b", buffering=0) as a, open(path.replace(lab.TOP, OTHER), "r+b", buffering=0) as b:
        yield a, b


def exclusive_excludes(top):
    with both(top, "exclusive") as (a, b):
        lock(a, fcntl.F_WRLCK)
        must_raise(DENIED, lock, b, fcntl.F_WRLCK)
        must_raise(DENIED, lock, b, fcntl.F_RDLCK)
        must_equal(blocker(b, fcntl.F_RDLCK), (fcntl.F_WRLCK, 0, 0))
        lock(a, fcntl.F_UNLCK)
        lock(b, fcntl.F_WRLCK)


def shared_shares(top):
    with both(top, "shared") as (a, b):
        lock(a, fcntl.F_RDLCK, 10, 10)
        lock(b, fcntl.F_RDLCK, 10, 10)
        must_raise(DENIED, lock, b, fcntl.F_WRLCK, 15, 1)
        lock(a, fcntl.F_UNLCK)
        lock(b, fcntl.F_WRLCK, 15, 1)


def ranges(top):
    """Neighbours do not meet; unlocking the middle leaves both ends; upgrade and downgrade change one piece."""
    with both(top, "ranges") as (a, b):
        lock(a, fcntl.F_WRLCK, 0, 100)
        lock(b, fcntl.F_WRLCK, 100, 100)
        must_raise(DENIED, lock, b, fcntl.F_WRLCK, 99, 1)
        lock(a, fcntl.F_UNLCK, 40, 20)
        lock(b, fcntl.F_WRLCK, 40, 20)
        must_raise(DENIED, lock, b, fcntl.F_WRLCK, 39, 1)
        must_raise(DENIED, lock, b, fcntl.F_WRLCK, 60, 1)
        lock(a, fcntl.F_RDLCK, 0, 10)
        lock(b, fcntl.F_RDLCK, 0, 10)
        must_raise(DENIED, lock, a, fcntl.F_WRLCK, 0, 10)
        lock(a, fcntl.F_WRLCK, 1 << 40, 0)
        must_raise(DENIED, lock, b, fcntl.F_WRLCK, 1 << 50, 1)


def closing_releases(top):
    with both(top, "closed") as (a, b):
        lock(a, fcntl.F_WRLCK)
        must_raise(DENIED, lock, b, fcntl.F_WRLCK)
        a.close()
        lock(b, fcntl.F_WRLCK)


def waiting_gets_it(top):
    """A lock that is waited for is given once the other lets go."""
    with both(top, "waited") as (a, b):
        lock(a, fcntl.F_WRLCK)
        pid = os.fork()
        if pid == 0:
            lock(b, fcntl.F_WRLCK, wait=True)
            os._exit(7)
        time.sleep(1)
        must_equal(os.waitpid(pid, os.WNOHANG), (0, 0), "the waiter before the release")
        lock(a, fcntl.F_UNLCK)
        end = time.monotonic() + 40
        while (done := os.waitpid(pid, os.WNOHANG)) == (0, 0):
            must(time.monotonic() < end, "the waiter never got the lock")
            time.sleep(0.05)
        must_equal(os.waitstatus_to_exitcode(done[1]), 7)


def read_under_lock(top):
    """Taking a lock makes the other's writes visible: 100 increments by each of two writers give 200."""
    path = f"{top}/counter"
    with open(path, "w") as f:
        f.write("0")
    children = []
    for place in (path, path.replace(lab.TOP, OTHER)):
        pid = os.fork()
        if pid == 0:
            count_up(place, 100)
            os._exit(0)
        children.append(pid)
    must_equal([os.waitpid(pid, 0)[1] for pid in children], [0, 0], "exit codes")
    must_equal(int(lab.pread_all(path)), 200)


def count_up(path, times):
    fd = os.open(path, os.O_RDWR)
    for _ in range(times):
        while True:
            try:
                lock(fd, fcntl.F_WRLCK)
                break
            except BlockingIOError:
                time.sleep(0.002)
        value = int(os.pread(fd, 20, 0)) + 1
        os.pwrite(fd, str(value).encode(), 0)
        lock(fd, fcntl.F_UNLCK)
    os.close(fd)


CHECKS = (exclusive_excludes, shared_shares, ranges, closing_releases, waiting_gets_it, read_under_lock)


def job(top):
    if not lab.V4:
        return
    if not check("locks/second-client", servers.mount_as_other_client, OTHER):
        return
    for call in CHECKS:
        check(f"locks/{call.__name__.replace('_', '-')}", call, top)
    check("locks/second-unmount", lab.umount, OTHER)
