//! SMB findings of `check`: the users that can log on, the paths for Windows clients, the mount commands for Linux clients.

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;

use config::{Encryption, Identity, Ntlm, RdmaTransforms, Settings, Share, Signing, Squash};
use rdma_transport::devices::Fabric;
use serde_json::{Value, json};

use super::{Findings, Remarks, ServedAddress, kerberos};
use crate::domain_service::Seen;
use crate::identities::{self, Rights};
use crate::records::ServiceFiles;
use crate::users::{self, read_database_in_time, resolve};

/// Port of SMB, and of SMB Direct over RoCE and InfiniBand.
const SMB_PORT: u16 = 445;
/// Port of SMB Direct over iWARP.
const SMB_DIRECT_PORT: u16 = 5445;

/// Users and settings of SMB.
pub(super) struct Smb {
    /// Set if a user can log on, or a port is configured.
    pub(super) served: bool,
    /// User names, first the configured ones.
    users: Vec<String>,
    /// The squash setting of each share that leaves some NFS client the most rights.
    pub(super) weakest_squash: Vec<Squash>,
}

/// Checks the users.
pub(super) fn facts(settings: &Settings, remarks: &mut Remarks) -> Smb {
    let mut all: Vec<(String, Identity)> = Vec::new();
    for user in &settings.users {
        if let Some(path) = &user.password_file
            && fs::metadata(path).is_ok_and(|m| m.mode() & 0o077 != 0)
        {
            let path = path.display();
            remarks.warn(format!(
                "the password file {path} can be read by others: `chmod 600 {path}`"
            ));
        }
        all.push((user.name.clone(), user.identity.clone()));
    }
    match ServiceFiles::of(settings).and_then(|files| read_database_in_time(&files)) {
        Ok(database) => {
            let known = |name: &str| settings.users.iter().any(|u| same(&u.name, name));
            for e in database.entries().filter(|e| !known(&e.name)) {
                let identity = Identity { uid: e.uid, gid: e.gid, groups: e.groups.clone() };
                all.push((e.name.clone(), identity));
            }
        }
        Err(e) => remarks.stop(format!("the SMB users cannot be read: {e}")),
    }
    for (name, identity) in &all {
        match resolve(name, identity) {
            Ok((cred, _)) if users::is_nobody(&cred) => {
                let why = users::why_nobody(name);
                remarks.warn(format!("user `{name}` cannot log on: {why}"));
            }
            Ok((cred, false)) => remarks.warn(format!(
                "the host has no user `{name}`: files will belong to uid {}; set `uid` to change that",
                cred.uid
            )),
            _ => {}
        }
    }
    let rights = users::accounts(settings).and_then(|accounts| {
        let account = |name: &str| accounts.get(&name.to_lowercase()).cloned();
        identities::rights(settings, &account)
    });
    let rights = rights.unwrap_or_else(|why| {
        remarks.stop(why);
        vec![Rights::default(); settings.shares.len()]
    });
    for (share, rights) in settings.shares.iter().zip(&rights) {
        warn_of_root(share, rights, remarks);
    }
    if let Err(why) = users::accounts(settings).and_then(|all| {
        identities::holders(settings, &|name| all.get(&name.to_lowercase()).cloned())
    }) {
        remarks.stop(why);
    }
    warn_of_squash(settings, &all, remarks);
    let squash = settings.shares.iter().zip(&rights).map(|(s, rights)| rights.weakest_squash(s));
    Smb {
        weakest_squash: squash.collect(),
        served: crate::smb::is_wanted(settings, !all.is_empty()),
        users: all.into_iter().map(|(name, _)| name).collect(),
    }
}

fn same(a: &str, b: &str) -> bool {
    a.to_lowercase() == b.to_lowercase()
}

/// Warns if users other than root act as root.
fn warn_of_root(share: &Share, rights: &Rights, remarks: &mut Remarks) {
    if rights.makes_root() {
        remarks.warn(format!(
            "share `{}`: `force` makes every user that it admits act as root on its files",
            share.name
        ));
    }
    for client in share.clients.iter().flatten().filter(|c| c.anonuid == Some(0)) {
        remarks.warn(format!(
            "share `{}`: `anonuid: 0` makes squashed users from {} act as root on its files",
            share.name, client.from
        ));
    }
}

/// Warns where `squash` suggests a limit for SMB users, which it was in earlier versions.
fn warn_of_squash(settings: &Settings, users: &[(String, Identity)], remarks: &mut Remarks) {
    let of = |squash| {
        let shares = settings.by_smb().filter(|s| s.squash == squash && s.force.user.is_none());
        shares.map(|s| format!("`{}`", s.name)).collect::<Vec<_>>().join(", ")
    };
    let (all, root) = (of(Squash::All), of(Squash::Root));
    if !all.is_empty() {
        remarks.warn(format!(
            "`squash: all` applies only to NFS: SMB users of {all} act as themselves, where earlier versions \
             made them the user 65534; `force: {{user: NAME}}` makes all users act as one"
        ));
    }
    let is_root = |(name, identity): &&(String, Identity)| {
        resolve(name, identity).is_ok_and(|(cred, _)| cred.uid == 0 || cred.in_group(0))
    };
    let roots: Vec<String> =
        users.iter().filter(is_root).map(|(name, _)| format!("`{name}`")).collect();
    if !root.is_empty() && !roots.is_empty() {
        remarks.warn(format!(
            "`squash: root` applies only to NFS: the SMB users {} have the rights of root or its group in {root}, where earlier \
             versions gave them those of the user 65534; `access: {{deny: NAME}}` keeps them out",
            roots.join(", ")
        ));
    }
}

/// Returns the path for Windows, in which an address cannot contain colons.
fn unc(ip: IpAddr, share: &Share) -> String {
    let host = match ip {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("{}.ipv6-literal.net", ip.to_string().replace(':', "-")),
    };
    format!(r"\\{host}\{}", share.name)
}

/// Returns the mount commands for a Linux client, best first.
pub(super) fn mounts(f: &Findings<'_>, place: &ServedAddress, share: &Share) -> Vec<String> {
    let logon = logon(f.settings, &f.smb.users, f.service.as_ref(), share);
    let one = |rdma: bool| {
        let mut options = format!("vers=3.1.1,{}", logon.options);
        if share.encrypt || f.settings.smb.encryption == Encryption::Required {
            options += ",seal";
        }
        if rdma {
            options += ",rdma";
        }
        // SMB Direct clients dial the port of the device's fabric and ignore `port`.
        let port = f.settings.smb.port;
        if !rdma && port != SMB_PORT {
            options += &format!(",port={port}");
        }
        let host = match (place.ip, &logon.host) {
            // The ticket is for the name.
            (ip, Some(host)) => {
                options += &format!(",ip={ip}");
                host.clone()
            }
            (IpAddr::V4(ip), None) => ip.to_string(),
            // The client resolves the host name, which cannot contain colons.
            (IpAddr::V6(ip), None) => {
                options += &format!(",ip={ip}");
                "headgate".into()
            }
        };
        format!("mount -t cifs -o {options} //{host}/{} /mnt", share.name)
    };
    match direct_ports(f, place).iter().any(DirectPort::is_dialled) {
        true => vec![one(true), one(false)],
        false => vec![one(false)],
    }
}

/// How a Linux client logs on, in options of mount.cifs.
struct Logon {
    options: String,
    /// The name of the server, if only tickets are accepted.
    host: Option<String>,
}

fn logon(settings: &Settings, accounts: &[String], seen: Option<&Seen>, share: &Share) -> Logon {
    let by_password = |options: String| Logon { options, host: None };
    let asks_domain = seen.is_some_and(|seen| seen.checks_passwords);
    let has_passwords = !accounts.is_empty() || settings.users_from.is_some() || asks_domain;
    let by_ticket =
        settings.kerberos.as_ref().filter(|_| settings.smb.ntlm == Ntlm::Off || !has_passwords);
    if let Some(kerberos) = by_ticket {
        let host = kerberos::names(kerberos).into_iter().next();
        return Logon { options: "sec=krb5,cruid=USER".into(), host };
    }
    if share.guest && !has_passwords {
        return by_password("guest,sec=none".into());
    }
    let domain = seen.and_then(|seen| Some(seen.machine.as_ref()?.domain.as_str()));
    match (accounts.first(), domain.filter(|domain| asks_domain && !domain.is_empty())) {
        (Some(user), _) => by_password(format!("username={user}")),
        (None, Some(domain)) => by_password(format!("username=USER,domain={domain}")),
        (None, None) => by_password("username=USER".into()),
    }
}

/// The port on which clients of a fabric find SMB Direct at an address.
struct DirectPort {
    fabric: Fabric,
    port: u16,
}

impl DirectPort {
    /// Returns the only port that clients dial.
    fn usual(&self) -> u16 {
        if self.fabric == Fabric::Iwarp { SMB_DIRECT_PORT } else { SMB_PORT }
    }

    fn is_dialled(&self) -> bool {
        self.port == self.usual()
    }

    fn words(&self) -> String {
        let article = if self.fabric == Fabric::Roce { "a" } else { "an" };
        format!("{article} {} adapter (port {})", self.fabric, self.port)
    }

    /// Returns the setting that moves SMB Direct to the port that clients dial.
    fn remedy(&self) -> Option<String> {
        let (fabric, usual) = (self.fabric, self.usual());
        let key = if fabric == Fabric::Iwarp { "direct_port" } else { "port" };
        (!self.is_dialled()).then(|| {
            format!("  SMB Direct clients with {fabric} dial only port {usual}: set `smb: {{{key}: {usual}}}`")
        })
    }
}

/// Returns the fabrics and ports of SMB Direct at an address.
fn direct_ports(f: &Findings<'_>, place: &ServedAddress) -> Vec<DirectPort> {
    let smb = &f.settings.smb;
    let device = place.offer.device().map(|d| d.fabric);
    let own = (place.offer.rdma() && place.offer.iwarp.is_ok()).then_some(Fabric::Iwarp);
    let port = |fabric| DirectPort {
        fabric,
        port: if fabric == Fabric::Iwarp { smb.direct_port } else { smb.port },
    };
    device.into_iter().chain(own).map(port).collect()
}

/// Describes the paths for Windows clients at this address, and the settings that prevent direct data placement.
pub(super) fn words(f: &Findings<'_>, place: &ServedAddress, share: &Share) -> Vec<String> {
    let path = unc(place.ip, share);
    let speed = match place.facts.speed {
        Some(s) if s >= 1000 => format!("{} Gbit/s", s / 1000),
        Some(s) => format!("{s} Mbit/s"),
        None => "1 Gbit/s (the device does not say)".into(),
    };
    let direct = direct_ports(f, place);
    let adapters: Vec<String> = direct.iter().map(DirectPort::words).collect();
    let rdma = match adapters.is_empty() {
        false => format!(", and RDMA for clients with {}", adapters.join(" or ")),
        true => ", and no RDMA".into(),
    };
    let mut words = vec![format!("SMB for Windows: {path}; clients see {speed}{rdma}")];
    words.extend(direct.iter().filter_map(DirectPort::remedy));
    let port = f.settings.smb.port;
    if port != SMB_PORT {
        words.push(format!(
            "  Windows looks on port 445; from Windows 11 24H2 on: `net use Z: {path} /tcpport:{port}`"
        ));
    }
    if place.offer.rdma() {
        if f.settings.smb.signing == Signing::Required {
            if f.settings.smb.rdma_transforms == RdmaTransforms::On {
                words.push(
                    "SMB Direct for Windows 11, Server 2022 and later: data is signed and placed directly".into(),
                );
            }
            words.push(
                "SMB Direct for Linux: data goes inside messages, because Linux does not place signed data directly;"
                    .into(),
            );
            words.push("  `--smb-signing offered` allows direct placement, unsigned".into());
        }
        if share.encrypt || f.settings.smb.encryption == Encryption::Required {
            let direct = match f.settings.smb.rdma_transforms {
                RdmaTransforms::On => {
                    "encrypted data goes inside messages, also over SMB Direct, except with Windows 11, Server 2022 and later"
                }
                RdmaTransforms::Off => "encrypted data goes inside messages, also over SMB Direct",
            };
            words.push(direct.into());
        }
    }
    words
}

/// Summarizes SMB in one line.
pub(super) fn summary(f: &Findings<'_>) -> String {
    if f.settings.by_smb().next().is_none() {
        return "no SMB: no share is served over SMB".into();
    }
    if !f.smb.served {
        return "no SMB: no user can log on; add one with `headgate user add NAME`, or `--user NAME=FILE`"
            .into();
    }
    let smb = &f.settings.smb;
    let passwords = match smb.ntlm {
        Ntlm::On => "",
        Ntlm::Off => " (no passwords: NTLM is off)",
    };
    format!(
        "SMB for {}{passwords}, signing {}, encryption {}, RDMA transforms {}",
        whom(f.settings, f.smb.users.len(), f.service.as_ref()),
        smb.signing,
        smb.encryption,
        smb.rdma_transforms
    )
}

/// Names those who may log on.
fn whom(settings: &Settings, accounts: usize, seen: Option<&Seen>) -> String {
    let realm = settings.kerberos.as_ref().map(|kerberos| kerberos.realm.as_ref());
    let of_domain = match (seen, realm) {
        (Some(seen), _) => {
            let name = seen.machine.as_ref().map(|of| match of.domain.is_empty() {
                true => format!(" {}", of.dns_domain),
                false => format!(" {}", of.domain),
            });
            Some(format!("users of the domain{}", name.unwrap_or_default()))
        }
        (None, Some(Some(realm))) => Some(format!("users with tickets of {realm}")),
        (None, Some(None)) => Some("users with tickets".into()),
        (None, None) => None,
    };
    let of_directory = settings.users_from.as_ref().map(|_| "users of the LDAP directory".into());
    let accounts = match accounts {
        0 => None,
        1 => Some("1 account of the gateway".into()),
        n => Some(format!("{n} accounts of the gateway")),
    };
    let has_guests = settings.smb.ntlm == Ntlm::On && settings.by_smb().any(|share| share.guest);
    let guests = has_guests.then(|| "guests".into());
    let all: Vec<String> =
        [of_domain, of_directory, accounts, guests].into_iter().flatten().collect();
    match all.split_last() {
        None => "no user yet".into(),
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
    }
}

/// Formats the settings as JSON.
pub(super) fn json(f: &Findings<'_>) -> Value {
    let smb = &f.settings.smb;
    json!({
        "served": f.smb.served,
        "users": f.smb.users,
        "port": smb.port,
        "direct_port": smb.direct_port,
        "signing": smb.signing.to_string(),
        "encryption": smb.encryption.to_string(),
        "rdma_transforms": smb.rdma_transforms.to_string(),
        "directory_leases": smb.directory_leases.to_string(),
        "compression": smb.compression.to_string(),
        "ntlm": smb.ntlm.to_string(),
        "password_length": smb.password_length.0,
        "model": smb.model.to_string(),
    })
}

/// Formats an address as JSON.
pub(super) fn place_json(f: &Findings<'_>, place: &ServedAddress) -> Value {
    if !f.smb.served {
        return Value::Null;
    }
    let shares: Vec<&Share> = f.settings.by_smb().collect();
    json!({
        "windows": shares.iter().map(|s| unc(place.ip, s)).collect::<Vec<_>>(),
        "rdma": place.offer.rdma(),
        "words": shares.first().map(|s| words(f, place, s)).unwrap_or_default(),
        "mount": shares.iter().flat_map(|s| mounts(f, place, s)).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use config::{Kerberos, Source};

    use super::*;

    fn seen(checks_passwords: bool) -> Seen {
        let [machine, domain, dns_domain] = ["GW", "LAB", "lab.test"].map(str::to_owned);
        let details = domain_sys::Details { machine, domain, dns_domain, version: String::new() };
        let by = if checks_passwords { "winbind" } else { "sssd" };
        Seen { by, checks_passwords, machine: Some(details), away: None }
    }

    fn settings(ntlm: Ntlm, realm: Option<&str>, guest: bool) -> Settings {
        let mut settings = Settings {
            shares: vec![Share { guest, ..Share::new("team", Source::Memory) }],
            ..Settings::default()
        };
        settings.smb.ntlm = ntlm;
        settings.kerberos = realm.map(|realm| {
            let mut kerberos = Kerberos::new("keytab");
            kerberos.names = vec!["gw.lab.test".parse().unwrap()];
            kerberos.realm = (!realm.is_empty()).then(|| realm.parse().unwrap());
            kerberos
        });
        settings
    }

    #[test]
    fn summary_names_users_of_domain() {
        let of = |realm, guest, accounts, seen: Option<Seen>| {
            whom(&settings(Ntlm::On, realm, guest), accounts, seen.as_ref())
        };
        for (told, wanted) in [
            (of(None, false, 0, None), "no user yet"),
            (of(None, false, 1, None), "1 account of the gateway"),
            (of(None, true, 2, None), "2 accounts of the gateway and guests"),
            (of(Some("LAB.TEST"), false, 0, None), "users with tickets of LAB.TEST"),
            (of(Some(""), false, 0, None), "users with tickets"),
            (of(Some("LAB.TEST"), false, 0, Some(seen(true))), "users of the domain LAB"),
            (
                of(None, true, 2, Some(seen(true))),
                "users of the domain LAB, 2 accounts of the gateway and guests",
            ),
            (of(None, false, 0, Some(Seen { machine: None, ..seen(true) })), "users of the domain"),
        ] {
            assert_eq!(told, wanted);
        }
    }

    #[test]
    fn mount_command_logs_on_as_configured() {
        let of = |ntlm, realm, guest, accounts: &[&str], seen: Option<Seen>| {
            let settings = settings(ntlm, realm, guest);
            let accounts: Vec<String> = accounts.iter().map(|name| (*name).to_owned()).collect();
            let told = logon(&settings, &accounts, seen.as_ref(), &settings.shares[0]);
            (told.options, told.host)
        };
        let by_password = |options: &str| (options.to_owned(), None);
        let by_ticket = ("sec=krb5,cruid=USER".to_owned(), Some("gw.lab.test".to_owned()));
        let realm = Some("LAB.TEST");
        assert_eq!(of(Ntlm::On, None, false, &["bob"], None), by_password("username=bob"));
        assert_eq!(of(Ntlm::On, None, true, &[], None), by_password("guest,sec=none"));
        assert_eq!(of(Ntlm::On, None, false, &[], None), by_password("username=USER"));
        let winbind = || Some(seen(true));
        assert_eq!(
            of(Ntlm::On, realm, false, &[], winbind()),
            by_password("username=USER,domain=LAB")
        );
        assert_eq!(of(Ntlm::On, realm, false, &["bob"], winbind()), by_password("username=bob"));
        assert_eq!(of(Ntlm::Off, realm, false, &["bob"], winbind()), by_ticket);
        assert_eq!(of(Ntlm::On, realm, false, &[], Some(seen(false))), by_ticket);
        assert_eq!(of(Ntlm::On, realm, false, &[], None), by_ticket);
        assert_eq!(
            of(Ntlm::On, realm, false, &["bob"], Some(seen(false))),
            by_password("username=bob")
        );
    }
}
