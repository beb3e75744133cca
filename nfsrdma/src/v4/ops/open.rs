//! OPEN (RFC 8881 section 18.16, RFC 7530 section 16.16): finds or creates a file and opens it for an owner.
//!
//! *Operation.* The steps are, in this order: find the file, check permission, check share modes, and only then truncate, so that a
//! refused open changes no existing file.
//!
//! *Memory.* One entry for each pair of owner and file.
//!
//! *Errors.* As in the specification; NFS4ERR_DELAY while a delegation of another client is recalled.

use std::sync::Arc;

use nfs_proto::nfs4::attrs::{Fattr4, Nfsace4};
use nfs_proto::nfs4::ops::{
    ClaimDelegateCur, Createhow4, NoneDelegation4, Open, OpenClaim4, OpenDelegation4, Opened,
    Openflag4, ReadDelegation, SpaceLimit4, WriteDelegation,
};
use nfs_proto::nfs4::{ChangeInfo4, StateOwner4};
use state::{ClientId, Requester, Rights, Share};
use vfs::audited::{Actor, Opening, opening};
use vfs::{Attr, CreateHow, DirChange, Kind, SetAttr, Time, VfsError};

use super::super::attrs::{Bitmap, Purpose, SUPPORTED_BY_EXCLUSIVE, ToSet, supported};
use crate::exclusive::of_client;
use crate::v4::client::Client;
use crate::v4::compound::{Compound, change_info, component};
use crate::v4::deleg::{Given, Granted, delegate};
use crate::v4::limits::{NAME_MAX, OWNERS_PER_CLIENT_MAX};
use crate::v4::locks::check_grace;
use crate::v4::object::{Located, Object};
use crate::v4::open_owner_seqid::{self, Begun, Owner};
use crate::v4::opens::Opener;
use crate::v4::principal::Principal;
use crate::v4::stateid;
use crate::v4::status::Status;
use crate::v4::wire::{Stateid, attr, op};

const CONFIRM: u32 = 2;
/// `OPEN4_RESULT_NO_OPEN_STATEID` (RFC 9754 section 4).
const NO_OPEN_STATEID: u32 = 0x10;
const LOCKTYPE_POSIX: u32 = 4;

/// `open_delegation_type4`, as CLAIM_PREVIOUS names it.
const DELEGATE_READ: u32 = 1;
const DELEGATE_WRITE: u32 = 2;
/// RFC 9754 section 5.
const DELEGATE_READ_ATTRS: u32 = 4;
const DELEGATE_WRITE_ATTRS: u32 = 5;

/// `OPEN4_SHARE_ACCESS_WANT_*` (RFC 8881 section 18.16.1) and those added by later minor versions.
const WANT_MASK: u32 = 0x0000_ff00;
const WANT_READ_DELEG: u32 = 0x0000_0100;
const WANT_NO_DELEG: u32 = 0x0000_0400;
const WANT_CANCEL: u32 = 0x0000_0500;
const WANT_SIGNALS: u32 = 0x0033_0000;
/// The client wants the delegation to cover the file's times (RFC 9754 section 5).
const WANT_DELEG_TIMESTAMPS: u32 = 0x0010_0000;
/// The client accepts a delegation instead of the open (RFC 9754 section 4).
const WANT_OPEN_XOR_DELEGATION: u32 = 0x0020_0000;

enum Create {
    Unchecked(ToSet),
    Guarded(ToSet),
    Exclusive([u8; 8], ToSet),
}

struct Args<'a> {
    share: Share,
    want: u32,
    /// The client wants to keep the times.
    times: bool,
    /// The client needs no open if it gets a delegation.
    xor: bool,
    create: Option<Create>,
    claim: OpenClaim4<'a>,
}

/// The opened file and the changes made on the way.
struct Found {
    at: Located,
    /// The change of the directory, for `change_info`.
    dir: Option<DirChange>,
    /// The file was created for the caller, whose access its mode does not limit.
    fresh: bool,
    /// Truncate to zero bytes after the open.
    cut: bool,
    /// Attributes that were set.
    set: Bitmap,
    /// The change attribute when permission was checked; a delegation is granted only if it is still the same.
    change: Option<u64>,
}

pub(in crate::v4) async fn open(cx: &mut Compound<'_>) -> Result<(), Status> {
    let asked: Open<'_> = cx.args.value()?;
    let (seqid, StateOwner4 { clientid, owner }) = (asked.seqid, asked.owner);
    // Invalid arguments also advance the owner's sequence.
    let args = decode(cx, &asked).await;
    let client = match &cx.client {
        Some(client) => client.clone(),
        None => cx.nfs.clients.find_v40(ClientId(clientid))?,
    };
    let name = {
        let mut held = client.held();
        if cx.minor == 0 {
            // Some clients do not count a failed OPEN of an unconfirmed owner (seen with libnfs), so only a success is treated as a
            // retransmission.
            let stale = held.open_owners.get(owner).is_some_and(|o| {
                !o.confirmed && !o.order.is_busy() && !o.order.is_last_success(seqid)
            });
            if stale {
                held.discard_owner(owner, cx.nfs.core.namespace.arbiter().state());
            }
        }
        let made = held.open_owner(owner).map(|(name, _)| name);
        made.ok_or_else(|| {
            let (limit, most) = held.limit_met(("owners-of-client", OWNERS_PER_CLIENT_MAX));
            cx.limited(limit, most)
        })?
    };
    match open_owner_seqid::begin(cx, op::OPEN, &client, Owner::Open(name), seqid).await? {
        Begun::Done(done) => done,
        Begun::Do(ticket) => {
            let done = match args {
                Ok(args) => open_in_turn(cx, &client, owner, args).await,
                Err(status) => Err(status),
            };
            ticket.end(cx, done)
        }
    }
}

async fn open_in_turn(
    cx: &mut Compound<'_>,
    client: &Arc<Client>,
    owner: &[u8],
    args: Args<'_>,
) -> Result<(), Status> {
    check_claim(cx, client, &args)?;
    cx.nfs.clients.enter(client).await?;
    let (reads, writes) =
        (args.share.access.has(Rights::READ), args.share.access.has(Rights::WRITE));
    let share = match cx.object() {
        Ok(Object::Node(at)) if at.share.rules.audit != audit::Files::NONE => {
            Some(at.share.clone())
        }
        _ => None,
    };
    let begun = share.as_deref().map(|share| opening(share, (reads, writes), || cx.call.acting()));
    let record = begun.transpose()?.filter(Opening::is_on);
    let denied = match (&record, &args.claim) {
        (Some(_), OpenClaim4::Null(name)) => Some(path_of(cx, name).await),
        (Some(_), _) => Some(Vec::new()),
        (None, _) => None,
    };
    let done = open_unrecorded(cx, client, owner, args).await;
    let Some(record) = record else { return done };
    match (&done, &cx.current) {
        (Ok(()), Some(Object::Node(at))) => record.opened(&at.node, (reads, writes)).await,
        (Err(Status::Access | Status::Perm), _) => {
            record.failed(denied.unwrap_or_default(), VfsError::Access);
        }
        _ => {}
    }
    done
}

/// The path of a name in the current directory, for the audit record.
async fn path_of(cx: &Compound<'_>, name: &[u8]) -> Vec<u8> {
    let Ok(Object::Node(dir)) = cx.object() else { return name.to_vec() };
    vfs::audited::place(&dir.node, name).await
}

async fn open_unrecorded(
    cx: &mut Compound<'_>,
    client: &Arc<Client>,
    owner: &[u8],
    args: Args<'_>,
) -> Result<(), Status> {
    let mut found = find(cx, client, &args).await?;
    if !found.fresh {
        let (read, write) = (
            args.share.access.has(Rights::READ),
            args.share.access.has(Rights::WRITE) || found.cut,
        );
        if write {
            cx.nfs.core.namespace.writable(&found.at.share)?;
        }
        // Checked once: reads and writes through the open rely on it. Permission to execute a file allows reading it (RFC 7530
        // section 16.16.5).
        let at = &found.at;
        let attr = at.node.open(&at.cred, read, write).await?;
        found.change = Some(attr.change);
        after_delete(cx, &args.claim, (&at.node, attr.nlink)).await?;
    } else if args.share.access.has(Rights::WRITE) {
        cx.nfs.core.namespace.writable(&found.at.share)?;
    }
    let stateid = enter(cx, client, owner, &found, args.share).await.map_err(|status| {
        match (&args.claim, status) {
            (OpenClaim4::Previous(_), Status::ShareDenied) => Status::ReclaimConflict,
            (_, status) => status,
        }
    })?;
    let given = delegation(cx, client, &args, &found).await;
    let mut current = stateid;
    let shown = match given {
        Some(granted) if args.xor && stand_in(cx, client, stateid) => {
            current = granted.stateid;
            Stateid::ANONYMOUS
        }
        _ => stateid,
    };
    let none = if shown == Stateid::ANONYMOUS { NO_OPEN_STATEID } else { 0 };
    let confirm = if must_confirm(cx, client, owner, &args) { CONFIRM } else { 0 };
    let Found { at, dir, set, .. } = found;
    let unchanged = ChangeInfo4 { atomic: false, before: 0, after: 0 };
    cx.out.value(&Opened {
        stateid: shown,
        cinfo: dir.as_ref().map_or(unchanged, change_info),
        rflags: LOCKTYPE_POSIX | none | confirm,
        attrset: set,
        delegation: shown_delegation(cx.minor, args.want, given),
    });
    cx.set_current(Object::Node(at));
    cx.current_stateid = Some(current);
    Ok(())
}

/// Refuses a file that an SMB client has marked for deletion. Reclaims, and claims of a delegation, are allowed: the client had the
/// file open before.
async fn after_delete(
    cx: &Compound<'_>,
    claim: &OpenClaim4<'_>,
    (node, links): (&vfs::NodeRef, u32),
) -> Result<(), Status> {
    let name = match (claim, cx.object()) {
        (OpenClaim4::Null(name), Ok(Object::Node(dir))) => Some((dir.node.id(), *name)),
        (OpenClaim4::Fh, _) => None,
        _ => return Ok(()),
    };
    match cx.nfs.core.namespace.arbiter().after_delete(node.id(), name, links).await? {
        // The file may be gone by now.
        true => Err(Status::Delay),
        false => Ok(()),
    }
}

/// Replaces the open by the delegation that it came with.
fn stand_in(cx: &Compound<'_>, client: &Client, open: Stateid) -> bool {
    let arbiter = cx.nfs.core.namespace.arbiter();
    let (_, number) = stateid::parts(open);
    let gone = client.held().stand_in(number, arbiter.state());
    arbiter.released();
    gone
}

async fn decode<'a>(cx: &Compound<'_>, asked: &Open<'a>) -> Result<Args<'a>, Status> {
    let create = match &asked.openhow {
        Openflag4::Nocreate => None,
        Openflag4::Create(how) => Some(decode_create(cx, how).await?),
    };
    let claim = asked.claim;
    match claim {
        OpenClaim4::Null(name) | OpenClaim4::DelegatePrev(name) => check_length(name)?,
        OpenClaim4::DelegateCur(of) => check_length(of.file)?,
        OpenClaim4::Previous(_) => {}
        OpenClaim4::Fh | OpenClaim4::DelegCurFh(_) | OpenClaim4::DelegPrevFh if cx.minor == 0 => {
            return Err(Status::BadXdr);
        }
        OpenClaim4::Fh | OpenClaim4::DelegCurFh(_) | OpenClaim4::DelegPrevFh => {}
    }
    let (access, deny) = (asked.share_access, asked.share_deny);
    let wishes = if cx.minor > 0 { WANT_MASK | WANT_SIGNALS } else { 0 };
    let share = Rights::from_bits(access & !wishes)
        .filter(|a| !a.is_none())
        .zip(Rights::from_bits(deny))
        .map(|(access, deny)| Share::new(access, deny))
        .ok_or(Status::Inval)?;
    if create.is_some() && !matches!(claim, OpenClaim4::Null(_)) {
        return Err(Status::Inval);
    }
    let wants = |flag| cx.minor >= 2 && access & flag != 0;
    Ok(Args {
        share,
        want: access & WANT_MASK,
        times: wants(WANT_DELEG_TIMESTAMPS),
        // A delegation has no deny mode.
        xor: wants(WANT_OPEN_XOR_DELEGATION) && share.deny.is_none(),
        create,
        claim,
    })
}

/// Checks only the length; other errors of a name are found when it is used.
fn check_length(name: &[u8]) -> Result<(), Status> {
    if name.len() > NAME_MAX { Err(Status::NameTooLong) } else { Ok(()) }
}

async fn decode_create(cx: &Compound<'_>, how: &Createhow4<'_>) -> Result<Create, Status> {
    Ok(match how {
        Createhow4::Unchecked(set) => Create::Unchecked(attributes(cx, set).await?),
        Createhow4::Guarded(set) => Create::Guarded(attributes(cx, set).await?),
        Createhow4::Exclusive(verifier) => Create::Exclusive(*verifier, ToSet::default()),
        Createhow4::Exclusive41(_) if cx.minor == 0 => return Err(Status::BadXdr),
        Createhow4::Exclusive41(how) => {
            let set = attributes(cx, &how.cva_attrs).await?;
            if !set.named.is_within(&SUPPORTED_BY_EXCLUSIVE) {
                return Err(Status::Inval);
            }
            Create::Exclusive(how.cva_verf, set)
        }
    })
}

async fn attributes(cx: &Compound<'_>, set: &Fattr4<'_>) -> Result<ToSet, Status> {
    let Some(Object::Node(at)) = &cx.current else { return Err(Status::RoFs) };
    let all = supported(cx.minor, &at.share.backend.capabilities_of(&at.node));
    let to_set = cx.to_set(set, &all, Purpose::Make).await?;
    to_set.check_list(&at.share, Kind::File)?;
    Ok(to_set)
}

/// Checks that this kind of claim is allowed now (RFC 8881 sections 8.4.2, 18.16.3).
fn check_claim(cx: &Compound<'_>, client: &Client, args: &Args<'_>) -> Result<(), Status> {
    let reclaim = matches!(args.claim, OpenClaim4::Previous(_));
    check_grace(cx, client, reclaim)?;
    match args.claim {
        // Delegations of a client's previous run are not kept.
        OpenClaim4::DelegatePrev(_) | OpenClaim4::DelegPrevFh => Err(Status::NotSupp),
        _ => Ok(()),
    }
}

/// Finds or creates the file.
async fn find(
    cx: &mut Compound<'_>,
    client: &Arc<Client>,
    args: &Args<'_>,
) -> Result<Found, Status> {
    match &args.claim {
        OpenClaim4::Null(name) => by_name(cx, client, component(name)?, args).await,
        OpenClaim4::DelegateCur(ClaimDelegateCur { delegate_stateid: stateid, file }) => {
            let found = look_up(cx, component(file)?).await?;
            let opened = (found.at.file(), args.share.access);
            cx.nfs.clients.check_claimed(cx, client, *stateid, opened)?;
            Ok(found)
        }
        OpenClaim4::DelegCurFh(stateid) => {
            let at = cx.file()?;
            let opened = (at.file(), args.share.access);
            cx.nfs.clients.check_claimed(cx, client, *stateid, opened)?;
            Ok(plain(at, None))
        }
        OpenClaim4::Previous(_)
        | OpenClaim4::Fh
        | OpenClaim4::DelegatePrev(_)
        | OpenClaim4::DelegPrevFh => Ok(plain(cx.file()?, None)),
    }
}

fn plain(at: Located, dir: Option<DirChange>) -> Found {
    Found { at, dir, fresh: false, cut: false, set: Bitmap::EMPTY, change: None }
}

/// The current directory, or the error if files cannot be opened in it.
fn directory(cx: &Compound<'_>, name: &[u8], create: bool) -> Result<Located, Status> {
    match cx.object()? {
        Object::Above(_) if create => Err(Status::RoFs),
        // Pseudo folders contain only folders.
        Object::Above(above) => Err(above.find(cx, name).map_or(Status::NoEnt, |_| Status::IsDir)),
        Object::Node(_) => cx.directory(),
    }
}

async fn look_up(cx: &mut Compound<'_>, name: &[u8]) -> Result<Found, Status> {
    let dir = directory(cx, name, false)?;
    let (node, _) = dir.node.lookup(&dir.cred, name).await?;
    let now: Attr = dir.node.getattr().await?;
    let change = DirChange { before: now, after: now, atomic: false };
    Ok(plain(as_file(cx, &dir, node)?, Some(change)))
}

/// The node as a regular file, or the error for its actual type.
fn as_file(cx: &Compound<'_>, dir: &Located, node: vfs::NodeRef) -> Result<Located, Status> {
    cx.regular(&Object::Node(dir.beside(node))).map_err(|status| match status {
        // RFC 7530 section 16.16.5 has one error for all types other than file and directory.
        Status::Inval => Status::Symlink,
        other => other,
    })
}

async fn by_name(
    cx: &mut Compound<'_>,
    client: &Arc<Client>,
    name: &[u8],
    args: &Args<'_>,
) -> Result<Found, Status> {
    let Some(create) = &args.create else { return look_up(cx, name).await };
    let dir = directory(cx, name, true)?;
    let (how, to_set) = match create {
        Create::Unchecked(set) => (CreateHow::Unchecked, set),
        Create::Guarded(set) => (CreateHow::Guarded, set),
        Create::Exclusive(verifier, set) => {
            (CreateHow::Exclusive(of_client(verifier, client.name.as_bytes())), set)
        }
    };
    let mut set = to_set.with_mode(0o600);
    // An existing file is truncated after the open: another client's share mode may forbid it.
    let cut = how == CreateHow::Unchecked && set.size == Some(0);
    if set.size == Some(0) {
        set.size = None;
    }
    let who = Some(Requester { client: client.id, via: dir.share.id, holder: None });
    let file_ops = cx.nfs.core.namespace.by(who).audited(cx.call);
    let file_ops = file_ops.with_list(to_set.list_of_new(), to_set);
    let made = file_ops.create(&dir.share, &dir.node, &dir.cred, name, how, set).await?;
    let exclusive = matches!(how, CreateHow::Exclusive(_));
    let fresh = made.created || exclusive;
    let mut was_set = Bitmap::EMPTY;
    if fresh {
        let dated = to_set.date_new(&file_ops, &dir.share, &made.node).await;
        was_set = to_set.done_of(&made.attr).or(&dated);
    }
    if exclusive {
        // RFC 8881 section 18.16.3: the times may hold the verifier, so the reply asks the client to set them.
        was_set.add(attr::TIME_ACCESS);
        was_set.add(attr::TIME_MODIFY);
    } else if cut && !fresh {
        was_set.add(attr::SIZE);
    }
    let at = as_file(cx, &dir, made.node)?;
    Ok(Found { at, dir: Some(made.dir), fresh, cut: cut && !fresh, set: was_set, change: None })
}

/// Enters the open in `state` and in the client's state, and truncates the file if requested.
async fn enter(
    cx: &Compound<'_>,
    client: &Arc<Client>,
    owner: &[u8],
    found: &Found,
    share: Share,
) -> Result<Stateid, Status> {
    let arbiter = cx.nfs.core.namespace.arbiter();
    let node = &found.at.node;
    let opener = Opener { uid: found.at.cred.uid, caller: Principal::of(cx.call) };
    let what = (node, found.at.share.id, opener);
    let reserved = client.held().reserve(&client.lease, owner, what, || arbiter.state().holder());
    let (number, party) = reserved.ok_or_else(|| {
        let own = ("opens-of-client", cx.nfs.clients.states_max.get());
        let (limit, most) = client.held().limit_met(own);
        cx.limited(limit, most)
    })?;
    let own = client.held().open(number).map(|o| o.share).unwrap_or_default();
    // Truncation needs write access, for that moment only.
    let cuts = if found.cut { Rights::WRITE } else { Rights::NONE };
    let wanted = Share::new(share.access | cuts, share.deny);
    let mut done = match own.conflicts(wanted) {
        // RFC 8881 section 9.7: deny modes also apply between opens of one owner.
        true => Err(Status::ShareDenied),
        false => arbiter.open(node.id(), &party, wanted).await.map_err(Status::from),
    };
    if done.is_ok() && found.cut {
        let (at, set) = (&found.at, SetAttr { size: Some(0), ..SetAttr::default() });
        let file_ops = cx.nfs.core.namespace.by(Some(party.requester()));
        done = file_ops
            .setattr(&at.share, node, &at.cred, set, true)
            .await
            .map(drop)
            .map_err(Status::from);
    }
    let mut held = client.held();
    let stateid = match done {
        Ok(()) => held.commit(client.id, number, share, opener).ok_or(Status::Delay),
        Err(status) => Err(status),
    };
    if stateid.is_err() {
        // The holder's access in `state` returns to the previous one.
        let before = held.open(number).map(|o| o.share).unwrap_or_default();
        arbiter.state().narrow(node.id(), party.holder, before);
        held.abandon(number);
    } else if let Some(open) = held.open(number).filter(|o| wanted != share && o.opening == 0) {
        arbiter.state().narrow(node.id(), party.holder, open.share);
    }
    stateid
}

/// True if the owner must be confirmed: in minor version 0, at its first OPEN.
fn must_confirm(cx: &Compound<'_>, client: &Client, owner: &[u8], args: &Args<'_>) -> bool {
    cx.minor == 0 && {
        let mut held = client.held();
        let owner = held.open_owners.get_mut(owner);
        // RFC 7530 section 16.18.5: an owner that reclaims was confirmed before the restart.
        let reclaims = matches!(args.claim, OpenClaim4::Previous(_));
        owner.is_some_and(|o| {
            o.confirmed |= reclaims;
            !o.confirmed
        })
    }
}

/// Grants the delegation of this OPEN, if possible.
///
/// As in the kernel's server, a write delegation needs an open for reading and writing: a client that works on the file benefits
/// from it, one that writes it once does not.
async fn delegation(
    cx: &Compound<'_>,
    client: &Arc<Client>,
    args: &Args<'_>,
    found: &Found,
) -> Option<Granted> {
    let (access, deny) = (args.share.access, args.share.deny);
    let refused = matches!(args.want, WANT_NO_DELEG | WANT_CANCEL);
    let write = match args.claim {
        _ if cx.minor == 0 => return None,
        OpenClaim4::Null(_) | OpenClaim4::Fh if refused || !deny.is_none() => return None,
        OpenClaim4::Null(_) | OpenClaim4::Fh if access == Rights::READ => false,
        OpenClaim4::Null(_) | OpenClaim4::Fh => {
            let reads_too = access == Rights::BOTH && args.want != WANT_READ_DELEG;
            reads_too.then_some(true)?
        }
        // A reclaiming client gets the same kind as before the restart, whatever its opens.
        OpenClaim4::Previous(DELEGATE_WRITE | DELEGATE_WRITE_ATTRS)
            if !found.at.share.read_only =>
        {
            true
        }
        OpenClaim4::Previous(DELEGATE_READ | DELEGATE_READ_ATTRS) if access == Rights::READ => {
            false
        }
        _ => return None,
    };
    // The attributes from the permission check are still valid for reading; an open for writing may have truncated or created the
    // file since.
    let attr = match write {
        true => Some(found.at.node.getattr().await.ok()?),
        false => None,
    };
    // A write by a user other than root clears the set-id bits, and other clients would see them until the data is written back.
    let is_reclaim = matches!(args.claim, OpenClaim4::Previous(_));
    if !is_reclaim && attr.is_some_and(|attr| attr.mode & 0o6000 != 0) {
        return None;
    }
    let change = attr.map_or(found.change, |attr| Some(attr.change))?;
    let times = match args.claim {
        OpenClaim4::Previous(delegation) => delegation == DELEGATE_WRITE_ATTRS,
        _ => args.times,
    };
    let (at, file_ops) = (&found.at, cx.nfs.core.namespace.by(None));
    let times_since = match &attr {
        Some(attr) if times && !file_ops.may_date(&at.node, attr, &at.cred).await.ok()? => {
            Some(Time::now())
        }
        _ => None,
    };
    let given = Given { change, checked: access, write, times, times_since };
    delegate(cx, client, at, given)
}

/// Encodes the granted delegation, or the reason for its absence.
fn shown_delegation(minor: u32, want: u32, given: Option<Granted>) -> OpenDelegation4<'static> {
    // An empty ACE (ALLOW, no flags, no rights, no name): clients use ACCESS for each user (RFC 8881 section 10.4.1).
    let permissions = Nfsace4 { acetype: 0, flag: 0, access_mask: 0, who: b"" };
    let recall = false;
    match given {
        Some(Granted { stateid, write: true, times }) => {
            // No storage is reserved, so the limit is 0: clients must flush before CLOSE, which reports a full volume (RFC 8881
            // section 10.4.1).
            let space_limit = SpaceLimit4::Size(0);
            let given = WriteDelegation { stateid, recall, space_limit, permissions };
            if times { OpenDelegation4::WriteAttrs(given) } else { OpenDelegation4::Write(given) }
        }
        Some(Granted { stateid, write: false, .. }) => {
            OpenDelegation4::Read(ReadDelegation { stateid, recall, permissions })
        }
        None if want == 0 || minor == 0 => OpenDelegation4::None,
        None => OpenDelegation4::NoneExt(match want {
            WANT_NO_DELEG => NoneDelegation4::NotWanted,
            WANT_CANCEL => NoneDelegation4::Cancelled,
            _ => NoneDelegation4::Contention(false),
        }),
    }
}
