"""One session over four connections on two networks (SMB 3.x, multichannel,max_channels=4), and what happens when one of
them is lost in the middle of a copy."""

import errno
import os
import re
import threading

import lab
import share
from lab import check, must, must_equal, run
from sizes import read_all, same

CHANNELS = 4
MIB = 1 << 20
SIZE = 192 * MIB


def second_network():
    run("ip", "addr", "add", "10.77.1.2/24", "dev", "vec1")
    run("ip", "link", "set", "vec1", "up")


def channels():
    """How many connections the session has, as the client tells."""
    with open("/proc/fs/cifs/DebugData") as f:
        text = f.read()
    found = re.search(r"Extra Channels: (\d+)", text)
    return 1 + int(found.group(1)) if found else 1


def all_channels():
    lab.wait_until(lambda: channels() == CHANNELS, f"{CHANNELS} channels, there are {channels()}", 30)


def ports():
    """This side's ports of the connections to the server that stand."""
    found = set()
    with open("/proc/net/tcp") as f:
        for line in f.readlines()[1:]:
            _, local, remote, state = line.split()[:4]
            if remote.endswith(f":{445:04X}") and state == "01":
                found.add(local)
    return found


def cut(words, is_done):
    """The host cuts some time after it was asked. Whoever goes on before that loses what it does next instead, so this
    waits until the connections of before (the argument of `is_done`) show that it has."""
    before = ports()
    must(before, "no connection to cut")
    lab.tell_host(words)
    lab.wait_until(lambda: is_done(before), words)


def cut_all():
    cut("cut-connections", lambda before: not before & ports())


def cut_one():
    cut("cut-one-channel", lambda before: before - ports())


def nothing():
    pass


def write_all(fd, piece, in_the_middle):
    """Four writers at once, so that every channel has work."""
    wrong = []

    def part(n):
        try:
            for at in range(n * MIB, SIZE, 4 * MIB):
                must_equal(os.pwrite(fd, at.to_bytes(8) + piece[8:], at), MIB, "written")
                if at == SIZE // 2:
                    in_the_middle()
        except Exception as e:
            wrong.append(e)

    threads = [threading.Thread(target=part, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if wrong:
        raise wrong[0]
    os.fsync(fd)


def copy(path, in_the_middle):
    """Written with what is done to it in the middle, and read."""
    piece = share.pattern(path, MIB)
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            write_all(fd, piece, in_the_middle)
        except OSError as e:
            # Linux 6.12 repeats an asynchronous WRITE that was sent and not answered. One that meets the dead socket as it is
            # sent (smb_send_rqst makes ECONNABORTED of that) it does not: smb2_async_writev hands the error to netfs, which
            # repeats only what is marked so, and fsync tells it, once. The pages count as clean then: to write them again
            # is for the program. Nothing of this reaches the server. Without a lost connection there is no excuse.
            if e.errno != errno.ECONNABORTED or in_the_middle is nothing:
                raise
            print(f"{path}: written again after {e}")
            write_all(fd, piece, nothing)
    finally:
        os.close(fd)
    lab.drop_caches()
    with open(path, "rb", buffering=0) as f:
        for at in range(0, SIZE, MIB):
            same(f.read(MIB), at.to_bytes(8) + piece[8:])


def small_files(top):
    for n in range(200):
        data = share.pattern(f"{n}", n * 97)
        with open(f"{top}/small-{n}", "wb") as f:
            f.write(data)
    lab.drop_caches()
    for n in range(200):
        same(read_all(f"{top}/small-{n}", n * 97, "buffered"), share.pattern(f"{n}", n * 97))


def is_reached(top):
    try:
        os.close(os.open(f"{top}/reached", os.O_CREAT | os.O_WRONLY))
    except OSError:  # While it connects again, this client refuses what is new.
        return False
    return True


def job(top):
    # Linux 6.12 was seen to add no channel as it mounts here, and all of them as soon as it has to connect again.
    # What meets the dead socket as it is sent fails with ECONNABORTED: the client repeats it only for `hard` or `retrans=`
    # (smb2_should_replay).
    check("multichannel/is-cut", cut_all)
    check("multichannel/connects-again", lambda: lab.wait_until(lambda: is_reached(top), "a connection"))
    check("multichannel/small-files", small_files, top)
    check("multichannel/channels", all_channels)
    check("multichannel/copy", copy, f"{top}/copy", nothing)
    check("multichannel/copy-while-one-is-lost", copy, f"{top}/one-lost", cut_one)
    check("multichannel/channels-again", all_channels)
    lab.leave("multichannel", lab.TOP, os.path.basename(top))
