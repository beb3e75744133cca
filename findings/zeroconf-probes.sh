#!/bin/sh
# What python-zeroconf (PyPI) answers about the name of a host that it owns.
#
# Versions: zeroconf 0.154.0, and 0.47.3 as in Debian 12. Source of the rules: RFC 6762.
#
# A host that wants the name `gw.local` sends a probe of type ANY (section 8.1), and the owner of the name answers with the records
# that conflict. zeroconf answers queries of type A for the name, and none of type ANY: a host that probes by the book takes a name
# that is in use, and both believe to own it.
#
# Its answers also have an NSEC record, which lists the types of records that exist for a name (section 6.1). That of 0.47.3 begins
# with a list of no bytes, where RFC 4034 section 4.1.2 has 1 to 32, and more bytes follow: a strict parser drops the whole answer,
# the address with it. 0.154.0 lists A, as it should.
#
# Runs as root, in a network of its own. Fails if this changes.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
cat > "$dir/ask.py" <<'PY'
import socket
import struct
import sys
import time

from zeroconf import ServiceInfo, Zeroconf, __version__

A, NSEC, ANY = 1, 47, 255


def name_end(data, at):
    while data[at]:
        if data[at] >= 0xC0:
            return at + 2
        at += data[at] + 1
    return at + 1


def ask(kind):
    """Asks by unicast from another port, which section 6.7 says to answer. Returns the types that an NSEC record lists, if any."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(3)
        s.bind(("127.0.0.1", 0))
        question = b"\x02gw\x05local\x00" + struct.pack(">HH", kind, 1)
        s.sendto(struct.pack(">6H", 7, 0, 1, 0, 0, 0) + question, ("127.0.0.1", 5353))
        try:
            data = s.recv(9000)
        except socket.timeout:
            return None, None
    questions, *rest = struct.unpack(">4H", data[4:12])
    at, kinds, listed = 12, [], None
    for _ in range(questions):
        at = name_end(data, at) + 4
    for _ in range(sum(rest)):
        at = name_end(data, at)
        kind, _, _, size = struct.unpack(">HHIH", data[at : at + 10])
        at += 10
        kinds.append(kind)
        if kind == NSEC:
            window = name_end(data, at)
            bits = data[window + 2 : window + 2 + data[window + 1]]
            listed = {8 * i + 7 - b for i, byte in enumerate(bits) for b in range(8) if byte >> b & 1}
        at += size
    return kinds, listed


zeroconf = Zeroconf(interfaces=["127.0.0.1"])
zeroconf.register_service(
    ServiceInfo("_smb._tcp.local.", "gw._smb._tcp.local.", addresses=[b"\x7f\0\0\1"], port=445, server="gw.local.")
)
time.sleep(2)
kinds, listed = ask(A)
of_any, _ = ask(ANY)
zeroconf.close()
print(f"zeroconf {__version__}: a query of type A gets records of the types {kinds}, one of type ANY {of_any or 'nothing'};")
print(f"the host has an address of type {A} alone, and the NSEC record lists {sorted(listed or [])}")
assert kinds and A in kinds, "the name is not served: the set-up is wrong"
assert of_any is None, "ANY is answered now"
assert listed == set(map(int, sys.argv[1:])), "the list of types is another one now"
PY
# Each version, and the types that its list has: A is 1.
for case in 0.154.0=1 0.47.3=; do
  "$dir/venv/bin/pip" install --quiet --disable-pip-version-check "zeroconf==${case%=*}"
  unshare --net sh -c 'ip link set lo up && exec "$@"' sh "$dir/venv/bin/python" "$dir/ask.py" ${case#*=}
done
