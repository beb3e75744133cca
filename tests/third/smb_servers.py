"""A gateway and Samba's server, started for clients of SMB."""

import os
import socket
import subprocess
import sys
import time

from smb_clients import PASSWORD, USER, run

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
%(more)s
[data]
  path = %(root)s
  read only = no
%(of_share)s
"""


def write(path, text, mode=0o644):
    with open(path, "w") as out:
        out.write(text)
    os.chmod(path, mode)
    return path


def password_file(at):
    return write(at + "/password", PASSWORD, 0o600)


def place(folder, host):
    """Makes the folder of a server."""
    at = os.path.join(folder, host)
    os.makedirs(at)
    return at


def start(at, host, words):
    """Starts a server with its log in its folder, and waits until it listens."""
    with open(at + "/log", "w") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)
    until = time.monotonic() + 30
    while time.monotonic() < until and process.poll() is None:
        try:
            socket.create_connection((host, 445), 1).close()
            return process
        except OSError:
            time.sleep(0.05)
    print("not ok server/%s: does not listen" % host)
    sys.exit(1)


def gateway(program, at, host, text):
    """Starts a gateway with this configuration."""
    config = write(at + "/gateway.yaml", text)
    return start(at, host, [program, "serve", "--config", config, "--state", at + "/state"])


def samba(program, folder, root, host, users=(USER,), more="", of_share=""):
    """Starts smbd with this folder as the share `data`, and these further lines of its configuration."""
    at = place(folder, host)
    text = SMB_CONF % {"at": at, "root": root, "host": host, "more": more, "of_share": of_share}
    config = write(at + "/smb.conf", text)
    for user in users:
        run("smbpasswd", "-c", config, "-s", "-a", user, data=("%s\n%s\n" % (PASSWORD, PASSWORD)).encode())
    return start(at, host, [program, "--foreground", "--no-process-group", "--debug-stdout", "--configfile", config])
