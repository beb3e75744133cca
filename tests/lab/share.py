#!/usr/bin/env python3
"""The share's folder, seen from the server's side.

share.py populate DIR               makes the files that clients read but did not write
share.py pattern FILE NAME SIZE      makes a file of so many bytes, those of this name
share.py compare DIR MANIFEST...    compares the folder with what clients say they left there (JSON, see guest/lab.py)

`compare` prints one line per manifest, `ok NAME` or `not ok NAME: difference`, and exits 1 if there was a difference.
"""

import hashlib
import json
import os
import stat
import sys

# Around every threshold of the transports: inline sizes, pages, the pool's buffer sizes, the largest payload.
MARKS = [0, 1, 127, 128, 1340, 1364, 4095, 4096, 4097, 8191, 8192, 8193, 65535, 65536, 65537, 1 << 20, 8 << 20]
SIZES = sorted({n for mark in MARKS for n in (mark - 1, mark, mark + 1) if n >= 0})


def pattern(name, size):
    """`size` bytes that only a file of this name holds; no two pages of it are alike."""
    return hashlib.shake_128(name.encode()).digest(size)


def populate(folder):
    made = os.path.join(folder, "made-by-host")
    os.makedirs(made, exist_ok=True)
    for size in SIZES:
        with open(os.path.join(made, f"size-{size}"), "wb") as f:
            f.write(pattern(f"host-{size}", size))


def describe(path):
    """What a manifest says of one entry: whatever must be equal on both sides."""
    st = os.lstat(path)
    entry = {"mode": st.st_mode, "uid": st.st_uid, "gid": st.st_gid, "mtime": int(st.st_mtime)}
    if stat.S_ISLNK(st.st_mode):
        entry["target"] = os.readlink(path)
        del entry["mtime"]
    elif stat.S_ISREG(st.st_mode):
        entry["nlink"], entry["size"] = st.st_nlink, st.st_size
        with open(path, "rb") as f:
            entry["sha256"] = hashlib.file_digest(f, "sha256").hexdigest()
    elif stat.S_ISDIR(st.st_mode):
        entry["names"] = sorted(os.listdir(path))
    return entry


def describe_tree(top, path=""):
    """Every entry below and with `path`, by its path from `top`."""
    full = os.path.join(top, path)
    entries = {path: describe(full)}
    for name in entries[path].get("names", ()):
        entries.update(describe_tree(top, os.path.join(path, name)))
    return entries


def difference(folder, manifest):
    """The first difference in words, or None."""
    for path, told in manifest["entries"].items():
        try:
            found = describe(os.path.join(folder, path))
        except OSError as e:
            return f"{path!r}: {e.strerror}"
        for key, value in told.items():
            if found.get(key) != value:
                return f"{path!r}: {key} is {found.get(key)!r}, the client saw {value!r}"
    return None


def compare(folder, manifests):
    failed = False
    for path in manifests:
        with open(path) as f:
            manifest = json.load(f)
        wrong = difference(folder, manifest)
        failed |= wrong is not None
        print(f"not ok {manifest['name']}: Differs: {wrong}" if wrong else f"ok {manifest['name']}")
    return 1 if failed else 0


if __name__ == "__main__":
    what, path = sys.argv[1], sys.argv[2]
    if what == "pattern":
        with open(path, "wb") as out:
            out.write(pattern(sys.argv[3], int(sys.argv[4])))
        sys.exit()
    sys.exit(populate(path) if what == "populate" else compare(path, sys.argv[3:]))
