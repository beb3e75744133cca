"""Compressed SMB messages by another implementation, in both directions.

    unshare -n -m -p -f --kill-child python3 smb_compression.py GATEWAY FOLDER

The crate smb writes and reads files of several kinds and sizes on a share with `compress: true`, in a network namespace of its own.
THIRD_ROOT is the folder with the programs. The gateway's own counters show which messages were compressed. Prints `ok NAME` or
`not ok NAME: WHY` for each file.
"""

import os
import pwd
import re
import subprocess
import sys
import urllib.request

import smb_servers
from smb_clients import USER, SmbCrateCompressed, SmbCrateSealed

HOST = "127.0.0.1"
CONFIG = """shares:
  - {name: data, path: %s, compress: true}
users:
  - {name: %s, password_file: %s}
bind: %s
admin: 127.0.0.1:9464
rdma: off
nfs: {portmap: off}
smb: {signing: required}
"""
# Answers of more data than this may be compressed.
ANSWER_MIN = 4096
# Around that limit, around 64 KiB with and without the headers of an answer, and more than one READ of this client has.
SIZES = [0, 1, 4096, 4097, 65_456, 65_457, 65_536, 150_000, 1_000_000]
# By client. Encryption changes nothing of what is compressed.
SIZES_OF = {SmbCrateCompressed: SIZES, SmbCrateSealed: [4097, 65_457, 150_000]}
COUNTER = re.compile(r'^headgate_smb_compression_bytes_total\{direction="(in|out)",form="(\w+)"\} (\d+)$', re.M)


def text(size):
    lines = (b"line %d of a log; " % n for n in range(size // 10 + 1))
    return b"".join(lines)[:size]


def mixed(size):
    """Zeros, text, noise and zeros."""
    part = size // 4
    return bytes(part) + text(part) + os.urandom(part) + bytes(size - 3 * part)


KINDS = {"text": text, "zeros": bytes, "mixed": mixed, "random": os.urandom}


def counters():
    with urllib.request.urlopen("http://%s:9464/metrics" % HOST, timeout=30) as answer:
        found = COUNTER.findall(answer.read().decode())
    assert len(found) == 4, found
    return {(direction, form): int(n) for direction, form, n in found}


def moved(work):
    """Returns what the work returned, and the bytes before and after compression in each direction meanwhile."""
    before = counters()
    done = work()
    after = counters()
    return done, {key: after[key] - before[key] for key in after}


def there_and_back(client, folder, kind, size):
    name, content = "%s-%s-%d" % (client.way, kind, size), KINDS[kind](size)
    _, grew = moved(lambda: client.write(name, content))
    with open(os.path.join(folder, name), "rb") as file:
        assert file.read() == content, "another content in the folder"
    # This client compresses all large messages, also if they become longer.
    whole = size if size > 1024 else 0
    assert grew["in", "plain"] >= whole, "the gateway expanded %d bytes" % grew["in", "plain"]
    assert kind not in ("text", "zeros") or not whole or grew["in", "compressed"] < size / 2, grew
    found, grew = moved(lambda: client.read(name))
    assert found == content, "another content was read"
    plain, compressed = grew["out", "plain"], grew["out", "compressed"]
    if kind == "random" or size <= ANSWER_MIN:
        assert plain == 0, "%d bytes of answers were compressed" % plain
    elif kind == "mixed":
        assert 0 < compressed < plain, grew
    else:
        # The last READ may be of too few bytes.
        assert plain >= size - ANSWER_MIN, "%d bytes of answers were compressed" % plain
        assert compressed < plain / 2, grew


def main():
    gateway, folder = sys.argv[1:]
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True, timeout=60)
    root = os.path.join(folder, "data")
    os.makedirs(root)
    owner = pwd.getpwnam(USER).pw_uid
    os.chown(root, owner, owner)
    at = smb_servers.place(folder, HOST)
    text = CONFIG % (root, USER, smb_servers.password_file(at), HOST)
    process = smb_servers.gateway(gateway, at, HOST, text)
    for program, sizes in SIZES_OF.items():
        client = program(HOST)
        for kind in KINDS:
            for size in sizes:
                name = "crate smb, %s/%s-%d" % (client.way, kind, size)
                try:
                    there_and_back(client, root, kind, size)
                    print("ok %s" % name, flush=True)
                except Exception as error:  # noqa: BLE001: what a client says is the result
                    why = " ".join(("%s %s" % (type(error).__name__, error)).split())[:400]
                    print("not ok %s: %s" % (name, why), flush=True)
    process.terminate()
    process.wait(30)


main()
