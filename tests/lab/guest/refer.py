"""Shares that are on another gateway: whoever walks into them from the root is there, by NFS 4 alone."""

import errno
import fcntl
import os

import lab
import share
from lab import check, must, must_equal, must_hold, must_raise, pread_all
from sizes import write_all

AT = "/mnt/tree"
THERE = "/mnt/there"
# The other gateway, beside the first one on the host.
OTHER = "10.77.0.3"
NAMES = ["archive", "data", "linked", "ro", "small", "spare", "squashed", "vanishing"]


def mounted_from(at):
    """What the kernel has mounted there, and its options."""
    for line in pread_all("/proc/self/mounts").decode().splitlines():
        source, where, _, options, *_ = line.split()
        if where == at:
            return source, dict(o.partition("=")[::2] for o in options.split(","))
    raise lab.Failed(f"nothing is mounted at {at}")


def listed():
    """All have their names, and none is entered by that."""
    must_equal(sorted(os.listdir(AT)), NAMES)
    with os.scandir(AT) as entries:
        must(all(e.inode() for e in entries), "a name without a number")


def walks_in():
    must_equal(pread_all(f"{AT}/archive/readme"), b"kept there\n")
    source, options = mounted_from(f"{AT}/archive")
    must_equal(source, f"{OTHER}:/archive")
    must_equal((options["addr"], options["vers"]), (OTHER, lab.VERS))
    # It tries RDMA wherever it has a device, whatever the root was mounted by.
    must_equal(options["proto"], lab.PROTO)
    os.listdir(f"{AT}/data")
    devices = {os.stat(f"{AT}/{name}").st_dev for name in ("", "archive", "data")}
    must_equal(len(devices), 3, "file systems")
    must_equal(sorted(os.listdir(f"{AT}/archive/..")), NAMES)


def works_there():
    """What is written through the tree is there, and what is made there is seen in the tree."""
    lab.mount(THERE, "/archive", server=OTHER)
    try:
        for name, size in [("empty", 0), ("small", 4097), ("large", (3 << 20) + 7)]:
            data = share.pattern(name, size)
            write_all(f"{AT}/archive/{name}", data, "buffered")
            lab.drop_caches()
            must_hold(pread_all(f"{AT}/archive/{name}"), data, f"{name} through the tree")
            must_hold(pread_all(f"{THERE}/{name}"), data, f"{name} at the other gateway")
        os.makedirs(f"{AT}/archive/folder")
        os.rename(f"{AT}/archive/small", f"{AT}/archive/folder/moved")
        must_equal(os.listdir(f"{THERE}/folder"), ["moved"])
        write_all(f"{THERE}/from-there", b"seen", "buffered")
        must_equal(pread_all(f"{AT}/archive/from-there"), b"seen")
        with open(f"{AT}/archive/large", "r+b") as held:
            fcntl.lockf(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(held, fcntl.LOCK_UN)
        must_raise(errno.EXDEV, os.rename, f"{AT}/archive/large", f"{AT}/data/large")
    finally:
        lab.umount(THERE)


def next_server():
    """The first of its servers has no such share; the second has."""
    must_equal(pread_all(f"{AT}/spare/readme"), b"kept there\n")
    must_equal(mounted_from(f"{AT}/spare")[0], f"{OTHER}:/archive")


def links_below():
    """Folders of a share that are there: a link of the configuration, and one of Samba."""
    with os.scandir(f"{AT}/linked") as entries:
        must_equal(sorted(e.name for e in entries), ["far", "samba"])
    must_equal(os.listdir(f"{AT}/linked/far"), ["Old"])
    for link in ("far/Old", "samba"):
        at = f"{AT}/linked/{link}"
        must_equal(pread_all(f"{at}/readme"), b"kept there\n")
        must_equal(mounted_from(at)[0], f"{OTHER}:/archive")
        data = share.pattern(link, (1 << 20) + 3)
        name = f"{at}/by-{link.replace('/', '-')}"
        write_all(name, data, "buffered")
        lab.drop_caches()
        must_hold(pread_all(name), data, f"by {link}")
        lab.umount(at)
    # The names stay, and so does the folder above one.
    must_raise((errno.EACCES, errno.EBUSY, errno.EXDEV), os.rmdir, f"{AT}/linked/far/Old")
    must_raise((errno.EACCES, errno.EBUSY, errno.EXDEV), os.rename, f"{AT}/linked/far", f"{AT}/linked/near")
    must_raise(errno.EEXIST, os.mkdir, f"{AT}/linked/far/Old")


def empty_by_version_3():
    lab.mount(THERE, "/linked", vers="3", proto="tcp", port="2049", extra="nolock")
    try:
        must_equal(os.listdir(f"{THERE}/far/Old"), [])
        must_raise(errno.EROFS, os.mkdir, f"{THERE}/far/Old/x")
    finally:
        lab.umount(THERE)


def by_its_path():
    """The share itself is mounted, by the server that refers."""
    lab.mount(THERE, "/archive")
    try:
        must_equal(pread_all(f"{THERE}/readme"), b"kept there\n")
    finally:
        lab.umount(THERE)


def not_by_version_3():
    try:
        lab.mount(THERE, "/archive", vers="3", proto="tcp", port="2049", extra="nolock")
    except lab.Failed as e:
        must("access denied" in str(e), f"said {e}")
    else:
        lab.umount(THERE)
        raise lab.Failed("a share of another server was mounted by NFS 3")


def job(_):
    if check("refer/root", lab.mount, AT, "/"):
        check("refer/listed", listed)
        check("refer/walks-in", walks_in)
        check("refer/works-there", works_there)
        check("refer/next-server", next_server)
        check("refer/links-below", links_below)
        for name in ("archive", "spare"):
            check(f"refer/leaves-{name}", lab.umount, f"{AT}/{name}")
        check("refer/unmount", lab.umount, AT)
    check("refer/by-its-path", by_its_path)
    check("refer/not-by-version-3", not_by_version_3)
    check("refer/empty-by-version-3", empty_by_version_3)
