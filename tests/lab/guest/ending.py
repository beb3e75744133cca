"""What an administrator takes from this guest, `headgate close` of files and `headgate disconnect` of the client, while they are
open and locked by SMB, NFS 4.2 and NFS 3. A second client waits for the locks, and has one of its own that nobody touches."""

import errno
import fcntl
import itertools
import json
import os
import socket

import lab
import servers
from lab import check, must, must_equal, must_hold, must_raise, pread_all, wait_until
from locks import DENIED, OTHER, lock
from semantics import put

NFS4, NFS3 = "/mnt/nfs4", "/mnt/nfs3"
MOUNTS = {"smb": lab.TOP, "nfs4": NFS4, "nfs3": NFS3}
numbers = itertools.count()


def order(*words):
    """Has the host run this command of the gateway's administrator; what it answers."""
    answer = f"/scratch/answer-{next(numbers)}"
    lab.tell_host(f"order {os.path.basename(answer)} {' '.join(words)} --json")
    wait_until(lambda: os.path.exists(answer), f"the answer to {words}")
    return json.loads(pread_all(answer) or b"{}")


def held(folder):
    """What `headgate files` tells of these files."""
    inside = os.path.basename(folder) + "/"
    files = order("files")["files"]
    return [f for f in files if (f["path"] or "").startswith(inside)]


def of(path, files):
    return [f for f in files if f["path"].endswith("/" + os.path.basename(path))]


def by(way, path):
    return path.replace(lab.TOP, MOUNTS[way])


def hold(path):
    """Open, written to and locked."""
    f = open(path, "r+b", buffering=0)
    f.write(b"acknowledged")
    os.fsync(f.fileno())
    lock(f, fcntl.F_WRLCK)
    return f


def locked_by_other(path):
    """The second client has the lock from now on, without a wait."""
    other = open(path.replace(lab.TOP, OTHER), "r+b", buffering=0)
    lock(other, fcntl.F_WRLCK)
    return other


def lets_go(f):
    """Works on with what was taken from it, is told so, and gives up."""
    told = []
    for work in (lambda: os.pwrite(f.fileno(), b"-", 100), lambda: os.fsync(f.fileno()), f.close):
        try:
            work()
        except OSError as why:
            told.append(why.errno)
    must(told and set(told) <= {errno.EIO, errno.EBADF, errno.EACCES}, f"{f.name}: told {told}")


def goes_on(way, path):
    """A file opened anew is written, read and locked."""
    with open(by(way, path), "r+b", buffering=0) as f:
        lock(f, fcntl.F_WRLCK)
        f.write(b"written anew")
        os.fsync(f.fileno())
    lab.drop_caches()
    must_hold(pread_all(by(way, path))[:101], b"written anew".ljust(101, b"\0"), way)


def closed(top, way, untouched):
    path = f"{top}/closed-{way}"
    mine = hold(by(way, path))
    must_raise(DENIED, locked_by_other, path)
    must(any(f["how"] == "locked" or way == "smb" for f in of(path, held(top))), f"not in the list: {held(top)}")
    taken = order("close", f"/data/{os.path.basename(top)}/{os.path.basename(path)}")
    must(of(path, taken["files"]), f"closed: {taken}")
    other = locked_by_other(path)
    lets_go(mine)
    with open(by(way, path), "r+b", buffering=0) as again:
        must_raise(DENIED, lock, again, fcntl.F_WRLCK)
    other.close()
    goes_on(way, path)
    stays(top, untouched)


def disconnected(top, untouched):
    paths = {way: f"{top}/gone-{way}" for way in MOUNTS}
    mine = [hold(by(way, path)) for way, path in paths.items()]
    with socket.create_connection((lab.SERVER, 2049), 10) as s:
        here = s.getsockname()[0]
    gone = order("disconnect", here)
    must(gone["connections"] >= 3 and gone["smb_sessions"] >= 1, f"gone: {gone}")
    must_equal((gone["nfs4_clients"], gone["nfs3_hosts"]), (1, 1), "clients of NFS")
    others = [locked_by_other(path) for path in paths.values()]
    for f in mine:
        lets_go(f)
    for f in others:
        f.close()
    for way, path in paths.items():
        goes_on(way, path)
    stays(top, untouched)


def stays(top, untouched):
    """The second client has what it had, under the same number."""
    f, before = untouched
    now = held(top)
    must(before and all(one in now for one in before), f"the other client held {before}, now {now}")
    for way in MOUNTS:
        with open(by(way, f.name.replace(OTHER, lab.TOP)), "r+b", buffering=0) as mine:
            must_raise(DENIED, lock, mine, fcntl.F_WRLCK)
    f.seek(0)
    must_equal(f.write(b"still here"), 10, "written")


def nothing_is_left(top):
    wait_until(lambda: not held(top), f"the end of what is held: {held(top)}", 20)


def job(top):
    servers.lock_services()
    for mount, version in ((NFS4, "4.2"), (NFS3, "3")):
        os.makedirs(mount)
        command = lab.mount_command(mount, cifs=False, vers=version, proto=lab.PROTO)
        if not check(f"ending/mount-{version}", lambda: lab.run(*command)):
            return
    if not check("ending/mount-other", servers.mount_as_other_client, OTHER):
        return
    for name in ("untouched", *(f"{end}-{way}" for end in ("closed", "gone") for way in MOUNTS)):
        put(f"{top}/{name}", bytes(200))
    with locked_by_other(f"{top}/untouched") as f:
        untouched = f, of(f.name, held(top))
        for way in MOUNTS:
            check(f"ending/close-{way}", closed, top, way, untouched)
        check("ending/disconnect", disconnected, top, untouched)
    check("ending/unmount-other", lab.umount, OTHER)
    for mount in (NFS4, NFS3):
        check(f"ending/unmount-{os.path.basename(mount)}", lab.umount, mount)
    check("ending/nothing-is-left", nothing_is_left, top)
    lab.leave("ending", lab.TOP, os.path.basename(top))
