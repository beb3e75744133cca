//! OPEN (RFC 8881 section 18.16, RFC 7530 section 16.16): finds or makes a file and opens it for an owner.
//!
//! *Operation.* In this order: the file, the permission, the share mode, and only then what changes the file (truncation), so
//! that an open that is refused has changed nothing that was there.
//!
//! *Memory.* One entry per owner and file.
//!
//! *Errors.* Of the specification; NFS4ERR_DELAY while a delegation of another client is recalled.

use std::sync::Arc;

use state::{ClientId, Rights, Share, Who};
use vfs::{Attr, CreateHow, DirChange, SetAttr};

use super::super::attrs::{Bitmap, Purpose, SUPPORTED_BY_EXCLUSIVE, ToSet, supported};
use crate::exclusive::of_client;
use crate::v4::client::Client;
use crate::v4::compound::{Compound, Located, Object};
use crate::v4::deleg::{Given, Granted, delegate};
use crate::v4::limits::{NAME_MAX, OWNERS_PER_CLIENT_MAX};
use crate::v4::locks::check_grace;
use crate::v4::stateid;
use crate::v4::status::Status;
use crate::v4::turn::{self, Begun, Owner};
use crate::v4::wire::{OPAQUE_LIMIT, Stateid, attr, op};
use rdma_transport::xdr::XdrError;

const CONFIRM: u32 = 2;
/// `OPEN4_RESULT_NO_OPEN_STATEID` (RFC 9754 section 4).
const NO_OPEN_STATEID: u32 = 0x10;
const LOCKTYPE_POSIX: u32 = 4;

const DELEGATE_NONE: u32 = 0;
const DELEGATE_READ: u32 = 1;
const DELEGATE_WRITE: u32 = 2;
const DELEGATE_NONE_EXT: u32 = 3;
/// RFC 9754 section 5.
const DELEGATE_READ_ATTRS: u32 = 4;
const DELEGATE_WRITE_ATTRS: u32 = 5;

/// `OPEN4_SHARE_ACCESS_WANT_*` (RFC 8881 section 18.16.1) and those added by later minor versions.
const WANT_MASK: u32 = 0x0000_ff00;
const WANT_READ_DELEG: u32 = 0x0000_0100;
const WANT_NO_DELEG: u32 = 0x0000_0400;
const WANT_CANCEL: u32 = 0x0000_0500;
const WANT_SIGNALS: u32 = 0x0033_0000;
/// The delegation is to be for the times of the file, too (RFC 9754 section 5).
const WANT_DELEG_TIMESTAMPS: u32 = 0x0010_0000;
/// A delegation may stand for the open (RFC 9754 section 4).
const WANT_OPEN_XOR_DELEGATION: u32 = 0x0020_0000;

/// `limit_by4`: by size.
const NFS_LIMIT_SIZE: u32 = 1;

/// `why_no_delegation4`.
const WND4_NOT_WANTED: u32 = 0;
const WND4_CONTENTION: u32 = 1;
const WND4_CANCELLED: u32 = 7;

enum Create {
    Unchecked(ToSet),
    Guarded(ToSet),
    Exclusive([u8; 8], ToSet),
}

enum Claim<'a> {
    Null(&'a [u8]),
    Previous { delegation: u32 },
    Current(Stateid, &'a [u8]),
    Handle,
    CurrentHandle(Stateid),
    Old,
}

struct Args<'a> {
    share: Share,
    want: u32,
    /// The client wants the times delegated.
    times: bool,
    /// It needs no open beside a delegation.
    xor: bool,
    create: Option<Create>,
    claim: Claim<'a>,
}

/// What was opened, and what it took.
struct Found {
    at: Located,
    /// The directory, for `change_info`.
    dir: Option<DirChange>,
    /// It was made for the caller, whose permission its mode does not limit.
    fresh: bool,
    /// Cut to nothing when it is open.
    cut: bool,
    /// Attributes that were set.
    set: Bitmap,
    /// The change attribute, when the permission was asked; a delegation is given on what was found then.
    change: Option<u64>,
}

pub(in crate::v4) async fn open(cx: &mut Compound<'_>) -> Result<(), Status> {
    let seqid = cx.args.u32()?;
    let (access, deny) = (cx.args.u32()?, cx.args.u32()?);
    let client_id = ClientId(cx.args.u64()?);
    let owner = cx.args.opaque(OPAQUE_LIMIT)?;
    // Read to their end also for a repetition, whose COMPOUND goes on behind them. Their faults are counted like the rest.
    let args = decode(cx, access, deny).await;
    let client = match &cx.client {
        Some(client) => client.clone(),
        None => cx.nfs.clients.find_v40(client_id)?,
    };
    let name = {
        let mut held = client.held();
        if cx.minor == 0 {
            // Some clients do not count the failed OPEN of an owner that the server never confirmed (seen with libnfs), so that
            // only a success can be repeated.
            let stale = held.open_owners.get(owner).is_some_and(|o| {
                !o.confirmed && !o.order.is_busy() && !o.order.is_last_success(seqid)
            });
            if stale {
                held.discard_owner(owner, cx.nfs.core.namespace.keeper().state());
            }
        }
        let made = held.open_owner(owner).map(|(name, _)| name);
        made.ok_or_else(|| cx.limited("owners-of-client", OWNERS_PER_CLIENT_MAX))?
    };
    match turn::begin(cx, op::OPEN, &client, Owner::Open(name), seqid)? {
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
    let mut found = find(cx, client, &args).await?;
    if !found.fresh {
        let (read, write) = (
            args.share.access.has(Rights::READ),
            args.share.access.has(Rights::WRITE) || found.cut,
        );
        if write {
            cx.nfs.core.namespace.writable(&found.at.share)?;
        }
        // Asked once: reads and writes through the open rely on it. Who may execute a file may fetch it (RFC 7530 section 16.16.5).
        let at = &found.at;
        let attr = at.node.open(&at.cred, read, write).await?;
        found.change = Some(attr.change);
        after_delete(cx, &args.claim, (&at.node, attr.nlink)).await?;
    } else if args.share.access.has(Rights::WRITE) {
        cx.nfs.core.namespace.writable(&found.at.share)?;
    }
    let stateid = enter(cx, client, owner, &found, args.share).await.map_err(|status| {
        match (&args.claim, status) {
            (Claim::Previous { .. }, Status::ShareDenied) => Status::ReclaimConflict,
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
    reply(cx, client, owner, &args, &found, shown);
    reply_delegation(cx, args.want, given);
    let Found { at, .. } = found;
    cx.set_current(Object::Node(at));
    cx.current_stateid = Some(current);
    Ok(())
}

/// Refuses a file that a client of SMB has had marked for removal. Who reclaims, or claims what it opened by a delegation, had it
/// open before.
async fn after_delete(
    cx: &Compound<'_>,
    claim: &Claim<'_>,
    (node, links): (&vfs::NodeRef, u32),
) -> Result<(), Status> {
    let name = match (claim, cx.object()) {
        (Claim::Null(name), Ok(Object::Node(dir))) => Some((dir.node.id(), *name)),
        (Claim::Handle, _) => None,
        _ => return Ok(()),
    };
    match cx.nfs.core.namespace.keeper().after_delete(node.id(), name, links).await? {
        // It may be gone now.
        true => Err(Status::Delay),
        false => Ok(()),
    }
}

/// Lets the delegation stand for the open that it came with.
fn stand_in(cx: &Compound<'_>, client: &Client, open: Stateid) -> bool {
    let keeper = cx.nfs.core.namespace.keeper();
    let (_, number) = stateid::parts(open);
    let gone = client.held().stand_in(number, keeper.state());
    keeper.released();
    gone
}

async fn decode<'a>(cx: &mut Compound<'a>, access: u32, deny: u32) -> Result<Args<'a>, Status> {
    let create = match cx.args.u32()? {
        0 => None,
        1 => Some(decode_create(cx).await?),
        _ => return Err(Status::BadXdr),
    };
    let claim = match cx.args.u32()? {
        0 => Claim::Null(name(cx)?),
        1 => Claim::Previous { delegation: cx.args.u32()? },
        2 => Claim::Current(cx.args.value::<Stateid>()?, name(cx)?),
        3 => {
            name(cx)?;
            Claim::Old
        }
        4 if cx.minor > 0 => Claim::Handle,
        5 if cx.minor > 0 => Claim::CurrentHandle(cx.args.value::<Stateid>()?),
        6 if cx.minor > 0 => Claim::Old,
        _ => return Err(Status::BadXdr),
    };
    let wishes = if cx.minor > 0 { WANT_MASK | WANT_SIGNALS } else { 0 };
    let share = Rights::from_bits(access & !wishes)
        .filter(|a| !a.is_none())
        .zip(Rights::from_bits(deny))
        .map(|(access, deny)| Share::new(access, deny))
        .ok_or(Status::Inval)?;
    if create.is_some() && !matches!(claim, Claim::Null(_)) {
        return Err(Status::Inval);
    }
    let wants = |flag| cx.minor >= 2 && access & flag != 0;
    Ok(Args {
        share,
        want: access & WANT_MASK,
        times: wants(WANT_DELEG_TIMESTAMPS),
        // A delegation keeps no share mode.
        xor: wants(WANT_OPEN_XOR_DELEGATION) && share.deny.is_none(),
        create,
        claim,
    })
}

/// A name, whose own faults are found when it is used.
fn name<'a>(cx: &mut Compound<'a>) -> Result<&'a [u8], Status> {
    match cx.args.opaque(NAME_MAX) {
        Ok(name) => Ok(name),
        Err(XdrError::TooLong) => Err(Status::NameTooLong),
        Err(_) => Err(Status::BadXdr),
    }
}

async fn decode_create(cx: &mut Compound<'_>) -> Result<Create, Status> {
    Ok(match cx.args.u32()? {
        0 => Create::Unchecked(attributes(cx).await?),
        1 => Create::Guarded(attributes(cx).await?),
        2 => Create::Exclusive(cx.args.fixed()?, ToSet::default()),
        3 if cx.minor > 0 => {
            let verifier = cx.args.fixed()?;
            let set = attributes(cx).await?;
            if !set.named.is_within(&SUPPORTED_BY_EXCLUSIVE) {
                return Err(Status::Inval);
            }
            Create::Exclusive(verifier, set)
        }
        _ => return Err(Status::BadXdr),
    })
}

async fn attributes(cx: &mut Compound<'_>) -> Result<ToSet, Status> {
    let all = match &cx.current {
        Some(Object::Node(at)) => supported(cx.minor, &at.share.backend.capabilities()),
        _ => return Err(Status::RoFs),
    };
    cx.take_to_set(&all, Purpose::Make).await
}

/// Whether this kind of claim may be made now (RFC 8881 sections 8.4.2, 18.16.3).
fn check_claim(cx: &Compound<'_>, client: &Client, args: &Args<'_>) -> Result<(), Status> {
    let reclaim = matches!(args.claim, Claim::Previous { .. });
    check_grace(cx, client, reclaim)?;
    match args.claim {
        // No delegations of an earlier incarnation are kept.
        Claim::Old => Err(Status::NotSupp),
        _ => Ok(()),
    }
}

/// Finds or makes the file.
async fn find(
    cx: &mut Compound<'_>,
    client: &Arc<Client>,
    args: &Args<'_>,
) -> Result<Found, Status> {
    match &args.claim {
        Claim::Null(name) => by_name(cx, client, check_name(name)?, args).await,
        Claim::Current(stateid, name) => {
            let found = look_up(cx, check_name(name)?).await?;
            let opened = (found.at.node.id(), args.share.access);
            cx.nfs.clients.check_claimed(cx, client, *stateid, opened)?;
            Ok(found)
        }
        Claim::CurrentHandle(stateid) => {
            let at = cx.file()?;
            let opened = (at.node.id(), args.share.access);
            cx.nfs.clients.check_claimed(cx, client, *stateid, opened)?;
            Ok(plain(at, None))
        }
        Claim::Previous { .. } | Claim::Handle | Claim::Old => Ok(plain(cx.file()?, None)),
    }
}

fn check_name(name: &[u8]) -> Result<&[u8], Status> {
    match name {
        b"" => Err(Status::Inval),
        b"." | b".." => Err(Status::BadName),
        _ if name.contains(&b'/') || name.contains(&0) => Err(Status::BadChar),
        _ => Ok(name),
    }
}

fn plain(at: Located, dir: Option<DirChange>) -> Found {
    Found { at, dir, fresh: false, cut: false, set: Bitmap::EMPTY, change: None }
}

/// The directory, or why there is none to open a file in.
fn directory(cx: &Compound<'_>, name: &[u8], create: bool) -> Result<Located, Status> {
    match cx.object()? {
        Object::Root if create => Err(Status::RoFs),
        // Above the shares there are only directories.
        Object::Root if cx.nfs.core.namespace.share_named(name).is_some() => Err(Status::IsDir),
        Object::Root => Err(Status::NoEnt),
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

/// The node as a regular file, or the error for what it is instead.
fn as_file(cx: &Compound<'_>, dir: &Located, node: vfs::NodeRef) -> Result<Located, Status> {
    cx.regular(&Object::Node(dir.beside(node))).map_err(|status| match status {
        // RFC 7530 section 16.16.5 has one error for all that is neither file nor directory.
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
    // A found file is cut when it has been opened, not before: another's share mode may forbid it.
    let cut = how == CreateHow::Unchecked && set.size == Some(0);
    if set.size == Some(0) {
        set.size = None;
    }
    let who = Some(Who { client: client.id, holder: None });
    let door = cx.nfs.core.namespace.by(who);
    let door = door.with_list(to_set.list_of_new(), to_set);
    let made = door.create(&dir.share, &dir.node, &dir.cred, name, how, set).await?;
    let exclusive = matches!(how, CreateHow::Exclusive(_));
    let fresh = made.created || exclusive;
    let mut was_set = if fresh { to_set.done_of(&made.attr) } else { Bitmap::EMPTY };
    if exclusive {
        // RFC 8881 section 18.16.3: the verifier may stand in the times, so the client is told to set them.
        was_set.add(attr::TIME_ACCESS);
        was_set.add(attr::TIME_MODIFY);
    } else if cut && !fresh {
        was_set.add(attr::SIZE);
    }
    let at = as_file(cx, &dir, made.node)?;
    Ok(Found { at, dir: Some(made.dir), fresh, cut: cut && !fresh, set: was_set, change: None })
}

/// Enters the open in `state` and among what the client holds, and cuts the file if that was asked for.
async fn enter(
    cx: &Compound<'_>,
    client: &Arc<Client>,
    owner: &[u8],
    found: &Found,
    share: Share,
) -> Result<Stateid, Status> {
    let keeper = cx.nfs.core.namespace.keeper();
    let node = &found.at.node;
    let opener = (node, found.at.cred.uid);
    let reserved = client.held().reserve(client, owner, opener, || keeper.state().holder());
    let (number, party) =
        reserved.ok_or_else(|| cx.limited("opens-of-client", cx.nfs.clients.states_max.get()))?;
    let own = client.held().open(number).map(|o| o.share).unwrap_or_default();
    // Whoever cuts the file writes, if only for that moment.
    let cuts = if found.cut { Rights::WRITE } else { Rights::NONE };
    let wanted = Share::new(share.access | cuts, share.deny);
    let mut done = match own.conflicts(wanted) {
        // RFC 8881 section 9.7: an owner's own opens are no exception.
        true => Err(Status::ShareDenied),
        false => keeper.open(node.id(), &party, wanted).await.map_err(Status::from),
    };
    if done.is_ok() && found.cut {
        let (at, set) = (&found.at, SetAttr { size: Some(0), ..SetAttr::default() });
        let door = cx.nfs.core.namespace.by(Some(party.who()));
        done = door
            .setattr(&at.share, node, &at.cred, set, true)
            .await
            .map(drop)
            .map_err(Status::from);
    }
    let mut held = client.held();
    let stateid = match done {
        Ok(()) => held.commit(client, number, share, found.at.cred.uid).ok_or(Status::Delay),
        Err(status) => Err(status),
    };
    if stateid.is_err() {
        // What `state` has for this holder goes back to what was open before.
        let before = held.open(number).map(|o| o.share).unwrap_or_default();
        keeper.state().narrow(node.id(), party.holder, before);
        held.abandon(number);
    } else if let Some(open) = held.open(number).filter(|o| wanted != share && o.opening == 0) {
        keeper.state().narrow(node.id(), party.holder, open.share);
    }
    stateid
}

fn reply(
    cx: &mut Compound<'_>,
    client: &Arc<Client>,
    owner: &[u8],
    args: &Args<'_>,
    found: &Found,
    stateid: Stateid,
) {
    let confirm = cx.minor == 0 && {
        let mut held = client.held();
        let owner = held.open_owners.get_mut(owner);
        // RFC 7530 section 16.18.5: who reclaims was confirmed before the restart.
        let reclaims = matches!(args.claim, Claim::Previous { .. });
        owner.is_some_and(|o| {
            o.confirmed |= reclaims;
            !o.confirmed
        })
    };
    cx.out.value(&stateid);
    match &found.dir {
        Some(dir) => cx.change_info(dir),
        None => {
            cx.out.bool(false);
            cx.out.u64(0);
            cx.out.u64(0);
        }
    }
    let none = if stateid == Stateid::ANONYMOUS { NO_OPEN_STATEID } else { 0 };
    cx.out.u32(LOCKTYPE_POSIX | none | if confirm { CONFIRM } else { 0 });
    cx.out.value(&found.set);
}

/// Gives the delegation that goes with this OPEN, if there is one.
///
/// As the kernel's server does, for writing only to who also reads: such a file is worked on, and not written once.
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
        Claim::Null(_) | Claim::Handle if refused || !deny.is_none() => return None,
        Claim::Null(_) | Claim::Handle if access == Rights::READ => false,
        Claim::Null(_) | Claim::Handle => {
            let reads_too = access == Rights::BOTH && args.want != WANT_READ_DELEG;
            reads_too.then_some(true)?
        }
        // Of a client that had it before the restart, whatever it has open.
        Claim::Previous { delegation: DELEGATE_WRITE | DELEGATE_WRITE_ATTRS }
            if !found.at.share.read_only =>
        {
            true
        }
        Claim::Previous { delegation: DELEGATE_READ | DELEGATE_READ_ATTRS }
            if access == Rights::READ =>
        {
            false
        }
        _ => return None,
    };
    // Known is what the permission was asked of; who writes may have cut the file since, or made it.
    let change = match write {
        true => found.at.node.getattr().await.ok()?.change,
        false => found.change?,
    };
    let times = match args.claim {
        Claim::Previous { delegation } => delegation == DELEGATE_WRITE_ATTRS,
        _ => args.times,
    };
    delegate(cx, client, &found.at, Given { change, checked: access, write, times })
}

/// `open_delegation4`.
fn reply_delegation(cx: &mut Compound<'_>, want: u32, given: Option<Granted>) {
    if let Some(Granted { stateid, write, times }) = given {
        cx.out.u32(match (write, times) {
            (true, true) => DELEGATE_WRITE_ATTRS,
            (true, false) => DELEGATE_WRITE,
            (false, _) => DELEGATE_READ,
        });
        cx.out.value(&stateid);
        cx.out.bool(false);
        if write {
            // No storage is reserved, so none is promised: what is closed has been written before, and whether it could be is
            // known then (RFC 8881 section 10.4.1).
            cx.out.u32(NFS_LIMIT_SIZE);
            cx.out.u64(0);
        }
        // No ACE: ACCESS says what each user may do (RFC 8881 section 10.4.1). ALLOW, no flags, no rights, nobody.
        for _ in 0..3 {
            cx.out.u32(0);
        }
        cx.out.opaque(b"");
        return;
    }
    if want == 0 || cx.minor == 0 {
        cx.out.u32(DELEGATE_NONE);
        return;
    }
    cx.out.u32(DELEGATE_NONE_EXT);
    match want {
        WANT_NO_DELEG => cx.out.u32(WND4_NOT_WANTED),
        WANT_CANCEL => cx.out.u32(WND4_CANCELLED),
        _ => {
            cx.out.u32(WND4_CONTENTION);
            cx.out.bool(false);
        }
    }
}
