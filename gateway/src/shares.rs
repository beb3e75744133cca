//! Opens the shares of a configuration, and keeps those open that the next configuration has too.
//!
//! *Operation.* A share that remains keeps its backend, and so the nodes that clients hold, whatever else changes in its
//! settings. It remains if its name and folder are unchanged, and the folder is still the one that was opened or does not
//! respond now.
//!
//! *Errors.* A file system that does not respond is waited for a few seconds ([`in_time`]). The error names the share on it,
//! and all served shares remain unchanged.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use audit::Files;
use config::in_time::{self, LOOK_MAX, Silent};
use config::{Settings, Source};
use smbd_core::privileges::Holders;
use vfs::ceph::{CephBackend, CephConfig};
use vfs::client_names::{ClientNames, HostName, NameKind};
use vfs::engine::far::PayloadBudget;
use vfs::links::{Link, Links};
use vfs::local::{LocalBackend, LocalConfig, SealKey};
use vfs::mem::MemBackend;
use vfs::namespace::{
    ClientRule, Enforce, Masks, Namespace, Protection, Rules, Share, Shares, Whom,
};
use vfs::refer::{Referral, Server};
use vfs::wastebasket::{Pattern, Wastebasket};
use vfs::{ANONYMOUS, Backend, Token, VfsError};

use crate::check::files;
use crate::domain;
use crate::identities::{self, Accounts, Rights};
use crate::rdma::host;
use crate::records::ceph::{no_mount, session_of_share};

/// Bytes of the volume of a share that refers to other servers, in which no file is ever created.
const EMPTY_VOLUME_MAX: u64 = 1 << 20;
/// Time limit for opening a share, which creates and removes some files to detect the abilities of the file system.
pub(crate) const OPEN_MAX: Duration = Duration::from_secs(10);
/// Message for a share whose file system takes longer.
pub(crate) const SILENT: &str = "its file system does not respond; repair the mount, or remove the share from the configuration";

/// A share and the location of its files.
#[derive(Clone)]
struct Opened {
    configured: config::Share,
    /// Device and inode of the folder.
    folder: Option<(u64, u64)>,
    /// Its path at the time of opening, without symbolic links.
    path: Option<PathBuf>,
    share: Arc<Share>,
}

/// The shares of one configuration.
#[derive(Clone, Default)]
pub struct ShareSet {
    opened: Vec<Opened>,
    /// Unchanged from one set to the next, like `names`.
    key: Option<SealKey>,
    names: Arc<ClientNames>,
    /// Size of the memory, and the part of it for shares whose storage may hang.
    payload: Option<(u64, PayloadBudget)>,
    /// The holders of privileges, in all shares.
    holders: Holders,
    /// A holder cannot be resolved.
    waits_for_holders: bool,
}

/// Differences from one set to the next, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Only in the next set.
    pub added: Vec<String>,
    /// Only in the first set, or with another folder in the next.
    pub removed: Vec<String>,
    /// In both sets, with different settings.
    pub changed: Vec<String>,
}

impl ShareSet {
    /// Returns an empty set. Lists stored in the shares of this and all following sets are sealed with this key.
    pub fn sealed(key: SealKey) -> Self {
        Self { key: Some(key), ..Self::default() }
    }

    /// Returns the cache of client names for these shares.
    pub(crate) fn client_names(&self) -> Arc<ClientNames> {
        self.names.clone()
    }

    /// Opens the shares of these settings that this set does not have, without a change to their sizes on the host
    /// ([`Self::limit_sizes`]). The error is one line for the user. Blocks, for each share at most [`OPEN_MAX`].
    pub(crate) fn next(&self, settings: &Settings, accounts: Accounts<'_>) -> Result<Self, String> {
        let rights = self.rights(settings, accounts)?;
        let payload = match &self.payload {
            Some((_, budget)) => budget.clone(),
            None => PayloadBudget::of(settings.memory),
        };
        let open = |(s, rights): (&config::Share, Rights)| {
            let rules = rules(s, rights, domain::host_token(settings));
            let same = |o: &&Opened| o.configured.name == s.name && o.configured.source == s.source;
            let was = self.opened.iter().find(same);
            let folder = folder_of(&s.source);
            if let (Some(was), Err(Silent)) = (was, &folder) {
                let share = &was.configured.name;
                tracing::warn!(
                    share,
                    "the file system of this share does not respond; the share stays open as it was"
                );
            }
            // Reopens a backend that has ended: the administrator reloads the configuration for that purpose.
            let serves = |o: &&Opened| o.share.backend.ended().is_none();
            let kept =
                was.filter(serves).filter(|o| folder.as_ref().map_or(true, |now| *now == o.folder));
            let folder = folder.unwrap_or_else(|_| was.and_then(|o| o.folder));
            let (backend, path) = match kept {
                Some(one) if one.configured == *s && one.share.rules == rules => {
                    return Ok(one.clone());
                }
                Some(one) => (one.share.backend.clone(), one.path.clone()),
                None => {
                    let of_all = (payload.clone(), settings.records.is_some());
                    let opened = backend(s, self.key.clone(), of_all)?;
                    if let Some(path) = &opened.1 {
                        files::log_inside(&s.name, path, s.cross);
                    }
                    opened
                }
            };
            let had = kept.and_then(|one| one.configured.size);
            if let (Some(size), Source::Folder(folder)) =
                (s.size.filter(|_| s.size != had), &s.source)
            {
                limit(folder, (size, false), backend.clone())
                    .map_err(|e| format!("share {}: {e}", s.name))?;
            }
            let rules = match placed(s, &rules.links, &backend, was) {
                Ok(links) => Rules { links, ..rules },
                Err(why) if self.is_first() => {
                    tracing::error!(
                        share = s.name,
                        "until a link can be placed, the share is refused: {why}"
                    );
                    Rules { unresolved: true, ..rules }
                }
                Err(_) if was.is_some_and(|was| was.share.rules.unresolved) => {
                    Rules { unresolved: true, ..rules }
                }
                Err(why) => return Err(why),
            };
            let share = Arc::new(share(s, rules, backend, &self.names));
            Ok(Opened { configured: s.clone(), folder, path, share })
        };
        let opened = settings.shares.iter().zip(rights).map(open).collect::<Result<_, String>>()?;
        let payload = Some((settings.memory, payload));
        let (holders, waits_for_holders) = match identities::holders(settings, accounts) {
            Ok(holders) => (holders, false),
            Err(why) if self.is_first() || self.waits_for_holders => {
                if self.is_first() {
                    tracing::error!("until it can be resolved, no user has a privilege: {why}");
                }
                (Holders::default(), true)
            }
            Err(why) => return Err(why),
        };
        Ok(Self { opened, payload, holders, waits_for_holders, ..self.clone() })
    }

    /// Returns the shares for the namespace. Applies the durability and the payload memory of their settings from now on.
    pub fn shares(&self) -> Shares {
        if let Some((memory, payload)) = &self.payload {
            payload.resize(*memory);
        }
        for one in &self.opened {
            let strict = one.configured.durability == config::Durability::Strict;
            let smb = strict && one.configured.continuous_availability;
            one.share.backend.set_strict(strict, smb);
            let others = self.opened.iter().filter(|other| !Arc::ptr_eq(&other.share, &one.share));
            let others = others.filter_map(|other| other.path.clone()).collect();
            one.share.backend.set_cross(one.configured.cross, others);
            one.share.backend.set_snapshots(one.configured.snapshots.as_ref());
        }
        self.opened.iter().map(|o| o.share.clone()).collect()
    }

    /// Sets the sizes of all shares on the host, also those that have not changed: the host may have another limit now. The error
    /// is one line for the user, after all other shares have their sizes. Blocks, for each share at most [`OPEN_MAX`].
    pub(crate) fn limit_sizes(&self) -> Result<(), String> {
        let sized = |one: &Opened| match (one.configured.size, &one.configured.source) {
            (Some(size), Source::Folder(folder)) => {
                let limited = limit(folder, (size, true), one.share.backend.clone());
                limited.err().map(|why| format!("share {}: {why}", one.share.name))
            }
            _ => None,
        };
        match self.opened.iter().filter_map(sized).collect::<Vec<_>>() {
            none if none.is_empty() => Ok(()),
            some => Err(some.join("; ")),
        }
    }

    /// Returns true if this is the set before the first.
    fn is_first(&self) -> bool {
        self.payload.is_none()
    }

    /// Returns the rights of each share. A start may come before the host's directory, and refuses a share alone whose users and
    /// groups cannot be resolved; later only a share that has waited since then may wait further.
    fn rights(&self, settings: &Settings, accounts: Accounts<'_>) -> Result<Vec<Rights>, String> {
        let all = identities::rights_of_each(settings, accounts);
        let waits = |name: &str| self.find(name).is_some_and(|one| one.share.rules.unresolved);
        let of = |(share, rights): (&config::Share, Result<Rights, String>)| match rights {
            Err(why) if self.is_first() || waits(&share.name) => {
                if self.is_first() {
                    tracing::error!("until it can be resolved, no client may use the share: {why}");
                }
                Ok(Rights { unresolved: true, ..Rights::default() })
            }
            Ok(rights) => {
                if waits(&share.name) {
                    let share = &share.name;
                    tracing::info!(share, "its users and groups can be resolved: it is served");
                }
                Ok(rights)
            }
            other => other,
        };
        settings.shares.iter().zip(all).map(of).collect()
    }

    /// Returns true if some user or group cannot be resolved.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waits_for_holders || self.opened.iter().any(|one| one.share.rules.unresolved)
    }

    /// Returns the holders of privileges.
    pub(crate) fn holders(&self) -> &Holders {
        &self.holders
    }

    /// Returns the folder of each share, by name.
    pub(crate) fn folders(&self) -> Vec<(String, PathBuf)> {
        let of = |o: &Opened| Some((o.configured.name.clone(), o.path.clone()?));
        self.opened.iter().filter_map(of).collect()
    }

    /// Tells the clients of shares whose links differ from those of the set before.
    pub(crate) async fn announce_links(&self, before: &Self, namespace: &Namespace) {
        for one in &self.opened {
            let old = before.find(&one.configured.name).map(|old| &old.share.rules.links);
            let new = &one.share.rules.links;
            if let Some(old) = old.filter(|old| *old != new) {
                for links in [old, new] {
                    namespace.links_changed(&one.share, links).await;
                }
                if old.msdfs != new.msdfs
                    && let Err(e) = namespace.samba_links_changed(&one.share).await
                {
                    let share = &one.share.name;
                    tracing::warn!(share, error = %e, "clients may show links of Samba as before until they list again");
                }
            }
        }
    }

    fn find(&self, name: &str) -> Option<&Opened> {
        self.opened.iter().find(|o| o.configured.name == name)
    }

    /// Returns the differences to the next set.
    pub fn difference(&self, next: &Self) -> Difference {
        let mut d = Difference::default();
        for one in &self.opened {
            let name = || one.configured.name.clone();
            match next.find(&one.configured.name) {
                Some(other) if !is_same(one, other) => {
                    d.removed.push(name());
                    d.added.push(name());
                }
                // The members of a group may have changed although the settings have not.
                Some(other)
                    if one.configured != other.configured
                        || one.share.rules != other.share.rules =>
                {
                    d.changed.push(name());
                }
                Some(_) => {}
                None => d.removed.push(name()),
            }
        }
        let is_new = |o: &&Opened| self.find(&o.configured.name).is_none();
        d.added.extend(next.opened.iter().filter(is_new).map(|o| o.configured.name.clone()));
        d
    }

    /// Returns the shares that the next set does not serve at all.
    pub fn gone(&self, next: &Self) -> Vec<Arc<Share>> {
        let stays = |o: &Opened| next.opened.iter().any(|n| is_same(o, n));
        self.opened.iter().filter(|o| !stays(o)).map(|o| o.share.clone()).collect()
    }

    /// Returns the shares that NFS serves now and not in the next set.
    pub fn gone_from_nfs(&self, next: &Self) -> Vec<Arc<Share>> {
        let by_nfs = |o: &Opened| o.configured.protocols.nfs();
        let stays = |o: &Opened| next.opened.iter().any(|n| is_same(o, n) && by_nfs(n));
        self.opened.iter().filter(|o| by_nfs(o) && !stays(o)).map(|o| o.share.clone()).collect()
    }
}

/// Returns the shares of these settings with their rules, but empty volumes in memory, for checks that do not depend on
/// files, each with the error about its users and groups. Blocks.
pub(crate) fn without_files(
    settings: &Settings,
    accounts: Accounts<'_>,
    names: &Arc<ClientNames>,
) -> Vec<Result<Arc<Share>, String>> {
    let rights = identities::rights_of_each(settings, accounts);
    let made = |(s, rights): (&config::Share, Result<Rights, String>)| {
        let rights = rights?;
        let backend = MemBackend::new(1 << 20).map_err(|e| format!("share {}: {e}", s.name))?;
        let rules = rules(s, rights, domain::host_token(settings));
        Ok(Arc::new(share(s, rules, backend, names)))
    };
    settings.shares.iter().zip(rights).map(made).collect()
}

fn is_same(a: &Opened, b: &Opened) -> bool {
    a.configured.name == b.configured.name && Arc::ptr_eq(&a.share.backend, &b.share.backend)
}

fn folder_of(source: &Source) -> Result<Option<(u64, u64)>, Silent> {
    let Source::Folder(path) = source else { return Ok(None) };
    let its = path.clone();
    let look = move || std::fs::metadata(its).ok().map(|m| (m.dev(), m.ino()));
    in_time::ask(path, LOOK_MAX, look)
}

/// Opens a share's folder and runs further blocking work on it. The error says what is wrong, without the name of the share.
pub(crate) fn open_in_time<T: Send + 'static>(
    config: LocalConfig,
    then: impl FnOnce(Arc<LocalBackend>) -> T + Send + 'static,
) -> Result<T, String> {
    let path = config.root.clone();
    let opened = in_time::ask(&path, OPEN_MAX, move || LocalBackend::open(config).map(then));
    match opened {
        Ok(opened) => opened.map_err(|e| format!("{}: {e}", path.display())),
        Err(Silent) => Err(format!("{}: {SILENT}", path.display())),
    }
}

/// Limits the size of a share, or only checks whether that is possible ([`Backend::limit_size`]). The error says what is wrong and
/// what to do, without the name of the share.
fn limit(
    folder: &Path,
    (size, sets): (u64, bool),
    backend: Arc<dyn Backend>,
) -> Result<(), String> {
    match in_time::ask(folder, OPEN_MAX, move || backend.limit_size(size, sets)) {
        Ok(done) => done,
        Err(Silent) => Err(format!("{}: {SILENT}", folder.display())),
    }
}

/// Mounts a share's folder of CephFS and runs further blocking work on it. The error says what is wrong, without the name of
/// the share.
pub(crate) fn open_ceph<T: Send + 'static>(
    ceph: &config::Ceph,
    (uuid, payload): (Option<String>, PayloadBudget),
    then: impl FnOnce(Arc<CephBackend>) -> T + Send + 'static,
) -> Result<T, String> {
    let config = CephConfig {
        id: ceph.user.clone(),
        conf: ceph.config.clone(),
        keyring: ceph.keyring.clone(),
        uuid,
        payload,
        exclusive: ceph.exclusive,
        ..CephConfig::new(&ceph.fs, &ceph.path)
    };
    let path = PathBuf::from(ceph.to_string());
    match in_time::ask(&path, OPEN_MAX, move || CephBackend::open(&config).map(then)) {
        Ok(opened) => opened.map_err(|e| format!("{ceph}: {}", no_mount(ceph, &e))),
        Err(Silent) => Err(format!(
            "{ceph}: the Ceph cluster does not respond; repair it, or remove the share from the configuration"
        )),
    }
}

/// Opens the backend writable, whatever the settings say: `read_only` is checked for each request, so that it can change
/// while the share is served.
fn backend(
    s: &config::Share,
    seal: Option<SealKey>,
    (payload, has_records): (PayloadBudget, bool),
) -> Result<(Arc<dyn Backend>, Option<PathBuf>), String> {
    Ok(match &s.source {
        Source::Memory => {
            let volume = MemBackend::new(memory_volume_max());
            (volume.map_err(|e| format!("share {}: {e}", s.name))?, None)
        }
        // It has no files: see `vfs::refer`.
        Source::Refer(_) => {
            let volume = MemBackend::new(EMPTY_VOLUME_MAX);
            (volume.map_err(|e| format!("share {}: {e}", s.name))?, None)
        }
        Source::Ceph(ceph) => {
            // The same name cuts off an earlier gateway with this state folder or these records, so that it can no longer write.
            let uuid = match has_records {
                true => Some(session_of_share(&s.name, ceph)),
                false => seal.map(|key| key.name_of(&format!("{}\0{ceph}", s.name))),
            };
            let opened = open_ceph(ceph, (uuid, payload), |backend| backend);
            (opened.map_err(|e| format!("share {}: {e}", s.name))?, None)
        }
        Source::Folder(path) => {
            let callers_apart = host::usable_at_start().is_ok();
            let config = LocalConfig::new(path.clone());
            let config = LocalConfig { callers_apart, seal, payload, cross: s.cross, ..config };
            let its = path.clone();
            let found = open_in_time(config, |backend| (backend, std::fs::canonicalize(its).ok()));
            let (backend, path) = found.map_err(|e| format!("share {}: {e}", s.name))?;
            (backend, path)
        }
    })
}

fn share(
    s: &config::Share,
    rules: Rules,
    backend: Arc<dyn Backend>,
    names: &Arc<ClientNames>,
) -> Share {
    Share {
        name: s.name.clone(),
        id: Share::id_of(&s.name),
        backend,
        protocols: s.protocols,
        read_only: s.read_only,
        squash: s.squash,
        nfs_locks: match s.nfs_locks {
            config::NfsLocks::Enforced => Enforce::Smb,
            config::NfsLocks::Advisory => Enforce::Advisory,
        },
        clients: s.clients.as_ref().map(|all| all.iter().map(|c| client(c, names)).collect()),
        rules,
    }
}

fn rules(s: &config::Share, rights: Rights, host: Token) -> Rules {
    let bits = |mode: Option<config::Mode>| mode.map(|mode| mode.0);
    Rules {
        hidden: s.hidden,
        export: s.export.as_ref().map(|export| export.path().into()),
        access: rights.access,
        unresolved: rights.unresolved,
        force: rights.force,
        masks: Masks { file: bits(s.masks.file), folder: bits(s.masks.folder) },
        wastebasket: s.wastebasket.as_ref().map(|w| Arc::new(wastebasket(w))),
        only_visible: s.list == config::List::Visible,
        homes: s.homes,
        tls: match s.tls {
            config::ShareTls::Offered => Protection::None,
            config::ShareTls::Required => Protection::Tls,
            config::ShareTls::Mutual => Protection::Mutual,
        },
        sec: s.sec.iter().collect(),
        audit: s.audit.iter().fold(Files::NONE, |all, one| all.and(audited(*one))),
        host,
        refers_to: s.refers_to().iter().map(referral).collect(),
        links: Arc::new(links(&s.links)),
        ..Rules::default()
    }
}

fn wastebasket(w: &config::Wastebasket) -> Wastebasket {
    let exclude = w.exclude.iter().map(|one| Pattern::new(&one.0)).collect();
    Wastebasket::new(w.keep.0, w.most.map(|most| most.0), exclude)
}

fn links(links: &config::Links) -> Links {
    let link = |link: &config::Link| Link::new(&link.at, link.to.iter().map(referral).collect());
    Links::new(links.list.iter().map(link).collect(), links.msdfs)
}

/// Finds or makes the folders of a share's links. Blocks for at most [`OPEN_MAX`].
fn placed(
    s: &config::Share,
    links: &Arc<Links>,
    backend: &Arc<dyn Backend>,
    was: Option<&Opened>,
) -> Result<Arc<Links>, String> {
    let old = was.map(|was| &was.share.rules.links);
    let is_same = |old: &&Arc<Links>| {
        *old == links && was.is_some_and(|was| Arc::ptr_eq(&was.share.backend, backend))
    };
    if let Some(old) = old.filter(is_same) {
        return Ok(old.clone());
    }
    let referred = old.map(|old| old.referred.clone()).unwrap_or_default();
    if links.all().is_empty() {
        return Ok(Arc::new(Links::new(Vec::new(), links.msdfs).counting(referred)));
    }
    let (top, links) = (backend.root(), links.clone());
    let work = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| e.to_string())?;
        let placed = runtime.block_on(links.place(&top, referred));
        placed.map_err(|(at, e)| {
            format!("the folder of the link `{at}` cannot be made: {}", no_folder(e))
        })
    };
    let path = PathBuf::from(format!("{} (links)", s.files()));
    let found = in_time::ask(&path, OPEN_MAX, work).unwrap_or_else(|Silent| Err(SILENT.into()));
    found.map(Arc::new).map_err(|why| format!("share {}: {why}", s.name))
}

fn no_folder(e: VfsError) -> String {
    match e {
        VfsError::NotDir => "there is a file or a symbolic link in its place; remove it".into(),
        VfsError::ReadOnly => {
            "its file system is read-only; make it by hand, or remove the link".into()
        }
        e => e.to_string(),
    }
}

fn referral(refer: &config::Refer) -> Referral {
    Referral {
        server: match &refer.host {
            config::ReferHost::Ip(ip) => Server::Ip(*ip),
            config::ReferHost::Name(name) => Server::Name(name.as_str().into()),
        },
        nfs_path: refer.path.path().into(),
        smb_path: refer.smb_path().into(),
        rdma: refer.rdma,
        namespace: refer.namespace,
    }
}

fn audited(what: config::Audited) -> Files {
    match what {
        config::Audited::Changes => Files::CHANGES,
        config::Audited::Reads => Files::READS,
        config::Audited::Writes => Files::WRITES,
    }
}

fn client(c: &config::Client, names: &Arc<ClientNames>) -> ClientRule {
    let name =
        |name: &str, kind| Whom::Name(HostName { name: name.into(), kind, known: names.clone() });
    ClientRule {
        from: match &c.from {
            config::Whom::Range(range) => Whom::Range(*range),
            config::Whom::Host(host) => name(host, NameKind::Host),
            config::Whom::Pattern(pattern) => name(pattern, NameKind::Pattern),
            config::Whom::Netgroup(group) => name(group, NameKind::Netgroup),
        },
        protocols: c.protocols,
        read_only: c.read_only,
        squash: c.squash,
        anonymous: (c.anonuid.unwrap_or(ANONYMOUS), c.anongid.unwrap_or(ANONYMOUS)),
    }
}

/// Returns the bytes of a volume in memory: half of the available memory, as with tmpfs.
fn memory_volume_max() -> u64 {
    crate::memory::most().map_or(1 << 30, |(bytes, _)| bytes / 2)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use vfs::{BoxFuture, Capabilities, FsStat, Handle, NodeRef, VfsResult};

    use super::*;

    /// A volume that remembers its size.
    struct Sized {
        volume: Arc<MemBackend>,
        size: Mutex<Option<u64>>,
    }

    impl Backend for Sized {
        fn root(&self) -> NodeRef {
            self.volume.root()
        }

        fn resolve<'a>(&'a self, handle: &'a Handle) -> BoxFuture<'a, VfsResult<NodeRef>> {
            self.volume.resolve(handle)
        }

        fn capabilities(&self) -> Capabilities {
            self.volume.capabilities()
        }

        fn statfs(&self) -> BoxFuture<'_, VfsResult<FsStat>> {
            self.volume.statfs()
        }

        fn limit_size(&self, bytes: u64, sets: bool) -> Result<(), String> {
            const MOST: u64 = 1 << 40;
            if bytes > MOST {
                return Err("too large".into());
            }
            if sets {
                *self.size.lock().unwrap() = Some(bytes);
            }
            Ok(())
        }
    }

    fn set(before: &ShareSet, shares: Vec<config::Share>) -> ShareSet {
        before.next(&Settings { shares, ..Settings::default() }, &|_| None).unwrap()
    }

    fn mem(name: &str) -> config::Share {
        config::Share::new(name, Source::Memory)
    }

    #[test]
    fn what_stays_keeps_its_backend_and_what_is_different_is_named() {
        let first = set(&ShareSet::default(), vec![mem("a"), mem("b"), mem("c")]);
        let read_only = config::Share { read_only: true, ..mem("b") };
        let second = set(&first, vec![mem("d"), mem("a"), read_only]);
        let names = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        let wanted =
            Difference { added: names(&["d"]), removed: names(&["c"]), changed: names(&["b"]) };
        assert_eq!(first.difference(&second), wanted);
        assert!(Arc::ptr_eq(&first.opened[0].share, &second.opened[1].share));
        assert!(Arc::ptr_eq(&first.opened[1].share.backend, &second.opened[2].share.backend));
        assert!(second.opened[2].share.read_only);
        let gone: Vec<_> = first.gone(&second).iter().map(|s| s.name.clone()).collect();
        assert_eq!(gone, ["c"]);
    }

    #[test]
    fn a_name_that_means_another_user_is_a_difference() {
        let access = config::Access { deny: vec!["alice".parse().unwrap()], ..Default::default() };
        let team = config::Share { access: Some(access), ..mem("team") };
        let settings = Settings { shares: vec![team, mem("other")], ..Settings::default() };
        let next = |before: &ShareSet, uid| {
            let cred = vfs::Cred { uid, gid: uid, groups: [].into(), token: vfs::Token::NONE };
            before.next(&settings, &|_| Some((cred.clone(), true))).unwrap()
        };
        let first = next(&ShareSet::default(), 5);
        assert_eq!(first.difference(&next(&first, 5)), Difference::default());
        assert_eq!(first.difference(&next(&first, 6)).changed, ["team"]);
    }

    #[test]
    fn a_share_waits_alone_for_names_that_cannot_be_resolved() {
        let name = "nobody-has-this-name";
        let access = config::Access { read: vec![name.parse().unwrap()], ..Default::default() };
        let team = config::Share { access: Some(access), ..mem("team") };
        let privileges =
            config::Privileges { backup: vec![name.parse().unwrap()], ..Default::default() };
        let settings =
            Settings { shares: vec![team, mem("other")], privileges, ..Settings::default() };
        let cred = vfs::Cred { uid: 5, gid: 5, groups: [].into(), token: vfs::Token::NONE };
        let refusals = |set: &ShareSet| {
            [0, 1].map(|n| set.opened[n].share.enter_smb(None, &cred).err().map(|why| why.name()))
        };
        let first = ShareSet::default().next(&settings, &|_| None).unwrap();
        assert_eq!(refusals(&first), [Some("share-access-unresolved"), None]);
        assert!(first.is_waiting() && first.holders().is_empty());
        let still = first.next(&settings, &|_| None).unwrap();
        assert_eq!(refusals(&still), [Some("share-access-unresolved"), None]);
        let known = still.next(&settings, &|_| Some((cred.clone(), true))).unwrap();
        assert_eq!(refusals(&known), [None, None]);
        assert!(!known.is_waiting() && !known.holders().is_empty());
        assert_eq!(first.difference(&known).changed, ["team"], "its clients are judged again");
        assert!(known.next(&settings, &|_| None).is_err(), "a reload is refused as a whole");
    }

    #[test]
    fn a_share_can_be_gone_from_nfs_alone() {
        let by = |name, protocols| config::Share { protocols, ..mem(name) };
        use config::Protocols::{Both, Nfs, Smb};
        let first = set(&ShareSet::default(), vec![by("a", Both), by("b", Smb), by("c", Nfs)]);
        let second = set(&first, vec![by("a", Smb), by("b", Both)]);
        let names = |list: Vec<Arc<Share>>| list.iter().map(|s| s.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(first.gone(&second)), ["c"]);
        assert_eq!(names(first.gone_from_nfs(&second)), ["a", "c"]);
        assert_eq!(first.difference(&second).changed, ["a", "b"]);
        assert!(Arc::ptr_eq(&first.opened[0].share.backend, &second.opened[0].share.backend));
    }

    #[test]
    fn sizes_are_set_apart_from_opening_and_again() {
        let dir = tempfile::tempdir().unwrap();
        let with = |size| {
            let source = Source::Folder(dir.path().to_owned());
            let share = config::Share { size: Some(size), ..config::Share::new("a", source) };
            Settings { shares: vec![share], ..Settings::default() }
        };
        let volume =
            Arc::new(Sized { volume: MemBackend::new(1 << 20).unwrap(), size: None.into() });
        let mut settings = with(5);
        settings.shares[0].size = None;
        let mut before = ShareSet::default().next(&settings, &|_| None).unwrap();
        let opened = &mut before.opened[0];
        let rules = Rules::default();
        opened.share = Arc::new(share(&opened.configured, rules, volume.clone(), &before.names));
        let size = || *volume.size.lock().unwrap();
        let refused = before.next(&with(2 << 40), &|_| None).err();
        assert_eq!(refused.as_deref(), Some("share a: too large"));
        let first = before.next(&with(5), &|_| None).unwrap();
        assert_eq!(size(), None, "a reload may still fail");
        first.limit_sizes().unwrap();
        assert_eq!(size(), Some(5));
        *volume.size.lock().unwrap() = Some(6);
        first.next(&with(5), &|_| None).unwrap().limit_sizes().unwrap();
        assert_eq!(size(), Some(5), "the host had another limit");
    }

    #[test]
    fn a_folder_that_was_made_anew_is_another_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("share");
        let share = config::Share::new("a", Source::Folder(path.clone()));
        std::fs::create_dir(&path).unwrap();
        let first = set(&ShareSet::default(), vec![share.clone()]);
        assert_eq!(first.difference(&set(&first, vec![share.clone()])), Difference::default());
        // Kept, so that the new folder cannot get its inode number.
        std::fs::rename(&path, dir.path().join("old")).unwrap();
        std::fs::create_dir(&path).unwrap();
        let second = set(&first, vec![share]);
        let d = first.difference(&second);
        assert_eq!((d.added, d.removed), (vec!["a".to_owned()], vec!["a".to_owned()]));
        assert_eq!(first.gone(&second).len(), 1);
    }
}
