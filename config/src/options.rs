//! Values of the command line. The `headgate` program fills them; this crate checks each value.

use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use policy::{Cidr, Rates};

use crate::access::Who;
use crate::audit::AuditTo;
use crate::ceph;
use crate::client::{Client, Whom};
use crate::elsewhere::Elsewhere;
use crate::log::{LogFilter, LogFormat};
use crate::reader::shown;
use crate::rights;
use crate::settings::{
    Admin, Discovery, Encryption, Identity, Portmap, PrivilegedPorts, Rdma, RdmaCrc, Share,
    Signing, Source, User, share_name, user_name,
};
use crate::units::{Port, Size, Span};

/// The options of `serve` and `check`. An option overrides the file's setting; shares and addresses to bind are added to the
/// file's.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// `--share`
    pub shares: Vec<ShareOption>,
    /// `--bind`
    pub bind: Vec<IpAddr>,
    /// `--rdma`
    pub rdma: Option<Rdma>,
    /// `--rdma-crc`
    pub rdma_crc: Option<RdmaCrc>,
    /// `--nfs-port`
    pub nfs_port: Option<Port>,
    /// `--nfs-rdma-port`
    pub nfs_rdma_port: Option<Port>,
    /// `--user`
    pub users: Vec<UserOption>,
    /// `--smb-port`
    pub smb_port: Option<Port>,
    /// `--smb-direct-port`
    pub smb_direct_port: Option<Port>,
    /// `--smb-signing`
    pub smb_signing: Option<Signing>,
    /// `--smb-encryption`
    pub smb_encryption: Option<Encryption>,
    /// `--tls-cert`, `--tls-key`, `--tls-ca`
    pub tls: [Option<PathBuf>; 3],
    /// `--keytab`
    pub keytab: Option<PathBuf>,
    /// `--audit`
    pub audit: Option<AuditTo>,
    /// `--state`
    pub state: Option<PathBuf>,
    /// `--lease`
    pub lease: Option<Span>,
    /// `--grace`
    pub grace: Option<Span>,
    /// `--portmap`
    pub portmap: Option<Portmap>,
    /// `--memory`
    pub memory: Option<Size>,
    /// `--connections`
    pub connections: Option<usize>,
    /// `--admin`
    pub admin: Option<Admin>,
    /// `--admin-clients`
    pub admin_clients: Vec<Cidr>,
    /// `--privileged-ports`
    pub privileged_ports: Option<PrivilegedPorts>,
    /// `--discovery`
    pub discovery: Option<Discovery>,
    /// `--drain`
    pub drain: Option<Span>,
    /// `--log`
    pub log: Option<LogFilter>,
    /// `--log-format`
    pub log_format: Option<LogFormat>,
    /// `--cluster`: the other services of the cluster.
    pub elsewhere: Vec<Elsewhere>,
}

/// One `--share NAME=DIR[,ro][,protocols=nfs|smb|both][,squash=none|root|all][,sec=sys:krb5:krb5i:krb5p][,clients=CLIENT...]
/// [,encrypt][,compress][,guest][,ca]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareOption(pub Share);

impl FromStr for ShareOption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, rest) = text
            .split_once('=')
            .ok_or("write NAME=DIR, like `data=/srv/data`, or `NAME=mem:` for a share in memory")?;
        let name = share_name(name)?;
        let mut parts = rest.split(',');
        let (source, homes) = match parts.next() {
            None | Some("") => {
                return Err(format!(
                    "the share `{name}` has no folder; write `{name}=DIR`, or `{name}=mem:` for a share in memory"
                ));
            }
            Some("mem:") => (Source::Memory, false),
            Some(text) if text.starts_with(ceph::PREFIX) => {
                (Source::Ceph(text[ceph::PREFIX.len()..].parse()?), false)
            }
            Some(dir) => Source::of_path(PathBuf::from(dir))?,
        };
        let mut share = Share { homes, ..Share::new(name, source) };
        let mut in_clients = false;
        for part in parts {
            in_clients = share_option(&mut share, part, in_clients)?;
        }
        Ok(Self(share))
    }
}

/// Parses a further client of a list. A bare host name needs a dot here, because without one it looks like a misspelt option.
fn client(part: &str) -> Result<Client, String> {
    let wrong = |why| format!("{why}; after `clients=` come more clients, or another option");
    match part.parse::<Whom>().map_err(wrong)? {
        Whom::Host(name) if !name.contains('.') => {
            Err(wrong(format!("`{}` is neither an option nor a host name with a dot", shown(part))))
        }
        whom => Ok(whom.into()),
    }
}

/// Applies one option of a share. Returns whether further clients may follow.
fn share_option(share: &mut Share, part: &str, in_clients: bool) -> Result<bool, String> {
    match part.split_once('=') {
        Some(("squash", how)) => share.squash = how.parse()?,
        Some(("sec", flavors)) => share.sec = flavors.parse()?,
        Some(("protocols", which)) => share.protocols = which.parse()?,
        Some(("durability", how)) => share.durability = how.parse()?,
        Some(("tls", how)) => share.tls = how.parse()?,
        Some(("symlinks", who)) => share.symlinks = who.parse()?,
        Some(("id", user)) => match &mut share.source {
            Source::Ceph(its) => its.user = Some(ceph::user(user)?),
            _ => return Err("`id` names a user of Ceph, but this share is not in CephFS".into()),
        },
        Some(("clients", whom)) => {
            share.clients.get_or_insert_default().push(whom.parse()?);
            return Ok(true);
        }
        None if part == "ro" => share.read_only = true,
        None if part == "encrypt" => share.encrypt = true,
        None if part == "compress" => share.compress = true,
        None if part == "guest" => share.guest = true,
        None if part == "ca" => share.continuous_availability = true,
        None if in_clients => {
            share.clients.get_or_insert_default().push(client(part)?);
            return Ok(true);
        }
        _ => {
            return Err(format!(
                "a share has no option `{part}`; the options are `ro`, `protocols=nfs|smb|both`, `squash=root|all|none`, \
                 `sec=sys:krb5:krb5i:krb5p`, `clients=CIDR|HOST|@NETGROUP`, `durability=strict|relaxed`, \
                 `tls=offered|required|mutual`, for CephFS `id=USER`, and for SMB `encrypt`, `compress`, `guest`, `ca` and \
                 `symlinks=server|client` (a folder with a comma in its name needs the configuration file)"
            ));
        }
    }
    Ok(false)
}

/// One `--user NAME[=FILE][,uid=N][,gid=N][,groups=N+N...]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserOption(pub User);

impl FromStr for UserOption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (head, rest) = text.split_once(',').unwrap_or((text, ""));
        let (name, file) = match head.split_once('=') {
            Some((name, "")) => {
                return Err(format!("the user `{name}` has no password file; write `{name}=FILE`"));
            }
            Some((name, file)) => (name, Some(PathBuf::from(file))),
            None => (head, None),
        };
        let mut identity = Identity::default();
        for part in rest.split(',').filter(|p| !p.is_empty()) {
            let number = rights::id;
            match part.split_once('=') {
                Some(("uid", n)) => identity.uid = Some(number(n)?),
                Some(("gid", n)) => identity.gid = Some(number(n)?),
                Some(("groups", list)) => {
                    identity.groups = Some(list.split('+').map(number).collect::<Result<_, _>>()?);
                }
                _ => {
                    return Err(format!(
                        "a user has no option `{part}`; the options are `uid=NUMBER`, `gid=NUMBER` and `groups=NUMBER+NUMBER`"
                    ));
                }
            }
        }
        // `check` reports on users of a domain as well, whose names no user of the gateway has: the settings refuse them.
        let is_bare = file.is_none() && identity == Identity::default();
        let is_of_domain = is_bare && Who::User(name.to_owned()).in_domain().is_some();
        Ok(Self(User {
            name: if is_of_domain { name.to_owned() } else { user_name(name)? },
            password_file: file,
            identity,
            limits: Rates::default(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rights::Symlinks;
    use policy::{Protocols, Squash};

    #[test]
    fn user_option_parses() {
        let parse = |text: &str| text.parse::<UserOption>().map(|u| u.0);
        let user = parse("alice=/etc/a=b,uid=1000,gid=100,groups=7+8").unwrap();
        assert_eq!(user.name, "alice");
        assert_eq!(user.password_file, Some("/etc/a=b".into()));
        let groups = Some(vec![7, 8]);
        assert_eq!(user.identity, Identity { uid: Some(1000), gid: Some(100), groups });
        let user = parse("bob,uid=7").unwrap();
        assert_eq!((user.password_file, user.identity.uid), (None, Some(7)));
        for name in [r"LAB\alice", "alice@example.org"] {
            assert_eq!(parse(name).unwrap().name, name, "`check` takes it");
            assert!(
                parse(&format!("{name}=/etc/a")).is_err()
                    && parse(&format!("{name},uid=7")).is_err()
            );
        }
        for (text, message) in [
            ("alice=", "the user `alice` has no password file; write `alice=FILE`"),
            ("=file", "a user needs a name"),
            ("alice=f,uid=me", "`me` is not the number of a user or group"),
            (
                "alice=f,groups=7+4294967295",
                "`4294967295` is not the number of a user or group: chown(2) and setfsuid(2) take it for \"leave unchanged\"",
            ),
            (
                "alice=f,shell=sh",
                "a user has no option `shell=sh`; the options are `uid=NUMBER`, `gid=NUMBER` and `groups=NUMBER+NUMBER`",
            ),
        ] {
            assert_eq!(parse(text).unwrap_err(), message);
        }
    }

    fn parse(text: &str) -> Result<Share, String> {
        text.parse().map(|s: ShareOption| s.0)
    }

    #[test]
    fn share_option_parses_every_setting() {
        let share =
            parse("data=/srv/d=1,ro,clients=10.0.0.0/8,fd00::/8,encrypt,compress,squash=all,ca,clients=192.0.2.1,guest")
                .unwrap();
        assert!(share.encrypt && share.compress && share.guest && share.continuous_availability);
        assert_eq!(share.symlinks, Symlinks::Server);
        assert_eq!(parse("data=/srv,symlinks=client").unwrap().symlinks, Symlinks::Client);
        assert_eq!(share.name, "data");
        assert_eq!(share.source, Source::Folder("/srv/d=1".into()));
        assert!(share.read_only);
        assert_eq!(share.squash, Squash::All);
        let clients: Vec<String> = share.clients.unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(clients, ["10.0.0.0/8", "fd00::/8", "192.0.2.1/32"]);
        let named = parse("data=/srv,clients=ws,ws1.lab,*.lab,@hosts,ro").unwrap();
        let clients: Vec<String> = named.clients.unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(clients, ["ws", "ws1.lab", "*.lab", "@hosts"]);
        assert!(named.read_only);
    }

    #[test]
    fn share_option_parses_protocol() {
        let by = |text: &str| parse(text).map(|s| s.protocols);
        assert_eq!(by("a=mem:,protocols=smb"), Ok(Protocols::Smb));
        assert_eq!(by("a=mem:,protocols=nfs,ro"), Ok(Protocols::Nfs));
        assert_eq!(by("a=mem:"), by("a=mem:,protocols=both"));
        let why = "`cifs` is not a protocol; write `nfs`, `smb` or `both`";
        assert_eq!(by("a=mem:,protocols=cifs").unwrap_err(), why);
    }

    #[test]
    fn share_option_parses_memory() {
        let share = parse("x=mem:").unwrap();
        assert_eq!(share.source, Source::Memory);
        assert_eq!(share.squash, Squash::Root);
        assert_eq!(share.clients, None);
    }

    #[test]
    fn share_option_parses_cephfs() {
        let share = parse("x=ceph:fs/projects,id=client.gate,ro").unwrap();
        let Source::Ceph(ceph) = share.source else { panic!("in CephFS") };
        assert_eq!(
            (&*ceph.fs, &*ceph.path, ceph.user.as_deref()),
            ("fs", "/projects", Some("gate"))
        );
        assert!(share.read_only);
        let why = "`id` names a user of Ceph, but this share is not in CephFS";
        assert_eq!(parse("x=/srv,id=gate").unwrap_err(), why);
        assert!(parse("x=ceph:").unwrap_err().contains("not the name of a file system"));
    }

    #[test]
    fn share_option_fault_suggests_fix() {
        for (text, message) in [
            ("data", "write NAME=DIR, like `data=/srv/data`, or `NAME=mem:` for a share in memory"),
            (
                "data=",
                "the share `data` has no folder; write `data=DIR`, or `data=mem:` for a share in memory",
            ),
            (
                "data=/srv,rw",
                "a share has no option `rw`; the options are `ro`, `protocols=nfs|smb|both`, `squash=root|all|none`, \
                 `sec=sys:krb5:krb5i:krb5p`, `clients=CIDR|HOST|@NETGROUP`, `durability=strict|relaxed`, \
                 `tls=offered|required|mutual`, for CephFS `id=USER`, and for SMB `encrypt`, `compress`, `guest`, `ca` and \
                 `symlinks=server|client` (a folder with a comma in its name needs the configuration file)",
            ),
            ("data=/srv,squash=me", "`me` is not a squash mode; write `root`, `all` or `none`"),
            (
                "data=/srv,clients=10.0.0.0/8,write",
                "`write` is neither an option nor a host name with a dot; after `clients=` come more clients, or another \
                 option",
            ),
            ("=/srv", "a share needs a name"),
        ] {
            assert_eq!(parse(text).unwrap_err(), message);
        }
    }
}
