//! Quotas over SMB, with a volume that keeps them in a table.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use smb_proto::fscc::quota::{Asked, DELETED, NO_LIMIT, Query, Quota, control};
use vfs::mem::MemBackend;
use vfs::quota::{QuotaKind, QuotaLimits, QuotaState};
use vfs::{Backend, BoxFuture, Capabilities, FsStat, Handle, NodeRef, VfsError, VfsResult};

use super::info::{ask, put};
use crate::dtyp::{Sid, mask};
use crate::fscc::volume::{self, Control, FullSize, Size};
use crate::harness::{Client, Harness};
use crate::open::FileId;
use crate::status::Status;
use crate::users::rid_of_uid;
use crate::wire::Command;
use crate::wire::create::Disposition;
use crate::wire::query_info::{Request, Response, info_type};

const NAME: &str = "$Extend\\$Quota:$Q:$INDEX_ALLOCATION";
const CONTROL: u8 = 6;
const MIB: u64 = 1 << 20;

/// A volume whose quotas are a table.
struct Counting {
    volume: Arc<MemBackend>,
    table: Mutex<BTreeMap<u32, vfs::quota::Quota>>,
    /// The process has the right to enumerate and to set.
    administers: AtomicBool,
    has_default: AtomicBool,
}

impl Counting {
    fn new(users: impl IntoIterator<Item = (u32, u64, Option<u64>)>) -> Arc<Self> {
        let quota = |(id, used, hard)| {
            let limits = QuotaLimits { soft: None, hard };
            (id, vfs::quota::Quota { id, used, limits, ..Default::default() })
        };
        Arc::new(Self {
            volume: MemBackend::new(64 * MIB).unwrap(),
            table: Mutex::new(users.into_iter().map(quota).collect()),
            administers: AtomicBool::new(true),
            has_default: AtomicBool::new(false),
        })
    }

    fn limits(&self, uid: u32) -> QuotaLimits {
        self.table.lock().unwrap()[&uid].limits
    }

    fn right(&self) -> VfsResult<()> {
        if self.administers.load(Ordering::Relaxed) { Ok(()) } else { Err(VfsError::Perm) }
    }
}

/// The kernel has no such user.
fn check(id: u32) -> VfsResult<()> {
    if id == u32::MAX { Err(VfsError::NotSupported) } else { Ok(()) }
}

fn now<'a, T: Send + 'a>(value: VfsResult<T>) -> BoxFuture<'a, VfsResult<T>> {
    Box::pin(std::future::ready(value))
}

impl Backend for Counting {
    fn root(&self) -> NodeRef {
        self.volume.root()
    }

    fn resolve<'a>(&'a self, handle: &'a Handle) -> BoxFuture<'a, VfsResult<NodeRef>> {
        self.volume.resolve(handle)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { quotas: true, ..self.volume.capabilities() }
    }

    fn statfs(&self) -> BoxFuture<'_, VfsResult<FsStat>> {
        self.volume.statfs()
    }

    fn quota_state<'a>(
        &'a self,
        _: &'a NodeRef,
        _: QuotaKind,
    ) -> BoxFuture<'a, VfsResult<QuotaState>> {
        let has_default = self.has_default.load(Ordering::Relaxed);
        now(Ok(QuotaState { enforces: true, has_default }))
    }

    fn quota<'a>(
        &'a self,
        _: &'a NodeRef,
        kind: QuotaKind,
        id: u32,
    ) -> BoxFuture<'a, VfsResult<vfs::quota::Quota>> {
        if kind != QuotaKind::User || check(id).is_err() {
            return now(Err(VfsError::NotSupported));
        }
        let found = self.table.lock().unwrap().get(&id).copied();
        now(Ok(found.unwrap_or(vfs::quota::Quota { id, ..Default::default() })))
    }

    fn quotas<'a>(
        &'a self,
        _: &'a NodeRef,
        _: QuotaKind,
        from: u32,
        entries_max: usize,
    ) -> BoxFuture<'a, VfsResult<Vec<vfs::quota::Quota>>> {
        let table = self.table.lock().unwrap();
        let found = table.range(from..).take(entries_max).map(|(_, quota)| *quota).collect();
        now(self.right().map(|()| found))
    }

    fn quota_set<'a>(
        &'a self,
        _: &'a NodeRef,
        _: QuotaKind,
        id: u32,
        limits: QuotaLimits,
    ) -> BoxFuture<'a, VfsResult<()>> {
        if let Err(e) = self.right().and(check(id)) {
            return now(Err(e));
        }
        // XFS changes nothing then.
        if limits.hard.is_some_and(|hard| limits.soft.is_some_and(|soft| soft > hard)) {
            return now(Ok(()));
        }
        let mut table = self.table.lock().unwrap();
        table.entry(id).or_insert(vfs::quota::Quota { id, ..Default::default() }).limits = limits;
        now(Ok(()))
    }
}

async fn open(c: &Client) -> FileId {
    c.create(NAME, |r| r.disposition = Disposition::Open as u32).await.unwrap().file
}

async fn query(
    c: &Client,
    file: FileId,
    query: &Query,
    len: u32,
) -> Result<Vec<(Sid, u64, u64)>, Status> {
    let r = Request {
        info_type: info_type::QUOTA,
        class: 0,
        output_len: len,
        additional: 0,
        flags: 0,
        file,
        input: query.emit(),
    };
    let answer = c.ask(Command::QueryInfo, &r.emit()).await;
    if answer.status() != Status::SUCCESS {
        return Err(answer.status());
    }
    let buffer = Response::parse(&answer.message).unwrap().buffer;
    assert!(buffer.len() <= usize::try_from(len).unwrap());
    let list = Quota::parse_list(&buffer).unwrap();
    Ok(list.into_iter().map(|q| (q.sid, q.used, q.limit)).collect())
}

fn all(restarts: bool) -> Query {
    Query { single: false, restarts, asked: Asked::All }
}

fn user(uid: u32) -> Sid {
    Sid::unix_user(uid)
}

fn entry(sid: Sid, threshold: u64, limit: u64) -> Quota {
    Quota { changed: crate::dtyp::FileTime(0), used: 0, threshold, limit, sid }
}

async fn set(c: &Client, file: FileId, list: &[Quota]) -> Status {
    put(c, file, info_type::QUOTA, 0, 0, &Quota::emit_list(list)).await
}

#[tokio::test]
async fn listing_continues_where_buffer_ended() {
    let users = (1000..1700).map(|uid| (uid, u64::from(uid), None));
    let volume = Counting::new(users.chain([(u32::MAX - 1, 7, Some(9))]));
    let harness = Harness::on(volume, None);
    let c = harness.client();
    let file = open(&c).await;
    let mut found = Vec::new();
    let mut restarts = true;
    // 56 bytes for each entry: 17 fit.
    loop {
        match query(&c, file, &all(restarts), 1000).await {
            Ok(some) => found.extend(some),
            Err(status) => {
                assert_eq!(status, Status::NO_MORE_ENTRIES);
                break;
            }
        }
        restarts = false;
    }
    assert_eq!(found.len(), 701);
    assert_eq!(found[0], (user(1000), 1000, NO_LIMIT));
    assert_eq!(found[700], (user(u32::MAX - 1), 7, 9));
    assert!(found.iter().zip(1000..).take(700).all(|(one, uid)| one.0 == user(uid)));
    let again = query(&c, file, &all(false), 1000).await;
    assert_eq!(again, Err(Status::NO_MORE_ENTRIES), "it stays at its end");
    let single = Query { single: true, ..all(true) };
    assert_eq!(query(&c, file, &single, 1000).await.unwrap().len(), 1);
    let next = query(&c, file, &Query { restarts: false, ..single }, 1000).await.unwrap();
    assert_eq!(next[0].0, user(1001));
    let from = Query { single: false, restarts: true, asked: Asked::From(user(1699)) };
    assert_eq!(query(&c, file, &from, 1000).await.unwrap().len(), 2);
    assert_eq!(query(&c, file, &all(true), 55).await, Err(Status::BUFFER_TOO_SMALL));
    assert_eq!(query(&c, file, &all(false), 65_536).await.unwrap().len(), 701, "none was lost");
}

#[tokio::test]
async fn named_users_are_told_in_their_order() {
    let volume = Counting::new([(1000, 10, Some(20)), (1001, 30, None)]);
    let harness = Harness::on(volume, None);
    let c = harness.client();
    let file = open(&c).await;
    let machine = crate::ops::pipe_host::machine(&harness.core.settings().server_guid);
    let by_rid = machine.child(rid_of_uid(1000)).unwrap();
    let foreign = Sid::new(5, &[21, 9, 9, 9, 500]).unwrap();
    let sids = vec![user(1001), by_rid.clone(), foreign.clone(), user(7)];
    let asked = Query { single: false, restarts: false, asked: Asked::Of(sids.clone()) };
    let wanted = vec![
        (user(1001), 30, NO_LIMIT),
        (by_rid, 10, 20),
        // MS-FSA section 2.1.5.21: zeros.
        (foreign.clone(), 0, 0),
        (user(7), 0, NO_LIMIT),
    ];
    assert_eq!(query(&c, file, &asked, 65_536).await.unwrap(), wanted);
    let single = Query { single: true, ..asked.clone() };
    assert_eq!(query(&c, file, &single, 65_536).await.unwrap(), wanted[..1]);
    assert_eq!(query(&c, file, &asked, 60).await.unwrap(), wanted[..1], "what fits");
    assert_eq!(query(&c, file, &asked, 20).await, Err(Status::BUFFER_TOO_SMALL));
    for sid in [foreign, user(u32::MAX)] {
        let from = Query { asked: Asked::From(sid), ..asked };
        assert_eq!(query(&c, file, &from, 60).await, Err(Status::INVALID_SID));
    }
    let short = ask(&c, file, info_type::QUOTA, 0, 1000).await.status();
    assert_eq!(short, Status::INVALID_PARAMETER, "no SMB2_QUERY_QUOTA_INFO");
}

#[tokio::test]
async fn limits_are_set_together_or_not_at_all() {
    let volume = Counting::new([(1000, 10, Some(20)), (1001, 30, None)]);
    let harness = Harness::on(volume.clone(), None);
    let c = harness.client();
    let file = open(&c).await;
    let list = [entry(user(1000), MIB, 2 * MIB), entry(user(1001), NO_LIMIT, 3 * MIB)];
    assert_eq!(set(&c, file, &list).await, Status::SUCCESS);
    let limits = |soft, hard| QuotaLimits { soft, hard };
    assert_eq!(volume.limits(1000), limits(Some(MIB), Some(2 * MIB)));
    assert_eq!(volume.limits(1001), limits(None, Some(3 * MIB)));
    let foreign = Sid::new(5, &[21, 9, 9, 9, 500]).unwrap();
    for (bad, status) in [
        (entry(foreign, 1, 1), Status::NO_SUCH_USER),
        (entry(user(u32::MAX), 1, 1), Status::NO_SUCH_USER),
        (entry(user(7), 1 << 63, 1), Status::INVALID_PARAMETER),
        (entry(user(7), 1, 1 << 63), Status::INVALID_PARAMETER),
        (entry(Sid::administrators(), 1, 1), Status::ACCESS_DENIED),
    ] {
        let list = [entry(user(1000), 5, 5), bad];
        assert_eq!(set(&c, file, &list).await, status);
    }
    assert_eq!(volume.limits(1000), limits(Some(MIB), Some(2 * MIB)));
    let list = [entry(Sid::administrators(), NO_LIMIT, NO_LIMIT), entry(user(1000), 0, DELETED)];
    assert_eq!(set(&c, file, &list).await, Status::SUCCESS);
    assert_eq!(volume.limits(1000), limits(None, None));
    let above = entry(user(1000), 3 * MIB, 2 * MIB);
    assert_eq!(set(&c, file, &[above]).await, Status::SUCCESS);
    assert_eq!(volume.limits(1000), limits(Some(2 * MIB), Some(2 * MIB)));
    let cut = put(&c, file, info_type::QUOTA, 0, 0, &[0; 39]).await;
    assert_eq!(cut, Status::INVALID_PARAMETER);
}

/// XFS keeps the default limits under the number of the superuser.
#[tokio::test]
async fn superuser_has_no_limit() {
    let volume = Counting::new([(0, 10, Some(MIB)), (1000, 10, Some(20))]);
    volume.has_default.store(true, Ordering::Relaxed);
    let harness = Harness::on(volume.clone(), None);
    let c = harness.client();
    let file = open(&c).await;
    let list = [entry(user(1000), 5, 5), entry(user(0), MIB, 2 * MIB)];
    assert_eq!(set(&c, file, &list).await, Status::ACCESS_DENIED);
    assert_eq!(volume.limits(1000).hard, Some(20));
    let unlimited = [entry(user(0), NO_LIMIT, NO_LIMIT)];
    assert_eq!(set(&c, file, &unlimited).await, Status::SUCCESS);
    assert_eq!(volume.limits(0).hard, Some(MIB), "the default stays");
    let wanted = vec![(user(0), 10, NO_LIMIT), (user(1000), 10, 20)];
    assert_eq!(query(&c, file, &all(true), 1000).await, Ok(wanted.clone()));
    let of = Asked::Of(vec![user(0), user(1000)]);
    let asked = Query { single: false, restarts: false, asked: of };
    assert_eq!(query(&c, file, &asked, 1000).await, Ok(wanted));
    // A limit that the host has set.
    volume.has_default.store(false, Ordering::Relaxed);
    assert_eq!(query(&c, file, &asked, 1000).await.unwrap()[0], (user(0), 10, MIB));
    assert_eq!(set(&c, file, &list).await, Status::ACCESS_DENIED);
    assert_eq!(set(&c, file, &unlimited).await, Status::SUCCESS);
    assert_eq!(volume.limits(0), QuotaLimits::default());
}

/// As with smbd, the superuser only.
#[tokio::test]
async fn only_administrators_open_quotas() {
    let harness = Harness::on(Counting::new([(1000, 10, Some(20))]), None);
    let (c, other) = (harness.client(), harness.client_as(1000));
    let denied = other.create(NAME, |r| r.disposition = Disposition::Open as u32).await;
    assert_eq!(denied.err(), Some(Status::ACCESS_DENIED));
    for (disposition, status) in [
        (Disposition::Create, Status::OBJECT_NAME_COLLISION),
        (Disposition::Overwrite, Status::ACCESS_DENIED),
    ] {
        let made = c.create(NAME, |r| r.disposition = disposition as u32).await;
        assert_eq!(made.err(), Some(status));
    }
    let file = c.open("f").await;
    assert_eq!(query(&c, file, &all(true), 1000).await, Err(Status::INVALID_HANDLE));
    assert_eq!(set(&c, file, &[entry(user(1000), 1, 1)]).await, Status::INVALID_HANDLE);
    let reads = c.create(NAME, |r| r.access = mask::READ_DATA).await.unwrap().file;
    assert_eq!(set(&c, reads, &[entry(user(1000), 1, 1)]).await, Status::ACCESS_DENIED);
    assert_eq!(query(&c, reads, &all(true), 1000).await.unwrap().len(), 1);
    // It is no file.
    let quotas = open(&c).await;
    let standard = ask(&c, quotas, info_type::FILE, 5, 1000).await.status();
    assert_eq!(standard, Status::INVALID_DEVICE_REQUEST);
    assert_eq!(c.close(quotas).await, Status::SUCCESS);
    assert_eq!(c.close(quotas).await, Status::FILE_CLOSED);
    assert_eq!(query(&c, quotas, &all(true), 1000).await, Err(Status::FILE_CLOSED));
}

/// The packaged service has no CAP_SYS_ADMIN.
#[tokio::test]
async fn known_users_are_listed_without_right_to_enumerate() {
    let volume = Counting::new([(0, 50, None), (1000, 10, Some(20))]);
    volume.administers.store(false, Ordering::Relaxed);
    let harness = Harness::on(volume, None);
    let c = harness.client();
    let file = open(&c).await;
    // The only account is root's.
    assert_eq!(query(&c, file, &all(true), 1000).await, Ok(vec![(user(0), 50, NO_LIMIT)]));
    assert_eq!(query(&c, file, &all(false), 1000).await, Err(Status::NO_MORE_ENTRIES));
    assert_eq!(set(&c, file, &[entry(user(1000), 1, 1)]).await, Status::ACCESS_DENIED);
}

async fn of_volume(c: &Client, file: FileId, class: volume::Class) -> Vec<u8> {
    let answer = ask(c, file, info_type::FILESYSTEM, class.number(), 1000).await;
    Response::parse(&answer.ok().unwrap().message).unwrap().buffer
}

#[tokio::test]
async fn volume_tells_flags_and_defaults() {
    let volume = Counting::new([(0, 0, Some(5 * MIB))]);
    let harness = Harness::on(volume.clone(), None);
    let c = harness.client();
    let file = open(&c).await;
    let attributes = of_volume(&c, file, volume::Class::Attribute).await;
    assert_eq!(attributes[0] & 0x20, 0x20, "FILE_VOLUME_QUOTAS");
    let told = async || Control::parse(&of_volume(&c, file, volume::Class::Control).await).unwrap();
    let now = told().await;
    assert_eq!((now.default_limit, now.flags), (NO_LIMIT, control::QUOTA_ENFORCE));
    let change = async |wanted: Control| {
        put(&c, file, info_type::FILESYSTEM, CONTROL, 0, &wanted.emit()).await
    };
    assert_eq!(change(now).await, Status::SUCCESS, "nothing changes");
    let off = Control { flags: 0, ..now };
    assert_eq!(change(off).await, Status::INVALID_PARAMETER, "the host decides");
    let limited = Control { default_limit: MIB, ..now };
    assert_eq!(change(limited).await, Status::INVALID_PARAMETER, "it has no defaults");
    volume.has_default.store(true, Ordering::Relaxed);
    assert_eq!(told().await.default_limit, 5 * MIB);
    assert_eq!(change(limited).await, Status::SUCCESS);
    assert_eq!(told().await, limited);
    let above = Control { default_threshold: 2 * MIB, ..limited };
    assert_eq!(change(above).await, Status::SUCCESS);
    assert_eq!(told().await.default_threshold, MIB, "not above the limit");
    let plain = c.open("f").await;
    let refused = put(&c, plain, info_type::FILESYSTEM, CONTROL, 0, &now.emit()).await;
    assert_eq!(refused, Status::INVALID_PARAMETER, "not through a file");
}

#[tokio::test]
async fn space_of_caller_is_that_of_its_quota() {
    let volume = Counting::new([(0, 0, Some(MIB)), (1000, 5 * MIB, Some(20 * MIB))]);
    let harness = Harness::on(volume, None);
    let (root, user) = (harness.client(), harness.client_as(1000));
    for (c, total, available) in [(&root, 64, 64), (&user, 20, 15)] {
        let file = c.open("f").await;
        let full = FullSize::parse(&of_volume(c, file, volume::Class::FullSize).await).unwrap();
        // The file itself takes a part of the volume.
        let mib = |units: u64| (units * 4096).div_ceil(MIB);
        assert_eq!((mib(full.total), mib(full.caller_available)), (total, available));
        assert_eq!(mib(full.available), 64, "the volume has more");
        let size = Size::parse(&of_volume(c, file, volume::Class::Size).await).unwrap();
        assert_eq!((mib(size.total), mib(size.available)), (total, available));
        c.close(file).await;
    }
}
