"""Runs the jobs named in $JOBS in this guest: the server first if it lives here, then the RDMA device, then the mount.

$JOBS      names of modules beside this one, in order; each has `job(top)`, `top` being a folder of its own on the mount
$VERS, $PROTO, $LABEL, $SERVER, $MOUNTPORT    see lab.py
$KIND      `nfs` or `cifs`; $OPTIONS are further options of the mount
$BACKEND   `host` (the gateway is on the host side of vec0), or a server in this guest: `knfsd`, `ksmbd`, `headgate`
$ROUTER    given where the gateway is in one guest and its clients are in this and in another: the way to the other
$DEVICE    the kind of RDMA device, `siw` or `rxe`; $RDMA is who serves RDMA where the gateway is in this guest
"""

import contextlib
import importlib
import os
import re
import socket
import sys
import time

import lab
import servers
from lab import ENV, check, must



def counters_are_sound():
    """The transport never met a reply it could not use, and bulk went by RDMA."""
    if lab.CIFS:  # It keeps none per mount; the gateway's own tell.
        return
    c = lab.xprt_counters(lab.TOP)
    if lab.PROTO != "rdma":
        return
    for name in ("bad_reply", "bad_xids"):
        lab.must_equal(c[name], 0, name)
    # What is signed or encrypted goes whole: as long calls and replies (RFC 8166 section 3.4.1). So does what the client takes for
    # that by a flag it never cleared (docs/kerberos.md).
    with open("/proc/cmdline") as f:
        stale = "slub_debug=P" in f.read().split()
    whole = stale or any(sec in ENV.get("OPTIONS", "") for sec in ("krb5i", "krb5p"))
    must(c["read_chunks"] > 0 and c["reply_chunks" if whole else "write_chunks"] > 0, f"no chunks used: {c}")
    must(not whole or c["write_chunks"] == 0, f"placed directly: {c}")


def kernel_is_content():
    """Nothing in the kernel's log says that something is wrong with the transport or the file system."""
    bad = re.compile(r"BUG:|WARNING:|Oops|nfs.*reclaim|rpcrdma:.*fail|siw:.*(err|fail)|NFS:.*(error|unexpected)"
                     r"|CIFS:.*(bad|invalid |illegal|mismatch|corrupt)|cifs.*signature")
    lines = [line for line in lab.run("dmesg").splitlines() if bad.search(line) and not client_drains(line)]
    must(not lines, " / ".join(lines[:3]))


def client_drains(line):
    """Linux' SMB Direct client drains the queue pair of a server that has gone; the kernel warns when it is in the wrong state
    for that. Nothing else follows."""
    return lab.CIFS and "TROUBLE" in ENV and "__ib_drain_" in line


def has_closed():
    """No connection to the port of SMB is open here (proc(5), /proc/net/tcp: 01 is ESTABLISHED)."""
    with open("/proc/net/tcp") as f:
        return not any(fields[2].endswith(":01BD") and fields[3] == "01" for fields in map(str.split, f))


def far_client_ended():
    servers.trouble_of_others()
    return os.path.exists("/scratch/over")


def main():
    netdev = servers.netdev()
    if lab.PROTO == "rdma":
        servers.add_device(netdev)
    if os.path.exists("/scratch/krb5"):
        servers.realm()
    if "TLSHD" in ENV:
        servers.handshakes()
    local = servers.start()
    if "multichannel" in ENV["JOBS"]:
        importlib.import_module("multichannel").second_network()
    if lab.PROTO == "rdma":
        # The first address resolution of a new device fails: SMB gives it no second chance, NFS waits for 5 s. So the neighbor is
        # found by TCP.
        with contextlib.suppress(ConnectionRefusedError):
            socket.create_connection((lab.SERVER, 445), 10).close()
    if lab.V3_LOCKS:
        servers.lock_services()
    if os.path.exists("/scratch/krb5"):
        servers.tickets()
    far = "ROUTER" in ENV and servers.is_here()  # The jobs are those of another guest, which waits for this one.
    # Where the device goes away no client is here: its kernel would have to let go of the device as well.
    alone = far and "TROUBLE" in ENV
    if not alone and not check("mount", lab.mount, lab.TOP):
        print(lab.run("dmesg")[-600:])
        return 1
    if far:
        lab.tell_host("serving")
    jobs = ENV["JOBS"].split(",") if ENV["JOBS"] else []
    for name in jobs:
        began = time.monotonic()
        top = os.path.join(lab.TOP, f"{lab.LABEL}-{name}")
        os.makedirs(top, exist_ok=True)
        try:
            importlib.import_module(name).job(top)
        except Exception as e:  # A job that breaks off is one failed check; the next job still runs.
            check(f"{name}/goes-through", lambda: (_ for _ in ()).throw(e))
        print(f"@took {lab.LABEL}/{name} {time.monotonic() - began:.1f}")
    if far:
        check("far-client-ends", lab.wait_until, far_client_ended, "the other guest", 400)
        check("trouble", servers.trouble_is_over)
    if "sizes" in jobs:
        check("client-counters", counters_are_sound)
    if not alone:
        check("unmount", lab.umount, lab.TOP)
        with contextlib.suppress(lab.Failed):
            # A thread of the kernel closes what SMB went by, later; a guest that is switched off first leaves the server waiting.
            lab.wait_until(has_closed, "connections to be closed", 5)
    check("kernel-log", kernel_is_content)
    if servers.gateway:
        check("gateway-stops", servers.stop)
    if local:
        servers.compare(local)
    return 1 if lab.failures else 0


sys.exit(main())
