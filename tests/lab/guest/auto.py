"""`--rdma auto` on the kernel's own RoCE device: who serves which address, and what is said of a port that is down, of nodes that
this user may not use, and of too little memory to lock. A second gateway serves beside that of the run."""

import json
import os
import socket
import subprocess

import lab
import servers
from lab import check, must, must_equal, run, wait_until

# An address without a device.
PLAIN = "10.90.0.1"
PORT = 21049
OPTIONS = ["--rdma", "auto", "--bind", servers.ADDRESS, "--bind", PLAIN, "--nfs-port", "3049", "--nfs-rdma-port", str(PORT),
           "--portmap", "off", "--admin", "off", "--share", "small=/small,squash=none,clients=10.0.0.0/8"]
LOG, LITTLE_LOG = "/tmp/auto.log", "/tmp/little.log"
NOBODY = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--bounding-set", "-all", "--inh-caps", "-all")
LITTLE_MEMORY = ("prlimit", f"--memlock={8 << 20}", *NOBODY)
TOO_LITTLE = ("may lock 8MiB", "ulimit -l")


def offers(*wrapper):
    """What `check` says of each address."""
    command = [*wrapper, "/scratch/headgate", "check", "--json", "--state", "/tmp/state-of-check", *OPTIONS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    must(done.stdout.startswith("{"), f"check: {done.stdout[:200]} {done.stderr[:300]}")
    return {a["address"]: a for a in json.loads(done.stdout)["addresses"]}


def each_address_has_the_best_way():
    of = offers()
    must_equal(of[servers.ADDRESS]["rdma_providers"], ["verbs", "iwarp"], "at the device's address")
    must_equal(of[PLAIN]["rdma_providers"], ["iwarp"], "at the other address")
    device = of[servers.ADDRESS]["rdma_device"]
    must_equal((device["name"], device["state"]), (servers.device(), "ACTIVE"), "device")
    must(device["gid_index"] is not None and device["gid_type"], f"no GID: {device}")


def hindered(words, *wrapper):
    """The device's address is served over iWARP then, and all of these words say why."""
    at = offers(*wrapper)[servers.ADDRESS]
    must_equal(at["rdma_providers"], ["iwarp"], "at the device's address")
    why = at["rdma_device_why_not"] or ""
    for word in (servers.device(), *words):
        must(word in why, f"no {word!r} in {why!r}")


def little_memory_is_served_by_iwarp():
    """A daemon that may lock too little says how much it needs and goes on by the next best way, unless the device was demanded."""
    os.makedirs("/tmp/state-little", exist_ok=True)
    os.chown("/tmp/state-little", 65534, 65534)
    command = [*LITTLE_MEMORY, "/scratch/headgate", "serve", "--state", "/tmp/state-little", *OPTIONS]
    with open(LITTLE_LOG, "w") as log:
        gateway = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait_until(lambda: b"headgate ready" in lab.pread_all(LITTLE_LOG), "ready")
        for word in TOO_LITTLE:
            must(word.encode() in lab.pread_all(LITTLE_LOG), f"no {word!r} in the log")
        socket.create_connection((servers.ADDRESS, PORT), 10).close()
        os.makedirs("/mnt/little", exist_ok=True)
        run("mount", "-t", "nfs", "-o", "vers=4.2,proto=tcp,port=3049", f"{servers.ADDRESS}:/small", "/mnt/little")
        must_equal(os.path.getsize("/mnt/little/by-device"), 100_000, "size")
        lab.umount("/mnt/little")
    finally:
        gateway.terminate()
        gateway.wait(20)
    command[command.index("auto")] = "verbs"
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    for word in TOO_LITTLE:
        must(done.returncode != 0 and word in done.stderr, f"{done.returncode}: {done.stderr}")


def nodes_that_are_closed():
    nodes = [f"/dev/infiniband/{name}" for name in os.listdir("/dev/infiniband")]
    modes = {node: os.stat(node).st_mode & 0o777 for node in nodes}
    try:
        for node in nodes:
            os.chmod(node, 0o600)
        hindered(["no permission to use /dev/infiniband/uverbs", "udev"], *NOBODY)
        for node in nodes:
            os.chmod(node, 0o666)
        hindered(TOO_LITTLE, *LITTLE_MEMORY)
        little_memory_is_served_by_iwarp()
    finally:
        for node, mode in modes.items():
            os.chmod(node, mode)


def both_listen_and_the_device_serves():
    with open(LOG, "w") as log:
        gateway = subprocess.Popen(["/scratch/headgate", "serve", "--state", "/tmp/state-auto", *OPTIONS], stdout=log, stderr=log)
    try:
        wait_until(lambda: b"headgate ready" in lab.pread_all(LOG), "ready")
        for address in (servers.ADDRESS, PLAIN):
            # iWARP's port is one of TCP; the device's is not.
            socket.create_connection((address, PORT), 10).close()
        os.makedirs("/mnt/auto")
        run("mount", "-t", "nfs", "-o", f"vers=4.1,proto=rdma,port={PORT}", f"{servers.ADDRESS}:/small", "/mnt/auto")
        with open("/mnt/auto/by-device", "wb") as f:
            f.write(bytes(100_000))
        what_the_device_tells_is_said_and_endured()
        lab.umount("/mnt/auto")
        must_equal(os.path.getsize("/small/by-device"), 100_000, "size")
        must(b'transport="verbs"' in lab.pread_all(LOG), "the device served nobody")
    finally:
        gateway.terminate()
        gateway.wait(20)


def what_the_device_tells_is_said_and_endured():
    """Addresses and the port come and go under a connection."""

    def said(words):
        return lambda: words in lab.pread_all(LOG)

    run("ip", "addr", "add", "10.91.0.1/24", "dev", "here")
    wait_until(said(b"GID table change"), "a line about the address")
    run("ip", "addr", "del", "10.91.0.1/24", "dev", "here")
    run("ip", "link", "set", "here", "carrier", "off")
    wait_until(said(b"RDMA port went down"), "a line about the port")
    run("ip", "link", "set", "here", "carrier", "on")
    with open("/mnt/auto/after", "wb") as f:
        f.write(bytes(100_000))
    must_equal(os.path.getsize("/small/after"), 100_000, "size of what was written afterwards")


def a_port_that_is_down():
    run("ip", "link", "set", "here", "carrier", "off")
    try:
        wait_until(lambda: "DOWN" in lab.pread_all(f"/sys/class/infiniband/{servers.device()}/ports/1/state").decode(), "port down")
        hindered(["not ACTIVE", "ip link set here up", "cable"])
    finally:
        run("ip", "link", "set", "here", "carrier", "on")


def a_port_that_is_switched_off():
    """By its administrator; on a device of its own, since addresses of this one are in use."""
    device, state = "off0", "/sys/class/infiniband/off0/ports/1/state"
    run("rdma", "link", "add", device, "type", lab.ENV["DEVICE"], "netdev", "plain")
    try:
        wait_until(lambda: "ACTIVE" in lab.pread_all(state).decode(), "port up")
        must_equal(offers()[PLAIN]["rdma_providers"], ["verbs", "iwarp"], "at the new device's address")
        run("ip", "link", "set", "plain", "down")
        wait_until(lambda: "DOWN" in lab.pread_all(state).decode(), "port down")
        # The kernel has no route to such an address, so nobody knows whose it is.
        must_equal(offers()[PLAIN]["rdma_providers"], ["iwarp"], "with its network device down")
        demand = ["--rdma", "verbs", *OPTIONS[2:], "--state", "/tmp/state-of-demand"]
        done = subprocess.run(["/scratch/headgate", "serve", *demand], capture_output=True, text=True, timeout=60)
        for words in (PLAIN, "network device is down", "--rdma auto"):
            must(done.returncode != 0 and words in done.stderr, f"{done.returncode}: {done.stderr}")
    finally:
        run("rdma", "link", "delete", device)
        run("ip", "link", "set", "plain", "up")


def job(_top):
    run("ip", "link", "add", "plain", "type", "dummy")
    run("ip", "addr", "add", f"{PLAIN}/24", "dev", "plain")
    run("ip", "link", "set", "plain", "up")
    check("auto/each-address-has-the-best-way", each_address_has_the_best_way)
    check("auto/both-listen-and-the-device-serves", both_listen_and_the_device_serves)
    check("auto/nodes-that-are-closed", nodes_that_are_closed)
    check("auto/a-port-that-is-down", a_port_that_is_down)
    check("auto/a-port-that-is-switched-off", a_port_that_is_switched_off)
