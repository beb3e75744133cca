"""Access control lists by the programs that users have: setfacl and getfacl where the client has NFS 3, nfs4_setfacl and
nfs4_getfacl where it has NFS 4. Each list is set, shown, obeyed by the server, inherited, and taken away again."""

import os

import lab
from lab import check, must, must_equal, run

NAMED, OTHER = 1001, 1002


def put(path, mode=0o600):
    with open(path, "wb") as f:
        f.write(b"data")
    os.chmod(path, mode)
    return path


def may(uid, path, how):
    """Whether a user can open the file so; asked of the server, in a process of that user."""
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            os.close(os.open(path, getattr(os, how)))
            os._exit(0)
        except PermissionError:
            os._exit(1)
        finally:
            os._exit(2)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    must(code in (0, 1), f"user {uid}, {how}: neither opened nor refused")
    return code == 0


def who_may(path):
    return [(uid, how) for uid in (NAMED, OTHER) for how in ("O_RDONLY", "O_WRONLY") if may(uid, path, how)]


def posix_of(path):
    """What getfacl shows: the entries, without comments."""
    lines = run("getfacl", "-npE", path).splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def posix_lists(top):
    path = put(f"{top}/posix")
    must_equal(posix_of(path), ["user::rw-", "group::---", "other::---"])
    must_equal(who_may(path), [])
    run("setfacl", "-m", f"u:{NAMED}:r,g:{OTHER}:rw", path)
    named = ["user::rw-", f"user:{NAMED}:r--", "group::---", f"group:{OTHER}:rw-", "mask::rw-", "other::---"]
    must_equal(posix_of(path), named)
    must_equal(who_may(path), [(NAMED, "O_RDONLY"), (OTHER, "O_RDONLY"), (OTHER, "O_WRONLY")])
    must_equal(os.stat(path).st_mode & 0o777, 0o660, "the mask is the group's bits")
    os.chmod(path, 0o640)
    must("mask::r--" in posix_of(path), posix_of(path))
    must_equal(who_may(path), [(NAMED, "O_RDONLY"), (OTHER, "O_RDONLY")])
    run("setfacl", "-b", path)
    must_equal(posix_of(path), ["user::rw-", "group::---", "other::---"])
    must_equal(who_may(path), [])


def posix_lists_are_inherited(top):
    folder = f"{top}/posix-folder"
    os.mkdir(folder)
    run("setfacl", "-d", "-m", f"u:{NAMED}:rwx", folder)
    must(f"default:user:{NAMED}:rwx" in posix_of(folder), posix_of(folder))
    fd = os.open(f"{folder}/new", os.O_CREAT | os.O_WRONLY, 0o660)
    os.close(fd)
    must(f"user:{NAMED}:rwx" in posix_of(f"{folder}/new"), posix_of(f"{folder}/new"))
    must_equal(who_may(f"{folder}/new"), [(NAMED, "O_RDONLY"), (NAMED, "O_WRONLY")])
    run("setfacl", "-k", folder)
    must(not any(line.startswith("default") for line in posix_of(folder)), posix_of(folder))


def nfs4_of(path):
    """What nfs4_getfacl shows: principals with flags, and their rights."""
    entries = [line.split(":") for line in run("nfs4_getfacl", path).splitlines() if line and not line.startswith("#")]
    return {(kind, flags, who): set(rights) for kind, flags, who, rights in entries}


def nfs4_lists(top):
    path = put(f"{top}/nfs4")
    must_equal(who_may(path), [])
    run("nfs4_setfacl", "-a", f"A::{NAMED}:r", path)
    rights = nfs4_of(path)[("A", "", str(NAMED))]
    must("r" in rights and "w" not in rights, rights)
    must_equal(who_may(path), [(NAMED, "O_RDONLY")])
    run("nfs4_setfacl", "-a", f"A:g:{OTHER}:RW", path)
    must("w" in nfs4_of(path)[("A", "g", str(OTHER))], nfs4_of(path))
    run("nfs4_setfacl", "-a", f"D::{OTHER}:wa", path)
    must_equal(who_may(path), [(NAMED, "O_RDONLY"), (OTHER, "O_RDONLY")])
    by_v3 = lab.mount("/mnt/lists", vers="3", extra="nolock")
    shown = posix_of(f"{by_v3}/{os.path.relpath(path, lab.TOP)}")
    lab.umount(by_v3)
    for entry in (f"user:{NAMED}:r--", f"group:{OTHER}:rw-"):
        must(entry in shown, f"{entry} is not in {shown}")
    run("nfs4_setfacl", "-s", "A::OWNER@:rw", path)
    must_equal([who for _, _, who in nfs4_of(path)], ["OWNER@"])
    must_equal(who_may(path), [])


def nfs4_lists_are_inherited(top):
    folder = f"{top}/nfs4-folder"
    os.mkdir(folder)
    run("nfs4_setfacl", "-a", f"A:fd:{NAMED}:RX", folder)
    put_in = os.open(f"{folder}/new", os.O_CREAT | os.O_WRONLY, 0o660)
    os.close(put_in)
    found = nfs4_of(f"{folder}/new")
    must(any(who == str(NAMED) and "r" in rights for (_, _, who), rights in found.items()), found)
    must_equal(who_may(f"{folder}/new"), [(NAMED, "O_RDONLY")])


def job(top):
    os.chmod(top, 0o755)
    if lab.V4:
        check("nfs4-lists", nfs4_lists, top)
        check("nfs4-lists-are-inherited", nfs4_lists_are_inherited, top)
    else:
        check("posix-lists", posix_lists, top)
        check("posix-lists-are-inherited", posix_lists_are_inherited, top)
