//! One COMPOUND: the operation loop and what operations share.
//!
//! *Operation.* The loop checks what RFC 8881 section 2.10.6.4 and 16.2 say of positions and counts, performs operations
//! until one fails, and writes opcode and status of each. Replays of minor version 1 and up are answered by SEQUENCE
//! through [`Compound::replay`].
//!
//! *Memory.* One reply stream; the body of a failed operation is cut off again unless its error has one.
//!
//! *Errors.* A [`wire::Fault`] only for a COMPOUND whose tag, minor version or count cannot be read.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use nfs_proto::nfs4::attrs::Fattr4;
use nfs_proto::nfs4::{self, ChangeInfo4, Compounded, Nfsstat4};
use nfs_proto::xdr::Xdr;
use rdma_transport::count;
use rdma_transport::meter::{Done, NO_SHARE};
use state::Requester;
use vfs::namespace::{FileOps, Refusal, Share};
use vfs::{Cred, DirChange, Kind, NodeRef, VfsResult};
use wire::{Parsed, Rule, reject};

use super::attrs::{Bitmap, Purpose, ToSet, asks_where};
use super::client::{Client, Principal};
use super::names::{self, Id, IdMap, Late, Names};
use super::pseudo::Above;
use super::session::SlotUse;
use super::stateid_access::StateidAccess;
use super::status::Status;
use super::wire::{MINOR_MAX, Stateid, op};
use super::{Nfs4, dispatch, limits};
use crate::context::{CallContext, Conn, Outcome, Version};
use crate::fh::Fh;
use crate::operation;
use rdma_transport::xdr::{Reader, Writer, XdrResult};

/// A file or directory that a file handle names.
#[derive(Clone)]
pub struct Located {
    /// The share.
    pub share: Arc<Share>,
    /// The node.
    pub node: NodeRef,
    /// The caller as this share sees it.
    pub cred: Cred,
    /// The caller may not use the share, for this reason: it may give back what it holds, and mount the root where only its user
    /// is kept away.
    pub closed: Option<Refusal>,
}

impl Located {
    /// Another node of the same share, for the same caller.
    pub fn beside(&self, node: NodeRef) -> Self {
        Self { node, ..self.clone() }
    }
}

impl Object {
    /// The caller may use it by another flavor alone.
    pub fn wants_flavor(&self) -> bool {
        matches!(self, Self::Node(Located { closed: Some(why), .. }) if why.is_of_protection())
    }

    /// Its file system is on another server, and the caller may be told so (RFC 8881 section 11.3).
    pub(super) fn is_absent(&self) -> bool {
        matches!(self, Self::Node(Located { closed: Some(Refusal::Elsewhere), .. }))
    }
}

/// What a file handle names.
#[derive(Clone)]
pub enum Object {
    /// A folder above the shares.
    Above(Above),
    /// A node of a share.
    Node(Located),
}

/// Sizes and rules of the session that a COMPOUND runs in; SEQUENCE sets them.
#[derive(Clone, Copy, Debug)]
pub struct ReplyLimits {
    /// Bytes of the whole reply (`ca_maxresponsesize`).
    pub reply_max: usize,
    /// Bytes of a reply that is to be kept (`ca_maxresponsesize_cached`); `None` when the client did not ask for that.
    pub cached_max: Option<usize>,
}

/// A COMPOUND under way.
pub struct Compound<'a> {
    /// The server.
    pub nfs: &'a Nfs4,
    /// The connection.
    pub conn: &'a Arc<Conn>,
    /// Who calls.
    pub call: &'a CallContext,
    /// 0, 1 or 2.
    pub minor: u32,
    /// The arguments that are not decoded yet.
    pub args: Reader<'a>,
    /// The reply.
    pub out: Writer,
    /// Number of the operation that is being performed.
    pub index: usize,
    /// Its opcode.
    pub(super) opcode: u32,
    /// Operations in the request.
    pub count: usize,
    /// The current file handle.
    pub current: Option<Object>,
    /// Number of the operation that found the current file handle by itself (PUTFH).
    pub(super) found_at: Option<usize>,
    /// The saved file handle.
    pub saved: Option<Object>,
    /// The current stateid (RFC 8881 section 16.2.3.1.2).
    pub current_stateid: Option<Stateid>,
    /// The saved stateid.
    pub saved_stateid: Option<Stateid>,
    /// How long the reply may become.
    pub limits: ReplyLimits,
    /// Minor version 0: something was changed, so that a repetition of the call must get the same reply.
    pub once: bool,
    /// SEQUENCE found a repetition: this is the whole answer, from the COMPOUND's status on.
    pub replay: Option<Arc<[u8]>>,
    /// The client, once SEQUENCE has found it (minor version 1 and up).
    pub(super) client: Option<Arc<Client>>,
    /// The slot that SEQUENCE occupied.
    pub(super) slot: Option<SlotUse>,
    /// Bytes of file data that the operation moved that is being performed.
    pub(super) moved: u64,
    /// Why no operation after the first may be performed: the reply to this repetition was not kept.
    pub(super) refuse_rest: Option<Status>,
}

impl<'a> Compound<'a> {
    /// The client has reached a limit of this server: the status that says so in this minor version.
    pub(super) fn limited(&self, limit: &'static str, most: usize) -> Status {
        self.nfs.clients.counters.limited.fetch_add(1, Ordering::Relaxed);
        count::limited(limit, most, self.conn.info.peer);
        if self.minor == 0 { Status::Resource } else { Status::Delay }
    }

    /// The users and groups that are to be shown, by name where they have one.
    pub(super) async fn id_map(&self, ids: impl FnOnce() -> BTreeSet<Id>) -> IdMap {
        let Some(domain) = &self.nfs.domain else { return IdMap::default() };
        let (id_map, done) = domain.id_map(ids(), self.call.now).await;
        if let Err(late) = done {
            self.late(late);
        }
        id_map
    }

    /// Attributes to set, with the names in them.
    pub(super) async fn to_set(
        &self,
        asked: &Fattr4<'_>,
        supported: &Bitmap,
        purpose: Purpose,
    ) -> Result<ToSet, Status> {
        let mut names = Names::of(self.nfs.domain.as_deref());
        let to_set = ToSet::decode(asked, supported, purpose, &mut names)?;
        match names.learn(self.call.now).await {
            Ok(false) => Ok(to_set),
            Ok(true) => ToSet::decode(asked, supported, purpose, &mut names),
            Err(late) => Err(self.late(late)),
        }
    }

    /// Whoever knows the names of users does not answer.
    fn late(&self, _: Late) -> Status {
        count::limited("name-service", names::PATIENCE_S, self.conn.info.peer);
        Status::Delay
    }

    /// The node of the current file handle.
    pub fn node(&self) -> Result<&Located, Status> {
        match self.object()? {
            Object::Node(l) => Ok(l),
            // Above the shares there are directories that nobody may change.
            Object::Above(_) => Err(Status::RoFs),
        }
    }

    /// The current file handle, whatever it names that the caller may use.
    pub fn object(&self) -> Result<&Object, Status> {
        self.opened(self.current.as_ref())
    }

    /// The saved file handle, in the same way.
    pub fn saved_object(&self) -> Result<&Object, Status> {
        self.opened(self.saved.as_ref())
    }

    fn opened<'o>(&self, object: Option<&'o Object>) -> Result<&'o Object, Status> {
        match object.ok_or(Status::NoFileHandle)? {
            Object::Node(Located { share, closed: Some(why), .. }) => Err(self.closed(share, *why)),
            open => Ok(open),
        }
    }

    fn closed(&self, share: &Share, why: Refusal) -> Status {
        // Nobody is kept away: the client goes there.
        if why == Refusal::Elsewhere {
            return Status::Moved;
        }
        self.nfs.core.refused(self.conn, self.call, share, why);
        if why.is_of_protection() { Status::WrongSec } else { Status::Access }
    }

    /// The current file handle, also where it is a root that the caller may mount alone: for what tells no more than that. From an
    /// address that the share does not admit nobody mounts, nor without the TLS that it demands.
    pub fn mounted(&self) -> Result<&Object, Status> {
        let object = self.current.as_ref().ok_or(Status::NoFileHandle)?;
        match object {
            Object::Node(Located { share, node, closed: Some(why), .. })
                if why.is_of_client()
                    || why.is_of_protection()
                    || *why == Refusal::Elsewhere
                    || share.backend.root().id() != node.id() =>
            {
                Err(self.closed(share, *why))
            }
            object => Ok(object),
        }
    }

    /// As [`Compound::mounted`], for these attributes: of a file system that is absent, those that say where it is can be had, and
    /// what there is of others beside them (RFC 8881 section 11.4.1).
    pub(super) fn described(&self, want: &Bitmap) -> Result<&Object, Status> {
        match &self.current {
            Some(object) if object.is_absent() && asks_where(self.minor, want) => Ok(object),
            _ => self.mounted(),
        }
    }

    /// As [`Compound::mounted`], also where only another flavor may use the share: for what says which (RFC 8881 section
    /// 2.6.3.1.1).
    pub fn named(&self) -> Result<&Object, Status> {
        match self.current.as_ref().ok_or(Status::NoFileHandle)? {
            object if object.wants_flavor() => Ok(object),
            _ => self.mounted(),
        }
    }

    /// The call came by a way that protects as much as the share of the current file handle wants. To be asked before a stateid is
    /// looked at, whose error would tell whether it is one.
    pub(super) fn proves_enough(&self) -> Result<(), Status> {
        match &self.current {
            Some(Object::Node(Located { share, closed: Some(why), .. }))
                if why.is_of_protection() && !self.is_for_user(self.opcode, *why) =>
            {
                Err(self.closed(share, *why))
            }
            _ => Ok(()),
        }
    }

    /// The client's machine does this in place of a user (RFC 8881 section 18.35.3, `spo_must_allow`): its flavor is its own,
    /// whatever the share wants of users.
    fn is_for_user(&self, opcode: u32, why: Refusal) -> bool {
        why == Refusal::Flavor && self.client.as_ref().is_some_and(|c| c.allows(opcode, self.call))
    }

    /// The current file handle names what another flavor alone may use, and the next operation, whose opcode `args` begin with, is
    /// one that the client's machine may send all the same.
    pub(super) fn is_for_user_next(&self, args: &mut Reader<'_>) -> bool {
        let Some(Object::Node(Located { closed: Some(why), .. })) = &self.current else {
            return false;
        };
        args.value::<u32>().is_ok_and(|opcode| self.is_for_user(opcode, *why))
    }

    /// The share of the current file handle may be used by a flavor that protects no more than that of the call.
    pub(super) fn protects_as_much(&self) -> bool {
        let Some(Object::Node(at)) = &self.current else { return false };
        let own = self.call.flavor.of_share() as u8;
        at.share.rules.sec.iter().any(|flavor| flavor as u8 <= own)
    }

    /// Sessions of a client that proved who it is are that one's alone to end and to bind: their ids travel in clear.
    pub(super) fn may_manage(&self, client: &Client) -> Result<(), Status> {
        if client.is_bound_to_other(self.call) {
            return Err(Status::WrongCred);
        }
        let is_other = client.principal.is_proven() && client.principal != Principal::of(self.call);
        if is_other { Err(Status::Access) } else { Ok(()) }
    }

    /// The node of the current file handle for an operation that gives back what its stateid holds: rights to the share that were
    /// lost meanwhile keep nobody from that. A way that protects less than the share wants does: it proves no holder.
    pub fn given_back(&self) -> Result<&Located, Status> {
        self.proves_enough()?;
        match self.current.as_ref().ok_or(Status::NoFileHandle)? {
            object if object.is_absent() => Err(Status::Moved),
            Object::Node(l) => Ok(l),
            Object::Above(_) => Err(Status::RoFs),
        }
    }

    /// The directory of the current file handle, in which names are changed. Of a symbolic link that is said in preference to what
    /// it is not, so that a client follows it (RFC 8881 section 15.1.2.9).
    pub fn directory(&self) -> Result<Located, Status> {
        let at = self.node()?;
        match at.node.kind() {
            Kind::Dir => Ok(at.clone()),
            Kind::Symlink => Err(Status::Symlink),
            _ => Err(Status::NotDir),
        }
    }

    /// The regular file of the current file handle.
    pub fn file(&self) -> Result<Located, Status> {
        self.regular(self.object()?)
    }

    /// The regular file of the saved file handle.
    pub fn saved_file(&self) -> Result<Located, Status> {
        self.regular(self.saved_object()?)
    }

    /// An object as a regular file; what it is instead decides the error (RFC 7530 section 16.23.4, RFC 8881 section 18.22.3).
    pub(super) fn regular(&self, object: &Object) -> Result<Located, Status> {
        let Object::Node(at) = object else { return Err(Status::IsDir) };
        match at.node.kind() {
            Kind::File => Ok(at.clone()),
            Kind::Dir => Err(Status::IsDir),
            _ if self.minor == 0 => Err(Status::Inval),
            Kind::Symlink => Err(Status::Symlink),
            _ => Err(Status::WrongType),
        }
    }

    /// Who acts on names and attributes, where no stateid says so.
    pub fn requester(&self) -> Option<Requester> {
        self.client.as_ref().map(|c| Requester { client: c.id, holder: None })
    }

    /// `FileOps` to the files for the one who acts on names and attributes.
    pub fn file_ops(&self) -> FileOps<'a> {
        self.nfs.core.namespace.by(self.requester()).audited(self.call)
    }

    /// Changes the bytes of a file, which the audit trail is told of where the caller has not opened it.
    pub(super) async fn recorded<T>(
        &self,
        at: &Located,
        right: &StateidAccess,
        change: impl Future<Output = VfsResult<T>>,
    ) -> VfsResult<T> {
        let writers = &self.nfs.core.writers;
        writers.recorded(right.is_opener, (&at.share, &at.node), self.call, change).await
    }

    /// Makes this the current file handle; the current stateid belongs to the one before and is gone.
    pub fn set_current(&mut self, object: Object) {
        self.current = Some(object);
        self.current_stateid = None;
    }

    /// What PUTFH has found just before, by the number of links that was read of it since. Without any it was removed on the host,
    /// and is there for those alone who hold it: whoever has nothing but its handle does not find it again.
    pub(super) async fn found_again(&mut self, nlink: u32) -> Result<(), Status> {
        if nlink > 0 || self.found_at.is_none_or(|at| at + 1 != self.index) {
            return Ok(());
        }
        let Some(Object::Node(found)) = self.current.take() else { return Ok(()) };
        let Located { share, node, cred, closed } = found;
        let handle = node.handle();
        // What this call holds of it does not count.
        drop(node);
        let node = share.backend.resolve(&handle).await?;
        self.current = Some(Object::Node(Located { share, node, cred, closed }));
        Ok(())
    }

    /// A node of a share, for this caller: closed where the caller, or its address, may not use the share. The error, and the line
    /// in the log, come with the next operation that needs the right.
    pub fn enter(&self, share: Arc<Share>, node: NodeRef) -> Object {
        let (entered, closed) = match self.nfs.core.judge(self.conn, self.call, &share) {
            Ok(granted) => (share.granted(granted), None),
            Err(why) => (share.from_outside(), Some(why)),
        };
        Object::Node(Located { share: entered.share, node, cred: entered.cred, closed })
    }

    /// The root of a share that admits the client's address.
    pub fn root_of(&self, share: Arc<Share>) -> Object {
        let root = share.backend.root();
        self.enter(share, root)
    }

    /// The file handle of an object.
    pub fn fh_of(&self, object: &Object) -> Fh {
        let handles = &self.nfs.core.handles;
        match object {
            Object::Above(above) => handles.above(above.number()),
            Object::Node(l) => handles.of_node(&l.share, &l.node.handle()),
        }
    }

    /// A stateid argument with the current stateid put in its place (RFC 8881 section 8.2.3).
    pub fn stateid(&self, sent: Stateid) -> Result<Stateid, Status> {
        if self.minor > 0 && sent == Stateid::CURRENT {
            return self.current_stateid.ok_or(Status::BadStateId);
        }
        Ok(sent)
    }

    /// Bytes of data that a result can hold with `around` bytes beside them.
    pub fn room_for_data(&self, around: usize) -> usize {
        let max = match self.limits.cached_max {
            Some(cached) => self.limits.reply_max.min(cached),
            None => self.limits.reply_max,
        };
        max.saturating_sub(self.out.total_len()).saturating_sub(around)
    }

    /// The status for a reply that would be too long.
    fn too_big(&self) -> Status {
        if self.minor == 0 { Status::Resource } else { Status::RepTooBig }
    }

    /// Before an operation: its opcode may stand here, and its result will fit.
    fn admit(&self, opcode: u32) -> Result<(), Status> {
        if let Some(status) = self.refuse_rest {
            return Err(status);
        }
        if !dispatch::is_known(opcode, self.minor) {
            return Err(Status::OpIllegal);
        }
        if self.minor > 0 {
            self.admit_position(opcode)?;
        }
        // What changes something is refused before it is done, not after.
        let need = self.out.total_len().saturating_add(dispatch::result_reserve(opcode));
        if need > self.limits.reply_max {
            return Err(self.too_big());
        }
        if self.limits.cached_max.is_some_and(|max| need > max) {
            return Err(Status::RepTooBigToCache);
        }
        Ok(())
    }

    /// RFC 8881 sections 2.10.2.1, 18.46.3: SEQUENCE comes first and only there; without it, an operation that may stand
    /// alone stands alone.
    fn admit_position(&self, opcode: u32) -> Result<(), Status> {
        match (self.index, opcode) {
            (0, op::SEQUENCE) => Ok(()),
            (_, op::SEQUENCE) => Err(Status::SequencePos),
            (_, op::BIND_CONN_TO_SESSION) if self.count > 1 => Err(Status::NotOnlyOp),
            (
                0,
                op::EXCHANGE_ID
                | op::CREATE_SESSION
                | op::DESTROY_SESSION
                | op::BIND_CONN_TO_SESSION
                | op::DESTROY_CLIENTID,
            ) => {
                if self.count == 1 {
                    Ok(())
                } else {
                    Err(Status::NotOnlyOp)
                }
            }
            (0, _) => Err(Status::OpNotInSession),
            _ => Ok(()),
        }
    }

    /// Performs the next operation and writes its result.
    async fn step(&mut self) -> Status {
        let Ok(opcode) = self.args.value::<u32>() else {
            self.out.value(&op::ILLEGAL);
            self.out.value(&Nfsstat4::BadXdr);
            return Status::BadXdr;
        };
        self.opcode = opcode;
        let start = self.out.len();
        let shown = if dispatch::is_known(opcode, self.minor) { opcode } else { op::ILLEGAL };
        self.out.value(&shown);
        self.out.value(&Nfsstat4::Ok);
        let body = self.out.len();
        self.once |= self.minor == 0 && dispatch::changes_something(opcode);
        let mut done = match self.admit(opcode) {
            Ok(()) => dispatch::perform(self, opcode).await,
            Err(status) => Err(status),
        };
        if done.is_ok() && self.out.total_len() > self.limits.reply_max {
            done = Err(self.too_big());
        } else if done.is_ok()
            && self.limits.cached_max.is_some_and(|max| self.out.total_len() > max)
        {
            done = Err(Status::RepTooBigToCache);
        }
        let status = done.err().unwrap_or(Status::Ok);
        if status != Status::Ok {
            if !dispatch::error_has_body(opcode, status) {
                self.out.truncate(body);
            }
            if opcode == op::SETATTR && self.out.len() == body {
                // SETATTR4res has its bitmap whatever the status.
                self.out.value(&Bitmap::EMPTY);
            }
            self.out.patch_u32(start + 4, status.to_u32());
        }
        status
    }

    /// Counts the operation that was performed; gives the time, at which the next one begins.
    ///
    /// What only prepares the next operation is not counted by itself unless it fails: to look at the clock after each would
    /// cost a small READ more than all the rest of the counting. Its time is that of the next one.
    fn record(&mut self, opcode: u32, began: Instant, status: Status) -> Instant {
        let prepares = matches!(
            opcode,
            op::SEQUENCE | op::PUTFH | op::PUTROOTFH | op::PUTPUBFH | op::SAVEFH | op::RESTOREFH
        );
        if prepares && status == Status::Ok && self.index + 1 < self.count {
            return began;
        }
        let share = match &self.current {
            Some(Object::Node(at)) => at.share.id,
            _ => NO_SHARE,
        };
        let done = Done {
            share,
            operation: operation::of_v4(opcode),
            bytes: std::mem::take(&mut self.moved),
            failed: status != Status::Ok,
        };
        let named = || self.nfs.core.namespace.share(share).map(|s| s.name.clone());
        self.conn.info.meter.record(began, done, || named().unwrap_or_default())
    }

    /// Performs the operations until one fails. `start` and `results_at` are where the status and the count of results
    /// stand in the reply.
    async fn perform_all(&mut self, start: usize, results_at: usize) {
        let mut status = Status::Ok;
        let mut results = 0u32;
        let mut began = self.call.began;
        while self.index < self.count && status == Status::Ok {
            let opcode = self.args.clone().value().unwrap_or(op::ILLEGAL);
            status = self.step().await;
            began = self.record(opcode, began, status);
            results += 1;
            self.index += 1;
            if let Some(kept) = self.replay.take() {
                self.out.truncate(start);
                self.out.head().extend_from_slice(&kept);
                return;
            }
        }
        self.out.patch_u32(start, status.to_u32());
        self.out.patch_u32(results_at, results);
    }
}

/// The head of a COMPOUND: tag, minor version, and the count of operations.
fn head(input: &[u8]) -> Parsed<'_, (&[u8], u32, usize)> {
    let (rest, nfs4::Compound { tag, minorversion, argarray }) = Xdr::parse(input)?;
    // Each operation has four bytes at least, so this bounds the count by the size of the request.
    let max = rest.len() / 4;
    match usize::try_from(argarray) {
        Ok(count) if count <= max => Ok((rest, (tag, minorversion, count))),
        _ => Err(reject("argarray", Rule::OverLimit { max }, input)),
    }
}

/// A name argument (RFC 7530 section 12.7, RFC 8881 section 14): its bytes are kept as they are.
pub(super) fn component(name: &[u8]) -> Result<&[u8], Status> {
    match name {
        b"" => Err(Status::Inval),
        b"." | b".." => Err(Status::BadName),
        _ if name.len() > limits::NAME_MAX => Err(Status::NameTooLong),
        _ if name.contains(&b'/') || name.contains(&0) => Err(Status::BadChar),
        _ => Ok(name),
    }
}

/// `change_info4` of a directory.
pub(super) fn change_info(dir: &DirChange) -> ChangeInfo4 {
    ChangeInfo4 { atomic: dir.atomic, before: dir.before.change, after: dir.after.change }
}

/// Runs one COMPOUND whose arguments are `args` and whose reply follows what `out` holds already (the RPC header).
pub(super) async fn run(
    nfs: &Nfs4,
    conn: &Arc<Conn>,
    call: &CallContext,
    args: &mut Reader<'_>,
    out: &mut Writer,
) -> XdrResult<Outcome> {
    // `utf8str_cs` has no limit but that of the message, and the reply repeats it: where that leaves no room for a result, the
    // first operation says so.
    let (tag, minor, count) = args.parse(head)?;
    if let Some(version) = Version::of_minor(minor) {
        conn.calls(version);
    }

    let start = out.len();
    out.value(&Compounded { status: Nfsstat4::Ok, tag, resarray: 0 });
    // The count of results is the last word.
    let results_at = out.len() - 4;

    let refused = match minor {
        0 if count > limits::OPS_MAX => Some(Status::Resource),
        0..=MINOR_MAX => None,
        _ => Some(Status::MinorVersMismatch),
    };
    if let Some(status) = refused {
        out.patch_u32(start, status.to_u32());
        return Ok(Outcome::Repeatable);
    }

    let mut cx = Compound {
        nfs,
        conn,
        call,
        minor,
        args: args.clone(),
        out: std::mem::take(out),
        index: 0,
        opcode: op::ILLEGAL,
        count,
        current: None,
        found_at: None,
        saved: None,
        current_stateid: None,
        saved_stateid: None,
        limits: ReplyLimits { reply_max: limits::REPLY_MAX, cached_max: None },
        once: false,
        replay: None,
        client: None,
        slot: None,
        moved: 0,
        refuse_rest: None,
    };
    cx.perform_all(start, results_at).await;
    if let Some(slot) = cx.slot.take() {
        slot.finish(&cx.out, start, cx.nfs.clients.now());
    }
    *out = cx.out;
    Ok(if cx.once { Outcome::Once } else { Outcome::Repeatable })
}
