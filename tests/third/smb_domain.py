"""A controller of the domain LAB, and a member of it with winbindd and smbd, for clients of SMB. Controllers of further domains.

All in namespaces of their own (`unshare -n -m -p -f --kill-child`): the controllers, the member and a gateway beside it have an
address each on the loopback interface, and all ports. Debian's packages are unpacked over /usr, not installed. The gateway has the
winbindd, the keytab and the machine account of the member, so that all that differs comes from the file server.
"""

import collections
import os
import socket
import subprocess
import sys
import time

import smb_servers
from smb_clients import run
from smb_servers import write

CONTROLLER, MEMBER, GATEWAY = "10.53.0.10", "10.53.0.20", "10.53.0.30"
NAMES = {CONTROLLER: "dc", MEMBER: "member", GATEWAY: "gw"}
REALM, DNS, DOMAIN = "LAB.TEST", "lab.test", "LAB"
ADMINISTRATOR, OF_ADMINISTRATOR = "Administrator", "Provisioned-1"
PASSWORD, OF_HOST = "secret", "of-this-host"
# The account that only the servers know, and its number on this host.
LOCAL, LOCAL_ID = "carol", 3001
# A domain: its names, the address and NetBIOS name of its controller, and what is added to its RIDs.
Names = collections.namedtuple("Names", "dns domain controller computer numbers")
LAB = Names(DNS, DOMAIN, CONTROLLER, "dc", 100000)
# Users, and groups with a member each.
PEOPLE_OF_LAB = ("alice bob off late suffix", "writers=alice readers=bob")
# Those of Kerberos, LDAP and SMB.
PORTS = (88, 389, 445)
FOLDERS = ("private", "state", "cache", "lock", "run", "bind")
PLACE = """  private dir = %(at)s/private
  state directory = %(at)s/state
  cache directory = %(at)s/cache
  lock directory = %(at)s/lock
  pid directory = %(at)s/run
  ncalrpc dir = %(at)s/run/ncalrpc
  winbindd socket directory = %(at)s/run/winbindd
  binddns dir = %(at)s/bind
  ntp signd socket directory = %(at)s/run/ntp
  log file = %(at)s/log.%%m
  bind interfaces only = yes
  interfaces = %(host)s/32
  realm = %(realm)s
  workgroup = %(domain)s
  netbios name = %(name)s
"""
CONTROLLERS = """[global]
%(place)s
  server role = active directory domain controller
  server services = s3fs, rpc, ldap, cldap, kdc, winbindd, dns
%(more)s
[sysvol]
  path = %(at)s/state/sysvol
[netlogon]
  path = %(at)s/state/sysvol/scripts
"""
# As docs/active-directory.md has it, with lists as Windows clients want them of smbd.
MEMBERS = """[global]
%(place)s
  security = ads
  kerberos method = secrets and keytab
  idmap config * : backend = tdb
  idmap config * : range = 3000-7999
  idmap config LAB : backend = rid
  idmap config LAB : range = 100000-999999
  vfs objects = acl_xattr
  map acl inherit = yes
  inherit acls = yes
  load printers = no
  disable spoolss = yes
%(more)s
"""
KERBEROS = """[libdefaults]
 default_realm = LAB.TEST
 dns_lookup_kdc = false
 dns_lookup_realm = false
 rdns = false
[realms]
%s
[domain_realm]
%s
"""
# Runs in Debian's Python, which has Samba's modules: makes users and groups, and prints their RIDs.
PEOPLE = """
import sys, ldb
from samba.auth import system_session
from samba.dcerpc import security
from samba.ndr import ndr_unpack
from samba.param import LoadParm
from samba.samdb import SamDB
conf, password, owners, users, groups = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4].split(), sys.argv[5].split()
lp = LoadParm()
lp.load(conf)
db = SamDB(lp=lp, session_info=system_session())
db.set_minPwdLength(1)
db.set_pwdProperties("0")
for name in users:
    db.newuser(name, password)
    if name == "off":
        db.toggle_userAccountFlags("(sAMAccountName=off)", 2, "off", on=True)
    if name == "suffix":
        dn = db.search(expression="(sAMAccountName=suffix)", attrs=["dn"])[0].dn
        db.modify_ldif("dn: %s\\nchangetype: modify\\nreplace: userPrincipalName\\nuserPrincipalName: suffix@corp.example\\n" % dn)
        suffixes = "dn: CN=Partitions,%s\\nchangetype: modify\\nadd: uPNSuffixes\\nuPNSuffixes: corp.example\\n"
        db.modify_ldif(suffixes % db.get_config_basedn())
        db.setpassword("(sAMAccountName=Guest)", password)
        db.enable_account("(sAMAccountName=Guest)")
for group, member in (both.split("=") for both in groups):
    db.newgroup(group)
    db.add_remove_group_members(group, [member])
db.transaction_start()
for n in range(owners):
    db.add({"dn": f"CN=owner{n},CN=Users,{db.domain_dn()}", "objectClass": "user", "sAMAccountName": f"owner{n}"})
db.transaction_commit()
for found in db.search(expression="(|(objectClass=user)(objectClass=group))", attrs=["objectSid", "sAMAccountName"]):
    sid = str(ndr_unpack(security.dom_sid, found["objectSid"][0]))
    if sid.startswith(str(db.domain_sid)):
        print(found["sAMAccountName"][0], sid.rsplit("-", 1)[1], sep="=")
print("domain", db.domain_sid, sep="=")
"""


def unpacked(*folders):
    """Puts the packages that are unpacked in these folders over /usr."""
    for part in ("usr", "lib"):
        over = "/usr" + ("/lib" if part == "lib" else "")
        below = [os.path.join(folder, part) for folder in folders]
        layers = ":".join([folder for folder in below if os.path.isdir(folder)] + [over])
        run("mount", "-t", "overlay", "overlay", "-o", "lowerdir=" + layers, over)


def bound(at, path, text):
    """Mounts a file with this text over a file of /etc."""
    run("mount", "--bind", write(os.path.join(at, os.path.basename(path)), text), path)


def network(at, domains=(LAB,), resolver=CONTROLLER):
    """Adds the addresses, and what this host knows of names and realms."""
    run("ip", "link", "set", "lo", "up")
    hosts = {resolver: "resolver.test", **{host: "%s.%s %s" % (name, DNS, name) for host, name in NAMES.items()}}
    hosts.update((one.controller, "%s.%s %s" % (one.computer, one.dns, one.computer)) for one in domains)
    for host in hosts:
        run("ip", "address", "add", host + "/32", "dev", "lo")
    bound(at, "/etc/hosts", "127.0.0.1 localhost\n" + "".join("%s %s\n" % one for one in hosts.items()))
    bound(at, "/etc/resolv.conf", "nameserver %s\n" % resolver)
    bound(at, "/etc/nsswitch.conf", "passwd: files winbind\ngroup: files winbind\nhosts: files dns\n")
    for path, more in (("/etc/passwd", "%s:x:%d:%d::/:/bin/false\n"), ("/etc/group", "%s:x:%d:\n")):
        with open(path) as old:
            text = old.read()
        bound(at, path, text + more % ((LOCAL,) + (LOCAL_ID,) * more.count("%d")))
    realms = "\n".join(" %s = {\n  kdc = %s\n }" % (one.dns.upper(), one.controller) for one in domains)
    of_hosts = "\n".join(" .%s = %s" % (one.dns, one.dns.upper()) for one in domains)
    os.environ["KRB5_CONFIG"] = write(os.path.join(at, "krb5.conf"), KERBEROS % (realms, of_hosts))
    # In place of /etc/krb5.keytab.
    os.environ["KRB5_KTNAME"] = "FILE:" + keytab(at)


def keytab(at):
    return os.path.join(at, "keytab")


def short(folder):
    """Gives a folder a short path, which names of sockets in it need, and which all users may enter."""
    os.chmod(folder, 0o755)
    run("mount", "--bind", folder, "/mnt")
    return "/mnt"


def until(what, is_so, seconds=60):
    ends = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > ends:
            print("not ok domain/%s: did not come" % what)
            sys.exit(1)
        time.sleep(0.1)


def slow(*words):
    """Returns what a program prints that may take minutes on a loaded host."""
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise OSError("%s: %s" % (words[0], done.stderr[-300:]))
    return done.stdout


def succeeds(*words):
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return done.returncode == 0


def listens(host, port):
    try:
        socket.create_connection((host, port), 1).close()
        return True
    except OSError:
        return False


def at_of(folder, name):
    at = os.path.join(folder, name)
    for part in FOLDERS:
        os.makedirs(os.path.join(at, part))
    return at


def config(at, host, text, name, of=LAB, more=""):
    place = PLACE % {"at": at, "host": host, "name": name.upper(), "realm": of.dns.upper(), "domain": of.domain}
    return write(os.path.join(at, "smb.conf"), text % {"at": at, "place": place, "more": more})


class Domain:
    """The controller; knows the SIDs of users and groups."""

    def __init__(self, folder, owners=0, of=LAB, people=PEOPLE_OF_LAB, more=""):
        self.of = of
        self.at = at_of(folder, of.computer)
        self.conf = config(self.at, of.controller, CONTROLLERS, of.computer, of, more)
        slow("samba-tool", "domain", "provision", "--configfile=" + self.conf, "--realm=" + of.dns.upper(),
            "--domain=" + of.domain, "--server-role=dc", "--dns-backend=SAMBA_INTERNAL", "--host-name=" + of.computer,
            "--host-ip=" + of.controller, "--adminpass=" + OF_ADMINISTRATOR)
        said = slow("/usr/bin/python3", "-c", PEOPLE, self.conf, PASSWORD, str(owners), *people)
        self.rids = dict(line.split("=") for line in said.splitlines() if "=" in line)
        self.sid = self.rids.pop("domain")
        self.start()

    def start(self):
        # Its smbd asks the winbindd that it finds in /run/samba.
        script = 'mount -t tmpfs none /run && mkdir /run/samba && mount --bind "$0" /run/samba && exec samba -i -M standard -s "$1"'
        with open(os.path.join(self.at, "log"), "a") as log:
            words = ["unshare", "--mount", "sh", "-c", script, os.path.join(self.at, "run"), self.conf]
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        for port in PORTS:
            until("controller-%d" % port, lambda port=port: listens(self.of.controller, port))

    def stop(self):
        # It ends its process group.
        self.process.terminate()
        self.process.wait(30)
        until("stop", lambda: not any(listens(self.of.controller, port) for port in PORTS))

    def signal(self, number):
        """Sends a signal to all its processes, such as SIGSTOP: connections are accepted then, and nothing is answered."""
        os.killpg(os.getpgid(self.process.pid), number)

    def sid_of(self, name):
        return "%s-%s" % (self.sid, self.rids[name])

    def id_of(self, name):
        return self.of.numbers + int(self.rids[name])


class Member:
    """A joined machine: winbindd, which the gateway asks too, and smbd with these shares."""

    def __init__(self, folder, domain, shares):
        """`shares` may begin with further global options."""
        self.at = at_of(folder, "member")
        self.conf = config(self.at, MEMBER, MEMBERS, NAMES[MEMBER], more=shares)
        who = "%s%%%s" % (ADMINISTRATOR, OF_ADMINISTRATOR)
        join = ["net", "ads", "join", "-s", self.conf, "-U", who, "--no-dns-updates"]
        # The controller may be busy with its start.
        until("join", lambda: succeeds(*join))
        run("samba-tool", "spn", "add", "cifs/%s.%s" % (NAMES[GATEWAY], DNS), "MEMBER$", "--configfile=" + domain.conf)
        run("mount", "-t", "tmpfs", "none", "/run")
        os.mkdir("/run/samba")
        run("mount", "--bind", os.path.join(self.at, "run"), "/run/samba")
        self.winbindd = self.started("winbindd")
        until("winbindd", lambda: succeeds("wbinfo", "-t") and succeeds("wbinfo", "-n", DOMAIN + "\\alice"))
        run("smbpasswd", "-c", self.conf, "-s", "-a", LOCAL, data=("%s\n%s\n" % (OF_HOST, OF_HOST)).encode())
        self.smbd = self.started("smbd")
        until("smbd", lambda: listens(MEMBER, 445))

    def started(self, program):
        with open(os.path.join(self.at, program), "w") as log:
            words = [program, "-F", "--no-process-group", "-s", self.conf]
            return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def gateway(program, folder, shares, by="winbind"):
    """Starts a gateway that is the member, too, and asks this service."""
    at = os.path.join(folder, "gateway")
    os.makedirs(at)
    password = write(os.path.join(at, "password"), OF_HOST, 0o600)
    text = "bind: %s\nadmin: 127.0.0.1:9445\nrdma: off\nnfs: {portmap: off}\nshares:\n%s" % (GATEWAY, shares)
    text += "kerberos: {keytab: %s, realm: %s}\ndomain: {by: %s}\n" % (keytab(folder), REALM, by)
    text += "users: [{name: %s, uid: %d, gid: %d, password_file: %s}]\n" % (LOCAL, LOCAL_ID, LOCAL_ID, password)
    return smb_servers.gateway(program, at, GATEWAY, text)


def made(programs, folder, owners=0, shares=""):
    """Makes the domain and the member."""
    unpacked(programs)
    network(folder)
    domain = Domain(folder, owners)
    return domain, Member(folder, domain, shares)
