"""The service moves to and fro between two nodes, by order, $RUNS times, while this guest writes and makes files. The next move
comes as soon as both go on, or a part of a second later, so that some end connections that have only just been made."""

import os
import random
import time

import lab
from lab import check, must, must_equal, must_hold, pread_all, run
from takeover import block, host_does, maker, writer

MOVES = int(lab.ENV.get("RUNS", "12"))
# Seconds. By order nobody waits for a lease.
STALL_MAX = 5
# No limit of a client is longer than that: Linux' SMB Direct client has one of 120 s.
COMES_BACK = 200
PAUSE_MAX = 0.8


def go_on(workers, limit):
    """Each of them ends three times more."""
    wanted = [(worker, len(worker.done) + 3) for worker in workers]
    lab.wait_until(lambda: all(w.error or len(w.done) >= count for w, count in wanted), "work after a move", limit)
    must(not any(w.error for w in workers), f"{[w.error for w in workers]}")


def show_what_waits():
    """For what the kernel waits, and what its connections have to send."""
    lab.show_who_waits()
    for words in ("ip neigh", "ss -tnoi"):
        print(run(*words.split()))


def moved(workers, node):
    began = time.monotonic()
    host_does(f"move {node}")
    try:
        go_on(workers, STALL_MAX)
    except lab.Failed:
        show_what_waits()
        go_on(workers, COMES_BACK)
        stall = max(took for worker in workers for took in worker.took(began))
        raise lab.Failed(f"a program stood still for {stall:.1f} s") from None
    stalls = [f"{worker.took(began)[-1] * 1000:.0f}" for worker in workers]
    lab.tell_host(f"figure {lab.LABEL} {node} | {' | '.join(stalls)}")


def everything_is_there(top, writes, makes):
    lab.drop_caches()
    count = len(writes.done)
    must_hold(pread_all(f"{top}/written")[: count * len(block(0))], b"".join(map(block, range(count))), "written")
    for n in range(len(makes.done)):
        must_hold(pread_all(f"{top}/made-{n}"), block(n), f"made-{n}")


def job(top):
    chance = random.Random(1)
    workers = writes, makes = writer(f"{top}/written"), maker(top)
    try:
        for n in range(MOVES):
            time.sleep(chance.choice((0, chance.uniform(0, PAUSE_MAX))))
            check(f"moves/{n}", moved, workers, (n + 1) % 2)
    finally:
        for worker in workers:
            worker.stop()
    check("moves/no-error", must_equal, [w.error for w in workers], [None] * 2)
    for worker in workers:
        check("moves/closes", worker.close)
    check("moves/everything-is-there", everything_is_there, top, writes, makes)
    lab.leave("moves", lab.TOP, os.path.relpath(top, lab.TOP))
