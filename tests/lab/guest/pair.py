"""Two kernels at once on one share. Each guest runs this job; they meet in a folder that both know ($MEET).

$ME is `a` or `b`. What one has closed, the other sees when it opens; what both count under a lock is counted once."""

import fcntl
import os
import time

import lab
import locks
import share
from lab import ENV, check, must, must_equal, must_hold, pread_all, wait_until
from sizes import same

SIZES = (0, 1, 1364, 4096, 65_537, 3 << 20)
ROUNDS = 20
ME = ENV.get("ME", "a")
OTHER = "b" if ME == "a" else "a"


def say(folder, word):
    with open(f"{folder}/{ME}-{word}", "x") as f:
        f.write(word)


def hear(folder, word):
    path = f"{folder}/{OTHER}-{word}"
    # Listing makes the client ask the server again about a name that was not there.
    wait_until(lambda: os.path.basename(path) in os.listdir(folder) and os.path.exists(path), f"the other's {word}", 60)


def write_all(folder):
    for size in SIZES:
        with open(f"{folder}/{ME}-{size}", "wb") as f:
            f.write(share.pattern(f"{ME}{size}", size))
    say(folder, "written")


def read_other(folder):
    hear(folder, "written")
    for size in SIZES:
        same(pread_all(f"{folder}/{OTHER}-{size}"), share.pattern(f"{OTHER}{size}", size))


def append_in_turn(folder):
    """Each opens, sees what the other closed, and adds a line: close-to-open consistency."""
    path = f"{folder}/in-turn"
    for n in range(ROUNDS):
        if (n % 2 == 0) == (ME == "a"):
            with open(path, "a") as f:
                f.write(f"{n}\n")
            say(folder, f"turn-{n}")
        else:
            hear(folder, f"turn-{n}")
            # The next turn is this one's, so nothing can have been added since.
            must_hold(pread_all(path).decode(), "".join(f"{i}\n" for i in range(n + 1)), f"after turn {n}")


def count_together(folder):
    path = f"{folder}/counter"
    if ME == "a":
        with open(path, "w") as f:
            f.write("0")
        say(folder, "counter")
    else:
        hear(folder, "counter")
    locks.count_up(path, 100)
    say(folder, "counted")
    hear(folder, "counted")
    must_hold(int(pread_all(path)), 200, "the sum")


def queue_for_it(folder):
    """Both wait for the lock that the other holds, again and again. By version 3 each is called when it is its turn: a client
    that was not called would ask again after 30 s."""
    path = f"{folder}/queue"
    if ME == "a":
        with open(path, "w") as f:
            f.write("0")
        say(folder, "queue")
    else:
        hear(folder, "queue")
    longest = 0
    fd = os.open(path, os.O_RDWR)
    for _ in range(ROUNDS):
        began = time.monotonic()
        locks.lock(fd, fcntl.F_WRLCK, wait=True)
        longest = max(longest, time.monotonic() - began)
        value = int(os.pread(fd, 20, 0)) + 1
        time.sleep(0.01)
        os.pwrite(fd, str(value).encode(), 0)
        locks.lock(fd, fcntl.F_UNLCK)
    os.close(fd)
    must(longest < 25, f"one waited {longest:.1f} s")
    say(folder, "queued")
    hear(folder, "queued")
    must_hold(int(pread_all(path)), 2 * ROUNDS, "the sum")


def make_the_same(folder):
    """Of two that make the same name exclusively, one succeeds."""
    won = 0
    for n in range(100):
        try:
            os.close(os.open(f"{folder}/only-one-{n}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            won += 1
        except FileExistsError:
            pass
    with open(f"{folder}/{ME}-won", "w") as f:
        f.write(str(won))
    say(folder, "raced")
    hear(folder, "raced")
    must_equal(won + int(pread_all(f"{folder}/{OTHER}-won")), 100, "names made")


def job(top):
    folder = f"{lab.TOP}/{ENV['MEET']}"
    os.makedirs(folder, exist_ok=True)
    check("pair/write", write_all, folder)
    check("pair/read-other", read_other, folder)
    check("pair/append-in-turn", append_in_turn, folder)
    check("pair/make-the-same", make_the_same, folder)
    check("pair/count-under-lock", count_together, folder)
    if lab.V3_LOCKS:
        check("pair/queue-for-it", queue_for_it, folder)
