"""Other people's clients of SMB on one gateway and on Samba's server, operation by operation.

    unshare -n -m -p -f --kill-child python3 smb_programs.py GATEWAY FOLDER SMBD [PROGRAM..]

In a network namespace of its own, where each server has port 445 of an address. THIRD_ROOT is the folder with the programs. Prints
`ok PROGRAM/OPERATION` or `not ok PROGRAM/OPERATION: WHY` for each, then a row of the table for each program.
"""

import os
import pwd
import sys
from concurrent.futures import ThreadPoolExecutor

import smb_servers
from operations import Server, Table, make_root
from smb_clients import OTHER, PROGRAMS, ROOT, USER, run
from smb_servers import password_file, place

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


def gateway(program, folder, root, host, signing):
    at = place(folder, host)
    password = password_file(at)
    users = "\n".join("  - {name: %s, password_file: %s}" % (user, password) for user in (USER, OTHER))
    return smb_servers.gateway(program, at, host, CONFIG % (root, users, host, signing))


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
    running.append(smb_servers.samba(smbd, folder, root, SMBD, (USER, OTHER)))
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
