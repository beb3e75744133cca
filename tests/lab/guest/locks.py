"""fcntl locks between two clients. The second is this kernel in another network namespace and under another host name: a
client id, a transport and an address of its own. It comes by TCP, so that locks meet across transports, and beside a client
of version 3 by version 4.2, so that they meet across protocols."""

import contextlib
import errno
import fcntl
import os
import signal
import struct
import time

import lab
import servers
from lab import check, must, must_equal, must_hold, must_raise

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
        hand_over(a, b, 40)


def granted_at_once(top):
    """By version 3 the server calls back; a client that was not called asks again after 30 s."""
    with both(top, "granted") as (a, b):
        hand_over(b, a, 25)


def hand_over(a, b, limit):
    """`b` waits for what `a` holds, and gets it within this time."""
    lock(a, fcntl.F_WRLCK)
    pid = os.fork()
    if pid == 0:
        lock(b, fcntl.F_WRLCK, wait=True)
        os._exit(7)
    time.sleep(1)
    must_equal(os.waitpid(pid, os.WNOHANG), (0, 0), "the waiter before the release")
    lock(a, fcntl.F_UNLCK)
    end = time.monotonic() + limit
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
    must_hold(int(lab.pread_all(path)), 200, "the sum")


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


def flock_is_a_lock(top):
    """flock of one client and fcntl of the other are in each other's way."""
    with both(top, "flock") as (a, b):
        fcntl.flock(a, fcntl.LOCK_EX | fcntl.LOCK_NB)
        must_raise(errno.EAGAIN, lock, b, fcntl.F_RDLCK)
        fcntl.flock(a, fcntl.LOCK_UN)
        lock(b, fcntl.F_WRLCK)
        must_raise(errno.EAGAIN, fcntl.flock, a, fcntl.LOCK_EX | fcntl.LOCK_NB)


def canceled_is_forgotten(top):
    """Who gives up waiting is not given the lock later."""
    with both(top, "canceled") as (a, b):
        lock(b, fcntl.F_WRLCK)
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGALRM, lambda *_: os._exit(9))
            signal.setitimer(signal.ITIMER_REAL, 0.5)
            lock(a, fcntl.F_WRLCK, wait=True)
            os._exit(0)
        must_equal(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 9)
        lock(b, fcntl.F_UNLCK)
        lock(b, fcntl.F_WRLCK)
        must_raise(DENIED, lock, a, fcntl.F_WRLCK)


def reboot_releases(top):
    """What a client holds is released when its status monitor tells that it was restarted: here it only says so. (It must be the
    last check: afterwards this kernel holds what the server does not know.)"""
    with both(top, "rebooted") as (a, b):
        lock(a, fcntl.F_WRLCK)
        must_raise(DENIED, lock, b, fcntl.F_WRLCK)
        lab.run("sm-notify", "-f")

        def is_free():
            try:
                return lock(b, fcntl.F_WRLCK) is None
            except OSError:
                return False

        lab.wait_until(is_free, "the lock of a client that was restarted", 10)


CHECKS = (exclusive_excludes, shared_shares, ranges, closing_releases, flock_is_a_lock, waiting_gets_it, read_under_lock)
V3_CHECKS = (granted_at_once, canceled_is_forgotten, reboot_releases)


def job(top):
    if not lab.V4 and not lab.V3_LOCKS:
        return
    if not check("locks/second-client", servers.mount_as_other_client, OTHER):
        return
    for call in CHECKS + (V3_CHECKS if lab.V3_LOCKS else ()):
        check(f"locks/{call.__name__.replace('_', '-')}", call, top)
    check("locks/second-unmount", lab.umount, OTHER)
