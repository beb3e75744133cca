//! FSCTL_DFS_GET_REFERRALS and FSCTL_DFS_GET_REFERRALS_EX (MS-SMB2 section 3.3.5.15.2, MS-DFSC section 3.2.5): returns the servers
//! that have a share, or a folder of a share.
//!
//! *Operation.* Each share that resides elsewhere is a DFS link at `\server\share` with the share's servers as targets. A client
//! that requests the referral first never needs to connect to this server. A share with links is a DFS root: a path that leads to a
//! link is answered with the servers of the link, any other path in the share with the root, whose server is this one by the name
//! that the client uses. Domain referrals are not supported.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use vfs::namespace::{Namespace, Share};
use vfs::refer::Referral;

use crate::answer::Answer;
use crate::links;
use crate::request_context::RequestContext;
use crate::share_access::{grant, is_told};
use crate::status::Status;
use crate::tree::{LastTakeUp, Target, Tree};
use crate::wire::FileId;
use crate::wire::dfs::{
    REFERRAL_SERVERS, ReferralRequest, ReferralResponse, STORAGE_SERVERS, Version,
};
use crate::wire::fsctl::code;
use crate::wire::ioctl::{Request, Response};

/// Seconds for which clients may cache a referral.
const TTL_S: u32 = 300;
/// Longest server name in a path, in characters (RFC 1035 section 2.3.4, and a trailing dot).
const SERVER_MAX: usize = 254;

/// Returns whether at least one share, or a part of one, resides elsewhere (`IsDfsCapable`).
pub(crate) fn is_capable(namespace: &Namespace) -> bool {
    let refers = |share: &Share| share.is_elsewhere() || links::is_root(share);
    namespace.shares().iter().any(|share| share.protocols.smb() && refers(share))
}

/// The servers for a path.
struct Told {
    /// Bytes of the path, in UTF-8, that the servers replace.
    consumed: usize,
    is_root: bool,
    flags: u32,
    targets: Vec<String>,
}

pub(super) async fn referrals(cx: &RequestContext, r: &Request<'_>) -> Result<Answer, Status> {
    if !is_capable(&cx.server.namespace) {
        return Err(Status::FS_DRIVER_REQUIRED);
    }
    let asked = cx.parse_part(r.input, |input| match r.code {
        code::DFS_GET_REFERRALS => ReferralRequest::parse(input),
        _ => ReferralRequest::parse_ex(input),
    })?;
    let version = Version::of_level(asked.max_level).ok_or(Status::INVALID_PARAMETER)?;
    let (prefix, name) = link(&asked.path)?;
    let share = named(&cx.server.namespace, name).ok_or(Status::NOT_FOUND)?;
    if !is_told(&share, cx.conn.info.peer.ip()) {
        return Err(Status::NOT_FOUND);
    }
    let found = match share.is_elsewhere() {
        true => Told {
            consumed: prefix.len(),
            is_root: false,
            // The targets do not serve as DFS roots for other paths.
            flags: STORAGE_SERVERS,
            targets: shown(&share.rules.refers_to),
        },
        false => of_root(cx, &share, &asked.path, prefix).await?,
    };
    let prefix = asked.path.get(..found.consumed).ok_or(Status::INVALID_PARAMETER)?;
    let told = ReferralResponse {
        version,
        path_consumed: u16::try_from(prefix.encode_utf16().count() * 2)
            .map_err(|_| Status::INVALID_PARAMETER)?,
        flags: found.flags,
        is_root: found.is_root,
        ttl: TTL_S,
        dfs_path: prefix.to_owned(),
        targets: found.targets,
    };
    let max = usize::try_from(r.output_max).unwrap_or(usize::MAX);
    let output = told.emit(max).ok_or(Status::BUFFER_OVERFLOW)?;
    Ok(Answer::ok(Response { code: r.code, file: FileId::PREVIOUS, output: &output }.emit()))
}

fn shown(targets: &[Referral]) -> Vec<String> {
    targets.iter().map(Referral::smb_target).collect()
}

/// Finds the servers for a path in a share that is a root. A user who may not connect to the share learns of no link.
async fn of_root(
    cx: &RequestContext,
    share: &Arc<Share>,
    path: &str,
    prefix: &str,
) -> Result<Told, Status> {
    let user = cx.session()?.user().ok_or(Status::USER_SESSION_DELETED)?;
    let settings = cx.server.settings().share(&share.name);
    let can_encrypt = cx.conn.negotiated().is_some_and(|n| n.cipher.is_some());
    let entered = grant(share, &settings, &user, cx.conn.info.peer.ip(), can_encrypt)
        .map_err(|_| Status::NOT_FOUND)?;
    let tree = Tree {
        last_take_up: LastTakeUp::default(),
        id: 0,
        session_id: 0,
        name: share.name.clone(),
        target: Target::Files(entered.share.clone()),
        home: None,
        cred: entered.cred,
        is_dfs: true,
        maximal_access: 0,
        settings,
    };
    let names: Vec<&str> = path[prefix.len()..].split('\\').filter(|n| !n.is_empty()).collect();
    if let Some((link, count)) = links::walk(cx, (&entered.share, &tree), &names).await? {
        share.rules.links.referred.smb.fetch_add(1, Ordering::Relaxed);
        // A client asks an interlink's target for referrals as well (MS-DFSC section 3.1.5.4.5).
        let is_interlink = link.targets.iter().any(|target| target.namespace);
        return Ok(Told {
            consumed: end_of(path, prefix.len(), count),
            is_root: false,
            flags: if is_interlink { REFERRAL_SERVERS } else { STORAGE_SERVERS },
            targets: shown(&link.targets),
        });
    }
    Ok(Told {
        consumed: prefix.len(),
        is_root: true,
        flags: REFERRAL_SERVERS | STORAGE_SERVERS,
        targets: vec![format!(r"\{}", prefix.trim_start_matches('\\'))],
    })
}

/// Returns where the name of this number ends in a path, counted behind `from`.
fn end_of(path: &str, from: usize, count: usize) -> usize {
    let mut end = from;
    for _ in 0..count {
        let rest = &path[end..];
        let lead = rest.len() - rest.trim_start_matches('\\').len();
        let name = rest[lead..].find('\\').unwrap_or(rest.len() - lead);
        end += lead + name;
    }
    end
}

/// Returns the share of this name, if it refers to other servers.
fn named(namespace: &Namespace, name: &str) -> Option<Arc<Share>> {
    let name = name.to_lowercase();
    let shares = namespace.shares();
    let refers = |share: &Share| share.is_elsewhere() || links::is_root(share);
    let mut found = shares.iter().filter(|s| s.protocols.smb() && refers(s));
    found.find(|share| share.name.to_lowercase() == name).cloned()
}

/// Splits off `\server\share`, in the client's spelling, and returns it with the share's name. Paths with fewer components are
/// domain referral requests, which go to a domain controller (MS-DFSC sections 3.2.5.2 and 3.2.5.3).
fn link(path: &str) -> Result<(&str, &str), Status> {
    // Some clients send two leading separators.
    let lead = path.len() - path.trim_start_matches('\\').len();
    let rest = &path[lead..];
    let (server, below) = rest.split_once('\\').ok_or(Status::INVALID_PARAMETER)?;
    let name = below.split('\\').next().unwrap_or_default();
    if lead > 2 || server.is_empty() || server.chars().count() > SERVER_MAX || name.is_empty() {
        return Err(Status::INVALID_PARAMETER);
    }
    let end = lead + server.len() + 1 + name.len();
    Ok((&path[..end], name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_the_first_two_names() {
        for (path, prefix, name) in [
            (r"\gw\archive", r"\gw\archive", "archive"),
            (r"\\gw\archive", r"\\gw\archive", "archive"),
            (r"\gw\archive\a\b", r"\gw\archive", "archive"),
            (r"\gw.example.org\archive\", r"\gw.example.org\archive", "archive"),
            (r"gw\archive", r"gw\archive", "archive"),
        ] {
            assert_eq!(link(path), Ok((prefix, name)), "{path}");
        }
        let long = format!(r"\{}\a", "g".repeat(SERVER_MAX + 1));
        for none in ["", r"\", r"\gw", "gw", r"\gw\", r"\\\gw\a", &long] {
            assert_eq!(link(none), Err(Status::INVALID_PARAMETER), "{none}");
        }
    }
}
