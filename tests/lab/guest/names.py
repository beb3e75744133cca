"""A client of version 4 that is told to write owners by name (idmapd): what the gateway's names are to it, and its to the gateway.
The users and groups of a second gateway have other numbers than those of this guest, so nothing but a name can have crossed the
wire."""

import errno
import grp
import os
import pwd
import shutil
import subprocess

import lab
import servers
from lab import check, must, must_equal, must_raise, run, wait_until

AT, FOLDER, LOG = "/mnt/names", "/named", "/tmp/names.log"
DOMAIN = "lab.example"
# By name one of this guest and of the gateway, with another number there; one of the gateway alone; one of this guest alone.
SHARED, FOREIGN, LOCAL = "daemon", "carol", "games"
NUMBERS = {SHARED: 4001, FOREIGN: 4002}
# Groups are the gateway's host's, of which it sees other files than this guest.
GROUP, GROUP_NUMBER = "staff", 6001
HOST_FILES = {"passwd": "root:x:0:0::/:/bin/sh\n", "group": f"root:x:0:\n{GROUP}:x:{GROUP_NUMBER}:\n"}
BY_NUMBER = "/sys/module/nfs/parameters/nfs4_disable_idmapping"
CONFIGURATION = """
bind: [{address}]
nfs: {{port: 4049, rdma_port: 0, portmap: off, domain: {domain}}}
smb: {{port: 0, direct_port: 0}}
rdma: off
admin: off
names: host
state: /tmp/state-of-names
shares: [{{name: named, path: {folder}, squash: none, clients: [10.0.0.0/8]}}]
users:
{users}
"""


def configure():
    os.makedirs(FOLDER)
    servers.write("/tmp/names.password", lab.PASSWORD)
    os.chmod("/tmp/names.password", 0o600)
    user = "  - {{name: {}, password_file: /tmp/names.password, uid: {}, gid: {}}}"
    users = "\n".join(user.format(name, number, number) for name, number in NUMBERS.items())
    servers.write("/tmp/names.yaml", CONFIGURATION.format(address=servers.ADDRESS, domain=DOMAIN, folder=FOLDER, users=users))
    for name, text in HOST_FILES.items():
        servers.write(f"/tmp/names.{name}", text)
    # The programs that the kernel asks are this machine's own, and so is their configuration.
    servers.write("/tmp/idmapd.conf", f"[General]\nDomain = {DOMAIN}\n[Mapping]\nNobody-User = nobody\nNobody-Group = nogroup\n")
    run("mount", "--bind", "/tmp/idmapd.conf", "/etc/idmapd.conf")


def start(log):
    binds = " && ".join(f"mount --bind /tmp/names.{name} /etc/{name}" for name in HOST_FILES)
    serve = "exec /scratch/headgate serve --config /tmp/names.yaml"
    return subprocess.Popen(["unshare", "-m", "sh", "-c", f"{binds} && {serve}"], stdout=log, stderr=log)


def file(name, owner=0, group=0):
    """Made on the server's side; as the client names it."""
    path = os.path.join(FOLDER, name)
    servers.write(path, name)
    os.chown(path, owner, group)
    return os.path.join(AT, name)


def owner_there(name):
    return os.stat(os.path.join(FOLDER, name)).st_uid


def names_are_on_the_wire():
    """The owner is asked for by the request that a capture would show: the client's key for it has the whole name."""
    must_equal(os.stat(file("shared", NUMBERS[SHARED])).st_uid, pwd.getpwnam(SHARED).pw_uid, "owner")
    must(f"uid:{SHARED}@{DOMAIN}" in lab.pread_all("/proc/keys").decode(), "the kernel asked for no name")


def groups_are_names_too():
    at = file("grouped", group=GROUP_NUMBER)
    must_equal(os.stat(at).st_gid, grp.getgrnam(GROUP).gr_gid, "group")
    must(f"gid:{GROUP}@{DOMAIN}" in lab.pread_all("/proc/keys").decode(), "the kernel asked for no name")
    at = file("given to a group")
    shutil.chown(at, group=GROUP)
    must_equal(os.stat(os.path.join(FOLDER, "given to a group")).st_gid, GROUP_NUMBER, "group there")
    must_raise(errno.EINVAL, shutil.chown, at, group=LOCAL)


def unknown_here_is_nobody():
    must_equal(os.stat(file("foreign", NUMBERS[FOREIGN])).st_uid, pwd.getpwnam("nobody").pw_uid, "owner")


def a_number_is_a_number():
    must_equal(os.stat(file("number", 4711)).st_uid, 4711, "owner")
    must_equal(os.stat(file("root", 0)).st_uid, 0, "owner")


def given_away_by_name():
    at = file("given")
    shutil.chown(at, SHARED)
    must_equal(owner_there("given"), NUMBERS[SHARED], "owner there")
    must_equal(os.stat(at).st_uid, pwd.getpwnam(SHARED).pw_uid, "owner here")


def unknown_there_is_refused():
    at = file("refused")
    must_raise(errno.EINVAL, shutil.chown, at, LOCAL)
    must_equal(owner_there("refused"), 0, "owner there")


def a_number_without_name_is_taken():
    os.chown(file("numbered"), 4711, -1)
    must_equal(owner_there("numbered"), 4711, "owner there")


def job(_top):
    before = lab.pread_all(BY_NUMBER)
    configure()
    with open(LOG, "w") as log:
        gateway = start(log)
    try:
        wait_until(lambda: b"headgate ready" in lab.pread_all(LOG) or gateway.poll() is not None, "ready")
        must(gateway.poll() is None, lab.pread_all(LOG).decode())
        servers.write(BY_NUMBER, "N")
        os.makedirs(AT)
        run("mount", "-t", "nfs", "-o", "vers=4.2,proto=tcp,port=4049,actimeo=0", f"{servers.ADDRESS}:/named", AT)
        check("names/are-on-the-wire", names_are_on_the_wire)
        check("names/groups-are-names-too", groups_are_names_too)
        check("names/unknown-here-is-nobody", unknown_here_is_nobody)
        check("names/a-number-is-a-number", a_number_is_a_number)
        check("names/given-away-by-name", given_away_by_name)
        check("names/unknown-there-is-refused", unknown_there_is_refused)
        check("names/a-number-without-name-is-taken", a_number_without_name_is_taken)
        lab.umount(AT)
    finally:
        servers.write(BY_NUMBER, before.decode().strip())
        run("umount", "/etc/idmapd.conf")
        gateway.terminate()
        gateway.wait(20)
