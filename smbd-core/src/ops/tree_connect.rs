//! TREE_CONNECT (MS-SMB2 section 3.3.5.7).

use std::net::IpAddr;
use std::sync::Arc;

use rdma_transport::channel::Facts;
use rdma_transport::refused::{self, Refused};
use vfs::namespace::{By, Entered, Protocols, Refusal, Share};
use vfs::{Cred, NodeRef, VfsError};

use crate::answer::Answer;
use crate::compression;
use crate::limits::TREES_MAX;
use crate::links;
use crate::reauthorize::{Unknown, end_tree, tree_stands};
use crate::refusal::Rule;
use crate::request_context::RequestContext;
use crate::session::User;
use crate::settings::ShareSettings;
use crate::share_access::{Denial, READ_ACCESS, grant, most};
use crate::status::Status;
use crate::tree::{LastTakeUp, Target, Tree};
use crate::wire::tree_connect::{
    ACCESS_BASED_ENUM, CAP_DFS, COMPRESS_DATA, CONTINUOUS_AVAILABILITY, DFS, DFS_ROOT, DISK,
    ENCRYPT_DATA, NO_CACHING, PIPE, Request, Response,
};

/// Maximal access that Windows reports for its pipe share.
const PIPE_ACCESS: u32 = 0x001f_00a9;
const PIPES: &str = "IPC$";

pub(crate) async fn call(cx: &RequestContext) -> Result<Answer, Status> {
    let request = cx.parse(Request::parse)?;
    let user = cx.session()?.user().ok_or(Status::USER_SESSION_DELETED)?;
    let peer = cx.conn.info.peer.ip();
    let Some(name) = share_name(&request.path) else {
        // INVALID_PARAMETER would also be correct, but programs report this status to their users as a wrong share name.
        refused::unknown_share(peer, user.name.as_str().into(), request.path.as_str().into());
        return Err(Status::BAD_NETWORK_NAME);
    };
    if name.eq_ignore_ascii_case(PIPES) {
        return connect(cx, |id, session_id| of_pipes(id, session_id, &user.cred));
    }
    let shares = cx.server.namespace.shares();
    let named = |s: &&Arc<Share>| s.name.to_lowercase() == name.to_lowercase();
    let found = shares.iter().filter(|s| s.protocols.smb()).find(named);
    let Some(share) = found.cloned() else {
        refused::unknown_share(peer, user.name.as_str().into(), name.into());
        return Err(Status::BAD_NETWORK_NAME);
    };
    if share.is_elsewhere() {
        return elsewhere(cx, &share, &user);
    }
    let mut settings = cx.server.settings().share(&share.name);
    let granted = grant_to_all(cx, &share, &settings, &user)?;
    if settings.encrypt || cx.encrypted {
        // Encryption need not come from the session: the share may require it, or the client may choose it.
        cx.conn.info.facts.note(Facts::PROTECTION, "encrypted");
    }
    let home = match share.rules.homes {
        true => Some(home(cx, &granted, &user).await?),
        false => None,
    };
    if home.is_some() {
        // Each user's folder has backups of its own.
        settings.time_machine = settings.time_machine.map(|machine| machine.of_another_folder());
    }
    let is_read_only = granted.share.read_only;
    let is_admin = granted.cred.uid == 0 && user.cred.uid != 0 && share.makes_admin(&user.cred);
    let tree = |id, session_id| Tree {
        last_take_up: LastTakeUp::default(),
        id,
        session_id,
        name: share.name.clone(),
        home,
        is_dfs: links::is_root(&share),
        maximal_access: most(&granted.share),
        target: Target::Files(granted.share),
        cred: granted.cred,
        settings,
    };
    // Fails if the connection must be audited and the record cannot be written.
    let permit = audit::permit().map_err(|_| Status::AUDIT_FAILED)?;
    let answer = connect(cx, tree)?;
    // A reload that ran meanwhile has checked the other trees, but not this one.
    let session = cx.session()?;
    if let Some(tree) = answer.tree_id.and_then(|id| session.tree(id))
        && !tree_stands(&cx.server, session, &tree, Unknown::Ends)
    {
        end_tree(&cx.server, session, &tree).await;
        return Err(Status::BAD_NETWORK_NAME);
    }
    permit.record(|| audit::Event::Share {
        peer,
        party: user.party(),
        share: share.name.as_str().into(),
        session: session.id,
        access: match (is_read_only, is_admin) {
            (true, _) => "read",
            (false, true) => "admin",
            (false, false) => "write",
        },
    });
    Ok(answer)
}

fn of_pipes(id: u32, session_id: u64, cred: &Cred) -> Tree {
    Tree {
        last_take_up: LastTakeUp::default(),
        id,
        session_id,
        name: PIPES.into(),
        target: Target::Pipes,
        home: None,
        is_dfs: false,
        cred: cred.clone(),
        maximal_access: PIPE_ACCESS,
        settings: ShareSettings::default(),
    }
}

/// Connects to a share that resides on other servers, if the client may see it, so that the client requests a DFS referral.
fn elsewhere(cx: &RequestContext, share: &Arc<Share>, user: &User) -> Result<Answer, Status> {
    for ip in [cx.conn.info.peer.ip()].into_iter().chain(cx.session()?.addresses()) {
        let client = share.client(ip, By::Smb);
        client.map_err(|why| denied(cx, ip, user, &share.name, Denial::Rule(why)))?;
    }
    connect(cx, |id, session_id| Tree {
        last_take_up: LastTakeUp::default(),
        id,
        session_id,
        name: share.name.clone(),
        target: Target::Elsewhere(share.clone()),
        home: None,
        is_dfs: true,
        cred: user.cred.clone(),
        maximal_access: READ_ACCESS,
        settings: ShareSettings::default(),
    })
}

/// Returns the user's home folder in a share of home folders. If it cannot be opened or created, the user has no such share.
async fn home(cx: &RequestContext, granted: &Entered, user: &User) -> Result<NodeRef, Status> {
    let file_ops = cx.server.namespace.by_smb(None);
    // The folder of an administrator of the share is its own, too.
    let cred = if granted.share.makes_admin(&user.cred) { &user.cred } else { &granted.cred };
    file_ops.home(&granted.share, &user.name, cred).await.map_err(|error| {
        let (user, share, peer) = (&user.name, &granted.share.name, cx.conn.info.peer);
        tracing::warn!(%peer, user, share, %error, "the home folder of this user cannot be opened or created");
        match error {
            VfsError::NotFound | VfsError::NotDir | VfsError::BadName => Status::BAD_NETWORK_NAME,
            e => e.into(),
        }
    })
}

/// Returns the access that every connection of the session would grant, since the client may use the tree on any of them.
fn grant_to_all(
    cx: &RequestContext,
    share: &Arc<Share>,
    settings: &ShareSettings,
    user: &User,
) -> Result<Entered, Status> {
    let can_encrypt = cx.conn.negotiated().is_some_and(|n| n.cipher.is_some());
    let from = |ip| {
        let granted = grant(share, settings, user, ip, can_encrypt);
        granted.map_err(|why| denied(cx, ip, user, &share.name, why))
    };
    let mut least = from(cx.conn.info.peer.ip())?;
    for ip in cx.session()?.addresses() {
        let granted = from(ip)?;
        if granted.share.read_only {
            least = granted;
        }
    }
    Ok(least)
}

/// Logs which rule of the share refused the client. MS-SMB2 section 3.3.5.7 has a single status for all of them.
fn denied(cx: &RequestContext, peer: IpAddr, user: &User, share: &str, why: Denial) -> Status {
    match why {
        Denial::Guest => Rule::Guest.note(&cx.conn, &user.name, share),
        Denial::Clear => Rule::EncryptionOfShare.note(&cx.conn, &user.name, share),
        Denial::Rule(why) => {
            let shares = cx.server.namespace.shares();
            let of = shares.iter().find(|it| it.name == share).filter(|_| why == Refusal::Address);
            // A share without `clients` admits every address over SMB, so a share that refuses an address has a list.
            let list = of.map(|of| of.clients_remedy(&[], peer, Protocols::Smb));
            refused::note(Refused {
                peer,
                user: user.name.as_str().into(),
                share: share.into(),
                rule: why.name(),
                remedy: list.map_or(why.remedy().into(), Into::into),
            });
        }
    }
    Status::ACCESS_DENIED
}

/// Adds a tree, which `make` builds from the tree and session identifiers.
fn connect(cx: &RequestContext, make: impl FnOnce(u32, u64) -> Tree) -> Result<Answer, Status> {
    let session = cx.session()?;
    session.room_for_a_tree(&cx.server.trees_by_address, cx.conn.info.peer)?;
    let tree = session
        .add_tree(|id| make(id, session.id))
        .ok_or_else(|| cx.limited("trees-of-session", TREES_MAX))?;
    let (is_pipe, encrypt) = (tree.is_pipes(), tree.settings.encrypt);
    let is_dfs = tree.is_dfs;
    let compress = tree.settings.compress && compression::is_agreed(&cx.conn);
    let is_3 = cx.conn.dialect().is_3();
    let only_visible = tree.share().is_some_and(|share| share.rules.only_visible);
    let continuous = is_3 && !is_pipe && cx.server.is_continuous(&tree.settings);
    let capabilities =
        if continuous { CONTINUOUS_AVAILABILITY } else { 0 } | if is_dfs { CAP_DFS } else { 0 };
    let response = Response {
        share_type: if is_pipe { PIPE } else { DISK },
        flags: if is_pipe { NO_CACHING } else { 0 }
            | if only_visible { ACCESS_BASED_ENUM } else { 0 }
            | if is_dfs { DFS | DFS_ROOT } else { 0 }
            | if encrypt && is_3 { ENCRYPT_DATA } else { 0 }
            | if compress { COMPRESS_DATA } else { 0 },
        capabilities,
        maximal_access: tree.maximal_access,
    };
    Ok(Answer { tree_id: Some(tree.id), ..Answer::ok(response.emit()) })
}

/// Returns the share name in `\\server\share`.
fn share_name(path: &str) -> Option<&str> {
    let (server, share) = path.strip_prefix(r"\\")?.split_once('\\')?;
    (!server.is_empty() && !share.is_empty() && !share.contains(['\\', '/'])).then_some(share)
}
