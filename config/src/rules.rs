//! Rules that combine several values, and the conversion of file and options to [`Settings`].

mod audit;
mod kerberos;
mod ldap;
mod people;
mod tls;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::access::{OnHost, Who};
use crate::elsewhere::Elsewhere;
use crate::fault::Faults;
use crate::file::{Draft, DraftShare, DraftUser, draft};
use crate::in_time::{self, LOOK_MAX};
use crate::options::Options;
use crate::paths::real_in_time;
use crate::reader::{Finding, Origin, Report, Set};
use crate::records;
use crate::rights::Symlinks;
use crate::settings::{
    Admin, Compression, Discovery, Encryption, Limits, Portmap, Rdma, Settings, Share, Smb, Source,
    user_name,
};
use crate::text::{FAULTS_MAX, faults, located, read_text, root, text_of};
use crate::tree;
use crate::units::{PasswordLength, Size, Span, Spin};

/// Maximum number of shares, which are searched by name at every mount and by number at every request.
const SHARES_MAX: usize = 256;
/// Maximum number of users in the configuration; the database holds more.
const USERS_MAX: usize = 1024;
const MEMORY_MIN: u64 = 16 << 20;
const CONNECTIONS_MAX: usize = 100_000;
const CLIENT_OPENS_MAX: usize = 1_048_576;
const NFS_CLIENTS_MAX: usize = 1_048_576;
const INTRODUCTION_MIN: Duration = Duration::from_secs(1);
const INTRODUCTION_MAX: Duration = Duration::from_secs(600);
const RECALL_MIN: Duration = Duration::from_secs(1);
/// A break has up to three steps of this length, and another client waits for all of them.
const RECALL_MAX: Duration = Duration::from_secs(300);
const DRAIN_MAX: Duration = Duration::from_secs(600);
const LEASE_MIN: Duration = Duration::from_secs(1);
const LEASE_MAX: Duration = Duration::from_secs(3600);
/// Thirty days.
const COURTESY_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// The name service's answers for users and groups, in the order of the query; `None`: no such name.
type FoundOnHost = Vec<Option<OnHost>>;

/// Facts that other crates supply about names in a configuration.
#[derive(Clone, Copy)]
pub struct Known {
    /// Returns the number of the share with this name in file handles.
    pub share_id: fn(&str) -> u32,
    /// Checks that this file has a password; the error describes the fault.
    pub password: fn(&Path) -> Result<(), String>,
    /// Checks that this is a usable keytab that only its owner can read; the error describes the fault.
    pub keytab: fn(&Path) -> Result<(), String>,
    /// Returns the users in the database of this state folder; `None` if it cannot be read, which is no fault of the configuration.
    pub users: fn(&Path) -> Option<Vec<String>>,
    /// Returns what the host knows of these users and groups, in the same order. The error explains why the service failed. Blocks.
    pub host: fn(&[Who]) -> Result<FoundOnHost, String>,
    /// Whether the gateway starts. At a start, users and groups that the host cannot look up are warnings; their shares open later.
    pub is_start: bool,
    /// Returns the memory that this process may use, in bytes, and the origin of the limit (machine or control group), if known.
    pub memory: fn() -> Option<(u64, &'static str)>,
}

/// Reads the file, if given, applies the options, and checks the result.
pub fn load(file: Option<&Path>, options: Options, known: Known) -> Result<Settings, Faults> {
    let text = match file {
        Some(path) => text_of(path)?,
        None => String::new(),
    };
    settle(file.unwrap_or(Path::new("")), &text, options, known)
}

/// Returns the state folder that a file names, even if the rest of it is invalid; for commands that look for the running daemon.
pub fn state_of(file: &Path) -> Option<PathBuf> {
    let root = tree::read(&read_text(file).ok()?).ok()?;
    draft(&root, &mut Report::default()).state.map(|s| s.value)
}

/// Returns the fewest characters of new passwords that a file names, in the same way.
pub fn password_length_of(file: &Path) -> Option<PasswordLength> {
    let root = tree::read(&read_text(file).ok()?).ok()?;
    draft(&root, &mut Report::default()).password_length.map(|s| s.value)
}

/// Returns the admin address that a file names, in the same way.
pub fn admin_of(file: &Path) -> Option<Admin> {
    let root = tree::read(&read_text(file).ok()?).ok()?;
    draft(&root, &mut Report::default()).admin.map(|s| s.value)
}

/// Does the same as [`load`] for a text that was already read; `file` appears only in messages.
pub(crate) fn settle(
    file: &Path,
    text: &str,
    mut options: Options,
    known: Known,
) -> Result<Settings, Faults> {
    let root = root(file, text)?;
    let mut report = Report::default();
    crate::cluster::refuse_elsewhere(&root, &mut report);
    if !report.0.is_empty() {
        // In another kind of file every key would be a fault, so report only this one.
        return Err(faults(file, text, report));
    }
    let mut draft = draft(&root, &mut report);
    // A share that could not be read is already a fault, so do not report "no shares" as well.
    let complete = report.0.is_empty();
    let elsewhere = std::mem::take(&mut options.elsewhere);
    lay_over(&mut draft, options);
    check_shares(&draft.shares, known.share_id, &mut report);
    if complete && draft.shares.is_empty() {
        report.add_help(
            Origin::Nowhere,
            "there is nothing to serve",
            "write `shares: [{name: data, path: /srv/data}]` into a file for `--config FILE`, or give `--share data=/srv/data`",
        );
    }
    check_users(&draft.users, known, &mut report);
    people::check_passwords(&draft, known, &mut report);
    let mut people = Report::default();
    let on_host = people::check(&draft, known, &mut people);
    let unresolved = if known.is_start {
        people.0
    } else {
        report.0.extend(people.0);
        Vec::new()
    };
    check_bind(&draft.bind, &mut report);
    let mut warnings = unresolved;
    join(&mut draft.shares, elsewhere, known.share_id, &mut warnings);
    check_memory(draft.memory.as_ref(), known.memory, &mut report, &mut warnings);
    check_sec(&draft, &mut report);
    let kerberos = kerberos::check(&draft, known.keytab, &mut report);
    let domain_by = kerberos::domain_by(&draft);
    let audit = audit::check(&draft, &mut report);
    let users_from = ldap::check(&draft, known, &mut report);
    let values = check_values(draft, &mut report);
    let settings = Settings { on_host, kerberos, domain_by, audit, users_from, ..values };
    if report.0.is_empty() {
        let warnings =
            warnings.into_iter().take(FAULTS_MAX).map(|f| located(file, text, f)).collect();
        return Ok(Settings { warnings, ..settings });
    }
    Err(faults(file, text, report))
}

/// Lets the options override the values of the file.
fn lay_over(draft: &mut Draft, options: Options) {
    fn over<T>(place: &mut Option<Set<T>>, value: Option<T>, name: &'static str) {
        if let Some(value) = value {
            *place = Some(Set { value, origin: Origin::Option(name) });
        }
    }
    for mut option in options.shares {
        let at = Origin::Option("--share");
        if let Source::Folder(path) = &mut option.0.source {
            *path = from_here(path);
        }
        draft.shares.push(DraftShare::of(option.0, at));
    }
    let bind = options.bind.into_iter();
    draft.bind.extend(bind.map(|value| Set { value, origin: Origin::Option("--bind") }));
    over(&mut draft.rdma, options.rdma, "--rdma");
    over(&mut draft.rdma_crc, options.rdma_crc, "--rdma-crc");
    over(&mut draft.nfs_port, options.nfs_port, "--nfs-port");
    over(&mut draft.nfs_rdma_port, options.nfs_rdma_port, "--nfs-rdma-port");
    for mut option in options.users {
        let at = Origin::Option("--user");
        option.0.password_file = option.0.password_file.map(|p| from_here(&p));
        draft.users.push(DraftUser { user: option.0, name_at: at, file_at: at });
    }
    over(&mut draft.smb_port, options.smb_port, "--smb-port");
    over(&mut draft.smb_direct_port, options.smb_direct_port, "--smb-direct-port");
    over(&mut draft.signing, options.smb_signing, "--smb-signing");
    over(&mut draft.encryption, options.smb_encryption, "--smb-encryption");
    let [certificate, key, ca] = options.tls.map(|file| file.map(|p| from_here(&p)));
    draft.tls.lay_over([(certificate, "--tls-cert"), (key, "--tls-key"), (ca, "--tls-ca")]);
    over(&mut draft.kerberos.keytab, options.keytab.map(|p| from_here(&p)), "--keytab");
    over(&mut draft.audit.to, options.audit, "--audit");
    if draft.audit.to.is_some() {
        draft.audit.at = None;
    }
    over(&mut draft.state, options.state.map(|p| from_here(&p)), "--state");
    over(&mut draft.lease, options.lease, "--lease");
    over(&mut draft.grace, options.grace, "--grace");
    over(&mut draft.portmap, options.portmap, "--portmap");
    over(&mut draft.memory, options.memory, "--memory");
    over(&mut draft.connections, options.connections, "--connections");
    over(&mut draft.admin, options.admin, "--admin");
    let at = Origin::Option("--admin-clients");
    let ranges = options.admin_clients.into_iter();
    draft.admin_clients_said |= ranges.len() > 0;
    draft.admin_clients.extend(ranges.map(|value| Set { value, origin: at }));
    over(&mut draft.privileged_ports, options.privileged_ports, "--privileged-ports");
    over(&mut draft.discovery, options.discovery, "--discovery");
    over(&mut draft.drain, options.drain, "--drain");
    over(&mut draft.log, options.log, "--log");
    over(&mut draft.log_format, options.log_format, "--log-format");
}

/// Makes a path of the command line absolute, relative to the working directory.
fn from_here(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

fn check_shares(shares: &[DraftShare], share_id: fn(&str) -> u32, report: &mut Report) {
    if let Some(first) = shares.get(SHARES_MAX) {
        report.add(first.name_at, format!("there are more than {SHARES_MAX} shares"));
        return;
    }
    for (i, s) in shares.iter().enumerate() {
        let name = &s.share.name;
        check_name(&shares[..i], s, share_id, report);
        if let Source::Folder(path) = &s.share.source {
            check_folder(path, s.source_at, report);
        }
        check_protocols(s, report);
        if s.share.homes && !s.share.links.is_empty() {
            report.add_help(
                s.name_at,
                format!("the share `{}` has a folder for each user, and `links`", s.share.name),
                "remove `links`, or give the links a share of their own",
            );
        }
        check_snapshots(s, report);
        check_size(s, report);
        if s.share.wastebasket.is_some() && !matches!(s.share.source, Source::Folder(_)) {
            report.add_help(
                s.name_at,
                format!("the share `{name}` has a wastebasket, and no folder on this host"),
                "remove `wastebasket`: only shares with a `path` have one",
            );
        }
        if s.share.wastebasket.is_some() && s.share.read_only {
            report.add_help(
                s.name_at,
                format!("the share `{name}` is read-only and has a wastebasket"),
                "remove `wastebasket`, or `read_only`",
            );
        }
        check_time_machine(s, report);
        if s.share.homes && s.share.guest {
            report.add_help(
                s.source_at,
                format!("the share `{name}` has a folder for each user, but guests have no folder"),
                "remove `guest`, or `{user}` from the path",
            );
        }
        check_paths(&shares[..i], s, share_id, report);
    }
}

/// Checks that the name is unique in NFS, in SMB, and as a number in file handles.
fn check_name(
    before: &[DraftShare],
    s: &DraftShare,
    share_id: fn(&str) -> u32,
    report: &mut Report,
) {
    let name = &s.share.name;
    let same_id = |t: &&DraftShare| share_id(&t.share.name) == share_id(name);
    if let Some(other) = before.iter().find(same_id) {
        if other.share.name == *name {
            let what = format!("there are two shares named `{name}`");
            report.add_help(s.name_at, what, "give one of them another name");
        } else {
            report.add_help(
                s.name_at,
                format!(
                    "the shares `{}` and `{name}` would have the same number in file handles",
                    other.share.name
                ),
                "give one of them another name",
            );
        }
    }
    let same_to_smb = |t: &&DraftShare| {
        t.share.name != *name && t.share.name.to_lowercase() == name.to_lowercase()
    };
    if let Some(other) = before.iter().find(same_to_smb) {
        let what =
            format!("SMB clients cannot tell the shares `{}` and `{name}` apart", other.share.name);
        report.add_help(s.name_at, what, "SMB ignores case in names; choose another name");
    }
}

/// Checks whether a share may be added to these. The error describes the conflict.
fn beside(before: &[DraftShare], s: &DraftShare, share_id: fn(&str) -> u32) -> Result<(), String> {
    let mut report = Report::default();
    if before.len() >= SHARES_MAX {
        return Err(format!("there are more than {SHARES_MAX} shares"));
    }
    check_name(before, s, share_id, &mut report);
    check_paths(before, s, share_id, &mut report);
    report.0.into_iter().next().map_or(Ok(()), |finding| Err(finding.what))
}

/// Checks that no NFS path is at or below another share's path, whose files would hide it. The folders above shares have numbers in
/// file handles like shares; 0 is the root's.
fn check_paths(
    before: &[DraftShare],
    s: &DraftShare,
    share_id: fn(&str) -> u32,
    report: &mut Report,
) {
    let (share, at) = (&s.share, s.export_at.unwrap_or(s.name_at));
    let help = "give one of them another `export`";
    if !share.protocols.nfs() {
        if let Some(export) = &share.export {
            let what = format!(
                "the share `{}` is served over SMB only, and `export` is for NFS",
                share.name
            );
            report.add_help(
                at,
                what,
                format!("remove `export: {export}`, or set `protocols: both`"),
            );
        }
        return;
    }
    let path = share.nfs_path();
    let lies_in = |path: &str, other: &str| {
        path.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let by_nfs = || before.iter().map(|o| &o.share).filter(|o| o.protocols.nfs());
    // Shares with equal names were already reported.
    let overlaps = |o: &&Share| {
        let apart = !lies_in(path, o.nfs_path()) && !lies_in(o.nfs_path(), path);
        !apart && o.name != share.name
    };
    if let Some(other) = by_nfs().find(overlaps) {
        let (a, b) = (other.nfs_path(), path);
        let what = match a.len().cmp(&b.len()) {
            Ordering::Equal => {
                format!(
                    "NFS clients would mount the shares `{}` and `{}` by the same path, /{a}",
                    other.name, share.name
                )
            }
            Ordering::Less => {
                format!(
                    "the path /{b} of the share `{}` lies below /{a}, that of the share `{}`",
                    share.name, other.name
                )
            }
            Ordering::Greater => {
                format!(
                    "the path /{a} of the share `{}` lies below /{b}, that of the share `{}`",
                    other.name, share.name
                )
            }
        };
        report.add_help(at, what, help);
        return;
    }
    let folders = |path: &'_ str| -> Vec<String> {
        path.match_indices('/').map(|(end, _)| path[..end].to_owned()).collect()
    };
    let others: Vec<String> = by_nfs().flat_map(|o| folders(o.nfs_path())).collect();
    let taken = |folder: &&String| {
        let id = share_id(folder);
        id == 0 || others.iter().any(|other| other != *folder && share_id(other) == id)
    };
    if let Some(folder) = folders(path).iter().find(taken) {
        let what = format!(
            "the folder /{folder} and another one would have the same number in file handles"
        );
        report.add_help(at, what, help);
    }
}

/// Refuses more memory than the process can have, because using it would kill this process or another. A default that is too large
/// is only a warning.
fn check_memory(
    said: Option<&Set<Size>>,
    known: fn() -> Option<(u64, &'static str)>,
    report: &mut Report,
    warnings: &mut Vec<Finding>,
) {
    let memory = said.map_or(Size(Settings::default().memory), |said| said.value);
    let Some((most, whose)) = known().filter(|(most, _)| memory.0 > *most) else { return };
    let whole = |bytes: u64| Size(bytes & !((1 << 20) - 1));
    let what = format!("{memory} of payload memory is more than the {} of {whose}", whole(most));
    let help =
        format!("write at most half of that: `memory: {}`", whole((most / 2).max(MEMORY_MIN)));
    match said {
        Some(said) => report.add_help(said.origin, what, help),
        None => warnings.push(Finding { at: Origin::Nowhere, what, help: Some(help) }),
    }
}

/// Checks that only a folder of this host has snapshots by a pattern.
fn check_snapshots(s: &DraftShare, report: &mut Report) {
    let (what, help) = match (&s.share.snapshots, &s.share.source) {
        (None, _) | (Some(_), Source::Folder(_)) => return,
        (_, Source::Ceph(_)) => (
            "is in CephFS, whose snapshots need no key",
            "remove `snapshots`: they are found in `.snap`",
        ),
        _ => ("has no folder on this host, and `snapshots`", "remove `snapshots`"),
    };
    report.add_help(s.name_at, format!("the share `{}` {what}", s.share.name), help);
}

/// Checks that only a folder of this host has a size, and that it is one.
fn check_size(s: &DraftShare, report: &mut Report) {
    const SIZE_MIN: u64 = 1 << 20;
    let what = match (s.share.size, &s.share.source) {
        (None, _) => return,
        (Some(_), Source::Ceph(_)) => {
            return report.add_help(
                s.name_at,
                format!("the share `{}` is in CephFS, and `size`", s.share.name),
                "remove `size`, and set the quota of the folder: clients see it as the size of the share \
                 (`setfattr -n ceph.quota.max_bytes -v BYTES FOLDER`)",
            );
        }
        (Some(size), Source::Folder(_)) if size >= SIZE_MIN => return,
        (Some(_), Source::Folder(_)) => "is smaller than 1MiB",
        (Some(_), _) => "has no folder on this host, and `size`",
    };
    let help = "write a size like `size: 2TiB` for a share with a `path`, or remove `size`";
    report.add_help(s.name_at, format!("the share `{}` {what}", s.share.name), help);
}

/// Checks that settings of SMB are used only in shares that SMB serves.
fn check_protocols(s: &DraftShare, report: &mut Report) {
    let (share, name) = (&s.share, &s.share.name);
    let asked = [
        ("encrypt", share.encrypt),
        ("compress", share.compress),
        ("guest", share.guest),
        ("continuous_availability", share.continuous_availability),
        ("symlinks", share.symlinks != Symlinks::default()),
    ];
    for (key, _) in asked.into_iter().filter(|(_, on)| *on && !share.protocols.smb()) {
        report.add_help(
            s.name_at,
            format!("the share `{name}` is served over NFS only, and `{key}` is for SMB"),
            format!("remove `{key}`, or set `protocols: both`"),
        );
    }
    if s.sec_at.is_some() && !share.protocols.nfs() {
        report.add_help(
            s.sec_at.unwrap_or(s.name_at),
            format!("the share `{name}` is served over SMB only, and `sec` is for NFS"),
            "remove `sec`, or set `protocols: both`",
        );
    }
}

/// Checks that a keytab exists if a share requires Kerberos.
fn check_sec(draft: &Draft, report: &mut Report) {
    if draft.kerberos.keytab.is_some() {
        return;
    }
    for s in draft.shares.iter().filter(|s| s.share.sec.want_kerberos()) {
        report.add_help(
            s.sec_at.unwrap_or(s.name_at),
            format!("the share `{}` requires Kerberos, but there is no keytab", s.share.name),
            "set `kerberos: {keytab: FILE}`, or give `--keytab FILE`",
        );
    }
}

fn check_folder(path: &Path, at: Origin, report: &mut Report) {
    let (shown, its) = (path.display(), path.to_owned());
    // If the file system does not answer, opening the share reports that; a share that is already open may remain.
    let Ok(found) = in_time::ask(path, LOOK_MAX, move || fs::metadata(its)) else { return };
    match found {
        Ok(m) if m.is_dir() => {}
        Ok(_) => {
            report.add_help(at, format!("{shown} is not a folder"), "name the folder it is in")
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => report.add_help(
            at,
            format!("there is no folder {shown}"),
            format!("create it (`mkdir -p {shown}`), or name another one"),
        ),
        Err(e) => report.add(at, format!("cannot access {shown}: {e}")),
    }
}

/// Checks that names differ in more than case and that password files can be read. Does not check that other users cannot read
/// them: a secret given to a container is often readable by everything in it.
fn check_users(users: &[DraftUser], known: Known, report: &mut Report) {
    if let Some(first) = users.get(USERS_MAX) {
        let what = format!("there are more than {USERS_MAX} users in the configuration");
        report.add_help(first.name_at, what, "keep them in the database: `headgate user add NAME`");
        return;
    }
    for (i, u) in users.iter().enumerate() {
        let name = u.user.name.to_lowercase();
        if users[..i].iter().any(|o| o.user.name.to_lowercase() == name) {
            let what = format!("there are two users named `{}`", u.user.name);
            report.add_help(
                u.name_at,
                what,
                "remove one of the two; case in user names is ignored",
            );
        }
        // An option may name a user of a domain, which only `check` reports on.
        if let Err(what) = user_name(&u.user.name) {
            report.add(u.name_at, what);
        }
        let Some(path) = &u.user.password_file else { continue };
        let help =
            "write the password into its first line and `chmod 600` it, or use `headgate user add`";
        check_password_file(path, u.file_at, (known, help), report);
    }
}

/// Checks that a password file exists and has a password. `help`: what to do without the file.
fn check_password_file(path: &Path, at: Origin, (known, help): (Known, &str), report: &mut Report) {
    let its = path.to_owned();
    let looked = in_time::ask(path, LOOK_MAX, move || fs::metadata(its))
        .unwrap_or_else(|_| Err(std::io::Error::other("its file system does not respond")));
    match looked {
        Ok(m) if m.is_dir() => {
            report.add(at, format!("{} is a folder, not a password file", path.display()));
        }
        // A pipe can be read only once, by the server, so do not open files that are not regular.
        Ok(m) if !m.is_file() => {}
        Ok(_) => {
            if let Err(what) = (known.password)(path) {
                report.add(at, what);
            }
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            report.add_help(at, format!("there is no password file {}", path.display()), help);
        }
        Err(e) => report.add(at, format!("cannot access {}: {e}", path.display())),
    }
}

/// Checks that listeners in the same port space have different ports. iWARP in user space listens on TCP ports. With `rdma: verbs`
/// only devices listen for RDMA; RoCE and InfiniBand have a separate port space in which SMB Direct uses the SMB port number. An
/// iWARP card that shares the TCP ports reports a conflict when it listens.
fn check_ports(nfs: [(u16, Origin); 2], smb: [(u16, Origin); 2], rdma: Rdma, report: &mut Report) {
    let [nfs, nfs_rdma] = [(nfs[0], "NFS over TCP"), (nfs[1], "NFS over RDMA")];
    let [smb, direct, of_devices] =
        [(smb[0], "SMB over TCP"), (smb[1], "SMB Direct"), (smb[0], "SMB Direct")];
    let spaces = match rdma {
        Rdma::Off => vec![vec![nfs, smb]],
        Rdma::Auto | Rdma::Iwarp => vec![vec![nfs, nfs_rdma, smb, direct]],
        Rdma::Verbs => vec![vec![nfs, smb], vec![nfs_rdma, of_devices, direct]],
    };
    for space in spaces {
        for (i, ((port, origin), what)) in space.iter().enumerate() {
            let same = |((other, _), name): &&((u16, Origin), &str)| other == port && name != what;
            let Some(((_, before), other)) = space[..i].iter().find(same) else { continue };
            if *port == 0 {
                continue;
            }
            let help = match *what {
                "NFS over RDMA" => "the usual ports are 2049 and 20049",
                _ => "the usual ports are 445 for SMB and 5445 for SMB Direct",
            };
            let at = if *origin == Origin::Nowhere { *before } else { *origin };
            report.add_help(at, format!("{other} and {what} cannot share port {port}"), help);
        }
    }
}

/// Checks that Time Machine can write backups to the share that is offered for them.
fn check_time_machine(s: &DraftShare, report: &mut Report) {
    let share = &s.share;
    let (why, remedy) = match share.time_machine {
        None => return,
        Some(_) if share.read_only => ("is read-only", "read_only"),
        Some(_) if !share.protocols.smb() => ("is not served over SMB", "protocols"),
        Some(_) => return,
    };
    report.add_help(
        s.name_at,
        format!("the share `{}` has `time_machine`, and {why}", share.name),
        format!("remove `time_machine`, or `{remedy}`"),
    );
}

/// Checks that no share requires encryption if encryption is off.
fn check_smb(draft: &Draft, nfs: [(u16, Origin); 2], rdma: Rdma, report: &mut Report) -> Smb {
    let default = Smb::default();
    let port = settled(draft.smb_port.clone(), crate::Port(default.port));
    let direct = settled(draft.smb_direct_port.clone(), crate::Port(default.direct_port));
    let encryption = settled(draft.encryption.clone(), default.encryption);
    let ports = [(port.value.0, port.origin), (direct.value.0, direct.origin)];
    check_ports(nfs, ports, rdma, report);
    if encryption.value == Encryption::Off
        && let Some(s) = draft.shares.iter().find(|s| s.share.encrypt)
    {
        report.add_help(
            encryption.origin,
            format!("encryption is off, but the share `{}` requires it", s.share.name),
            "write `offered`, or remove `encrypt` from the share",
        );
    }
    let compression = settled(draft.compression.clone(), default.compression);
    if compression.value == Compression::Off
        && let Some(s) = draft.shares.iter().find(|s| s.share.compress)
    {
        report.add_help(
            compression.origin,
            format!("compression is off, but the share `{}` is to be compressed", s.share.name),
            "write `on`, or remove `compress` from the share",
        );
    }
    Smb {
        asked_for: draft.smb_port.is_some() || draft.smb_direct_port.is_some(),
        port: port.value.0,
        direct_port: direct.value.0,
        signing: settled(draft.signing.clone(), default.signing).value,
        encryption: encryption.value,
        rdma_transforms: settled(draft.rdma_transforms.clone(), default.rdma_transforms).value,
        directory_leases: settled(draft.directory_leases.clone(), default.directory_leases).value,
        compression: compression.value,
        ntlm: settled(draft.ntlm.clone(), default.ntlm).value,
        password_length: settled(draft.password_length.clone(), default.password_length).value,
        model: settled(draft.model.clone(), default.model).value,
    }
}

fn check_bind(bind: &[Set<std::net::IpAddr>], report: &mut Report) {
    for (i, b) in bind.iter().enumerate() {
        if bind[..i].iter().any(|o| o.value == b.value) {
            report.add_help(
                b.origin,
                format!("{} is bound twice", b.value),
                "remove one of the two",
            );
        } else if b.value.is_unspecified() && bind.len() > 1 {
            report.add_help(
                b.origin,
                format!("{} already covers every address of its family", b.value),
                "name either all addresses or single ones",
            );
        }
    }
}

/// Returns the value and its position, or the default.
fn settled<T>(set: Option<Set<T>>, default: T) -> Set<T> {
    set.unwrap_or(Set { value: default, origin: Origin::Nowhere })
}

fn check_values(draft: Draft, report: &mut Report) -> Settings {
    let default = Settings::default();
    let rdma = settled(draft.rdma.clone(), default.rdma);
    let nfs_set = settled(draft.nfs_port.clone(), crate::Port(default.nfs_port));
    let nfs_port = nfs_set.value.0;
    let rdma_port = settled(draft.nfs_rdma_port.clone(), crate::Port(default.nfs_rdma_port));
    let nfs = [(nfs_port, nfs_set.origin), (rdma_port.value.0, rdma_port.origin)];
    let smb = check_smb(&draft, nfs, rdma.value, report);
    let tls = tls::check(&draft, report);
    let records = records::check(&draft, report);
    let connections = check_connections(draft.connections.clone(), report);
    let memory = settled(draft.memory.clone(), Size(default.memory));
    if memory.value.0 < MEMORY_MIN {
        report.add_help(
            memory.origin,
            format!("{} of payload memory is too little", memory.value),
            format!("write {} or more", Size(MEMORY_MIN)),
        );
    }
    let limits = check_limits(&draft, connections, memory.value.0, report);
    let (lease, grace) = check_times(draft.lease, draft.grace, report);
    let courtesy = check_courtesy(draft.courtesy, report);
    let recall = check_recall(draft.recall, report);
    let drain = settled(draft.drain, Span(default.drain));
    if drain.value.0 > DRAIN_MAX {
        let what = format!("`drain: {}` is out of range", drain.value);
        report.add_help(drain.origin, what, format!("choose at most {}", Span(DRAIN_MAX)));
    }
    let admin = settled(draft.admin, Admin::default());
    let is_proved = tls.as_ref().is_some_and(crate::Tls::is_for_admin);
    check_admin(&admin, draft.admin_clients_said || is_proved, report);
    let state = settled(draft.state, default.state);
    check_state(&state, &draft.shares, report);
    Settings {
        warnings: Vec::new(),
        shares: draft.shares.into_iter().map(|s| s.share).collect(),
        bind: draft.bind.into_iter().map(|b| b.value).collect(),
        rdma: rdma.value,
        rdma_crc: settled(draft.rdma_crc, default.rdma_crc).value,
        rdma_spin: settled(draft.rdma_spin, Spin(default.rdma_spin)).value.0,
        rdma_relaxed_ordering: settled(draft.relaxed_ordering, default.rdma_relaxed_ordering).value,
        rdma_dscp: draft.dscp.map(|dscp| dscp.value),
        nfs_port,
        nfs_rdma_port: rdma_port.value.0,
        smb,
        tls,
        kerberos: None,
        domain_by: None,
        audit: None,
        users: draft.users.into_iter().map(|u| u.user).collect(),
        users_from: None,
        state: state.value,
        records,
        lease,
        grace,
        courtesy,
        recall,
        portmap: settled(draft.portmap, Portmap::Auto).value,
        domain: draft.domain.map(|d| d.value),
        names: settled(draft.names, default.names).value,
        memory: memory.value.0,
        connections,
        limits,
        admin: admin.value,
        admin_clients: draft.admin_clients.into_iter().map(|c| c.value).collect(),
        privileged_ports: settled(draft.privileged_ports, default.privileged_ports).value,
        discovery: settled(draft.discovery, Discovery::On).value,
        drain: drain.value.0,
        log: settled(draft.log, default.log).value,
        log_format: settled(draft.log_format, default.log_format).value,
        privileges: draft.privileges,
        on_host: BTreeMap::new(),
    }
}

/// Checks the limit on connections.
fn check_connections(connections: Option<Set<usize>>, report: &mut Report) -> usize {
    let connections = settled(connections, Settings::default().connections);
    if !(1..=CONNECTIONS_MAX).contains(&connections.value) {
        report.add_help(
            connections.origin,
            format!("`connections: {}` is out of range", connections.value),
            format!("choose a number from 1 to {CONNECTIONS_MAX}"),
        );
    }
    connections.value
}

/// Checks that the limits per client are positive and do not exceed the totals.
fn check_limits(draft: &Draft, connections: usize, memory: u64, report: &mut Report) -> Limits {
    let default = Limits::default();
    let memory = memory.max(MEMORY_MIN);
    if let Some(set) = &draft.client_memory
        && !(MEMORY_MIN..=memory).contains(&set.value.0)
    {
        report.add_help(
            set.origin,
            format!("`client_memory: {}` is out of range", set.value),
            format!(
                "choose a size from {} to {}, which is `memory`",
                Size(MEMORY_MIN),
                Size(memory)
            ),
        );
    }
    if let Some(set) = &draft.client_connections
        && !(1..=connections).contains(&set.value)
    {
        report.add_help(
            set.origin,
            format!("`client_connections: {}` is out of range", set.value),
            format!("choose a number from 1 to {connections}, which is `connections`"),
        );
    }
    let opens = settled(draft.client_opens.clone(), default.client_opens);
    if !(1..=CLIENT_OPENS_MAX).contains(&opens.value) {
        report.add_help(
            opens.origin,
            format!("`client_opens: {}` is out of range", opens.value),
            format!("choose a number from 1 to {CLIENT_OPENS_MAX}"),
        );
    }
    let clients = settled(draft.nfs_clients.clone(), default.nfs_clients);
    if !(1..=NFS_CLIENTS_MAX).contains(&clients.value) {
        report.add_help(
            clients.origin,
            format!("`nfs_clients: {}` is out of range", clients.value),
            format!("choose a number from 1 to {NFS_CLIENTS_MAX}"),
        );
    }
    let introduction = settled(draft.introduction.clone(), Span(default.introduction));
    if !(INTRODUCTION_MIN..=INTRODUCTION_MAX).contains(&introduction.value.0) {
        report.add_help(
            introduction.origin,
            format!("`introduction: {}` is out of range", introduction.value),
            format!(
                "choose a time from {} to {}; the default is 45s",
                Span(INTRODUCTION_MIN),
                Span(INTRODUCTION_MAX)
            ),
        );
    }
    Limits {
        client_connections: draft.client_connections.as_ref().map(|s| s.value),
        client_memory: draft.client_memory.as_ref().map(|s| s.value.0),
        client_opens: opens.value,
        nfs_clients: clients.value,
        introduction: introduction.value.0,
        all: draft.rates,
        client: draft.client_rates,
    }
}

/// Checks the time limit of recalls.
fn check_recall(recall: Option<Set<Span>>, report: &mut Report) -> Duration {
    let recall = settled(recall, Span(Settings::default().recall));
    if !(RECALL_MIN..=RECALL_MAX).contains(&recall.value.0) {
        report.add_help(
            recall.origin,
            format!("`recall: {}` is out of range", recall.value),
            format!(
                "choose a time from {} to {}; the default is 35s",
                Span(RECALL_MIN),
                Span(RECALL_MAX)
            ),
        );
    }
    recall.value.0
}

/// Checks lease and grace period.
fn check_times(
    lease: Option<Set<Span>>,
    grace: Option<Set<Span>>,
    report: &mut Report,
) -> (Duration, Duration) {
    let lease = settled(lease, Span(Settings::default().lease));
    if !(LEASE_MIN..=LEASE_MAX).contains(&lease.value.0) {
        report.add_help(
            lease.origin,
            format!("`lease: {}` is out of range", lease.value),
            format!(
                "choose a time from {} to {}; the default is 90s",
                Span(LEASE_MIN),
                Span(LEASE_MAX)
            ),
        );
    }
    // A missing grace period follows the lease (RFC 8881 section 8.4.2.1: at least the lease).
    let grace = settled(grace, lease.value);
    if grace.value < lease.value {
        report.add_help(
            grace.origin,
            format!(
                "a grace period of {} is shorter than the lease of {}",
                grace.value, lease.value
            ),
            format!("write {} or more, or clients lose their locks at a restart", lease.value),
        );
    } else if grace.value.0 > LEASE_MAX && grace.origin != Origin::Nowhere {
        let what = format!("`grace: {}` is out of range", grace.value);
        report.add_help(grace.origin, what, format!("choose at most {}", Span(LEASE_MAX)));
    }
    (lease.value.0, grace.value.0)
}

/// Checks the courtesy time of silent clients.
fn check_courtesy(courtesy: Option<Set<Span>>, report: &mut Report) -> Duration {
    let courtesy = settled(courtesy, Span(Settings::default().courtesy));
    if courtesy.value.0 > COURTESY_MAX {
        let what = format!("`courtesy: {}` is out of range", courtesy.value);
        report.add_help(
            courtesy.origin,
            what,
            format!("choose at most {}; the default is 24h", Span(COURTESY_MAX)),
        );
    }
    courtesy.value.0
}

/// Requires `admin.clients` if other hosts can reach the admin address, so that access to metrics and status is an explicit choice.
fn check_admin(admin: &Set<Admin>, is_said: bool, report: &mut Report) {
    let Admin::At(at) = admin.value else { return };
    if at.ip().to_canonical().is_loopback() || is_said {
        return;
    }
    report.add_help(
        admin.origin,
        format!("other hosts can reach {at}, and `admin_clients` does not say which of them may read metrics and status"),
        "add `admin_clients: RANGE`; or `admin_clients: []`, so that other hosts can read /healthz and /readyz only; or \
         authenticate them over TLS with `tls.admin_token` or `tls.admin_ca`",
    );
}

/// Checks that clients cannot reach the gateway's state through a share.
fn check_state(state: &Set<PathBuf>, shares: &[DraftShare], report: &mut Report) {
    for s in shares {
        if let Source::Folder(path) = &s.share.source
            && real_in_time(&state.value).starts_with(real_in_time(path))
        {
            let at = if state.origin == Origin::Nowhere { s.source_at } else { state.origin };
            report.add_help(
                at,
                format!(
                    "the state folder {} is inside the share `{}`, where clients could change it",
                    state.value.display(),
                    s.share.name
                ),
                "name a folder outside of every share",
            );
        }
    }
}

/// Adds the shares of other services. A share that conflicts is left out with a warning: another service's configuration must not
/// prevent this one from starting.
fn join(
    shares: &mut Vec<DraftShare>,
    others: Vec<Elsewhere>,
    share_id: fn(&str) -> u32,
    warnings: &mut Vec<Finding>,
) {
    let mut warn = |what: String, help: &str| {
        let help = Some(help.to_owned());
        warnings.push(Finding { at: Origin::Nowhere, what, help });
    };
    for Elsewhere { service, shares: known } in others {
        let known = known.unwrap_or_else(|why| {
            let what = format!("the shares of the service `{service}` are not shown here: {why}");
            warn(what, "copy the file of each service to each node, and reload");
            Vec::new()
        });
        for share in known {
            let one = DraftShare::of(share, Origin::Nowhere);
            match beside(shares, &one, share_id) {
                Ok(()) => shares.push(one),
                Err(why) => warn(
                    format!(
                        "the share `{}` of the service `{service}` is not shown here: {why}",
                        one.share.name
                    ),
                    "give each share of a cluster a unique name and path",
                ),
            }
        }
    }
}
