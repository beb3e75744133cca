"""Servers that live in the guest itself: the kernel's own (a reference for the jobs), and the gateway (to measure it
beside the kernel's, and to serve XFS, which the host may not have)."""

import glob
import os
import subprocess
import time

import lab
import share
from lab import ENV, run

FOLDER = "/data"
ADDRESS = "10.88.0.1"
# The kernel's NFS server, where it stands beside the gateway.
PEER_FOLDER = "/peer"
PEER_PORT = "20049"
PEER_MOUNT_PORT = "20048"


def is_here():
    return ENV.get("BACKEND", "host") != "host"


def netdev():
    """The device towards the server. RDMA over the loopback device is refused by the client, over a dummy it is not."""
    if not is_here():
        return "vec0"
    run("ip", "link", "add", "here", "type", "dummy")
    run("ip", "addr", "add", f"{ADDRESS}/24", "dev", "here")
    run("ip", "link", "set", "here", "up")
    return "here"


def mount_as_other_client(at):
    """The share, mounted by TCP in another network namespace and under another host name: to the server this is another
    client. Its device is vec1, or half a pair of virtual ones where the server is in this guest."""
    run("ip", "netns", "add", "other")
    if is_here():
        run("ip", "link", "add", "near", "type", "veth", "peer", "name", "far", "netns", "other")
        run("ip", "addr", "add", "10.89.0.1/24", "dev", "near")
        run("ip", "link", "set", "near", "up")
        device, server, address = "far", "10.89.0.1", "10.89.0.2"
    else:
        run("ip", "link", "set", "vec1", "netns", "other")
        device, server, address = "vec1", "10.77.1.1", "10.77.1.2"
    run("ip", "-n", "other", "addr", "add", f"{address}/24", "dev", device)
    run("ip", "-n", "other", "link", "set", device, "up")
    os.makedirs(at)
    # Locks of version 3 meet those of version 4.
    how = {"extra": "actimeo=0"} if lab.CIFS else {"vers": "4.2"} if lab.V3_LOCKS else {}
    command = " ".join(lab.mount_command(at, FOLDER, server, proto="tcp", **how))
    run("nsenter", "--net=/run/netns/other", "unshare", "--uts", "sh", "-c", f"hostname other && {command}")


def lock_services():
    """What a client of version 3 runs to lock: its kernel tells rpcbind where its lock manager is, and the status monitor is
    told when the server was restarted."""
    run("rpcbind", "-w")
    run("rpc.statd", "--no-notify")


def file_system():
    """A real file system in a sparse file of the host: $FS is ext4 or xfs, or tmpfs."""
    kind = ENV.get("FS", "ext4")
    os.makedirs(FOLDER, exist_ok=True)
    if kind == "tmpfs":
        run("mount", "-t", "tmpfs", "-o", "size=1200M", "share", FOLDER)
    else:
        image = f"/scratch/{lab.LABEL}.img"
        run("truncate", "-s", "3G", image)
        run(f"mkfs.{kind}", "-q", image)
        run("mount", "-o", "loop", image, FOLDER)
    share.populate(FOLDER)
    for folder, mode in (("/ro", 0o755), ("/squashed", 0o755), ("/squashed/open", 0o777), ("/squashed/closed", 0o700)):
        os.makedirs(folder)
        os.chmod(folder, mode)
    write("/ro/readme", "to be read\n")
    os.makedirs("/small")
    run("mount", "-t", "tmpfs", "-o", "size=16M", "small", "/small")


def start():
    """The folder served, or None when the server is on the host."""
    if not is_here():
        return None
    if ENV["BACKEND"] == "both":
        both()
        return None
    file_system()
    {"knfsd": knfsd, "ksmbd": ksmbd, "headgate": headgate}[ENV["BACKEND"]]()
    return FOLDER


def both():
    """The gateway and the kernel's NFS server, each on a file system in memory and on ports of its own."""
    for folder in (FOLDER, PEER_FOLDER):
        os.makedirs(folder, exist_ok=True)
        run("mount", "-t", "tmpfs", "-o", "size=300M", "share", folder)
    kernel_server()
    run("exportfs", "-o", f"rw,no_root_squash,{EXPORT},fsid=7", f"*:{PEER_FOLDER}")
    serve([f"data={FOLDER},squash=none"], "--bind", ADDRESS, "--nfs-port", "2149", "--nfs-rdma-port", "20149")
    ENV.update(PORT="20149", MOUNTPORT="2149")


EXPORT = "insecure,no_subtree_check"


def knfsd():
    kernel_server()
    run("exportfs", "-o", f"rw,no_root_squash,{EXPORT},fsid=7", f"*:{FOLDER}")
    run("exportfs", "-o", f"ro,no_root_squash,{EXPORT},fsid=8", "*:/ro")
    run("exportfs", "-o", f"rw,{EXPORT},fsid=9", "*:/squashed")
    run("exportfs", "-o", f"rw,no_root_squash,{EXPORT},fsid=10", "*:/small")
    ENV["MOUNTPORT"] = PEER_MOUNT_PORT


def kernel_server():
    run("mount", "-t", "nfsd", "nfsd", "/proc/fs/nfsd")
    run("mount", "-t", "rpc_pipefs", "pipefs", "/var/lib/nfs/rpc_pipefs")
    run("rpcbind", "-w")
    run("rpc.mountd", "-p", PEER_MOUNT_PORT)
    for file, value in (("nfsv4leasetime", "10"), ("nfsv4gracetime", "10")):
        write(f"/proc/fs/nfsd/{file}", value)
    run("rpc.nfsd", "4")
    write("/proc/fs/nfsd/v4_end_grace", "Y")
    write("/proc/fs/nfsd/portlist", f"rdma {PEER_PORT}")


def ksmbd():
    conf, users = "/tmp/ksmbd.conf", "/tmp/ksmbd.users"
    share = "path = {}\n read only = no\n store dos attributes = yes\n vfs objects = streams_xattr\n"
    text = "[global]\n server multi channel support = yes\n interfaces = here\n durable handles = yes\n smb2 leases = yes\n"
    write(conf, text + "".join(f"[{name}]\n {share.format(f)}" for name, f in (("data", FOLDER), ("small", "/small"))))
    run("ksmbd.adduser", "-i", users, "-a", lab.USER, "-p", lab.PASSWORD, "-c", conf)
    run("ksmbd.mountd", "-c", conf, "-u", users)
    time.sleep(1)


def headgate():
    serve((f"data={FOLDER},squash=none", "ro=/ro,ro,squash=none", "squashed=/squashed", "small=/small"))


def serve(shares, *options):
    log = "/scratch/headgate.log"
    command = ["/scratch/headgate", "serve", "--state", "/tmp/state", *options]
    for spec in shares:
        command += ["--share", spec]
    with open(log, "w") as f:
        subprocess.Popen(command, stdout=f, stderr=subprocess.STDOUT)
    lab.wait_until(lambda: b"headgate ready" in lab.pread_all(log), "headgate ready")


def compare(folder):
    """What the host does where it holds the folder: the manifests against what the server's side sees."""
    names = sorted(glob.glob("/scratch/manifests/*.json"))
    if share.compare(folder, names):
        lab.failures += 1


def write(path, text):
    with open(path, "w") as f:
        f.write(text)
