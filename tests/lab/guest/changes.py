"""Changes of names on the gateway and on the kernel's own NFS server beside each other in this guest, in turns, by the same client.

Not a check: the host is told `figure CHANGE, CLIENTS | OURS | THEIRS | OURS PER CPU SECOND | THEIRS PER CPU SECOND` in operations,
the best round. The CPU time is all that the guest was busy, client and server. Both servers have each change on stable storage
before they answer: `durability: strict` here, `sync` there.

The limit, `limit CHANGE, CLIENTS | RATE`, is a few lines that make the least system calls that a server in user space needs, with
no client and no network; `limit recv and send | RATE` is one message to and fro between two threads of a process."""

import contextlib
import os
import shutil
import socket
import subprocess
import threading
import time

import lab
import servers
from lab import check

ROUNDS, SECONDS, FILES = 4, 1, 4000
CLIENTS = (1, 16)


def once(port, mountport, folder, clients):
    """Rate and operations for a CPU second of each kind of change."""
    target = f"nfs://{servers.ADDRESS}:{port}{folder}?version=3&transport=tcp&mountport={mountport}"
    said = lab.run("/scratch/names", target, str(clients), str(SECONDS), str(FILES), "all")
    lines = [line.split() for line in said.splitlines()]
    return {load: (float(rate), 1000 / max(float(cpu), 0.001)) for load, rate, cpu in lines}


def measure():
    sides = (("2149", "2149", servers.FOLDER), ("2049", servers.PEER_MOUNT_PORT, servers.PEER_FOLDER))
    best = {}
    for _ in range(ROUNDS):
        for clients in CLIENTS:
            for side, (port, mountport, folder) in enumerate(sides):
                for load, figures in once(port, mountport, folder, clients).items():
                    old = best.setdefault((load, clients), [(0, 0), (0, 0)])
                    old[side] = tuple(map(max, old[side], figures))
            subprocess.run(f"rm -rf {servers.FOLDER}/client-* {servers.PEER_FOLDER}/client-*; sync", shell=True, check=True)
    for (load, clients), ((ours, our_cpu), (theirs, their_cpu)) in best.items():
        lab.tell_host(f"figure {load}, {clients} | {ours:.0f} | {theirs:.0f} | {our_cpu:.0f} | {their_cpu:.0f}")


def synced(fd):
    os.fsync(fd)
    os.close(fd)


def by_hand(folder, name, n):
    path = f"{folder}/{n}"
    if name == "create":
        synced(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL))
    elif name == "setattr":
        fd = os.open(path, os.O_RDONLY)
        os.fchmod(fd, 0o600)
        synced(fd)
    else:
        os.remove(path)
        synced(os.open(folder, os.O_RDONLY | os.O_DIRECTORY))


def limits():
    """The same changes by as many threads, each in a folder of its own."""
    for clients in CLIENTS:
        folders = [f"{servers.FOLDER}/by-hand-{n}" for n in range(clients)]
        for folder in folders:
            os.mkdir(folder)
        for name in ("create", "setattr", "remove"):
            files = 1600 // clients

            def work(folder, name=name, files=files):
                for n in range(files):
                    by_hand(folder, name, n)

            threads = [threading.Thread(target=work, args=(folder,)) for folder in folders]
            began = time.monotonic()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            rate = files * clients / (time.monotonic() - began)
            lab.tell_host(f"figure limit {name}, {clients} | {rate:.0f}")
        for folder in folders:
            shutil.rmtree(folder)
    with contextlib.ExitStack() as stack:
        here, there = map(stack.enter_context, socket.socketpair())
        threading.Thread(target=lambda: [there.send(there.recv(100)) for _ in range(2000)]).start()
        began = time.monotonic()
        for _ in range(2000):
            here.send(b"call")
            here.recv(100)
        lab.tell_host(f"figure limit message to and fro | {2000 / (time.monotonic() - began):.0f}")
    began = time.monotonic()
    for _ in range(5000):
        os.stat(servers.FOLDER)
    lab.tell_host(f"figure limit stat | {5000 / (time.monotonic() - began):.0f}")


def job(_top):
    check("changes/measure", measure)
    check("changes/limits", limits)
