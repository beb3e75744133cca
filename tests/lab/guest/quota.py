"""Quotas of the host's file system, told and set over SMB and NFS, beside what the kernel itself says (quotactl_fd(2))."""

import ctypes
import errno
import fcntl
import os
import re
import struct
import subprocess

import lab
import servers
from lab import check, must, must_equal, must_raise, run

MIB = 1 << 20
GETQUOTA, SETQUOTA = 0x800007, 0x800008
KINDS = {"user": 0, "group": 1, "project": 2}
ALICE, BOB = 1000, 1001
SIZED = f"{servers.FOLDER}/sized"
PROJECT = 42
SHARE = f"//{servers.ADDRESS}/data"
NO_LIMIT = 2**64 - 1


def quotactl(command, kind, number, block):
    fd = os.open(servers.FOLDER, os.O_RDONLY)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.syscall(443, fd, command << 8 | KINDS[kind], number, block):
            raise OSError(ctypes.get_errno(), f"quotactl_fd {kind} {number}")
    finally:
        os.close(fd)


def kernel(kind, number):
    """Bytes in use, soft limit, hard limit."""
    block = ctypes.create_string_buffer(72)
    quotactl(GETQUOTA, kind, number, block)
    hard, soft, used = struct.unpack("QQQ", block[:24])
    return used, soft * 1024, hard * 1024


def limit(kind, number, soft, hard):
    block = ctypes.create_string_buffer(struct.pack("8QII", hard // 1024, soft // 1024, 0, 0, 0, 0, 0, 0, 1, 0), 72)
    quotactl(SETQUOTA, kind, number, block)


def sid(number):
    return f"S-1-22-1-{number}"


def smbcquotas(*words, user="root", share=SHARE):
    done = subprocess.run(["smbcquotas", share, "-n", "-U", f"{user}%{lab.PASSWORD}", "-m", "SMB3", *words],
                          capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr


def table(text):
    """Users of the lines `SID : used/ soft/ hard`."""
    found = re.findall(r"^(S-[\d-]+)\s*:\s*(\d+)/\s*(\d+)/\s*(\d+)", text, re.M)
    return {who: tuple(map(int, numbers)) for who, *numbers in found}


def wanted(number):
    used, soft, hard = kernel("user", number)
    return used, soft or NO_LIMIT, hard or NO_LIMIT


def as_user(number, *words):
    return subprocess.run(["setpriv", f"--reuid={number}", f"--regid={number}", "--clear-groups", *words],
                          capture_output=True, text=True, timeout=60)


def fill(top, name, number, size):
    """A file of this user, written over NFS."""
    path = f"{top}/{name}"
    done = as_user(number, "dd", "if=/dev/zero", f"of={path}", "bs=64k", f"count={size // 65536}", "conv=fsync")
    return done.returncode, done.stderr


def told(_top):
    listed = table(smbcquotas("-L"))
    for number in (0, ALICE, BOB):
        must_equal(listed.get(sid(number)), wanted(number), f"user {number} in {listed}")
    must_equal(table(smbcquotas("-u", sid(ALICE))), {sid(ALICE): wanted(ALICE)})
    must_equal(table(smbcquotas("-u", sid(4711))), {sid(4711): (0, NO_LIMIT, NO_LIMIT)}, "nobody's")
    flags = smbcquotas("-F")
    must(re.search(r"Quotas Enabled: On\s+Deny Disk:\s+On", flags), flags)


def set_by_smb(top):
    answer = smbcquotas("-S", f"UQLIM:{sid(ALICE)}:{2 * MIB}/{4 * MIB}")
    must_equal(table(answer), {sid(ALICE): wanted(ALICE)}, answer)
    must_equal(kernel("user", ALICE)[1:], (2 * MIB, 4 * MIB))
    code, said = fill(top, "much", ALICE, 8 * MIB)
    must(code != 0 and "quota exceeded" in said.lower(), f"{code} {said}")
    must(kernel("user", ALICE)[0] <= 4 * MIB, "beyond the limit")
    os.remove(f"{top}/much")
    answer = smbcquotas("-S", f"UQLIM:{sid(BOB)}:{MIB}/{MIB}", user="alice")
    must("ACCESS_DENIED" in answer, answer)
    answer = smbcquotas("-S", "FSQLIM:1048576/2097152")
    if lab.ENV["FS"].startswith("xfs"):
        must_equal(kernel("user", 0)[1:], (MIB, 2 * MIB), answer)
        smbcquotas("-S", f"FSQLIM:{NO_LIMIT}/{NO_LIMIT}")
        must_equal(kernel("user", 0)[1:], (0, 0))
    else:  # It has no defaults.
        must("INVALID_PARAMETER" in answer, answer)


def free_space(_top):
    """What smbclient shows at the end of a listing is the caller's space (FileFsFullSizeInformation)."""
    limit("user", ALICE, 0, 64 * MIB)
    done = run("smbclient", SHARE, "-U", f"alice%{lab.PASSWORD}", "-c", "ls")
    blocks, size, free = map(int, re.search(r"(\d+) blocks of size (\d+)\. (\d+) blocks available", done).groups())
    must_equal(blocks * size, 64 * MIB, "size")
    left = 64 * MIB - kernel("user", ALICE)[0]
    must(abs(free * size - left) <= MIB, f"free: {free * size}, wanted {left}")


def asked_by_nfs(_top):
    """quota(1), which asks the server of each NFS mount."""
    limit("user", ALICE, 3 * MIB, 5 * MIB)
    program = f"/scratch/quota/usr/bin/quota"
    for number, words, answers in ((0, ["-u", str(ALICE)], True), (ALICE, [], True), (ALICE, ["-u", str(BOB)], False),
                                   (0, ["-g", str(BOB)], True)):
        done = as_user(number, program, "-v", "-w", "-p", *words)
        line = re.search(rf"^\s*{re.escape(servers.ADDRESS)}:/data\s+(\d+)\*?\s+(\d+)\s+(\d+)", done.stdout, re.M)
        if not answers:
            must(not line, f"{words}: {done.stdout}")
            continue
        must(line, f"{words}: {done.stdout} {done.stderr}")
        kind, who = ("group", BOB) if "-g" in words else ("user", ALICE)
        used, soft, hard = (int(n) * 1024 for n in line.groups())
        must_equal((used, soft, hard), kernel(kind, who), f"{words}")


def give_project(folder, number):
    """The attributes of the folder (ioctl_fs_fsgetxattr(2)): its project, which is inherited."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        attributes = bytearray(28)
        fcntl.ioctl(fd, 0x801C581F, attributes)
        flags, more, extents = struct.unpack("III", attributes[:12])
        attributes[:16] = struct.pack("IIII", flags | 0x200, more, extents, number)
        fcntl.ioctl(fd, 0x401C5820, bytes(attributes))
    finally:
        os.close(fd)


def second(*words, before=()):
    """A gateway of its own beside the one of the guest, for a share with a size."""
    conf = "/tmp/sized.yaml"
    text = f"shares: [{{name: sized, path: {SIZED}, size: 16MiB}}]\nbind: 127.0.0.1\nstate: /tmp/state-sized\n"
    text += "nfs: {port: 3049, rdma_port: 30049, portmap: 'off'}\nsmb: {port: 4450}\nrdma: 'off'\ndiscovery: 'off'\n"
    text += "admin: '127.0.0.1:9123'\n"
    servers.write(conf, text)
    return [*before, "/scratch/headgate", *words, "--config", conf]


def sized(_top):
    os.makedirs(SIZED, exist_ok=True)
    os.chmod(SIZED, 0o777)
    done = subprocess.run(second("check"), capture_output=True, text=True, timeout=60)
    must(done.returncode != 0 and "has none: choose a number" in done.stdout + done.stderr, done.stdout + done.stderr)
    give_project(SIZED, PROJECT)
    done = subprocess.run(second("check"), capture_output=True, text=True, timeout=60)
    must_equal(done.returncode, 0, done.stdout + done.stderr)
    weak = ("setpriv", "--bounding-set=-sys_admin")
    done = subprocess.run(second("serve", before=weak), capture_output=True, text=True, timeout=60)
    must(done.returncode != 0 and "needs CAP_SYS_ADMIN" in done.stderr, f"{done.returncode} {done.stderr}")
    must_equal(kernel("project", PROJECT)[2], 0)
    log = open("/tmp/sized.log", "wb")
    gateway = subprocess.Popen(second("serve"), stdout=log, stderr=log)
    try:
        lab.wait_until(lambda: b"headgate ready" in lab.pread_all("/tmp/sized.log"), "a gateway for a share with a size")
        must_equal(kernel("project", PROJECT)[2], 16 * MIB)
        space = os.statvfs(SIZED)
        must_equal(space.f_blocks * space.f_frsize, 16 * MIB, "size on the host")
        at = "/mnt/sized"
        os.makedirs(at, exist_ok=True)
        run("mount", "-t", "nfs", "-o", "vers=4.2,proto=tcp,port=3049", "127.0.0.1:/sized", at)
        try:
            space = os.statvfs(at)
            must_equal(space.f_blocks * space.f_frsize, 16 * MIB, "size over NFS")
            with open(f"{at}/large", "wb", buffering=0) as f:
                must_raise((errno.EDQUOT, errno.ENOSPC), write_much, f, 32 * MIB)
            os.remove(f"{at}/large")
        finally:
            run("umount", at)
    finally:
        gateway.terminate()
        gateway.wait(60)


def write_much(f, size):
    for _ in range(size // MIB):
        f.write(bytes(MIB))
        os.fsync(f.fileno())


def without_right(_top):
    """As by the packaged service, which has no CAP_SYS_ADMIN: users are told their quotas, and those of known users are listed."""
    conf = "/tmp/weak.yaml"
    users = "".join(f"  - {{name: {name}, password_file: /tmp/password, uid: {uid}, gid: {uid}}}\n"
                    for name, uid in (("root", 0), ("alice", ALICE)))
    text = f"shares: [{{name: data, path: {servers.FOLDER}}}]\nusers:\n{users}bind: 127.0.0.2\nstate: /tmp/state-weak\n"
    text += "nfs: {port: 4049, rdma_port: 40049, portmap: 'off'}\nrdma: 'off'\ndiscovery: 'off'\nadmin: '127.0.0.1:9124'\n"
    servers.write(conf, text)
    log = open("/tmp/weak.log", "wb")
    gateway = subprocess.Popen(["setpriv", "--bounding-set=-sys_admin", "/scratch/headgate", "serve", "--config", conf],
                               stdout=log, stderr=log)
    try:
        lab.wait_until(lambda: b"headgate ready" in lab.pread_all("/tmp/weak.log"), "a gateway without CAP_SYS_ADMIN")
        share = "//127.0.0.2/data"
        limit("user", ALICE, 0, 64 * MIB)
        listed = table(smbcquotas("-L", share=share))
        must_equal(listed, {sid(number): wanted(number) for number in (0, ALICE)})
        must_equal(table(smbcquotas("-u", sid(BOB), share=share)), {sid(BOB): wanted(BOB)})
        answer = smbcquotas("-S", f"UQLIM:{sid(BOB)}:{MIB}/{MIB}", share=share)
        must("ACCESS_DENIED" in answer, answer)
        done = run("smbclient", share, "-U", f"alice%{lab.PASSWORD}", "-c", "ls")
        blocks, size, _ = map(int, re.search(r"(\d+) blocks of size (\d+)\. (\d+) blocks available", done).groups())
        must_equal(blocks * size, 64 * MIB, "size")
    finally:
        gateway.terminate()
        gateway.wait(60)


def job(top):
    os.chmod(top, 0o777)
    for number in (ALICE, BOB):
        code, said = fill(top, f"of-{number}", number, MIB)
        must_equal(code, 0, said)
    os.sync()
    for call in (told, set_by_smb, free_space, asked_by_nfs, sized, without_right):
        check(f"quota/{call.__name__.replace('_', '-')}", call, top)
