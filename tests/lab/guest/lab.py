"""What every job of the lab uses: checks, mounts, manifests, and words to the host.

The console is the way to the host. Lines that mean something there:
  ok NAME | not ok NAME: WHY    one check
  @at NAME                      a check begins; names the culprit if the guest hangs
  @host WORDS                   asks the host to do something now (kill the gateway, cut the connections)
Everything else is shown to people only.
"""

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import share  # noqa: E402

ENV = os.environ
CIFS = ENV.get("KIND") == "cifs"
VERS = ENV.get("VERS", "3")
PROTO = ENV.get("PROTO", "tcp")
TOP = "/mnt/share"
LABEL = ENV.get("LABEL", f"v{VERS}-{PROTO}")
SERVER = ENV.get("SERVER", "10.77.0.1")
# What is mounted: a ticket is for a name.
SERVER_NAME = ENV.get("SERVER_NAME", SERVER)
V4 = VERS.startswith("4") and not CIFS
LINUX = tuple(map(int, os.uname().release.split(".")[:2]))
# This client (seen with 6.1) makes no symbolic links and special files by SMB and sends no chmod, and a file that it writes beyond
# the end of has no hole.
OLD_CIFS = CIFS and LINUX < (6, 12)
# Version 3 has locks by programs of their own, which find each other by port 111: the gateway's answers there.
HAS_PORTMAP = ENV.get("BACKEND", "host") == "host"
V3_LOCKS = VERS == "3" and not CIFS and HAS_PORTMAP and "nolock" not in ENV.get("OPTIONS", "")
# There a hole is data, and nothing is reserved or copied within the cluster (docs/ceph.md).
ON_CEPH = ENV.get("FS") == "ceph"
# The gateway's SMB user, mapped to root: what the jobs make belongs to root, as it does by NFS.
USER, PASSWORD = "root", "pass"

# Seconds: no check takes so long, and the host ends the guest a good while after it.
STANDS_STILL = 400

failures = 0


class Failed(Exception):
    """A check found something wrong."""


class Differs(Failed):
    """Data is not what was written. The host never takes that for chance."""


def must(condition, why):
    if not condition:
        raise Failed(why)


def must_equal(found, wanted, what="value"):
    if found != wanted:
        kind = Differs if isinstance(wanted, bytes) else Failed
        raise kind(f"{what}: {shorten(found)}, wanted {shorten(wanted)}")


def must_hold(found, wanted, what):
    """What was made of the data of a file is what was written to it."""
    if found != wanted:
        raise Differs(f"{what}: {shorten(found)}, wanted {shorten(wanted)}")


def must_raise(codes, call, *args, **kwargs):
    """The call fails with this errno, or with one of these."""
    codes = codes if isinstance(codes, tuple) else (codes,)
    wanted = " or ".join(map(os.strerror, codes))
    try:
        call(*args, **kwargs)
    except OSError as e:
        return must(e.errno in codes, f"{e.strerror}, wanted {wanted}")
    raise Failed(f"succeeded, wanted {wanted}")


def shorten(value):
    text = repr(value)
    return text if len(text) < 120 else f"{text[:110]}... ({len(value) if hasattr(value, '__len__') else ''})"


def check(name, call, *args):
    """Runs one check and prints its line. True if it passed."""
    global failures
    name = f"{LABEL}/{name}"
    print(f"@at {name}")
    watch = threading.Timer(STANDS_STILL, show_who_waits)
    watch.start()
    try:
        call(*args)
    except Exception as e:  # A job goes on after a failed check: the other lines tell more.
        failures += 1
        where = traceback.extract_tb(e.__traceback__)[-1]
        print(f"not ok {name}: {type(e).__name__}: {e} ({os.path.basename(where.filename)}:{where.lineno})")
        return False
    finally:
        watch.cancel()
    print(f"ok {name}")
    return True


def show_who_waits():
    """For a check that stands still: which programs wait, and for what in the kernel."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # It has ended.
            words = pread_all(f"/proc/{pid}/cmdline").replace(b"\0", b" ").decode(errors="replace")[:150]
            if words:  # Threads of the kernel have none.
                for thread in os.listdir(f"/proc/{pid}/task"):
                    state = pread_all(f"/proc/{pid}/task/{thread}/stat").rpartition(b")")[2].split()[0].decode()
                    at = pread_all(f"/proc/{pid}/task/{thread}/wchan").decode()
                    print(f"stands still: {thread} {state} {at or '?'}: {words}")
    print(subprocess.run(["dmesg"], capture_output=True, text=True, timeout=60).stdout[-1500:])


def tell_host(words):
    print(f"@host {words}")


def run(*command, timeout=60):
    """Runs a program; its output. Fails with what it said."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    must(done.returncode == 0, f"{' '.join(command)}: {done.returncode}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def wait_until(condition, what, limit=60):
    end = time.monotonic() + limit
    while not condition():
        must(time.monotonic() < end, f"{what}: not within {limit} s")
        time.sleep(0.05)


def options(vers=VERS, proto=PROTO, extra="" if CIFS else ENV.get("OPTIONS", ""), port=None, mountport=None):
    """The mount options of a server that answers MOUNT on the NFS port."""
    port = port or ENV.get("PORT", "20049" if proto == "rdma" else "2049")
    text = f"vers={vers},proto={proto},port={port}"
    if vers == "3":
        text += f",mountproto=tcp,mountport={mountport or ENV.get('MOUNTPORT', '2049')}"
        text += "" if HAS_PORTMAP or "nolock" in extra else ",nolock"
    return f"{text},{extra}" if extra else text


def cifs_options(vers=VERS, proto=PROTO, extra=ENV.get("OPTIONS", ""), user=USER, password=PASSWORD, port=None):
    # The kernel dials SMB Direct on the port of its device's fabric, whatever `port` says.
    port = "rdma" if proto == "rdma" else f"port={port or ENV.get('PORT', '445')}"
    secret = "" if "sec=krb5" in extra else f"password={password},"
    text = f"username={user},{secret}vers={vers},{port},iocharset=utf8"
    return f"{text},{extra}" if extra else text


def mount_command(at, path="/data", server=SERVER_NAME, cifs=CIFS, **how):
    """What mounts a share, by the protocol of this run unless told otherwise."""
    if cifs:
        return ("mount", "-t", "cifs", "-o", cifs_options(**how), f"//{server}{path}", at)
    return ("mount", "-t", "nfs", "-o", options(**how), f"{server}:{path}", at)


def mount(at, path="/data", **how):
    os.makedirs(at, exist_ok=True)
    run(*mount_command(at, path, **how), timeout=40)
    return at


def umount(at):
    run("umount", at, timeout=40)


def drop_caches():
    """Reads after this come from the server."""
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w") as f:
        f.write("3")


def pread_all(path):
    with open(path, "rb", buffering=0) as f:
        return f.read()


def leave(name, top, *paths):
    """Writes a manifest of these trees of the mount: the host compares it with the share's folder."""
    entries = {}
    for path in paths:
        entries.update(share.describe_tree(top, path))
    if CIFS:
        # Who owns a file, and its mode, are the mount's own invention there; times it takes from the server a little later.
        for entry in entries.values():
            for key in ("mode", "uid", "gid", "nlink", "mtime"):
                entry.pop(key, None)
    os.makedirs("/scratch/manifests", exist_ok=True)
    file = f"/scratch/manifests/{LABEL}-{name}.json"
    with open(file, "w") as f:
        json.dump({"name": f"{LABEL}/{name}-on-server", "entries": entries}, f)


def mount_stats(at):
    """The lines of mountstats for one mount, as words."""
    here = False
    with open("/proc/self/mountstats") as f:
        for line in f:
            if line.startswith("device "):
                here = f" mounted on {at} " in line
            elif here and line.strip():
                yield line.split()


def calls(at, operation):
    """How often one mount has called this operation."""
    return sum(int(words[1]) for words in mount_stats(at) if words[0] == f"{operation}:")


def xprt_counters(at):
    """The client's own counters of one RDMA mount, by the kernel's names (net/sunrpc/xprtrdma, mountstats)."""
    names = (
        "port bind connect connect_time idle sends recvs bad_xids req_u bklog_u read_chunks write_chunks reply_chunks "
        "rdma_request_bytes rdma_reply_bytes pullup_copies fixup_copies hardway_registers failed_marshal bad_reply"
    ).split()
    for words in mount_stats(at):
        if words[0] == "xprt:":
            _, kind, *numbers = words
            must_equal(kind, PROTO, "transport in mountstats")
            return dict(zip(names, map(int, numbers))) if kind == "rdma" else {}
    raise Failed(f"no transport of {at} in mountstats")
