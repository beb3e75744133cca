"""Shares with other rules: read-only, root squashed; and the root that shows them all."""

import errno
import fcntl
import os
import subprocess

import lab
import servers
import share
from lab import check, must, must_equal, must_raise, pread_all, run, wait_until
from semantics import as_other, put
from sizes import write_all

AT = "/mnt/second"
INNER = f"{AT}/inner"
ALONE = "/mnt/third"
NOBODY = 65534
SHARES = ["data", "ro", "small", "squashed"] + ["vanishing"] * (not servers.is_here())


def mounted(path):
    """One share after the other on the same place, while the first share stays mounted."""
    return lab.mount(AT, path)


def read_only():
    mounted("/ro")
    try:
        must_equal(pread_all(f"{AT}/readme"), b"to be read\n")
        refused(put, f"{AT}/new")
        refused(os.unlink, f"{AT}/readme")
        refused(os.mkdir, f"{AT}/folder")
        refused(os.chmod, f"{AT}/readme", 0o777)
        refused(os.truncate, f"{AT}/readme", 0)
    finally:
        lab.umount(AT)


def refused(call, *args):
    """A client that asks by ACCESS first says EACCES, one that just tries says EROFS."""
    must_raise((errno.EROFS, errno.EACCES), call, *args)


def squashed():
    """Root is nobody on this share: it may what others may, and owns nothing else."""
    mounted("/squashed")
    try:
        path = put(f"{AT}/open/by-root", b"x")
        must_equal((os.stat(path).st_uid, os.stat(path).st_gid), (NOBODY, NOBODY))
        must_raise(errno.EACCES, os.listdir, f"{AT}/closed")
        must_raise(errno.EPERM, os.chown, path, 0, 0)
        as_other(1001, 1001, lambda: put(f"{AT}/open/by-1001"))
        must_equal(os.stat(f"{AT}/open/by-1001").st_uid, 1001)
    finally:
        lab.umount(AT)


def full():
    """A full file system is told to the writer; what was there before is intact, and there is room after a removal."""
    mounted("/small")
    try:
        kept = share.pattern("kept", 1 << 20)
        write_all(f"{AT}/kept", kept, "buffered")
        must_raise(errno.ENOSPC, write_all, f"{AT}/too-large", bytes(32 << 20), "buffered")
        must_raise(errno.ENOSPC, write_all, f"{AT}/too-large-too", bytes(32 << 20), "direct")
        lab.drop_caches()
        must_equal(pread_all(f"{AT}/kept"), kept)
        os.unlink(f"{AT}/too-large")
        os.unlink(f"{AT}/too-large-too")
        write_all(f"{AT}/fits-again", kept, "buffered")
    finally:
        lab.umount(AT)


def vanished():
    """The folder of a share is removed under the gateway: its clients get stale handles, other shares go on."""
    lab.mount(AT, "/vanishing", extra="noac,lookupcache=none")
    try:
        put(f"{AT}/file", b"x")
        lab.tell_host("remove vanishing")
        wait_until(lambda: error_of(os.stat, f"{AT}/file") in (errno.ESTALE, errno.ENOENT), "an error", 30)
        must(error_of(put, f"{AT}/new") in (errno.ESTALE, errno.ENOENT), "a file was made in a folder that is gone")
        must_equal(sorted(os.listdir(lab.TOP))[:1] != [], True, "names in another share")
    finally:
        lab.umount(AT)


def room(path):
    found = os.statvfs(path)
    return found.f_blocks * found.f_frsize


def mount_inside():
    """A file system that is mounted in a share is one of its own, with its own room and locks, by walking and by its path."""
    mounted("/small")
    try:
        lab.mount(ALONE, "/small/inner", extra="nosharecache")
        put(f"{INNER}/file", b"inside")
        must(os.stat(INNER).st_dev != os.stat(AT).st_dev, "one device number for two file systems")
        must_equal((room(INNER), room(AT)), (4 << 20, 16 << 20), "bytes of both")
        must_raise(errno.EXDEV, os.rename, f"{INNER}/file", f"{AT}/file")
        must_raise(errno.EXDEV, os.link, f"{INNER}/file", f"{AT}/link")
        must_equal(pread_all(f"{ALONE}/file"), b"inside")
        with open(f"{INNER}/file", "r+b") as held, open(f"{ALONE}/file", "r+b") as wants:
            fcntl.flock(held, fcntl.LOCK_EX)
            # By version 4 both mounts are one client, whose delegation may grant the lock without a call.
            if not lab.V4:
                must_raise(errno.EAGAIN, fcntl.flock, wants, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(held, fcntl.LOCK_UN)
            fcntl.flock(wants, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        lab.umount(ALONE)
        unmounted()


def mount_comes_and_goes():
    """The mount goes while a client has its files: an error, not a hang, and the share around it goes on. It comes back empty."""
    lab.mount(AT, "/small", extra="noac,lookupcache=none")
    try:
        put(f"{INNER}/file", b"gone soon")
        gone = (errno.ESTALE, errno.ENOENT, errno.EACCES)
        lab.tell_host("unmount inner")
        wait_until(lambda: error_of(pread_uncached, f"{INNER}/file") in gone, "an error", 30)
        put(f"{AT}/around", b"goes on")
        must_equal(pread_all(f"{AT}/around"), b"goes on")
        lab.tell_host("mount inner")
        # The client may have unmounted it by itself.
        subprocess.run(("umount", "--lazy", INNER), capture_output=True, check=False)
        wait_until(lambda: error_of(room, INNER) is None and room(INNER) == 4 << 20, "the mount again", 30)
        must_equal(os.listdir(INNER), [])
        put(f"{INNER}/file", b"new")
        must_equal(pread_all(f"{INNER}/file"), b"new")
    finally:
        unmounted()


def pread_uncached(path):
    lab.drop_caches()
    return pread_all(path)


def unmounted():
    """The client mounts what is inside by itself."""
    run("umount", "--recursive", AT)


def error_of(call, *args):
    try:
        call(*args)
    except OSError as e:
        return e.errno
    return None


def not_there():
    try:
        mounted("/nothing-here")
    except lab.Failed as e:
        must("No such file" in str(e) or "denied" in str(e), f"said {e}")
    else:
        lab.umount(AT)
        raise lab.Failed("a share that does not exist was mounted")


def all_shares():
    """The pseudo-root lists every share; one can walk into each from there, and not out of it."""
    mounted("/")
    try:
        must_equal(sorted(os.listdir(AT)), SHARES)
        must_equal(pread_all(f"{AT}/ro/readme"), b"to be read\n")
        for name in os.listdir(AT):
            os.listdir(f"{AT}/{name}")
        devices = {os.stat(f"{AT}/{name}").st_dev for name in ("", *SHARES)}
        must_equal(len(devices), len(SHARES) + 1, "file systems, one for each share and one for the root")
        refused(os.mkdir, f"{AT}/new-share")
        must_raise(errno.EXDEV, os.rename, f"{AT}/squashed/open", f"{AT}/data/open")
        must_equal(sorted(os.listdir(f"{AT}/data/..")), SHARES)
    finally:
        lab.umount(AT)


def part_of_a_share():
    """A folder within a share is mounted by its path."""
    os.makedirs(f"{lab.TOP}/within/deeper", exist_ok=True)
    put(f"{lab.TOP}/within/deeper/file", b"found")
    mounted("/data/within/deeper")
    try:
        must_equal(pread_all(f"{AT}/file"), b"found")
    finally:
        lab.umount(AT)


def two_mounts():
    """The same share mounted a second time with a transport of its own: both see the same files."""
    lab.mount(AT, extra="nosharecache")
    try:
        put(f"{lab.TOP}/seen", b"by both")
        must_equal(pread_all(f"{AT}/seen"), b"by both")
        put(f"{AT}/seen", b"by both again")
        must_equal(pread_all(f"{lab.TOP}/seen"), b"by both again")
    finally:
        lab.umount(AT)


def job(top):
    checks = [read_only, squashed, not_there, part_of_a_share, two_mounts, full]
    checks += [all_shares] * lab.V4 + [mount_inside, mount_comes_and_goes, vanished] * (not servers.is_here())
    for call in checks:
        check(f"exports/{call.__name__.replace('_', '-')}", call)
