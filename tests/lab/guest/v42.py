"""What NFS 4.2 adds: holes seen and made, space reserved, copies and clones made by the server, extended attributes."""

import ctypes
import errno
import fcntl
import os
import subprocess

import lab
import share
from lab import check, must, must_equal, must_hold, must_raise, pread_all, run

MIB = 1 << 20
KEEP_SIZE, PUNCH_HOLE = 1, 2
libc = ctypes.CDLL(None, use_errno=True)


def fallocate(fd, mode, at, length):
    if libc.fallocate(fd, mode, ctypes.c_int64(at), ctypes.c_int64(length)):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def seeks_holes(top):
    path = f"{top}/holes"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    for at in (0, 8 * MIB):
        os.pwrite(fd, share.pattern("d", MIB), at)
    os.ftruncate(fd, 16 * MIB)
    os.fsync(fd)
    if lab.ON_CEPH:
        must_equal(os.lseek(fd, 0, os.SEEK_HOLE), 16 * MIB, "the hole behind the end")
    else:
        must_equal(os.lseek(fd, 0, os.SEEK_HOLE), MIB, "first hole")
        must_equal(os.lseek(fd, MIB, os.SEEK_DATA), 8 * MIB, "second data")
        must_equal(os.lseek(fd, 8 * MIB, os.SEEK_HOLE), 9 * MIB, "second hole")
        must_raise(errno.ENXIO, os.lseek, fd, 9 * MIB, os.SEEK_DATA)
    must_raise(errno.ENXIO, os.lseek, fd, 17 * MIB, os.SEEK_HOLE)
    os.close(fd)
    lab.drop_caches()
    wanted = share.pattern("d", MIB)
    must_hold(pread_all(path), wanted + bytes(7 * MIB) + wanted + bytes(7 * MIB), "content with holes")


def punches_holes(top):
    path = f"{top}/punched"
    data = share.pattern("p", 4 * MIB)
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.pwrite(fd, data, 0)
    os.fsync(fd)
    fallocate(fd, KEEP_SIZE | PUNCH_HOLE, MIB, 2 * MIB)
    must_equal(os.lseek(fd, 0, os.SEEK_HOLE), 4 * MIB if lab.ON_CEPH else MIB, "the hole")
    os.close(fd)
    lab.drop_caches()
    must_hold(pread_all(path), data[:MIB] + bytes(2 * MIB) + data[3 * MIB :], "content around the hole")


def allocates(top):
    path = f"{top}/allocated"
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    if lab.ON_CEPH:
        must_raise(errno.EOPNOTSUPP, fallocate, fd, 0, 0, 4 * MIB)
        return os.close(fd)
    fallocate(fd, 0, 0, 4 * MIB)
    must_equal(os.fstat(fd).st_size, 4 * MIB)
    os.close(fd)
    lab.drop_caches()
    must(os.stat(path).st_blocks * 512 >= 4 * MIB, f"only {os.stat(path).st_blocks * 512} bytes allocated")


def server_copies(top):
    """copy_file_range moves the bytes on the server: the client's own RDMA and TCP counters hardly move."""
    data = share.pattern("c", 8 * MIB + 5)
    with open(f"{top}/source", "wb") as f:
        f.write(data)
    a = os.open(f"{top}/source", os.O_RDONLY)
    b = os.open(f"{top}/target", os.O_RDWR | os.O_CREAT)
    before = bytes_moved()
    done = 0
    while done < len(data):
        n = os.copy_file_range(a, b, len(data) - done, done, done)
        must(n > 0, "copied nothing")
        done += n
    os.fsync(b)
    moved = bytes_moved() - before
    os.close(a)
    os.close(b)
    must(moved < MIB or lab.ON_CEPH, f"{moved} bytes went over the network")
    lab.drop_caches()
    must_hold(pread_all(f"{top}/target"), data, "copy")


def bytes_moved():
    """Bytes of READ and WRITE payload that this client's mounts have moved (`bytes:` in mountstats, fields 5 and 6)."""
    with open("/proc/self/mountstats") as f:
        return sum(int(x) for line in f if line.strip().startswith("bytes:") for x in line.split()[5:7])


def reflinks(top):
    """A clone where the file system can share blocks (XFS), a clean refusal where it cannot (ext4)."""
    data = share.pattern("r", 4 * MIB)
    with open(f"{top}/original", "wb") as f:
        f.write(data)
    done = subprocess.run(["cp", "--reflink=always", f"{top}/original", f"{top}/clone"], capture_output=True, text=True)
    if lab.ENV.get("FS") == "xfs":
        must_equal(done.returncode, 0, done.stderr)
        lab.drop_caches()
        must_hold(pread_all(f"{top}/clone"), data, "clone")
        with open(f"{top}/clone", "r+b") as f:
            f.write(b"changed")
        must_hold(pread_all(f"{top}/original"), data, "a write to the clone reached the original")
    else:
        must(done.returncode != 0, "a clone on a file system that cannot clone")
        must("not supported" in done.stderr, done.stderr)
        run("cp", "--reflink=auto", f"{top}/original", f"{top}/copied")
        must_hold(pread_all(f"{top}/copied"), data, "copy")
    if os.path.exists(f"{top}/clone") and not os.path.getsize(f"{top}/clone"):
        os.unlink(f"{top}/clone")


def user_xattrs(path):
    """Their names; servers with ACLs show those as an attribute, too."""
    return sorted(name for name in os.listxattr(path) if name.startswith("user."))


def xattrs(top):
    path = f"{top}/xattrs"
    open(path, "wb").close()
    must_equal(user_xattrs(path), [])
    os.setxattr(path, "user.colour", b"green")
    os.setxattr(path, "user.empty", b"")
    os.setxattr(path, "user.big", share.pattern("x", 2000))
    must_raise(errno.EEXIST, os.setxattr, path, "user.colour", b"x", os.XATTR_CREATE)
    must_raise(errno.ENODATA, os.setxattr, path, "user.none", b"x", os.XATTR_REPLACE)
    lab.drop_caches()
    must_equal(user_xattrs(path), ["user.big", "user.colour", "user.empty"])
    must_equal(os.getxattr(path, "user.colour"), b"green")
    must_equal(os.getxattr(path, "user.big"), share.pattern("x", 2000))
    must_equal(os.getxattr(path, "user.empty"), b"")
    must_raise(errno.ENODATA, os.getxattr, path, "user.none")
    os.removexattr(path, "user.big")
    must_raise(errno.ENODATA, os.removexattr, path, "user.big")
    os.setxattr(path, "user.colour", b"red", os.XATTR_REPLACE)
    must_equal(os.getxattr(path, "user.colour"), b"red")
    os.setxattr(top, "user.folder", b"yes")
    must_equal(user_xattrs(top), ["user.folder"])


def many_xattrs(top):
    path = f"{top}/many-xattrs"
    open(path, "wb").close()
    wanted = {f"user.attribute-{n:03}": f"value {n}".encode() for n in range(60)}
    for name, value in wanted.items():
        os.setxattr(path, name, value)
    lab.drop_caches()
    must_equal({n: os.getxattr(path, n) for n in user_xattrs(path)}, wanted)


def flock_too(top):
    """flock() is a lock of the whole file to an NFS server."""
    path = f"{top}/flocked"
    with open(path, "wb") as a, open(path, "wb") as b:
        fcntl.flock(a, fcntl.LOCK_EX)
        must_raise(errno.EAGAIN, fcntl.flock, b, fcntl.LOCK_EX | fcntl.LOCK_NB)


def operations(name):
    """How often the mounts have called this operation (the lines of mountstats for each)."""
    with open("/proc/self/mountstats") as f:
        return sum(int(line.split()[1]) for line in f if line.strip().startswith(f"{name}:"))


def delegations_stand_for_opens(top):
    """Who works on a file alone has nothing to close (RFC 9754), and times that it sets by its delegation stay when that goes."""
    if lab.ENV.get("BACKEND", "host") != "host":
        return
    path = f"{top}/alone"
    before = operations("CLOSE")
    for turn in range(5):
        fd = os.open(path, os.O_RDWR | os.O_CREAT)
        os.pwrite(fd, f"turn {turn}".encode(), 0)
        os.close(fd)
    must_equal(operations("CLOSE") - before, 0, "CLOSE")
    times = (1_111_111_111_222_333_444, 1_222_222_222_333_444_555)
    os.utime(path, ns=times)
    lab.drop_caches()
    found = os.stat(path)
    must_equal((found.st_atime_ns, found.st_mtime_ns), times, "the times")
    must_equal(pread_all(path), b"turn 4")


CHECKS = (seeks_holes, punches_holes, allocates, server_copies, reflinks, xattrs, many_xattrs, flock_too,
          delegations_stand_for_opens)


def job(top):
    if lab.VERS != "4.2":
        return
    for call in CHECKS:
        check(f"v42/{call.__name__.replace('_', '-')}", call, top)
    lab.leave("v42", lab.TOP, os.path.basename(top))
