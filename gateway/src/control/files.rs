//! `headgate files`: shows which client holds which file, so that an administrator can find the other side of a conflict.
//!
//! *Operation.* Reads the tables of both servers once, including NFSv3 locks. NFS state refers to nodes, so the file system is
//! queried for their paths. Only the control socket reveals file names: metrics have more readers.
//!
//! *Memory.* At most [`FILES_MAX`] files are listed; the answer says how many are missing.

use std::fmt;
use std::net::IpAddr;

use audit::PeerText;
use nfsrdma::v4::holdings::{self as nfs, Held};
use serde::{Deserialize, Serialize};
use state::{HolderId, Rights};
use vfs::NodeRef;
use vfs::namespace::Namespace;

use crate::servers::Servers;
use tools::table::{Table, Tone};

/// Largest number of files in one answer.
const FILES_MAX: usize = 10_000;

/// A file and its holder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HeldFile {
    /// Name of the share.
    pub share: String,
    /// Path in the share, with `/` between names; empty for its root. `None`: the file has no name any more.
    pub path: Option<PeerText>,
    /// `smb` or `nfs`.
    pub protocol: String,
    /// The address (SMB), or the name that the client gave (NFS).
    pub client: PeerText,
    /// The user that opened it, only for SMB.
    pub user: Option<PeerText>,
    /// The kind of state, in words.
    pub how: String,
    /// Identifies the entry for `headgate close`, while the file is held and the daemon runs.
    pub id: u64,
    /// Identifies the client for `headgate disconnect`; `None` if it has not come back since the daemon started.
    pub address: Option<IpAddr>,
}

/// Held state, with the handles that are needed to end it.
pub(crate) struct Holding {
    pub(crate) file: HeldFile,
    pub(crate) node: NodeRef,
    pub(crate) holder: HolderId,
    /// The holder of its client's caching rights, if it caches.
    pub(crate) caches_as: HolderId,
}

/// The answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldFiles {
    /// Sorted by share and path.
    pub files: Vec<HeldFile>,
    /// Number of files that were left out.
    pub left_out: usize,
}

/// Returns the held state that `is` selects.
pub(crate) async fn find(servers: &Servers, is: impl Fn(&HeldFile) -> bool) -> Vec<Holding> {
    let mut all: Vec<Holding> = servers.smb.core().holdings().into_iter().map(by_smb).collect();
    for one in by_nfs(servers) {
        all.push(of_nfs(servers, one).await);
    }
    all.retain(|h| is(&h.file));
    all
}

fn by_nfs(servers: &Servers) -> impl Iterator<Item = nfs::Holding> {
    servers.nfs.v4().clients.holdings().into_iter().chain(servers.nfs.nlm().holdings())
}

/// Lists the held files of both servers.
pub(crate) async fn held(servers: &Servers) -> HeldFiles {
    let mut files: Vec<HeldFile> =
        servers.smb.core().holdings().into_iter().map(|h| by_smb(h).file).collect();
    let by_nfs: Vec<_> = by_nfs(servers).collect();
    let left_out = (files.len() + by_nfs.len()).saturating_sub(FILES_MAX);
    for one in by_nfs.into_iter().take(FILES_MAX.saturating_sub(files.len())) {
        files.push(of_nfs(servers, one).await.file);
    }
    files.sort();
    files.truncate(FILES_MAX);
    HeldFiles { files, left_out }
}

async fn of_nfs(servers: &Servers, one: nfs::Holding) -> Holding {
    let path = one.node.path().await.ok();
    let file = HeldFile {
        share: share_of(&servers.namespace, &one.node),
        path: path.map(|path| PeerText::of(&path)),
        protocol: "nfs".into(),
        client: one.client.into(),
        user: None,
        how: by_nfs_how(one.held),
        id: one.holder.0,
        address: one.at,
    };
    Holding { file, node: one.node, holder: one.holder, caches_as: one.holder }
}

fn by_smb(one: smbd_core::holdings::Holding) -> Holding {
    let stream = one.stream.map(|s| format!(":{s}")).unwrap_or_default();
    let mut how = match words(one.access) {
        None => "open, attributes only".to_owned(),
        Some(does) => format!("open to {does}"),
    };
    if let Some(denied) = words(one.denied) {
        how += &format!("; others may not {denied}");
    }
    let file = HeldFile {
        share: one.share.name.clone(),
        path: Some(PeerText::from(one.path.replace('\\', "/") + &stream)),
        protocol: "smb".into(),
        client: match one.client {
            Some(at) => at.to_string().into(),
            None => "disconnected, may come back".into(),
        },
        user: one.user.map(PeerText::from),
        how,
        id: one.holder.0,
        address: one.at,
    };
    Holding { file, node: one.node, holder: one.holder, caches_as: one.caches_as }
}

fn by_nfs_how(held: Held) -> String {
    match held {
        Held::Open(access) => {
            format!("open to {}", words(access).unwrap_or_else(|| "nothing".into()))
        }
        Held::Locked => "locked".into(),
        Held::Delegated { write: true } => "delegated to read and write".into(),
        Held::Delegated { write: false } => "delegated to read".into(),
    }
}

/// Returns the rights in words, if there are any.
fn words(rights: Rights) -> Option<String> {
    let names = [(Rights::READ, "read"), (Rights::WRITE, "write"), (Rights::DELETE, "delete")];
    let named: Vec<&str> = names.iter().filter(|(r, _)| rights.has(*r)).map(|(_, n)| *n).collect();
    let (last, others) = named.split_last()?;
    Some(if others.is_empty() {
        (*last).into()
    } else {
        format!("{} and {last}", others.join(", "))
    })
}

/// Returns the share whose volume contains a node.
fn share_of(namespace: &Namespace, node: &NodeRef) -> String {
    let shares = namespace.shares();
    let found = shares.iter().find(|s| s.backend.root().is_beside(node.as_ref()));
    found.map_or_else(|| "(removed)".into(), |s| s.name.clone())
}

impl fmt::Display for HeldFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.files.is_empty() {
            return f.write_str("no client holds a file");
        }
        let mut table = Table::new(&["id", "file", "by", "client", "user", "how"], 6, false);
        for one in &self.files {
            let path = one.path.as_deref().unwrap_or("(removed)");
            // The name of an SMB client already begins with the address while the client is connected.
            let client = match one.address {
                Some(at) if !one.client.starts_with(|c: char| c.is_ascii_digit() || c == '[') => {
                    format!("{} ({at})", one.client)
                }
                _ => one.client.to_string(),
            };
            let cells = vec![
                one.id.to_string(),
                format!("/{}/{path}", one.share),
                one.protocol.clone(),
                client,
                one.user.as_deref().unwrap_or_default().to_owned(),
                one.how.clone(),
            ];
            table.row(cells, Tone::Plain);
        }
        f.write_str(table.render().trim_end())?;
        match self.left_out {
            0 => Ok(()),
            more => write!(f, "\n  and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_words() {
        assert_eq!(words(Rights::NONE), None);
        assert_eq!(words(Rights::WRITE).unwrap(), "write");
        assert_eq!(
            words(Rights::READ | Rights::WRITE | Rights::DELETE).unwrap(),
            "read, write and delete"
        );
    }

    #[test]
    fn what_is_held_is_a_table() {
        let one = HeldFile {
            share: "data".into(),
            path: Some("a/b".into()),
            protocol: "nfs".into(),
            client: "Linux NFSv4.2 host".into(),
            user: None,
            how: by_nfs_how(Held::Open(Rights::READ)),
            id: 7,
            address: Some([192, 0, 2, 7].into()),
        };
        let removed = HeldFile { path: None, how: "locked".into(), ..one.clone() };
        let odd = HeldFile { path: Some("c\u{1b}[2Jd\n".into()), ..one.clone() };
        let text = HeldFiles { files: vec![one, removed, odd], left_out: 3 }.to_string();
        for part in [
            "7   /data/a/b",
            "Linux NFSv4.2 host (192.0.2.7)",
            "/data/(removed)",
            "/data/c\u{fffd}[2Jd\u{fffd}",
            "open to read",
            "and 3 more",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        assert_eq!(HeldFiles::default().to_string(), "no client holds a file");
    }
}
