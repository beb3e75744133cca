//! Tests of users of a domain with `map: rid`: a Samba domain controller issues tickets with a PAC, whose numbers own the
//! files over both protocols. Needs root and, in the folder that `HEADGATE_SAMBA_DC` names, the packages that the tier
//! `third` unpacks there: they are mounted over /usr for the controller only.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::{HOST, PASSWORD, World, kdc};

const RID_BASE: u32 = 100_000;
/// smbcacls can only connect to this port.
pub(super) const AT_USUAL_PORT: &str = "smb: {port: 445}";
/// Services of a controller that only issues tickets.
const TICKETS: &str = "server services = kdc\ndcerpc endpoint servers = none";
/// Domain Users (MS-DTYP section 2.4.2.4).
const DOMAIN_USERS: u32 = 513;

/// Provisions a domain below `$1` whose KDC listens at the ports `$2` and `$3`, with users and keys for the gateway `$4`;
/// prints their numbers, and serves until its input ends.
const SCRIPT: &str = r#"
set -e
mount -t overlay overlay -o lowerdir="$0/usr":/usr /usr
at=$1 config="--configfile=$1/smb.conf"
samba-tool domain provision "$config" --realm=LAB.TEST --domain=LAB --server-role=dc --dns-backend=NONE \
  --host-name=dc --host-ip=127.0.0.1 --adminpass=Provisioned-1
samba-tool domain passwordsettings set "$config" --complexity=off --min-pwd-length=1
samba-tool user create alice "$5" "$config"
samba-tool user create bob "$5" "$config"
samba-tool user create gateway "$5-of-the-gateway" "$config"
samba-tool group add writers "$config"
samba-tool group addmembers writers alice "$config"
samba-tool group add readers "$config"
samba-tool group addmembers readers bob "$config"
/usr/bin/python3 - "$at/smb.conf" "$4" <<'PYTHON'
import sys, ldb
from samba.auth import system_session
from samba.dcerpc import security
from samba.ndr import ndr_unpack
from samba.param import LoadParm
from samba.samdb import SamDB
lp = LoadParm()
lp.load(sys.argv[1])
db = SamDB(lp=lp, session_info=system_session())
def found(name):
    return db.search(expression=f"(sAMAccountName={name})", attrs=["objectSid"])[0]
change = ldb.Message(found("gateway").dn)
names = [f"{service}/{sys.argv[2]}" for service in ("cifs", "nfs")]
change["names"] = ldb.MessageElement(names, ldb.FLAG_MOD_REPLACE, "servicePrincipalName")
# AES alone.
change["types"] = ldb.MessageElement("24", ldb.FLAG_MOD_REPLACE, "msDS-SupportedEncryptionTypes")
db.modify(change)
for name in ("alice", "bob", "writers", "readers"):
    sid = ndr_unpack(security.dom_sid, found(name)["objectSid"][0])
    print(f"rid of {name}={str(sid).rsplit('-', 1)[1]}")
print(f"domain={db.domain_sid}")
PYTHON
for service in cifs nfs; do
  samba-tool domain exportkeytab "$at/keytab" --principal="$service/$4" "$config"
done
chmod 600 "$at/keytab"
echo ready=
samba -i -M single -s "$at/smb.conf" >"$at/log.samba" 2>&1 & pid=$!
cat >/dev/null
kill $pid
"#;

fn logged(at: &Path) -> String {
    fs::read_to_string(at.join("log.samba")).unwrap_or_default()
}

/// A running controller, and the users that it reported.
pub(super) struct Domain {
    child: Child,
    /// Identifier of the domain.
    pub(super) sid: String,
    rids: Vec<(String, u32)>,
}

impl Domain {
    /// Starts a controller in the folder `at`, with the programs of another one.
    fn start(programs: &Path, at: &Path, (kdc, passwords): (u16, u16), services: &str) -> Self {
        let folders = ["private", "state", "cache", "lock", "run", "bind"];
        folders.iter().for_each(|folder| fs::create_dir(at.join(folder)).unwrap());
        let place = at.display();
        let conf = format!(
            "[global]\nrealm = {realm}\nworkgroup = LAB\nnetbios name = DC\nserver role = active directory domain controller\n\
             interfaces = lo\nbind interfaces only = yes\n{services}\n\
             krb5 port = {kdc}\nkpasswd port = {passwords}\nprivate dir = {place}/private\nstate directory = {place}/state\n\
             cache directory = {place}/cache\nlock directory = {place}/lock\npid directory = {place}/run\n\
             ncalrpc dir = {place}/run/ncalrpc\nwinbindd socket directory = {place}/run/winbindd\n\
             binddns dir = {place}/bind\nlog file = {place}/log.%m\n\
             [sysvol]\npath = {place}/state/sysvol\n[netlogon]\npath = {place}/state/sysvol/scripts\n",
            realm = kdc::REALM,
        );
        fs::write(at.join("smb.conf"), conf).unwrap();
        let said = File::create(at.join("provisioned")).unwrap();
        let child = Command::new("unshare")
            .args(["--mount", "sh", "-c", SCRIPT])
            .args([programs, at])
            .args([kdc.to_string(), passwords.to_string(), HOST.into(), PASSWORD.into()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(said)
            .spawn()
            .unwrap();
        // Dropping it ends the child, also if the start fails.
        let mut domain = Self { child, sid: String::new(), rids: Vec::new() };
        let lines = BufReader::new(domain.child.stdout.take().unwrap()).lines();
        for line in lines.map(Result::unwrap).take_while(|line| line != "ready=") {
            if let Some((name, rid)) = line.strip_prefix("rid of ").and_then(|l| l.split_once('='))
            {
                domain.rids.push((name.to_owned(), rid.parse().unwrap()));
            } else if let Some(sid) = line.strip_prefix("domain=") {
                domain.sid = sid.to_owned();
            }
        }
        if domain.rids.is_empty() {
            panic!("no domain: {}", fs::read_to_string(at.join("provisioned")).unwrap());
        }
        kdc::until_it_listens(kdc, &|| logged(at));
        domain
    }

    fn rid(&self, name: &str) -> u32 {
        self.rids.iter().find(|(known, _)| known == name).unwrap().1
    }

    /// Returns the number of this user or group on the gateway.
    fn id(&self, name: &str) -> u32 {
        RID_BASE + self.rid(name)
    }

    /// Returns its identifier.
    pub(super) fn sid(&self, name: &str) -> String {
        format!("{}-{}", self.sid, self.rid(name))
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Starts a controller, and a world that can accept its tickets; `None` if its programs are missing.
pub(super) fn start(services: &str) -> Option<(Domain, World)> {
    let Some(programs) = std::env::var_os("HEADGATE_SAMBA_DC") else {
        println!("skipped: HEADGATE_SAMBA_DC names no controller");
        return None;
    };
    let home = tempfile::tempdir().unwrap();
    let at = home.path().join("domain");
    fs::create_dir(&at).unwrap();
    let ports = (kdc::free_port(), kdc::free_port());
    let domain = Domain::start(Path::new(&programs), &at, ports, services);
    let world = World::by(kdc::Kdc::elsewhere(ports.0), home);
    fs::rename(at.join("keytab"), world.at("keytab")).unwrap();
    Some((domain, world))
}

pub(super) fn kerberos(world: &World, map: &str) -> String {
    let keytab = world.at("keytab").display().to_string();
    format!("kerberos: {{keytab: {keytab}, realm: {}, {map}}}", kdc::REALM)
}

/// Returns the output of smbcacls for a file with these tickets, with identifiers as numbers.
pub(super) fn smbcacls(world: &World, cache: &Path, file: &str, args: &[&str]) -> String {
    smbcacls_named(world, cache, file, &[&["--numeric"], args].concat())
}

/// Runs smbcacls without `--numeric`, which finds the gateway only through its name and at the default port.
pub(super) fn smbcacls_named(world: &World, cache: &Path, file: &str, args: &[&str]) -> String {
    fs::write(world.at("hosts"), format!("127.0.0.1 localhost {HOST}\n")).unwrap();
    let mut command = world.kdc.command("unshare");
    let done = command
        .args(["--mount", "sh", "-c", r#"mount --bind "$0" /etc/hosts && exec smbcacls "$@""#])
        .arg(world.at("hosts"))
        .args([&format!("//{HOST}/data"), file, "--use-kerberos=required"])
        .args(["--configfile", &world.at("smb.conf").display().to_string()])
        .args(args)
        .env("KRB5CCNAME", format!("FILE:{}", cache.display()))
        .current_dir(&world.home)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned()
}

/// Access lists with users and groups of the domain decide, and users of the domain own files, over both protocols.
#[test]
fn domain_identities_decide_in_lists() {
    let Some((domain, mut world)) = start(TICKETS) else { return };
    let by_rid = kerberos(&world, &format!("map: rid, rid_base: {RID_BASE}"));
    world.serve(&format!("    sec: [krb5]\n{by_rid}\n{AT_USUAL_PORT}"), &[]);
    let (alice, bob) = (world.tickets("alice", &[]), world.tickets("bob", &[]));
    let reads = |world: &World, file: &str| {
        let said = world.said(&bob, &[], &format!("get {file} back"));
        assert!(!said.contains("NT_STATUS") || said.contains("ACCESS_DENIED"), "{said}");
        !said.contains("NT_STATUS")
    };
    for file in ["deny", "allow", "own", "users"] {
        let said = world.said(&alice, &[], &format!("put smb.conf {file}"));
        assert!(!said.contains("NT_STATUS"), "{said}\n{}", world.log());
        assert!(reads(&world, file));
    }
    let (of_alice, readers) = (domain.sid("alice"), domain.sid("readers"));
    let all = format!("ACL:{of_alice}:0/0x0/0x001f01ff");
    let deny = format!("ACL:{readers}:1/0x0/0x001f01ff");
    for (file, entries, is_read) in [
        ("deny", format!("{deny},ACL:S-1-1-0:0/0x0/0x001f01ff"), false),
        ("allow", format!("{all},ACL:{readers}:0/0x0/0x001200a9"), true),
        ("own", all.clone(), false),
        ("users", format!("{all},ACL:S-1-5-32-545:0/0x0/0x001200a9"), true),
    ] {
        let said = smbcacls(&world, &alice, file, &["-S", &entries]);
        assert!(!said.contains("NT_STATUS") && !said.contains("ailed"), "{file}: {said}");
        assert_eq!(reads(&world, file), is_read, "{file}: {}", world.log());
        let shown = smbcacls(&world, &alice, file, &[]);
        assert!(shown.contains(&format!("OWNER:{of_alice}")), "{file}: {shown}");
        assert!(shown.contains(&format!("GROUP:{}-{DOMAIN_USERS}", domain.sid)), "{file}: {shown}");
        for entry in entries.split(',') {
            assert!(shown.contains(entry), "{file}: no {entry} in {shown}");
        }
    }
    let said = world.said(&alice, &[], "get own back");
    assert!(!said.contains("NT_STATUS"), "the owner is not locked out: {said}");
    // A user who logged on with a ticket has a name, and so have the groups of every domain.
    let shown = smbcacls_named(&world, &alice, "own", &[]);
    for line in ["OWNER:LAB\\alice", "GROUP:LAB\\Domain Users", "ACL:LAB\\alice:"] {
        assert!(shown.contains(line), "{shown}");
    }
    let said = smbcacls_named(&world, &alice, "users", &["-a", "ACL:LAB\\bob:ALLOWED/0x0/READ"]);
    let shown = smbcacls(&world, &alice, "users", &[]);
    assert!(shown.contains(&format!("ACL:{}:0/", domain.sid("bob"))), "{said}{shown}");
    // takeown: bob may change the owner of this file and makes himself its owner.
    let given = format!("{all},ACL:{}:0/0x0/0x001f01ff", domain.sid("bob"));
    smbcacls(&world, &alice, "own", &["-S", &given]);
    let said = smbcacls(&world, &bob, "own", &["-C", &domain.sid("alice")]);
    assert!(!said.contains("INVALID_OWNER"), "it is alice's already: {said}");
    let said = smbcacls(&world, &bob, "own", &["-C", &domain.sid("bob")]);
    assert_eq!(fs::metadata(world.at("data/own")).unwrap().uid(), domain.id("bob"), "{said}");
    let said = smbcacls(&world, &bob, "own", &["-C", &domain.sid("alice")]);
    assert!(said.contains("INVALID_OWNER"), "it cannot be given away: {said}");

    // Over NFS, in the folder.
    let said = smbcacls(&world, &alice, "/", &["-S", &deny]);
    assert!(said.contains("ACCESS_DENIED"), "who does not own the folder: {said}");
    chown(world.at("data"), Some(domain.id("alice")), None).unwrap();
    let entries = format!("{deny},ACL:S-1-1-0:0/0x0/0x001f01ff");
    let said = smbcacls(&world, &alice, "/", &["-S", &entries]);
    assert!(!said.contains("NT_STATUS"), "{said}");
    assert_eq!(world.client(&alice).makes("one"), "0", "{}", world.log());
    assert_eq!(world.client(&bob).makes("two"), "13", "NFS3ERR_ACCES: {}", world.log());
    // The domain is known before the first logon.
    let kept = fs::read_to_string(world.at("state/domain")).unwrap();
    assert_eq!(kept.trim(), format!("{} LAB lab.test", domain.sid));

    accounts_have_identities(&mut world, &domain, (alice.as_path(), bob.as_path()));
}

/// Accounts with other numbers have the groups of their tickets as well. The folder's list denies bob's group.
fn accounts_have_identities(world: &mut World, domain: &Domain, (alice, bob): (&Path, &Path)) {
    fs::write(world.at("password"), "long-enough-1\n").unwrap();
    fs::set_permissions(world.at("password"), fs::Permissions::from_mode(0o600)).unwrap();
    let file = world.at("password").display().to_string();
    let users = format!(
        "users:\n  - {{name: alice, uid: 3001, password_file: {file}}}\n  - {{name: bob, uid: 3002, password_file: {file}}}"
    );
    chown(world.at("data"), Some(3001), None).unwrap();
    let by_name = kerberos(world, "map: names");
    world.serve(&format!("    sec: [krb5]\n{by_name}\n{users}\n{AT_USUAL_PORT}"), &[]);
    let said = world.said(bob, &[], "ls");
    assert!(said.contains("ACCESS_DENIED"), "the list of the folder: {said}\n{}", world.log());
    assert_eq!(world.client(bob).makes("three"), "13", "{}", world.log());
    assert_eq!(world.client(alice).makes("four"), "0", "{}", world.log());
    let shown = smbcacls(world, alice, "four", &[]);
    assert!(shown.contains(&format!("OWNER:{}", domain.sid("alice"))), "{shown}");
}

#[test]
fn users_and_groups_of_a_domain_are_the_same_by_both_protocols() {
    let Some((domain, mut world)) = start(TICKETS) else { return };
    let kerberos = kerberos(&world, &format!("map: rid, rid_base: {RID_BASE}"));
    // Only the group can access the folder.
    chown(world.at("data"), Some(0), Some(domain.id("writers"))).unwrap();
    fs::set_permissions(world.at("data"), fs::Permissions::from_mode(0o770)).unwrap();
    world.serve(&format!("    sec: [krb5]\n{kerberos}"), &[]);

    let alice = world.tickets("alice", &[]);
    world.works(&alice, &[]);
    let said = world.said(&alice, &[], "put smb.conf smb");
    assert_eq!(world.client(&alice).makes("nfs"), "0", "{said}\n{}", world.log());
    for file in ["data/smb", "data/nfs"] {
        let made = fs::metadata(world.at(file)).unwrap_or_else(|e| panic!("{e}: {said}"));
        let own = (domain.id("alice"), RID_BASE + DOMAIN_USERS);
        assert_eq!((made.uid(), made.gid()), own, "{file}");
    }
    // A user outside of the group can connect, but gets no access.
    let bob = world.tickets("bob", &[]);
    let said = world.said(&bob, &[], "put smb.conf other");
    assert!(said.contains("NT_STATUS_ACCESS_DENIED"), "{said}");
    assert_eq!(world.client(&bob).makes("other"), "13", "NFS3ERR_ACCES: {}", world.log());
}
