//! Quotas of users (MS-SMB2 sections 3.3.5.20.4 and 3.3.5.21.4, MS-FSA sections 2.1.5.21 and 2.1.5.22), and the default limits of a
//! volume (MS-FSCC section 2.5.2).
//!
//! *Operation.* The host counts and enforces ([`vfs::quota`]); `QuotaThreshold` is its soft limit, `QuotaLimit` its hard limit.
//! Clients open the name `$Extend\$Quota:$Q:$INDEX_ALLOCATION` and use that handle. As in smbd, only the superuser can open it:
//! root, or an administrator of the share. An enumeration follows the numbers of users and keeps only the next number. If the
//! process may not enumerate the quotas of the host, it lists only users that it knows. The superuser has no limit: what XFS keeps
//! under its number are the default limits.
//!
//! *Errors.* STATUS_NOT_SUPPORTED if the volume counts no users, STATUS_INVALID_HANDLE for another handle,
//! STATUS_NO_MORE_ENTRIES at the end of an enumeration.

use std::collections::BTreeSet;
use std::sync::Arc;

use smb_proto::fscc::quota::{Asked, DELETED, NO_LIMIT, Query, Quota, control};
use vfs::acl::sid_of_user;
use vfs::namespace::Share;
use vfs::quota::{QuotaKind, QuotaLimits, QuotaState};
use vfs::{NodeRef, VfsError};

use super::pipe_host::machine;
use crate::answer::Answer;
use crate::dtyp::{FileTime, Sid, mask};
use crate::fscc::Chain;
use crate::fscc::volume::Control;
use crate::lease;
use crate::open::{Open, Target};
use crate::open_quotas::Quotas;
use crate::owners;
use crate::pace::Pace;
use crate::request_context::RequestContext;
use crate::status::Status;
use crate::users;
use crate::wire::close::Basics;
use crate::wire::create::{Disposition, Request, Response, action};

/// The superuser.
const ROOT: u32 = 0;
/// Entries that are read from the volume at once.
const BATCH: usize = 256;

/// Opens the quotas of the share's volume.
pub(super) fn create(
    cx: &RequestContext,
    request: &Request<'_>,
    disposition: Disposition,
    share: &Arc<Share>,
) -> Result<Answer, Status> {
    /// FILE_ATTRIBUTE_NORMAL
    const NORMAL: u32 = 0x80;
    let tree = cx.tree()?;
    match disposition {
        Disposition::Open | Disposition::OpenIf => {}
        Disposition::Create => return Err(Status::OBJECT_NAME_COLLISION),
        _ => return Err(Status::ACCESS_DENIED),
    }
    let asked = mask::map_generic(request.access);
    let most = tree.maximal_access;
    let wanted = asked & !mask::MAXIMUM_ALLOWED;
    if tree.cred.uid != ROOT || wanted & !most != 0 {
        return Err(Status::ACCESS_DENIED);
    }
    let all = if asked & mask::MAXIMUM_ALLOWED == 0 { 0 } else { mask::FILE_ALL & most };
    let (owner, party) = ((tree.session_id, tree.id), lease::party(cx));
    let target = Target::Quotas(Quotas::new(share.clone(), tree.top(share)));
    let mut open = Open::new(owner, target, party, tree.cred.clone(), wanted | all)?;
    open.part = Some(cx.part_of_opens(0)?);
    let open = Arc::new(open);
    cx.server.opens.insert(open.clone())?;
    let response = Response {
        oplock_level: 0,
        flags: 0,
        action: action::OPENED,
        basics: Basics { times: [0; 4], allocation_size: 0, end_of_file: 0, attributes: NORMAL },
        file: open.id,
        contexts: Vec::new(),
    };
    Ok(Answer { opened: Some(open.id), ..Answer::ok(response.emit()) })
}

/// Returns the share, and a node on the volume that the open belongs to, or STATUS_INVALID_DEVICE_REQUEST for a pipe.
pub(super) fn volume(open: &Open) -> Result<(&Arc<Share>, NodeRef), Status> {
    match &open.target {
        Target::File(file) => Ok((&file.share, file.node())),
        Target::Quotas(quotas) => Ok((&quotas.share, quotas.node.clone())),
        Target::Pipe(_) => Err(Status::INVALID_DEVICE_REQUEST),
    }
}

/// Returns the handle's quotas, if its volume has some.
fn quotas(open: &Open) -> Result<&Quotas, Status> {
    let (share, node) = volume(open)?;
    if !share.backend.capabilities_of(&node).quotas {
        return Err(Status::NOT_SUPPORTED);
    }
    match &open.target {
        Target::Quotas(quotas) => Ok(quotas),
        _ => Err(Status::INVALID_HANDLE),
    }
}

/// Answers QUERY_INFO with a buffer of at most `limit` bytes.
pub(super) async fn query(
    cx: &RequestContext,
    open: &Open,
    input: &[u8],
    limit: usize,
) -> Result<Vec<u8>, Status> {
    let quotas = quotas(open)?;
    let query = cx.parse_part(input, Query::parse)?;
    let (chain, single) = (Chain::new(limit), query.single);
    let has_default = has_default(quotas).await?;
    let listing = Listing { cx, open, quotas, has_default, chain, single };
    match query.asked {
        Asked::Of(sids) => listing.of(sids).await,
        Asked::From(sid) => {
            let from = uid_of(cx, open, &sid).ok_or(Status::INVALID_SID)?;
            listing.all(Some(from)).await
        }
        Asked::All if query.restarts => listing.all(Some(0)).await,
        Asked::All => listing.all(quotas.next()).await,
    }
}

/// An answer under construction.
struct Listing<'a> {
    cx: &'a RequestContext,
    open: &'a Open,
    quotas: &'a Quotas,
    has_default: bool,
    chain: Chain,
    single: bool,
}

impl Listing<'_> {
    /// Lists these users. A user without an entry, or without a number, has zeros (MS-FSA section 2.1.5.21).
    async fn of(mut self, sids: Vec<Sid>) -> Result<Vec<u8>, Status> {
        let Quotas { share, node, .. } = self.quotas;
        let mut pace = Pace::begin();
        for sid in sids {
            let entry = match uid_of(self.cx, self.open, &sid) {
                Some(uid) => {
                    self.shown(&share.backend.quota(node, QuotaKind::User, uid).await?, sid)
                }
                None => Quota { changed: FileTime(0), used: 0, threshold: 0, limit: 0, sid },
            };
            if !self.chain.push(&entry.emit()) || self.single {
                break;
            }
            pace.keep().await;
        }
        match self.chain.is_empty() {
            true => Err(Status::BUFFER_TOO_SMALL),
            false => Ok(self.chain.into_bytes()),
        }
    }

    /// Lists all users from this one on, as many as fit, and notes where the next answer begins.
    async fn all(mut self, mut next: Option<u32>) -> Result<Vec<u8>, Status> {
        let domain = self.open.cred.token.domain();
        let mut pace = Pace::begin();
        'fits: while let Some(from) = next {
            let found = batch(self.cx, self.quotas, from).await?;
            owners::learn_users(self.cx, found.iter().map(|quota| quota.id).collect()).await?;
            if found.is_empty() {
                next = None;
            }
            for quota in found {
                let entry = self.shown(&quota, sid_of_user(quota.id, domain));
                if !self.chain.push(&entry.emit()) {
                    next = Some(quota.id);
                    break 'fits;
                }
                next = quota.id.checked_add(1);
                if self.single {
                    break 'fits;
                }
            }
            pace.keep().await;
        }
        self.quotas.set_next(next);
        match (self.chain.is_empty(), next) {
            (false, _) => Ok(self.chain.into_bytes()),
            (true, Some(_)) => Err(Status::BUFFER_TOO_SMALL),
            (true, None) => Err(Status::NO_MORE_ENTRIES),
        }
    }

    /// Returns the entry that clients see.
    fn shown(&self, quota: &vfs::quota::Quota, sid: Sid) -> Quota {
        let limits = match self.has_default && quota.id == ROOT {
            true => QuotaLimits::default(),
            false => quota.limits,
        };
        Quota {
            changed: FileTime(0),
            used: quota.used,
            threshold: limits.soft.unwrap_or(NO_LIMIT),
            limit: limits.hard.unwrap_or(NO_LIMIT),
            sid,
        }
    }
}

/// Returns whether the limits that the host keeps for the superuser are default limits.
async fn has_default(Quotas { share, node, .. }: &Quotas) -> Result<bool, Status> {
    Ok(share.backend.quota_state(node, QuotaKind::User).await?.has_default)
}

/// Returns the next entries of the volume, from this user on; of known users only, if the process may not enumerate.
async fn batch(
    cx: &RequestContext,
    Quotas { share, node, .. }: &Quotas,
    from: u32,
) -> Result<Vec<vfs::quota::Quota>, Status> {
    match share.backend.quotas(node, QuotaKind::User, from, BATCH).await {
        Err(VfsError::Perm) => {}
        done => return Ok(done?),
    }
    let (mut all, mut pace) = (Vec::new(), Pace::begin());
    for uid in known(cx).range(from..) {
        let quota = share.backend.quota(node, QuotaKind::User, *uid).await?;
        if (quota.used, quota.limits) != Default::default() {
            all.push(quota);
        }
        if all.len() == BATCH {
            break;
        }
        pace.keep().await;
    }
    Ok(all)
}

/// Returns the users of all accounts, and users of the domain that have logged on.
fn known(cx: &RequestContext) -> BTreeSet<u32> {
    let users = &cx.server.users;
    let mut all = BTreeSet::from([ROOT]);
    users.each(&mut |_, cred| {
        all.insert(cred.uid);
    });
    let domain = users.domain();
    all.extend(domain.iter().flat_map(|domain| domain.known_users()).map(|(uid, ..)| uid));
    all
}

/// Returns the user of a SID: of this host, of the accounts that SAMR lists, or of the domain.
fn uid_of(cx: &RequestContext, open: &Open, sid: &Sid) -> Option<u32> {
    let uid = match sid.rid_in(&machine(&cx.server.settings().server_guid)) {
        Some(rid) => users::uid_of_rid(rid),
        None => sid.as_unix_user().or_else(|| open.cred.token.domain()?.uid(sid)),
    };
    // The kernel has no such user.
    uid.filter(|uid| *uid != u32::MAX)
}

/// Converts limits of the protocol to limits of the host. XFS ignores limits with a threshold above the limit, without an error.
fn limits(threshold: u64, limit: u64) -> Result<QuotaLimits, Status> {
    let of = |n: u64| match n {
        NO_LIMIT => Ok(None),
        // The numbers are signed.
        n if i64::try_from(n).is_ok() => Ok(Some(n)),
        _ => Err(Status::INVALID_PARAMETER),
    };
    match limit {
        DELETED => Ok(QuotaLimits::default()),
        limit => {
            let (soft, hard) = (of(threshold)?, of(limit)?);
            Ok(QuotaLimits { soft: soft.map(|n| n.min(hard.unwrap_or(n))), hard })
        }
    }
}

/// Checks that quotas of the volume may be set through this handle.
fn check_sets(open: &Open, share: &Share) -> Result<(), Status> {
    open.check(mask::WRITE_DATA)?;
    if share.read_only { Err(Status::MEDIA_WRITE_PROTECTED) } else { Ok(()) }
}

/// Sets the limits of users. No limit changes if one of them is invalid, or of no user.
pub(super) async fn set(cx: &RequestContext, open: &Open, buffer: &[u8]) -> Result<(), Status> {
    let quotas = quotas(open)?;
    let Quotas { share, node, .. } = quotas;
    check_sets(open, share)?;
    let mut changes = Vec::new();
    for quota in cx.parse_part(buffer, Quota::parse_list)? {
        let administrators = quota.sid == Sid::administrators();
        let uid = match administrators {
            true => ROOT,
            false => uid_of(cx, open, &quota.sid).ok_or(Status::NO_SUCH_USER)?,
        };
        if uid != ROOT {
            changes.push((uid, limits(quota.threshold, quota.limit)?));
            continue;
        }
        // They have no limit (MS-FSA section 2.1.5.22).
        if quota.limit != NO_LIMIT {
            return Err(Status::ACCESS_DENIED);
        }
        // The host may have limited the user.
        if !administrators && !has_default(quotas).await? {
            changes.push((ROOT, QuotaLimits::default()));
        }
    }
    let mut pace = Pace::begin();
    for (uid, limits) in changes {
        share.backend.quota_set(node, QuotaKind::User, uid, limits).await?;
        note(cx, share, uid, limits);
        pace.keep().await;
    }
    Ok(())
}

/// Logs a change, which the host does not.
fn note(cx: &RequestContext, share: &Share, uid: u32, limits: QuotaLimits) {
    let by = cx.session().ok().and_then(|session| session.user()).map(|user| user.name.clone());
    let (peer, share) = (cx.conn.info.peer.ip(), &share.name);
    let (soft, hard) = (limits.soft, limits.hard);
    tracing::info!(%peer, share, uid, ?soft, ?hard, by, "a client set the quota of a user");
}

/// Returns the default limits of the volume, and what it does with quotas.
pub(super) async fn control(share: &Share, node: &NodeRef) -> Result<Control, Status> {
    let (state, default) = defaults(share, node).await?;
    let limit = |limit: Option<u64>| limit.unwrap_or(NO_LIMIT);
    let (default_threshold, default_limit) = (limit(default.soft), limit(default.hard));
    Ok(Control { default_threshold, default_limit, flags: flags(state), ..Control::default() })
}

fn flags(state: Option<QuotaState>) -> u32 {
    match state {
        None => 0,
        Some(QuotaState { enforces: true, .. }) => control::QUOTA_ENFORCE,
        Some(_) => control::QUOTA_TRACK,
    }
}

/// Returns how the volume treats quotas, if it counts users, and its default limits.
async fn defaults(
    share: &Share,
    node: &NodeRef,
) -> Result<(Option<QuotaState>, QuotaLimits), Status> {
    let (backend, none) = (&share.backend, QuotaLimits::default());
    if !backend.capabilities_of(node).quotas {
        return Ok((None, none));
    }
    let state = match backend.quota_state(node, QuotaKind::User).await {
        // The host has ended its counting.
        Err(VfsError::NotSupported) => return Ok((None, none)),
        state => state?,
    };
    let default = match state.has_default {
        true => backend.quota(node, QuotaKind::User, ROOT).await?.limits,
        false => none,
    };
    Ok((Some(state), default))
}

/// Sets the default limits of a volume that has some. Only the host turns counting and enforcing on and off, and volumes keep no
/// log, so the flags must equal the present ones.
pub(super) async fn set_control(
    cx: &RequestContext,
    open: &Open,
    buffer: &[u8],
) -> Result<(), Status> {
    const FLAGS: u32 = control::QUOTA_TRACK
        | control::QUOTA_ENFORCE
        | control::LOG_QUOTA_THRESHOLD
        | control::LOG_QUOTA_LIMIT;
    let Ok(Quotas { share, node, .. }) = quotas(open) else {
        return Err(Status::INVALID_PARAMETER);
    };
    check_sets(open, share)?;
    let wanted = cx.parse_part(buffer, Control::parse)?;
    let (state, default) = defaults(share, node).await?;
    let wanted_limits = limits(wanted.default_threshold, wanted.default_limit)?;
    if (wanted.flags ^ flags(state)) & FLAGS != 0 {
        return Err(Status::INVALID_PARAMETER);
    }
    if wanted_limits == default {
        return Ok(());
    }
    if !state.is_some_and(|state| state.has_default) {
        return Err(Status::INVALID_PARAMETER);
    }
    share.backend.quota_set(node, QuotaKind::User, ROOT, wanted_limits).await?;
    note(cx, share, ROOT, wanted_limits);
    Ok(())
}
