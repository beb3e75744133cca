"""What the gateway's `status` tells of this client: what it is, and why it is not on RDMA or gave up direct placement there."""

import json
import os
import urllib.request

import lab
import servers
from lab import check, must, must_equal, wait_until

AT = "/mnt/told"
OPTIONS = lab.ENV.get("OPTIONS", "").split(",")


def connections():
    """Those of this protocol, as the admin address tells them."""
    host = "127.0.0.1" if servers.is_here() else lab.SERVER
    with urllib.request.urlopen(f"http://{host}:9464/status", timeout=60) as answer:
        every = json.load(answer)["connections"]
    # A guest beside this one has an address of its own, and MOUNT and the lock manager are asked over TCP whatever carries NFS.
    protocol = "smb" if lab.CIFS else "nfs"
    by = "tcp" if lab.PROTO == "tcp" else lab.ENV.get("RDMA", "iwarp")
    return [c for c in every if c["protocol"] == protocol and c["transport"] == by]


def reasons():
    return {c["why_not"]["reason"] if c["why_not"] else None for c in connections()}


def facts(name):
    return {value for c in connections() for known, value in c["facts"] if known == name}


def client():
    release = os.uname().release
    if lab.CIFS:
        # Its NTLM tells the two numbers of the kernel.
        wanted = "Linux " + ".".join(release.split(".")[:2])
    elif lab.VERS == "4.0":
        wanted = "Linux"
    else:
        wanted = f"Linux {release}"
    must(wanted in facts("client"), f"{facts('client')} does not name {wanted}")


def reason():
    if lab.PROTO == "rdma":
        wanted = "encrypted" if "seal" in OPTIONS else "signed" if "sign" in OPTIONS and lab.CIFS else None
    elif not lab.CIFS:
        wanted = "mounted-tcp"
    else:
        # From 7.0 on this client always announces several channels, since a remount may add some, and asks for addresses.
        asks = int(os.uname().release.split(".")[0]) >= 7
        wanted = "dialect" if lab.VERS.startswith("2") else "not-tried" if asks else "no-multichannel"
    must_equal(reasons(), {wanted}, "reasons")


def told_of_rdma_and_not_tried():
    """With several channels this client asks where the server is, is told of RDMA, and makes none there by TCP."""
    lab.mount(AT, extra="multichannel,max_channels=2,nosharesock")
    try:
        wait_until(lambda: "not-tried" in reasons(), f"not-tried among {reasons()}")
    finally:
        lab.umount(AT)


def job(_top):
    if lab.ENV.get("BACKEND") in ("knfsd", "ksmbd"):
        return
    # The last word may come from jobs before: connections that they made end by and by.
    if lab.CIFS or lab.VERS != "3":
        check("told/client", client)
    check("told/reason", reason)
    if lab.CIFS and lab.PROTO == "tcp" and lab.VERS == "3.1.1" and OPTIONS == [""]:
        check("told/not-tried", told_of_rdma_and_not_tried)
