"""Six processes count in one file under `fcntl` locks, through mounts of several protocols in one guest. Each opens the file,
locks, reads, writes, unlocks and closes it, again and again, and no step is lost.

A counter that is too low does not tell why. Each process records every step with its time and result, and a run that is not exact
leaves all steps in their order as /scratch/counting-RUN.txt.

By SMB this is exact with `cache=none` only. With `cache=strict` Linux 6.12 writes into its page cache although it holds no lease
to cache writes (`cifs_strict_writev` ends in `netfs_file_write_iter`), and giving a lock back does not flush (`cifs_setlk`): the
data leaves at the close. A process that has taken the lock meanwhile reads the old number, and the late WRITE is refused by its
lock (EACCES at the close). The scenario ksmbd-counting loses steps in the same way, with two mounts of the kernel's own server.

$RUNS      how many times
"""

import collections
import fcntl
import json
import os
import time

import lab
from lab import ENV, check, must, must_hold

TURNS, PROCESSES = 40, 6
RUNS = int(ENV.get("RUNS", "3"))
Step = collections.namedtuple("Step", "at process turn name result")


def mounts():
    """The mounts by name, each with the command that makes it."""
    if ENV.get("BACKEND") == "ksmbd":
        # Each of a connection of its own: to the server two clients.
        extra = f"{ENV['OPTIONS']},nosharesock"
        return {name: lab.mount_command(f"/mnt/{name}", extra=extra) for name in ("smb", "smb-other")}

    def nfs(name, vers, proto, extra):
        return lab.mount_command(f"/mnt/{name}", cifs=False, vers=vers, proto=proto, extra=extra)

    found = {"nfs42": nfs("nfs42", "4.2", lab.PROTO, "noac"), "nfs41": nfs("nfs41", "4.1", "tcp", "noac,nosharecache")}
    if lab.CIFS:
        found["smb"] = lab.mount_command("/mnt/smb")
    return found


class Process:
    """One that counts, and what it saw."""

    def __init__(self, name, path):
        self.name, self.path, self.turn, self.seen = name, path, 0, []

    def step(self, name, call, *args):
        try:
            result = call(*args)
        except OSError as why:
            self.seen.append(Step(time.monotonic(), self.name, self.turn, name, f"errno {why.errno} ({why.strerror})"))
            raise
        self.seen.append(Step(time.monotonic(), self.name, self.turn, name, repr(result)))
        return result

    def count(self):
        fd = self.step("open", os.open, self.path, os.O_RDWR)
        try:
            self.step("lock", fcntl.lockf, fd, fcntl.LOCK_EX)
            number = int(self.step("read", os.pread, fd, 100, 0))
            self.step("write", os.pwrite, fd, b"%08d" % (number + 1), 0)
            self.step("unlock", fcntl.lockf, fd, fcntl.LOCK_UN)
        finally:
            self.step("close", os.close, fd)

    def run(self):
        for self.turn in range(TURNS):
            self.count()


def counting(name, path, record):
    """The body of a process: its exit code, and its steps in the file `record`."""
    process, code = Process(name, path), 0
    try:
        process.run()
    except (OSError, ValueError) as why:
        process.seen.append(Step(time.monotonic(), name, process.turn, "end", repr(why)))
        code = 1
    with open(record, "w") as f:
        json.dump(process.seen, f)
    os._exit(code)


def all_at_once(paths):
    """Runs as many processes by each of these ways to the file; how they ended, and all their steps in order."""
    children = {}
    for name, path in paths.items():
        for n in range(PROCESSES // len(paths)):
            record = f"/tmp/counting-{name}-{n}"
            child = os.fork()
            if child == 0:
                counting(f"{name}-{n}", path, record)
            children[child] = record
    ends, seen = {}, []
    for child, record in children.items():
        ends[os.path.basename(record)] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        with open(record) as f:
            seen.extend(Step(*step) for step in json.load(f))
    return ends, sorted(seen)


def read_twice(seen):
    """The steps that read a number which another process had read before: the loss, and who took part in it."""
    first, again = {}, []
    for step in seen:
        if step.name == "read" and first.setdefault(step.result, step) is not step:
            again.append((first[step.result], step))
    return again


def one_run(folders, number):
    paths = {name: f"{folder}/counter-{number}" for name, folder in folders.items()}
    maker = next(iter(paths.values()))
    with open(maker, "xb") as f:
        f.write(b"%08d" % 0)
    ends, seen = all_at_once(paths)
    wanted = TURNS * len(ends)
    found = {}
    for name, path in paths.items():
        with open(path, "rb", buffering=0) as f:
            found[name] = int(f.read() or b"-1")
    if set(found.values()) == {wanted} and not any(ends.values()):
        return
    with open(f"/scratch/counting-{number}.txt", "w") as f:
        f.writelines(f"{s.at:.6f} {s.process} {s.turn} {s.name} {s.result}\n" for s in seen)
    for one, other in read_twice(seen)[:3]:
        print(f"# read twice: {one} and {other}")
    for step in seen:
        if step.name == "end":
            print(f"# {step}")
    must(not any(ends.values()), f"ended early: {[name for name, code in ends.items() if code]}, counted {found}")
    must_hold(found, {name: wanted for name in found}, "counter")


def job(top):
    commands = mounts()
    for name, command in commands.items():
        os.makedirs(f"/mnt/{name}", exist_ok=True)
        if not check(f"counting/mount-{name}", lab.run, *command):
            return
    folders = {name: top.replace(lab.TOP, f"/mnt/{name}") for name in commands}
    for number in range(RUNS):
        check(f"counting/run-{number}", one_run, folders, number)
    for name in commands:
        check(f"counting/unmount-{name}", lab.umount, f"/mnt/{name}")
