"""Other people's clients of NFS that are made anew for each server, each behind the methods that operations.py names."""

import asyncio
import os

from smb_clients import ROOT, Client, run

USER, OTHER = 1, 2


class Command(Client):
    """A small program of this folder around a library: `PROGRAM HOST UID VERSION REQUEST [PATH..]`."""

    version = "3"

    def __init__(self, host, user=USER):
        super().__init__(host, user)

    def as_other(self):
        return type(self)(self.host, OTHER)

    def ask(self, *words, data=None):
        return run(os.path.join(ROOT, "bin", self.program), self.host, str(self.user), self.version, *words, data=data)

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

    def set_mtime(self, path, seconds):
        self.ask("set-mtime", path, str(seconds))

    def link(self, old, new):
        self.ask("link", old, new)

    def readlink(self, path):
        return self.ask("readlink", path).decode().strip()


class Nfs3Client(Command):
    """The Rust crate nfs3_client: tests/third/crates/src/bin/nfs3-client.rs."""

    label = "nfs3_client 0.9.1 (crates.io), NFS 3"
    program = "nfs3-client"


class NfsRs3(Command):
    """The Rust crate nfs-rs: tests/third/crates/src/bin/nfs-rs-client.rs."""

    label = "nfs-rs 0.11.1 (crates.io), NFS 3"
    program = "nfs-rs-client"


class NfsRs40(NfsRs3):
    label = "nfs-rs 0.11.1 (crates.io), NFS 4.0"
    version = "4.0"


class NfsRs41(NfsRs3):
    label = "nfs-rs 0.11.1 (crates.io), NFS 4.1"
    version = "4.1"


class NfsRs42(NfsRs3):
    label = "nfs-rs 0.11.1 (crates.io), NFS 4.2"
    version = "4.2"


class Nfs4fs(Client):
    """nfs4fs, which calls as the user of its process."""

    label = "nfs4fs 0.3.11 (PyPI), NFS 4.2"
    without = ("rights",)

    def __init__(self, host, user=0):
        super().__init__(host, user)
        from nfs4fs import Nfs4FileSystem

        self.fs = Nfs4FileSystem(host=host, root="data", auth="auth_sys", skip_instance_cache=True)

    def names(self, folder):
        return [entry.rsplit("/", 1)[1] for entry in self.fs.ls("/" + folder, detail=False)]

    def read(self, path):
        return self.fs.cat_file("/" + path)

    def write(self, path, data):
        self.fs.pipe_file("/" + path, data)

    def rename(self, old, new):
        self.fs.mv("/" + old, "/" + new)

    def remove(self, path):
        self.fs.rm_file("/" + path)

    def mkdir(self, path):
        self.fs.mkdir("/" + path)

    def rmdir(self, path):
        self.fs.rmdir("/" + path)

    def mtime(self, path):
        return int(self.fs.modified("/" + path).timestamp())


class Anfs(Client):
    """anfs 0.0.3, an asynchronous client of NFS 3."""

    label = "anfs 0.0.3 (PyPI), NFS 3"

    def __init__(self, host, user=USER):
        super().__init__(host, user)

    def as_other(self):
        return type(self)(self.host, OTHER)

    def do(self, work):
        return asyncio.run(asyncio.wait_for(self.visit(work), 60))

    async def visit(self, work):
        from anfs.protocol.nfs3.common.factory import NFS3ConnectionFactory
        from anfs.protocol.rpc.messages import AUTH_SYS

        factory = NFS3ConnectionFactory.from_url("nfs://%s/" % self.host)
        factory.credential = AUTH_SYS(uid=self.user, gid=self.user)
        mount = factory.get_mount()
        self.checked(await mount.connect())
        client = factory.get_client(self.checked(await mount.mount("/data")))
        self.checked(await client.connect())
        try:
            return await work(client)
        finally:
            await client.disconnect()
            await mount.disconnect()

    @staticmethod
    def checked(answer):
        found, why = answer
        if why is not None:
            raise why
        return found

    async def at(self, client, path):
        handle = 0
        for name in filter(None, path.split("/")):
            handle = self.checked(await client.lookup(handle, name)).handle
        return handle

    async def place(self, client, path):
        folder, name = path.rsplit("/", 1)
        return await self.at(client, folder), name

    def names(self, folder):
        async def work(client):
            found = []
            async for entry, why in client.readdirplus(await self.at(client, folder)):
                if why is not None:
                    raise why
                found.append(entry.name)
            return [name for name in found if name not in (".", "..")]

        return self.do(work)

    def read(self, path):
        async def work(client):
            handle, found = await self.at(client, path), b""
            while piece := self.checked(await client.read(handle, len(found), 65_536)):
                found += piece
            return found

        return self.do(work)

    def write(self, path, data):
        async def work(client):
            folder, name = await self.place(client, path)
            file = self.checked(await client.create(folder, name, 0, mode=0o644)).handle
            for at in range(0, len(data), 65_536):
                piece = data[at : at + 65_536]
                self.checked(await client.write(file, at, len(piece), piece, 2))

        self.do(work)

    def rename(self, old, new):
        async def work(client):
            (there, name), (here, other) = await self.place(client, old), await self.place(client, new)
            self.checked(await client.rename(there, name, here, other))

        self.do(work)

    def remove(self, path):
        async def work(client):
            self.checked(await client.remove(*await self.place(client, path)))

        self.do(work)

    def readlink(self, path):
        async def work(client):
            return self.checked(await client.readlink(await self.at(client, path)))

        return self.do(work)

    def mkdir(self, path):
        async def work(client):
            self.checked(await client.mkdir(*await self.place(client, path), mode=0o755))

        self.do(work)

    def rmdir(self, path):
        async def work(client):
            self.checked(await client.rmdir(*await self.place(client, path)))

        self.do(work)


PROGRAMS = {
    "nfs3_client": Nfs3Client,
    "nfs-rs 3": NfsRs3,
    "nfs-rs 4.0": NfsRs40,
    "nfs-rs 4.1": NfsRs41,
    "nfs-rs 4.2": NfsRs42,
    "nfs4fs": Nfs4fs,
    "anfs": Anfs,
}
