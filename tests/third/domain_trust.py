"""Two domains that trust each other: a joined smbd and a gateway beside it as members of the first, and users of the second.

    unshare -n -m -p -f --kill-child python3 domain_trust.py GATEWAY FOLDER PROGRAMS

As domain_members.py, which it uses. Both domains have a user `alice`, and the servers have an account with the name of a user of
the second domain. Its controller is stopped at the end, and started again.
"""

import json
import os
import signal
import socket
import sys
import threading
import time

import domain_members
import smb_domain
from domain_members import World, acl_of, by_password, by_ticket, check_user, client, compare, fresh, owner_set, reads, rpc, shown
from smb_domain import ADMINISTRATOR, DNS, GATEWAY, LAB, MEMBER, NAMES, OF_ADMINISTRATOR, OF_HOST, PASSWORD, Names
from smb_servers import write

RESOLVER = "10.53.0.53"
PARTNER = Names("partner.test", "PARTNER", "10.53.0.11", "dc2", 2000000)
# Nothing asks about `new` before the controller of its domain stops.
PEOPLE_OF_PARTNER = ("alice carol dora eve new", "sales=carol staff=dora others=eve")
# What winbindd keeps, when it connects again, and how many logons wait for controllers at once: with one, the default, a silent
# controller of the other domain holds up all logons.
SOON = "  winbind cache time = 5\n  winbind reconnect delay = 3\n  winbind max domain connections = 4\n"
OF_CONTROLLERS = SOON + "  dns forwarder = %s\n" % RESOLVER
OF_SMBD = SOON + """  idmap config PARTNER : backend = rid
  idmap config PARTNER : range = 2000000-2999999
  idmap negative cache time = 5
[data]
  path = %(at)s/data
  read only = no
[name]
  path = %(at)s/data
  valid users = PARTNER\\carol
[principal]
  path = %(at)s/data
  valid users = carol@partner.test
[group]
  path = %(at)s/data
  valid users = @PARTNER\\sales
[local]
  path = %(at)s/data
  valid users = @LAB\\mixed
[denied]
  path = %(at)s/data
  invalid users = @PARTNER\\sales
"""
SHARES = """  - {name: data, path: %(at)s/data, access: {write: ["*"], admin: ['LAB\\Administrator']}}
  - {name: name, path: %(at)s/data, access: {write: ['PARTNER\\carol']}}
  - {name: principal, path: %(at)s/data, access: {write: ["carol@partner.test"]}}
  - {name: group, path: %(at)s/data, access: {write: ['@PARTNER\\sales']}}
  - {name: local, path: %(at)s/data, access: {write: ['@LAB\\mixed']}}
  - {name: denied, path: %(at)s/data, access: {deny: ['@PARTNER\\sales']}}
  - {name: home, path: "%(at)s/homes/{user}"}
"""
ALICE, OTHER_ALICE, CAROL, DORA = r"LAB\alice", r"PARTNER\alice", r"PARTNER\carol", r"PARTNER\dora"
# Operations whose results differ, and why.
REASONS = {
    r"logon by password, `PARTNER\carol`, its controller stopped": "the gateway says the reason in its log and status alone",
}
# Seconds: of a question while the controller is away (docs/active-directory.md) with what a client needs, and until it is answered
# again; of `headgate check --user`; of a question that needs no such controller.
AWAY_MAX, BACK_MAX, CHECK_MAX, QUICK_MAX = 15, 60, 30, 6


class Resolver(threading.Thread):
    """Sends questions about the zone of a domain to its controller. No other name exists."""

    def __init__(self, domains):
        super().__init__(daemon=True)
        self.zones = {one.dns: one.controller for one in domains}
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((RESOLVER, 53))

    def run(self):
        while True:
            question, client_at = self.socket.recvfrom(4096)
            threading.Thread(target=self.answer, args=(question, client_at), daemon=True).start()

    def answer(self, question, client_at):
        labels, at = [], 12
        while question[at]:
            labels.append(question[at + 1:at + 1 + question[at]].decode().lower())
            at += 1 + question[at]
        server = self.zones.get(".".join(labels[-2:]))
        found = server and self.of_controller(server, question)
        # Otherwise SERVFAIL, or NXDOMAIN (RFC 1035 section 4.1.1).
        failed = question[:2] + (b"\x81\x82" if server else b"\x81\x83") + b"\0\1" + bytes(6) + question[12:at + 5]
        self.socket.sendto(found or failed, client_at)

    @staticmethod
    def of_controller(server, question):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as to:
            to.settimeout(3)
            try:
                to.connect((server, 53))
                to.send(question)
                return to.recv(4096)
            except OSError:
                return None


def say(name, why):
    print("not ok domain-trust/%s: %s" % (name, " ".join(why.split())) if why else "ok domain-trust/%s" % name, flush=True)


def make(program, folder, programs):
    """Makes both domains at once, the trust and the servers."""
    World.place(folder)
    smb_domain.unpacked(programs)
    smb_domain.network(folder, (LAB, PARTNER), RESOLVER)
    Resolver((LAB, PARTNER)).start()
    made = {}

    def make_domain(of, people):
        made[of] = smb_domain.Domain(folder, of=of, people=people, more=OF_CONTROLLERS)

    both = ((LAB, smb_domain.PEOPLE_OF_LAB), (PARTNER, PEOPLE_OF_PARTNER))
    both = [threading.Thread(target=make_domain, args=one) for one in both]
    for one in both:
        one.start()
    for one in both:
        one.join()
    lab, partner = made[LAB], made[PARTNER]
    for domain in (lab, partner):
        smb_domain.until("winbindd", lambda at=domain.at: os.path.exists(os.path.join(at, "run/winbindd/pipe")))
    smb_domain.slow(
        "samba-tool", "domain", "trust", "create", PARTNER.dns, "--configfile=" + lab.conf, "--type=forest", "--direction=both",
        "--create-location=both", "-U", "%s@%s%%%s" % (ADMINISTRATOR, PARTNER.dns.upper(), OF_ADMINISTRATOR))
    # A group of the first domain with a member of the second.
    smb_domain.slow("samba-tool", "group", "add", "mixed", "--group-scope=Domain", "--configfile=" + lab.conf)
    smb_domain.slow("samba-tool", "group", "addmembers", "mixed", partner.sid_of("carol"), "--configfile=" + lab.conf)
    member = smb_domain.Member(folder, lab, OF_SMBD % {"at": folder})
    smb_domain.until("trust", lambda: smb_domain.succeeds("wbinfo", "-n", CAROL))
    gateway = smb_domain.gateway(program, folder, SHARES % {"at": folder})
    World.know(member, lab, partner)
    domain_members.get_tickets("tickets", "alice")
    for name in ("alice", "carol", "dora"):
        domain_members.get_tickets("tickets-%s" % name, "%s@%s" % (name, PARTNER.dns.upper()))
    return partner, [member.winbindd, member.smbd, gateway, lab.process]


def listed():
    return smb_domain.slow("wbinfo", "-m").split()


def first_logon():
    """winbindd does not list a trusted domain before the first logon of one of its users."""
    if PARTNER.domain in listed():
        return "winbindd lists the domain already: " + " ".join(listed())
    said = by_password(CAROL)(GATEWAY)
    if said != "yes":
        return said
    # An account of the server with the same name logs on as before.
    said = by_password(r"WORKGROUP\carol", OF_HOST)(GATEWAY)
    return None if said == "yes" else "the account: " + said


def keeps_numbers(path, user, host):
    found = os.stat(os.path.join(World.at, "data", path))
    partner = World.domains[1]
    wanted = (partner.id_of(user), partner.id_of("Domain Users"))
    return "%s: %s" % (host, "its numbers" if (found.st_uid, found.st_gid) == wanted else (found.st_uid, found.st_gid))


def shows(host):
    """Returns what clients and the host see of a new file."""
    path = fresh(host, "of-carol", CAROL)
    lines = shown(host, path).split("; ")
    return "; ".join([*(line for line in lines if not line.startswith("ACL")), keeps_numbers(path, "carol", "the host")])


def may_read(entries, what, *users):
    """The effect of a list that alice sets on her file."""
    def sets(host):
        path = fresh(host, what, ALICE)
        said = acl_of(host, path, ALICE, ["-S", "ACL:%s:ALLOWED/0x0/FULL,%s" % (ALICE, entries)])
        found = [line for line in shown(host, path).split("; ") if "PARTNER" in line]
        return "; ".join([domain_members.status(said), *found, *(reads(host, path, user) for user in users)])

    return sets


def of_same_name(host):
    """Two users of the same name each make a file for themselves alone."""
    said = []
    for user, other in ((ALICE, OTHER_ALICE), (OTHER_ALICE, ALICE)):
        path = fresh(host, "of-%s" % user.replace("\\", "-"), user)
        said += [domain_members.status(acl_of(host, path, user, ["-S", "ACL:%s:ALLOWED/0x0/FULL" % user]))]
        said += [reads(host, path, user), reads(host, path, other)]
    return "; ".join(said)


def given(to, option):
    """Administrator gives a file to a user or a group of the second domain."""
    def sets(host):
        path = fresh(host, "given%s" % option)
        said = acl_of(host, path, ADMINISTRATOR, [option, "%s\\%s" % (PARTNER.domain, to)])
        found = os.stat(os.path.join(World.at, "data", path))
        number = found.st_uid if option == "-C" else found.st_gid
        return "%s; %s" % (domain_members.status(said), "set" if number == World.domains[1].id_of(to) else "not set")

    return sets


def operations():
    """Yields each operation with what does it."""
    for user, password, what in (
        (CAROL, PASSWORD, ""),
        (r"partner.test\carol", PASSWORD, ""),
        ("carol@partner.test", PASSWORD, ""),
        (OTHER_ALICE, PASSWORD, ""),
        (ALICE, PASSWORD, ""),
        (CAROL, "wrong", ", wrong password"),
        (r"PARTNER\nobody-has-this-name", PASSWORD, ""),
        (r"LAB\carol", PASSWORD, ""),
        (CAROL, OF_HOST, ", the password of the server's account"),
        (r".\carol", OF_HOST, ""),
        (r"UNKNOWN\dora", PASSWORD, ""),
    ):
        yield "logon by password, `%s`%s" % (user, what), by_password(user, password)
    for name in ("carol", "alice"):
        yield r"logon by ticket, `PARTNER\%s`" % name, by_ticket("tickets-" + name)
    for name in (CAROL, r"partner.test\carol", "carol@partner.test", r"PARTNER\sales", OTHER_ALICE, r"LAB\bob",
                 r"PARTNER\nobody-has-this-name", "dora"):
        yield "lookupnames `%s`" % name, rpc("lookupnames '%s'" % name)
    lab, partner = World.domains
    for what, number in (
        (CAROL, partner.sid_of("carol")), (r"PARTNER\sales", partner.sid_of("sales")), (r"LAB\bob", lab.sid_of("bob")),
        (OTHER_ALICE, partner.sid_of("alice")), ("the domain PARTNER", partner.sid), ("PARTNER, unknown", partner.sid + "-99999"),
    ):
        yield "lookupsids, `%s`" % what, rpc("lookupsids %s" % number)
    yield r"lookupnames `LAB\bob`, asked by carol", rpc(r"lookupnames 'LAB\bob'", CAROL)
    yield "a new file of carol: owner and group", shows
    allowed, denied = (r"ACL:PARTNER\sales:%s/0x0/READ" % what for what in ("ALLOWED", "DENIED"))
    everyone = "ACL:Everyone:ALLOWED/0x0/READ"
    yield r"a list: `PARTNER\sales` may read", may_read(allowed, "allowed", CAROL, DORA, ALICE)
    yield r"a list: `PARTNER\carol` may read", may_read(r"ACL:PARTNER\carol:ALLOWED/0x0/READ", "allowed-carol", CAROL, DORA)
    yield r"a list: everyone may read, `PARTNER\sales` is denied", may_read("%s,%s" % (denied, everyone), "denied", CAROL, DORA)
    yield "users of the same name, each with a file", of_same_name
    yield "Administrator gives a file to carol", given("carol", "-C")
    yield "Administrator gives a file to the group sales", given("sales", "-G")
    for share, users in (
        ("name", (CAROL, DORA, ALICE)), ("principal", (CAROL, DORA)), ("group", (CAROL, DORA, ALICE)), ("local", (CAROL, DORA)),
        ("denied", (CAROL, DORA, ALICE)),
    ):
        for user in users:
            yield "share `%s`, `%s` by password" % (share, user), by_password(user, share=share)
        for name in ("carol", "dora"):
            yield r"share `%s`, `PARTNER\%s` by ticket" % (share, name), by_ticket("tickets-" + name, share)


def checks(program, is_listed):
    """`check --user` knows users of the second domain and their groups."""
    config = os.path.join(World.at, "gateway/gateway.yaml")
    partner = World.domains[1]
    of_carol = {r"PARTNER\Domain Users", r"PARTNER\sales", r"LAB\mixed"}
    all_of = ("name", "principal", "group", "local")
    for user, groups, may in (
        (CAROL, of_carol, {**dict.fromkeys(all_of, "write"), "denied": "nothing"}),
        ("carol@partner.test", of_carol, {**dict.fromkeys(all_of, "write"), "denied": "nothing"}),
        (DORA, {r"PARTNER\Domain Users", r"PARTNER\staff"}, {**dict.fromkeys(all_of, "nothing"), "denied": "write"}),
        # Who has never logged on.
        (r"PARTNER\eve", {r"PARTNER\Domain Users"}, {**dict.fromkeys(all_of, "nothing"), "denied": "write"}),
        (OTHER_ALICE, {r"PARTNER\Domain Users"}, {**dict.fromkeys(all_of, "nothing"), "denied": "write"}),
    ):
        done = check_user(program, config, user)
        said = done.stdout + done.stderr
        try:
            told = json.loads(done.stdout)
            found = {group["name"] for group in told["domain"]["groups"] or []}
            shares = {share["share"]: share["smb"]["may"] for share in told["shares"]}
            plain = user.split("\\")[-1].split("@")[0]
            is_so = told["domain"]["sid"] == partner.sid_of(plain) and told["uid"] == partner.id_of(plain)
            if is_listed:
                is_so = is_so and found == groups and may.items() <= shares.items()
            # winbindd of a member has them only from logons.
            is_so = is_so and not told["domain"]["are_new"]
        except (KeyError, TypeError, ValueError) as error:
            is_so, said = False, "%s %s" % (error, said)
        say("check %s, %s" % (user, "listed" if is_listed else "not listed"), None if is_so else said)


def check_while_away(program, user, is_known):
    """winbindd keeps users who have logged on."""
    began = time.monotonic()
    done = check_user(program, os.path.join(World.at, "gateway/gateway.yaml"), user)
    took = time.monotonic() - began
    if is_known:
        is_so = done.returncode == 0 and not json.loads(done.stdout)["domain"]["are_new"]
    else:
        is_so = "winbind cannot look it up now" in done.stderr
    return None if is_so and took < CHECK_MAX else "%.1f s: %s%s" % (took, done.stdout, done.stderr)


def homes():
    """The home of a user is not that of a user with the same name."""
    said = {}
    for user in (ALICE, OTHER_ALICE):
        words = ["smbclient", "//%s.%s/home" % (NAMES[GATEWAY], DNS), "-c", "put sent mine"]
        said[user] = domain_members.status(client(words, user, PASSWORD))
    return None if said[ALICE] == "yes" and said[OTHER_ALICE] != "yes" else "%s" % said


def within(limit, ask, host):
    """Returns what a client says, and that it took too long."""
    began = time.monotonic()
    said = ask(host)
    took = time.monotonic() - began
    return said if took < limit or host != GATEWAY else "%s after %.1f s" % (said, took)


def away():
    """Operations while the controller of the second domain does not answer."""
    for what, ask in (
        (r"logon by password, `LAB\bob`", by_password(r"LAB\bob")),
        (r"logon by ticket, `LAB\alice`", by_ticket("tickets")),
        (r"logon by password, `.\carol`", by_password(r".\carol", OF_HOST)),
        (r"logon by password, `PARTNER\carol`", by_password(CAROL)),
        (r"logon by ticket, `PARTNER\carol`", by_ticket("tickets-carol")),
        (r"lookupnames `LAB\bob`", rpc(r"lookupnames 'LAB\bob'")),
        (r"lookupnames `PARTNER\new`", rpc(r"lookupnames 'PARTNER\new'")),
        (r"a new file of `LAB\alice`", lambda host: shown(host, fresh(host, "while-away"))),
    ):
        yield what + ", its controller stopped" if "PARTNER" in what else what + ", the other controller stopped", ask


def comes_back(ask):
    """Returns why an operation does not succeed, or after how many seconds."""
    began = time.monotonic()
    said = ""
    while time.monotonic() - began < BACK_MAX:
        said = ask(GATEWAY)
        if said == "yes" or "(User: 1)" in said:
            return None
        time.sleep(1)
    return "after %d s: %s" % (BACK_MAX, said)


def silent(partner):
    """A controller that accepts connections and does not answer holds up no user of the first domain."""
    partner.signal(signal.SIGSTOP)
    waiting = threading.Thread(target=by_password(CAROL), args=(GATEWAY,))
    waiting.start()
    # The logon is under way by then; before, it would hold up no other either.
    time.sleep(1)
    try:
        for what, ask, wanted, limit in (
            (r"logon by password, `LAB\bob`", by_password(r"LAB\bob"), "yes", QUICK_MAX),
            (r"logon by ticket, `LAB\alice`", by_ticket("tickets"), "yes", QUICK_MAX),
            (r"lookupnames `PARTNER\no-other`", rpc(r"lookupnames 'PARTNER\no-other'"), "NONE_MAPPED", AWAY_MAX),
            (r"lookupnames `LAB\late`", rpc(r"lookupnames 'LAB\late'"), "(User: 1)", QUICK_MAX),
            (r"logon by password, `PARTNER\dora`", by_password(DORA), "NT_STATUS_LOGON_FAILURE", AWAY_MAX),
            (r"lookupnames `LAB\off`", rpc(r"lookupnames 'LAB\off'"), "(User: 1)", QUICK_MAX),
        ):
            began = time.monotonic()
            said = ask(GATEWAY)
            took = time.monotonic() - began
            say("%s, silent controller" % what, None if wanted in said and took < limit else "%.1f s: %s" % (took, said))
    finally:
        partner.signal(signal.SIGCONT)
        waiting.join()


def main():
    program, folder, programs = sys.argv[1:]
    folder = smb_domain.short(folder)
    began = time.monotonic()
    partner, running = make(program, folder, programs)
    print("made after %.0f s" % (time.monotonic() - began), flush=True)
    checks(program, False)
    say("first logon", first_logon())
    say("list", None if PARTNER.domain in listed() else "winbindd does not list the domain: " + " ".join(listed()))
    # The gateway reads the list every ten seconds.
    as_account = by_password(CAROL, OF_HOST)
    smb_domain.until("list of the gateway", lambda: as_account(GATEWAY) != "yes")
    for name, ask in operations():
        compare(name, ask, "domain-trust", REASONS)
    checks(program, True)
    say("homes", homes())
    print("stopped after %.0f s" % (time.monotonic() - began), flush=True)
    partner.stop()
    for name, ask in away():
        compare(name, lambda host, ask=ask: within(AWAY_MAX, ask, host), "domain-trust", REASONS)
    for user, is_known in ((DORA, True), (r"PARTNER\new", False)):
        say("check %s, its controller stopped" % user, check_while_away(program, user, is_known))
    partner.start()
    print("started after %.0f s" % (time.monotonic() - began), flush=True)
    say("password again", comes_back(by_password(CAROL)))
    say("name again", comes_back(rpc(r"lookupnames 'PARTNER\new'")))
    silent(partner)
    say("password after silence", comes_back(by_password(CAROL)))
    print("over after %.0f s" % (time.monotonic() - began), flush=True)
    for process in [*running, partner.process]:
        done = process.poll()
        say("ends", None if done is None else "%s" % done)
        process.terminate()


main()
