"""A gateway whose libwbclient fails in all ways: winbind_double.c, which this script compiles, in place of Samba's library.

    unshare -n -m -p -f --kill-child python3 winbind_faults.py GATEWAY FOLDER

For each fault: a logon by password of the domain ends in time, local accounts log on at once, `/readyz` and `/status` say what is
wrong, and all is well again without a restart when the fault is over. Prints `ok NAME` or `not ok NAME: WHY`.
"""

import concurrent.futures
import hashlib
import hmac
import json
import os
import subprocess
import sys
import time
import urllib.request

import smb_servers
from smb_clients import run
from smb_servers import write

HOST, ADMIN = "127.0.0.1", "127.0.0.1:9445"
PASSWORD = "secret"
# MD4 of the password in UTF-16, which libraries compute no more (MS-NLMP section 3.3.1).
NT_HASH = "878d8014606cda29677a44efa1353fc7"
DOMAIN, LOCAL = r"LAB\alice", r".\local"
NAMELESS = "S-1-5-21-1-2-3-9999"
SID, NUMBER, LOCAL_ID = "S-1-5-21-1-2-3-1103", 101103, 3001
# Seconds: of a logon by the domain (docs/active-directory.md) with what a client needs, of another logon, and until all is well.
DOMAIN_MAX, LOCAL_MAX, HEALS = 12, 4, 20
# Seconds for a list with six names, of which each may take three.
LISTED_MAX = 25
# Questions of logons that may be open at once, and more of them.
LOGONS = 24
CONFIG = """bind: 127.0.0.1
admin: %(admin)s
rdma: off
nfs: {portmap: off}
shares:
  - {name: data, path: %(at)s/data, access: {write: ["*"]}}
domain: {by: winbind}
users: [{name: local, uid: 3001, password_file: %(at)s/password}]
"""
# Faults of all functions at once: none answers.
SILENT = ("hang", "down", "fail")
# Each function with its faults. The watch sees those of `details` and `domain`.
WATCHED = [("details", fault) for fault in ("hang", "down", "fail", "null")] + [("domain", "hang"), ("domain", "fail")]
OF_LOGONS = [("logon", fault) for fault in ("hang", "down", "fail", "null", "empty", "huge")]
OF_LOGONS += [("numbers", fault) for fault in ("hang", "down", "fail", "null", "huge")]
HARMLESS = [(function, fault) for function in ("names", "lookup", "sids", "ping")
            for fault in ("hang", "fail", "null", "empty", "huge")]
HARMLESS += [(function, fault) for function in ("trusts", "domain", "details") for fault in ("empty", "huge")] + [("*", "slow")]
HARMLESS += [("trusts", fault) for fault in ("null", "hang", "fail")]


OF_CHECKS = [("groups", fault) for fault in ("hang", "down", "fail", "null", "empty", "huge")] + [("*", "hang"), ("*", "down")]
# Seconds of `headgate check --user`: for domain, names, numbers and groups, one after the other.
CHECK_MAX = 30


class World:
    at = process = None


def says(*faults):
    """Lets functions fail from now on."""
    path = os.path.join(World.at, "double")
    write(path + ".new", "".join("%s %s\n" % fault for fault in faults))
    os.rename(path + ".new", path)


def fetched(path):
    with urllib.request.urlopen("http://%s%s" % (ADMIN, path), timeout=5) as answer:
        return answer.status, answer.read().decode()


def logon(user, commands="ls"):
    """Returns what smbclient says, and the seconds."""
    began = time.monotonic()
    words = ["smbclient", "//%s/data" % HOST, "-U", "%s%%%s" % (user, PASSWORD), "-t", "60", "-c", commands]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=90, cwd=World.at)
    return (done.stdout + done.stderr).decode(errors="replace"), time.monotonic() - began


def is_in(said):
    return "blocks available" in said


def check(name, ask, *args):
    try:
        why = ask(*args)
    except Exception as error:  # noqa: BLE001: what a client says is the result
        why = "%s %s" % (type(error).__name__, error)
    if World.process.poll() is not None:
        why = "the gateway ended: %s" % World.process.returncode
    print("not ok winbind-faults/%s: %s" % (name, " ".join(why.split())) if why else "ok winbind-faults/%s" % name, flush=True)
    if World.process.poll() is not None:
        sys.exit(1)


def until(seconds, is_so):
    ends = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > ends:
            return False
        time.sleep(0.1)
    return True


def is_ready():
    try:
        return fetched("/readyz") == (200, "ready\n")
    except OSError:
        # It may listen for clients a little before it does so at the admin address.
        return False


def local_is_quick():
    said, took = logon(LOCAL)
    return None if is_in(said) and took < LOCAL_MAX else "local: %.1f s: %s" % (took, said)


def heals():
    """All is well again."""
    says()
    if not until(HEALS, is_ready):
        return "not ready after the fault: %s" % (fetched("/readyz"),)
    said = ""

    def logs_on():
        nonlocal said
        said = logon(DOMAIN)[0]
        return is_in(said)

    return None if until(HEALS, logs_on) else "after the fault: " + said


def is_known():
    """Readiness and status tell the fault, and no logon waits any more."""
    if not until(HEALS, lambda: "cannot log on with passwords" in fetched("/readyz")[1]):
        return "ready: %s" % (fetched("/readyz"),)
    told = json.loads(fetched("/status")[1])["domain"]
    if told["answers"] or not told["why_not"]:
        return "status: %s" % told
    said, took = logon(DOMAIN)
    if is_in(said) or took > LOCAL_MAX:
        return "while it is known: %.1f s: %s" % (took, said)
    return local_is_quick() or heals()


def silent(*faults):
    """No question is answered: the watch finds out."""
    says(*faults)
    said, took = logon(DOMAIN)
    if is_in(said) or "NT_STATUS_LOGON_FAILURE" not in said or took > DOMAIN_MAX:
        return "%.1f s: %s" % (took, said)
    return is_known()


def watched(function, fault):
    """The watch finds out, whatever else is answered."""
    says((function, fault))
    return is_known()


def of_logons(function, fault):
    """Many logons at once: each ends in time, and is refused; others log on meanwhile."""
    # Its numbers are kept from earlier logons, and that it has none for minutes.
    is_kept = function == "numbers" and fault in ("null", "huge")
    if function == "numbers":
        restart()
    says((function, fault))
    with concurrent.futures.ThreadPoolExecutor(LOGONS) as pool:
        asked = [pool.submit(logon, DOMAIN) for _ in range(LOGONS)]
        time.sleep(0.5)
        why = local_is_quick()
        told = [one.result() for one in asked]
    wrong = ["%.1f s: %s" % (took, said) for said, took in told if is_in(said) or took > 2 * DOMAIN_MAX]
    if is_kept:
        restart()
    return why or (wrong[0] if wrong else None) or heals()


def cacls(user, file, *words):
    """Runs smbcacls; returns whether it succeeds, what it says, and the seconds."""
    began = time.monotonic()
    words = ["smbcacls", "//%s/data" % HOST, file, "-U", "%s%%%s" % (user, PASSWORD), *words]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=90)
    return done.returncode == 0, done.stdout + done.stderr, time.monotonic() - began


def is_asked(function):
    with open(os.path.join(World.at, "double.asked")) as asked:
        return function in asked.read().split()


def harmless(function, fault):
    """Passwords do not need the function. Lists of files are shown in time, as names, SIDs or numbers."""
    # Nothing is kept, and alice has not logged on.
    restart()
    says((function, fault))
    write(os.path.join(World.at, "double.asked"), "", 0o666)
    if function in ("names", "sids", "ping"):
        # The list has an entry of a SID without a name.
        _, said, took = cacls(LOCAL, "its")
        owner = [line for line in said.splitlines() if line.startswith("OWNER:")]
        unknown = r"OWNER:Unix User\%d" % NUMBER, "OWNER:S-1-22-1-%d" % NUMBER
        known = r"OWNER:LAB\alice", "OWNER:" + SID
        wanted = unknown if function == "sids" else known
        if len(owner) != 1 or owner[0] not in wanted or took > LISTED_MAX:
            return "%.1f s: %s" % (took, said)
    if function == "lookup":
        is_set, said, took = cacls(LOCAL, "own", "-a", r"ACL:LAB\alice:ALLOWED/0x0/READ")
        if is_set or took > LISTED_MAX:
            return "%.1f s: it is set: %s" % (took, said)
    said, took = logon(DOMAIN)
    if not is_in(said) or took > DOMAIN_MAX:
        return "%.1f s: %s" % (took, said)
    if function != "*" and not until(HEALS, lambda: is_asked(function)):
        return "the function is not called"
    return local_is_quick() or heals()


def checked(function=None, fault=None):
    """`check --user` says in time what the user may do, and which groups it has or why that is unknown."""
    says(*([(function, fault)] if fault else []))
    config, state = (os.path.join(World.at, "gateway", name) for name in ("gateway.yaml", "state"))
    for user in (DOMAIN, "alice@lab.test", "alice"):
        began = time.monotonic()
        words = [World.program, "check", "--json", "--config", config, "--state", state, "--user", user]
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=90)
        took = time.monotonic() - began
        # Without the name of the domain, which tickets alone leave in the state, no name is one of the domain.
        if function == "*" and done.returncode == 1 and "winbind does not answer" in done.stderr and took < CHECK_MAX:
            continue
        if done.returncode != 0 or took > CHECK_MAX:
            return "%s, %.1f s: %s%s" % (user, took, done.stdout, done.stderr)
        told = json.loads(done.stdout)
        domain, smb = told["domain"], told["shares"][0]["smb"]
        way = "by a password: " if not fault else "by a password, without its groups: "
        group = {"sid": SID.replace("1103", "513"), "name": r"LAB\Domain Users"}
        is_so = domain["groups"] == [group] and domain["are_new"]
        if fault:
            is_so = domain["groups"] is None and domain["why_not"]
        if not is_so or told["uid"] != NUMBER or smb["may"] != "write" or not smb["because"].startswith(way):
            return "%s: %s" % (user, done.stdout)
    return heals() if fault else None


def never():
    """Calls that never return keep their threads, and no more than the part of this address."""
    says(("logon", "never"))
    for _ in range(3):
        with concurrent.futures.ThreadPoolExecutor(LOGONS) as pool:
            told = list(pool.map(lambda _: logon(DOMAIN), range(LOGONS)))
        wrong = ["%.1f s: %s" % (took, said) for said, took in told if is_in(said) or took > 2 * DOMAIN_MAX]
        if wrong:
            return wrong[0]
    # Its part is held: nothing waits.
    said, took = logon(DOMAIN)
    if is_in(said) or took > LOCAL_MAX:
        return "at the limit: %.1f s: %s" % (took, said)
    why = local_is_quick()
    restart()
    return why or heals()


def start():
    at = os.path.join(World.at, "gateway")
    os.makedirs(at, exist_ok=True)
    World.process = smb_servers.gateway(World.program, at, HOST, CONFIG % {"admin": ADMIN, "at": World.at})
    until(HEALS, is_ready)


def restart():
    says()
    World.process.kill()
    World.process.wait()
    start()


def main():
    World.program, World.at = sys.argv[1:]
    run("ip", "link", "set", "lo", "up")
    os.mkdir(os.path.join(World.at, "data"))
    os.chmod(os.path.join(World.at, "data"), 0o777)
    os.chmod(World.at, 0o755)
    write(os.path.join(World.at, "password"), PASSWORD, 0o600)
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "winbind_double.c")
    library = os.path.join(World.at, "libwbclient.so.0")
    run("cc", "-Wall", "-O1", "-shared", "-fPIC", "-o", library, source, "-lcrypto")
    key = hmac.new(bytes.fromhex(NT_HASH), "ALICELAB".encode("utf-16-le"), hashlib.md5).hexdigest()
    # The gateway alone gets the library: Samba's clients have their own functions of the same names.
    script = '#!/bin/sh\nexec env LD_LIBRARY_PATH=%s DOUBLE=%s DOUBLE_KEY=%s %s "$@"\n'
    script %= (World.at, os.path.join(World.at, "double"), key, World.program)
    World.program = write(os.path.join(World.at, "program"), script, 0o755)
    says()
    start()
    check("answers", heals)
    said, _ = logon(DOMAIN, "put password its; ls")
    found = os.stat(os.path.join(World.at, "data/its")).st_uid if is_in(said) else said
    check("its number", lambda: None if found == NUMBER else "%s" % found)
    is_set, said, _ = cacls(DOMAIN, "its", "-a", "ACL:%s:ALLOWED/0x0/READ" % NAMELESS)
    logon(LOCAL, "put password own")
    check("entry without a name", lambda: None if is_set else said)
    for fault in SILENT:
        check("all/" + fault, silent, ("*", fault))
    for judge, faults in ((watched, WATCHED), (of_logons, OF_LOGONS), (harmless, HARMLESS)):
        for function, fault in faults:
            check("%s/%s" % (function, fault), judge, function, fault)
    check("check", checked)
    for function, fault in OF_CHECKS:
        check("check/%s/%s" % (function, fault), checked, function, fault)
    check("logon/never", never)
    World.process.terminate()
    World.process.wait(30)


main()
