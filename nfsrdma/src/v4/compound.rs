//! A COMPOUND under way: what its operations may see and change of their surroundings, and what they share.

use std::collections::BTreeSet;
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
use super::names::{self, Id, IdMap, Late, Names};
use super::nfs4::Nfs4;
use super::object::{Located, Object};
use super::principal::Principal;
use super::session::SlotUse;
use super::status::Status;
use super::wire::Stateid;
use crate::context::{CallContext, Conn};
use crate::fh::Fh;

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
        // Memory of its own: each read of attributes would have room for it.
        let (id_map, done) = Box::pin(domain.id_map(ids(), self.call.now)).await;
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

    pub(super) fn closed(&self, share: &Share, why: Refusal) -> Status {
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
