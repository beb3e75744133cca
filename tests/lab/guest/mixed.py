"""One share mounted by SMB and by NFS 4.2 at the same time: one set of files, locks and caching rights."""

import errno
import os
import time

import lab
import share
from lab import check, must, must_equal, must_raise, pread_all
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
    lab.wait_until(lambda: "renamed" in os.listdir(by_nfs(top)), "the new name by NFS")
    os.unlink(by_nfs(f"{top}/renamed"))
    lab.wait_until(lambda: "renamed" not in os.listdir(top), "the removal by SMB")


def nfs_write_is_seen(top):
    """An SMB client that caches by a lease is told when an NFS client writes."""
    path = put(f"{top}/leased", b"first")
    with open(path, "rb") as f:
        f.read()
        for turn in range(5):
            began = time.monotonic()
            put(by_nfs(path), f"turn {turn}".encode())
            must(time.monotonic() - began < 15, "the write waited for too long")
            lab.wait_until(lambda: pread_all(path) == f"turn {turn}".encode(), "the write of NFS")


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


def kept_back_is_told(top):
    """What an NFS client has written under its write delegation and only cached counts in the size that SMB tells."""
    path = by_nfs(f"{top}/kept")
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        os.write(fd, b"x" * 5000)
        must_equal(os.stat(f"{top}/kept").st_size, 5000, "the size by SMB")
        os.write(fd, b"y" * 5000)
        lab.wait_until(lambda: os.stat(f"{top}/kept").st_size == 10000, "the new size by SMB")
    finally:
        os.close(fd)
    must_equal(pread_all(f"{top}/kept"), b"x" * 5000 + b"y" * 5000, "what was closed is written")


def exclusive(top):
    """Of two protocols that make the same name, one makes it."""
    made = os.open(f"{top}/once", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    must_raise(errno.EEXIST, os.open, by_nfs(f"{top}/once"), os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    os.close(made)


CHECKS = (same_bytes, names, nfs_write_is_seen, smb_write_is_seen, cached_write_is_seen, kept_back_is_told, exclusive)


def job(top):
    os.makedirs(NFS)
    nfs = lab.mount_command(NFS, cifs=False, vers="4.2", proto=lab.PROTO)
    if not check("mixed/mount-nfs", lambda: lab.run(*nfs)):
        return
    for call in CHECKS:
        check(f"mixed/{call.__name__.replace('_', '-')}", call, top)
    check("mixed/unmount-nfs", lab.umount, NFS)
    lab.leave("mixed", lab.TOP, os.path.basename(top))
