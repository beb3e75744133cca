"""A joined smbd and a gateway beside it as members of one domain, asked by the same commands.

    unshare -n -m -p -f --kill-child python3 domain_members.py GATEWAY FOLDER PROGRAMS

PROGRAMS is the folder where Debian's packages of Samba are unpacked. Prints a row for each command: what smbd says, what the
gateway says, and why they differ. `not ok` for a difference without a reason, and for a reason without a difference.
"""

import json
import os
import re
import signal
import stat
import subprocess
import sys

import smb_domain
from smb_clients import run
from smb_domain import ADMINISTRATOR, DNS, DOMAIN, GATEWAY, LOCAL, LOCAL_ID, MEMBER, NAMES, OF_ADMINISTRATOR, OF_HOST, PASSWORD
from smb_servers import write

HOSTS = {"smbd": MEMBER, "gateway": GATEWAY}
SHARES_OF_SMBD = """[data]
  path = %(at)s/data
  comment = files
  read only = no
[home]
  path = %(at)s/homes/%%U
  root preexec = install -d -m 700 -o '%%u' '%(at)s/homes/%%U'
  read only = no
"""
SHARES = """  - {name: data, path: %(at)s/data, comment: files, access: {write: ["*"], admin: ['LAB\\Administrator']}}
  - {name: home, path: "%(at)s/homes/{user}"}
"""
NO_FOLDERS = "the gateway names no folder of the host, and lists `IPC$` among the lasting shares as well"
ACCESS = "the gateway shows `access` of the share as a descriptor; the share of smbd has none"
NO_ACCOUNTS = "the gateway's accounts are users of the host: no database gives them RIDs"
# Operations whose results differ, and why.
REASONS = {
    r"logon by password, `LAB\off`, disabled": "the gateway says the reason in its log and status alone",
    r"logon by password, `LAB\Guest`, enabled": "the gateway takes Guest for a guest, which needs a share with `guest: true`",
    "smbcacls, NTLM denied: alice": "smbd does not give logons by NTLM the identity S-1-5-64-10",
    r"lookupnames `MEMBER\carol`": NO_ACCOUNTS,
    "lookupnames `carol`": NO_ACCOUNTS,
    "lookupsids, uid %d" % LOCAL_ID: NO_ACCOUNTS,
    "netshareenum, alice": NO_FOLDERS,
    "netshareenum 502, alice": NO_FOLDERS,
    "netsharegetinfo data 502, alice": ACCESS,
    "netshareenum, Administrator": NO_FOLDERS,
    "netshareenum 502, Administrator": NO_FOLDERS,
    "netsharegetinfo data 502, Administrator": ACCESS,
    "a new file: owner and mode on the host": "`vfs_acl_xattr` of smbd sets the masks of modes to 0777",
    "smbcacls, alice sets the group readers, which is not hers": "smbd has one status for owners and groups",
    "a list that the other server set: alice and readers may read":
        "smbd stores a POSIX list as well, which the gateway obeys; smbd does not read the gateway's",
}
STATUS = re.compile(r"NT_STATUS_[A-Z_0-9]+|WERR_[A-Z_0-9]+")
SID = re.compile(r"S-1-5-21-(\d+)-(\d+)-(\d+)")


def client(words, user=None, password=None, tickets=None):
    """Returns what a client of Samba says, with a user's password or tickets."""
    how = ["--use-kerberos=required"] if tickets else ["--use-kerberos=off", "-U", "%s%%%s" % (user, password)]
    env = {**os.environ, "KRB5CCNAME": "FILE:%s" % (tickets or "/none")}
    words = words[:1] + ["-s", World.conf] + how + words[1:]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, env=env, cwd=World.at)
    return (done.stdout + done.stderr).decode(errors="replace")


class World:
    """The domain, and what the commands need."""

    at = conf = domain = None
    domains = ()
    member_sid = conf_of_member = ""

    @classmethod
    def make(cls, program, folder, programs):
        cls.place(folder)
        at = {"at": folder}
        domain, member = smb_domain.made(programs, folder, shares=SHARES_OF_SMBD % at)
        gateway = smb_domain.gateway(program, folder, SHARES % at)
        cls.know(member, domain)
        get_tickets("tickets", "alice")
        return [member.winbindd, member.smbd, gateway, domain.process]

    @classmethod
    def place(cls, folder):
        """Makes the folders of the servers, and what the clients need."""
        cls.at = folder
        for name in ("data", "homes"):
            os.makedirs(os.path.join(folder, name))
        os.chmod(os.path.join(folder, "data"), 0o777)
        cls.conf = write(os.path.join(folder, "client.conf"), "[global]\n  workgroup = CLIENTS\n  realm = %s\n" % smb_domain.REALM)
        write(os.path.join(folder, "sent"), "sent\n")

    @classmethod
    def know(cls, member, *domains):
        """The domain of the member is the first."""
        cls.domain, cls.domains, cls.conf_of_member = domains[0], domains, member.conf
        cls.member_sid = run("net", "getlocalsid", "-s", member.conf).decode().rsplit(" ", 1)[1].strip()


def get_tickets(name, principal):
    run("kinit", "-c", os.path.join(World.at, name), principal, data=(PASSWORD + "\n").encode())


def plain(said):
    """Names SIDs of the domains and of the member, and servers, which no run has twice."""
    said = said.replace(World.member_sid, "(MEMBER)")
    for domain in World.domains:
        mark = "(%s)" % domain.of.domain
        said = said.replace(domain.sid, mark)
        for name, rid in domain.rids.items():
            said = re.sub(r"%s-%s\b" % (re.escape(mark), rid), lambda _, name=name: "%s-%s" % (mark, name), said)
    said = re.sub(r"\b(gw|member)\.lab\.test\b", "SERVER", said)
    said = said.replace("C:" + World.at.replace("/", "\\"), r"C:\FOLDER")
    return re.sub(r"S-1-5-21-\d+-\d+-\d+(-\d+)?", "(another)", said)


def status(said):
    """Returns the first error, or `yes`."""
    found = STATUS.search(said)
    return found.group() if found else "yes"


def by_password(user, password=PASSWORD, share="data"):
    def logs_on(host):
        said = client(["smbclient", "//%s.%s/%s" % (NAMES[host], DNS, share), "-c", "ls"], user, password)
        return status(said) if "blocks available" not in said else "yes"

    return logs_on


def by_ticket(name, share="data"):
    def logs_on(host):
        words = ["smbclient", "//%s.%s/%s" % (NAMES[host], DNS, share), "-c", "ls"]
        return status(client(words, tickets=os.path.join(World.at, name)))

    return logs_on


def of_domain(user):
    """Returns a user with its domain, by default that of the servers, and its password."""
    if "\\" in user:
        return (user, PASSWORD)
    if user == ADMINISTRATOR:
        return (DOMAIN + "\\" + user, OF_ADMINISTRATOR)
    return (DOMAIN + "\\" + user, PASSWORD)


def rpc(command, user="alice"):
    def asks(host):
        said = client(["rpcclient", "%s.%s" % (NAMES[host], DNS), "-c", command], *of_domain(user))
        lines = [" ".join(line.split()) for line in plain(said).splitlines() if line.strip()]
        lines = [line for line in lines if not line.startswith("result was")] or lines
        return "; ".join(lines)

    return asks


def shares(command, user):
    """What is told of shares: of each its fields but for those that no client uses, and how many entries its descriptor has."""
    def asks(host):
        told, entries = [], 0
        for line in rpc(command, user)(host).split("; "):
            field, _, value = line.partition(":")
            if field == "netname":
                told.append(value.strip())
            elif field in ("remark", "path", "type", "max_uses") and entries == 0 and "SEC_DESC" not in value and value.strip():
                told[-1:] = ["%s, %s %s" % (told[-1], field, value.strip())] if told else [line]
            elif line == "ACE":
                entries += 1
            elif STATUS.search(line):
                return line
        return "; ".join(told) + (", descriptor of %d entries" % entries if entries else "")

    return asks


def acl_of(host, path, user="alice", more=()):
    return client(["smbcacls", "//%s.%s/data" % (NAMES[host], DNS), path, *more], *of_domain(user))


def put(host, path, user="alice"):
    said = client(["smbclient", "//%s.%s/data" % (NAMES[host], DNS), "-c", "put sent %s" % path], *of_domain(user))
    return status(said)


def reads(host, path, user):
    said = client(["smbclient", "//%s.%s/data" % (NAMES[host], DNS), "-c", "get %s back" % path], *of_domain(user))
    return "%s reads: %s" % (user, status(said))


def shown(host, path, user="alice"):
    """Returns owner, group and entries, sorted where order does not matter."""
    said = plain(acl_of(host, path, user))
    lines = [line for line in said.splitlines() if line.split(":")[0] in ("OWNER", "GROUP", "ACL")]
    return "; ".join(lines) or status(said)


def name_of(host, what):
    return "%s-%s" % (NAMES[host], what)


def fresh(host, what, user="alice"):
    """Makes a file of this user by this server."""
    path = name_of(host, what)
    done = put(host, path, user)
    assert done == "yes", "put: " + done
    return path


def shows(host):
    return shown(host, fresh(host, "shown"))


def shows_numbers(host):
    path = fresh(host, "owned")
    found = os.stat(os.path.join(World.at, "data", path))
    is_hers = (found.st_uid, found.st_gid) == (World.domain.id_of("alice"), World.domain.id_of("Domain Users"))
    return "%s %o" % ("alice, Domain Users" if is_hers else (found.st_uid, found.st_gid), stat.S_IMODE(found.st_mode))


def adds(entry, what):
    def sets(host):
        path = fresh(host, what)
        said = acl_of(host, path, more=["-a", "ACL:%s\\readers:%s" % (DOMAIN, entry)])
        entries = [line for line in shown(host, path).split("; ") if "readers" in line]
        return "; ".join([status(said), *entries, reads(host, path, "bob"), reads(host, path, "alice")])

    return sets


def reads_local(denied):
    """A file that everyone may read and this user or group of the domain may not."""
    def asks(host):
        path = fresh(host, "local-%s" % denied)
        everyone = "ACL:Everyone:ALLOWED/0x0/READ"
        said = acl_of(host, path, more=["-a", "ACL:%s\\%s:DENIED/0x0/READ,%s" % (DOMAIN, denied, everyone)])
        words = ["smbclient", "//%s.%s/data" % (NAMES[host], DNS), "-c", "get %s back" % path]
        return "%s; carol reads: %s" % (status(said), status(client(words, NAMES[host] + "\\" + LOCAL, OF_HOST)))

    return asks


def ntlm_denied(host):
    """A file that NTLM logons may not read: by password, and by ticket."""
    path = fresh(host, "ntlm")
    said = acl_of(host, path, more=["-a", "ACL:S-1-5-64-10:DENIED/0x0/READ"])
    words = ["smbclient", "//%s.%s/data" % (NAMES[host], DNS), "-c", "get %s back" % path]
    by_ticket = status(client(words, tickets=os.path.join(World.at, "tickets")))
    return "%s; %s; by ticket: %s" % (status(said), reads(host, path, "alice"), by_ticket)


def owner_set(user, to, option="-C"):
    def sets(host):
        path = fresh(host, "given-%s-%s%s" % (user, to, option))
        said = acl_of(host, path, user, [option, "%s\\%s" % (DOMAIN, to)])
        found = os.stat(os.path.join(World.at, "data", path))
        number = found.st_uid if option == "-C" else found.st_gid
        return "%s; %s" % (status(said), "set" if number == World.domain.id_of(to) else "not set")

    return sets


def home(host):
    user, password = of_domain("bob")
    said = client(["smbclient", "//%s.%s/home" % (NAMES[host], DNS), "-c", "put sent %s" % NAMES[host]], user, password)
    path = os.path.join(World.at, "homes/bob")
    if not os.path.exists(path):
        return status(said)
    found = os.stat(path)
    is_his = found.st_uid == World.domain.id_of("bob")
    return "%s; folder of %s, %o" % (status(said), "bob" if is_his else found.st_uid, stat.S_IMODE(found.st_mode))


def other(host):
    return GATEWAY if host == MEMBER else MEMBER


def of_other(host):
    """Owner and group of a file that the other server made."""
    found = shown(host, fresh(other(host), "of-other")).split("; ")
    return "; ".join(line for line in found if not line.startswith("ACL"))


def set_by_other(entry, what):
    """The effect of an entry that was added by the other server."""
    def asks(host):
        path = fresh(other(host), what)
        acl_of(other(host), path, more=["-S", "ACL:%s\\alice:ALLOWED/0x0/FULL,%s" % (DOMAIN, entry)])
        return "; ".join([reads(host, path, "bob"), reads(host, path, "alice")])

    return asks


def operations():
    """Yields each operation with what does it."""
    yield "logon by ticket, alice", by_ticket("tickets")
    for user, password, what in (
        (r"LAB\alice", PASSWORD, ""),
        (r"lab.test\alice", PASSWORD, ""),
        ("alice@lab.test", PASSWORD, ""),
        ("suffix@corp.example", PASSWORD, ", a principal name whose suffix is no domain"),
        (r"LAB\Guest", PASSWORD, ", enabled"),
        (r"LAB\Guest", "wrong", ", wrong password"),
        (r"LAB\alice", "wrong", ", wrong password"),
        (r"LAB\off", PASSWORD, ", disabled"),
        (r"LAB\nobody-has-this-name", PASSWORD, ""),
        (r"UNKNOWN\alice", PASSWORD, ""),
        (r"MEMBER\carol", OF_HOST, ", an account of the server"),
        (r"UNKNOWN\carol", OF_HOST, ""),
        (r".\carol", OF_HOST, ""),
        (r"LAB\carol", OF_HOST, ""),
        (r"MEMBER\carol", "wrong", ", wrong password"),
    ):
        yield "logon by password, `%s`%s" % (user, what), by_password(user, password)
    for name in (r"LAB\bob", r"lab.test\bob", r"LAB\readers", "bob@lab.test", "bob", "readers", r"MEMBER\carol", "carol",
                 r"BUILTIN\Administrators", "Administrators", "Everyone", r"LAB\nobody-has-this-name", r"UNKNOWN\bob"):
        yield "lookupnames `%s`" % name, rpc("lookupnames '%s'" % name)
    sid = World.domain.sid_of
    for what, number in (
        ("bob", sid("bob")), ("readers", sid("readers")), ("Domain Users", sid("Domain Users")), ("the domain", World.domain.sid),
        ("the domain, unknown", World.domain.sid + "-99999"), ("an unknown domain", "S-1-5-21-1-2-3-500"),
        ("BUILTIN\\Administrators", "S-1-5-32-544"), ("Everyone", "S-1-1-0"), ("uid %d" % LOCAL_ID, "S-1-22-1-%d" % LOCAL_ID),
    ):
        yield "lookupsids, %s" % what, rpc("lookupsids %s" % number)
    yield "lsaquery", rpc("lsaquery")
    for user in ("alice", ADMINISTRATOR):
        yield "netshareenum, %s" % user, shares("netshareenum", user)
        yield "netshareenum 502, %s" % user, shares("netshareenum 502", user)
        yield "netsharegetinfo data 502, %s" % user, shares("netsharegetinfo data 502", user)
    yield "a new file: owner and mode on the host", shows_numbers
    yield "a new file: smbcacls", shows
    yield "smbcacls, readers allowed", adds("ALLOWED/0x0/READ", "allowed")
    yield "smbcacls, readers denied", adds("DENIED/0x0/READ", "denied")
    yield "smbcacls, readers denied: carol, an account of the server", reads_local("readers")
    yield "smbcacls, bob denied: carol, an account of the server", reads_local("bob")
    yield "smbcacls, NTLM denied: alice", ntlm_denied
    yield "smbcacls, alice gives the file to bob", owner_set("alice", "bob")
    yield "smbcacls, Administrator gives it to bob", owner_set(ADMINISTRATOR, "bob")
    yield "smbcacls, Administrator gives it to late, who has never logged on", owner_set(ADMINISTRATOR, "late")
    yield "smbcacls, alice sets her group writers", owner_set("alice", "writers", "-G")
    yield "smbcacls, alice sets the group readers, which is not hers", owner_set("alice", "readers", "-G")
    yield "smbcacls, Administrator sets the group readers", owner_set(ADMINISTRATOR, "readers", "-G")
    yield "home of bob", home
    yield "a file that the other server made: owner and group", of_other
    readers, everyone = "ACL:%s\\readers:" % DOMAIN, "ACL:Everyone:ALLOWED/0x0/READ"
    yield "a list that the other server set: alice and readers may read", set_by_other(readers + "ALLOWED/0x0/READ", "by-other")
    yield "a list that the other server set: alice and everyone may read, readers are denied", set_by_other(
        readers + "DENIED/0x0/READ," + everyone, "denied-by-other")


def cell(text):
    """Formats a result for a table, as code where signs of it would be read as marks."""
    text = text.replace("|", "\\|").replace("\n", " ")
    return "`%s`" % text if any(sign in text for sign in "\\*") and "`" not in text else text


def compare(name, ask, part="domain-members", reasons=None):
    """Prints a row, and whether both servers say the same, or differ for a known reason. Returns what they say."""
    said = {}
    for server, host in HOSTS.items():
        try:
            said[server] = ask(host)
        except Exception as error:  # noqa: BLE001: what a client says is the result
            said[server] = "%s %s" % (type(error).__name__, error)
    reason = (REASONS if reasons is None else reasons).get(name, "")
    is_same = said["smbd"] == said["gateway"]
    print("row | %s | %s | %s | %s |" % (
        cell(name), cell(said["smbd"]), "the same" if is_same else cell(said["gateway"]), reason), flush=True)
    if is_same == bool(reason):
        why = "the reason of a difference is out of date" if is_same else "smbd: %(smbd)s; gateway: %(gateway)s" % said
        print("not ok %s/%s: %s" % (part, name, why), flush=True)
    else:
        print("ok %s/%s" % (part, name), flush=True)
    return said


def check_user(program, config, user):
    state = os.path.join(World.at, "gateway/state")
    words = [program, "check", "--json", "--config", config, "--state", state, "--user", user]
    return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=90)


def checks(program):
    """`check --user` knows the groups of users who have never logged on, by each spelling of their names."""
    at = os.path.join(World.at, "gateway")
    with open(os.path.join(at, "gateway.yaml")) as config:
        text = config.read()
    team = '  - {name: team, path: %s/data, sec: [krb5], access: {write: ["@LAB\\\\writers"]}}\n' % World.at
    config = write(os.path.join(at, "check.yaml"), text.replace("shares:\n", "shares:\n" + team))
    for user, groups, may in (
        (r"LAB\alice", {"Domain Users", "writers"}, "write"),
        ("alice@lab.test", {"Domain Users", "writers"}, "write"),
        ("alice", {"Domain Users", "writers"}, "write"),
        ("bob", {"Domain Users", "readers"}, "nothing"),
        (r"lab.test\late", {"Domain Users"}, "nothing"),
    ):
        done = check_user(program, config, user)
        try:
            told = json.loads(done.stdout)
            found = {group["name"].split("\\")[1] for group in told["domain"]["groups"]}
            share = told["shares"][0]
            rights = {share[by]["may"] for by in ("nfs", "smb")}
            is_so = found == groups and rights == {may} and told["uid"] == World.domain.id_of(user.split("\\")[-1].split("@")[0])
            is_so = is_so and share["smb"]["because"].startswith("by a ticket or a password: ")
        except (KeyError, TypeError, ValueError):
            is_so = False
        said = " ".join((done.stdout + done.stderr).split())
        print("ok domain-members/check %s" % user if is_so else "not ok domain-members/check %s: %s" % (user, said), flush=True)


def says(program, what, keytab, names, wanted, more="", unwanted=None):
    """Compares what `check` says of the keytab with the KDC, and the texts of its warnings."""
    at = os.path.join(World.at, "gateway")
    text = "bind: %s\nrdma: off\nnfs: {portmap: off}\ndomain: {by: winbind}\n" % GATEWAY
    text += "kerberos: {keytab: %s, realm: %s, names: [%s]}\n" % (keytab, smb_domain.REALM, names)
    text += "shares: [{name: data, path: %s/data}]\n" % World.at if "shares:" not in more else ""
    config = write(os.path.join(at, "states.yaml"), text + more)
    words = [program, "check", "--json", "--config", config, "--state", os.path.join(at, "checked")]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=90)
    try:
        told = json.loads(done.stdout)
        found = " ".join([told["kerberos"]["asked_for"][0]["kdc"] or ""] + told["warnings"])
        is_so = all(text in found for text in wanted)
        is_so = is_so and (wanted != ["good"] or "KDC" not in found and "the keytab" not in found)
        is_so = is_so and not (unwanted and unwanted in found)
    except (KeyError, TypeError, ValueError):
        is_so, found = False, done.stdout + done.stderr
    print("%s domain-members/check: %s" % ("ok" if is_so else "not ok", what) + ("" if is_so else ": " + found), flush=True)


def checks_states(program):
    """`check` tells a keytab of an earlier password, and names that the domain has as well."""
    new, old = smb_domain.keytab(World.at), os.path.join(World.at, "old.keytab")
    gateway = "%s.%s" % (NAMES[GATEWAY], DNS)
    says(program, "a good keytab", new, gateway, ["good"])
    says(program, "a name that the account lacks", new, "other." + DNS, ["unknown-service", "net ads setspn add cifs/other." + DNS])
    number = World.domain.id_of("bob")
    users = "users: [{name: alice, uid: %d, gid: %d, password_file: %s/gateway/password}]\n" % (number, number, World.at)
    shares = "shares: [{name: data, path: %s/data, access: {deny: [alice]}}]\n" % World.at
    says(program, "numbers and names of the domain", new, gateway, [
        "the account `alice` has the uid %d, which winbind gives to the user LAB\\bob" % number,
        "`alice` in `access` of share `data` means the account `alice`", "not LAB\\alice of the domain"], users + shares)
    write(old, "", 0o600)
    with open(new, "rb") as keys, open(old, "wb") as copy:
        copy.write(keys.read())
    run("net", "ads", "changetrustpw", "-s", World.conf_of_member)
    says(program, "a keytab of an earlier password", old, gateway, ["old-keytab", "MEMBER$", "net ads keytab create -P"])
    run("net", "ads", "keytab", "create", "-P", "-s", World.conf_of_member)
    says(program, "a keytab made anew", new, gateway, ["good"])
    refused, silent = "the domain LAB does not accept the account `MEMBER$`", "winbind answers, but no domain controller answers"
    World.domain.signal(signal.SIGSTOP)
    says(program, "a silent controller", new, gateway, [silent], unwanted=refused)
    World.domain.signal(signal.SIGCONT)
    of_controller = "--configfile=" + World.domain.conf
    smb_domain.slow("samba-tool", "user", "setpassword", "MEMBER$", "--newpassword=Another-1", of_controller)
    says(program, "an account with another password", new, gateway, [refused, "net ads join", "old-keytab"], unwanted=silent)
    smb_domain.slow("samba-tool", "computer", "delete", "MEMBER", of_controller)
    says(program, "a deleted account", new, gateway, [refused, "net ads join", "unknown-account"], unwanted=silent)


def main():
    program, folder, programs = sys.argv[1:]
    folder = smb_domain.short(folder)
    running = World.make(program, folder, programs)
    checks(program)
    for name, ask in operations():
        compare(name, ask)
    # The password of the machine changes, and tickets with it.
    checks_states(program)
    for process in running:
        done = process.poll()
        print("ok domain-members/ends" if done is None else "not ok domain-members/ends: %s" % done)
        process.terminate()


if __name__ == "__main__":
    main()
