//! RQUOTA versions 1 and 2: tells users what they use of a share's file system, and their limits.
//!
//! *Operation.* A call names a path like MOUNT, with the same rules for clients and folders ([`mount::find`]). The answer is about
//! the caller or one of its groups; the superuser, unless the share squashes it, may ask about every user. If the share serves the
//! caller as another user, the answer is about that user. Calls that set limits are refused, like in rpc.rquotad of Linux without
//! `-S`.
//!
//! *Errors.* Q_EPERM for a caller that may not know, Q_NOQUOTA where nothing is counted.

use nfs_proto::nfs3::Nfsstat3;
use nfs_proto::rquota::{Args1, Args2, QuotaRslt, Rquota, kind, procedure};
use rdma_transport::xdr::{Reader, Writer, XdrResult};
use vfs::quota::{Quota, QuotaKind};
use vfs::{Cred, Time, VfsError};

use crate::context::{CallContext, Conn, Outcome};
use crate::mount;
use crate::server_state::ServerState;
use crate::status::Failed;

pub use nfs_proto::rquota::VERSIONS;

/// Smallest unit of the block counts in answers, in bytes.
const BLOCK_MIN: u64 = 1024;

/// What a call asks for.
struct Asked<'a> {
    path: &'a [u8],
    kind: Option<QuotaKind>,
    id: u32,
    /// Only limits that are enforced count.
    active: bool,
}

/// Executes one call.
pub async fn serve(
    core: &ServerState,
    (conn, call): (&Conn, &CallContext),
    (version, number): (u32, u32),
    args: &mut Reader<'_>,
    out: &mut Writer,
) -> XdrResult<Outcome> {
    let active = number == procedure::GETACTIVEQUOTA;
    let user = Some(QuotaKind::User);
    let asked = match version {
        1 => match args.parse(|i| Args1::parse(number, i))? {
            Some(Args1::Getquota(a)) => {
                Some(Asked { path: a.gqa_pathp, kind: user, id: a.gqa_uid, active })
            }
            Some(Args1::Setquota(_)) => None,
            Some(Args1::Null) => return Ok(Outcome::Repeatable),
            None => return Ok(Outcome::NoProcedure),
        },
        _ => match args.parse(|i| Args2::parse(number, i))? {
            Some(Args2::Getquota(a)) => {
                let kind = match a.gqa_type {
                    kind::USRQUOTA => user,
                    kind::GRPQUOTA => Some(QuotaKind::Group),
                    _ => None,
                };
                Some(Asked { path: a.gqa_pathp, kind, id: a.gqa_id, active })
            }
            Some(Args2::Setquota(_)) => None,
            Some(Args2::Null) => return Ok(Outcome::Repeatable),
            None => return Ok(Outcome::NoProcedure),
        },
    };
    let result = match asked {
        None => Err(VfsError::Perm),
        Some(asked) => look(core, conn, call, asked).await,
    };
    out.value(&match result {
        Ok(quota) => QuotaRslt::Ok(quota),
        Err(VfsError::Perm | VfsError::Access) => QuotaRslt::Eperm,
        Err(_) => QuotaRslt::Noquota,
    });
    Ok(Outcome::Repeatable)
}

/// Finds the quota, if the caller may know it.
async fn look(
    core: &ServerState,
    conn: &Conn,
    call: &CallContext,
    asked: Asked<'_>,
) -> Result<Rquota, VfsError> {
    let found = mount::find(core, conn, call, asked.path).await;
    let (share, node) = found.map_err(|Failed(why)| match why {
        Nfsstat3::Perm | Nfsstat3::Acces => VfsError::Perm,
        _ => VfsError::NotFound,
    })?;
    let granted = core.judge(conn, call, &share).map_err(|_| VfsError::Perm)?;
    let entered = share.granted(granted);
    let kind = asked.kind.ok_or(VfsError::NotSupported)?;
    let id = about(kind, asked.id, &call.cred, &entered.cred).ok_or(VfsError::Perm)?;
    let backend = &entered.share.backend;
    let state = backend.quota_state(&node, kind).await?;
    if asked.active && !state.enforces {
        return Err(VfsError::NotSupported);
    }
    let quota = backend.quota(&node, kind, id).await?;
    Ok(encode(&quota, state.enforces, Time::now().sec))
}

/// Returns the number whose quota answers a question about `id`; `None` if the caller may not ask. The share serves the caller as
/// `served`.
fn about(kind: QuotaKind, id: u32, caller: &Cred, served: &Cred) -> Option<u32> {
    if served.uid == 0 {
        return Some(id);
    }
    let is_squashed = served.uid != caller.uid;
    match kind {
        QuotaKind::User => (id == caller.uid).then_some(served.uid),
        QuotaKind::Group if is_squashed => (id == caller.gid).then_some(served.gid),
        QuotaKind::Group => served.in_group(id).then_some(id),
        QuotaKind::Project => None,
    }
}

/// Converts a quota. The numbers of the protocol have 32 bits, so the unit grows with them.
fn encode(quota: &Quota, rq_active: bool, now: i64) -> Rquota {
    let (soft, hard) = (quota.limits.soft.unwrap_or(0), quota.limits.hard.unwrap_or(0));
    let most = quota.used.max(soft).max(hard);
    let mut unit = BLOCK_MIN;
    // The unit itself is a signed number.
    while most.div_ceil(unit) > u64::from(u32::MAX) && unit < 1 << 30 {
        unit *= 2;
    }
    let number = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    let blocks = |bytes: u64| number(bytes.div_ceil(unit));
    let files = |limit: Option<u64>| number(limit.unwrap_or(0));
    // Negative if the time is over; zero would mean that no time runs.
    let left = |until: Option<i64>| match until.map(|until| until.saturating_sub(now)) {
        None => 0,
        Some(0) => -1,
        Some(left) => i32::try_from(left).unwrap_or(if left < 0 { i32::MIN } else { i32::MAX }),
    };
    Rquota {
        rq_bsize: number(unit),
        rq_active,
        rq_bhardlimit: blocks(hard),
        rq_bsoftlimit: blocks(soft),
        rq_curblocks: blocks(quota.used),
        rq_fhardlimit: files(quota.file_limits.hard),
        rq_fsoftlimit: files(quota.file_limits.soft),
        rq_curfiles: number(quota.files),
        rq_btimeleft: left(quota.bytes_until).cast_unsigned(),
        rq_ftimeleft: left(quota.files_until).cast_unsigned(),
    }
}

#[cfg(test)]
mod tests {
    use vfs::Token;
    use vfs::quota::QuotaLimits;

    use super::*;

    fn cred(uid: u32, gid: u32, groups: &[u32]) -> Cred {
        Cred { uid, gid, groups: groups.into(), token: Token::NONE }
    }

    #[test]
    fn callers_learn_about_themselves() {
        use QuotaKind::{Group, User};
        let (alice, root) = (cred(1000, 100, &[7]), cred(0, 0, &[]));
        let nobody = cred(65_534, 65_533, &[]);
        for (kind, id, caller, served, wanted) in [
            (User, 1000, &alice, &alice, Some(1000)),
            (User, 1001, &alice, &alice, None),
            (User, 0, &alice, &alice, None),
            (Group, 100, &alice, &alice, Some(100)),
            (Group, 7, &alice, &alice, Some(7)),
            (Group, 8, &alice, &alice, None),
            (User, 1001, &root, &root, Some(1001)),
            (Group, 8, &root, &root, Some(8)),
            // Squashed.
            (User, 1001, &root, &nobody, None),
            (User, 0, &root, &nobody, Some(65_534)),
            (User, 1000, &alice, &nobody, Some(65_534)),
            (Group, 100, &alice, &nobody, Some(65_533)),
            (Group, 7, &alice, &nobody, None),
        ] {
            assert_eq!(about(kind, id, caller, served), wanted, "{kind:?} {id} {caller:?}");
        }
    }

    #[test]
    fn numbers_fit_by_a_larger_unit() {
        let limits = QuotaLimits { soft: Some(1 << 20), hard: Some(3 << 20) };
        let small = Quota { used: 1025, limits, bytes_until: Some(90), ..Quota::default() };
        let shown = encode(&small, true, 30);
        assert_eq!((shown.rq_bsize, shown.rq_curblocks), (1024, 2));
        assert_eq!((shown.rq_bsoftlimit, shown.rq_bhardlimit), (1024, 3072));
        assert_eq!((shown.rq_btimeleft, shown.rq_ftimeleft, shown.rq_active), (60, 0, true));
        let late = |now| encode(&small, true, now).rq_btimeleft.cast_signed();
        assert_eq!((late(90), late(100), late(i64::MIN)), (-1, -10, i32::MAX));
        let large = Quota { used: 1 << 50, ..Quota::default() };
        let shown = encode(&large, false, 0);
        assert_eq!(u64::from(shown.rq_bsize) * u64::from(shown.rq_curblocks), 1 << 50);
        assert_eq!((shown.rq_bhardlimit, shown.rq_active), (0, false));
        assert_eq!(encode(&Quota { used: u64::MAX, ..large }, false, 0).rq_bsize, 1 << 30);
    }
}
