//! Users of a domain by `map: rid`: a domain controller of Samba issues tickets with a PAC, and their numbers are those of files by
//! both protocols. Wants root and, in the folder that `HEADGATE_SAMBA_DC` names, the packages that the tier `third` unpacks there:
//! they are laid over /usr for the controller alone.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::{HOST, PASSWORD, World, kdc};

const RID_BASE: u32 = 100_000;
/// Domain Users (MS-DTYP section 2.4.2.4).
const DOMAIN_USERS: u32 = 513;

/// Provisions a domain below `$1` whose KDC listens at the ports `$2` and `$3`, with users and
/// keys for the gateway `$4`; says which numbers they have, and serves until its input ends.
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
for name in ("alice", "bob", "writers"):
    sid = ndr_unpack(security.dom_sid, found(name)["objectSid"][0])
    print(f"rid of {name}={str(sid).rsplit('-', 1)[1]}")
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

/// A running controller, and what it says of its users.
struct Domain {
    child: Child,
    rids: Vec<(String, u32)>,
}

impl Domain {
    /// Below this folder, by the programs of another one.
    fn start(programs: &Path, at: &Path, (kdc, passwords): (u16, u16)) -> Self {
        let folders = ["private", "state", "cache", "lock", "run", "bind"];
        folders.iter().for_each(|folder| fs::create_dir(at.join(folder)).unwrap());
        let place = at.display();
        let conf = format!(
            "[global]\nrealm = {realm}\nworkgroup = LAB\nnetbios name = DC\nserver role = active directory domain controller\n\
             interfaces = lo\nbind interfaces only = yes\nserver services = kdc\ndcerpc endpoint servers = none\n\
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
        // It ends the child also where nothing comes of it.
        let mut domain = Self { child, rids: Vec::new() };
        let lines = BufReader::new(domain.child.stdout.take().unwrap()).lines();
        for line in lines.map(Result::unwrap).take_while(|line| line != "ready=") {
            if let Some((name, rid)) = line.strip_prefix("rid of ").and_then(|l| l.split_once('='))
            {
                domain.rids.push((name.to_owned(), rid.parse().unwrap()));
            }
        }
        if domain.rids.is_empty() {
            panic!("no domain: {}", fs::read_to_string(at.join("provisioned")).unwrap());
        }
        kdc::until_it_listens(kdc, &|| logged(at));
        domain
    }

    /// The number of this user or group on the gateway.
    fn id(&self, name: &str) -> u32 {
        RID_BASE + self.rids.iter().find(|(known, _)| known == name).unwrap().1
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

#[test]
fn users_and_groups_of_a_domain_are_the_same_by_both_protocols() {
    let Some(programs) = std::env::var_os("HEADGATE_SAMBA_DC") else {
        println!("skipped: HEADGATE_SAMBA_DC names no controller");
        return;
    };
    let home = tempfile::tempdir().unwrap();
    let at = home.path().join("domain");
    fs::create_dir(&at).unwrap();
    let ports = (kdc::free_port(), kdc::free_port());
    let domain = Domain::start(Path::new(&programs), &at, ports);
    let mut world = World::by(kdc::Kdc::elsewhere(ports.0), home);
    fs::rename(at.join("keytab"), world.at("keytab")).unwrap();
    let keytab = world.at("keytab").display().to_string();
    let kerberos = format!(
        "kerberos: {{keytab: {keytab}, realm: {}, map: rid, rid_base: {RID_BASE}}}",
        kdc::REALM
    );
    // The folder is for the group alone.
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
    // Who is not of the group comes in, and sees nothing.
    let bob = world.tickets("bob", &[]);
    let said = world.said(&bob, &[], "put smb.conf other");
    assert!(said.contains("NT_STATUS_ACCESS_DENIED"), "{said}");
    assert_eq!(world.client(&bob).makes("other"), "13", "NFS3ERR_ACCES: {}", world.log());
}
