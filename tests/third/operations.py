"""What each client program is asked to do, whatever its protocol, and the table of what came of it.

A client is an object with some of these methods; paths are relative to the share and use `/`:

    names(folder) -> list        read(path) -> bytes        write(path, data)        rename(old, new)
    remove(path)                 mkdir(path), rmdir(path)   mtime(path) -> seconds   set_mtime(path, seconds)
    readlink(path), where the client follows links, not the server          without, operations that it lacks
    link(old, new)               as_other() -> the same program as another user      grant(path, user)

An operation whose methods the client lacks is left out of its row.
"""

import os
import time

ENTRIES = 10_000
OPERATIONS = ["list", "read", "write", "rename", "remove", "times", "links", "rights", "odd names", "10,000 entries"]
# Names that a program can make, and names that only the host can make by SMB.
MADE_BY_CLIENT = ["sp ace", "ümläut", "日本語", "-rf", "a&b's (1) #$=+[]", "x" * 255]
MADE_BY_HOST = ["a:b*?", "back\\slash", "tr.", "sp ", "tab\there", 'q"<|>']
# How often an operation is tried that ended because the client understands no interim answer.
TURNS = 5
THEN, LATER = 1_000_000_000, 1_100_000_000


class Place:
    """The folder of one program and operation: its path for the client, and on the host."""

    def __init__(self, server, program, operation):
        self.path = "-".join((server.name, program, operation)).replace(" ", "-").replace(",", "")
        self.host = os.path.join(server.root, self.path)
        self.owner = server.owner
        os.makedirs(self.host)
        self.give(self.host, 0o755)

    def give(self, path, mode):
        os.chmod(path, mode)
        os.chown(path, self.owner, self.owner)

    def at(self, name):
        return self.path + "/" + name

    def make(self, name, data=b"", mode=0o644):
        path = os.path.join(self.host, name)
        with open(path, "wb") as out:
            out.write(data)
        self.give(path, mode)
        return path

    def make_folder(self, name):
        path = os.path.join(self.host, name)
        os.mkdir(path)
        self.give(path, 0o755)

    def content(self, name):
        with open(os.path.join(self.host, name), "rb") as file:
            return file.read()

    def left(self):
        return sorted(os.listdir(self.host))


def equal(found, expected):
    if found != expected:
        shown = ["%r" % (value,) for value in (found, expected)]
        raise AssertionError("%s, not %s" % tuple(s if len(s) < 300 else s[:300] + "..." for s in shown))


def lists(client, place):
    for name in ("one", "two"):
        place.make(name)
    place.make_folder("sub")
    equal(sorted(client.names(place.path)), ["one", "sub", "two"])


def reads(client, place):
    for size in (0, 1, 300_000):
        content = os.urandom(size)
        place.make(str(size), content)
        equal(client.read(place.at(str(size))), content)


def writes(client, place):
    for size in (1, 300_000):
        content = os.urandom(size)
        client.write(place.at(str(size)), content)
        equal(place.content(str(size)), content)


def renames(client, place):
    place.make("old", b"content")
    place.make_folder("folder")
    client.rename(place.at("old"), place.at("new"))
    client.rename(place.at("new"), place.at("folder/newer"))
    client.rename(place.at("folder"), place.at("other"))
    equal((place.left(), place.content("other/newer")), (["other"], b"content"))


def removes(client, place):
    place.make("file")
    client.remove(place.at("file"))
    equal(place.left(), [])
    if hasattr(client, "mkdir"):
        client.mkdir(place.at("sub"))
        equal(place.left(), ["sub"])
        client.rmdir(place.at("sub"))
        equal(place.left(), [])


def times(client, place):
    path = place.make("file")
    os.utime(path, (THEN, THEN))
    equal(client.mtime(place.at("file")), THEN)
    if hasattr(client, "set_mtime"):
        client.set_mtime(place.at("file"), LATER)
        equal(int(os.stat(path).st_mtime), LATER)


def links(client, place):
    place.make("file", b"through a link")
    place.make_folder("sub")
    place.make("sub/inner", b"deeper")
    os.symlink("file", os.path.join(place.host, "to-file"))
    os.symlink("sub", os.path.join(place.host, "to-folder"))
    if hasattr(client, "readlink"):
        equal(client.readlink(place.at("to-file")), "file")
    else:
        equal(client.read(place.at("to-file")), b"through a link")
        if hasattr(client, "names"):
            equal(list(client.names(place.at("to-folder"))), ["inner"])
    if hasattr(client, "link"):
        client.link(place.at("file"), place.at("second"))
        equal(os.stat(os.path.join(place.host, "file")).st_nlink, 2)


def rights(client, place):
    place.make("open", b"for all", 0o644)
    place.make("closed", b"for one", 0o600)
    equal(client.read(place.at("closed")), b"for one")
    other = client.as_other()
    equal(other.read(place.at("open")), b"for all")
    try:
        found = other.read(place.at("closed"))
    except Exception:  # noqa: BLE001: each program has its own
        found = None
    equal(found, None)
    if hasattr(client, "grant"):
        client.grant(place.at("closed"))
        equal(other.read(place.at("closed")), b"for one")


def odd_names(client, place):
    if hasattr(client, "write"):
        for name in MADE_BY_CLIENT:
            client.write(place.at(name), name.encode())
        equal(place.left(), sorted(MADE_BY_CLIENT))
    made = [place.make(name, name.encode()) for name in MADE_BY_HOST + MADE_BY_CLIENT]
    shown = client.names(place.path)
    equal(len(shown), len(made))
    found = sorted(client.read(place.at(name)).decode() for name in shown)
    equal(found, sorted(MADE_BY_HOST + MADE_BY_CLIENT))
    if hasattr(client, "remove"):
        for name in shown:
            client.remove(place.at(name))
        equal(place.left(), [])


def many(client, _place):
    equal(len(client.names("many")), ENTRIES)


# By operation: what it runs, and the methods that it takes.
RUN = dict(
    zip(
        OPERATIONS,
        [
            (lists, ["names"]),
            (reads, ["read"]),
            (writes, ["write"]),
            (renames, ["rename"]),
            (removes, ["remove"]),
            (times, ["mtime"]),
            (links, ["read"]),
            (rights, ["read", "as_other"]),
            (odd_names, ["names", "read"]),
            (many, ["names"]),
        ],
    )
)


class Server:
    """A server that clients visit: its name, its address, and the folder that it serves."""

    def __init__(self, name, host, root, owner):
        self.name, self.host, self.root, self.owner = name, host, root, owner


def make_root(root):
    """The folder that all servers share, which has another with many files."""
    folder = os.path.join(root, "many")
    os.makedirs(folder)
    os.chmod(root, 0o777)
    for n in range(ENTRIES):
        open(os.path.join(folder, str(n)), "w").close()


def outcome(program, kind, operation, server):
    """Returns None where it works, else what went wrong."""
    why = None
    for turn in range(TURNS):
        try:
            client = kind(server.host)
            run, _ = RUN[operation]
            run(client, Place(server, "%s-%d" % (program, turn), operation))
            return None
        except Exception as error:  # noqa: BLE001: what a client says is the result
            why = " ".join(("%s %s" % (type(error).__name__, error)).split())[:400]
        # It takes an interim answer for an error, which a loaded server of either kind sends.
        if getattr(kind, "pending", None) is None or kind.pending not in why:
            break
    return why


def able(kind, operation):
    return operation not in getattr(kind, "without", ()) and all(hasattr(kind, method) for method in RUN[operation][1])


class Table:
    """One row for each program, one column for each operation; what fails here and works on the other server is a fault."""

    def __init__(self, known, other):
        self.known, self.other, self.rows = known, other, {}

    def visit(self, program, kind, servers):
        """Runs each operation on each server. `servers[0]` is the one under test."""
        began = time.monotonic()
        row = self.rows[kind.label] = {}
        for operation in OPERATIONS:
            row[operation] = self.judge(program, kind, operation, servers) if able(kind, operation) else "–"
        print("# %s took %.1f s" % (program, time.monotonic() - began), flush=True)

    def judge(self, program, kind, operation, servers):
        name = "%s/%s" % (program, operation)
        ours, *theirs = [outcome(program, kind, operation, server) for server in servers]
        reason = self.known.get((program, operation))
        if ours is None:
            print("not ok %s: works, and is listed as known" % name if reason else "ok %s" % name, flush=True)
            if any(theirs):
                print("# %s on %s: %s" % (name, self.other, theirs[0]))
            return "yes"
        if reason:
            print("ok %s: as known: %s" % (name, ours), flush=True)
            return "no: %s" % reason
        served = "; %s: %s" % (self.other, theirs[0] or "works") if theirs else ""
        print("not ok %s: %s%s" % (name, ours, served), flush=True)
        return "FAILS"

    def show(self):
        for label in sorted(self.rows, key=str.lower):
            print("row | %s | %s |" % (label, " | ".join(self.rows[label][o] for o in OPERATIONS)), flush=True)
