"""Other people's clients of SMB on one gateway and on Samba's server, operation by operation.

    unshare -n -m -p -f --kill-child python3 smb_programs.py GATEWAY FOLDER SMBD [PROGRAM..]

In a network namespace of its own, where each server has port 445 of an address. THIRD_ROOT is the folder with the programs. Prints
`ok PROGRAM/OPERATION` or `not ok PROGRAM/OPERATION: WHY` for each, then a row of the table for each program.
"""

import os
import pwd
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from operations import Server, Table, make_root
from smb_clients import OTHER, PASSWORD, PROGRAMS, ROOT, USER

GATEWAY, SMBD, UNSIGNED = "127.0.0.1", "127.0.0.2", "127.0.0.3"
LONG = ("rclone", "crate smb", "v9u-smb2", "impacket")
# What fails on both servers, or by the program's own fault, and why.
KNOWN = {}
CONFIG = """shares:
  - {name: data, path: %s}
users:
%s
bind: %s
admin: off
rdma: off
nfs: {portmap: off}
smb: {signing: %s}
"""
SMB_CONF = """[global]
  server role = standalone server
  interfaces = %(host)s/8
  bind interfaces only = yes
  load printers = no
  disable spoolss = yes
  private dir = %(at)s
  passdb backend = tdbsam:%(at)s/passdb.tdb
  pid directory = %(at)s
  lock directory = %(at)s
  state directory = %(at)s
  cache directory = %(at)s
  ncalrpc dir = %(at)s/ncalrpc
  log level = 1
[data]
  path = %(root)s
  read only = no
"""


def run(*words, data=None):
    subprocess.run(words, input=data, check=True, capture_output=True, timeout=60)


def write(path, text, mode=0o644):
    with open(path, "w") as out:
        out.write(text)
    os.chmod(path, mode)
    return path


def answers(host, process):
    until = time.monotonic() + 30
    while time.monotonic() < until and process.poll() is None:
        try:
            return socket.create_connection((host, 445), 1).close()
        except OSError:
            time.sleep(0.05)
    print("not ok server/%s: does not listen" % host)
    sys.exit(1)


def gateway(program, folder, root, host, signing):
    at = os.path.join(folder, host)
    os.makedirs(at)
    password = write(at + "/password", PASSWORD, 0o600)
    users = "\n".join("  - {name: %s, password_file: %s}" % (user, password) for user in (USER, OTHER))
    config = write(at + "/gateway.yaml", CONFIG % (root, users, host, signing))
    with open(at + "/log", "w") as log:
        words = [program, "serve", "--config", config, "--state", at + "/state"]
        process = subprocess.Popen(words, stdout=log, stderr=log)
    answers(host, process)
    return process


def samba(program, folder, root, host):
    at = os.path.join(folder, host)
    os.makedirs(at)
    config = write(at + "/smb.conf", SMB_CONF % {"at": at, "root": root, "host": host})
    for user in (USER, OTHER):
        run("smbpasswd", "-c", config, "-s", "-a", user, data=("%s\n%s\n" % (PASSWORD, PASSWORD)).encode())
    with open(at + "/log", "w") as log:
        words = [program, "--foreground", "--no-process-group", "--debug-stdout", "--configfile", config]
        process = subprocess.Popen(words, stdout=log, stderr=log)
    answers(host, process)
    return process


def main():
    program, folder, smbd, *only = sys.argv[1:]
    run("ip", "link", "set", "lo", "up")
    # smbd listens on addresses that an interface lists.
    run("ip", "address", "add", SMBD + "/8", "dev", "lo")
    owner = pwd.getpwnam(USER).pw_uid
    root = os.path.join(folder, "data")
    make_root(root)
    servers = [Server("gateway", GATEWAY, root, owner), Server("smbd", SMBD, root, owner)]
    # v9u-smb2 signs nothing.
    unsigned = [Server("gateway", UNSIGNED, root, owner), servers[1]]
    running = [gateway(program, folder, root, GATEWAY, "required"), gateway(program, folder, root, UNSIGNED, "offered")]
    running.append(samba(smbd, folder, root, SMBD))
    sys.path.insert(0, os.path.join(ROOT, "python"))
    table = Table(KNOWN, "smbd")

    def visit(name):
        kind = PROGRAMS[name]
        table.visit(name, kind, unsigned if name == "v9u-smb2" else servers)

    # Most of their time they wait. Those that take longest come first.
    names = sorted(PROGRAMS, key=lambda name: name not in LONG)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(visit, [name for name in names if not only or name in only]))
    table.show()
    for process in running:
        process.terminate()
    for process in running:
        process.wait(30)


main()
