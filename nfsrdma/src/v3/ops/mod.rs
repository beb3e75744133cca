//! Procedures of NFSv3. Arguments arrive decoded; a procedure encodes only its results.

mod acl;
mod attrs;
mod data;
mod listing;
mod make;
mod names;
mod volume;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use iobuf::Buf;
use nfs_proto::nfs3::acl::Args as AclArgs;
use nfs_proto::nfs3::{Args, Nfsstat3, WccData};
use nfs_proto::xdr::Xdr;
use rates::Admitted;
use rdma_transport::meter::{Done, NO_SHARE};
use rdma_transport::watchdog;
use state::Rights;
use vfs::namespace::{Entered, FileOps, Refusal, Share};
use vfs::{Attr, Cred, NodeRef, VfsResult};

use super::attr::{post_op, wcc};
use super::procedure;
use crate::context::{CallContext, Conn, Outcome};
use crate::fh::Fh;
use crate::limits::TRANSFER_MAX;
use crate::operation;
use crate::pace::{self, Asked};
use crate::server_state::ServerState;
use crate::status::Failed;
use rdma_transport::xdr::{Reader, Writer, XdrResult};

/// `NFS3_OK`.
const OK: u32 = 0;

/// `Err` if no file was found: the reply then consists of the status and empty attributes.
type OpResult = Result<(), Failed>;

/// Writes the results of a successful procedure.
fn answer<'v>(out: &mut Writer, ok: &impl Xdr<'v>) {
    out.value(&OK);
    out.value(ok);
}

/// One call.
struct Op<'a> {
    core: &'a ServerState,
    conn: &'a Conn,
    call: &'a CallContext,
    /// The share that the call refers to, and the bytes of file data transferred, for statistics.
    share: AtomicU32,
    moved: AtomicU64,
    /// The call protects less than the share requires.
    too_weak: AtomicBool,
    /// What it is about to do, and its pass once it has one.
    asked: Asked,
    admitted: OnceLock<Admitted>,
}

/// The file of a handle, and the caller's identity in its share.
struct Target {
    share: Arc<Share>,
    node: NodeRef,
    cred: Cred,
    /// No NFSv4 client holds a delegation under which size and times could differ from the server's.
    known: bool,
}

impl<'a> Op<'a> {
    fn new(core: &'a ServerState, conn: &'a Conn, call: &'a CallContext, asked: Asked) -> Self {
        let (share, moved) = (AtomicU32::new(NO_SHARE), AtomicU64::new(0));
        let (too_weak, admitted) = (AtomicBool::new(false), OnceLock::new());
        Self { core, conn, call, share, moved, too_weak, asked, admitted }
    }

    async fn target(&self, wire: &[u8]) -> Result<Target, Failed> {
        self.target_by(wire, |share, _| self.core.enter(self.conn, self.call, share)).await
    }

    /// Like [`Op::target`], for calls that a client makes on a share's root while mounting.
    async fn target_of_mount(&self, wire: &[u8]) -> Result<Target, Failed> {
        let enter = |share, node: &_| self.core.enter_to_mount(self.conn, self.call, share, node);
        self.target_by(wire, enter).await
    }

    /// Like [`Op::target`], for the space of a share.
    async fn target_of_space(&self, wire: &[u8]) -> Result<Target, Failed> {
        let enter = |share, node: &_| self.core.enter_to_measure(self.conn, self.call, share, node);
        self.target_by(wire, enter).await
    }

    /// Finds the file and enters its share. The call waits here for the rates of the share; then it looks again, because the file
    /// may be gone and the configuration another.
    async fn target_by(
        &self,
        wire: &[u8],
        enter: impl Fn(Arc<Share>, &NodeRef) -> Result<Entered, Refusal>,
    ) -> Result<Target, Failed> {
        loop {
            let (share, node) = self.resolve(wire).await?;
            let entered = enter(share, &node).map_err(|why| self.refused(why))?;
            if self.admitted.get().is_some() || !self.core.namespace.limits.is_on() {
                return Ok(self.found(entered, node));
            }
            let id = entered.share.id;
            let admitted =
                pace::admit(self.core, (self.conn, self.call), id, self.asked, None).await;
            // RFC 1813 section 2.6: the client shall retry later.
            let admitted = admitted.map_err(|_| Nfsstat3::Jukebox)?;
            let has_waited = admitted.has_waited();
            // It was unset just above, and only this task answers the call.
            let _ = self.admitted.set(admitted);
            if !has_waited {
                return Ok(self.found(entered, node));
            }
        }
    }

    fn refused(&self, why: Refusal) -> Nfsstat3 {
        self.too_weak.fetch_or(why.is_of_protection(), Ordering::Relaxed);
        Nfsstat3::Acces
    }

    async fn resolve(&self, wire: &[u8]) -> Result<(Arc<Share>, NodeRef), Failed> {
        let (share, node) = self.core.handles.resolve(&self.core.namespace, wire).await?;
        self.share.store(share.id, Ordering::Relaxed);
        Ok((share, node))
    }

    fn found(&self, Entered { share, cred }: Entered, node: NodeRef) -> Target {
        let known = self.core.namespace.by(None).is_known(&node);
        Target { share, node, cred, known }
    }

    /// Checks a target by attributes read since the look-up. Link count 0: it was unlinked on the host. Clients that have the file
    /// open keep it; a bare file handle is stale.
    async fn found_again(
        &self,
        t: Target,
        wire: &[u8],
        attr: Option<&Attr>,
    ) -> Result<Target, Failed> {
        if attr.is_none_or(|attr| attr.nlink > 0) {
            return Ok(t);
        }
        // The reference held by this call must not count as an open.
        drop(t);
        self.target(wire).await
    }

    /// Returns true if this is the folder of a link to other servers. NFS 3 has no referrals: its clients see an empty folder, and
    /// the log says so once.
    fn is_link(&self, t: &Target) -> bool {
        let Some(link) = t.share.rules.links.of(t.node.id()) else { return false };
        if link.tells_once() {
            let targets: Vec<String> = link.targets.iter().map(ToString::to_string).collect();
            tracing::warn!(
                peer = %self.conn.info.peer,
                share = t.share.name,
                link = &*link.path,
                to = targets.join(", "),
                "a client of NFS 3 sees an empty folder in place of this link; mount with NFS 4, or mount the other server"
            );
        }
        true
    }

    /// Records the bytes of file data transferred.
    fn moved(&self, bytes: usize) {
        self.moved.store(bytes as u64, Ordering::Relaxed);
    }

    /// Ends a procedure whose results begin at `mark`: a failed one gets the status and `empty` empty words. Counts the call.
    fn end(&self, done: OpResult, empty: usize, operation: u8, mark: usize, out: &mut Writer) {
        if let Err(Failed(status)) = done {
            out.truncate(mark);
            out.value(&status);
            (0..empty).for_each(|_| out.value(&0u32));
        }
        // The results of all procedures but NULL begin with a status.
        let failed = out.word_at(mark).is_some_and(|status| status != OK);
        let share = self.share.load(Ordering::Relaxed);
        let bytes = self.moved.load(Ordering::Relaxed);
        if let Some(admitted) = self.admitted.get() {
            self.core.namespace.limits.settle(*admitted, bytes);
        }
        let done = Done { share, operation, bytes, failed };
        let named = || self.core.namespace.share(share).map(|s| s.name.clone());
        self.conn.info.meter.record(self.call.began, done, || named().unwrap_or_default());
    }

    /// Returns `FileOps` for file data, such that a share reservation does not block the host that made it.
    fn file_ops(&self, t: &Target, access: Rights) -> FileOps<'_> {
        let peer = self.conn.info.peer.ip();
        self.core.namespace.by(self.core.reservations.who(peer, t.node.id(), access))
    }

    /// Returns `FileOps` for names and directory listings, with auditing if the share asks for it.
    fn file_ops_by_name(&self) -> FileOps<'_> {
        self.core.namespace.by(None).audited(self.call)
    }

    fn fh(&self, share: &Share, node: &NodeRef) -> Fh {
        self.core.handles.of_node(share, &node.handle())
    }
}

impl Target {
    /// Notes what a name in this folder leads to. A process of the host may have made the folder of a link again, and the client
    /// gets a handle of it now.
    fn note_link(&self, name: &[u8], node: &NodeRef) {
        // Clients of NFS 3 see the folder of a link; `Op::is_link` keeps them out of it.
        let _ = self.share.rules.links.at(self.node.id(), name, node);
    }

    /// Attributes for the client's cache; they are optional. Omitted if an NFSv4 client with a delegation may have newer ones.
    async fn after(&self) -> Option<Attr> {
        if self.known { self.node.getattr().await.ok() } else { None }
    }

    /// Writes `status` and `post_op_attr`.
    async fn fail_post(&self, out: &mut Writer, status: impl Into<Failed>) {
        out.value(&status.into().0);
        out.value(&post_op(&self.share, self.after().await.as_ref()));
    }

    /// Writes `status` and `wcc_data` without the side before.
    async fn fail_wcc(&self, out: &mut Writer, status: impl Into<Failed>) {
        out.value(&status.into().0);
        out.value(&self.wcc_after().await);
    }

    /// `wcc_data` without the side before.
    async fn wcc_after(&self) -> WccData {
        wcc(&self.share, None, self.after().await.as_ref())
    }

    /// Refuses changes through a read-only share.
    fn writable(&self, op: &Op<'_>) -> VfsResult<()> {
        op.core.namespace.writable(&self.share)
    }
}

/// The number of empty `post_op_attr` and `pre_op_attr` in the procedure's `resfail`, for a call that failed before it found a
/// file.
fn empty_words(number: u32) -> usize {
    use procedure as p;
    match number {
        p::GETATTR => 0,
        p::RENAME => 4,
        p::LINK => 3,
        p::SETATTR | p::WRITE | p::CREATE..=p::RMDIR | p::COMMIT => 2,
        _ => 1,
    }
}

/// Executes one call. `args` is positioned at the arguments; results are appended to `out`.
pub async fn serve(
    core: &ServerState,
    conn: &Conn,
    call: &CallContext,
    number: u32,
    args: &mut Reader<'_>,
    out: &mut Writer,
) -> XdrResult<Outcome> {
    let parsed = args.parse(|i| Args::parse(number, i))?;
    let Some(parsed) = parsed else { return Ok(Outcome::NoProcedure) };
    let is_missing = args.lacks_data();
    let data = match &parsed {
        // RFC 1813 section 2.6: the client shall retry later.
        Args::Write(_) | Args::Symlink(_) if is_missing => Err(Nfsstat3::Jukebox),
        // Beyond `wtmax` the data is truncated (RFC 1813 section 3.3.7).
        Args::Write(a) => Ok(args.data(a.data)?),
        // RDMA Read may have transferred the target (RFC 8267 section 5.2).
        Args::Symlink(a) => Ok(args.data(a.symlink_data)?),
        _ => Ok(Vec::new()),
    };
    watchdog::operation(operation::name(operation::of_v3(number)));
    let asked = match (&parsed, &data) {
        (Args::Read(a), _) => {
            Asked::read(usize::try_from(a.count).unwrap_or(TRANSFER_MAX).min(TRANSFER_MAX))
        }
        (Args::Write(_), Ok(data)) => Asked::write(data.iter().map(Buf::len).sum()),
        _ => Asked::OTHER,
    };
    let op = Op::new(core, conn, call, asked);
    let mark = out.len();
    let done = match data {
        Ok(data) => run(&op, &parsed, data, out).await,
        Err(status) => Err(Failed(status)),
    };
    op.end(done, empty_words(number), operation::of_v3(number), mark, out);
    if op.too_weak.into_inner() {
        return Ok(Outcome::TooWeak);
    }
    Ok(if super::is_once(number) { Outcome::Once } else { Outcome::Repeatable })
}

/// Executes one call of NFSACL.
pub async fn serve_acl(
    core: &ServerState,
    conn: &Conn,
    call: &CallContext,
    number: u32,
    args: &mut Reader<'_>,
    out: &mut Writer,
) -> XdrResult<Outcome> {
    let args = args.parse(|i| AclArgs::parse(number, i))?;
    let Some(args) = args else { return Ok(Outcome::NoProcedure) };
    watchdog::operation(operation::name(operation::of_acl(number)));
    let op = Op::new(core, conn, call, Asked::OTHER);
    let mark = out.len();
    let done = match args {
        AclArgs::Null => return Ok(Outcome::Repeatable),
        AclArgs::Getacl(a) => acl::getacl(&op, a, out).await,
        AclArgs::Setacl(a) => acl::setacl(&op, a, out).await,
    };
    // Both procedures have one `post_op_attr` in a failed reply.
    op.end(done, 1, operation::of_acl(number), mark, out);
    Ok(if op.too_weak.into_inner() { Outcome::TooWeak } else { Outcome::Repeatable })
}

/// Runs the procedure. `data` is the bulk data of WRITE and SYMLINK. Rare procedures are boxed, so that the future does not have
/// the size of the largest of them.
async fn run(op: &Op<'_>, args: &Args<'_>, data: Vec<Buf>, out: &mut Writer) -> OpResult {
    match args {
        Args::Null => Ok(()),
        Args::Getattr(a) => attrs::getattr(op, a.data, out).await,
        Args::Setattr(a) => Box::pin(attrs::setattr(op, a, out)).await,
        Args::Access(a) => attrs::access(op, a.object, a.access, out).await,
        Args::Lookup(what) => names::lookup(op, *what, out).await,
        Args::Readlink(a) => Box::pin(data::readlink(op, a.data, out)).await,
        Args::Read(a) => data::read(op, a, out).await,
        Args::Write(a) => Box::pin(data::write(op, a, data, out)).await,
        Args::Commit(a) => data::commit(op, a, out).await,
        Args::Create(a) => Box::pin(make::create(op, a, out)).await,
        Args::Mkdir(a) => Box::pin(make::mkdir(op, a, out)).await,
        Args::Symlink(a) => Box::pin(make::symlink(op, a, data, out)).await,
        Args::Mknod(a) => Box::pin(make::mknod(op, a, out)).await,
        Args::Remove(object) => Box::pin(names::remove(op, *object, out)).await,
        Args::Rmdir(object) => Box::pin(names::rmdir(op, *object, out)).await,
        Args::Rename(a) => Box::pin(names::rename(op, a.from, a.to, out)).await,
        Args::Link(a) => Box::pin(names::link(op, a.file, a.link, out)).await,
        Args::Readdir(a) => Box::pin(listing::readdir(op, a, out)).await,
        Args::Readdirplus(a) => Box::pin(listing::readdirplus(op, a, out)).await,
        Args::Fsstat(a) => Box::pin(volume::fsstat(op, a.data, out)).await,
        Args::Fsinfo(a) => Box::pin(volume::fsinfo(op, a.data, out)).await,
        Args::Pathconf(a) => Box::pin(volume::pathconf(op, a.data, out)).await,
    }
}
