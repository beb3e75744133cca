"""The newcomer's path: each command of docs/first-share.md as it stands there, in this guest as gateway and client in one.

What the page changes on a host (/etc, /usr/local/bin, /srv, /var/lib) is laid over by folders of this guest."""

import os
import re
import subprocess
import time

import lab
from lab import check, must, must_equal, run, wait_until

PAGE = "/scratch/first-share.md"
PASSWORD = "correct horse"
LOG = "/tmp/first.log"
# There is nobody but root here, and `sudo` need not be installed: it does what is asked of it, as root or as whom `-u` names.
SUDO = """#!/bin/sh
if [ "$1" = -u ]; then user=$2; shift 2; exec setpriv --reuid "$user" --regid "$user" --clear-groups -- "$@"; fi
exec "$@"
"""


def commands():
    """Each command, with the lines of its here-document."""
    with open(PAGE, encoding="utf-8") as f:
        blocks = re.findall(r"^```sh\n(.*?)^```$", f.read(), re.M | re.S)
    found = []
    for block in blocks:
        lines = iter(block.splitlines())
        for line in lines:
            text = line
            while "<<END" in text and not text.endswith("\nEND"):
                text += "\n" + next(lines)
            found.append(text)
    must(len(found) >= 15, f"only {len(found)} commands")
    return found


def own_folders():
    """A host of its own, as far as the page is concerned."""
    for at in ("/usr/local/bin", "/srv", "/var/lib"):
        run("mount", "-t", "tmpfs", "none", at)
    run("sh", "-c", "mkdir -p /tmp/etc && cp -a /etc/. /tmp/etc/ && mount --bind /tmp/etc /etc")
    with open("/etc/hosts", "a", encoding="utf-8") as f:
        f.write("127.0.0.1 gw\n")
    os.makedirs("/tmp/first/target/release", exist_ok=True)
    os.symlink("/scratch/headgate", "/tmp/first/target/release/headgate")
    with open("/usr/local/bin/sudo", "w", encoding="utf-8") as f:
        f.write(SUDO)
    os.chmod("/usr/local/bin/sudo", 0o755)
    run("ip", "link", "set", "lo", "up")


def typed(command, gateway):
    """Types it, and the password where one is asked for. `serve` goes on in a terminal of its own."""
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "PASSWD": PASSWORD, "HOME": "/root"}
    how = {"shell": True, "cwd": "/tmp/first", "env": env}
    if command.endswith("headgate serve"):
        with open(LOG, "w", encoding="utf-8") as log:
            gateway.append(subprocess.Popen(f"exec {command}", stdout=log, stderr=log, **how))
        wait_until(lambda: b"headgate ready" in lab.pread_all(LOG), "ready")
        return ""
    done = subprocess.run(command, input=PASSWORD + "\n", capture_output=True, text=True, timeout=60, **how)
    must(done.returncode == 0, f"{command}: {done.returncode}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def whole_path():
    gateway, said = [], {}
    began = time.monotonic()
    try:
        for command in commands():
            said[command] = typed(command, gateway)
    finally:
        for one in gateway:
            one.terminate()
            must_equal(one.wait(60), 0, "the gateway's end")
    print(f"first share: {len(said)} commands in {time.monotonic() - began:.1f} s")
    must_equal(said["sudo -u ann cat /mnt/smb/hello"], "written by NFS\n", "by SMB")
    must_equal(os.stat("/srv/data/hello").st_uid, 1500, "it is Ann's")
    status = said["sudo headgate status"]
    must("ann" in status and "data" in status, status)


def job(_top):
    check("first/prepare", own_folders)
    check("first/commands", whole_path)
