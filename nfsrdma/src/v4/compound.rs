//! The state of a COMPOUND in progress, which its operations share.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use nfs_proto::nfs4::ChangeInfo4;
use nfs_proto::nfs4::attrs::Fattr4;
use rdma_transport::count;
use rdma_transport::xdr::{Reader, Writer};
use state::Requester;
use vfs::namespace::{FileOps, Refusal, Share};
use vfs::{DirChange, Kind, NodeRef};

use super::attrs::{Bitmap, Purpose, ToSet, asks_where};
use super::client::Client;
use super::limits;
use super::names::{self, IdMap, Late, Mentioned, Names};
use super::nfs4::Nfs4;
use super::object::{Located, Object};
use super::principal::Principal;
use super::session::SlotUse;
use super::status::Status;
use super::wire::Stateid;
use crate::context::{CallContext, Conn};
use crate::fh::Fh;

/// Limits of the session that runs the COMPOUND; SEQUENCE sets them.
#[derive(Clone, Copy, Debug)]
pub struct ReplyLimits {
    /// Size limit of the whole reply, in bytes (`ca_maxresponsesize`).
    pub reply_max: usize,
    /// Size limit of a cached reply, in bytes (`ca_maxresponsesize_cached`); `None` if the client did not request caching.
    pub cached_max: Option<usize>,
}

/// A COMPOUND in progress.
pub struct Compound<'a> {
    pub nfs: &'a Nfs4,
    pub conn: &'a Arc<Conn>,
    pub call: &'a CallContext,
    /// Minor version: 0, 1 or 2.
    pub minor: u32,
    /// Arguments of the operations that were not executed yet.
    pub args: Reader<'a>,
    pub out: Writer,
    /// Index of the current operation.
    pub index: usize,
    pub(super) opcode: u32,
    /// Number of operations in the request.
    pub count: usize,
    pub current: Option<Object>,
    /// Index of the PUTFH that set the current file handle.
    pub(super) found_at: Option<usize>,
    pub saved: Option<Object>,
    /// The current stateid (RFC 8881 section 16.2.3.1.2).
    pub current_stateid: Option<Stateid>,
    pub saved_stateid: Option<Stateid>,
    /// Size limits of the reply.
    pub limits: ReplyLimits,
    /// Minor version 0: an operation was not idempotent, so the reply must be cached.
    pub once: bool,
    /// SEQUENCE found a retransmission: this is the cached reply, beginning with the COMPOUND's status.
    pub replay: Option<Arc<[u8]>>,
    /// The client of the session, set by SEQUENCE (minor version 1 and up).
    pub(super) client: Option<Arc<Client>>,
    /// The slot that SEQUENCE occupied.
    pub(super) slot: Option<SlotUse>,
    /// Bytes of file data transferred by the current operation.
    pub(super) moved: u64,
    /// Bytes that the current operation has copied within the server.
    pub(super) copied: u64,
    /// Reads of attributes that belong to an operation which the rates have counted.
    pub(super) free_reads: u8,
    /// The status for all operations after the first: the reply to this retransmission was not cached.
    pub(super) refuse_rest: Option<Status>,
}

impl<'a> Compound<'a> {
    /// Reports that the client has reached a limit, and returns the status for this minor version.
    pub(super) fn limited(&self, limit: &'static str, most: usize) -> Status {
        self.nfs.clients.counters.limited.fetch_add(1, Ordering::Relaxed);
        count::limited(limit, most, self.conn.info.peer);
        if self.minor == 0 { Status::Resource } else { Status::Delay }
    }

    /// Looks up the names of users and groups for the reply; those without a name are sent as numbers or identifiers.
    pub(super) async fn id_map(&self, mentioned: impl FnOnce() -> Mentioned) -> IdMap {
        let Some(domain) = &self.nfs.domain else { return IdMap::default() };
        // Boxed, so that the future of every attribute read does not include it.
        let (id_map, done) = Box::pin(domain.id_map(mentioned(), self.call.now)).await;
        if let Err(late) = done {
            self.late(late);
        }
        id_map
    }

    /// Decodes attributes to set, and looks up the names in them.
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

    /// The name service timed out.
    fn late(&self, _: Late) -> Status {
        count::limited("name-service", names::PATIENCE_S, self.conn.info.peer);
        Status::Delay
    }

    /// The file of the current file handle.
    pub fn node(&self) -> Result<&Located, Status> {
        match self.object()? {
            Object::Node(l) => Ok(l),
            // Pseudo folders are read-only.
            Object::Above(_) => Err(Status::RoFs),
        }
    }

    /// The object of the current file handle, if the caller may use it.
    pub fn object(&self) -> Result<&Object, Status> {
        self.opened(self.current.as_ref())
    }

    /// The object of the saved file handle, if the caller may use it.
    pub fn saved_object(&self) -> Result<&Object, Status> {
        self.opened(self.saved.as_ref())
    }

    fn opened<'o>(&self, object: Option<&'o Object>) -> Result<&'o Object, Status> {
        match object.ok_or(Status::NoFileHandle)? {
            Object::Node(Located { share, closed: Some(why), .. }) => Err(self.closed(share, *why)),
            open => Ok(open),
        }
    }

    pub(super) fn closed(&self, share: &Share, why: Refusal) -> Status {
        // A referral is not a refusal: the client follows it to the other server.
        if why == Refusal::Elsewhere {
            return Status::Moved;
        }
        self.nfs.core.refused(self.conn, self.call, share, why);
        if why.is_of_protection() { Status::WrongSec } else { Status::Access }
    }

    /// The object of the current file handle, including a root that the caller may only mount: for operations that disclose no more
    /// than a mount. The share must still admit the address, and its requirement of TLS applies.
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

    /// Like [`Compound::mounted`], for these attributes: for an absent file system, location attributes may be read, together with
    /// the few others that it has (RFC 8881 section 11.4.1).
    pub(super) fn described(&self, want: &Bitmap) -> Result<&Object, Status> {
        match &self.current {
            Some(object) if object.is_absent() && asks_where(self.minor, want) => Ok(object),
            _ => self.mounted(),
        }
    }

    /// Like [`Compound::mounted`], including shares that require another flavor: for SECINFO, which lists the flavors (RFC 8881
    /// section 2.6.3.1.1).
    pub fn named(&self) -> Result<&Object, Status> {
        match self.current.as_ref().ok_or(Status::NoFileHandle)? {
            object if object.wants_flavor() => Ok(object),
            _ => self.mounted(),
        }
    }

    /// Checks that the call is protected as well as the share of the current file handle requires. Called before a stateid is
    /// checked, whose error would disclose whether it is valid.
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

    /// True if the client's machine performs this operation on behalf of a user (RFC 8881 section 18.35.3, `spo_must_allow`): then
    /// its own flavor counts, not the one that the share requires of users.
    fn is_for_user(&self, opcode: u32, why: Refusal) -> bool {
        why == Refusal::Flavor && self.client.as_ref().is_some_and(|c| c.allows(opcode, self.call))
    }

    /// True if the current file handle requires another flavor, but the next operation (`args` begins with its opcode) is one that
    /// the client's machine may perform anyway.
    pub(super) fn is_for_user_next(&self, args: &mut Reader<'_>) -> bool {
        let Some(Object::Node(Located { closed: Some(why), .. })) = &self.current else {
            return false;
        };
        args.value::<u32>().is_ok_and(|opcode| self.is_for_user(opcode, *why))
    }

    /// True if the share of the current file handle accepts a flavor that protects no more than the call's.
    pub(super) fn protects_as_much(&self) -> bool {
        let Some(Object::Node(at)) = &self.current else { return false };
        let own = self.call.flavor.of_share() as u8;
        at.share.rules.sec.iter().any(|flavor| flavor as u8 <= own)
    }

    /// Checks that the caller may end or bind sessions of this client: those of an authenticated client are reserved to its
    /// principal, because session ids are sent in clear.
    pub(super) fn may_manage(&self, client: &Client) -> Result<(), Status> {
        if client.is_bound_to_other(self.call) {
            return Err(Status::WrongCred);
        }
        let is_other = client.principal.is_proven() && client.principal != Principal::of(self.call);
        if is_other { Err(Status::Access) } else { Ok(()) }
    }

    /// The file of the current file handle, for operations that release state. Rights to the share that were lost meanwhile do not
    /// matter, but the required protection does: without it the caller is not proven to be the holder.
    pub fn given_back(&self) -> Result<&Located, Status> {
        self.proves_enough()?;
        match self.current.as_ref().ok_or(Status::NoFileHandle)? {
            object if object.is_absent() => Err(Status::Moved),
            Object::Node(l) => Ok(l),
            Object::Above(_) => Err(Status::RoFs),
        }
    }

    /// The directory of the current file handle, in which names are changed. For a symbolic link the error is SYMLINK, so that the
    /// client follows it (RFC 8881 section 15.1.2.9).
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

    /// The object as a regular file; the error depends on its actual type (RFC 7530 section 16.23.4, RFC 8881 section 18.22.3).
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

    /// The requester for changes of names and attributes without a stateid.
    pub fn requester(&self) -> Option<Requester> {
        let via = match &self.current {
            Some(Object::Node(at)) => at.share.id,
            _ => 0,
        };
        self.client.as_ref().map(|c| Requester { client: c.id, via, holder: None })
    }

    /// `FileOps` for changes of names and attributes.
    pub fn file_ops(&self) -> FileOps<'a> {
        self.nfs.core.namespace.by(self.requester()).audited(self.call)
    }

    /// Sets the current file handle and clears the current stateid, which belonged to the previous one.
    pub fn set_current(&mut self, object: Object) {
        self.current = Some(object);
        self.current_stateid = None;
    }

    /// Checks the file that the preceding PUTFH has found, by its link count read since. Link count 0: it was unlinked on the host.
    /// Clients with the file open keep it; a bare file handle is stale.
    pub(super) async fn found_again(&mut self, nlink: u32) -> Result<(), Status> {
        if nlink > 0 || self.found_at.is_none_or(|at| at + 1 != self.index) {
            return Ok(());
        }
        let Some(Object::Node(found)) = self.current.take() else { return Ok(()) };
        let Located { share, node, cred, closed, link } = found;
        let handle = node.handle();
        // The reference held by this call must not count as an open.
        drop(node);
        let node = share.backend.resolve(&handle).await?;
        self.current = Some(Object::Node(Located { share, node, cred, closed, link }));
        Ok(())
    }

    /// Prepares a file of a share for this caller. If the caller or its address may not use the share, it is marked closed: the
    /// error and the log line follow with the next operation that needs the right.
    pub fn enter(&self, share: Arc<Share>, node: NodeRef) -> Object {
        let (entered, closed) = match self.nfs.core.judge(self.conn, self.call, &share) {
            Ok(granted) => (share.granted(granted), None),
            Err(why) => (share.from_outside(), Some(why)),
        };
        let (share, cred) = (entered.share, entered.cred);
        Object::Node(Located { share, node, cred, closed, link: None })
    }

    /// The root of a share that admits the client's address.
    pub fn root_of(&self, share: Arc<Share>) -> Object {
        let root = share.backend.root();
        self.enter(share, root)
    }

    pub fn fh_of(&self, object: &Object) -> Fh {
        let handles = &self.nfs.core.handles;
        match object {
            Object::Above(above) => handles.above(above.number()),
            Object::Node(l) => handles.of_node(&l.share, &l.node.handle()),
        }
    }

    /// Replaces the special "current stateid" in an argument (RFC 8881 section 8.2.3).
    pub fn stateid(&self, sent: Stateid) -> Result<Stateid, Status> {
        if self.minor > 0 && sent == Stateid::CURRENT {
            return self.current_stateid.ok_or(Status::BadStateId);
        }
        Ok(sent)
    }

    /// Bytes of data that fit into a result with `around` other bytes.
    pub fn room_for_data(&self, around: usize) -> usize {
        let max = match self.limits.cached_max {
            Some(cached) => self.limits.reply_max.min(cached),
            None => self.limits.reply_max,
        };
        max.saturating_sub(self.out.total_len()).saturating_sub(around)
    }
}

/// Checks a name argument (RFC 7530 section 12.7, RFC 8881 section 14); its bytes are not interpreted.
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
