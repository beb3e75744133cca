"""The cases of pjdfstest on the mount: what each system call on files returns and changes."""

import os
import re
import subprocess

import lab
import tickets
from lab import check, must

CONFIGURATION = """
[features]
posix_fallocate = {}
rename_ctime = {}
utimensat = {}
utime_now = {}
[settings]
naptime = 0.05
allow_remount = false
[dummy_auth]
entries = {users}
"""

# Each has a group of the same number on every Debian. With tickets each user of the mount is that user of the server.
MULTIUSER = "multiuser" in lab.ENV.get("OPTIONS", "")
USERS = [["man", "man"], ["games", "games"]] if MULTIUSER else [["nobody", "nogroup"], ["games", "games"]]

# A client keeps the blocks of an open file that it removed, under another name. In version 3 times end in 2106.
OF_NFS = {"unlink::open_file_not_freed"} | ({"utimensat::y2038"} if lab.VERS == "3" else set())
SPECIAL = ("block", "char", "fifo", "socket")
# What Linux' SMB client does itself, with any server (docs/compatibility.md).
OF_CIFS = {
    "keeps changes of a special file in its memory": {
        f"{case}::{kind}"
        for case in ("chmod::change_perm", "chmod::update_ctime", "utimensat::changes_timestamps")
        for kind in SPECIAL
    },
    "sends no mode for a new special file": {
        "mkfifo::permission_bits_from_mode", "mknod::permission_bits_from_mode",
        "mknod::device_files::block", "mknod::device_files::char",
    },
    "shows no time of access before that of the last change": {
        "utimensat::changes_timestamps::regular", "utimensat::changes_timestamps::dir", "utimensat::follow_symlink",
        "utimensat::subsecond", "utimensat::utime_omit", "utimensat::y2038",
    },
}
# By a mount for one user.
OF_CIFS_OF_ONE = {
    "judges the open that makes a file by the owner and mode in the mount's options": {
        "open::uid_gid_eq_euid_egid", "ftruncate::affected_create_flags_only",
        "posix_fallocate::affected_only_create_flags",
    },
    "sends no owner for a new folder": {"mkdir::uid_gid_eq_euid_egid"},
}
# By a mount for many users.
OF_CIFS_OF_MANY = {
    "turns what the server denies into EACCES, never EPERM": {"utimensat::nobody", "utimensat::write_perm"},
    "reserves room in the session of the mount's user, where no other user has a file open": {
        "posix_fallocate::affected_only_create_flags",
    },
}


def known():
    """The cases that fail on every server."""
    if not lab.CIFS:
        return OF_NFS
    return set().union(*OF_CIFS.values(), *(OF_CIFS_OF_MANY if MULTIUSER else OF_CIFS_OF_ONE).values())


def cases(top):
    """The results by the names of the cases, and what is said of those that failed."""
    with open("/tmp/pjdfstest.toml", "w") as f:
        f.write(CONFIGURATION.replace("{users}", str(USERS).replace("'", '"')))
    os.chmod(top, 0o777)
    if MULTIUSER:
        for user, _group in USERS:
            tickets.ticket(user)
    command = (lab.ENV["PJDFSTEST"], "-c", "/tmp/pjdfstest.toml", "-p", top)
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=400, cwd="/tmp")
    result = r"^(\S+::\S+)\s+(ok|FAILED|skipped.*)$((?:\n(?:\t| {1,2}(?:left|right):).*)*)"
    results = re.findall(result, done.stdout, re.MULTILINE)
    must(len(results) > 300, f"{len(results)} results: {done.stdout[-300:]} {done.stderr[-300:]}")
    return results


def passes(result, said):
    must(result != "FAILED", " ".join(said.split()))


def fails(result):
    must(result == "FAILED", "passes now: take it off the list")


def job(top):
    known_cases = known()
    for name, result, said in cases(top):
        if name in known_cases and lab.CIFS:
            check(f"pjdfstest/{name} fails", fails, result)
        elif name not in known_cases and not result.startswith("skipped"):
            check(f"pjdfstest/{name}", passes, result, said)
