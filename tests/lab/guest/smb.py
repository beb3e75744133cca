"""What SMB has of its own: names, attributes kept beside the data, holes, copies made by the server, shares of other
kinds, wrong passwords."""

import errno
import os
import struct
import subprocess
import time

import lab
import share
from lab import check, must, must_equal, must_hold, must_raise, pread_all, run
from semantics import put
from sizes import write_all
from v42 import KEEP_SIZE, PUNCH_HOLE, fallocate, user_xattrs

MIB = 1 << 20
AT = "/mnt/second"
HIDDEN, ARCHIVE, READ_ONLY = 0x2, 0x20, 0x1


def names(top):
    """Long and foreign names; the characters that Windows reserves travel as private ones and come back."""
    folder = f"{top}/names"
    os.mkdir(folder)
    wanted = ["n" * 255, "*?\"<>|:", ".hidden", "日本語.txt", "ﬁ", "e\u0301", "\u00e9", "\U0001f600", "é" * 127,
              "#%&{}$!'@+`=", "a b  c", "trailing.", "trailing "]
    for name in wanted:
        put(f"{folder}/{name}", name.encode())
    lab.drop_caches()
    must_equal(sorted(os.listdir(folder)), sorted(wanted))
    for name in wanted:
        must_equal(pread_all(f"{folder}/{name}"), name.encode(), name)
    must_raise(errno.ENAMETOOLONG, put, f"{folder}/{'n' * 256}")


def case(top):
    """Names keep their case and are found in any: the server answers for a name in another case with the same file."""
    put(f"{top}/Mixed-Case-Ä", b"one")
    lab.mount(AT, f"/data/{os.path.basename(top)}", extra=with_options("nocase"))
    try:
        must_equal(pread_all(f"{AT}/mIXED-cASE-ä"), b"one")
        put(f"{AT}/MIXED-CASE-Ä", b"two")
        must_equal([n for n in os.listdir(AT) if n.lower() == "mixed-case-ä"], ["Mixed-Case-Ä"])
    finally:
        lab.umount(AT)
    lab.drop_caches()
    must_equal(pread_all(f"{top}/Mixed-Case-Ä"), b"two")


def with_options(words):
    return ",".join(filter(None, (lab.ENV.get("OPTIONS", ""), words)))


def xattrs(top):
    """User attributes are extended attributes of SMB, whose names know no case."""
    path = put(f"{top}/xattrs")
    must_equal(user_xattrs(path), [])
    os.setxattr(path, "user.COLOUR", b"green")
    os.setxattr(path, "user.BIG", share.pattern("x", 2000))
    lab.drop_caches()
    must_equal([n.upper() for n in user_xattrs(path)], ["USER.BIG", "USER.COLOUR"])
    must_equal(os.getxattr(path, "user.COLOUR"), b"green")
    must_equal(os.getxattr(path, "user.BIG"), share.pattern("x", 2000))
    must_raise(errno.ENODATA, os.getxattr, path, "user.NONE")
    os.setxattr(path, "user.COLOUR", b"red")
    must_equal(os.getxattr(path, "user.COLOUR"), b"red")
    os.removexattr(path, "user.BIG")
    must_equal([n.upper() for n in user_xattrs(path)], ["USER.COLOUR"])


def attributes(top):
    """DOS attributes and the time of creation, as the client shows and sets them."""
    path = put(f"{top}/attributes")
    dos = lambda: struct.unpack("<I", os.getxattr(path, "user.cifs.dosattrib"))[0]  # noqa: E731
    must(dos() & ARCHIVE, f"attributes of a new file: {dos():#x}")
    os.setxattr(path, "user.cifs.dosattrib", struct.pack("<I", HIDDEN | ARCHIVE))
    lab.drop_caches()
    must_equal(dos() & (HIDDEN | ARCHIVE | READ_ONLY), HIDDEN | ARCHIVE)
    os.chmod(path, 0o444)
    lab.wait_until(lambda: dos() & READ_ONLY, f"attributes of a file that may not be written: {dos():#x}", 5)
    os.chmod(path, 0o644)
    born = struct.unpack("<Q", os.getxattr(path, "user.cifs.creationtime"))[0]
    must(abs(born / 1e7 - 11_644_473_600 - time.time()) < 600, f"created at {born}")
    wanted = born - 10**10
    os.setxattr(path, "user.cifs.creationtime", struct.pack("<Q", wanted))
    with open(path, "r+b") as f:  # Overwriting a hidden file is refused (MS-FSA 2.1.5.1.2.1); changing it is not.
        f.write(b"changed")
    lab.drop_caches()
    must_equal(struct.unpack("<Q", os.getxattr(path, "user.cifs.creationtime"))[0], wanted, "time of creation")


def security(top):
    """A security descriptor is there, names an owner, and what is set is what is kept."""
    path = put(f"{top}/secured")
    text = run("getcifsacl", path)
    for word in ("OWNER:", "GROUP:", "ACL:"):
        must(word in text, text)
    run("setcifsacl", "-a", "ACL:S-1-5-21-1-2-3-4567:DENIED/0x0/0x2", path)
    must("S-1-5-21-1-2-3-4567" in run("getcifsacl", path), run("getcifsacl", path))


def holes(top):
    """Sparse files: holes seen, made, filled with zeros, and still holes for the server."""
    if lab.VERS == "2.1":
        return  # The client has no words for them before 3.0.
    path = f"{top}/punched"
    data = share.pattern("p", 4 * MIB)
    write_all(path, data, "buffered")
    fd = os.open(path, os.O_RDWR)
    fallocate(fd, KEEP_SIZE | PUNCH_HOLE, MIB, 2 * MIB)
    must_equal(os.lseek(fd, 0, os.SEEK_HOLE), 4 * MIB if lab.ON_CEPH else MIB, "the hole")
    must_equal(os.lseek(fd, MIB, os.SEEK_DATA), MIB if lab.ON_CEPH else 3 * MIB, "data behind it")
    os.close(fd)
    lab.drop_caches()
    must_hold(pread_all(path), data[:MIB] + bytes(2 * MIB) + data[3 * MIB :], "content around the hole")


def server_copies(top):
    """copy_file_range asks the server to copy."""
    data = share.pattern("c", 8 * MIB + 5)
    write_all(f"{top}/source", data, "buffered")
    a = os.open(f"{top}/source", os.O_RDONLY)
    b = os.open(f"{top}/target", os.O_RDWR | os.O_CREAT)
    done = 0
    while done < len(data):
        n = os.copy_file_range(a, b, len(data) - done, done, done)
        must(n > 0, "copied nothing")
        done += n
    os.fsync(b)
    os.close(a)
    os.close(b)
    lab.drop_caches()
    must_hold(pread_all(f"{top}/target"), data, "copy")


def reflinks(top):
    """A clone where the file system can share blocks, a clean refusal where it cannot."""
    data = share.pattern("r", 4 * MIB)
    write_all(f"{top}/original", data, "buffered")
    done = subprocess.run(["cp", "--reflink=always", f"{top}/original", f"{top}/clone"], capture_output=True, text=True)
    if done.returncode == 0:
        lab.drop_caches()
        must_hold(pread_all(f"{top}/clone"), data, "clone")
    else:
        must("not supported" in done.stderr, done.stderr)
    run("cp", "--reflink=auto", f"{top}/original", f"{top}/copied")
    must_hold(pread_all(f"{top}/copied"), data, "copy")


def read_only():
    lab.mount(AT, "/ro")
    try:
        must_equal(pread_all(f"{AT}/readme"), b"to be read\n")
        for call in (lambda: put(f"{AT}/new"), lambda: os.unlink(f"{AT}/readme"), lambda: os.mkdir(f"{AT}/folder")):
            must_raise((errno.EROFS, errno.EACCES), call)
    finally:
        lab.umount(AT)


def full():
    """A full file system is told to the writer; what was there before is intact, and there is room after a removal."""
    lab.mount(AT, "/small")
    try:
        kept = share.pattern("kept", MIB)
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


def refused(words, **how):
    try:
        lab.mount(AT, **how)
    except lab.Failed as e:
        must(any(word in str(e) for word in words), f"said {e}")
        return
    lab.umount(AT)
    raise lab.Failed("was mounted")


def not_there():
    refused(("No such file",), path="/nothing-here")


def wrong_password():
    refused(("Permission denied",), password="wrong")


def unknown_user():
    refused(("Permission denied",), user="nobody-knows")


def guest_refused():
    refused(("Permission denied", "Operation not supported"), extra="sec=none")


def two_mounts(top):
    """The same share mounted a second time, with a connection and a session of its own: both see the same files."""
    lab.mount(AT, extra=with_options("nosharesock,actimeo=0"))
    try:
        put(f"{top}/seen", b"by both")
        other = f"{AT}/{os.path.basename(top)}/seen"
        must_equal(pread_all(other), b"by both")
        put(other, b"by both again")
        lab.wait_until(lambda: pread_all(f"{top}/seen") == b"by both again", "the other's write", 5)
    finally:
        lab.umount(AT)


def modes(top):
    """With the POSIX extensions modes are the file's own: what one mount sets, one that has never seen the file shows."""
    path = put(f"{top}/mode")
    os.mkdir(f"{top}/mode-folder", 0o700)
    for mode in (0o600, 0o751, 0o000, 0o4755, 0o644):
        os.chmod(path, mode)
        os.chmod(f"{top}/mode-folder", mode)
        lab.mount(AT, extra=with_options("nosharesock"))
        try:
            for name in ("mode", "mode-folder"):
                found = os.stat(f"{AT}/{os.path.basename(top)}/{name}").st_mode & 0o7777
                must_equal(f"{found:o}", f"{mode:o}", name)
        finally:
            lab.umount(AT)


POSIX = "posix" in lab.ENV.get("OPTIONS", "").split(",")
# Names of POSIX clients differ by case, and their modes are the modes themselves, not an attribute.
OF_ONE_KIND = () if lab.OLD_CIFS else (modes,) if POSIX else (case, attributes)
CHECKS = (names, *OF_ONE_KIND, xattrs, security, holes, server_copies, reflinks, two_mounts)
OF_SHARES = (read_only, full, not_there, wrong_password, unknown_user, guest_refused)


def job(top):
    for call in CHECKS:
        check(f"smb/{call.__name__.replace('_', '-')}", call, top)
    for call in OF_SHARES:
        check(f"smb/{call.__name__.replace('_', '-')}", call)
    lab.leave("smb", lab.TOP, os.path.basename(top))
