"""Files of every size around the thresholds, written and read by buffered and by direct I/O, byte-exact both ways."""

import mmap
import os

import lab
import share
from lab import check, must_equal

WAYS = ("buffered", "direct")

# Page-aligned, which direct I/O likes, and with room for the largest file of any job. One for all: each page that a program of the
# guest touches first costs its kernel, itself a program, a signal, a system call by ptrace, and four changes of the process.
memory = mmap.mmap(-1, 40 << 20)


def flags(way):
    return os.O_DIRECT if way == "direct" else 0


def write_all(path, data, way):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | flags(way), 0o644)
    memory[: len(data)] = data
    try:
        done = 0
        while done < len(data):
            done += os.write(fd, memoryview(memory)[done : len(data)])
        os.fsync(fd)
    finally:
        os.close(fd)


def read_all(path, size, way):
    fd = os.open(path, os.O_RDONLY | flags(way))
    memory[:size] = bytes(size)  # what is not read must not be there from the file before
    into = memoryview(memory)[: size + 4096]  # a direct read asks for all of it, also beyond the end
    done = 0
    while n := os.preadv(fd, [into[done:]], done):
        done += n
        if done == size:  # the end must be seen, too: a direct read beyond it gives nothing
            must_equal(os.preadv(fd, [into[done:]], done), 0, "bytes beyond the end")
            break
    os.close(fd)
    return memory[:done]


def write_one(top, way, size):
    write_all(f"{top}/{way}-{size}", share.pattern(f"{lab.LABEL}-{way}-{size}", size), way)


def read_one(top, way, writer, size):
    found = read_all(f"{top}/{writer}-{size}", size, way)
    same(found, share.pattern(f"{lab.LABEL}-{writer}-{size}", size))


def read_host(top, way, size):
    found = read_all(f"{top}/../made-by-host/size-{size}", size, way)
    same(found, share.pattern(f"host-{size}", size))


def same(found, wanted):
    must_equal(len(found), len(wanted), "length")
    if found != wanted:
        at = next(i for i in range(len(wanted)) if found[i] != wanted[i])
        raise lab.Differs(f"differs from byte {at} on")


def job(top):
    for way in WAYS:
        for size in share.SIZES:
            check(f"sizes/write-{way}-{size}", write_one, top, way, size)
    lab.drop_caches()
    for way in WAYS:
        for size in share.SIZES:
            # What one way wrote, the other reads.
            writer = WAYS[1 - WAYS.index(way)]
            check(f"sizes/read-{way}-{size}", read_one, top, way, writer, size)
            check(f"sizes/read-{way}-by-host-{size}", read_host, top, way, size)
    check("sizes/overwrite-in-the-middle", overwrite, top)
    lab.leave("sizes", lab.TOP, os.path.basename(top))


def overwrite(top):
    """Bytes around a hole punched by neither side: odd offsets, odd lengths, over page ends."""
    path, size = f"{top}/overwritten", 300_000
    wanted = bytearray(share.pattern(path, size))
    write_all(path, wanted, "buffered")
    with open(path, "r+b", buffering=0) as f:
        for at, length in ((0, 1), (1, 4095), (4095, 2), (65_530, 70_001), (299_999, 1), (200_000, 8191)):
            piece = share.pattern(f"{at}", length)
            wanted[at : at + length] = piece
            must_equal(os.pwrite(f.fileno(), piece, at), length, "written")
        os.fsync(f.fileno())
    lab.drop_caches()
    same(lab.pread_all(path), bytes(wanted))
