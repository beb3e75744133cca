"""One of two servers goes while two clients of this guest work, the first there, the second at the server that stays. How long
their programs waited is told, not judged: `figure WHAT | ` and the longest wait in seconds of those that write and flush, read past
all caches, make files, and open and lock one; first those of the first client. $TROUBLE says how the server goes."""

import fcntl
import os
import time

import lab
import takeover
from lab import check, must_equal
from locks import lock
from takeover import BESIDE, Worker, block, host_does

# Seconds that are watched before and after. What has not ended by then is waited for.
BEFORE, AFTER = 10, 40
# A client that was refused asks again after so many seconds at the most, and may then be refused once more.
LONGEST = 150


def other_client():
    takeover.other_network()
    takeover.mount_as_other(lab.mount_command(BESIDE, "/beside", takeover.BESIDE_SERVER))


def locker(path):
    with open(path, "wb") as f:
        f.write(bytes(200))

    def work(_):
        with open(path, "r+b") as f:
            lock(f, fcntl.F_WRLCK, 0, 100)
            # Without that FREE_STATEID of the lock may come beside CLOSE of the file, and Ganesha 4.3 died (docs/dev/takeovers.md).
            lock(f, fcntl.F_UNLCK, 0, 100)
            time.sleep(0.02)

    return Worker(work, 0.02)


def begin(top):
    os.makedirs(top, exist_ok=True)
    with open(f"{top}/data", "wb") as f:
        f.write(b"".join(map(block, range(takeover.BESIDE_BLOCKS))))
    return [takeover.writer(f"{top}/written"), takeover.reader(f"{top}/data"), takeover.maker(top), locker(f"{top}/locked")]


def tell(what, workers, since):
    lab.tell_host(f"figure {what} | {' | '.join(f'{w.took(since)[-1]:.2f}' for w in workers)}")


def server_goes(workers):
    began = time.monotonic()
    time.sleep(BEFORE)
    tell("before", workers, began)
    began = time.monotonic()
    host_does(f"fail {lab.ENV['TROUBLE']}")
    time.sleep(max(0.0, began + AFTER - time.monotonic()))
    seen = [len(w.done) for w in workers]
    lab.wait_until(lambda: all(w.error or len(w.done) > n for w, n in zip(workers, seen)), "everybody goes on", LONGEST)
    must_equal([w.error for w in workers], [None] * len(workers), "errors")
    tell("after", workers, began)


def job(top):
    if not check("failover/second-client", other_client):
        return
    workers = begin(top) + begin(f"{BESIDE}/{os.path.basename(top)}")
    try:
        check("failover/server-goes", server_goes, workers)
    finally:
        for worker in workers:
            worker.stop()
    for worker in workers:
        check("failover/closes", worker.close)
    check("failover/unmount", lab.umount, BESIDE)
