"""One share mounted by SMB and by NFS 4.2 at the same time: one set of files, locks and caching rights."""

import errno
import fcntl
import os
import time

import lab
import share
from lab import check, must, must_equal, must_raise, pread_all
from locks import DENIED, lock
from semantics import put
from sizes import same, write_all

NFS = "/mnt/nfs"


def by_nfs(path):
    return path.replace(lab.TOP, NFS)


def same_bytes(top):
    """What one protocol wrote and closed, the other reads, at every size."""
    for size in share.SIZES:
        write_all(f"{top}/smb-{size}", share.pattern(f"smb{size}", size), "buffered")
        write_all(by_nfs(f"{top}/nfs-{size}"), share.pattern(f"nfs{size}", size), "buffered")
    lab.drop_caches()
    for size in share.SIZES:
        same(pread_all(by_nfs(f"{top}/smb-{size}")), share.pattern(f"smb{size}", size))
        same(pread_all(f"{top}/nfs-{size}"), share.pattern(f"nfs{size}", size))


def names(top):
    """Characters that Windows reserves are the characters themselves by NFS."""
    wanted = ["plain", "*?\"<>|:", "日本語", "ü"]
    for n, name in enumerate(wanted):
        put((f"{top}/{name}", by_nfs(f"{top}/{name}"))[n % 2], name.encode())
    lab.drop_caches()
    for name in wanted:
        must_equal(pread_all(f"{top}/{name}"), name.encode())
        must_equal(pread_all(by_nfs(f"{top}/{name}")), name.encode())
    os.rename(f"{top}/plain", f"{top}/renamed")
    lab.wait_until(lambda: "renamed" in os.listdir(by_nfs(top)), "the new name by NFS", 10)
    os.unlink(by_nfs(f"{top}/renamed"))
    lab.wait_until(lambda: "renamed" not in os.listdir(top), "the removal by SMB", 10)


def nfs_write_is_seen(top):
    """An SMB client that caches by a lease is told when an NFS client writes."""
    path = put(f"{top}/leased", b"first")
    with open(path, "rb") as f:
        f.read()
        for turn in range(5):
            began = time.monotonic()
            put(by_nfs(path), f"turn {turn}".encode())
            must(time.monotonic() - began < 15, "the write waited for too long")
            lab.wait_until(lambda: pread_all(path) == f"turn {turn}".encode(), "the write of NFS", 5)


def smb_write_is_seen(top):
    """An NFS client that holds a delegation is told when an SMB client writes."""
    path = put(by_nfs(f"{top}/delegated"), b"first")
    for turn in range(5):
        with open(by_nfs(path) if NFS not in path else path, "rb") as f:
            f.read()
        began = time.monotonic()
        put(f"{top}/delegated", f"turn {turn}".encode())
        must(time.monotonic() - began < 15, "the write waited for too long")
        must_equal(pread_all(path), f"turn {turn}".encode(), "by NFS")


def cached_write_is_seen(top):
    """What an SMB client has written and only cached is there when an NFS client opens the file."""
    path = f"{top}/behind"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        os.write(fd, b"cached, not yet sent")
        must_equal(pread_all(by_nfs(path)), b"cached, not yet sent")
    finally:
        os.close(fd)


def locks_meet(top):
    path = put(f"{top}/locked", bytes(1000))
    with open(path, "r+b", buffering=0) as smb, open(by_nfs(path), "r+b", buffering=0) as nfs:
        lock(smb, fcntl.F_WRLCK, 0, 100)
        must_raise(DENIED, lock, nfs, fcntl.F_WRLCK, 50, 10)
        lock(nfs, fcntl.F_WRLCK, 200, 100)
        must_raise(DENIED, lock, smb, fcntl.F_WRLCK, 250, 10)
        lock(smb, fcntl.F_UNLCK, 0, 100)
        lock(nfs, fcntl.F_WRLCK, 50, 10)


def exclusive(top):
    """Of two protocols that make the same name, one makes it."""
    made = os.open(f"{top}/once", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    must_raise(errno.EEXIST, os.open, by_nfs(f"{top}/once"), os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    os.close(made)


def each(paths, work):
    """Processes that work at the same time, one for each path; every one must end well."""
    children = []
    for number, path in enumerate(paths):
        child = os.fork()
        if child == 0:
            try:
                work(number, path)
                os._exit(0)
            except BaseException as why:
                print(f"# {path}: {why!r}", flush=True)
                os._exit(1)
        children.append(child)
    ends = [os.waitpid(child, 0)[1] for child in children]
    must(not any(ends), f"a process failed: {ends}")


def counter(top):
    """Eight processes count under a lock, by either protocol: no step is lost. What is locked is a file beside the counter: Linux's
    SMB client writes through any of its open files, and a lock of SMB binds all but the one that has it. An open by NFS stands
    beside it all the time: without one the SMB client keeps locks to itself, and sends those of several processes too late."""
    path, guard, turns = put(f"{top}/counter", b"0" * 8), put(f"{top}/guard", bytes(8)), 6

    def count(_, top):
        with open(f"{top}/guard", "r+b", buffering=0) as held:
            for _ in range(turns):
                lock_soon(held)
                with open(f"{top}/counter", "r+b", buffering=0) as f:
                    f.write(b"%08d" % (int(pread_all(f"{top}/counter")) + 1))
                lock(held, fcntl.F_UNLCK)

    with open(by_nfs(guard), "rb"):
        each([top, by_nfs(top)] * 4, count)
    must_equal(int(pread_all(path)), 8 * turns, "by SMB")
    must_equal(int(pread_all(by_nfs(path))), 8 * turns, "by NFS")
    os.unlink(guard)


def lock_soon(f):
    """Asks until the lock is there: a client that waits in line would wait by its own protocol's clock."""
    until = time.monotonic() + 30
    while True:
        try:
            return lock(f, fcntl.F_WRLCK)
        except OSError as why:
            must(why.errno in DENIED and time.monotonic() < until, f"the lock: {why}")
            time.sleep(0.002)


CHECKS = (same_bytes, names, nfs_write_is_seen, smb_write_is_seen, cached_write_is_seen, locks_meet, exclusive, counter)


def job(top):
    os.makedirs(NFS)
    nfs = lab.mount_command(NFS, cifs=False, vers="4.2", proto=lab.PROTO)
    if not check("mixed/mount-nfs", lambda: lab.run(*nfs)):
        return
    for call in CHECKS:
        check(f"mixed/{call.__name__.replace('_', '-')}", call, top)
    check("mixed/unmount-nfs", lab.umount, NFS)
    lab.leave("mixed", lab.TOP, os.path.basename(top))
