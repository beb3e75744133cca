"""Every version of NFS by every flavor of Kerberos, over the transport of this guest: one mount after the other, each with the file
test's jobs in short. What takes long, or has to be shown once for all, is in the scenarios with `sizes` and `tickets`.

Beside each mount stands one of another version. The server takes it for another client, so that locks meet there and not in this
kernel."""

import errno
import fcntl
import os
import stat

import lab
import locks
import servers
import share
import sizes
import tickets
from lab import check, must, must_equal, must_raise
from tickets import NO_TICKET, NOBODY, OTHER, OWNER

FLAVORS = ("krb5", "krb5i", "krb5p")
AT = "/mnt/flavor"
# Around the thresholds: what goes inline, a page, a buffer of the pool, the largest payload.
SIZES = (0, 1, 127, 128, 1340, 1364, 4095, 4096, 4097, 8192, 65536, (1 << 20) - 1, 1 << 20, (1 << 20) + 1)
DIFFERS = 255


def is_as_asked(vers, flavor):
    """What the kernel says of the mount. A version, flavor or transport that it agreed on instead would stand here."""
    with open("/proc/mounts") as f:
        found = [line.split()[3].split(",") for line in f if line.split()[1] == AT]
    must_equal(len(found), 1, f"mounts on {AT}")
    for option in (f"vers={vers}", f"sec={flavor}", f"proto={lab.PROTO}"):
        must(option in found[0], f"no {option} in {','.join(found[0])}")


def data(top, way, size):
    return share.pattern(f"{top}-{way}-{size}", size)


def write_one(top, way, size):
    sizes.write_all(f"{top}/{way}-{size}", data(top, way, size), way)


def read_one(top, way, size):
    """What one way wrote, the other reads; and what the host made."""
    writer = sizes.WAYS[1 - sizes.WAYS.index(way)]
    sizes.same(sizes.read_all(f"{top}/{writer}-{size}", size, way), data(top, writer, size))
    if way == "direct":
        sizes.read_host(top, way, size)


def tree(top):
    """Files in a folder: made, listed, renamed, linked, removed."""
    names = [f"{n:02}-{'x' * (n * 7)}" for n in range(30)]
    os.makedirs(f"{top}/tree/from")
    os.mkdir(f"{top}/tree/to")
    for name in names:
        with open(f"{top}/tree/from/{name}", "x") as f:
            f.write(name)
    lab.drop_caches()
    must_equal(sorted(os.listdir(f"{top}/tree/from")), names, "names")
    for name in names[::2]:
        os.rename(f"{top}/tree/from/{name}", f"{top}/tree/to/{name}")
    os.rename(f"{top}/tree/to/{names[2]}", f"{top}/tree/to/{names[0]}")
    os.link(f"{top}/tree/from/{names[1]}", f"{top}/tree/to/linked")
    os.symlink("to", f"{top}/tree/symbolic")
    os.unlink(f"{top}/tree/from/{names[3]}")
    must_raise(errno.ENOTEMPTY, os.rmdir, f"{top}/tree/to")
    lab.drop_caches()
    must_equal(sorted(os.listdir(f"{top}/tree/from")), sorted({*names[1::2]} - {names[3]}), "names that stayed")
    must_equal(sorted(os.listdir(f"{top}/tree/symbolic")), sorted(({*names[::2]} - {names[2]}) | {"linked"}), "names that came")
    must_equal(lab.pread_all(f"{top}/tree/to/{names[0]}"), names[2].encode(), "the one renamed onto another")
    must_equal(lab.pread_all(f"{top}/tree/to/linked"), names[1].encode(), "the other name of a file")
    must_equal(os.stat(f"{top}/tree/to/linked").st_nlink, 2, "links")


def locks_meet(top):
    """A range that one client holds is not the other's until it lets go."""
    path = f"{top}/locked"
    with open(path, "wb") as f:
        f.write(bytes(1000))
    with open(path, "r+b", buffering=0) as ours, open(path.replace(AT, lab.TOP), "r+b", buffering=0) as theirs:
        locks.lock(theirs, fcntl.F_WRLCK, 10, 10)
        must_raise(locks.DENIED, locks.lock, ours, fcntl.F_WRLCK, 15, 100)
        must_equal(locks.blocker(ours, fcntl.F_RDLCK, 0, 100), (fcntl.F_WRLCK, 10, 10), "the lock in the way")
        locks.lock(ours, fcntl.F_WRLCK, 20, 10)
        locks.lock(theirs, fcntl.F_UNLCK, 10, 10)
        locks.lock(ours, fcntl.F_WRLCK, 10, 20)
        must_raise(locks.DENIED, locks.lock, theirs, fcntl.F_RDLCK, 29, 1)
        locks.lock(ours, fcntl.F_UNLCK, 0, 0)
        locks.lock(theirs, fcntl.F_WRLCK, 0, 1000)


def as_user(user, call, *args):
    """The errno of what a process of this user could not do, or 0: by the user's ticket, on the mount that all share."""
    uid, gid = tickets.ids(user)
    pid = os.fork()
    if pid == 0:
        code = DIFFERS
        try:
            os.setgroups([])
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
            call(*args)
            code = 0
        except OSError as e:
            code = e.errno
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def can(user, call, *args):
    code = as_user(user, call, *args)
    if code == DIFFERS:
        raise lab.Differs(f"{user}: {call.__name__} {args}")
    must(code == 0, f"{user}: {call.__name__} {args}: {os.strerror(code)}")


def cannot(user, codes, call, *args):
    code = as_user(user, call, *args)
    must(code in codes, f"{user}: {call.__name__} {args}: {os.strerror(code) if code else 'could'}, wanted {codes}")


def make_own(path, text):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.write(fd, text)
    os.fsync(fd)
    os.close(fd)


def read_own(path, text):
    must_equal(lab.pread_all(path), text, path)


def users_apart(name):
    """Two users on one mount, in a folder that is open to all and in one that is the first's alone; one more has no ticket."""
    everybody = f"{AT}/everybody"
    texts = {OWNER: f"{name} of one".encode(), OTHER: f"{name} of the other".encode()}
    for user, text in texts.items():
        can(user, make_own, f"{everybody}/{name}-{user}", text)
    can(OWNER, make_own, f"{everybody}/of-games/{name}", texts[OWNER])
    lab.drop_caches()
    for user, text in texts.items():
        path = f"{everybody}/{name}-{user}"
        can(user, read_own, path, text)
        other = OTHER if user == OWNER else OWNER
        cannot(other, (errno.EACCES,), read_own, path, text)
        cannot(other, (errno.EACCES,), os.truncate, path, 0)
        found = os.stat(path)
        must_equal((found.st_uid, stat.S_IMODE(found.st_mode)), (tickets.ids(user)[0], 0o600), "owner and mode")
    can(OWNER, read_own, f"{everybody}/of-games/{name}", texts[OWNER])
    cannot(OTHER, (errno.EACCES,), os.listdir, f"{everybody}/of-games")
    cannot(OTHER, (errno.EACCES,), read_own, f"{everybody}/of-games/{name}", texts[OWNER])
    cannot(NOBODY, NO_TICKET, os.listdir, everybody)


def counters(flavor):
    """By RDMA: the transport understood every reply, and bulk went beside the messages. What is signed or sealed goes whole, as
    long calls and replies (RFC 8166 section 3.4.1). By `krb5` every READ offers a write chunk, and its data goes there: what the
    client copies out of replies is less than the smallest file of more than a byte, the text of a symbolic link."""
    if lab.PROTO != "rdma":
        return
    told = lab.xprt_counters(AT)
    for name in ("bad_reply", "bad_xids"):
        must_equal(told[name], 0, name)
    reads = lab.calls(AT, "READ")
    must(told["read_chunks"] > 0 and reads > len(SIZES), f"{reads} READ, {told}")
    if flavor == "krb5":
        must(told["write_chunks"] >= reads and told["fixup_copies"] < 127, f"{reads} READ not placed directly: {told}")
    else:
        must(told["write_chunks"] == 0 and told["reply_chunks"] >= reads, f"{reads} READ not whole: {told}")


def one(vers, flavor):
    name = f"v{vers}-{flavor}-{lab.PROTO}"
    if not check(f"{name}/mount", lambda: lab.mount(AT, vers=vers, extra=f"sec={flavor}")):
        return
    check(f"{name}/options", is_as_asked, vers, flavor)
    top = f"{AT}/{lab.LABEL}-{name}"
    os.mkdir(top)
    for way in sizes.WAYS:
        for size in SIZES:
            check(f"{name}/write-{way}-{size}", write_one, top, way, size)
    lab.drop_caches()
    for way in sizes.WAYS:
        for size in SIZES:
            check(f"{name}/read-{way}-{size}", read_one, top, way, size)
    check(f"{name}/tree", tree, top)
    check(f"{name}/locks", locks_meet, top)
    check(f"{name}/users", users_apart, name)
    check(f"{name}/counters", counters, flavor)
    # The host compares what it holds with what was read by this mount.
    lab.leave(name, AT, os.path.basename(top))
    check(f"{name}/unmount", lab.umount, AT)


def job(_top):
    servers.lock_services()
    for user in (OWNER, OTHER):
        tickets.ticket(user)
    # A mount of the same version and flavor as the one beside it would be the same mount to this kernel.
    for vers in ("3", "4.0", "4.1"):
        for flavor in FLAVORS:
            one(vers, flavor)
    lab.umount(lab.TOP)
    lab.mount(lab.TOP, vers="4.1")
    for flavor in FLAVORS:
        one("4.2", flavor)
