"""A little of everything, small enough that a capture of it misses nothing."""

import os

import lab
import share
from lab import check, drop_caches, must_equal, pread_all
from semantics import put
from sizes import read_all, same, write_all

SIZES = (0, 1, 127, 1340, 4096, 4097, 65_537, 1 << 20, (3 << 20) + 1)


def write(top):
    for size in SIZES:
        write_all(f"{top}/size-{size}", share.pattern(f"{size}", size), "buffered")


def read(top):
    drop_caches()
    for size in SIZES:
        same(read_all(f"{top}/size-{size}", size, "direct"), share.pattern(f"{size}", size))


def names(top):
    """Long listings and long symlinks come by Reply chunks."""
    os.mkdir(f"{top}/folder")
    wanted = [f"{'n' * 60}-{n}" for n in range(100)]
    for name in wanted:
        put(f"{top}/folder/{name}", b"x")
    drop_caches()
    must_equal(sorted(os.listdir(f"{top}/folder")), sorted(wanted))
    length = 1000 if lab.CIFS else 2000
    os.symlink("t" * length, f"{top}/long")
    drop_caches()
    must_equal(len(os.readlink(f"{top}/long")), length)


def remove(top):
    for name in os.listdir(f"{top}/folder"):
        os.rename(f"{top}/folder/{name}", f"{top}/folder/renamed")
        os.unlink(f"{top}/folder/renamed")
    os.rmdir(f"{top}/folder")
    must_equal(pread_all(f"{top}/size-1"), share.pattern("1", 1))


def job(top):
    for call in (write, read, names, remove):
        check(f"traffic/{call.__name__}", call, top)
