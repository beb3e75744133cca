"""A controller of the domain LAB, and a member of it with winbindd and smbd, for clients of SMB.

All in namespaces of their own (`unshare -n -m -p -f --kill-child`): the controller, the member and a gateway beside it have an
address each on the loopback interface, and all ports. Debian's packages are unpacked over /usr, not installed. The gateway has the
winbindd, the keytab and the machine account of the member, so that all that differs comes from the file server.
"""

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
# Added to the RIDs of the domain.
NUMBERS = 100000
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
  realm = LAB.TEST
  workgroup = LAB
  netbios name = %(name)s
"""
CONTROLLERS = """[global]
%(place)s
  server role = active directory domain controller
  server services = s3fs, rpc, ldap, cldap, kdc, winbindd, dns
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
 LAB.TEST = {
  kdc = %s
 }
[domain_realm]
 .lab.test = LAB.TEST
""" % CONTROLLER
# Runs in Debian's Python, which has Samba's modules: makes users and groups, and prints their RIDs.
PEOPLE = """
import sys, ldb
from samba.auth import system_session
from samba.dcerpc import security
from samba.ndr import ndr_unpack
from samba.param import LoadParm
from samba.samdb import SamDB
conf, password, owners = sys.argv[1], sys.argv[2], int(sys.argv[3])
lp = LoadParm()
lp.load(conf)
db = SamDB(lp=lp, session_info=system_session())
db.set_minPwdLength(1)
db.set_pwdProperties("0")
for name in ("alice", "bob", "off", "late"):
    db.newuser(name, password)
db.toggle_userAccountFlags("(sAMAccountName=off)", 2, "off", on=True)
for group, member in (("writers", "alice"), ("readers", "bob")):
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


def unpacked(programs):
    """Puts the unpacked packages over /usr, and files of this host's that name servers and users into /etc."""
    for part in ("usr", "lib"):
        over = "/usr" + ("/lib" if part == "lib" else "")
        run("mount", "-t", "overlay", "overlay", "-o", "lowerdir=%s/%s:%s" % (programs, part, over), over)


def bound(at, path, text):
    """Mounts a file with this text over a file of /etc."""
    run("mount", "--bind", write(os.path.join(at, os.path.basename(path)), text), path)


def network(at):
    run("ip", "link", "set", "lo", "up")
    hosts = "127.0.0.1 localhost\n"
    for host, name in NAMES.items():
        run("ip", "address", "add", host + "/32", "dev", "lo")
        hosts += "%s %s.%s %s\n" % (host, name, DNS, name)
    bound(at, "/etc/hosts", hosts)
    bound(at, "/etc/resolv.conf", "nameserver %s\n" % CONTROLLER)
    bound(at, "/etc/nsswitch.conf", "passwd: files winbind\ngroup: files winbind\nhosts: files dns\n")
    for path, more in (("/etc/passwd", "%s:x:%d:%d::/:/bin/false\n"), ("/etc/group", "%s:x:%d:\n")):
        with open(path) as old:
            text = old.read()
        bound(at, path, text + more % ((LOCAL,) + (LOCAL_ID,) * more.count("%d")))
    os.environ["KRB5_CONFIG"] = write(os.path.join(at, "krb5.conf"), KERBEROS)
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


def config(at, host, text, **more):
    place = PLACE % {"at": at, "host": host, "name": NAMES[host].upper()}
    return write(os.path.join(at, "smb.conf"), text % {"at": at, "place": place, **more})


class Domain:
    """The controller; knows the SIDs of users and groups."""

    def __init__(self, folder, owners=0):
        self.at = at_of(folder, "dc")
        self.conf = config(self.at, CONTROLLER, CONTROLLERS)
        slow("samba-tool", "domain", "provision", "--configfile=" + self.conf, "--realm=" + REALM, "--domain=" + DOMAIN,
            "--server-role=dc", "--dns-backend=SAMBA_INTERNAL", "--host-name=dc", "--host-ip=" + CONTROLLER,
            "--adminpass=" + OF_ADMINISTRATOR)
        said = slow("/usr/bin/python3", "-c", PEOPLE, self.conf, PASSWORD, str(owners))
        self.rids = dict(line.split("=") for line in said.splitlines() if "=" in line)
        self.sid = self.rids.pop("domain")
        # Its smbd asks the winbindd that it finds in /run/samba.
        script = 'mount -t tmpfs none /run && mkdir /run/samba && mount --bind "$0" /run/samba && exec samba -i -M standard -s "$1"'
        with open(os.path.join(self.at, "log"), "w") as log:
            words = ["unshare", "--mount", "sh", "-c", script, os.path.join(self.at, "run"), self.conf]
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        for port in (88, 389, 445):
            until("controller-%d" % port, lambda port=port: listens(CONTROLLER, port))

    def sid_of(self, name):
        return "%s-%s" % (self.sid, self.rids[name])

    def id_of(self, name):
        return NUMBERS + int(self.rids[name])


class Member:
    """A joined machine: winbindd, which the gateway asks too, and smbd with these shares."""

    def __init__(self, folder, domain, shares):
        self.at = at_of(folder, "member")
        self.conf = config(self.at, MEMBER, MEMBERS, more=shares)
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


def gateway(program, folder, member, shares):
    """Starts a gateway that is the member, too."""
    at = os.path.join(folder, "gateway")
    os.makedirs(at)
    password = write(os.path.join(at, "password"), OF_HOST, 0o600)
    text = "bind: %s\nadmin: 127.0.0.1:9445\nrdma: off\nnfs: {portmap: off}\nshares:\n%s" % (GATEWAY, shares)
    text += "kerberos: {keytab: %s, realm: %s}\ndomain: {by: winbind}\n" % (keytab(folder), REALM)
    text += "users: [{name: %s, uid: %d, gid: %d, password_file: %s}]\n" % (LOCAL, LOCAL_ID, LOCAL_ID, password)
    return smb_servers.gateway(program, at, GATEWAY, text)


def made(programs, folder, owners=0, shares=""):
    """Makes the domain and the member."""
    unpacked(programs)
    network(folder)
    domain = Domain(folder, owners)
    return domain, Member(folder, domain, shares)
