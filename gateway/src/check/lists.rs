//! `headgate check --lists SHARE`: finds files of a share with an access control list whose deny entry is not enforced.
//!
//! *Operation.* Earlier versions stored such lists, and a gateway without a domain still stores some. The walk runs as the
//! superuser and has one directory open for each level. It changes neither files nor lists.
//!
//! *Errors.* Unreadable files and folders are counted, because they may have such a list.

use std::collections::VecDeque;
use std::sync::Arc;

use config::{Settings, Source};
use serde_json::json;
use smb_proto::dtyp;
use vfs::acl::{Ace, Acl};
use vfs::engine::far::PayloadBudget;
use vfs::local::{LocalConfig, SealKey};
use vfs::{Attr, Backend, Cred, DirEntry, Kind, NodeRef, VfsResult};

use crate::boot;
use crate::shares::{open_ceph, open_in_time};

/// Names per read of a directory.
const NAMES: usize = 256;

/// Walks the share. Returns true if every list is enforced. The error is one line for standard error.
pub async fn run(settings: &Settings, name: &str, is_json: bool) -> Result<bool, String> {
    let backend = open(settings, name)?;
    let mut walk = Walk::default();
    walk.all(&backend.root()).await;
    let Walk { files, unread, found } = walk;
    if is_json {
        let lists: Vec<_> =
            found.iter().map(|(path, why)| json!({"path": path, "because": why})).collect();
        let told = json!({"share": name, "files": files, "unread": unread, "not_obeyed": lists});
        say!("{told}");
    } else {
        for (path, why) in &found {
            say!("{path}: {why}");
        }
        let unread = match unread {
            0 => String::new(),
            unread => format!(", {unread} could not be read"),
        };
        say!(
            "{files} files and folders of `{name}`: {} lists are not enforced{unread}",
            found.len()
        );
    }
    Ok(found.is_empty() && unread == 0)
}

fn open(settings: &Settings, name: &str) -> Result<Arc<dyn Backend>, String> {
    let Some(share) = settings.shares.iter().find(|share| share.name == name) else {
        let names: Vec<_> = settings.shares.iter().map(|s| format!("`{}`", s.name)).collect();
        return Err(format!("there is no share `{name}`; shares are {}", names.join(", ")));
    };
    match &share.source {
        Source::Memory | Source::Refer(_) => {
            Err(format!("share `{name}` has no files on this host: no list is kept for it"))
        }
        Source::Ceph(ceph) => {
            let opened = open_ceph(ceph, (None, PayloadBudget::default()), |backend| backend);
            opened.map(|b| b as Arc<dyn Backend>).map_err(|e| format!("share `{name}`: {e}"))
        }
        Source::Folder(path) => {
            let seal = boot::handle_key(settings)?.map(|key| SealKey::derived(&key));
            let has_key = seal.is_some();
            let config = LocalConfig { read_only: true, seal, ..LocalConfig::new(path) };
            let backend =
                open_in_time(config, |b| b).map_err(|e| format!("share `{name}`: {e}"))?;
            if !has_key && !backend.has_trusted_lists() {
                let state = settings.state.display();
                return Err(format!(
                    "the lists of share `{name}` are sealed with the secret of the state folder, and {state} has none; give \
                     the gateway's own `--config FILE` or `--state DIR`"
                ));
            }
            Ok(backend)
        }
    }
}

/// Results so far.
#[derive(Debug, Default)]
struct Walk {
    files: u64,
    unread: u64,
    /// Path and reason.
    found: Vec<(String, String)>,
}

/// A directory whose names are being read.
struct Level {
    dir: NodeRef,
    path: String,
    names: VecDeque<DirEntry>,
    cookie: u64,
    is_at_end: bool,
}

impl Level {
    fn new(dir: NodeRef, path: String) -> Self {
        Self { dir, path, names: VecDeque::new(), cookie: 0, is_at_end: false }
    }

    /// Returns the next name, if there is one.
    async fn next(&mut self, cred: &Cred) -> VfsResult<Option<DirEntry>> {
        while self.names.is_empty() && !self.is_at_end {
            let (names, is_at_end) = self.dir.readdir(cred, self.cookie, NAMES).await?;
            self.is_at_end = is_at_end || names.is_empty();
            self.cookie = names.last().map_or(self.cookie, |last| last.cookie);
            self.names = names.into();
        }
        Ok(self.names.pop_front())
    }
}

impl Walk {
    async fn all(&mut self, root: &NodeRef) {
        let cred = Cred::root();
        let Ok(attr) = root.getattr().await else {
            self.unread += 1;
            return;
        };
        self.look_at(root, &attr, "/").await;
        let mut levels = vec![Level::new(root.clone(), String::new())];
        while let Some(level) = levels.last_mut() {
            let entry = match level.next(&cred).await {
                Ok(Some(entry)) => entry,
                end => {
                    self.unread += u64::from(end.is_err());
                    levels.pop();
                    continue;
                }
            };
            let path = format!("{}/{}", level.path, shown(&entry.name));
            let Ok((node, attr)) = level.dir.lookup(&cred, &entry.name).await else {
                self.unread += 1;
                continue;
            };
            self.look_at(&node, &attr, &path).await;
            if attr.kind == Kind::Dir {
                levels.push(Level::new(node, path));
            }
        }
    }

    async fn look_at(&mut self, node: &NodeRef, attr: &Attr, path: &str) {
        self.files += 1;
        if attr.kind == Kind::Symlink {
            return;
        }
        match node.acl(attr).await {
            Ok(acl) => {
                if let Some(why) = acl.as_deref().and_then(not_obeyed) {
                    self.found.push((path.to_owned(), why));
                }
            }
            Err(_) => self.unread += 1,
        }
    }
}

/// Escapes a name for display, because file names can contain any characters.
fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).escape_debug().to_string()
}

/// Returns why a list is not enforced.
fn not_obeyed(acl: &Acl) -> Option<String> {
    // MS-DTYP section 2.4.4.1.
    const DENIED_OBJECT: u8 = 0x06;
    const DENIED_CALLBACK: u8 = 0x0a;
    const DENIED_CALLBACK_OBJECT: u8 = 0x0c;
    const SCOPED_POLICY_ID: u8 = 0x13;
    if let Some(sid) = acl.unknown_denied() {
        return Some(format!("denies {sid}, an alias whose members the gateway does not know"));
    }
    let denies = |ace: &Ace| {
        matches!(
            ace,
            Ace::Other { kind: DENIED_OBJECT | DENIED_CALLBACK | DENIED_CALLBACK_OBJECT, .. }
        )
    };
    if acl.entries().iter().any(denies) {
        return Some("denies by a condition or for a type of object".to_owned());
    }
    let sacl = dtyp::Acl::parse(acl.audit.as_deref()?).ok()?;
    let is_policy =
        |ace: &dtyp::Ace| matches!(ace, dtyp::Ace::Other { kind: SCOPED_POLICY_ID, .. });
    sacl.aces.iter().any(is_policy).then(|| "names a central access policy".to_owned())
}
