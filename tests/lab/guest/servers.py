"""Servers that live in the guest itself: the kernel's own (a reference for the jobs), and the gateway (to measure it
beside the kernel's, and to serve XFS, which the host may not have)."""

import contextlib
import glob
import json
import os
import socket
import subprocess
import time
from concurrent import futures

import lab
import share
from lab import ENV, must_equal, run

FOLDER = "/data"
ADDRESS = ENV.get("SERVER", "10.88.0.1")
# The kernel's NFS server, where it stands beside the gateway.
PEER_FOLDER = "/peer"
PEER_PORT = "20049"
PEER_MOUNT_PORT = "20048"


# The gateway in this guest, and the command that started it.
gateway = None
command = []


def is_here():
    return ENV.get("BACKEND", "host") != "host"


def netdev():
    """The device towards the server. RDMA over the loopback device is refused by the client, over a dummy it is not."""
    if "ROUTER" in ENV:  # The way to the other guest; the server's address is that of a tap.
        run("ip", "route", "add", "10.77.0.0/16", "via", ENV["ROUTER"])
        return "vec0"
    if not is_here():
        return "vec0"
    run("ip", "link", "add", "here", "type", "dummy")
    run("ip", "addr", "add", f"{ADDRESS}/24", "dev", "here")
    run("ip", "link", "set", "here", "up")
    return "here"


ADD = "rdma link add {0} type $DEVICE netdev " + ("vec0" if "ROUTER" in ENV else "here")


def device():
    return f"{ENV.get('DEVICE', 'siw')}0"


def add_device(on):
    run("rdma", "link", "add", device(), "type", ENV.get("DEVICE", "siw"), "netdev", on)


def handshakes():
    """tlshd(8), of another system with its own libraries: it does the TLS handshakes of this kernel's client."""
    tree = ENV["TLSHD"]
    libraries = f"{tree}/usr/lib/x86_64-linux-gnu"
    words = [f"{libraries}/ld-linux-x86-64.so.2", "--library-path", libraries, f"{tree}/usr/sbin/tlshd"]
    log = open("/tmp/tlshd.log", "w")
    subprocess.Popen([*words, "-s", "-c", "/scratch/tls/tlshd.conf"], stdout=log, stderr=log)
    lab.wait_until(hears_the_kernel, "tlshd listens", 20)


def realm():
    """Where programs look for the realm of this guest. The KDC, where the servers are here."""
    run("mount", "--bind", "/scratch/krb5/krb5.conf", "/etc/krb5.conf")
    run("mount", "--bind", "/scratch/krb5/hosts", "/etc/hosts")
    if not is_here():
        return
    run("cp", "-r", "/scratch/krb5", "/tmp/krb5")
    lines = lab.pread_all("/tmp/krb5/kdc.conf").decode().splitlines()
    files = {"database_name": "principal", "key_stash_file": "stash"}
    lines = [f"  {key} = /tmp/krb5/{files[key]}" if (key := line.split("=")[0].strip()) in files else line for line in lines]
    write("/tmp/krb5/kdc.conf", "\n".join(line for line in lines if "FILE:" not in line) + "\n")
    os.environ["KRB5_KDC_PROFILE"] = "/tmp/krb5/kdc.conf"
    log = open("/tmp/kdc.log", "w")
    subprocess.Popen(["/usr/sbin/krb5kdc", "-n"], stdout=log, stderr=log)
    lab.wait_until(listens_as_kdc, "the KDC listens", 20)


def listens_as_kdc():
    with contextlib.suppress(OSError):
        socket.create_connection((ADDRESS, 88), 5).close()
        return True


def tickets():
    """rpc.gssd(8), and a ticket for root, whom it gives no ticket of the machine (-n). Where the kernel asks, it asks programs that
    know the usual places only: cifs.upcall(8)."""
    os.makedirs("/run/rpc_pipefs", exist_ok=True)
    run("mount", "-t", "rpc_pipefs", "pipes", "/run/rpc_pipefs")
    run("kinit", "-k", "-t", "/scratch/krb5/root.keytab", "-c", "FILE:/tmp/krb5cc_0", "root")
    log = open("/tmp/gssd.log", "w")
    subprocess.Popen(["rpc.gssd", "-f", "-n", "-k", "/scratch/krb5/machine.keytab"], stdout=log, stderr=log)
    lab.wait_until(lambda: glob.glob("/run/rpc_pipefs/gssd/clntXX/*"), "rpc.gssd has its pipe", 20)


def hears_the_kernel():
    """Somebody has joined a group of generic netlink, which is how the kernel asks (/proc/net/netlink: protocol 16, groups)."""
    with open("/proc/net/netlink") as f:
        rows = [line.split() for line in f][1:]
    return any(row[1] == "16" and int(row[3], 16) for row in rows)


def resources():
    """What programs and the kernel have of RDMA devices now, by the kernel's names."""
    devices = json.loads(run("rdma", "-j", "resource", "show"))
    return {kind: sum(d.get(kind, 0) for d in devices) for kind in ("pd", "cq", "qp", "cm_id", "mr", "ctx", "srq")}


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


def mount_one(folder, in_memory):
    """A file system of the kind $FS, and of that size if it is tmpfs. `+quota` behind the kind: with quotas."""
    kind, with_quotas, _ = ENV.get("FS", "ext4").partition("+quota")
    os.makedirs(folder, exist_ok=True)
    if kind == "tmpfs":
        run("mount", "-t", "tmpfs", "-o", f"size={in_memory}", "share", folder)
        return
    image = f"/scratch/{lab.LABEL}{folder.replace('/', '-')}.img"
    run("truncate", "-s", "3G", image)
    make = ["-O", "quota,project", "-E", "quotatype=usrquota:grpquota:prjquota"] if with_quotas and kind == "ext4" else []
    run(f"mkfs.{kind}", "-q", *make, image)
    run("mount", "-o", "loop,usrquota,grpquota,prjquota" if with_quotas else "loop", image, folder)


def file_system():
    """A real file system in a sparse file of the host: $FS is ext4 or xfs, or tmpfs."""
    mount_one(FOLDER, "1200M")
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
    """The gateway, and the kernel's server of the same protocol or room for it, each on a file system of its own."""
    for folder in (FOLDER, PEER_FOLDER):
        mount_one(folder, "300M")
    data = [f"data={FOLDER},squash=none,clients=10.0.0.0/8"]
    if lab.CIFS:
        # The job starts the kernel's server in its place: a client cannot be told the port of SMB Direct.
        serve(data, "--bind", ADDRESS, *smb_user())
        return
    # Either server may hold the root of the realm for nobody.
    for folder in (FOLDER, PEER_FOLDER):
        os.chmod(folder, 0o777)
    more, sec = [], ENV.get("OPTIONS", "").removeprefix("sec=")
    if sec.startswith("krb5"):
        more = ["--keytab", "/scratch/krb5/gateway.keytab"]
        data = [f"{data[0]},sec={sec}"]
    elif "xprtsec" in sec:
        files = {"--tls-cert": "gateway.crt", "--tls-key": "gateway.key", "--tls-ca": "ca.crt"}
        more = [word for option, file in files.items() for word in (option, f"/scratch/tls/{file}")]
    kernel_server()
    if sec.startswith("krb5"):
        os.environ["KRB5_KTNAME"] = "/scratch/krb5/gateway.keytab"
        log = open("/tmp/svcgssd.log", "w")
        subprocess.Popen(["rpc.svcgssd", "-f"], stdout=log, stderr=log)
    flavor = f",sec={sec}" if sec.startswith("krb5") else ""
    run("exportfs", "-o", f"rw,no_root_squash,{EXPORT},fsid=7{flavor}", f"*:{PEER_FOLDER}")
    serve(data, "--bind", ADDRESS, "--nfs-port", "2149", "--nfs-rdma-port", "20149", "--portmap", "off", *more)
    ENV.update(PORT="20149" if lab.PROTO == "rdma" else "2149", MOUNTPORT="2149")


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
    # As many as nfs-utils starts by itself.
    run("rpc.nfsd", "16")
    write("/proc/fs/nfsd/v4_end_grace", "Y")
    write("/proc/fs/nfsd/portlist", f"rdma {PEER_PORT}")


def ksmbd(shares=None):
    conf, users = "/tmp/ksmbd.conf", "/tmp/ksmbd.users"
    share = "path = {}\n read only = no\n store dos attributes = yes\n vfs objects = streams_xattr\n"
    text = "[global]\n server multi channel support = yes\n interfaces = here\n durable handles = yes\n smb2 leases = yes\n"
    shares = shares or {"data": FOLDER, "small": "/small"}
    write(conf, text + "".join(f"[{name}]\n {share.format(folder)}" for name, folder in shares.items()))
    # Its package excludes Samba's: where that is wanted too, the host unpacked it there.
    ENV["PATH"] += ":/scratch/ksmbd/usr/sbin"
    with contextlib.suppress(FileNotFoundError):  # of an earlier start
        os.remove(users)
    run("ksmbd.adduser", "-i", users, "-a", lab.USER, "-p", lab.PASSWORD, "-c", conf)
    run("ksmbd.mountd", "-c", conf, "-u", users)
    time.sleep(1)


def end_ksmbd():
    run("ksmbd.control", "-s")
    lab.wait_until(is_free, "the port of SMB is free")


def is_free():
    try:
        socket.create_connection((ADDRESS, 445), 5).close()
    except ConnectionRefusedError:
        return True
    return False


def smb_user():
    """Options of the gateway. A Linux client that signs gives up RDMA Write and Read; those that shall sign say so themselves."""
    write("/tmp/password", lab.PASSWORD)
    return ["--smb-signing", "offered", "--user", f"{lab.USER}=/tmp/password,uid=0,gid=0"]


def has_quotas():
    return ENV.get("FS", "").endswith("+quota")


def headgate():
    more = smb_user() if lab.CIFS or "ROUTER" in ENV or has_quotas() else []
    if has_quotas():
        # Another address is for a second gateway: the clients cannot be told a port.
        more += ["--user", "alice=/tmp/password,uid=1000,gid=1000", "--bind", ADDRESS]
    # The second client's network comes later than the gateway's last look at its networks.
    data = f"data={FOLDER},squash=none,clients=10.0.0.0/8"
    shares = (data, "ro=/ro,ro,squash=none", "squashed=/squashed", "small=/small,squash=none")
    serve(shares, "--lease", "10s", "--grace", "10s", *more)


def serve(shares, *options):
    command[:] = ["/scratch/headgate", "serve", "--state", "/tmp/state", "--rdma", ENV.get("RDMA", "iwarp"), *options]
    for spec in shares:
        command.extend(["--share", spec])
    begin()


LOG, PID = "/scratch/headgate.log", "/tmp/headgate.pid"
# Runs the gateway, and again when it was killed. Like the shell below it is there before anything is mounted: a process that
# is made later waits for the server as soon as it closes its copies of open files.
KEEPER = f"""while :; do "$@" >>{LOG} 2>&1 & echo $! >{PID}; wait $!; code=$?; [ $code -gt 128 ] || exit $code; sleep 2; done"""
shell = None


def begin():
    global gateway, shell
    write(LOG, "")
    gateway = subprocess.Popen(["sh", "-c", KEEPER, "sh", *command])
    shell = subprocess.Popen(["sh"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    wait_until_ready(1)


def wait_until_ready(times):
    def ready():
        must_equal(gateway.poll(), None, "exit code of a gateway that starts")
        return lab.pread_all(LOG).count(b"headgate ready") == times
    lab.wait_until(ready, f"headgate ready {times} times")


def in_shell(line):
    shell.stdin.write(f"{line} 2>&1; echo =$?\n")
    shell.stdin.flush()
    said = ""
    while not said.splitlines()[-1:] or not said.splitlines()[-1].startswith("="):
        said += shell.stdout.readline()
    must_equal(said.strip(), "=0", line)


def stop():
    """As a service manager does; its log is complete then."""
    in_shell(f"kill $(cat {PID})")
    must_equal(gateway.wait(60), 0, "exit code")


def kill_gateway():
    """kill -9; its keeper starts it on the same state after a moment."""
    before = lab.pread_all(LOG).count(b"headgate ready")
    in_shell(f"kill -9 $(cat {PID})")
    wait_until_ready(before + 1)


def unplug():
    """Removes the device and adds it again. The first waits until nobody uses it: these devices have no way to take themselves
    from a program."""
    in_shell(f"timeout 30 rdma link delete {device()} && sleep 2 && {ADD.format(device())}")


TROUBLES = futures.ThreadPoolExecutor(1)
made = []


def make_trouble(words):
    """Asks for it where the server is, here or on the host; the caller goes on."""
    if is_here():
        made.append(TROUBLES.submit({"kill-gateway": kill_gateway, "unplug": unplug}[words]))
    else:
        lab.tell_host(words)


def trouble_of_others():
    """Does what a client in another guest has asked for through the host."""
    with contextlib.suppress(FileNotFoundError):
        os.rename("/scratch/trouble", "/scratch/trouble-in-work")
        with open("/scratch/trouble-in-work") as f:
            make_trouble(f.read())


def trouble_is_over():
    """What was asked for here has been done."""
    for trouble in made:
        trouble.result(60)


def compare(folder):
    """What the host does where it holds the folder: the manifests against what the server's side sees."""
    names = sorted(glob.glob("/scratch/manifests/*.json"))
    if share.compare(folder, names):
        lab.failures += 1


def write(path, text):
    with open(path, "w") as f:
        f.write(text)
