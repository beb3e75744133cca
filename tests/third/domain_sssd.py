"""A gateway on a host that SSSD has joined to a domain, asked by clients of Samba.

    unshare -n -m -p -f --kill-child python3 domain_sssd.py GATEWAY FOLDER PROGRAMS SSSD

PROGRAMS is the folder where Debian's packages of Samba are unpacked, and SSSD that of sssd and adcli. The controller is Samba's.
adcli joins the machine, as `realm join` does, and Debian's sssd runs with `id_provider = ad`.
"""

import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request

import smb_domain
from smb_clients import run
from smb_domain import ADMINISTRATOR, DNS, DOMAIN, GATEWAY, LOCAL, NAMES, OF_ADMINISTRATOR, OF_HOST, PASSWORD, REALM, until
from smb_servers import write

ADMIN = "127.0.0.1:9445"
# What the packages make below /var/lib/sss, with its mode.
PLACES = {"": 0o755, "db": 0o700, "mc": 0o755, "pipes": 0o755, "pipes/private": 0o700, "pubconf": 0o755,
          "pubconf/krb5.include.d": 0o755, "gpo_cache": 0o755, "keytabs": 0o700, "secrets": 0o700, "deskprofile": 0o755}
SSSD = """[sssd]
config_file_version = 2
services = nss
domains = %(dns)s
[nss]
[domain/%(dns)s]
id_provider = ad
access_provider = permit
ad_domain = %(dns)s
ad_server = dc.%(dns)s
ad_hostname = member.%(dns)s
krb5_realm = %(realm)s
krb5_keytab = %(keytab)s
ldap_sasl_authid = MEMBER$
ad_enable_dns_sites = false
dyndns_update = false
ad_maximum_machine_account_password_age = 0
"""
SHARES = """  - {name: data, path: %(at)s/data, access: {write: ["*"], admin: ['LAB\\Administrator']}}
  - {name: hers, path: %(at)s/data, access: {write: [alice@lab.test]}}
  - {name: team, path: %(at)s/data, access: {write: ['@LAB\\writers']}}
  - {name: denied, path: %(at)s/data, access: {write: ["*"], deny: ['@LAB\\readers']}}
"""
# Seconds: of a logon while sssd is away, and until the gateway has seen that it is there or away.
REFUSED_MAX, SEEN_MAX = 15, 40


class World:
    at = conf = domain = sssd = gateway = None
    tickets = {}


def report(name, why):
    print("not ok domain-sssd/%s: %s" % (name, " ".join(str(why).split())) if why else "ok domain-sssd/%s" % name, flush=True)


def check(name, ask, *args):
    """`ask` returns what is wrong, or nothing."""
    try:
        why = ask(*args)
    except Exception as error:  # noqa: BLE001: what a client says is the result
        why = "%s %s" % (type(error).__name__, error)
    report(name, why)


def start_sssd():
    with open(os.path.join(World.at, "sssd.log"), "a") as log:
        words = ["sssd", "-i", "--logger=stderr", "-c", os.path.join(World.at, "sssd.conf")]
        World.sssd = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def stop_sssd():
    World.sssd.send_signal(signal.SIGTERM)
    World.sssd.wait(30)


def join(folder):
    """Joins the machine by adcli, and starts sssd."""
    words = ["adcli", "join", "--domain=" + DNS, "--domain-controller=dc." + DNS, "--login-user=" + ADMINISTRATOR,
             "--stdin-password", "--host-fqdn=member." + DNS, "--computer-name=MEMBER", "--service-name=cifs",
             "--host-keytab=" + smb_domain.keytab(folder)]
    # The controller has not given itself the name for clients of LDAP.
    spn("ldap/dc." + DNS, "DC$")
    until("join", lambda: subprocess.run(words, input=OF_ADMINISTRATOR.encode(), capture_output=True).returncode == 0)
    spn("cifs/%s.%s" % (NAMES[GATEWAY], DNS), "MEMBER$")
    run("mount", "-t", "tmpfs", "none", "/run")
    run("mount", "-t", "tmpfs", "none", "/var/lib")
    for place, mode in PLACES.items():
        os.makedirs(os.path.join("/var/lib/sss", place), exist_ok=True)
        os.chmod(os.path.join("/var/lib/sss", place), mode)
    text = SSSD % {"dns": DNS, "realm": REALM, "keytab": smb_domain.keytab(folder)}
    write(os.path.join(folder, "sssd.conf"), text, 0o600)
    start_sssd()
    until("sssd", lambda: sssd_knows("alice@" + DNS), 120)


def spn(name, account):
    run("samba-tool", "spn", "add", name, account, "--configfile=" + World.domain.conf)


def sssd_knows(name):
    """Asks as the gateway does."""
    library = ctypes.CDLL("libsss_nss_idmap.so.0")
    sid, kind = ctypes.c_char_p(), ctypes.c_int()
    return library.sss_nss_getsidbyname_timeout(name.encode(), 2000, ctypes.byref(sid), ctypes.byref(kind)) == 0


def make(program, folder, programs, sssd):
    World.at = folder
    os.makedirs(os.path.join(folder, "data"))
    os.chmod(os.path.join(folder, "data"), 0o777)
    smb_domain.unpacked(programs, sssd)
    smb_domain.network(folder)
    World.domain = smb_domain.Domain(folder)
    join(folder)
    World.conf = write(os.path.join(folder, "client.conf"), "[global]\n  workgroup = CLIENTS\n  realm = %s\n" % REALM)
    write(os.path.join(folder, "sent"), "sent\n")
    for user in ("alice", "bob", "late", ADMINISTRATOR):
        World.tickets[user] = os.path.join(folder, "tickets-" + user)
        password = OF_ADMINISTRATOR if user == ADMINISTRATOR else PASSWORD
        run("kinit", "-c", World.tickets[user], user, data=(password + "\n").encode())
    World.gateway = smb_domain.gateway(program, folder, SHARES % {"at": folder}, "sssd")


def client(words, tickets=None, user=None, password=None):
    """Returns what a client of Samba says, with a user's tickets or password."""
    how = ["--use-kerberos=required"] if tickets else ["--use-kerberos=off", "-U", "%s%%%s" % (user, password)]
    cache = World.tickets[tickets] if tickets else "/none"
    env = {**os.environ, "KRB5CCNAME": "FILE:" + cache}
    words = words[:1] + ["-s", World.conf] + how + words[1:]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=90, env=env, cwd=World.at)
    return (done.stdout + done.stderr).decode(errors="replace")


def server():
    return "%s.%s" % (NAMES[GATEWAY], DNS)


def smb(commands, share="data", **who):
    return client(["smbclient", "//%s/%s" % (server(), share), "-c", commands], **who)


def is_in(said):
    return "blocks available" in said


def logs_on(share="data", **who):
    said = smb("ls", share, **who)
    return None if is_in(said) else said


def is_refused(status, share="data", **who):
    said = smb("ls", share, **who)
    return None if status in said else said


def by_ticket(user, share="data"):
    return logs_on(share, tickets=user)


def is_shut_out(user, share):
    return is_refused("NT_STATUS_ACCESS_DENIED", share, tickets=user)


def by_password(user, password):
    return logs_on(user=user, password=password)


def stat_of(path):
    return os.stat(os.path.join(World.at, "data", path))


def put(path, user="alice"):
    said = smb("put sent %s" % path, tickets=user)
    assert "putting file" in said, said


def number_of(name):
    """The number of an account: sssd adds a number of the domain to its RID."""
    if not hasattr(World, "base"):
        put("first")
        World.base = stat_of("first").st_uid - int(World.domain.rids["alice"])
    return World.base + int(World.domain.rids[name])


def has_numbers():
    put("of-alice")
    found = stat_of("of-alice")
    wanted = (number_of("alice"), number_of("Domain Users"))
    is_so = (found.st_uid, found.st_gid) == wanted and World.base >= 200000
    return None if is_so else "%s instead of %s" % ((found.st_uid, found.st_gid), wanted)


def acl(path, *more, user="alice"):
    return client(["smbcacls", "//%s/data" % server(), path, *more], tickets=user)


def shows(path, *lines):
    said = acl(path)
    missing = [line for line in lines if not re.search("(?mi)^%s" % re.escape(line), said)]
    return "%s: %s" % (missing, said) if missing else None


def shows_owner():
    return shows("of-alice", "OWNER:LAB\\alice", "GROUP:LAB\\Domain Users")


def shows_owner_without_logon():
    """The gateway has never seen this user."""
    path = os.path.join(World.at, "data", "of-off")
    write(path, "", 0o644)
    os.chown(path, number_of("off"), number_of("readers"))
    return shows("of-off", "OWNER:LAB\\off", "GROUP:LAB\\readers")


def sets_entry():
    put("listed")
    said = acl("listed", "-a", "ACL:LAB\\readers:DENIED/0x0/READ")
    if "NT_STATUS" in said:
        return said
    return shows("listed", "ACL:LAB\\readers:DENIED") or is_denied("get listed back", "bob")


def is_denied(commands, user):
    said = smb(commands, tickets=user)
    return None if "NT_STATUS_ACCESS_DENIED" in said else said


def sets_owner():
    put("given")
    said = acl("given", "-C", "LAB\\off", user=ADMINISTRATOR)
    owner = stat_of("given").st_uid
    return None if "NT_STATUS" not in said and owner == number_of("off") else "%s: %s" % (owner, said)


def rpc(command, wanted, user="alice"):
    said = client(["rpcclient", server(), "-c", command], tickets=user)
    found = " ".join(said.replace(World.domain.sid, "(LAB)").split())
    return None if wanted.lower() in found.lower() else "%r is not in %r" % (wanted, found)


def log():
    with open(os.path.join(World.at, "gateway/log")) as log:
        return log.read()


def refuses_password():
    why = is_refused("NT_STATUS_LOGON_FAILURE", user=DOMAIN + "\\alice", password=PASSWORD)
    if why:
        return why
    lines = [line for line in log().splitlines() if "passwords of the domain need winbind" in line]
    return None if len(lines) == 1 else "%d lines: %s" % (len(lines), log()[-1000:])


def checked(program, *more):
    at = os.path.join(World.at, "gateway")
    words = [program, "check", "--config", os.path.join(at, "gateway.yaml"), "--state", os.path.join(at, "state"), *more]
    return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)


def check_says(program):
    done = checked(program)
    wanted = "of the domain LAB (lab.test); its users log on with tickets, since passwords of the domain need winbind"
    return None if "sssd answers" in done.stdout and wanted in done.stdout else done.stdout + done.stderr


def check_knows(program, user, groups, may):
    done = checked(program, "--json", "--user", user)
    told = json.loads(done.stdout)
    found = {group["name"].split("\\")[1].lower() for group in told["domain"]["groups"]}
    rights = {share["share"]: share["smb"]["may"] for share in told["shares"]}
    is_so = found == groups and rights["team"] == may and told["uid"] == number_of(user.split("\\")[-1].split("@")[0])
    return None if is_so else done.stdout + done.stderr


def fetched(path):
    with urllib.request.urlopen("http://%s%s" % (ADMIN, path), timeout=5) as answer:
        return answer.read().decode()


def sees(is_there):
    """Waits until the gateway says everywhere whether sssd answers."""
    def is_so():
        return json.loads(fetched("/status"))["domain"]["answers"] == is_there

    ends = time.monotonic() + SEEN_MAX
    while not is_so():
        if time.monotonic() > ends:
            return fetched("/status")[:500]
        time.sleep(0.2)
    ready, metrics = fetched("/readyz"), fetched("/metrics")
    says = "users of the domain log on only where their numbers are known" in ready
    counts = 'headgate_domain_answers{by="sssd"} %d' % is_there in metrics
    return None if says != is_there and counts else "%s, %s" % (ready, counts)


def is_refused_soon(user):
    began = time.monotonic()
    why = is_refused("NT_STATUS", tickets=user)
    took = time.monotonic() - began
    return why or (None if took < REFUSED_MAX else "%s s" % took)


def soon(ask, *args):
    """Asks until nothing is wrong: SSSD takes some seconds to connect to the controller."""
    ends = time.monotonic() + SEEN_MAX
    while (why := ask(*args)) and time.monotonic() < ends:
        time.sleep(1)
    return why


def operations(program):
    yield ("logon by ticket, alice", by_ticket, "alice")
    yield ("numbers of a new file", has_numbers)
    yield ("smbcacls shows owner and group", shows_owner)
    yield ("smbcacls shows owner and group who never logged on", shows_owner_without_logon)
    yield ("smbcacls adds an entry for a group", sets_entry)
    yield ("smbcacls sets an owner who never logged on", sets_owner)
    for name, wanted in (
        ("LAB\\bob", "LAB\\bob (LAB)-%s (User: 1)" % World.domain.rids["bob"]),
        ("lab.test\\bob", "lab.test\\bob (LAB)-%s (User: 1)" % World.domain.rids["bob"]),
        ("bob@lab.test", "bob@lab.test (LAB)-%s (User: 1)" % World.domain.rids["bob"]),
        ("LAB\\readers", "LAB\\readers (LAB)-%s (Domain Group: 2)" % World.domain.rids["readers"]),
        ("LAB\\nobody-has-this-name", "NT_STATUS_NONE_MAPPED"),
        ("BUILTIN\\Administrators", "S-1-5-32-544 (Local Group: 4)"),
    ):
        yield ("lookupnames %s" % name, rpc, "lookupnames '%s'" % name, wanted)
    for name, kind in (("late", 1), ("readers", 2), ("Domain Users", 2)):
        yield ("lookupsids %s" % name, rpc, "lookupsids %s" % World.domain.sid_of(name), "LAB\\%s (%d)" % (name, kind))
    yield ("lookupsids of a SID that nothing has", rpc, "lookupsids %s-99999" % World.domain.sid, "(LAB)-99999 *unknown*")
    yield ("access: the user by name", by_ticket, "alice", "hers")
    yield ("access: another user", is_shut_out, "bob", "hers")
    yield ("access: a member of the group", by_ticket, "alice", "team")
    yield ("access: no member of the group", is_shut_out, "bob", "team")
    yield ("access: a denied group", is_shut_out, "bob", "denied")
    yield ("access: not of the denied group", by_ticket, "alice", "denied")
    yield ("password of the domain", refuses_password)
    yield ("password of an account of the gateway", by_password, LOCAL, OF_HOST)
    yield ("password of an account, another domain", by_password, "UNKNOWN\\" + LOCAL, OF_HOST)
    yield ("check", check_says, program)
    yield ("check --user alice", check_knows, program, "alice", {"domain users", "writers"}, "write")
    yield ("check --user LAB\\bob", check_knows, program, "LAB\\bob", {"domain users", "readers"}, "nothing")


def main():
    program, folder, programs, sssd = sys.argv[1:]
    folder = smb_domain.short(folder)
    make(program, folder, programs, sssd)
    check("sssd answers", sees, True)
    for name, ask, *args in operations(program):
        check(name, ask, *args)
    stop_sssd()
    check("sssd stopped", sees, False)
    check("sssd stopped: a known user by ticket", by_ticket, "alice")
    check("sssd stopped: kept names", shows_owner)
    check("sssd stopped: a user whose number is unknown", is_refused_soon, "late")
    check("sssd stopped: an account of the gateway", by_password, LOCAL, OF_HOST)
    start_sssd()
    check("sssd started again", sees, True)
    check("sssd started again: the user whose number was unknown", soon, by_ticket, "late")
    for what, process in (("gateway", World.gateway), ("controller", World.domain.process)):
        done = process.poll()
        report("%s runs" % what, done is not None and "ended: %s" % done)
        process.terminate()
    stop_sssd()


main()
