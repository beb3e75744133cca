"""A large copy goes on by itself when the server is killed or stopped, or the connection cut, in the middle of it.

$TROUBLE says which: `kill-gateway`, `stop-container` or `cut-connections`. The job only asks the host for it and goes on copying.
$COPY_MIB is the size of the copy."""

import hashlib
import os

import lab
import share
from lab import check, must_equal

MIB = 1 << 20
SIZE = int(lab.ENV.get("COPY_MIB", "1024")) * MIB
FSYNC_EVERY = SIZE // 8
TROUBLE_AT = (SIZE * 3 // 10 // MIB * MIB, SIZE * 7 // 10 // MIB * MIB)


def piece(at):
    """One MiB that stands nowhere else: the offset in front of bytes that all pieces share."""
    return at.to_bytes(8) + BODY[at // MIB % 61 :][: MIB - 8]


BODY = share.pattern("survive", MIB + 61)


def copy(path):
    digest = hashlib.sha256()
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    for at in range(0, SIZE, MIB):
        data = piece(at)
        digest.update(data)
        must_equal(os.write(fd, data), MIB, "written")
        if at % FSYNC_EVERY == 0:
            os.fsync(fd)
        if at in TROUBLE_AT:
            lab.tell_host(lab.ENV["TROUBLE"])
    os.fsync(fd)
    os.close(fd)
    return digest.hexdigest()


def read_back(path, wanted):
    lab.drop_caches()
    with open(path, "rb", buffering=0) as f:
        must_equal(hashlib.file_digest(f, "sha256").hexdigest(), wanted, "SHA-256")


def job(top):
    path = f"{top}/copy"
    wanted = []
    if check("survive/copy", lambda: wanted.append(copy(path))):
        check("survive/compare", read_back, path, *wanted)
    lab.leave("survive", lab.TOP, os.path.basename(top))
