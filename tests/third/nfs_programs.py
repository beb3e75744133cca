"""Other people's clients of NFS on one gateway: list, read, write, rename, remove, times, links, rights, odd names, 10,000 entries.

    unshare -n -m -p -f --kill-child python3 nfs_programs.py GATEWAY FOLDER QEMU-IMG

In a network namespace of its own, where the gateway has ports 111 and 2049. Prints `ok NAME` or `not ok NAME: WHY` for each check,
then rows of the table. THIRD_ROOT is the folder with the programs, QEMU-IMG the root of an unpacked qemu-utils with its block
drivers. `nfs_programs.py --libnfs LABEL SONAME FOLDER` runs one libnfs alone, for a loader that finds it.
"""

import ctypes
import os
import select
import subprocess
import sys
import time

from nfs_clients import PROGRAMS
from operations import ENTRIES, Server, Table, make_root
from smb_clients import LOADER, ROOT, TRIXIE

HOST = "127.0.0.1"
ODD = ["sp ace", "tab\there", "new\nline", "a:b*?", "back\\slash", "tr.", "sp ", "ümläut", "-rf", "x" * 255]
CONFIG = """shares:
  - {name: data, path: %s/data, squash: none}
bind: 127.0.0.1
admin: off
rdma: off
privileged_ports: off
"""


def check(name, run):
    try:
        run()
        print("ok", name)
    except Exception as why:  # noqa: BLE001: what a client says is the result
        print("not ok %s: %s" % (name, " ".join(("%s %s" % (type(why).__name__, why)).split())))


def equal(found, expected):
    assert found == expected, "%r, not %r" % (found, expected)


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, "%s: %s" % (words[0], done.stderr.strip() or done.stdout.strip())
    return done.stdout


class Stat(ctypes.Structure):
    """`struct nfs_stat_64` of libnfs."""

    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            "dev ino mode nlink uid gid rdev size blksize blocks atime mtime ctime "
            "atime_nsec mtime_nsec ctime_nsec used"
        ).split()
    ]


class Dirent(ctypes.Structure):
    """The head of `struct nfsdirent`."""


Dirent._fields_ = [("next", ctypes.POINTER(Dirent)), ("name", ctypes.c_char_p), ("inode", ctypes.c_uint64)]


class Url(ctypes.Structure):
    _fields_ = [("server", ctypes.c_char_p), ("path", ctypes.c_char_p), ("file", ctypes.c_char_p)]


class Timeval(ctypes.Structure):
    _fields_ = [("sec", ctypes.c_long), ("usec", ctypes.c_long)]


CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


class Libnfs:
    """libnfs, as qemu, kodi and mpd use it."""

    made = 0
    soname = "libnfs.so.13"

    def __init__(self, version, uid=0):
        self.lib = ctypes.CDLL(Libnfs.soname)
        for name in ("nfs_init_context", "nfs_parse_url_dir", "nfs_get_error", "nfs_readdir"):
            getattr(self.lib, name).restype = ctypes.c_void_p
        self.context = ctypes.c_void_p(self.lib.nfs_init_context())
        url = self.lib.nfs_parse_url_dir(self.context, b"nfs://%s/data?version=%d" % (HOST.encode(), version))
        assert url, self.error()
        url = ctypes.cast(url, ctypes.POINTER(Url)).contents
        # Of one process, and yet several clients: the library names each by the process.
        Libnfs.made += 1
        self.lib.nfs4_set_client_name(self.context, b"%s-%d" % (Libnfs.soname.encode(), Libnfs.made))
        self.lib.nfs_set_uid(self.context, uid)
        self.lib.nfs_set_gid(self.context, uid)
        self("mount", ctypes.c_char_p(url.server), ctypes.c_char_p(url.path))

    def error(self):
        return ctypes.string_at(self.lib.nfs_get_error(self.context)).decode(errors="replace")

    def __call__(self, name, *args):
        args = [a.encode() if isinstance(a, str) else a for a in args]
        done = getattr(self.lib, "nfs_" + name)(self.context, *args)
        if done < 0:
            raise OSError(-done, self.error())
        return done

    def close(self):
        self.lib.nfs_destroy_context(self.context)

    def open(self, path, flags):
        handle = ctypes.c_void_p()
        self("open", path, flags, ctypes.byref(handle))
        return handle

    def write(self, path, data):
        handle = ctypes.c_void_p()
        self("creat", path, 0o644, ctypes.byref(handle))
        self("close", handle)
        handle = self.open(path, os.O_WRONLY)
        equal(self("pwrite", handle, ctypes.c_uint64(0), ctypes.c_uint64(len(data)), data), len(data))
        self("close", handle)

    def read(self, path, length):
        handle, data = self.open(path, os.O_RDONLY), ctypes.create_string_buffer(length)
        done = self("pread", handle, ctypes.c_uint64(0), ctypes.c_uint64(length), data)
        self("close", handle)
        return data.raw[:done]

    def stat(self, path):
        found = Stat()
        self("lstat64", path, ctypes.byref(found))
        return found

    def names(self, path):
        handle, found = ctypes.c_void_p(), []
        self("opendir", path, ctypes.byref(handle))
        while entry := self.lib.nfs_readdir(self.context, handle):
            found.append(os.fsdecode(ctypes.cast(entry, ctypes.POINTER(Dirent)).contents.name))
        self.lib.nfs_closedir(self.context, handle)
        return sorted(n for n in found if n not in (".", ".."))

    def opens_at_once(self, paths):
        """Two first opens that are under way together."""
        done = []

        def opened(status, _context, data, _private):
            done.append(0 if status == 0 else ctypes.string_at(data or b""))

        callback = CALLBACK(opened)
        for path in paths:
            assert self.lib.nfs_open_async(self.context, path.encode(), os.O_RDONLY, callback, None) == 0
        until = time.monotonic() + 20
        while len(done) < len(paths) and time.monotonic() < until:
            fd, events = self.lib.nfs_get_fd(self.context), self.lib.nfs_which_events(self.context)
            poll = select.poll()
            poll.register(fd, events)
            for _, event in poll.poll(100):
                self.lib.nfs_service(self.context, event)
        return done


def by_libnfs(label, version, folder):
    def name(what):
        return "%s-v%d/%s" % (label, version, what)

    def path(what):
        return os.path.join(folder, "data", "%s-%d" % (label, version), what)

    top = "/%s-%d/" % (label, version)
    state = {}

    def mount():
        state["c"] = Libnfs(version)
        state["c"]("mkdir", top[:-1])
        os.chmod(path(""), 0o777)

    def data():
        # By version 4 it cannot write more at once: its encoder has no room for it.
        content = os.urandom(300_000 if version == 3 else 3_000)
        state["c"].write(top + "file", content)
        equal(open(path("file"), "rb").read(), content)
        equal(state["c"].read(top + "file", 400_000), content)
        equal(state["c"].stat(top + "file").size, len(content))

    def names():
        c = state["c"]
        c("rename", top + "file", top + "moved")
        equal(c.names(top), ["moved"])
        c("link", top + "moved", top + "second")
        equal(c.stat(top + "second").nlink, 2)
        c("symlink", "moved", top + "link")
        target = ctypes.create_string_buffer(100)
        c("readlink", top + "link", target, 100)
        equal(target.value, b"moved")
        for gone in ("second", "link"):
            c("unlink", top + gone)
        c("mkdir", top + "sub")
        c("rmdir", top + "sub")
        equal(c.names(top), ["moved"])

    def attributes():
        c = state["c"]
        c("chmod", top + "moved", 0o640)
        c("truncate", top + "moved", ctypes.c_uint64(77))
        times = (Timeval * 2)(Timeval(1_000_000_000, 0), Timeval(1_100_000_000, 0))
        c("utimes", top + "moved", times)
        found = c.stat(top + "moved")
        equal((found.mode & 0o7777, found.size, found.atime, found.mtime), (0o640, 77, 1_000_000_000, 1_100_000_000))

    def rights():
        os.chmod(path("moved"), 0o600)
        other = Libnfs(version, uid=1000)
        try:
            other.open(top + "moved", os.O_RDONLY)
            raise AssertionError("another user's file was opened")
        except OSError as why:
            equal(why.errno, 13)
        other.write(top + "own", b"mine")
        equal(os.stat(path("own")).st_uid, 1000)
        other.close()

    def odd():
        c = state["c"]
        c("mkdir", top + "odd")
        for n in ODD:
            c.write(top + "odd/" + n, n.encode())
        equal(c.names(top + "odd"), sorted(ODD))
        for n in ODD:
            equal(c.read(top + "odd/" + n, 300), n.encode())
            c("unlink", top + "odd/" + n)
        equal(os.listdir(path("odd")), [])

    def crowd():
        equal(len(state["c"].names("/many")), ENTRIES)

    def at_once():
        fresh = Libnfs(version)
        equal(fresh.opens_at_once(["/many/0", "/many/1"]), [0, 0])
        fresh.close()

    for what, test in [
        ("mount", mount), ("data", data), ("names", names), ("attributes", attributes), ("rights", rights), ("odd-names", odd),
        ("10000-entries", crowd), ("first-opens-at-once", at_once),
    ]:
        # By version 4 this libnfs gives both opens one number of its owner, so that the server takes one for the other.
        if test is at_once and version == 4:
            continue
        check(name(what), test)


def by_py_nfs_client(folder):
    """pyNfsClient 0.1.5."""
    import pyNfsClient as nfs

    auth = {"flavor": 1, "machine_name": "third", "uid": 0, "gid": 0, "aux_gid": []}
    state = {}

    def resok(answer):
        assert answer["status"] == 0, answer
        return answer.get("resok")

    def mount():
        mapper = nfs.Portmap(HOST, timeout=20)
        mapper.connect()
        mount_port = mapper.getport(nfs.Mount.program, nfs.Mount.program_version)
        nfs_port = mapper.getport(nfs.NFS_PROGRAM, nfs.NFS_V3)
        equal((mount_port, nfs_port), (2049, 2049))
        assert mapper.dump()
        mapper.disconnect()
        mount = nfs.Mount(host=HOST, port=mount_port, timeout=20, auth=auth)
        mount.connect()
        state["root"] = mount.mnt("/data", auth)["mountinfo"]["fhandle"]
        state["c"] = nfs.NFSv3(HOST, nfs_port, 20, auth=auth)
        state["c"].connect()

    def data():
        c, root = state["c"], state["root"]
        made = resok(c.create(root, "py", nfs.UNCHECKED, mode=0o644))
        state["file"] = file = made["obj"]["handle"]["data"]
        content = "some text " * 1000
        resok(c.write(file, offset=0, count=len(content), content=content, stable_how=nfs.FILE_SYNC))
        equal(open(folder + "/data/py").read(), content)
        equal(resok(c.read(file, offset=0))["data"], content.encode())

    def names():
        c, root = state["c"], state["root"]
        resok(c.rename(root, "py", root, "py-moved"))
        resok(c.link(state["file"], root, "py-second"))
        resok(c.symlink(root, "py-link", "py-moved"))
        link = resok(c.lookup(root, "py-link"))["object"]["data"]
        equal(resok(c.readlink(link))["data"], b"py-moved")
        folder_made = resok(c.mkdir(root, "py-dir", mode=0o755))
        assert folder_made["obj"]["present"]
        resok(c.rmdir(root, "py-dir"))
        for gone in ("py-second", "py-link"):
            resok(c.remove(root, gone))

    def attributes():
        c = state["c"]
        resok(c.setattr(state["file"], mode=0o600, size=9, mtime_flag=nfs.SET_TO_CLIENT_TIME, mtime_s=1_000_000_000, mtime_us=0))
        found = c.getattr(state["file"])["attributes"]
        equal((found["mode"], found["size"], found["mtime"]["seconds"]), (0o600, 9, 1_000_000_000))

    def crowd():
        c = state["c"]
        many = resok(c.lookup(state["root"], "many"))["object"]["data"]
        found, cookie = 0, 0
        while True:
            # With its own verifier, which no server has given.
            answer = resok(c.readdirplus(many, cookie=cookie))
            entry = answer["reply"]["entries"]
            while entry:
                found, cookie = found + 1, entry[0]["cookie"]
                entry = entry[0]["nextentry"]
            if answer["reply"]["eof"]:
                break
        equal(found, ENTRIES + 2)

    for what, test in [("mount", mount), ("data", data), ("names", names), ("attributes", attributes), ("10000-entries", crowd)]:
        check("pyNfsClient/" + what, test)


def by_tools():
    def exports():
        assert "/data" in run("showmount", "-e", HOST)

    def versions():
        for way in ("tcp", "udp"):
            found = run("rpcinfo", "-T", way, HOST, "100024")
            assert "version 1 ready" in found, found
        assert "version 4 ready" in run("rpcinfo", "-T", "tcp", HOST, "100003")

    def lists():
        for words in (["-p"], []):
            found = run("rpcinfo", *words, HOST)
            assert "100021" in found, found
        assert "statistics" in run("rpcinfo", "-m", HOST)

    def listing():
        equal(len(run("nfs-ls", "nfs://%s/data/many" % HOST).splitlines()), ENTRIES)

    for what, test in [("showmount", exports), ("rpcinfo/versions", versions), ("rpcinfo/lists", lists), ("nfs-ls", listing)]:
        check(what, test)


def by_qemu(root, folder):
    """qemu-img of Debian 12 over its block driver for NFS."""
    program = os.path.join(root, "usr/bin/qemu-img")
    os.environ["QEMU_MODULE_DIR"] = os.path.join(root, "usr/lib/x86_64-linux-gnu/qemu")
    url = "nfs://%s/data/disk.qcow2" % HOST

    def image():
        run(program, "create", "-f", "qcow2", url, "64M")
        run(program, "bench", "-f", "qcow2", "-w", "-c", "200", "-d", "8", url)
        assert "No errors" in run(program, "check", "-f", "qcow2", url)
        run(program, "convert", "-O", "raw", url, folder + "/raw")
        equal(os.stat(folder + "/raw").st_size, 64 << 20)
        run(program, "resize", "-f", "qcow2", url, "128M")

    check("qemu-img/image", image)


def by_newer_libnfs(folder):
    """libnfs 5 of the next Debian, by that system's loader and C library."""
    words = [LOADER, "--library-path", TRIXIE, "/usr/bin/python3", os.path.abspath(__file__), "--libnfs"]
    done = subprocess.run(words + ["libnfs5", "libnfs.so.14", folder], capture_output=True, text=True, timeout=120)
    print(done.stdout, end="", flush=True)
    if done.returncode != 0:
        print("not ok libnfs5: %s" % " ".join(done.stderr[-300:].split()))


def by_others(folder):
    """One row of the table for each."""
    table = Table({}, "")
    server = Server("gateway", HOST, os.path.join(folder, "data"), 1)
    for name, kind in PROGRAMS.items():
        table.visit(name, kind, [server])
    table.show()


def main():
    program, folder, qemu = sys.argv[1:]
    make_root(os.path.join(folder, "data"))
    run("ip", "link", "set", "lo", "up")
    # The host's rpcbind is not asked by those who look for it in /run.
    run("mount", "-t", "tmpfs", "none", "/run")
    config = os.path.join(folder, "gateway.yaml")
    with open(config, "w") as out:
        out.write(CONFIG % folder)
    with open(os.path.join(folder, "gateway.log"), "w") as log:
        gateway = subprocess.Popen(
            [program, "serve", "--config", config, "--state", folder + "/state"], stdout=subprocess.PIPE, stderr=log, text=True
        )
    ready = gateway.stdout.readline()
    check("gateway", lambda: equal(ready.startswith("headgate ready"), True))
    by_tools()
    for version in (3, 4):
        by_libnfs("libnfs", version, folder)
    by_newer_libnfs(folder)
    sys.path.insert(0, os.path.join(ROOT, "python"))
    by_py_nfs_client(folder)
    by_others(folder)
    by_qemu(qemu, folder)
    gateway.terminate()
    gateway.wait(30)


def libnfs(label, soname, folder):
    Libnfs.soname = soname
    for version in (3, 4):
        by_libnfs(label, version, folder)


if sys.argv[1] == "--libnfs":
    libnfs(*sys.argv[2:])
else:
    main()
