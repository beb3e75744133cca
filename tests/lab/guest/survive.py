"""A large copy goes on by itself when the server is killed or stopped, or the connection cut, in the middle of it.

$TROUBLE says which: `kill-gateway`, `stop-container`, `cut-connections`, or `unplug` (the RDMA device goes and comes back). The job
only asks for it and goes on copying."""

import errno
import hashlib
import os

import lab
import servers
import share
from lab import check, must_equal, must_hold

MIB = 1 << 20
SIZE = 192 * MIB
FSYNC_EVERY = SIZE // 8
TROUBLE_AT = (SIZE * 3 // 10 // MIB * MIB, SIZE * 7 // 10 // MIB * MIB)


def piece(at):
    """One MiB that stands nowhere else: the offset in front of bytes that all pieces share."""
    return at.to_bytes(8) + BODY[at // MIB % 61 :][: MIB - 8]


BODY = share.pattern("survive", MIB + 61)


def flush(fd, path):
    """Linux' SMB client asks for a flush by a handle that went with its connection, where it writes by a new one (6.12,
    `cifs_strict_fsync`), and says EBADF. A program has to open the file again, and the data must be there."""
    try:
        os.fsync(fd)
    except OSError as e:
        if not lab.CIFS or e.errno != errno.EBADF:
            raise
        again = os.open(path, os.O_WRONLY)
        os.fsync(again)
        os.close(again)


def copy(path):
    digest = hashlib.sha256()
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    for at in range(0, SIZE, MIB):
        data = piece(at)
        digest.update(data)
        must_equal(os.write(fd, data), MIB, "written")
        if at % FSYNC_EVERY == 0:
            flush(fd, path)
        if at in TROUBLE_AT:
            servers.make_trouble(lab.ENV["TROUBLE"])
    flush(fd, path)
    os.close(fd)
    return digest.hexdigest()


def read_back(path, wanted):
    lab.drop_caches()
    with open(path, "rb", buffering=0) as f:
        must_hold(hashlib.file_digest(f, "sha256").hexdigest(), wanted, "SHA-256")


def job(top):
    path = f"{top}/copy"
    wanted = []
    if check("survive/copy", lambda: wanted.append(copy(path))):
        check("survive/compare", read_back, path, *wanted)
    check("survive/trouble", servers.trouble_is_over)
    lab.leave("survive", lab.TOP, os.path.basename(top))
