#!/usr/bin/python3
"""What another implementation of SMB 2 and 3 (impacket) sees of a server: impacket-client.py HOST PORT USER PASSWORD SHARE

One line for each check, `ok NAME` or `not ok NAME: WHY`; exits 1 if there was one of the latter.
"""

import io
import os
import sys

from impacket.dcerpc.v5 import samr, transport
from impacket.smb3structs import SMB2_DIALECT_002, SMB2_DIALECT_21, SMB2_DIALECT_30
from impacket.smbconnection import SessionError, SMBConnection

HOST, PORT, USER, PASSWORD, SHARE = sys.argv[1:]
# impacket 0.10 knows 3.1.1, too, but does not sign its TREE_CONNECT as that dialect wants it: no server lets it in.
DIALECTS = {"2.0.2": SMB2_DIALECT_002, "2.1": SMB2_DIALECT_21, "3.0": SMB2_DIALECT_30}
LOGON_FAILURE, NO_SUCH_FILE = 0xC000006D, 0xC000000F
SIZES = (0, 1, 4096, 65_537, 3 << 20)

failures = 0


def check(name, call, *args):
    global failures
    try:
        call(*args)
        print(f"ok {name}")
    except Exception as e:  # Whatever it says, the other checks tell more.
        failures += 1
        print(f"not ok {name}: {type(e).__name__}: {e}")


def connect(dialect, user=USER, password=PASSWORD):
    c = SMBConnection(HOST, HOST, sess_port=int(PORT), preferredDialect=dialect)
    c.login(user, password)
    assert c.getDialect() == dialect, f"dialect {c.getDialect():#x}"
    return c


def content(size):
    return bytes(i * 7 % 251 for i in range(min(size, 251))) * (size // 251 + 1)


def put_and_get(c, folder):
    for size in SIZES:
        data = content(size)[:size]
        c.putFile(SHARE, f"{folder}\\{size}", io.BytesIO(data).read)
        got = io.BytesIO()
        c.getFile(SHARE, f"{folder}\\{size}", got.write)
        assert got.getvalue() == data, f"{size} bytes differ"


def listed(c, folder, wanted):
    found = {f.get_longname() for f in c.listPath(SHARE, f"{folder}\\*")} - {".", ".."}
    assert found == set(wanted), f"{found}"


def rename_and_remove(c, folder):
    c.rename(SHARE, f"{folder}\\4096", f"{folder}\\renamed")
    listed(c, folder, ["0", "1", "65537", str(3 << 20), "renamed"])
    for name in ("0", "1", "65537", str(3 << 20), "renamed"):
        c.deleteFile(SHARE, f"{folder}\\{name}")
    listed(c, folder, [])
    c.deleteDirectory(SHARE, folder)
    fails_with(NO_SUCH_FILE, c.listPath, SHARE, folder)


def fails_with(status, call, *args):
    try:
        call(*args)
    except SessionError as e:
        assert e.getErrorCode() == status, f"{e}"
        return
    raise AssertionError("succeeded")


def shares(c):
    found = {s["shi1_netname"].rstrip("\0") for s in c.listShares()}
    assert {SHARE, "IPC$"} <= found, f"{found}"


def accounts(c):
    """What impacket's samrdump asks, and each level of information of the account."""
    pipe = transport.SMBTransport(HOST, int(PORT), r"\samr", smb_connection=c)
    rpc = pipe.get_dce_rpc()
    rpc.connect()
    rpc.bind(samr.MSRPC_UUID_SAMR)
    server = samr.hSamrConnect(rpc)["ServerHandle"]
    found = samr.hSamrEnumerateDomainsInSamServer(rpc, server)["Buffer"]["Buffer"]
    sid = samr.hSamrLookupDomainInSamServer(rpc, server, found[0]["Name"])["DomainId"]
    domain = samr.hSamrOpenDomain(rpc, server, domainId=sid)["DomainHandle"]
    users = samr.hSamrEnumerateUsersInDomain(rpc, domain)["Buffer"]["Buffer"]
    rids = {user["Name"]: user["RelativeId"] for user in users}
    user = samr.hSamrOpenUser(rpc, domain, userId=rids[USER])["UserHandle"]
    for level in (*range(1, 15), 16, 17, 20, 21):
        samr.hSamrQueryInformationUser2(rpc, user, level)
    told = samr.hSamrQueryInformationUser2(rpc, user, 21)["Buffer"]["All"]
    assert (told["UserName"], told["PrimaryGroupId"]) == (USER, 513), told["UserName"]
    for level in (*range(1, 10), 11, 12, 13):
        samr.hSamrQueryInformationDomain2(rpc, domain, level)
    for level in range(1, 6):
        samr.hSamrQueryDisplayInformation3(rpc, domain, level)
    samr.hSamrCloseHandle(rpc, user)


for name, dialect in DIALECTS.items():
    try:
        c = connect(dialect)
    except Exception as e:
        check(f"{name}/login", lambda: (_ for _ in ()).throw(e))
        continue
    folder = f"impacket-{os.getpid()}-{name}"
    check(f"{name}/mkdir", c.createDirectory, SHARE, folder)
    check(f"{name}/put-and-get", put_and_get, c, folder)
    check(f"{name}/list", listed, c, folder, map(str, SIZES))
    check(f"{name}/rename-and-remove", rename_and_remove, c, folder)
    check(f"{name}/shares", shares, c)
    check(f"{name}/accounts", accounts, c)
    check(f"{name}/wrong-password", fails_with, LOGON_FAILURE, connect, dialect, USER, "wrong")
    check(f"{name}/unknown-user", fails_with, LOGON_FAILURE, connect, dialect, "nobody-knows", PASSWORD)
    check(f"{name}/logoff", c.logoff)
sys.exit(1 if failures else 0)
