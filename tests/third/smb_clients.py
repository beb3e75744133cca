"""Other people's programs of SMB, each behind the methods that operations.py names."""

import calendar
import ctypes
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import time

SHARE = "data"
USER, OTHER, PASSWORD = "daemon", "bin", "Secret-of-1"
# Where packages are unpacked and built: see xtask/src/lab/smbprograms.rs.
ROOT = os.environ.get("THIRD_ROOT", "/")
LIBRARIES = os.path.join(ROOT, "debian/usr/lib/x86_64-linux-gnu")
# Libraries that are too new for this system, and the loader that comes with them.
TRIXIE = os.path.join(ROOT, "trixie/usr/lib/x86_64-linux-gnu") + ":/usr/lib/x86_64-linux-gnu:/lib/x86_64-linux-gnu"
LOADER = os.path.join(ROOT, "trixie/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2")
WINDOWS_EPOCH = 11_644_473_600


def run(*words, data=None, env=None):
    """Returns what a program prints. Ends it after 30 seconds."""
    done = subprocess.run(words, input=data, capture_output=True, timeout=30, env={**os.environ, **(env or {})})
    if done.returncode != 0:
        said = (done.stdout[-300:] + done.stderr[-300:]).decode(errors="replace")
        raise OSError("%s: %s" % (os.path.basename(words[0]), said.strip()))
    return done.stdout


def windows(path):
    return path.replace("/", "\\")


class Client:
    """A program that one user runs against one server."""

    def __init__(self, host, user=USER):
        self.host, self.user = host, user

    def as_other(self):
        return type(self)(self.host, OTHER)

    def url(self, path):
        return "smb://%s/%s/%s" % (self.host, SHARE, path)


class Smbclient(Client):
    """smbclient: one process for each request."""

    label = "smbclient 4.17 (Debian 12)"
    # The name to 30 columns, attributes to 7, the size to 8, and a time.
    LINE = re.compile(r"^  (.*)(.{7}) (.{8})  (.{24})$")

    def commands(self, *lines):
        words = ["smbclient", "//%s/%s" % (self.host, SHARE), "-U", "%s%%%s" % (self.user, PASSWORD)]
        said = run(*words, "-c", "; ".join(lines), env={"TZ": "UTC"}).decode()
        assert "NT_STATUS" not in said, said.strip()
        return said

    def listing(self, pattern):
        found = filter(None, map(self.LINE.match, self.commands('ls "%s"' % windows(pattern)).splitlines()))
        return [(f[1].rstrip(), f[4]) for f in found if f[1].rstrip() not in (".", "..")]

    def names(self, folder):
        return [name for name, _ in self.listing(folder + "/*")]

    def read(self, path):
        with tempfile.TemporaryDirectory() as there:
            self.commands('get "%s" %s/file' % (windows(path), there))
            with open(there + "/file", "rb") as file:
                return file.read()

    def write(self, path, data):
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            self.commands('put %s "%s"' % (file.name, windows(path)))

    def rename(self, old, new):
        self.commands('rename "%s" "%s"' % (windows(old), windows(new)))

    def remove(self, path):
        self.commands('rm "%s"' % windows(path))

    def mkdir(self, path):
        self.commands('mkdir "%s"' % windows(path))

    def rmdir(self, path):
        self.commands('rmdir "%s"' % windows(path))

    def mtime(self, path):
        return calendar.timegm(time.strptime(self.listing(path)[0][1], "%a %b %d %H:%M:%S %Y"))

    def set_mtime(self, path, seconds):
        when = time.strftime("%y:%m:%d-%H:%M:%S", time.gmtime(seconds))
        self.commands('utimes "%s" -1 -1 %s -1' % (windows(path), when))


class Smbget(Client):
    """smbget, which reads."""

    label = "smbget 4.17 (Debian 12)"

    def get(self, *words, **more):
        return run("smbget", "-q", "-U", "%s%%%s" % (self.user, PASSWORD), *words, **more)

    def read(self, path):
        return self.get("--stdout", self.url(path))


class Smbcacls(Client):
    """smbcacls, which shows and changes rights; what it changes is tried by smbclient."""

    label = "smbcacls 4.17 (Debian 12)"

    def acls(self, path, *words):
        credentials = "%s%%%s" % (self.user, PASSWORD)
        return run("smbcacls", "//%s/%s" % (self.host, SHARE), windows(path), "-U", credentials, *words).decode()

    def read(self, path):
        content = Smbclient(self.host, self.user).read(path)
        if self.user == USER:
            assert "OWNER:" in self.acls(path)
        return content

    def grant(self, path):
        self.acls(path, "-a", "ACL:%s:ALLOWED/0x0/READ" % OTHER)


class Rclone(Client):
    """rclone over its backend smb."""

    label = "rclone 1.60 (Debian 12)"
    pending = "signing required"

    def __init__(self, host, user=USER):
        super().__init__(host, user)
        self.program = os.path.join(ROOT, "debian/usr/bin/rclone")
        self.password = run(self.program, "obscure", PASSWORD).decode().strip()

    def rclone(self, *words, data=None):
        options = ["--smb-host", self.host, "--smb-user", self.user, "--smb-pass", self.password]
        more = ["--retries", "1", "--low-level-retries", "1", "--config", "/dev/null"]
        return run(self.program, *options, *more, *words, data=data)

    def at(self, path):
        return ":smb:%s/%s" % (SHARE, path)

    def listing(self, path, *words):
        return json.loads(self.rclone("lsjson", *words, self.at(path)))

    def names(self, folder):
        return [entry["Name"] for entry in self.listing(folder)]

    def read(self, path):
        return self.rclone("cat", self.at(path))

    def write(self, path, data):
        self.rclone("rcat", self.at(path), data=data)

    def rename(self, old, new):
        kind = "moveto"
        self.rclone(kind, self.at(old), self.at(new))

    def remove(self, path):
        self.rclone("deletefile", self.at(path))

    def mkdir(self, path):
        self.rclone("mkdir", self.at(path))

    def rmdir(self, path):
        self.rclone("rmdir", self.at(path))

    def mtime(self, path):
        folder, name = path.rsplit("/", 1)
        found = next(entry for entry in self.listing(folder) if entry["Name"] == name)
        return calendar.timegm(time.strptime(found["ModTime"][:19], "%Y-%m-%dT%H:%M:%S"))

    def set_mtime(self, path, seconds):
        when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
        self.rclone("touch", "-t", when, self.at(path))


class Smbprotocol(Client):
    """smbprotocol by its module smbclient."""

    label = "smbprotocol 1.17.0 (PyPI)"

    def __init__(self, host, user=USER):
        super().__init__(host, user)
        import smbclient

        self.smb, self.cache = smbclient, {}
        self.options = {"username": user, "password": PASSWORD, "connection_cache": self.cache}

    def at(self, path):
        return "\\\\%s\\%s\\%s" % (self.host, SHARE, windows(path))

    def names(self, folder):
        return self.smb.listdir(self.at(folder), **self.options)

    def read(self, path):
        with self.smb.open_file(self.at(path), mode="rb", **self.options) as file:
            return file.read()

    def write(self, path, data):
        with self.smb.open_file(self.at(path), mode="wb", **self.options) as file:
            file.write(data)

    def rename(self, old, new):
        self.smb.rename(self.at(old), self.at(new), **self.options)

    def remove(self, path):
        self.smb.remove(self.at(path), **self.options)

    def mkdir(self, path):
        self.smb.mkdir(self.at(path), **self.options)

    def rmdir(self, path):
        self.smb.rmdir(self.at(path), **self.options)

    def mtime(self, path):
        return int(self.smb.stat(self.at(path), **self.options).st_mtime)

    def set_mtime(self, path, seconds):
        self.smb.utime(self.at(path), times=(seconds, seconds), **self.options)

    def link(self, old, new):
        self.smb.link(self.at(old), self.at(new), **self.options)


class Impacket(Client):
    """impacket's SMBConnection."""

    label = "impacket 0.13.1 (PyPI)"

    def __init__(self, host, user=USER):
        super().__init__(host, user)
        from impacket.smbconnection import SMBConnection

        self.smb = SMBConnection(host, host, timeout=30)
        self.smb.login(user, PASSWORD)

    def entries(self, pattern):
        found = self.smb.listPath(SHARE, windows(pattern))
        return [entry for entry in found if entry.get_longname() not in (".", "..")]

    def names(self, folder):
        return [entry.get_longname() for entry in self.entries(folder + "/*")]

    def read(self, path):
        out = io.BytesIO()
        self.smb.getFile(SHARE, windows(path), out.write)
        return out.getvalue()

    def write(self, path, data):
        self.smb.putFile(SHARE, windows(path), io.BytesIO(data).read)

    def rename(self, old, new):
        self.smb.rename(SHARE, windows(old), windows(new))

    def remove(self, path):
        self.smb.deleteFile(SHARE, windows(path))

    def mkdir(self, path):
        self.smb.createDirectory(SHARE, windows(path))

    def rmdir(self, path):
        self.smb.deleteDirectory(SHARE, windows(path))

    def mtime(self, path):
        # Its listings take the time of the last change of attributes for this one.
        return int.from_bytes(self.basic(path)[16:24], "little") // 10_000_000 - WINDOWS_EPOCH

    def set_mtime(self, path, seconds):
        when = (seconds + WINDOWS_EPOCH) * 10_000_000
        self.basic(path, bytes(16) + when.to_bytes(8, "little") + bytes(16))

    def basic(self, path, data=None):
        """Queries or sets FileBasicInformation."""
        from impacket import smb3structs as smb3

        right = smb3.FILE_READ_ATTRIBUTES if data is None else smb3.FILE_WRITE_ATTRIBUTES
        tree = self.smb.connectTree(SHARE)
        file = self.smb.openFile(tree, windows(path), desiredAccess=right)
        server, kind = self.smb.getSMBServer(), smb3.SMB2_FILE_BASIC_INFO
        if data is None:
            found = server.queryInfo(tree, file, fileInfoClass=kind)
        else:
            found = server.setInfo(tree, file, inputBlob=data, fileInfoClass=kind)
        self.smb.closeFile(tree, file)
        self.smb.disconnectTree(tree)
        return found


class Pysmb(Client):
    """pysmb, which speaks SMB 2."""

    label = "pysmb 1.2.15 (PyPI)"

    def __init__(self, host, user=USER):
        super().__init__(host, user)
        from smb.SMBConnection import SMBConnection

        self.smb = SMBConnection(user, PASSWORD, "third", host, use_ntlm_v2=True, is_direct_tcp=True)
        assert self.smb.connect(host, 445, timeout=30)

    def names(self, folder):
        found = [entry.filename for entry in self.smb.listPath(SHARE, folder)]
        return [name for name in found if name not in (".", "..")]

    def read(self, path):
        out = io.BytesIO()
        self.smb.retrieveFile(SHARE, path, out)
        return out.getvalue()

    def write(self, path, data):
        self.smb.storeFile(SHARE, path, io.BytesIO(data))

    def rename(self, old, new):
        self.smb.rename(SHARE, old, new)

    def remove(self, path):
        self.smb.deleteFiles(SHARE, path)

    def mkdir(self, path):
        self.smb.createDirectory(SHARE, path)

    def rmdir(self, path):
        self.smb.deleteDirectory(SHARE, path)

    def mtime(self, path):
        return int(self.smb.getAttributes(SHARE, path).last_write_time)

    def set_mtime(self, path, seconds):
        self.smb.setLastWriteTime(SHARE, path, seconds)


class Command(Client):
    """A small program of this folder around a library: `PROGRAM HOST USER PASSWORD REQUEST [PATH..]`."""

    program = ()

    def ask(self, *words, data=None):
        return run(*self.program, self.host, self.user, PASSWORD, *words, data=data)

    def names(self, folder):
        # Each name ends with a zero.
        return self.ask("list", folder).decode().split("\0")[:-1]

    def read(self, path):
        return self.ask("read", path)

    def write(self, path, data):
        self.ask("write", path, data=data)

    def rename(self, old, new):
        self.ask("rename", old, new)

    def remove(self, path):
        self.ask("remove", path)

    def mkdir(self, path):
        self.ask("mkdir", path)

    def rmdir(self, path):
        self.ask("rmdir", path)

    def mtime(self, path):
        return int(self.ask("mtime", path))


class SmbCrate(Command):
    """The Rust crate smb: tests/third/crates/src/bin/smb-client.rs."""

    label = "smb 0.12.1 (crates.io)"
    program = (os.path.join(ROOT, "bin/smb-client"),)

    def set_mtime(self, path, seconds):
        self.ask("set-mtime", path, str(seconds))


class SmbCrateCompressed(SmbCrate):
    """The same with compressed messages: chains of LZ4 and Pattern_V1 from the server, LZ4 of whole messages from the client."""

    way = "compressed"

    def ask(self, *words, data=None):
        return super().ask(self.way, *words, data=data)


class SmbCrateSealed(SmbCrateCompressed):
    """Compressed, then encrypted."""

    way = "compressed-sealed"


class V9uSmb2(Command):
    """npm's v9u-smb2: tests/third/v9u_smb2.js."""

    label = "v9u-smb2 1.0.6 (npm), unsigned"
    pending = "STATUS_PENDING"
    program = ("node", "--openssl-legacy-provider", os.path.join(os.path.dirname(__file__), "v9u_smb2.js"))

    def ask(self, *words, data=None):
        where = {"NODE_PATH": os.path.join(ROOT, "node/node_modules")}
        return run(*self.program, self.host, self.user, PASSWORD, *words, data=data, env=where)


class Libsmb2Stat(ctypes.Structure):
    """`struct smb2_stat_64`."""

    _fields_ = [(name, ctypes.c_uint32) for name in ("type", "nlink")] + [
        (name, ctypes.c_uint64)
        for name in "ino size atime atime_nsec mtime mtime_nsec ctime ctime_nsec btime btime_nsec".split()
    ]


class Libsmb2Entry(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("stat", Libsmb2Stat)]


class Libsmb2Here(Client):
    """libsmb2, in a process whose C library is new enough for it."""

    def __init__(self, host, user=USER):
        super().__init__(host, user)
        self.lib = ctypes.CDLL("libsmb2.so.6")
        for name in ("init_context", "get_error", "opendir", "readdir", "open"):
            getattr(self.lib, "smb2_" + name).restype = ctypes.c_void_p
        self.context = ctypes.c_void_p(self.lib.smb2_init_context())
        # Signatures are offered; NTLM, since Debian's build would ask Kerberos.
        self.lib.smb2_set_security_mode(self.context, 1)
        self.lib.smb2_set_authentication(self.context, 1)
        self.lib.smb2_set_password(self.context, PASSWORD.encode())
        self.call("connect_share", host, SHARE, user)

    def error(self):
        return ctypes.string_at(self.lib.smb2_get_error(self.context)).decode(errors="replace")

    def call(self, name, *args):
        args = [a.encode() if isinstance(a, str) else a for a in args]
        done = getattr(self.lib, "smb2_" + name)(self.context, *args)
        if not done if name in ("open", "opendir") else done < 0:
            raise OSError("%s: %s" % (name, self.error()))
        return ctypes.c_void_p(done) if name in ("open", "opendir") else done

    def names(self, folder):
        there, found = self.call("opendir", folder), []
        while entry := self.lib.smb2_readdir(self.context, there):
            found.append(ctypes.cast(entry, ctypes.POINTER(Libsmb2Entry)).contents.name.decode())
        self.lib.smb2_closedir(self.context, there)
        return [name for name in found if name not in (".", "..")]

    def read(self, path):
        file, parts = self.call("open", path, os.O_RDONLY), []
        buffer = ctypes.create_string_buffer(1 << 20)
        while length := self.call("read", file, buffer, ctypes.c_uint32(len(buffer))):
            parts.append(buffer.raw[:length])
        self.call("close", file)
        return b"".join(parts)

    def write(self, path, data):
        file = self.call("open", path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        while data:
            data = data[self.call("write", file, data, ctypes.c_uint32(min(len(data), 1 << 20))) :]
        self.call("close", file)

    def rename(self, old, new):
        self.call("rename", old, new)

    def remove(self, path):
        self.call("unlink", path)

    def mkdir(self, path):
        self.call("mkdir", path)

    def rmdir(self, path):
        self.call("rmdir", path)

    def mtime(self, path):
        found = Libsmb2Stat()
        self.call("stat", path, ctypes.byref(found))
        return found.mtime


class Libsmb2(Command):
    """libsmb2, by this file as a program that the loader of the package's own system runs."""

    label = "libsmb2 6.2 (Debian 13)"
    program = (LOADER, "--library-path", TRIXIE, "/usr/bin/python3", "-I", os.path.abspath(__file__))


class Gio(Client):
    """gio over gvfs, in a session of its own for each user and server."""

    label = "gio over gvfs 1.50 (Debian 12)"
    sessions = {}

    def __init__(self, host, user=USER):
        super().__init__(host, user)
        if (host, user) not in self.sessions:
            self.sessions[host, user] = self.mounted()
        self.env = self.sessions[host, user]

    def mounted(self):
        home = tempfile.mkdtemp()
        mounts = os.path.join(home, "mounts")
        os.mkdir(mounts)
        libexec = os.path.join(ROOT, "debian/usr/libexec")
        with open(os.path.join(mounts, "smb.mount"), "w") as out:
            out.write("[Mount]\nType=smb-share\nExec=%s/gvfsd-smb\nAutoMount=false\nScheme=smb\n" % libexec)
        env = {
            "HOME": home,
            "XDG_RUNTIME_DIR": home,
            "GVFS_MOUNTABLE_DIR": mounts,
            "GSETTINGS_BACKEND": "memory",
            "GSETTINGS_SCHEMA_DIR": os.path.join(ROOT, "debian/usr/share/glib-2.0/schemas"),
            "GIO_EXTRA_MODULES": os.path.join(LIBRARIES, "gio/modules"),
            "LD_LIBRARY_PATH": LIBRARIES + ":" + LIBRARIES + "/gvfs",
        }
        bus = run("dbus-daemon", "--session", "--fork", "--print-address", env=env).decode().strip()
        env["DBUS_SESSION_BUS_ADDRESS"] = bus
        with open(os.path.join(home, "gvfsd.log"), "w") as log:
            self.daemon = subprocess.Popen([libexec + "/gvfsd", "--no-fuse"], env={**os.environ, **env}, stdout=log, stderr=log)
        until = time.monotonic() + 20
        while b"org.gtk.vfs.Daemon" not in run("dbus-send", "--session", "--print-reply", "--dest=org.freedesktop.DBus",
                                               "/org/freedesktop/DBus", "org.freedesktop.DBus.ListNames", env=env):
            assert time.monotonic() < until, "gvfsd is not on the bus"
            time.sleep(0.05)
        run("gio", "mount", self.url(""), data=b"%s\nWORKGROUP\n%s\n" % (self.user.encode(), PASSWORD.encode()), env=env)
        return env

    def gio(self, *words, data=None):
        return run("gio", *words, data=data, env=self.env)

    def url(self, path):
        from urllib.parse import quote

        return super().url(quote(path))

    def names(self, folder):
        return self.gio("list", "-h", self.url(folder)).decode().split("\n")[:-1]

    def read(self, path):
        return self.gio("cat", self.url(path))

    def write(self, path, data):
        self.gio("save", self.url(path), data=data)

    def rename(self, old, new):
        self.gio("move", "-T", self.url(old), self.url(new))

    def remove(self, path):
        self.gio("remove", self.url(path))

    def mkdir(self, path):
        self.gio("mkdir", self.url(path))

    def rmdir(self, path):
        self.gio("remove", self.url(path))

    def mtime(self, path):
        said = self.gio("info", "-a", "time::modified", self.url(path)).decode()
        return int(re.search(r"time::modified: (\d+)", said)[1])

    def set_mtime(self, path, seconds):
        self.gio("set", "-t", "uint64", self.url(path), "time::modified", str(seconds))


PROGRAMS = {
    "smbclient": Smbclient,
    "smbget": Smbget,
    "smbcacls": Smbcacls,
    "rclone": Rclone,
    "smbprotocol": Smbprotocol,
    "impacket": Impacket,
    "pysmb": Pysmb,
    "libsmb2": Libsmb2,
    "crate smb": SmbCrate,
    "gio": Gio,
    "v9u-smb2": V9uSmb2,
}


def libsmb2(host, user, _password, request, *paths):
    """One request by libsmb2, for [`Libsmb2`]."""
    client = Libsmb2Here(host, user)
    if request == "list":
        sys.stdout.write("".join(name + "\0" for name in client.names(*paths)))
    elif request == "read":
        sys.stdout.buffer.write(client.read(*paths))
    elif request == "write":
        client.write(*paths, sys.stdin.buffer.read())
    elif request == "mtime":
        print(client.mtime(*paths))
    else:
        getattr(client, request)(*paths)
    return 0


if __name__ == "__main__":
    sys.exit(libsmb2(*sys.argv[1:]))
