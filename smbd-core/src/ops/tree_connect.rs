//! TREE_CONNECT (MS-SMB2 section 3.3.5.7).

use std::net::IpAddr;
use std::sync::Arc;

use rdma_transport::channel::Facts;
use vfs::namespace::Share;

use crate::cx::{Answer, Cx};
use crate::limits::TREES_MAX;
use crate::review::{end_tree, tree_stands};
use crate::session::{Kind, User};
use crate::settings::ShareSettings;
use crate::status::Status;
use crate::tree::{Target, Tree};
use crate::wire::tree_connect::{
    CONTINUOUS_AVAILABILITY, DISK, ENCRYPT_DATA, NO_CACHING, PIPE, Request, Response,
};

/// Everything (MS-SMB2 section 2.2.13.1).
const FULL_ACCESS: u32 = 0x001f_01ff;
/// Everything that changes nothing, and to read security descriptors.
const READ_ACCESS: u32 = 0x0012_00a9;
/// What Windows tells of its pipes.
const PIPE_ACCESS: u32 = 0x001f_00a9;
const PIPES: &str = "IPC$";

pub(crate) async fn call(cx: &Cx) -> Result<Answer, Status> {
    let request = Request::parse(&cx.message)?;
    let name = share_name(&request.path)?;
    let user = cx.session()?.user().ok_or(Status::USER_SESSION_DELETED)?;
    if name.eq_ignore_ascii_case(PIPES) {
        return connect(
            cx,
            PIPES.into(),
            Target::Pipes,
            &user,
            ShareSettings::default(),
            PIPE_ACCESS,
        );
    }
    let shares = cx.server.namespace.shares();
    let named = |s: &&Arc<Share>| s.name.to_lowercase() == name.to_lowercase();
    let found = shares.iter().filter(|s| s.protocols.smb()).find(named);
    let share = found.ok_or(Status::BAD_NETWORK_NAME)?.clone();
    let settings = cx.server.settings().share(&share.name);
    let can_encrypt = cx.conn.negotiated().is_some_and(|n| n.cipher.is_some());
    let access = grant(&share, &settings, &user, cx.conn.info.peer.ip(), can_encrypt)?;
    if settings.encrypt || cx.encrypted {
        // The session need not: the share asks for it, or the client does it of its own accord.
        cx.conn.info.facts.note(Facts::PROTECTION, "encrypted");
    }
    let answer = connect(cx, share.name.clone(), Target::Files(share), &user, settings, access)?;
    // The configuration may have changed meanwhile, and whoever looked at the other trees has not seen this one.
    let session = cx.session()?;
    if let Some(tree) = answer.tree_id.and_then(|id| session.tree(id))
        && !tree_stands(&cx.server, session, &tree)
    {
        end_tree(&cx.server, session, &tree).await;
        return Err(Status::BAD_NETWORK_NAME);
    }
    Ok(answer)
}

/// Most that a user who comes from this address may be granted in a share (an access mask).
pub(crate) fn grant(
    share: &Share,
    settings: &ShareSettings,
    user: &User,
    ip: IpAddr,
    can_encrypt: bool,
) -> Result<u32, Status> {
    let guest_refused = user.kind != Kind::User && !settings.guest;
    let out_of_range =
        share.clients.as_ref().is_some_and(|ranges| !ranges.iter().any(|r| r.contains(ip)));
    if guest_refused || out_of_range || settings.encrypt && !can_encrypt {
        return Err(Status::ACCESS_DENIED);
    }
    Ok(if share.read_only { READ_ACCESS } else { FULL_ACCESS })
}

fn connect(
    cx: &Cx,
    name: String,
    target: Target,
    user: &User,
    settings: ShareSettings,
    maximal_access: u32,
) -> Result<Answer, Status> {
    let session = cx.session()?;
    let is_pipe = matches!(target, Target::Pipes);
    let cred = match &target {
        Target::Files(share) => share.squash(user.cred.clone()),
        Target::Pipes => user.cred.clone(),
    };
    let encrypt = settings.encrypt;
    let tree = session
        .add_tree(|id| Tree {
            id,
            session_id: session.id,
            name,
            target,
            cred,
            maximal_access,
            settings,
        })
        .ok_or_else(|| cx.limited("trees-of-session", TREES_MAX))?;
    let is_3 = cx.conn.dialect().is_3();
    let continuous = is_3 && !is_pipe && cx.server.is_continuous(&tree.settings);
    let capabilities = if continuous { CONTINUOUS_AVAILABILITY } else { 0 };
    let response = Response {
        share_type: if is_pipe { PIPE } else { DISK },
        flags: if is_pipe { NO_CACHING } else { 0 }
            | if encrypt && is_3 { ENCRYPT_DATA } else { 0 },
        capabilities,
        maximal_access,
    };
    Ok(Answer { tree_id: Some(tree.id), ..Answer::ok(response.emit()) })
}

/// The last part of `\\server\share`.
fn share_name(path: &str) -> Result<&str, Status> {
    let rest = path.strip_prefix(r"\\").ok_or(Status::INVALID_PARAMETER)?;
    match rest.split_once('\\') {
        Some((_, share)) if !share.is_empty() && !share.contains('\\') => Ok(share),
        _ => Err(Status::INVALID_PARAMETER),
    }
}
