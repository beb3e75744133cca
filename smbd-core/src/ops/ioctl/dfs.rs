//! FSCTL_DFS_GET_REFERRALS and FSCTL_DFS_GET_REFERRALS_EX (MS-SMB2 section 3.3.5.15.2, MS-DFSC section 3.2.5): returns the servers
//! that have a share.
//!
//! *Operation.* Each share that resides elsewhere is a DFS link at `\server\share` with the share's servers as targets. A client
//! that requests the referral first never needs to connect to this server. Domain referrals are not supported.

use std::sync::Arc;

use vfs::namespace::{Namespace, Share};

use crate::answer::Answer;
use crate::request_context::RequestContext;
use crate::share_access::is_told;
use crate::status::Status;
use crate::wire::FileId;
use crate::wire::dfs::{ReferralRequest, ReferralResponse, STORAGE_SERVERS, Version};
use crate::wire::fsctl::code;
use crate::wire::ioctl::{Request, Response};

/// Seconds for which clients may cache a referral.
const TTL_S: u32 = 300;
/// Longest server name in a path, in characters (RFC 1035 section 2.3.4, and a trailing dot).
const SERVER_MAX: usize = 254;

/// Returns whether at least one share resides elsewhere (`IsDfsCapable`).
pub(crate) fn is_capable(namespace: &Namespace) -> bool {
    namespace.shares().iter().any(|share| share.protocols.smb() && share.is_elsewhere())
}

pub(super) fn referrals(cx: &RequestContext, r: &Request<'_>) -> Result<Answer, Status> {
    if !is_capable(&cx.server.namespace) {
        return Err(Status::FS_DRIVER_REQUIRED);
    }
    let asked = cx.parse_part(r.input, |input| match r.code {
        code::DFS_GET_REFERRALS => ReferralRequest::parse(input),
        _ => ReferralRequest::parse_ex(input),
    })?;
    let version = Version::of_level(asked.max_level).ok_or(Status::INVALID_PARAMETER)?;
    let (prefix, name) = link(&asked.path)?;
    let share = elsewhere(&cx.server.namespace, name).ok_or(Status::NOT_FOUND)?;
    if !is_told(&share, cx.conn.info.peer.ip()) {
        return Err(Status::NOT_FOUND);
    }
    let told = ReferralResponse {
        version,
        path_consumed: u16::try_from(prefix.encode_utf16().count() * 2)
            .map_err(|_| Status::INVALID_PARAMETER)?,
        // The targets do not serve as DFS roots for other paths.
        flags: STORAGE_SERVERS,
        is_root: false,
        ttl: TTL_S,
        dfs_path: prefix.to_owned(),
        targets: share.rules.refers_to.iter().map(|target| target.smb_target()).collect(),
    };
    let max = usize::try_from(r.output_max).unwrap_or(usize::MAX);
    let output = told.emit(max).ok_or(Status::BUFFER_OVERFLOW)?;
    Ok(Answer::ok(Response { code: r.code, file: FileId::PREVIOUS, output: &output }.emit()))
}

/// Returns the share with this name if it resides elsewhere.
fn elsewhere(namespace: &Namespace, name: &str) -> Option<Arc<Share>> {
    let name = name.to_lowercase();
    let shares = namespace.shares();
    let mut found = shares.iter().filter(|s| s.protocols.smb() && s.is_elsewhere());
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
