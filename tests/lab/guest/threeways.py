"""One share mounted three times by one guest, by SMB, NFS 4.2 and NFS 3: one set of locks, bytes and news."""

import contextlib
import fcntl
import mmap
import os
import struct
import time

import lab
import servers
from lab import check, must, must_equal, must_hold, must_raise, pread_all
from locks import DENIED, lock
from semantics import put

NFS4, NFS3 = "/mnt/nfs4", "/mnt/nfs3"
MOUNTS = (lab.TOP, NFS4, NFS3)
PROCESSES = 8


def everywhere(path):
    """The same path by each mount: SMB, NFS 4.2, NFS 3."""
    return [path.replace(lab.TOP, mount) for mount in MOUNTS]


def pairs(path):
    """Every mount as the holder, with each of the others."""
    ways = everywhere(path)
    return [(a, b) for a in ways for b in ways if a != b]


@contextlib.contextmanager
def locked(path):
    """Holds the lock of this process on a file. It asks until it has it: a client that waits in line would wait by its own
    protocol's clock. An open file description would not do as the owner: processes that open a file by SMB share the handle of
    Linux's client, which then keeps no two such owners apart."""
    until = time.monotonic() + 60
    with open(path, "r+b", buffering=0) as f:
        while True:
            try:
                fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as why:
                must(why.errno in DENIED and time.monotonic() < until, f"the lock: {why}")
                time.sleep(0.002)
        yield
        fcntl.lockf(f, fcntl.LOCK_UN)


# How a process ends that found other data than it had to.
DIFFERED = 2


def each(top, work):
    """Eight processes that work at the same time, spread over the mounts; every one must end well."""
    ways, children = everywhere(top), []
    for number in range(PROCESSES):
        way = ways[number % len(ways)]
        child = os.fork()
        if child == 0:
            try:
                work(number, way)
                os._exit(0)
            except BaseException as why:
                print(f"# process {number} in {way}: {why!r}", flush=True)
                os._exit(DIFFERED if isinstance(why, lab.Differs) else 1)
        children.append(child)
    ends = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    must_hold(ends.count(DIFFERED), 0, "processes that read what nobody wrote")
    must(not any(ends), f"a process failed: {ends}")


def fcntl_excludes(top):
    """A range locked by one protocol is locked for the others, and only that range."""
    path = put(f"{top}/fcntl", bytes(1000))
    for a, b in pairs(path):
        with open(a, "r+b", buffering=0) as holder, open(b, "r+b", buffering=0) as other:
            lock(holder, fcntl.F_WRLCK, 0, 100)
            must_raise(DENIED, lock, other, fcntl.F_WRLCK, 99, 10)
            lock(other, fcntl.F_WRLCK, 100, 10)
            lock(holder, fcntl.F_UNLCK, 0, 100)
            lock(other, fcntl.F_WRLCK, 0, 100)


def flock_excludes(top):
    """So does flock, among its own kind and with fcntl."""
    path = put(f"{top}/flock", bytes(1000))
    now = fcntl.LOCK_EX | fcntl.LOCK_NB
    for a, b in pairs(path):
        with open(a, "r+b", buffering=0) as holder, open(b, "r+b", buffering=0) as other:
            fcntl.flock(holder, now)
            must_raise(DENIED, fcntl.flock, other, now)
            must_raise(DENIED, lock, other, fcntl.F_WRLCK, 0, 10)
            fcntl.flock(holder, fcntl.LOCK_UN)
            fcntl.flock(other, now)


def cached_locks_hold(top):
    """An SMB client that is alone keeps its locks to itself, and sends them when somebody else comes. What the server has already
    must not come in between: a client that is promised more while it holds such a lock sends that one twice, and loses another."""
    path = put(f"{top}/cached", bytes(100))
    by_nfs = everywhere(path)[1]
    with open(path, "r+b", buffering=0) as a:
        with open(by_nfs, "r+b", buffering=0):
            lock(a, fcntl.F_WRLCK, 0, 10)
        # Other flags, so that the client opens the file again instead of sharing what it has open.
        with os.fdopen(os.open(path, os.O_RDWR | os.O_APPEND), "r+b", buffering=0) as b:
            lock(a, fcntl.F_WRLCK, 10, 10)
            lock(b, fcntl.F_WRLCK, 20, 10)
            for other in everywhere(path)[1:]:
                with open(other, "r+b", buffering=0) as o:
                    for at in (0, 10, 20):
                        must_raise(DENIED, lock, o, fcntl.F_WRLCK, at, 10)


def counter(top):
    """Eight processes count under a lock, by any of the protocols: no step is lost. What is locked is a file beside the counter:
    Linux's SMB client writes through any of its open files, and a lock of SMB binds all but the one that has it."""
    path, turns = put(f"{top}/counter", b"0" * 8), 6
    put(f"{top}/counter-guard", bytes(8))

    def count(_, top):
        for _ in range(turns):
            with locked(f"{top}/counter-guard"), open(f"{top}/counter", "r+b", buffering=0) as f:
                f.write(b"%08d" % (int(pread_all(f"{top}/counter")) + 1))

    each(top, count)
    for way in everywhere(path):
        must_hold(int(pread_all(way)), PROCESSES * turns, way)


def mapped(top):
    """The same through memory: one number for all and one for each, in one page, written back before the lock is given up."""
    size, turns = 4096, 4
    path = put(f"{top}/mapped", bytes(size))
    put(f"{top}/mapped-guard", bytes(8))

    def count(me, top):
        for _ in range(turns):
            with locked(f"{top}/mapped-guard"), open(f"{top}/mapped", "r+b", buffering=0) as f:
                with mmap.mmap(f.fileno(), size) as m:
                    for at in (0, 8 + 8 * me):
                        m[at:at + 8] = struct.pack("<Q", struct.unpack("<Q", m[at:at + 8])[0] + 1)
                    m.flush()

    each(top, count)
    for way in everywhere(path):
        numbers = struct.unpack_from(f"<{1 + PROCESSES}Q", pread_all(way))
        must_equal(numbers, (PROCESSES * turns, *[turns] * PROCESSES), way)


def appended(top):
    """Eight processes append under a lock: every line is there, whole and once. The file is not empty before: Linux 6.12's SMB
    client takes a page for zeros that begins where it believes the end of the file to be (`zero_point`), and writes them over what
    others have appended there within its attribute cache's second."""
    first = b"first"
    path, turns = put(f"{top}/appended", first + b"\n"), 6
    put(f"{top}/appended-guard", bytes(8))

    def append(me, top):
        for turn in range(turns):
            with locked(f"{top}/appended-guard"), open(f"{top}/appended", "ab", buffering=0) as f:
                f.write(b"process %d turn %d\n" % (me, turn))

    each(top, append)
    wanted = sorted([first, *(b"process %d turn %d" % (me, turn) for me in range(PROCESSES) for turn in range(turns))])
    for way in everywhere(path)[1:]:
        must_hold(sorted(pread_all(way).splitlines()), wanted, way)


# `CIFS_IOC_NOTIFY_INFO` (Linux, fs/smb/client/cifs_ioctl.h): a filter, whether the tree is watched, room, and the changes.
NOTIFY, ROOM, HEAD = 0xC009CF0B, 1024, "<IBI"


def news_of_nfs(top):
    """A directory watched by SMB tells of the files that come by NFS."""
    for version, mount in (("4", NFS4), ("3", NFS3)):
        folder = f"{top}/watched-{version}"
        os.mkdir(folder)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            asked = bytearray(struct.pack(HEAD, 1, 0, ROOM) + bytes(ROOM))
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.ioctl(fd, NOTIFY, asked)
            os.write(writer, asked[struct.calcsize(HEAD):])
            os._exit(0)
        made = 0

        def told():
            # The watch may begin later than the first of them.
            nonlocal made
            put(f"{folder.replace(lab.TOP, mount)}/new-{made}")
            made += 1
            return os.waitpid(child, os.WNOHANG)[0] == child

        lab.wait_until(told, f"news of a change by NFS {version}")
        # MS-FSCC section 2.7.1: the next entry, the action (1: added), the length of the name and the name.
        _, action, length = struct.unpack_from("<III", news := os.read(reader, ROOM))
        must_equal(action, 1, "action")
        name = news[12:12 + length].decode("utf-16-le")
        must(name in {f"new-{n}" for n in range(made)}, f"news of {name}")
        os.close(reader), os.close(writer)


CHECKS = (fcntl_excludes, flock_excludes, cached_locks_hold, counter, mapped, appended, news_of_nfs)


def job(top):
    servers.lock_services()
    for mount, version in ((NFS4, "4.2"), (NFS3, "3")):
        os.makedirs(mount)
        command = lab.mount_command(mount, cifs=False, vers=version, proto=lab.PROTO)
        if not check(f"threeways/mount-{version}", lambda: lab.run(*command)):
            return
    for call in CHECKS:
        check(f"threeways/{call.__name__.replace('_', '-')}", call, top)
    for mount in MOUNTS[1:]:
        check(f"threeways/unmount-{os.path.basename(mount)}", lab.umount, mount)
    lab.leave("threeways", lab.TOP, os.path.basename(top))
