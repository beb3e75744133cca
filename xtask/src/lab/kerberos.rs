//! A realm for one scenario: a KDC of MIT krb5 on the host's side of the taps, keys for the gateway, and for the guest what its
//! `rpc.gssd` needs: root of the guest has a ticket as `root`, who is root on the gateway's host as well.

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};

use super::net::{Net, host_address};
use crate::sh::{Result, output};

/// What the guest mounts: a ticket is for a name.
pub(super) const SERVER: &str = "gw.lab.test";
const REALM: &str = "LAB.TEST";

/// `$1`: its folder, `$2`: the guest's. Keys of AES in both, and nothing that needs a terminal.
const MAKE: &str = r#"
set -e
kdb5_util create -r LAB.TEST -s -P master
kadmin.local -q "addprinc -randkey nfs/gw.lab.test"
kadmin.local -q "addprinc -randkey root"
kadmin.local -q "ktadd -k $1/gateway.keytab nfs/gw.lab.test"
kadmin.local -q "ktadd -k $2/root.keytab root"
"#;

/// The KDC; ends with this value.
#[derive(Debug)]
pub(super) struct Realm(Child);

impl Realm {
    /// Starts it, with all it makes in `dir/krb5` and in `guest`, which is `/scratch/krb5` there.
    pub(super) fn start(net: &Net, dir: &Path, guest: &Path) -> Result<Realm> {
        let own = dir.join("krb5");
        for folder in [&own, guest] {
            fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        }
        let (at, kdc) = (own.display(), host_address(0));
        let write = |path: &Path, text: String| {
            fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
        };
        let conf = format!(
            "[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n rdns = false\n dns_canonicalize_hostname = false\n \
             udp_preference_limit = 1\n[realms]\n {REALM} = {{\n  kdc = {kdc}:88\n }}\n[domain_realm]\n lab.test = {REALM}\n"
        );
        write(&guest.join("krb5.conf"), conf.clone())?;
        write(&own.join("krb5.conf"), conf)?;
        write(&guest.join("hosts"), format!("127.0.0.1 localhost\n{kdc} {SERVER}\n"))?;
        let profile = format!(
            "[kdcdefaults]\n kdc_listen = {kdc}:88\n kdc_tcp_listen = {kdc}:88\n[realms]\n {REALM} = {{\n  \
             database_name = {at}/principal\n  key_stash_file = {at}/stash\n }}\n[logging]\n kdc = FILE:{at}/kdc.log\n"
        );
        write(&own.join("kdc.conf"), profile)?;
        let environment =
            [format!("KRB5_CONFIG={at}/krb5.conf"), format!("KRB5_KDC_PROFILE={at}/kdc.conf")];
        let guest = guest.display().to_string();
        let made = ["sh", "-c", MAKE, "sh", &at.to_string(), &guest];
        output(
            &[
                &["env", &environment[0], &environment[1], "PATH=/usr/sbin:/usr/bin:/sbin:/bin"],
                &made[..],
            ]
            .concat(),
        )?;
        let mut command = net.command("env");
        command.args(environment).args(["/usr/sbin/krb5kdc", "-n"]);
        let child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        child.map(Realm).map_err(|e| format!("krb5kdc: {e}"))
    }
}

impl Drop for Realm {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What `serve` is told of it.
pub(super) fn options(dir: &Path) -> [String; 2] {
    ["--keytab".into(), dir.join("krb5/gateway.keytab").display().to_string()]
}
