"""The gateway and the kernel's own server beside each other in this guest, measured in turns by the kernel's client.

Clients find SMB Direct by the fabric of their device alone, so the servers of SMB run one after the other, on the same ports.

Not a check: the host is told `figure LOAD | OURS | THEIRS | OURS PER CPU SECOND | THEIRS PER CPU SECOND`: MB/s for loads of 1 MiB,
operations per second for others, the best round. The CPU time is all that the guest was busy, client and server. I/O is
direct, so that each operation goes to the server."""

import contextlib
import json
import os

import lab
import servers
from lab import check

ROUNDS, SECONDS = 3, 1
PEER = "/mnt/peer"
# Over rxe the kernel's NFS server comes to a stand with several large READs: it waits in a circle for room in its send queue and
# never gives the one processor of the guest back.
DEPTH = 1 if lab.ENV["DEVICE"] == "rxe" and not lab.CIFS else 8
# Name, options of fio, and whether bytes are counted.
LOADS = (
    (f"write 1 MiB, depth {DEPTH}", ("--rw=write", "--bs=1m", f"--iodepth={DEPTH}"), True),
    (f"read 1 MiB, depth {DEPTH}", ("--rw=read", "--bs=1m", f"--iodepth={DEPTH}"), True),
    ("random read 4 KiB, depth 32", ("--rw=randread", "--bs=4k", "--iodepth=32"), False),
)


def busy():
    """Seconds in which the guest's processor did something."""
    with open("/proc/stat") as f:
        user, nice, system, _idle, _wait, *rest = map(int, f.readline().split()[1:])
    return (user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK")


def fio(path, *options):
    """What fio says of one load, and for how many seconds the guest was busy."""
    before = busy()
    said = lab.run("fio", "--name=load", "--output-format=json", "--ioengine=libaio", "--direct=1", f"--filename={path}", *options)
    return json.loads(said)["jobs"][0], busy() - before


def once(path, options, bulk, aside):
    """Rate, and what one second of the processor did; `aside` is what fio itself takes to begin and end."""
    job, was_busy = fio(path, "--size=64m", "--time_based", f"--runtime={SECONDS}", *options)
    done = job["write" if "--rw=write" in options else "read"]
    rate = done["bw_bytes"] / 1e6 if bulk else done["iops"]
    amount = done["io_bytes"] / 1e6 if bulk else done["total_ios"]
    return rate, amount / max(was_busy - aside, 0.01)


def warm_up(path):
    """The first write also makes the server's memory known to the device: that is not what is measured."""
    fio(path, "--size=64m", "--rw=write", "--bs=1m")


def overhead(path):
    return min(fio(path, "--size=64k", "--rw=read", "--bs=4k", "--io_size=4k")[1] for _ in range(3))


def tell(best):
    for (name, _, _), ((ours, our_cpu), (theirs, their_cpu)) in zip(LOADS, best):
        lab.tell_host(f"figure {name} | {ours:.0f} | {theirs:.0f} | {our_cpu:.0f} | {their_cpu:.0f}")


def measure(top):
    paths = (f"{top}/file", f"{PEER}/file")
    for path in paths:
        warm_up(path)
    aside = overhead(paths[0])
    best = [[(0.0, 0.0), (0.0, 0.0)] for _ in LOADS]
    for load, (_, options, bulk) in enumerate(LOADS):
        for _ in range(ROUNDS):
            for i, path in enumerate(paths):
                best[load][i] = max(best[load][i], once(path, options, bulk, aside))
    tell(best)


@contextlib.contextmanager
def peer_of_smb():
    """The kernel's server in the gateway's place."""
    lab.umount(lab.TOP)
    servers.stop()
    servers.ksmbd({"data": servers.PEER_FOLDER})
    lab.run("mount", "-t", "cifs", "-o", lab.cifs_options(), f"//{servers.ADDRESS}/data", PEER)
    yield
    lab.umount(PEER)
    servers.end_ksmbd()
    servers.begin()
    lab.mount(lab.TOP)


def measure_in_turns(top):
    best = [[(0.0, 0.0), (0.0, 0.0)] for _ in LOADS]

    def take(i, path):
        warm_up(path)
        aside = overhead(path)
        for load, (_, options, bulk) in enumerate(LOADS):
            best[load][i] = max(best[load][i], once(path, options, bulk, aside))

    for _ in range(ROUNDS):
        take(0, f"{top}/file")
        with peer_of_smb():
            take(1, f"{PEER}/file")
    tell(best)


def mount_peer():
    port = servers.PEER_PORT if lab.PROTO == "rdma" else "2049"
    how = lab.options(port=port, mountport=servers.PEER_MOUNT_PORT)
    lab.run("mount", "-t", "nfs", "-o", how, f"{lab.SERVER_NAME}:{servers.PEER_FOLDER}", PEER)


def job(top):
    os.makedirs(PEER, exist_ok=True)
    if lab.CIFS:
        check("beside/measure", measure_in_turns, top)
        return
    mount_peer()
    check("beside/measure", measure, top)
    lab.umount(PEER)
