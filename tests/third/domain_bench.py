"""Measures a joined smbd and a gateway beside it as members of one domain, in turns, by this project's client.

    unshare -n -m -p -f --kill-child python3 domain_bench.py GATEWAY FOLDER PROGRAMS CLIENT

CLIENT is the program of crates/client/examples/members.rs. Prints `figure NAME | ` and for each server operations in a second, and
the CPU seconds of the server, and of winbindd with the controller meanwhile, for a thousand of them, first those of smbd: the
median of ROUNDS rounds.
"""

import os
import subprocess
import sys
import time

import smb_domain
from smb_clients import run
from smb_domain import DOMAIN, GATEWAY, MEMBER, PASSWORD

USER = DOMAIN + "\\alice"
# Logons that are asked for at once: as many as the gateway lets one address ask about.
LOGONS, SECONDS, ROUNDS = 4, 5, 5
FILES, OWNERS, GROUPS, AT_ONCE = 10_000, 500, 20, 16
SHARES_OF_SMBD = "[data]\n  path = %s/data\n  read only = no\n"
SHARES = "  - {name: data, path: %s/data, access: {write: [\"*\"]}}\n"


def children():
    """The parent, and the ticks of user and system, of each process; ended children count for their parents."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/stat" % pid) as stat:
                fields = stat.read().rsplit(")", 1)[1].split()
        except OSError:
            continue
        found[int(pid)] = (int(fields[1]), sum(map(int, fields[11:15])))
    return found


def cpu(root):
    """The CPU seconds of a process and all below it."""
    all_of, seconds, todo = children(), 0, [root.pid]
    while todo:
        pid = todo.pop()
        seconds += all_of.get(pid, (0, 0))[1] / 100
        todo += [child for child, (parent, _) in all_of.items() if parent == pid]
    return seconds


def make_files(folder, domain):
    """Files of many owners and groups of the domain."""
    many = os.path.join(folder, "data/many")
    os.makedirs(many)
    os.chmod(os.path.dirname(many), 0o777)
    for n in range(FILES):
        path = os.path.join(many, "file-%05d" % n)
        with open(path, "w"):
            os.chown(path, domain.id_of("owner%d" % (n % OWNERS)), domain.id_of("writers" if n % 2 else "readers"))


def measured(server, others, client, host, *what):
    """Returns operations in a second, and CPU seconds for a thousand of the server and of the others."""
    before = cpu(server), sum(cpu(one) for one in others)
    said = subprocess.run([client, host + ":445", "data", USER, PASSWORD, *what], capture_output=True, text=True, timeout=300)
    if said.returncode != 0:
        raise OSError("%s: %s" % (host, said.stderr[-400:]))
    # Processes that served the last connection may be about to end.
    time.sleep(0.2)
    seconds, count, *more = said.stdout.split()
    if more and int(more[0]) != OWNERS:
        raise OSError("%s: %s owners of %d" % (host, more[0], OWNERS))
    thousands = int(count) / 1000
    after = cpu(server), sum(cpu(one) for one in others)
    return int(count) / float(seconds), *((now - then) / thousands for now, then in zip(after, before))


def main():
    program, folder, programs, client = sys.argv[1:]
    folder = smb_domain.short(folder)
    # With the numbers of this namespace.
    run("mount", "-t", "proc", "proc", "/proc")
    domain, member = smb_domain.made(programs, folder, OWNERS, SHARES_OF_SMBD % folder)
    make_files(folder, domain)
    gateway = smb_domain.gateway(program, folder, SHARES % folder)
    others = [member.winbindd, domain.process]
    loads = {
        "logons by password": ("logons", str(SECONDS), str(LOGONS)),
        "descriptors of 10,000 files of 500 owners": ("descriptors", "many", str(AT_ONCE)),
    }
    for name, what in loads.items():
        rounds = {}
        for _ in range(ROUNDS):
            for host, server in ((MEMBER, member.smbd), (GATEWAY, gateway)):
                got = measured(server, others, client, host, *what)
                print("round %s %s %s" % (name, host, got), flush=True)
                rounds.setdefault(host, []).append(got)
        smbd, ours = (sorted(rounds[host])[ROUNDS // 2] for host in (MEMBER, GATEWAY))
        print("figure %s | %s" % (name, " ".join("%.3f" % one for one in smbd + ours)), flush=True)
    for process in (gateway, member.smbd, member.winbindd, domain.process):
        process.terminate()


main()
