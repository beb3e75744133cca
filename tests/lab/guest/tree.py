"""Three thousand small files in fifteen folders: made, listed, renamed, removed."""

import os

import lab
from lab import check, must_equal

FOLDERS, FILES = 15, 200


def folder(top, i):
    return f"{top}/folder-{i:03}"


def name(i, j):
    return f"file-{i:03}-{j:03}"


def text(i, j):
    return f"{i} {j} {'.' * (j % 97)}\n".encode()


def make(top):
    for i in range(FOLDERS):
        os.mkdir(folder(top, i))
        for j in range(FILES):
            fd = os.open(f"{folder(top, i)}/{name(i, j)}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640)
            os.write(fd, text(i, j))
            os.close(fd)


def names_are(top, wanted):
    for i in range(FOLDERS):
        found = os.listdir(folder(top, i))
        must_equal(len(found), len(set(found)), "names without repetition")
        must_equal(sorted(found), [wanted(i, j) for j in range(FILES)], folder(top, i))


def read_some(top, wanted):
    for i in range(0, FOLDERS, 7):
        for j in range(0, FILES, 11):
            path = f"{folder(top, i)}/{wanted(i, j)}"
            must_equal(lab.pread_all(path), text(i, j), path)
            if not lab.CIFS:
                must_equal(os.stat(path).st_mode & 0o7777, 0o640, "mode")


def renamed(i, j):
    return f"renamed-{j:03}"


def rename(top):
    for i in range(FOLDERS):
        for j in range(FILES):
            os.rename(f"{folder(top, i)}/{name(i, j)}", f"{folder(top, i)}/{renamed(i, j)}")


def one_wide_folder(top):
    """A listing that takes many replies and changes while it is read: every name that stays is given exactly once."""
    wide = f"{top}/wide"
    os.mkdir(wide)
    stay = [f"stays-{'x' * (n % 60)}-{n}" for n in range(1000)]
    for n, path in enumerate(stay):
        os.mknod(f"{wide}/{path}")
        if n % 2:
            os.mknod(f"{wide}/goes-{n}")
    seen = []
    with os.scandir(wide) as listing:
        for n, entry in enumerate(listing):
            seen.append(entry.name)
            if n == 50:
                for m in range(1, 1000, 2):
                    os.unlink(f"{wide}/goes-{m}")
    must_equal(sorted(x for x in seen if x.startswith("stays")), sorted(stay), "names that stayed")
    must_equal(sorted(os.listdir(wide)), sorted(stay), "names afterwards")
    for path in stay:
        os.unlink(f"{wide}/{path}")
    os.rmdir(wide)


def remove(top):
    for i in range(FOLDERS):
        for j in range(FILES):
            os.unlink(f"{folder(top, i)}/{renamed(i, j)}")
        os.rmdir(folder(top, i))
    must_equal(os.listdir(top), [], "what is left")


def job(top):
    check("tree/make", make, top)
    lab.drop_caches()
    check("tree/list", names_are, top, name)
    check("tree/read-some", read_some, top, name)
    check("tree/rename", rename, top)
    lab.drop_caches()
    check("tree/list-renamed", names_are, top, renamed)
    check("tree/read-some-renamed", read_some, top, renamed)
    check("tree/listing-under-change", one_wide_folder, top)
    check("tree/remove", remove, top)
    lab.leave("tree", lab.TOP, os.path.basename(top))
