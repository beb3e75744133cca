"""Links of `msdfs root` on Samba's server and, from the same folder, on a gateway with `links: msdfs`.

    unshare -n -m -p -f --kill-child python3 msdfs_links.py GATEWAY FOLDER SMBD

In a network namespace of its own, where each server has port 445 of an address. THIRD_ROOT is the folder with impacket. Compares
referrals of each version field by field; smbclient crosses each link by both servers and moves data at the other end. Prints
`ok NAME` or `not ok NAME: WHY` for each.
"""

import os
import pwd
import struct
import sys

import smb_servers
from smb_clients import PASSWORD, ROOT, USER, run
from smb_servers import password_file, place, write

# Of the same length, so that lengths of paths can be compared.
GATEWAY, SMBD, TARGET, DEAD = "127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.9"
FSCTL_DFS_GET_REFERRALS = 0x00060194
IS_FSCTL = 1
CONFIG = """shares:
  - {name: %s, path: %s%s}
users:
  - {name: %s, password_file: %s}
bind: %s
admin: off
rdma: off
nfs: {portmap: off}
"""
# Each link by its path: its text, and the folder of the target share to which it leads.
LINKS = {
    "one": (r"msdfs:%s\archive" % TARGET, ""),
    "Mixed": (r"MSDFS:%s\archive" % TARGET, ""),
    "slashes": ("msdfs:%s/archive" % TARGET, ""),
    "inner": (r"msdfs:%s\archive\inner" % TARGET, "inner"),
    "sub/deep": (r"msdfs:%s\archive" % TARGET, ""),
    "two": (r"msdfs:%s\archive,%s\archive" % (DEAD, TARGET), ""),
}
# Text without a share: no link.
BROKEN = {"no-share": "msdfs:%s" % TARGET, "empty": "msdfs:", "other": "elsewhere"}
# The versions in which smbd answers, and how long its clients may keep the answer.
SMBD_VERSION, SMBD_SECONDS, SECONDS = {1: 2, 2: 2, 3: 3, 4: 3}, 600, 300
# Paths at the root, and at and below each link, in any case.
COVERED = ["data", "DATA", "data\\one\\a\\b", "data\\ONE", "data\\SUB\\DEEP", "data\\sub\\deep\\x"]
COVERED += ["data\\" + path.replace("/", "\\") for path in LINKS]
# Paths in the share that lead to no link: a gateway refers to the root (MS-DFSC section 3.2.5.5), smbd answers this.
NO_PATH, NO_NAME, NOT_FOUND, INVALID = "0xc000003a", "0xc0000034", "0xc0000225", "0xc000000d"
HERE = {
    "data\\plain": NO_PATH,
    "data\\file": NO_PATH,
    "data\\missing": NO_PATH,
    "data\\other": NO_NAME,
    # Here smbd sends clients to a server without a share, and with an answer to no server.
    "data\\no-share": ["\\" + TARGET],
    "data\\empty": [],
    # The owner of this link is not root.
    "data\\planted": ["\\%s\\archive" % TARGET],
}
# The status of both servers for other paths.
REFUSED = {"none": (NOT_FOUND, NOT_FOUND), "": (INVALID, NOT_FOUND)}
VERSIONS = (1, 2, 3, 4)
# What each lists of the rest, and whether as a folder.
OURS, THEIRS = {"file": False}, {"file": False, "empty": True, "no-share": True, "planted": True}


def gateway(program, folder, host, share, root, more=""):
    at = place(folder, host)
    return smb_servers.gateway(program, at, host, CONFIG % (share, root, more, USER, password_file(at), host))


def make_folders(folder):
    """The folder with the links, and that of the target."""
    data, there = os.path.join(folder, "data"), os.path.join(folder, "archive")
    owner = pwd.getpwnam(USER)
    for path in (data + "/sub", data + "/plain", there + "/inner"):
        os.makedirs(path)
    for path in (data, there, there + "/inner"):
        os.chown(path, owner.pw_uid, owner.pw_gid)
    write(data + "/file", "here")
    for path, (text, _) in LINKS.items():
        os.symlink(text, os.path.join(data, path))
    for path, text in BROKEN.items():
        os.symlink(text, os.path.join(data, path))
    os.symlink(LINKS["one"][0], data + "/planted")
    os.lchown(data + "/planted", owner.pw_uid, owner.pw_gid)
    return data, there


def string(data, at):
    end = at
    while data[end:end + 2] not in (b"\0\0", b""):
        end += 2
    return data[at:end].decode("utf-16-le")


def referral(data):
    """RESP_GET_DFS_REFERRAL as a dictionary (MS-DFSC sections 2.2.4 and 2.2.5)."""
    consumed, count, flags = struct.unpack_from("<HHI", data)
    told = {"consumed": consumed, "flags": flags, "targets": []}
    at = 8
    for _ in range(count):
        version, size, kind, entry = struct.unpack_from("<HHHH", data, at)
        same = {"version": version, "is root": kind, "entry flags": entry & ~4}
        if version == 1:
            target = string(data, at + 8)
        else:
            more = 4 if version == 2 else 0
            ttl, path, alternate, address = struct.unpack_from("<IHHH", data, at + 8 + more)
            same.update(ttl=ttl, path=string(data, at + path), alternate=string(data, at + alternate))
            target = string(data, at + address)
        assert told.setdefault("of all", same) == same, "entries differ"
        told["targets"].append(target)
        at += size
    return told


def ask(host, version, path):
    """Returns the referral of a path, or the status."""
    from impacket.smb3 import SessionError
    from impacket.smbconnection import SMBConnection

    smb = SMBConnection(host, host, timeout=30)
    smb.login(USER, PASSWORD)
    server = smb.getSMBServer()
    tree = server.connectTree("IPC$")
    asked = struct.pack("<H", version) + ("\\%s\\%s" % (host, path)).encode("utf-16-le") + b"\0\0"
    try:
        told = server.ioctl(tree, None, FSCTL_DFS_GET_REFERRALS, IS_FSCTL, asked, 0, 4096)
        return referral(told)
    except SessionError as error:
        return "0x%08x" % error.get_error_code()
    finally:
        smb.close()


def common(told, host):
    """Replaces the server's own address, which differs."""
    if isinstance(told, list):
        return [common(one, host) for one in told]
    if isinstance(told, dict):
        return {key: common(value, host) for key, value in told.items()}
    return told.replace(host, "SERVER") if isinstance(told, str) else told


def both(version, path):
    return [common(ask(host, version, path), host) for host in (GATEWAY, SMBD)]


def covered(version, path):
    """Returns how referrals of a path differ beyond what is known."""
    ours, theirs = both(version, path)
    if not (isinstance(ours, dict) and isinstance(theirs, dict)):
        return "gateway: %s; smbd: %s" % (ours, theirs)
    of_ours, of_theirs = ours["of all"], theirs["of all"]
    wanted = dict(of_ours, version=SMBD_VERSION[version])
    if version > 1:
        assert of_ours["ttl"] == SECONDS, of_ours
        wanted.update(ttl=SMBD_SECONDS)
    else:
        # Version 1 has these fields no more than the answer of smbd is of version 1.
        wanted.update(ttl=SMBD_SECONDS, path=of_theirs["path"], alternate=of_theirs["alternate"])
    if of_ours["version"] != version or dict(ours, **{"of all": wanted}) != theirs:
        return "gateway: %s; smbd: %s" % (ours, theirs)


def here(version, path):
    ours, theirs = both(version, path)
    root = common(ask(GATEWAY, version, "data"), GATEWAY)
    theirs = theirs["targets"] if isinstance(theirs, dict) else theirs
    if ours != root or theirs != HERE[path]:
        return "gateway: %s; smbd: %s" % (ours, theirs)


def refused(version, path):
    told = tuple(both(version, path))
    return None if told == REFUSED[path] else "gateway and smbd: %s" % (told,)


def smbclient(host, commands):
    target = "//%s/data" % host
    return run("smbclient", target, "-U", "%s%%%s" % (USER, PASSWORD), "-c", commands).decode()


def crosses(host, link, folder, work, there):
    """smbclient goes through a link, writes a file, lists and reads it, and removes it."""
    name = "by-%s-%s" % (host, link.replace("/", "-"))
    data = os.urandom(300_000)
    source, back = os.path.join(work, "source"), os.path.join(work, "back")
    with open(source, "wb") as out:
        out.write(data)
    below = link.replace("/", "\\")
    said = smbclient(host, "put %s %s\\%s; ls %s\\*; cd %s; get %s %s" % (source, below, name, below, below, name, back))
    at = os.path.join(there, folder, name)
    with open(at, "rb") as arrived, open(back, "rb") as returned:
        if arrived.read() != data or returned.read() != data:
            return "other bytes arrived"
    if name not in said:
        return "not listed: %s" % said
    smbclient(host, "del %s\\%s" % (below, name))
    return "it is still there" if os.path.exists(at) else None


def listed(host):
    """Returns names and kinds of what smbclient lists at the root."""
    found = {}
    for line in smbclient(host, "ls").splitlines():
        words = line.split()
        if line.startswith("  ") and words[0] not in (".", "..") and "blocks" not in line:
            found[words[0]] = "D" in words[1]
    return found


def lists():
    """Links are folders for both; what is no link is no folder for either."""
    ours, theirs = listed(GATEWAY), listed(SMBD)
    names = {path for path in LINKS if "/" not in path} | {"sub", "plain"}
    for name in names:
        if not (ours.get(name) and theirs.get(name)):
            return "%s is no folder: gateway: %s; smbd: %s" % (name, ours, theirs)
    more = {name: kind for name, kind in ours.items() if name not in names}
    return None if more == OURS and {n: k for n, k in theirs.items() if n not in names} == THEIRS else "%s %s" % (more, theirs)


def check(name, ask, *args):
    try:
        why = ask(*args)
    except Exception as error:  # noqa: BLE001: what a client says is the result
        why = "%s %s" % (type(error).__name__, error)
    print("not ok %s: %s" % (name, " ".join(why.split())) if why else "ok %s" % name, flush=True)


def main():
    program, folder, smbd = sys.argv[1:]
    run("ip", "link", "set", "lo", "up")
    # smbd listens on addresses that an interface lists.
    run("ip", "address", "add", SMBD + "/8", "dev", "lo")
    data, there = make_folders(folder)
    sys.path.insert(0, os.path.join(ROOT, "python"))
    running = [
        gateway(program, folder, GATEWAY, "data", data, ", links: msdfs"),
        gateway(program, folder, TARGET, "archive", there),
        smb_servers.samba(smbd, folder, data, SMBD, more="  host msdfs = yes", of_share="  msdfs root = yes"),
    ]
    for judge, paths in ((covered, COVERED), (here, HERE), (refused, REFUSED)):
        for path in paths:
            for version in VERSIONS:
                check("referral/%s-%d" % (path.replace("\\", "/") or "empty", version), judge, version, path)
    for host, name in ((GATEWAY, "gateway"), (SMBD, "smbd")):
        for link, (_, inside) in LINKS.items():
            check("crosses/%s-%s" % (name, link.replace("/", "-")), crosses, host, link, inside, folder, there)
    check("listing", lists)
    for process in running:
        check("ends", lambda process=process: process.poll() and "it ended by itself")
        process.terminate()
    for process in running:
        process.wait(30)


main()
