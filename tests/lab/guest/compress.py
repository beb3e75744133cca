"""Compressed WRITEs of this client (`compress`, Linux 6.12: LZ77, unchained): files around each limit, byte-exact both ways.

The client compresses what it writes to shares whose server asks for that (`compress: true`), from 4 KiB on, if a sample is
compressible and the session is not encrypted. It asks for no compressed answers. The gateway's counters show what came compressed.
"""

import errno
import json
import os
import urllib.request

import lab
import share
import sizes
from lab import check, must

AT = "/mnt/compressed"
LEAST = 4096
MIB = 1 << 20
SIZES = [1, LEAST - 1, LEAST, LEAST + 1, 65_535, 65_536, 65_537, MIB, 9 * MIB + 1]
# Options beside `compress`, and the sizes. What is encrypted this client sends uncompressed.
MOUNTS = {"plain": ("", SIZES), "sign": (",sign", SIZES), "seal": (",seal", [LEAST, MIB])}


# This client's compressor (`lz77_match_len`, Linux 6.12) takes one byte too many into a match that ends within the last 8 bytes of
# a WRITE and not with it. Data that ends with other bytes than any before has no such match.
ENDING = 16


def lines(size):
    return b"".join(b"line %d of a log; " % n for n in range(size // 10 + 1))[:size]


def text(name, size):
    return lines(max(size - ENDING, 0)) + share.pattern(name, min(size, ENDING))


def zeros(_, size):
    return bytes(size)


def mixed(name, size):
    part = size // 4
    return bytes(part) + lines(part) + share.pattern(name, part) + bytes(size - 3 * part)


KINDS = {"text": text, "zeros": zeros, "mixed": mixed, "random": share.pattern}


def received():
    """Bytes of requests before and after the gateway expanded them."""
    with urllib.request.urlopen(f"http://{lab.SERVER}:9464/status", timeout=60) as answer:
        counts = json.load(answer)["smb"]["compression"]
    return counts["in_compressed"], counts["in_plain"]


def is_negotiated():
    found = lab.pread_all("/proc/fs/cifs/DebugData").decode()
    must("Compression: enabled (LZ77)" in found, f"not negotiated: {found[-300:]}")


def write(top, name, kind, way, size, is_sealed):
    before = received()
    sizes.write_all(f"{top}/{name}", KINDS[kind](name, size), way)
    compressed, plain = (after - then for after, then in zip(received(), before))
    if kind == "random" or size < LEAST or is_sealed:
        must(plain == 0, f"{plain} bytes came compressed")
    elif kind != "mixed":
        # The last of several WRITEs may be too small.
        must(plain > size - LEAST, f"{plain} bytes came compressed")
        must(compressed < plain / 2, f"{compressed} bytes, expanded {plain}")


def read(top, name, kind, way, size):
    sizes.same(sizes.read_all(f"{top}/{name}", size, way), KINDS[kind](name, size))


def refused_or_right(path):
    """Data that the client's compressor spoils, see above, does not get into a file if it is signed."""
    wanted = lines(LEAST)
    try:
        sizes.write_all(path, wanted, "direct")
    except OSError as e:
        must(e.errno in (errno.EACCES, errno.EIO), f"refused by {e}")
        return os.unlink(path)
    lab.drop_caches()
    sizes.same(lab.pread_all(path), wanted)


def job(top):
    base = os.path.basename(top)
    for mode, (options, sizes_of) in MOUNTS.items():
        lab.mount(AT, extra=f"compress,nosharesock{options}")
        try:
            check(f"compress/{mode}-negotiated", is_negotiated)
            cases = [(f"{mode}-{way}-{kind}-{size}", kind, way, size)
                     for way in sizes.WAYS for kind in KINDS for size in sizes_of]
            for name, kind, way, size in cases:
                check(f"compress/write-{name}", write, f"{AT}/{base}", name, kind, way, size, mode == "seal")
            lab.drop_caches()
            for name, kind, way, size in cases:
                check(f"compress/read-{name}", read, f"{AT}/{base}", name, kind, way, size)
            if mode == "sign":
                check("compress/spoiled-data-is-refused", refused_or_right, f"{AT}/{base}/spoiled")
        finally:
            lab.umount(AT)
    lab.leave("compress", lab.TOP, base)
