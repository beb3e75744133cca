"""Kerberos as the users of one mount meet it: each has the rights of its own ticket; tickets end and are renewed in the middle of
a copy; the KDC goes away; the keys of the server change. By NFS with the kernel's rpc.gssd, by SMB with cifs.upcall and
`multiuser`.

The host makes the users of the realm (xtask/src/lab/kerberos.rs); all of them are users of every Debian."""

import errno
import os
import pwd
import subprocess
import sys
import time

import lab
from lab import check, must, must_equal, wait_until

# One that owns, one that does not, one without a ticket, and two that come late.
OWNER, OTHER, NOBODY, LATE, LATER = "games", "man", "lp", "bin", "sys"
# Seconds that a short ticket lasts: rpc.gssd and the kernel take one only if some seconds are left.
SHORT = 25
# What a client says to a program whose ticket has run out.
NO_TICKET = (errno.EACCES, errno.EKEYEXPIRED, errno.ENOKEY, errno.EPERM, errno.EKEYREVOKED, errno.EKEYREJECTED)
# Linux' SMB client connects anew when its session has run out, and where it cannot log on says that the host is down.
NO_TICKET += (errno.EHOSTDOWN,) if lab.CIFS else ()
# And what it says to the one in the middle of a call on an open file, when that finds it out: it is to try again.
NO_MORE_TICKET = NO_TICKET + ((errno.EAGAIN,) if lab.CIFS else ())


def ids(user):
    entry = pwd.getpwnam(user)
    return entry.pw_uid, entry.pw_gid


def ticket(user, seconds=3600):
    """A new ticket for the user, in place of what it had; when it ends, on the clock of this machine, at the latest."""
    uid, gid = ids(user)
    made, cache = f"/tmp/new-ticket-{uid}", f"/tmp/krb5cc_{uid}"
    done = subprocess.run(["kinit", "-l", f"{seconds}s", "-c", f"FILE:{made}", user], input="secret\n", text=True,
                          capture_output=True, timeout=60)
    must_equal(done.returncode, 0, f"kinit {user}: {done.stderr}")
    end = time.time() + seconds + 1
    os.chown(made, uid, gid)
    os.rename(made, cache)
    return end


def as_user(user, script, *args):
    """A program of the user; it ends with the errno of what it could not do."""
    uid, gid = ids(user)
    wrapped = f"import errno, os, sys, time\ntry:\n{indent(script)}\nexcept OSError as e:\n  sys.exit(e.errno)"
    return subprocess.Popen([sys.executable, "-c", wrapped, *args], user=uid, group=gid, extra_groups=[],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/")


def indent(script):
    return "\n".join(f"  {line}" for line in script.strip().splitlines())


def result(program, limit=120):
    """Its exit code and what it said."""
    out, err = program.communicate(timeout=limit)
    return program.returncode, (out + err).strip()


def run_as(user, script, *args):
    return result(as_user(user, script, *args))


def can(user, script, *args):
    code, said = run_as(user, script, *args)
    must(code == 0, f"{user}: {os.strerror(code)} {said}")
    return said


def cannot(user, codes, script, *args):
    code, said = run_as(user, script, *args)
    must(code in codes, f"{user}: {code} {os.strerror(code) if code else 'could'} {said}")


WRITE = """
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT, 0o600)
os.write(fd, sys.argv[2].encode())
os.fsync(fd)
os.close(fd)
"""
READ = "fd = os.open(sys.argv[1], os.O_RDONLY); print(os.read(fd, 100).decode())"
LIST = "os.listdir(sys.argv[1])"
# Writes one block after the other, each on storage, until that time has come; what it could not do ends it.
COPY = """
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT, 0o600)
blocks = 0
while time.time() < float(sys.argv[2]):
  os.write(fd, bytes([blocks % 251]) * 65536)
  os.fsync(fd)
  blocks += 1
  time.sleep(0.02)
os.close(fd)
print(blocks)
"""


def users_apart(top):
    for user in (OWNER, OTHER):
        ticket(user)
    # By SMB a client that knows of no POSIX modes makes no file that is the owner's alone; the folder is.
    path = f"{top}/of-games/own"
    can(OWNER, WRITE, path, "secret of one")
    must_equal(can(OWNER, READ, path), "secret of one")
    cannot(OTHER, (errno.EACCES,), READ, path)
    can(OTHER, WRITE, f"{top}/theirs", "of the other")
    cannot(NOBODY, NO_TICKET, LIST, top)
    if not lab.CIFS:
        must_equal((os.stat(path).st_uid, os.stat(f"{top}/theirs").st_uid), (ids(OWNER)[0], ids(OTHER)[0]), "owners")


def renewed_in_the_middle(top):
    path, end = f"{top}/renewed", ticket(LATE, SHORT)
    program = as_user(LATE, COPY, path, str(end + 10))
    wait_until(lambda: program.poll() is not None or (os.path.exists(path) and os.path.getsize(path) > 65536), "the copy begins")
    ticket(LATE)
    code, said = result(program)
    must_equal(code, 0, f"a copy whose ticket was renewed: {said}")
    blocks = int(said)
    lab.drop_caches()
    with open(path, "rb") as f:
        whole = f.read()
    must(whole == b"".join(bytes([n % 251]) * 65536 for n in range(blocks)), f"{len(whole)} bytes of {blocks} blocks")


def ended_in_the_middle(top):
    path, end = f"{top}/ended", ticket(LATER, SHORT)
    code, said = result(as_user(LATER, COPY, path, str(end + 60)))
    must(code in NO_MORE_TICKET, f"a copy whose ticket ended: {code} {said}")
    must(time.time() > end - 10, "it ended before its ticket")
    cannot(LATER, NO_TICKET, READ, path)
    if lab.V4 and lab.VERS != "4.0":
        # The user has no ticket to close its file with: the machine does, to whose key the client's state is bound.
        wait_until(lambda: not is_open("ended"), "what the user held is given back", 30)
    ticket(LATER)
    wait_until(lambda: run_as(LATER, READ, path)[0] == 0, "a new ticket lets the user in again")
    can(LATER, WRITE, path, "again")


def is_open(name):
    """The gateway tells that somebody holds a file of this name."""
    answer = f"/scratch/files-{time.monotonic_ns()}"
    lab.tell_host(f"order {os.path.basename(answer)} files")
    wait_until(lambda: os.path.exists(answer), "the host's answer")
    with open(answer) as f:
        return name in f.read()


def asked(words):
    """The host does it, and says when it is done."""
    lab.tell_host(words)
    done = f"/scratch/krb5/done {words}"
    wait_until(lambda: os.path.exists(done), words)
    os.remove(done)


def kdc_gone(top):
    asked("kdc stop")
    try:
        can(OWNER, WRITE, f"{top}/without-kdc", "goes on")
        must_equal(can(OWNER, READ, f"{top}/without-kdc"), "goes on")
    finally:
        asked("kdc start")


def keys_changed(top):
    asked("kdc rotate")
    # By the context or the session that it has, and by one that its old ticket for the server would make.
    can(OWNER, WRITE, f"{top}/old-keys", "goes on")
    ticket(NEW_KEYS)
    can(NEW_KEYS, WRITE, f"{top}/new-keys", "let in")
    must_equal(can(NEW_KEYS, READ, f"{top}/new-keys"), "let in")


NEW_KEYS = "mail"


def job(_top):
    # By SMB a folder of root cannot be opened to others from here, so the host made one.
    top = f"{lab.TOP}/everybody"
    check("tickets/users-apart", users_apart, top)
    check("tickets/renewed-in-the-middle", renewed_in_the_middle, top)
    check("tickets/ended-in-the-middle", ended_in_the_middle, top)
    check("tickets/kdc-gone", kdc_gone, top)
    check("tickets/keys-changed", keys_changed, top)
