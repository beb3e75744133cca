"""What programs expect of a file system, beyond reading and writing."""

import errno
import mmap
import os
import shutil
import stat
import time

import lab
import share
from lab import check, must, must_equal, must_raise, pread_all, wait_until


# A client of SMB that has agreed on the POSIX extensions.
POSIX = lab.CIFS and "posix" in lab.ENV.get("OPTIONS", "")


def put(path, data=b""):
    with open(path, "wb") as f:
        f.write(data)
    return path


def maps(top):
    """A shared mapping written, synchronised, and seen by read(); then written by write() and seen in the mapping."""
    size = 3 * mmap.PAGESIZE + 100
    path = put(f"{top}/mapped", bytes(size))
    with open(path, "r+b") as f, mmap.mmap(f.fileno(), size) as m:
        m[mmap.PAGESIZE - 3 : mmap.PAGESIZE + 3] = b"across"
        m[size - 4 :] = b"tail"
        m.flush()
        os.fsync(f.fileno())
    lab.drop_caches()
    data = pread_all(path)
    must_equal(data[mmap.PAGESIZE - 3 : mmap.PAGESIZE + 3], b"across")
    must_equal(data[-4:], b"tail")
    with open(path, "r+b") as f, mmap.mmap(f.fileno(), size) as m:
        os.pwrite(f.fileno(), b"written", 5000)
        must_equal(m[5000:5007], b"written")


def appends(top):
    path = put(f"{top}/appended", b"first\n")
    for n in range(20):
        with open(path, "ab") as f:
            f.write(f"line {n}\n".encode())
    lab.drop_caches()
    must_equal(pread_all(path), b"first\n" + b"".join(f"line {n}\n".encode() for n in range(20)))


def truncates(top):
    path = put(f"{top}/truncated", share.pattern("t", 10_000))
    os.truncate(path, 4097)
    must_equal(os.stat(path).st_size, 4097)
    os.truncate(path, 20_000)
    lab.drop_caches()
    must_equal(pread_all(path), share.pattern("t", 10_000)[:4097] + bytes(20_000 - 4097))
    os.truncate(path, 0)
    must_equal(pread_all(path), b"")


def holes(top):
    """A sparse file stays sparse: its blocks are far fewer than its size says, and the hole reads as zeros."""
    path = f"{top}/sparse"
    with open(path, "wb") as f:
        f.seek(64 << 20)
        f.write(b"end")
    lab.drop_caches()
    st = os.stat(path)
    must_equal(st.st_size, (64 << 20) + 3)
    # CephFS tells no other number of blocks than that of the size.
    must(st.st_blocks * 512 < 1 << 20 or lab.ON_CEPH, f"{st.st_blocks * 512} bytes allocated")
    with open(path, "rb") as f:
        must_equal(f.read(100_000), bytes(100_000))
        f.seek(64 << 20)
        must_equal(f.read(), b"end")


def hard_links(top):
    a, b = put(f"{top}/linked", b"one file"), f"{top}/linked-too"
    os.link(a, b)
    must_equal((os.stat(a).st_ino, os.stat(a).st_nlink), (os.stat(b).st_ino, 2))
    if lab.CIFS:
        # A lease is of one name (MS-SMB2 3.3.5.9.8), and the client keeps that of the first for a second after its close.
        lab.wait_until(lambda: not is_held("linked"), "the close of the first name")
    with open(b, "ab") as f:
        f.write(b", two names")
    os.unlink(a)
    must_equal((pread_all(b), os.stat(b).st_nlink), (b"one file, two names", 1))
    must_raise(errno.EEXIST, os.link, b, put(f"{top}/in-the-way"))


def is_held(name):
    """Linux's SMB client has a handle of a file of this name still, closed or not."""
    with open("/proc/fs/cifs/open_files") as f:
        return any(name in line.split()[7:8] for line in f)


def absolute_symlink(at):
    try:
        os.symlink("/absolute", at)
    except OSError as e:
        # ksmbd takes none. Linux 7.3 says EINVAL then, older ones EOPNOTSUPP.
        must(e.errno in (errno.EINVAL, errno.EOPNOTSUPP), f"said {e}")
    else:
        must(os.path.islink(at), "is no link")
        os.remove(at)
        must(not os.path.lexists(at), "it stayed")


def symlinks(top):
    # Linux 6.12 puts a chain that it seals into a buffer of 448 bytes without a look at its length.
    sealed = lab.CIFS and "seal" in lab.ENV.get("OPTIONS", "")
    targets = ["linked-too", "../somewhere/else", "t" * (20 if sealed else 1000), "ünïcode"]
    if lab.CIFS and not POSIX:  # What an absolute one means, only the client knows: it is kept as the client sent it.
        absolute_symlink(f"{top}/symlink-absolute")
    else:
        targets.append("/absolute")
    for n, target in enumerate(targets):
        os.symlink(target, f"{top}/symlink-{n}")
        must_equal(os.readlink(f"{top}/symlink-{n}"), target)
    os.symlink("symlink-target", f"{top}/followed")
    put(f"{top}/symlink-target", b"through")
    must_equal(pread_all(f"{top}/followed"), b"through")
    os.symlink("loop", f"{top}/loop")
    must_raise(errno.ELOOP, open, f"{top}/loop")


def names(top):
    """Names up to 255 bytes, of any bytes but / and NUL, as bytes."""
    folder = f"{top}/names"
    os.mkdir(folder)
    wanted = ["n" * 255, " leading and trailing ", "new\nline", "tab\t", "*?\"<>|:\\", ".hidden", "...", "日本語.txt",
              "ﬁ", "e\u0301", "\u00e9", "\U0001f600", "é" * 127, "CASE", "case"]
    for name in wanted:
        put(f"{folder}/{name}", name.encode())
    lab.drop_caches()
    must_equal(sorted(os.listdir(folder)), sorted(wanted))
    for name in wanted:
        must_equal(pread_all(f"{folder}/{name}"), name.encode(), name)
    must_raise(errno.ENAMETOOLONG, put, f"{folder}/{'n' * 256}")


def renames(top):
    a, b = put(f"{top}/from", b"moved"), put(f"{top}/onto", b"replaced")
    os.rename(a, b)
    must_equal(pread_all(b), b"moved")
    must_raise(errno.ENOENT, os.stat, a)
    os.makedirs(f"{top}/folder/inner")
    must_raise(errno.EINVAL, os.rename, f"{top}/folder", f"{top}/folder/inner/x")
    os.makedirs(f"{top}/full/inner")
    must_raise((errno.ENOTEMPTY, errno.EEXIST, *[errno.EACCES] * lab.CIFS), os.rename, f"{top}/folder", f"{top}/full")
    must_raise((errno.ENOTEMPTY, errno.EEXIST), os.rmdir, f"{top}/full")
    must_raise(errno.EISDIR, os.rename, b, f"{top}/full")
    os.rename(f"{top}/folder/inner", f"{top}/moved-folder")
    must_equal(os.listdir(f"{top}/folder"), [])


def open_unlinked(top):
    """A file that is removed while it is open is still there for whoever has it open."""
    path = put(f"{top}/unlinked", b"still here")
    with open(path, "r+b", buffering=0) as f:
        os.unlink(path)
        if not lab.CIFS:  # This client answers from the handle that is open; the server says STATUS_DELETE_PENDING.
            must_raise(errno.ENOENT, os.stat, path)
        must_equal(f.read(), b"still here")
        must_equal(f.write(b", and written"), 13)
        os.fsync(f.fileno())
        must_equal(os.pread(f.fileno(), 100, 0), b"still here, and written")
    # The client removes the name it kept for the open file in the background, or closes it there.
    wait_until(lambda: not [n for n in os.listdir(top) if n.startswith((".nfs", "unlinked"))], "the file goes", 10)


def exclusive(top):
    path = f"{top}/exclusive"
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o604))
    must_equal(os.stat(path).st_mode & 0o7777, 0o604)
    must_raise(errno.EEXIST, os.open, path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)


def modes_and_owners(top):
    path = put(f"{top}/owned")
    for mode in (0o600, 0o4755, 0o1777, 0o000, 0o644):
        os.chmod(path, mode)
        must_equal(stat.S_IMODE(os.stat(path).st_mode), mode)
    os.chown(path, 1234, 5678)
    lab.drop_caches()
    must_equal((os.stat(path).st_uid, os.stat(path).st_gid), (1234, 5678))
    os.chown(path, -1, 99)
    must_equal((os.stat(path).st_uid, os.stat(path).st_gid), (1234, 99))
    os.mkdir(f"{top}/sgid", 0o775)
    os.chown(f"{top}/sgid", 0, 4321)
    os.chmod(f"{top}/sgid", 0o2775)
    must_equal(os.stat(put(f"{top}/sgid/child")).st_gid, 4321, "group of a file in a set-gid folder")


def times(top):
    path = put(f"{top}/timed")
    os.utime(path, ns=(1_111_111_111_222_333_444, 1_555_555_555_666_777_888))
    lab.drop_caches()
    st = os.stat(path)
    unit = 100 if lab.CIFS else 1  # nanoseconds
    must_equal((st.st_atime_ns // unit, st.st_mtime_ns // unit),
               (1_111_111_111_222_333_444 // unit, 1_555_555_555_666_777_888 // unit))
    put(path, b"changed")
    must(abs(os.stat(path).st_mtime - time.time()) < 60, "modification time did not move")


def as_other(uid, gid, call):
    """Runs `call` in a child process of this identity; what it raised, if it did."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(gid)
            os.setuid(uid)
            call()
            os._exit(0)
        except OSError as e:
            os._exit(e.errno)
        except BaseException:
            os._exit(255)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code:
        raise OSError(code, os.strerror(code) if code != 255 else "the check itself broke")


def identities(top):
    """The server acts with the caller's identity: it owns what it makes, and may only do what it may."""
    os.chmod(top, 0o777)
    path = f"{top}/by-1001"
    as_other(1001, 1002, lambda: put(path, b"mine"))
    must_equal((os.stat(path).st_uid, os.stat(path).st_gid), (1001, 1002))
    os.chmod(path, 0o600)
    lab.drop_caches()
    must_raise(errno.EACCES, as_other, 1003, 1003, lambda: open(path))
    must_raise(errno.EPERM, as_other, 1003, 1003, lambda: os.chmod(path, 0o777))
    as_other(1001, 1002, lambda: must_equal(pread_all(path), b"mine"))
    os.mkdir(f"{top}/private", 0o700)
    must_raise(errno.EACCES, as_other, 1001, 1002, lambda: put(f"{top}/private/x"))
    must_raise(errno.EACCES, as_other, 1001, 1002, lambda: os.listdir(f"{top}/private"))


def special(top):
    os.mkfifo(f"{top}/fifo")
    must(stat.S_ISFIFO(os.stat(f"{top}/fifo").st_mode), "not a FIFO")
    os.mknod(f"{top}/device", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    must_equal(os.stat(f"{top}/device").st_rdev, os.makedev(1, 3))


def special_by_smb(top):
    """By the POSIX extensions: what is made is at once what its name leads to, and renames are those of a POSIX host."""
    folder = f"{top}/special"
    os.mkdir(folder)
    os.mkfifo(f"{folder}/fifo")
    os.link(f"{folder}/fifo", f"{folder}/again")
    lab.drop_caches()
    must(stat.S_ISFIFO(os.stat(f"{folder}/again").st_mode), "not a FIFO")
    must_equal(os.stat(f"{folder}/fifo").st_nlink, 2, "links of the FIFO")
    os.mknod(f"{folder}/device", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    must_equal(os.stat(f"{folder}/device").st_rdev, os.makedev(1, 3))
    for name in ("full", "full/inside", "empty", "moved"):
        os.mkdir(f"{folder}/{name}")
    must_raise(errno.ENOTEMPTY, os.rename, f"{folder}/moved", f"{folder}/full")
    os.rename(f"{folder}/moved", f"{folder}/empty")
    must_equal(sorted(os.listdir(folder)), ["again", "device", "empty", "fifo", "full"])
    shutil.rmtree(folder)


def file_system_numbers(top):
    v = os.statvfs(top)
    must(v.f_blocks > 0 and 0 < v.f_bavail <= v.f_bfree <= v.f_blocks and v.f_namemax >= 255, f"{v}")


def errors(top):
    path = put(f"{top}/a-file")
    must_raise(errno.ENOTDIR, os.listdir, path)
    must_raise(errno.ENOTDIR, os.stat, f"{path}/below")
    must_raise(errno.EISDIR, open, top, "wb")
    must_raise(errno.ENOENT, os.unlink, f"{top}/nothing")
    must_raise(errno.EEXIST, os.mkdir, path)
    must_raise(errno.ENOTDIR, os.rmdir, path)


CHECKS = (maps, appends, truncates, holes, hard_links, symlinks, names, renames, open_unlinked, exclusive,
          modes_and_owners, times, identities, special, special_by_smb,
          file_system_numbers, errors)


# Modes, owners and special files are no part of SMB itself; names are another matter there (smb.py).
NOT_BY_SMB = (names, exclusive, modes_and_owners, identities, special)
NOT_BY_OLD_SMB = (holes, symlinks, special_by_smb)


def job(top):
    for call in CHECKS:
        if lab.CIFS and call in NOT_BY_SMB:
            continue
        if call is special_by_smb and not POSIX:
            continue
        if lab.OLD_CIFS and call in NOT_BY_OLD_SMB:
            continue
        check(f"semantics/{call.__name__.replace('_', '-')}", call, top)
    lab.leave("semantics", lab.TOP, os.path.basename(top))
