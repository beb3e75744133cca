"""Who may use a share, as whom, and what is made there: by kernel mounts of both protocols.

The host's side is xtask/src/lab/rights.rs: its shares, users and what lies in them.
"""

import contextlib
import errno
import os
import stat
import subprocess

import lab
import share
from lab import check, must, must_equal, must_hold, must_raise, pread_all, run

# By number on the host; members of the group by their accounts of SMB, or by what the client says.
USERS = {"reader": 2001, "writer": 2002, "denied": 2003, "stranger": 2004}
MEMBERS = ("reader", "writer", "denied")
GROUP = 2100
# Where the gateway is on the second of the guest's networks.
ELSEWHERE = "10.77.1.1"
REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS)
AT = "/mnt/rights"
SIZE = (1 << 20) + 1


@contextlib.contextmanager
def by_nfs(path, vers, server=lab.SERVER):
    command = lab.mount_command(AT, path, server=server, cifs=False, vers=vers, proto="tcp",
                                extra="noac,lookupcache=none" + (",nolock" if vers == "3" else ""))
    os.makedirs(AT, exist_ok=True)
    run(*command)
    try:
        yield AT
    finally:
        lab.umount(AT)


@contextlib.contextmanager
def by_cifs(path, user, server=lab.SERVER, at=AT):
    os.makedirs(at, exist_ok=True)
    # Rights are the server's to judge, and what one mount sees no other one has cached.
    extra = "nosharesock,actimeo=0,cache=none,noperm"
    run(*lab.mount_command(at, path, server=server, cifs=True, user=user, extra=extra))
    try:
        yield at
    finally:
        lab.umount(at)


def not_mounted(path, user, server=lab.SERVER):
    """No mount by SMB."""
    os.makedirs(AT, exist_ok=True)
    command = lab.mount_command(AT, path, server=server, cifs=True, user=user, extra="")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode == 0:
        lab.umount(AT)
    must(done.returncode != 0 and "Permission denied" in done.stderr, f"{user}: {done.returncode} {done.stderr}")


def as_user(name, call, groups=None):
    """Runs `call` as a user of the guest with that number; fails as it fails."""
    groups = [GROUP] * (name in MEMBERS) if groups is None else groups
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 255
        try:
            os.setgroups(groups)
            os.setgid(USERS[name])
            os.setuid(USERS[name])
            os.umask(0)
            call()
            code = 0
        except OSError as e:
            code = e.errno
        except BaseException as e:
            os.write(write, f"{type(e).__name__}: {e}".encode()[:500])
        os._exit(code)
    os.close(write)
    with os.fdopen(read) as f:
        said = f.read()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    must(code != 255, f"{name}: {said}")
    if code:
        raise OSError(code, os.strerror(code))


def write(path, data, mode=0o666, how=os.O_EXCL):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | how, mode)
    try:
        done = 0
        while done < len(data):
            done += os.write(fd, data[done:])
        os.fsync(fd)
    finally:
        os.close(fd)


def reads(at):
    """The host has laid it there."""
    lab.drop_caches()
    must_hold(pread_all(f"{at}/kept"), share.pattern("kept", SIZE), "what lies in the share")


def changes(at, name):
    """A new file is written, and read back from the server."""
    data = share.pattern(name, SIZE)
    write(f"{at}/{name}", data)
    must_hold(pread_all(f"{at}/{name}"), data, name)


def changes_nothing(at, name):
    must_raise(REFUSED, write, f"{at}/{name}", b"x")
    must_raise(REFUSED, os.mkdir, f"{at}/{name}")
    must_raise(REFUSED, os.unlink, f"{at}/kept")
    must_raise(REFUSED, os.truncate, f"{at}/kept", 0)


def found(path):
    """Owner, group and mode."""
    at = os.stat(path)
    return (at.st_uid, at.st_gid, oct(stat.S_IMODE(at.st_mode)))


def access_by_nfs(vers):
    """Readers by name and by group, a writer, one who is denied although in the group, and one whom nobody names."""
    with by_nfs("/team", vers) as at:
        as_user("reader", lambda: (reads_as(at), changes_nothing(at, "no")))
        as_user("writer", lambda: (reads_as(at), changes(at, f"writer-{vers}")))
        as_user("writer", lambda: must_equal(os.stat(f"{at}/writer-{vers}").st_uid, USERS["writer"]))
        must_raise(REFUSED, as_user, "denied", lambda: pread_all(f"{at}/kept"))
        must_raise(REFUSED, as_user, "stranger", lambda: pread_all(f"{at}/kept"))
        as_user("stranger", lambda: reads_as(at), groups=[1, GROUP])
        must_raise(REFUSED, as_user, "stranger", lambda: write(f"{at}/no-stranger", b"x"), groups=[1, GROUP])


def reads_as(at):
    """The same, by one who may not drop caches."""
    must_hold(pread_all(f"{at}/kept"), share.pattern("kept", SIZE), "what lies in the share")


def access_by_cifs():
    with by_cifs("/team", "reader") as at:
        reads(at)
        changes_nothing(at, "no")
    with by_cifs("/team", "writer") as at:
        reads(at)
        changes(at, "writer-cifs")
    not_mounted("/team", "denied")
    not_mounted("/team", "stranger")


def forced(vers):
    """Whoever comes is the writer, with the group before its own."""
    wanted = (USERS["writer"], GROUP)
    with by_nfs("/forced", vers) as at:
        as_user("stranger", lambda: changes(at, f"by-stranger-{vers}"))
        must_equal(found(f"{at}/by-stranger-{vers}")[:2], wanted, "whose it is")
        # What is its owner's alone is everybody's here.
        os.chmod(f"{at}/by-stranger-{vers}", 0o600)
        as_user("reader", lambda: must_hold(pread_all(f"{at}/by-stranger-{vers}"),
                                            share.pattern(f"by-stranger-{vers}", SIZE), "of the stranger"))
    with by_cifs("/forced", "stranger") as at:
        changes(at, f"by-cifs-{vers}")
    with by_nfs("/forced", vers) as at:
        must_equal(found(f"{at}/by-cifs-{vers}")[:2], wanted, "whose it is that came by cifs")


def masks(vers):
    """Modes of what is new: asked for by NFS and limited, all that may be had by SMB."""
    with by_nfs("/masked", vers) as at:
        name = f"nfs-{vers}"

        def make():
            # Made exclusively, version 3 would set the mode by a second call, which masks do not limit.
            write(f"{at}/{name}", b"x", 0o777, how=0)
            write(f"{at}/{name}-private", b"x", 0o600, how=0)
            os.mkdir(f"{at}/{name}-folder", 0o755)
            os.mkfifo(f"{at}/{name}-pipe", 0o666)

        as_user("writer", make)
        modes = [found(f"{at}/{name}{tail}")[2] for tail in ("", "-private", "-folder", "-pipe")]
        must_equal(modes, ["0o660", "0o600", "0o2750", "0o660"], "modes by NFS")
    with by_cifs("/masked", "writer") as at:
        write(f"{at}/cifs-{vers}", b"x", 0o644)
        os.mkdir(f"{at}/cifs-{vers}-folder", 0o700)
    with by_nfs("/masked", vers) as at:
        modes = [found(f"{at}/cifs-{vers}{tail}")[2] for tail in ("", "-folder")]
        must_equal(modes, ["0o660", "0o2770"], "modes by SMB")


def old_path(vers):
    """A share is mounted by the path under which another server exported it, and by no other."""
    with by_nfs("/srv/nfs/old", vers) as at:
        reads(at)
        changes(at, f"old-{vers}")
    with by_nfs("/srv/nfs/old/deeper/still", vers) as at:
        must_equal(pread_all(f"{at}/file"), b"deep\n", "below it")
    try:
        with by_nfs("/old", vers):
            raise lab.Failed("it is mounted by its name, too")
    except lab.Failed as e:
        must("No such file" in str(e) or "denied" in str(e), f"said {e}")
    with by_cifs("/old", "writer") as at:
        must_hold(pread_all(f"{at}/old-{vers}"), share.pattern(f"old-{vers}", SIZE), "by its name, by SMB")


def by_address(vers):
    """One client writes and another reads alone: the first and the second network of this guest."""
    with by_nfs("/addresses", vers) as at:
        changes(at, f"near-{vers}")
    with by_nfs("/addresses", vers, server=ELSEWHERE) as at:
        must_hold(pread_all(f"{at}/near-{vers}"), share.pattern(f"near-{vers}", SIZE), "of the other client")
        changes_nothing(at, f"far-{vers}")


def by_address_by_cifs():
    with by_cifs("/addresses", "writer") as at:
        changes(at, "near-cifs")
    with by_cifs("/addresses", "writer", server=ELSEWHERE) as at:
        must_hold(pread_all(f"{at}/near-cifs"), share.pattern("near-cifs", SIZE), "of the other client")
        changes_nothing(at, "far-cifs")


def homes():
    """Each user has a folder of its own by SMB; by NFS all are there, for their owners."""
    with by_cifs("/home", "reader") as one, by_cifs("/home", "writer", at="/mnt/other") as other:
        changes(one, "of-reader")
        changes(other, "of-writer")
        must_equal((os.listdir(one), os.listdir(other)), (["of-reader"], ["of-writer"]), "what each sees")
    with by_nfs("/home", "4.2") as at:
        must_equal(sorted(os.listdir(at)), ["reader", "writer"], "homes")
        for name in ("reader", "writer"):
            must_equal(found(f"{at}/{name}"), (USERS[name], USERS[name], "0o700"), name)
        path, data = f"{at}/writer/of-writer", share.pattern("of-writer", SIZE)
        as_user("writer", lambda: must_hold(pread_all(path), data, "by NFS"))
        must_raise(errno.EACCES, as_user, "reader", lambda: os.listdir(f"{at}/writer"))
    with by_nfs("/home/writer", "3") as at:
        as_user("writer", lambda: changes(at, "by-nfs"))
    with by_cifs("/home", "writer") as at:
        must_equal(sorted(os.listdir(at)), ["by-nfs", "of-writer"], "what the writer sees")


def job(top):
    run("ip", "addr", "add", "10.77.1.2/24", "dev", "vec1")
    run("ip", "link", "set", "vec1", "up")
    for vers in ("3", "4.2"):
        for call in (access_by_nfs, forced, masks, old_path, by_address):
            check(f"rights/{call.__name__.replace('_', '-')}-{vers}", call, vers)
    for call in (access_by_cifs, by_address_by_cifs, homes):
        check(f"rights/{call.__name__.replace('_', '-')}", call)
