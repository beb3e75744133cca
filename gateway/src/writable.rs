//! Detects shares that are writable by the configuration, but in whose folder the host lets no client create a file.
//!
//! *Operation.* Checks the rights on the host for each possible user: those that `access` names, those that may log on, and
//! for NFS, whose clients can send any uid, the folder's owner, a member of its group, and another user. One user that may
//! write is enough.
//!
//! *Errors.* If the rights cannot be determined, there is no warning: the share may be fine.

use std::sync::Arc;
use std::time::Duration;

use config::{Settings, Source, Who};
use tokio::time::timeout;
use vfs::local::LocalConfig;
use vfs::namespace::Share;
use vfs::types::{Access, Attr};
use vfs::{Backend, Cred, NodeRef, accounts};

use crate::shares;
use crate::users::{self, Accounts};

/// A uid that no account has.
const STRANGER: u32 = u32::MAX - 3;
/// Maximum number of accounts that are checked.
const ACCOUNTS_MAX: usize = 64;
/// Time limit for all checks on the file system of a share.
const ASK_MAX: Duration = Duration::from_secs(3);

/// Returns the warning of a share that no client can write to.
pub(crate) async fn warning(
    said: &config::Share,
    share: &Arc<Share>,
    root: &NodeRef,
    accounts: &Accounts,
) -> Option<String> {
    // Folders of single users are created at their first connection.
    if said.read_only || said.homes || share.is_elsewhere() {
        return None;
    }
    timeout(ASK_MAX, ask(said, share, root, accounts)).await.ok()?
}

async fn ask(
    said: &config::Share,
    share: &Arc<Share>,
    root: &NodeRef,
    accounts: &Accounts,
) -> Option<String> {
    let attr = root.getattr().await.ok()?;
    let writers = writers(said, share, &attr, accounts);
    if writers.is_empty() {
        return None;
    }
    for cred in writers {
        if may_write(root, &cred, &attr).await? {
            return None;
        }
    }
    Some(format!(
        "share `{}`: none of the users that may write to it can make a file in its folder, which belongs to {}:{} with mode \
         {:04o}: `chown` it to one of them, `chmod` it, or set `read_only: true`",
        said.name,
        attr.uid,
        attr.gid,
        attr.mode & 0o7777
    ))
}

/// Returns whether the host lets this user create a file; `None` if that cannot be determined.
pub(crate) async fn may_write(root: &NodeRef, cred: &Cred, attr: &Attr) -> Option<bool> {
    let granted = root.access(cred, Access(Access::EXTEND), attr).await.ok()?;
    Some(granted.0 & Access::EXTEND != 0)
}

/// Returns the identities of clients that the rules of the share allow to write.
fn writers(
    said: &config::Share,
    share: &Arc<Share>,
    attr: &Attr,
    accounts: &Accounts,
) -> Vec<Cred> {
    let named = said.access.iter().flat_map(|access| &access.write);
    let named: Vec<Cred> = named.filter_map(|who| cred_of(who, accounts)).collect();
    let mut all = Vec::new();
    if share.protocols.nfs() {
        let cred = |uid, gid| Cred { uid, gid, groups: Arc::new([]), token: vfs::Token::NONE };
        let of_folder =
            [cred(attr.uid, attr.gid), cred(STRANGER, attr.gid), cred(STRANGER, STRANGER)];
        let rules = share.clients.iter().flatten().map(Some);
        let rules: Vec<_> = rules.chain(share.clients.is_none().then_some(None)).collect();
        for cred in of_folder.iter().chain(&named) {
            let entered = rules.iter().filter_map(|rule| share.right_nfs(*rule, cred).ok());
            all.extend(entered.map(|granted| share.clone().granted(granted)));
        }
    }
    if share.protocols.smb() {
        let logged_on = accounts.values().take(ACCOUNTS_MAX).map(|(cred, _)| cred.clone());
        let guest = said.guest.then(users::guest);
        let rules = share.clients.is_none()
            || share.clients.iter().flatten().any(|rule| rule.protocols.smb());
        for cred in logged_on.chain(guest).filter(|_| rules) {
            all.extend(share.enter_smb(None, &cred));
        }
    }
    let mut writers: Vec<Cred> = Vec::new();
    for entered in all.into_iter().filter(|entered| !entered.share.read_only) {
        if !writers.contains(&entered.cred) {
            writers.push(entered.cred);
        }
    }
    writers
}

/// Returns the host identity of a user or a group in `access`; for a group, a user whose only group it is.
fn cred_of(who: &Who, known: &Accounts) -> Option<Cred> {
    match who {
        Who::Everyone => None,
        Who::User(name) => {
            let account = known.get(&name.to_lowercase()).map(|(cred, _)| cred.clone());
            account.or_else(|| accounts::by_name(name).ok().flatten())
        }
        Who::Group(name) => {
            let (gid, _) = match name.parse() {
                Ok(gid) => (gid, Vec::new()),
                Err(_) => accounts::members_of(name).ok().flatten()?,
            };
            Some(Cred { uid: STRANGER, gid, groups: Arc::new([gid]), token: vfs::Token::NONE })
        }
    }
}

/// Logs a warning for each served share that no client can write to.
pub(crate) fn watch(settings: &Settings, shares: Vec<Arc<Share>>) {
    let settings = settings.clone();
    tokio::spawn(async move {
        let of_host = settings.clone();
        let accounts = tokio::task::spawn_blocking(move || users::accounts(&of_host)).await;
        let Ok(Ok(accounts)) = accounts else { return };
        for said in &settings.shares {
            let Some(share) = shares.iter().find(|share| share.name == said.name) else { continue };
            if let Some(what) = warning(said, share, &share.backend.root(), &accounts).await {
                tracing::warn!("{what}");
            }
        }
    });
}

/// Returns the warnings of all shares in folders of this host, for a command. Blocks.
pub(crate) fn warnings(settings: &Settings) -> Vec<String> {
    let Ok(accounts) = users::accounts(settings) else { return Vec::new() };
    let account = |name: &str| accounts.get(&name.to_lowercase()).cloned();
    let names = Arc::default();
    let shares = shares::without_files(settings, &account, &names);
    let Ok(shares) = shares.into_iter().collect::<Result<Vec<_>, String>>() else {
        return Vec::new();
    };
    let look = |(said, share): (&config::Share, &Arc<Share>)| {
        in_folder(said, async |root| warning(said, share, &root, &accounts).await)
    };
    settings.shares.iter().zip(&shares).filter_map(look).collect()
}

/// Returns why the host does not let a user create a file in the folder of a share. Blocks.
pub(crate) fn denied(said: &config::Share, cred: &Cred) -> Option<String> {
    in_folder(said, async |root| {
        let attr = root.getattr().await.ok()?;
        let may = timeout(ASK_MAX, may_write(&root, cred, &attr)).await.ok()??;
        (!may).then(|| {
            format!(
                "share `{}`: its folder, which belongs to {}:{} with mode {:04o}, does not let {}:{} make a file",
                said.name,
                attr.uid,
                attr.gid,
                attr.mode & 0o7777,
                cred.uid,
                cred.gid
            )
        })
    })
}

/// Runs `ask` on the root of a share's folder, if it is a folder of this host.
fn in_folder<T>(said: &config::Share, ask: impl AsyncFnOnce(NodeRef) -> Option<T>) -> Option<T> {
    let Source::Folder(path) = &said.source else { return None };
    let config = LocalConfig { read_only: said.read_only, ..LocalConfig::new(path) };
    let backend = shares::open_in_time(config, |backend| backend).ok()?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().ok()?;
    let answer = runtime.block_on(ask(backend.root()));
    runtime.shutdown_background();
    answer
}
