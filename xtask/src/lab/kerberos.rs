//! A Kerberos realm for one scenario: a KDC of MIT krb5 on the host's side of the taps, keys for the gateway, and the files for the
//! guest's `rpc.gssd`: a key of the machine, by which Linux authenticates its NFS 4.1 state, and for root a ticket as `root`, who
//! is a user of the gateway. Other users, with accounts on each Debian, get their tickets by a password.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use super::net::{Net, guest_address};
use crate::sh::{Result, output};

/// Host name that the guest mounts, because a ticket is for a name.
pub(super) const SERVER: &str = "gw.lab.test";
const REALM: &str = "LAB.TEST";

/// `$1`: its folder, `$2`: the guest's. Both have AES keys, and no command needs a terminal.
const MAKE: &str = r#"
set -e
kdb5_util create -r LAB.TEST -s -P master
for name in nfs/gw.lab.test cifs/gw.lab.test host/guest.lab.test root; do kadmin.local -q "addprinc -randkey $name"; done
for name in games man bin sys mail; do kadmin.local -q "addprinc -pw secret $name"; done
kadmin.local -q "ktadd -k $1/gateway.keytab nfs/gw.lab.test cifs/gw.lab.test"
kadmin.local -q "ktadd -k $2/root.keytab root"
kadmin.local -q "ktadd -k $2/machine.keytab host/guest.lab.test"
"#;
/// Adds new keys for the gateway to its file.
const ROTATE: &str =
    r#"kadmin.local -q "ktadd -k $1/gateway.keytab nfs/gw.lab.test cifs/gw.lab.test""#;

/// The KDC; ends when this value is dropped.
#[derive(Debug)]
pub(super) struct Realm<'a> {
    net: &'a Net,
    own: PathBuf,
    guest: PathBuf,
    running: Option<Child>,
}

impl Realm<'_> {
    /// Starts it, with its files in `dir/krb5` and in `guest`, which is `/scratch/krb5` there. Guests find the KDC and the gateway
    /// at this address.
    pub(super) fn start<'a>(
        net: &'a Net,
        dir: &Path,
        guest: &Path,
        kdc: String,
    ) -> Result<Realm<'a>> {
        let own = dir.join("krb5");
        for folder in [&own, guest] {
            fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        }
        let at = own.display();
        let write = |path: &Path, text: String| {
            fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
        };
        let conf = format!(
            "[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n rdns = false\n dns_canonicalize_hostname = false\n \
             udp_preference_limit = 1\n[realms]\n {REALM} = {{\n  kdc = {kdc}:88\n }}\n[domain_realm]\n lab.test = {REALM}\n"
        );
        write(&guest.join("krb5.conf"), conf.clone())?;
        write(&own.join("krb5.conf"), conf)?;
        let own_name = format!("{0} guest.lab.test guest-{0}", guest_address(0));
        write(&guest.join("hosts"), format!("127.0.0.1 localhost\n{kdc} {SERVER}\n{own_name}\n"))?;
        let profile = format!(
            "[kdcdefaults]\n kdc_listen = {kdc}:88\n kdc_tcp_listen = {kdc}:88\n[realms]\n {REALM} = {{\n  \
             database_name = {at}/principal\n  key_stash_file = {at}/stash\n }}\n[logging]\n kdc = FILE:{at}/kdc.log\n"
        );
        write(&own.join("kdc.conf"), profile)?;
        let guest = guest.to_owned();
        let mut realm = Realm { net, own, guest, running: None };
        realm.sh(MAKE)?;
        realm.run()?;
        Ok(realm)
    }

    fn environment(&self) -> [String; 3] {
        let at = self.own.display();
        [
            format!("KRB5_CONFIG={at}/krb5.conf"),
            format!("KRB5_KDC_PROFILE={at}/kdc.conf"),
            "PATH=/usr/sbin:/usr/bin:/sbin:/bin".into(),
        ]
    }

    /// Runs a script that works on its database.
    fn sh(&self, script: &str) -> Result<()> {
        let (environment, own, guest) = (self.environment(), &self.own, &self.guest);
        let (own, guest) = (own.display().to_string(), guest.display().to_string());
        let words = ["sh", "-c", script, "sh", &own, &guest];
        let environment = environment.each_ref().map(String::as_str);
        output(&[&["env"], &environment[..], &words].concat()).map(drop)
    }

    fn run(&mut self) -> Result<()> {
        let mut command = self.net.command("env");
        command.args(self.environment()).args(["/usr/sbin/krb5kdc", "-n"]);
        let child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        self.running = Some(child.map_err(|e| format!("krb5kdc: {e}"))?);
        Ok(())
    }

    fn stop(&mut self) {
        if let Some(mut child) = self.running.take() {
            // The process may have ended before.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Carries out a guest's request to the realm, and confirms it by a file; `None` if the request is for something else.
    pub(super) fn obey(&mut self, words: &str) -> Option<Result<()>> {
        let done = match words {
            "kdc stop" => {
                self.stop();
                Ok(())
            }
            "kdc start" => self.run(),
            "kdc rotate" => self.sh(ROTATE),
            _ => return None,
        };
        let file = self.guest.join(format!("done {words}"));
        Some(
            done.and_then(|()| {
                fs::write(&file, "").map_err(|e| format!("{}: {e}", file.display()))
            }),
        )
    }
}

impl Drop for Realm<'_> {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Returns the options of `serve` for the realm.
pub(super) fn options(dir: &Path) -> [String; 2] {
    ["--keytab".into(), dir.join("krb5/gateway.keytab").display().to_string()]
}
