//! Tests of every kind of fault, with the complete text that the user sees.

mod access;
mod audit;
mod ceph;
mod domain;
mod ldap;
mod links;
mod macos;
mod rates;
mod refer;
mod sound;
mod wastebasket;

use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;

use access::told_of_access;

use crate::rules::settle;
use crate::sec::Secs;
use crate::{
    Access, Client, Durability, Encryption, Faults, Force, Known, Limits, List, Masks, Mode,
    NfsLocks, OnHost, Options, Portmap, Protocols, Rdma, RdmaCrc, RdmaTransforms, Settings, Share,
    ShareOption, ShareTls, Signing, Smb, Source, Squash, Symlinks, Tls, Who,
};

fn id(name: &str) -> u32 {
    // Names that start with "same" collide, to test a rule that hardly ever applies in practice.
    if name.starts_with("same") {
        7
    } else {
        name.bytes().fold(9, |h: u32, b| h.wrapping_mul(31) ^ u32::from(b))
    }
}

/// No user information; the gateway's tests cover faults of passwords.
const KNOWN: Known = Known {
    is_start: false,
    share_id: id,
    password: |_| Ok(()),
    keytab: |path| match path.ends_with("wrong") {
        true => Err("it is no keytab".into()),
        false => Ok(()),
    },
    users: |state| (state == Path::new("/with-users")).then(|| vec!["Carol".to_owned()]),
    host: |names| match names {
        [Who::User(name), ..] if name == "slow" => Err("the name service is slow".into()),
        names => {
            let found = |name: &Who| match &*name.to_string() {
                "alice" => {
                    Some(OnHost::User { uid: 5, gid: 6, groups: vec![7], shows_group: false })
                }
                "@staff" => Some(OnHost::Group { gid: 50, members: Vec::new() }),
                _ => None,
            };
            Ok(names.iter().map(found).collect())
        }
    },
    memory: || Some((4 << 30, "this machine")),
};

fn read_with(text: &str, options: Options) -> Result<Settings, Faults> {
    settle(Path::new("gw.yaml"), text, options, KNOWN)
}

fn read(text: &str) -> Result<Settings, Faults> {
    read_with(text, Options::default())
}

fn told(text: &str) -> String {
    read(text).unwrap_err().to_string()
}

fn shares(options: &[&str]) -> Options {
    let shares = options.iter().map(|s| s.parse().unwrap()).collect();
    Options { shares, ..Options::default() }
}

fn told_options(options: Options) -> String {
    read_with("", options).unwrap_err().to_string()
}

fn limits(connections: usize, mib: u64, client_opens: usize, seconds: u64) -> Limits {
    Limits {
        client_connections: Some(connections),
        client_memory: Some(mib << 20),
        client_opens,
        introduction: Duration::from_secs(seconds),
        ..Limits::default()
    }
}

/// Every key, each with a value that is not its default.
const EVERYTHING: &str = "\
shares:
  - name: data
    path: /usr
    protocols: smb
    read_only: true
    cross: false
    squash: none
    nfs_locks: advisory
    audit: writes
    durability: relaxed
    clients: [10.0.0.0/8, 'fd00::/8']
    hidden: true
    force: {user: alice, group: '7'}
    masks: {file: 0660, folder: 2770}
    list: visible
    symlinks: client
    snapshots: .zfs/snapshot/{time:%Y-%m-%d_%H%M%S}
    size: 2TiB
    limits: {read: 500MiB/s, burst: 2s}
    access: {read: [alice, '@7'], write: BOB, deny: ['9', '*']}
    encrypt: true
    compress: true
    guest: true
    continuous_availability: true
    comment: What we have
  - name: scratch
    memory: true
    export: /srv/nfs/scratch
    tls: mutual
    squash: all
    sec: [krb5p, sys]
    clients: [192.0.2.7, {from: 192.0.2.0/24, read_only: true, squash: root, anonuid: 7, anongid: 8},
      '*.lab', {from: '@hosts', protocols: smb}]
bind: [192.0.2.1, '::1']
rdma: {by: iwarp, relaxed_ordering: on, dscp: 26}
rdma_crc: always
rdma_spin: 20us
state: /var/lib/gw
recall: 20s
memory: 1GiB
connections: 64
limits: {client_connections: 32, client_memory: 24MiB, client_opens: 1000, nfs_clients: 500, introduction: 20s,
  write: 1GiB/s, client: {operations: 100/s}}
admin: 127.0.0.1:9000
admin_clients: [192.0.2.0/24, '2001:db8::/32']
privileged_ports: required
discovery: off
drain: 20s
names: own
log: {level: 'warn,nfsrdma=debug', format: json}
nfs: {port: 12049, rdma_port: 0, lease: 30s, grace: 45s, courtesy: 2h, portmap: own, domain: example.org}
smb:
  port: 1445
  direct_port: 0
  signing: offered
  encryption: required
  rdma_transforms: off
  directory_leases: off
  compression: on
  ntlm: off
  password_length: 16
  model: MacSamba
kerberos: {keytab: /etc/gw.keytab, realm: LAB.TEST, names: [gw, GW.lab.test], map: rid, rid_base: 5000}
audit: {to: journald, required: true}
tls: {certificate: /etc/gw/tls.crt, key: /etc/gw/tls.key, ca: /etc/gw/ca.crt, admin_ca: /etc/gw/admin.crt,
  admin_token: /etc/gw/token}
users:
  - {name: alice, password_file: /etc/passwd, uid: 1000, gid: 100, groups: [7, 8], limits: {read: 10MiB/s}}
  - name: bob
";

/// The shares of [`EVERYTHING`].
fn both_shares() -> Vec<Share> {
    vec![
        Share {
            name: "data".into(),
            source: Source::Folder("/usr".into()),
            homes: false,
            protocols: Protocols::Smb,
            read_only: true,
            cross: false,
            squash: Squash::None,
            sec: Secs::default(),
            nfs_locks: NfsLocks::Advisory,
            durability: Durability::Relaxed,
            clients: Some(vec!["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()]),
            hidden: true,
            export: None,
            audit: vec![crate::Audited::Writes],
            force: Force {
                user: Some(Who::User("alice".into())),
                group: Some(Who::Group("7".into())),
            },
            wastebasket: None,
            time_machine: None,
            masks: Masks { file: Some(Mode(0o660)), folder: Some(Mode(0o2770)) },
            list: List::Visible,
            symlinks: Symlinks::Client,
            access: Some(Access {
                admin: vec![],
                read: vec![Who::User("alice".into()), Who::Group("7".into())],
                write: vec![Who::User("BOB".into())],
                deny: vec![Who::User("9".into()), Who::Everyone],
            }),
            encrypt: true,
            compress: true,
            links: crate::Links::default(),
            snapshots: Some(".zfs/snapshot/{time:%Y-%m-%d_%H%M%S}".parse().unwrap()),
            size: Some(2 << 40),
            limits: rates::of_share(),
            tls: ShareTls::Offered,
            guest: true,
            continuous_availability: true,
            comment: "What we have".into(),
        },
        Share {
            export: Some("/srv/nfs/scratch".parse().unwrap()),
            tls: ShareTls::Mutual,
            squash: Squash::All,
            sec: "krb5p:sys".parse().unwrap(),
            clients: Some(vec![
                "192.0.2.7/32".parse().unwrap(),
                Client {
                    from: "192.0.2.0/24".parse().unwrap(),
                    protocols: Protocols::Both,
                    read_only: true,
                    squash: Some(Squash::Root),
                    anonuid: Some(7),
                    anongid: Some(8),
                },
                "*.lab".parse().unwrap(),
                Client {
                    protocols: Protocols::Smb,
                    ..crate::Whom::Netgroup("hosts".into()).into()
                },
            ]),
            ..Share::new("scratch", Source::Memory)
        },
    ]
}

fn kerberos() -> crate::Kerberos {
    crate::Kerberos {
        realm: Some("LAB.TEST".parse().unwrap()),
        names: vec!["gw".parse().unwrap(), "gw.lab.test".parse().unwrap()],
        map: crate::KerberosMap::Rid,
        rid_base: 5000,
        ..crate::Kerberos::new("/etc/gw.keytab")
    }
}

#[test]
fn every_key_is_accepted() {
    let settings = read(EVERYTHING).unwrap();
    assert_eq!(
        settings,
        Settings {
            shares: both_shares(),
            bind: vec!["192.0.2.1".parse().unwrap(), "::1".parse().unwrap()],
            rdma: Rdma::Iwarp,
            rdma_crc: RdmaCrc::Always,
            rdma_spin: Some(Duration::from_micros(20)),
            rdma_relaxed_ordering: crate::RelaxedOrdering::On,
            rdma_dscp: Some(crate::Dscp(26)),
            nfs_port: 12049,
            nfs_rdma_port: 0,
            smb: Smb {
                asked_for: true,
                port: 1445,
                direct_port: 0,
                signing: Signing::Offered,
                encryption: Encryption::Required,
                rdma_transforms: RdmaTransforms::Off,
                directory_leases: crate::DirectoryLeases::Off,
                compression: crate::Compression::On,
                ntlm: crate::Ntlm::Off,
                password_length: crate::PasswordLength(16),
                model: "MacSamba".parse().unwrap(),
            },
            kerberos: Some(kerberos()),
            domain_by: None,
            audit: Some(crate::Audit { to: crate::AuditTo::Journal, required: true }),
            users: rates::users(),
            users_from: None,
            tls: Some(Tls {
                certificate: "/etc/gw/tls.crt".into(),
                key: "/etc/gw/tls.key".into(),
                ca: Some("/etc/gw/ca.crt".into()),
                admin_ca: Some("/etc/gw/admin.crt".into()),
                admin_token: Some("/etc/gw/token".into()),
            }),
            state: "/var/lib/gw".into(),
            records: None,
            lease: Duration::from_secs(30),
            grace: Duration::from_secs(45),
            courtesy: Duration::from_secs(7_200),
            recall: Duration::from_secs(20),
            portmap: Portmap::Own,
            domain: Some("example.org".parse().unwrap()),
            names: crate::Names::Own,
            privileges: crate::Privileges::default(),
            on_host: std::collections::BTreeMap::new(),
            memory: 1 << 30,
            connections: 64,
            limits: rates::with(Limits { nfs_clients: 500, ..limits(32, 24, 1000, 20) }),
            admin: crate::Admin::At(([127, 0, 0, 1], 9000).into()),
            admin_clients: ["192.0.2.0/24", "2001:db8::/32"].map(|c| c.parse().unwrap()).into(),
            privileged_ports: crate::PrivilegedPorts::Required,
            discovery: crate::Discovery::Off,
            drain: Duration::from_secs(20),
            log: "warn,nfsrdma=debug".parse().unwrap(),
            log_format: crate::LogFormat::Json,
            warnings: Vec::new(),
        }
    );
}

#[test]
fn options_equal_file_settings() {
    let options = Options {
        bind: vec!["192.0.2.1".parse().unwrap()],
        rdma: Some(Rdma::Off),
        nfs_port: Some("12049".parse().unwrap()),
        lease: Some("30s".parse().unwrap()),
        users: vec!["alice=/etc/passwd,uid=7".parse().unwrap()],
        smb_port: Some("1445".parse().unwrap()),
        smb_signing: Some(Signing::Offered),
        ..shares(&["data=/usr,ro,squash=none,clients=10.0.0.0/8", "scratch=mem:"])
    };
    let text = "\
shares:
  - {name: data, path: /usr, read_only: true, squash: none, clients: 10.0.0.0/8}
  - {name: scratch, memory: true}
bind: 192.0.2.1
rdma: off
nfs: {port: 12049, lease: 30s}
smb: {port: 1445, signing: offered}
users: [{name: alice, password_file: /etc/passwd, uid: 7}]
";
    assert_eq!(read_with("", options).unwrap(), read(text).unwrap());
}

#[test]
fn clients_need_unique_origin() {
    let told = told("\
shares:
  - {name: a, memory: true, clients: [{read_only: true}, {form: 10.0.0.0/8}, 10.0.0.0/8, {from: 10.0.0.0/8}]}
");
    assert!(told.contains("gw.yaml:2:39: this entry names no client"), "{told}");
    assert!(
        told.contains("a client has no key `form`") && told.contains("did you mean `from`?"),
        "{told}"
    );
    assert!(told.contains("10.0.0.0/8 is named twice"), "{told}");
    assert_eq!(told.matches("error:").count(), 3, "{told}");
    let shown = read(EVERYTHING).unwrap().shares[1].clients.as_ref().unwrap()[1].to_string();
    assert_eq!(shown, "192.0.2.0/24(ro,squash=root,anonuid=7,anongid=8)");
}

#[test]
fn weakest_squash_is_of_any_client() {
    let share = |clients: &str| {
        let text =
            format!("shares: [{{name: a, memory: true, squash: root, clients: {clients}}}]\n");
        read(&text).unwrap().shares[0].weakest_squash()
    };
    assert_eq!(share("[10.0.0.0/8, {from: 10.1.0.0/16, squash: all}]"), Squash::Root);
    assert_eq!(share("[10.0.0.0/8, {from: 10.1.0.0/16, squash: none}]"), Squash::None);
    assert_eq!(share("{from: 10.1.0.0/16, squash: all}"), Squash::All);
    assert_eq!(share("{from: 10.1.0.0/16, squash: all, anonuid: 0}"), Squash::None);
    assert_eq!(share("{from: 10.1.0.0/16, anonuid: 7, anongid: 0}"), Squash::Root);
}

#[test]
fn path_may_end_in_user_placeholder() {
    let share = |path: &str| {
        let text = format!("shares: [{{name: a, path: '{path}'}}]\n");
        read(&text).map(|settings| settings.shares[0].clone()).map_err(|e| e.to_string())
    };
    let homes = share("/tmp/{user}").unwrap();
    assert_eq!((homes.homes, homes.source.to_string()), (true, "/tmp".into()));
    assert_eq!(homes.files(), "/tmp/{user}");
    assert!(!share("/tmp").unwrap().homes);
    for path in ["/tmp/{user}/files", "/tmp/x{user}", "/{user}/{user}"] {
        let why = share(path).unwrap_err();
        assert!(why.contains("the whole last part of a path"), "{path}: {why}");
    }
    assert!(share("/nowhere/{user}").unwrap_err().contains("there is no folder /nowhere"));
    let option: ShareOption = "home=/tmp/{user},ro,durability=relaxed".parse().unwrap();
    assert_eq!(option.0.durability, Durability::Relaxed);
    assert!(
        option.0.homes && option.0.read_only && option.0.source == Source::Folder("/tmp".into())
    );
    let told = told("shares: [{name: a, path: '/tmp/{user}', guest: true}]\n");
    assert!(told.contains("has a folder for each user, but guests have no folder"), "{told}");
}

#[test]
fn modes_are_octal_and_bounded() {
    let told = told(
        "\
shares:
  - {name: a, memory: true, masks: {file: 2660, folder: 4770}, list: some}
  - {name: b, memory: true, masks: {file: 660x, folder: 77}, force: {user: '*', group: ''}}
",
    );
    for part in [
        "gw.yaml:2:43: 2660 is not a mask for new files",
        "write only permission bits, like `0660`",
        "4770 is not a mask for new folders",
        "`some` is not a mode of listings; write `all` or `visible`",
        "`660x` is not a mode; write octal digits like `0660`",
        "`77` is not a mode",
        "`*` is not a single user or group",
        "`` is not a single user or group",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let text =
        "state: /with-users\nshares: [{name: a, memory: true, force: {user: eve, group: stuff}}]\n";
    let told = read(text).unwrap_err().to_string();
    assert!(told.contains("there is no user `eve`"), "{told}");
    assert!(told.contains("this host has no group `stuff`"), "{told}");
    let text =
        "shares: [{name: a, memory: true, force: {group: '@staff'}, masks: {folder: '02770'}}]\n";
    let share = read(text).unwrap().shares.remove(0);
    assert_eq!(share.force.group, Some(Who::Group("staff".into())));
    assert_eq!(share.masks.folder.map(|m| m.to_string()), Some("2770".into()));
}

#[test]
fn access_requires_valid_names() {
    for nothing in ["{}", "{read: []}"] {
        let told = told_of_access(nothing, "").unwrap_err();
        assert!(told.contains("`access` names no user and no group"), "{told}");
    }
    let told = told_of_access("[alice]", "").unwrap_err();
    assert!(told.contains("`access` is a group of keys, not a list"), "{told}");
    let told = told_of_access("{raed: alice}", "").unwrap_err();
    assert!(told.contains("did you mean `read`?") && !told.contains("names no user"), "{told}");
    let told = told_of_access(r#"{read: "@"}"#, "").unwrap_err();
    assert!(told.contains("`@` is not a user or a group; write a user like `alice`"), "{told}");
    let many = format!("{{read: {:?}}}", (0..1025).map(|n| n.to_string()).collect::<Vec<_>>());
    let told = told_of_access(&many, "").unwrap_err();
    assert!(told.contains("the share `a` names more than 1024 users and groups"), "{told}");
}

#[test]
fn options_override_file_and_add_shares() {
    let text = "shares: [{name: a, memory: true}]\nnfs: {port: 1, lease: 20s}\n";
    let options = Options { nfs_port: Some("2".parse().unwrap()), ..shares(&["b=mem:"]) };
    let settings = read_with(text, options).unwrap();
    assert_eq!(settings.nfs_port, 2);
    assert_eq!(settings.shares.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    // A missing grace period follows the lease.
    assert_eq!(settings.grace, Duration::from_secs(20));
}

#[test]
fn option_folder_becomes_absolute() {
    let settings = read_with("", shares(&["here=."])).unwrap();
    let Source::Folder(path) = &settings.shares[0].source else { panic!("a folder") };
    assert!(path.is_absolute());
}

#[test]
fn misspelt_key_suggests_known_key() {
    assert_eq!(
        told("shares:\n  - name: data\n    path: /usr\n    sqaush: root\n"),
        "\
error: gw.yaml:4:5: a share has no key `sqaush`
  |
4 |     sqaush: root
  |     ^
  = did you mean `squash`?"
    );
}

#[test]
fn unknown_key_lists_known_keys() {
    assert_eq!(
        told("shares: [{name: d, memory: true}]\nencryption: true\n"),
        "\
error: gw.yaml:2:1: the configuration has no key `encryption`
  |
2 | encryption: true
  | ^
  = the keys are `shares`, `users`, `users_from`, `bind`, `rdma`, `rdma_crc`, `rdma_spin`, `state`, `records`, `recall`, `memory`, \
         `connections`, `admin`, `admin_clients`, `privileged_ports`, `discovery`, `drain`, `names`, \
         `limits`, `log`, `nfs`, `smb`, `tls`, `kerberos`, `domain`, `privileges`, `audit`"
    );
}

#[test]
fn duplicate_key_is_refused() {
    assert_eq!(
        told("shares: [{name: d, memory: true}]\nrdma: auto\nrdma: off\n"),
        "\
error: gw.yaml:3:1: `rdma` is set twice
  |
3 | rdma: off
  | ^
  = remove one of the two"
    );
}

#[test]
fn wrong_type_is_refused() {
    assert_eq!(
        told("shares: data\nnfs: [2049]\nrdma_crc: {a: b}\n"),
        "\
error: gw.yaml:1:9: `shares` is a list, not a single value
  |
1 | shares: data
  |         ^
  = begin each share with `- name: NAME`
error: gw.yaml:2:6: `nfs` is a group of keys, not a list
  |
2 | nfs: [2049]
  |      ^
  = the keys are `port`, `rdma_port`, `lease`, `grace`, `courtesy`, `portmap`, `domain`
error: gw.yaml:3:11: expected a single value, found a group of keys
  |
3 | rdma_crc: {a: b}
  |           ^"
    );
}

#[test]
fn wrong_values_suggest_a_fix() {
    let text = "\
shares:
  - {name: d, memory: true, squash: me, read_only: maybe, clients: [10.1.2.3/8]}
nfs: {port: 65536, lease: 30, domain: a@b}
names: all
memory: 64MB
connections: many
bind: localhost
state: state
rdma: roce
";
    let whats: Vec<String> = read(text).unwrap_err().0.into_iter().map(|f| f.what).collect();
    assert_eq!(
        whats,
        [
            "`me` is not a squash mode; write `root`, `all` or `none`",
            "`maybe` is neither `true` nor `false`",
            "`10.1.2.3/8` names a host inside a range; write `10.0.0.0/8`",
            "`65536` is not a port; write a number from 1 to 65535, or 0 for any free one",
            "`30` is not a span of time; write a number with ms, s, m or h, like `30s`",
            "`a@b` is not a domain; write at most 128 letters, digits, `.`, `-` and `_`, like `example.org`",
            "`all` is not a source of names; write `host` or `own`",
            "`64MB` is not a size; write a number with KiB, MiB, GiB or TiB, like `256MiB`",
            "`many` is not a whole number",
            "`localhost` is a name; write an address of this host, like `192.0.2.1` (`getent ahosts localhost` shows its own)",
            "`state` is not an absolute path; begin it with `/`",
            "`roce` is not an RDMA provider; write `auto`, `iwarp`, `verbs` or `off`",
        ]
    );
}

#[test]
fn uid_minus_one_is_refused() {
    for place in [
        "force: {user: 4294967295, group: 7}",
        "force: {user: '04294967295', group: 7}",
        "force: {group: 4294967295}",
        "clients: [{from: 10.0.0.0/8, anonuid: 4294967295}]",
        "clients: [{from: 10.0.0.0/8, anongid: 4294967295}]",
    ] {
        let text = |place: &str| format!("shares: [{{name: a, memory: true, {place}}}]\n");
        let told = told(&text(place));
        assert!(
            told.contains("4294967295` is not the number of a user or group: chown(2)"),
            "{place}: {told}"
        );
        assert!(read(&text(&place.replace("4294967295", "4294967294"))).is_ok(), "{place}");
    }
    let told = told("shares: [{name: a, memory: true}]\nusers: [{name: b, uid: 4294967295}]\n");
    assert!(told.contains("`4294967295` is not the number of a user or group"), "{told}");
}

#[test]
fn invalid_yaml_is_located() {
    assert_eq!(
        told("shares:\n  - name: data\n   path: /usr\n"),
        "\
error: gw.yaml:3:4: this is not YAML: did not find expected '-' indicator at line 3 column 4, while parsing a block \
collection at line 2 column 3
  |
3 |    path: /usr
  |    ^"
    );
}

#[test]
fn incomplete_share_is_refused() {
    assert_eq!(
        told("shares:\n  - path: /usr\n  - name: x\n  - {name: y, path: /usr, memory: true}\n"),
        "\
error: gw.yaml:2:5: this share has no name
  |
2 |   - path: /usr
  |     ^
  = add `name: NAME`; clients see `/NAME`
error: gw.yaml:3:5: this share has no folder
  |
3 |   - name: x
  |     ^
  = add `path: /FOLDER`, `ceph: {filesystem: NAME}` for one in CephFS, `memory: true`, or `refer: HOST:/PATH`
error: gw.yaml:4:35: this share has both `path` and `memory`
  |
4 |   - {name: y, path: /usr, memory: true}
  |                                   ^
  = remove `path` or `memory`"
    );
}

#[test]
fn equal_share_names_are_refused() {
    assert_eq!(
        told(
            "shares:\n  - {name: d, memory: true}\n  - {name: d, memory: true}\n  - {name: same1, memory: true}\n  \
             - {name: same2, memory: true}\n"
        ),
        "\
error: gw.yaml:3:12: there are two shares named `d`
  |
3 |   - {name: d, memory: true}
  |            ^
  = give one of them another name
error: gw.yaml:5:12: the shares `same1` and `same2` would have the same number in file handles
  |
5 |   - {name: same2, memory: true}
  |            ^
  = give one of them another name"
    );
}

#[test]
fn missing_folder_is_refused() {
    assert_eq!(
        told("shares:\n  - {name: a, path: /no/such}\n  - {name: b, path: /etc/passwd}\n"),
        "\
error: gw.yaml:2:21: there is no folder /no/such
  |
2 |   - {name: a, path: /no/such}
  |                     ^
  = create it (`mkdir -p /no/such`), or name another one
error: gw.yaml:3:21: /etc/passwd is not a folder
  |
3 |   - {name: b, path: /etc/passwd}
  |                     ^
  = name the folder it is in"
    );
    assert_eq!(
        told_options(shares(&["a=/no/such"])),
        "\
error: --share: there is no folder /no/such
  = create it (`mkdir -p /no/such`), or name another one"
    );
}

#[test]
fn configuration_without_shares_is_refused() {
    let nothing = "\
error: there is nothing to serve
  = write `shares: [{name: data, path: /srv/data}]` into a file for `--config FILE`, or give `--share data=/srv/data`";
    assert_eq!(told(""), nothing);
    assert_eq!(told("shares: []"), nothing);
    assert_eq!(told("shares:\n  # - name: data\n  #   path: /srv/data\n"), nothing);
}

#[test]
fn nested_nfs_paths_are_refused() {
    let of = |keys: [&str; 2]| {
        let [a, b] = keys;
        let text =
            format!("shares: [{{name: a, memory: true{a}}}, {{name: b, memory: true{b}}}]\n");
        read(&text).map(|_| ()).map_err(|faults| faults.to_string())
    };
    for sound in [
        [", export: /srv/nfs/a", ", export: /srv/nfs/b"],
        [", export: /b", ", export: /a"],
        ["", ", export: /srv/a"],
        [", export: /srv/nfs", ", export: /srv/nfs-2/b"],
        [", export: /b, protocols: nfs", ", protocols: smb"],
    ] {
        assert_eq!(of(sound), Ok(()), "{sound:?}");
    }
    for (wrong, told) in [
        (
            [", export: /x", ", export: /x"],
            "would mount the shares `a` and `b` by the same path, /x",
        ),
        (["", ", export: /a"], "would mount the shares `a` and `b` by the same path, /a"),
        (
            ["", ", export: /a/b"],
            "the path /a/b of the share `b` lies below /a, that of the share `a`",
        ),
        (
            [", export: /s/x/y", ", export: /s"],
            "the path /s/x/y of the share `a` lies below /s, that of the share `b`",
        ),
        ([", export: srv", ""], "`srv` is not an absolute path"),
        ([", export: /", ""], "`/` holds all shares"),
        (
            [", export: /x, protocols: smb", ""],
            "`a` is served over SMB only, and `export` is for NFS",
        ),
    ] {
        let why = of(wrong).expect_err(told);
        assert!(why.contains(told), "{wrong:?}: {why}");
    }
}

#[test]
fn share_without_users_is_refused() {
    assert_eq!(
        told("shares:\n  - name: d\n    memory: true\n    clients: []\n"),
        "\
error: gw.yaml:4:14: no client may use this share: the list of clients is empty
  |
4 |     clients: []
  |              ^
  = name clients, or remove `clients` to allow directly attached networks"
    );
}

#[test]
fn conflicting_values_are_refused() {
    let with = |rest: &str| told(&format!("shares: [{{name: d, memory: true}}]\n{rest}"));
    assert_eq!(
        with("nfs: {port: 20049}\n"),
        "\
error: gw.yaml:2:13: NFS over TCP and NFS over RDMA cannot share port 20049
  |
2 | nfs: {port: 20049}
  |             ^
  = the usual ports are 2049 and 20049"
    );
    assert_eq!(
        with("nfs: {lease: 60s, grace: 30s}\n"),
        "\
error: gw.yaml:2:26: a grace period of 30s is shorter than the lease of 1m
  |
2 | nfs: {lease: 60s, grace: 30s}
  |                          ^
  = write 1m or more, or clients lose their locks at a restart"
    );
    assert_eq!(
        with("bind: [0.0.0.0, 192.0.2.1]\n"),
        "\
error: gw.yaml:2:8: 0.0.0.0 already covers every address of its family
  |
2 | bind: [0.0.0.0, 192.0.2.1]
  |        ^
  = name either all addresses or single ones"
    );
    // The RDMA port is unused without RDMA.
    assert!(read("shares: [{name: d, memory: true}]\nrdma: off\nnfs: {port: 20049}\n").is_ok());
}

#[test]
fn state_folder_inside_share_is_refused() {
    assert_eq!(
        told("shares:\n  - {name: all, path: /}\n"),
        "\
error: gw.yaml:2:23: the state folder /var/lib/headgate is inside the share `all`, where clients could change it
  |
2 |   - {name: all, path: /}
  |                       ^
  = name a folder outside of every share"
    );
    let options = Options { state: Some("/usr/x/y".into()), ..shares(&["u=/usr"]) };
    assert_eq!(
        told_options(options),
        "\
error: --state: the state folder /usr/x/y is inside the share `u`, where clients could change it
  = name a folder outside of every share"
    );
}

#[test]
fn values_outside_limits_are_refused() {
    let with = |rest: &str| {
        let text = format!("shares: [{{name: d, memory: true}}]\n{rest}");
        let fault = read(&text).unwrap_err().0.remove(0);
        (fault.what, fault.help.unwrap())
    };
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    assert_eq!(
        with("memory: 1MiB"),
        pair("1MiB of payload memory is too little", "write 16MiB or more")
    );
    assert_eq!(
        with("connections: 0"),
        pair("`connections: 0` is out of range", "choose a number from 1 to 100000")
    );
    assert_eq!(
        with("connections: 10\nlimits: {client_connections: 11}"),
        pair(
            "`client_connections: 11` is out of range",
            "choose a number from 1 to 10, which is `connections`"
        )
    );
    let memory = "`client_memory: 64MiB` is out of range";
    assert_eq!(
        with("memory: 32MiB\nlimits: {client_memory: 64MiB}"),
        pair(memory, "choose a size from 16MiB to 32MiB, which is `memory`")
    );
    assert_eq!(
        with("limits: {client_opens: 0}"),
        pair("`client_opens: 0` is out of range", "choose a number from 1 to 1048576")
    );
    assert_eq!(
        with("limits: {introduction: 10ms}"),
        pair(
            "`introduction: 10ms` is out of range",
            "choose a time from 1s to 10m; the default is 45s"
        )
    );
    assert_eq!(
        with("nfs: {lease: 2h}"),
        pair("`lease: 2h` is out of range", "choose a time from 1s to 1h; the default is 90s")
    );
    assert_eq!(with("nfs: {grace: 2h}"), pair("`grace: 2h` is out of range", "choose at most 1h"));
    assert_eq!(
        with("nfs: {courtesy: 721h}"),
        pair("`courtesy: 721h` is out of range", "choose at most 720h; the default is 24h")
    );
    assert_eq!(
        with("limits: {nfs_clients: 0}"),
        pair("`nfs_clients: 0` is out of range", "choose a number from 1 to 1048576")
    );
}

#[test]
fn unreadable_or_large_file_is_refused() {
    let told =
        |path: &Path| crate::load(Some(path), Options::default(), KNOWN).unwrap_err().to_string();
    assert_eq!(
        told(Path::new("/no/such.yaml")),
        "error: /no/such.yaml: cannot read the configuration: No such file or directory (os error 2)"
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("big.yaml");
    std::fs::write(&path, vec![b'#'; (1 << 20) + 1]).unwrap();
    assert_eq!(
        told(&path),
        format!("error: {}: the configuration is larger than 1MiB", path.display())
    );
    std::fs::write(&path, [0xff, 0xfe, 0xfd]).unwrap();
    assert!(
        told(&path).contains("cannot read the configuration: stream did not contain valid UTF-8")
    );
}

#[test]
fn fault_list_is_limited() {
    let text = format!("shares:\n{}", "  - {name: '/'}\n".repeat(500));
    assert_eq!(read(&text).unwrap_err().0.len(), 20);
    let many = format!("shares:\n{}", "  - {name: a, memory: true}\n".repeat(300));
    assert_eq!(read(&many).unwrap_err().0[0].what, "there are more than 256 shares");
}

#[test]
fn nested_yaml_aliases_are_bounded() {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for i in 1..12 {
        let one = format!("*a{}, ", i - 1).repeat(10);
        text += &format!("a{i}: &a{i} [{}]\n", one.trim_end_matches(", "));
    }
    assert!(read(&text).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn arbitrary_text_never_panics(text in "\\PC{0,200}") {
        let _ = read(&text).map_err(|f| f.to_string());
        let _ = text.parse::<ShareOption>();
    }

    #[test]
    fn arbitrary_yaml_never_panics(
        parts in prop::collection::vec(prop::sample::select(vec![
            "shares", "name", "path", "memory", "nfs", "lease", "clients", "bind", ": ", "- ", "\n", "\n  ", "[", "]",
            "{", "}", ", ", "true", "30s", "0", "&a ", "*a", "!t ", "'", "\"", "|\n", "# ", "/usr", "mem:", "\t", "~", "<<",
            "? ", "--- ", "ä", "\u{0}",
        ]), 0..40)
    ) {
        let _ = read(&parts.concat()).map_err(|f| f.to_string());
    }
}

#[test]
fn user_and_smb_faults_are_refused() {
    assert_eq!(
        told(
            "\
shares:
  - {name: Data, path: /usr}
  - {name: data, path: /tmp, encrypt: yes}
users:
  - {name: 'a:b'}
  - {name: alice, password_file: /no/such}
  - {name: Alice, uid: me}
smb: {port: 2049, signing: maybe}
"
        ),
        "\
error: gw.yaml:3:12: SMB clients cannot tell the shares `Data` and `data` apart
  |
3 |   - {name: data, path: /tmp, encrypt: yes}
  |            ^
  = SMB ignores case in names; choose another name
error: gw.yaml:3:39: `yes` is neither `true` nor `false`
  |
3 |   - {name: data, path: /tmp, encrypt: yes}
  |                                       ^
error: gw.yaml:5:12: the user name \"a:b\" holds ':', which Windows does not allow there
  |
5 |   - {name: 'a:b'}
  |            ^
error: gw.yaml:6:34: there is no password file /no/such
  |
6 |   - {name: alice, password_file: /no/such}
  |                                  ^
  = write the password into its first line and `chmod 600` it, or use `headgate user add`
error: gw.yaml:7:12: there are two users named `Alice`
  |
7 |   - {name: Alice, uid: me}
  |            ^
  = remove one of the two; case in user names is ignored
error: gw.yaml:7:24: `me` is not the number of a user or group
  |
7 |   - {name: Alice, uid: me}
  |                        ^
error: gw.yaml:8:13: NFS over TCP and SMB over TCP cannot share port 2049
  |
8 | smb: {port: 2049, signing: maybe}
  |             ^
  = the usual ports are 445 for SMB and 5445 for SMB Direct
error: gw.yaml:8:28: `maybe` is not a signing mode; write `required` or `offered`
  |
8 | smb: {port: 2049, signing: maybe}
  |                            ^"
    );
    let told = told(
        "shares: [{name: a, memory: true, encrypt: true}]\nsmb: {encryption: off}\nusers: alice\n",
    );
    assert!(told.contains("encryption is off, but the share `a` requires it"), "{told}");
    assert!(told.contains("begin each user with `- name: NAME`"), "{told}");
}

/// The documented default of a key equals the actual default. `rdma` is also a group, so its default is in the group.
#[test]
fn documented_defaults_are_actual() {
    let bare = "shares:\n  - name: a\n    memory: true\n";
    let mut said = bare.to_owned();
    for group in crate::keys::GROUPS.iter().filter(|g| {
        !g.is_list
            && !"access privileges force masks wastebasket time_machine ceph tls kerberos domain audit cluster rates users_from"
                .split(' ')
                .any(|n| n == g.name)
            && !g.name.contains(' ')
    }) {
        if !group.name.is_empty() {
            said += &format!("{}:\n", group.name);
        }
        let indent = if group.name.is_empty() { "" } else { "  " };
        // `burst` needs a rate.
        let is_read = |k: &&crate::keys::Key| (k.name, indent) != ("rdma", "") && k.name != "burst";
        for k in group.keys.iter().filter(is_read) {
            let unset = if k.default.is_empty() { "# " } else { indent };
            said += &format!("{unset}{}: {}\n", k.name, k.default);
        }
    }
    let said = read(&said).unwrap();
    let unsaid = read(bare).unwrap();
    assert!(said.smb.asked_for);
    assert_eq!(said.admin.to_string(), unsaid.admin.to_string());
    let smb = Smb { asked_for: unsaid.smb.asked_for, ..said.smb.clone() };
    assert_eq!(Settings { smb, admin: unsaid.admin, ..said }, unsaid);
    let share =
        crate::keys::SHARE.keys.iter().filter(|k| !k.default.is_empty() && k.name != "memory");
    let said: String = share.map(|k| format!("    {}: {}\n", k.name, k.default)).collect();
    assert_eq!(read(&format!("{bare}{said}")).unwrap(), read(bare).unwrap());
}
