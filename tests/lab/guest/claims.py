"""What two clients hold of the same files, and what is left of it when the server is killed in between: locks and open files
are reclaimed, delegations are recalled, nothing is given to the wrong one. The second client is the one of locks.py. Of
version 3 only locks are held."""

import errno
import fcntl
import os
import time

import lab
import locks
import servers
from lab import check, must, must_equal, must_raise
from locks import OTHER, both, lock

# Lease and grace period of the gateway in the lab are 10 s; a client may wait a few seconds more before it asks again.
RECLAIM_MAX = 40


def put(path, text):
    with open(path, "w") as f:
        f.write(text)


def get(path):
    return lab.pread_all(path).decode()


def other(path):
    return path.replace(lab.TOP, OTHER)


def writer_is_seen(top):
    """A reader with a delegation sees what another writes, at once and not after its attribute cache."""
    path = f"{top}/read-by-one"
    put(path, "first")
    time.sleep(0.1)
    for turn in range(5):
        must_equal(get(path), "first" if turn == 0 else f"turn {turn - 1}", "before the write")
        began = time.monotonic()
        put(other(path), f"turn {turn}")
        must(time.monotonic() - began < 15, "the write waited for too long")
        must_equal(get(path), f"turn {turn}", "after the write")


def names_and_modes_are_seen(top):
    """Removing, renaming and chmod by one client while the other may hold a delegation."""
    for verb in ("remove", "rename", "chmod"):
        path = f"{top}/{verb}"
        put(path, verb)
        with open(path):
            pass
        began = time.monotonic()
        match verb:
            case "remove":
                os.unlink(other(path))
            case "rename":
                os.rename(other(path), other(path) + "-d")
            case "chmod":
                os.chmod(other(path), 0o600)
        must(time.monotonic() - began < 15, f"{verb} waited for too long")


def killed_with_locks(top):
    """Locks outlive the server: the holder keeps them, the other does not get them."""
    with both(top, "locked") as (a, b):
        lock(a, fcntl.F_WRLCK, 0, 100)
        lock(a, fcntl.F_RDLCK, 200, 100)
        must_raise(errno.EAGAIN, lock, b, fcntl.F_WRLCK, 50, 1)
        lab.tell_host("kill-gateway")
        time.sleep(1)
        began = time.monotonic()
        must_raise(errno.EAGAIN, lock, b, fcntl.F_WRLCK, 50, 1)
        must(time.monotonic() - began < RECLAIM_MAX, "the answer took too long")
        lock(b, fcntl.F_RDLCK, 250, 10)
        must_raise(errno.EAGAIN, lock, b, fcntl.F_WRLCK, 250, 1)
        os.pwrite(a.fileno(), b"mine", 0)
        os.fsync(a.fileno())
        lock(a, fcntl.F_UNLCK)
        lock(b, fcntl.F_WRLCK, 0, 0)


def killed_with_delegation(top):
    """A reader's cache is still right after the server came back and another wrote."""
    path = f"{top}/delegated"
    put(path, "before")
    with open(path, "rb", buffering=0) as f:
        must_equal(f.read(), b"before")
        lab.tell_host("kill-gateway")
        time.sleep(1)
        put(other(path), "after")
    must_equal(get(path), "after")


def killed_with_removed_file(top):
    """A file that is open and gone for others is still there for its holder."""
    path = f"{top}/removed"
    with open(path, "w+b", buffering=0) as f:
        f.write(b"still here")
        os.fsync(f.fileno())
        os.unlink(path)
        lab.tell_host("kill-gateway")
        time.sleep(1)
        must_equal(os.pread(f.fileno(), 100, 0), b"still here")
        f.write(b"!")
        os.fsync(f.fileno())


CHECKS = (writer_is_seen, names_and_modes_are_seen, killed_with_locks, killed_with_delegation, killed_with_removed_file)


def job(top):
    if not check("claims/second-client", servers.mount_as_other_client, locks.OTHER):
        return
    for call in (killed_with_locks,) if lab.V3_LOCKS else CHECKS:
        check(f"claims/{call.__name__.replace('_', '-')}", call, top)
    check("claims/second-unmount", lab.umount, locks.OTHER)
