"""One tree that eight processes change at the same time by SMB, NFS 4.2 and NFS 3: files made, written, cut, renamed, linked.

Each process has names of its own, in folders that all share: what becomes of those is known, byte for byte, and nothing there may
fail. And it takes part in a fight for a few names of all, where what may fail is known. In the end the three mounts and the host's
folder show one tree."""

import errno
import os
import random
import stat

import lab
import share
from lab import check, must, must_equal, must_hold, pread_all
from sizes import same
from threeways import MOUNTS, NFS3, NFS4, PROCESSES, each

FOLDERS = ("a", "b", "c")
SIZE_MAX = 100_000
TURNS = 12

# What a fight for a name may end with: it is there, it is not, it is of another kind, somebody has it open (SMB's share modes, and
# files that are about to go), or it went while its handle was used.
LOST = {errno.EEXIST, errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.ENOTEMPTY, errno.ESTALE, errno.EACCES, errno.EBUSY,
        errno.ETXTBSY}


class Own:
    """The names of one process: what they must show. Two names may be one file."""

    def __init__(self, me, top):
        self.me, self.top, self.made = me, top, 0
        self.random = random.Random(f"{lab.LABEL}-{me}")
        self.files = {}  # by name, below the top

    def new(self):
        self.made += 1
        return f"{self.random.choice(FOLDERS)}/own-{self.me}-{self.made}"

    def any(self):
        return self.random.choice(sorted(self.files))

    def at(self, name):
        return f"{self.top}/{name}"

    def make(self):
        name, data = self.new(), share.pattern(f"{self.me}{self.made}", self.random.randrange(SIZE_MAX))
        with open(self.at(name), "xb") as f:
            f.write(data)
            if self.random.random() < 0.3:
                os.fsync(f.fileno())
        self.files[name] = bytearray(data)

    def write(self):
        name = self.any()
        data, at = self.files[name], self.random.randrange(SIZE_MAX)
        piece = share.pattern(f"{name}{at}", self.random.randrange(1, SIZE_MAX // 4))
        with open(self.at(name), "r+b", buffering=0) as f:
            must_equal(os.pwrite(f.fileno(), piece, at), len(piece), "written")
        data.extend(bytes(max(0, at - len(data))))
        data[at : at + len(piece)] = piece

    def cut(self):
        name = self.any()
        data, size = self.files[name], self.random.randrange(SIZE_MAX)
        os.truncate(self.at(name), size)
        data.extend(bytes(max(0, size - len(data))))
        del data[size:]

    def read(self):
        name = self.any()
        same(pread_all(self.at(name)), bytes(self.files[name]))

    def rename(self):
        """To a new name, or over another file."""
        old, new = self.any(), self.any() if self.random.random() < 0.4 else self.new()
        os.rename(self.at(old), self.at(new))
        if self.files.get(new) is not self.files[old]:  # Two names of one file stay as they are.
            self.files[new] = self.files.pop(old)

    def link(self):
        old, new = self.any(), self.new()
        os.link(self.at(old), self.at(new))
        self.files[new] = self.files[old]

    def remove(self):
        name = self.any()
        os.unlink(self.at(name))
        del self.files[name]

    def turn(self):
        calls = (self.make, self.write, self.cut, self.read, self.rename, self.link, self.remove)
        (self.random.choice(calls) if len(self.files) > 2 else self.make)()


def fight(own):
    """One step in what belongs to all: files of the same few names, and folders. Those are not renamed: Linux's SMB client, when it
    meets a folder under a new name and knows the old one still, gives up inode numbers for the whole mount (`cifs_iget`), and then
    takes two names of one file for two files, of which a rename to the other makes one."""
    names = [f"{own.top}/{own.random.choice(FOLDERS)}/all-{own.random.randrange(4)}" for _ in range(2)]
    folder = f"{own.top}/{own.random.choice(FOLDERS)}/folder-{own.random.randrange(2)}"
    data = share.pattern(f"fight{own.me}", own.random.randrange(20_000))

    def write(path, how):
        with open(path, how) as f:
            f.write(data)

    calls = (
        lambda: write(names[0], "xb"),
        lambda: write(names[0], "wb"),
        lambda: pread_all(names[0]),
        lambda: os.rename(*names),
        lambda: os.link(*names),
        lambda: os.unlink(names[0]),
        lambda: os.mkdir(folder),
        lambda: os.rmdir(folder),
        lambda: write(f"{folder}/below", "wb"),
        lambda: os.unlink(f"{folder}/below"),
        lambda: os.listdir(os.path.dirname(names[0])),
    )
    number = own.random.randrange(len(calls))
    try:
        calls[number]()
    except OSError as why:
        must(why.errno in LOST, f"step {number} of the fight: {why}")


def told(where, why):
    """The same failure, with where it was."""
    kind = type(why) if isinstance(why, lab.Failed) else lab.Failed
    return kind(f"{where}: {why}")


def work(me, top):
    own = Own(me, top)
    for turn in range(TURNS):
        try:
            own.turn()
        except Exception as why:
            raise told(f"turn {turn}", why) from why
        fight(own)
    with open(f"/tmp/stress-{me}", "w") as f:
        f.writelines(f"{name}\n" for name in own.files)
    for name, data in own.files.items():
        try:
            same(pread_all(own.at(name)), bytes(data))
        except Exception as why:
            raise told(name, why) from why


def owned(top):
    """Every process sees what it made."""
    for folder in FOLDERS:
        os.mkdir(f"{top}/{folder}")
    each(top, work)


def none_is_lost(top):
    """The own names that are there are those that their processes have left."""
    wanted = []
    for me in range(PROCESSES):
        with open(f"/tmp/stress-{me}") as f:
            wanted += f.read().split()
    found = [f"{folder}/{name}" for folder in FOLDERS for name in os.listdir(f"{top}/{folder}") if name.startswith("own-")]
    must_hold(sorted(found), sorted(wanted), "names")


def seen(top):
    """A tree as a mount shows it, without times and what an SMB mount invents: modes, and, for the second after it has read a
    folder, that its files have one name each. The host compares these with what NFS shows."""
    tree = share.describe_tree(top)
    for entry in tree.values():
        entry["mode"] = stat.S_IFMT(entry["mode"])
        for key in ("uid", "gid", "mtime", "nlink"):
            entry.pop(key, None)
    return tree


def one_tree(top):
    """All mounts show the same, once their caches' seconds are over."""
    ways = [top.replace(lab.TOP, mount) for mount in MOUNTS]

    def differs():
        lab.drop_caches()
        try:
            first, *others = map(seen, ways)
        except FileNotFoundError as why:
            # Removed, and listed until Linux's SMB client closes a handle that it has kept.
            return [(why.filename, "listed", "does not open")]
        return [(path, first.get(path), other.get(path))
                for other in others for path in first.keys() | other.keys() if first.get(path) != other.get(path)]

    try:
        lab.wait_until(lambda: not differs(), "one tree", 15)
    except lab.Failed:
        raise lab.Differs(f"{differs()[:3]}") from None


def job(top):
    for mount, version in ((NFS4, "4.2"), (NFS3, "3")):
        os.makedirs(mount, exist_ok=True)
        command = lab.mount_command(mount, cifs=False, vers=version, proto=lab.PROTO, extra="nolock" if version == "3" else "")
        if not check(f"stress/mount-{version}", lambda: lab.run(*command)):
            return
    for call in (owned, none_is_lost, one_tree):
        check(f"stress/{call.__name__.replace('_', '-')}", call, top)
    # What NFS shows is all there is of a file, which the host compares.
    lab.CIFS = False
    lab.leave("stress", NFS4, os.path.basename(top))
    lab.CIFS = True
    for mount in MOUNTS[1:]:
        check(f"stress/unmount-{os.path.basename(mount)}", lab.umount, mount)
