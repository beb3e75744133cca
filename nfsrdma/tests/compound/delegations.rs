//! Delegations, their recall over the backchannel, and revocation (RFC 8881 sections 10.4, 20.1, 20.2).

use std::future::{Future, poll_fn};
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use iobuf::Buf;
use nfsrdma::v4::attrs::Bitmap;
use nfsrdma::v4::status::Status;
use nfsrdma::v4::wire::{Stateid, op};
use rdma_transport::channel::{Command, Handle};
use rdma_transport::xdr::{Reader, Writer};
use tokio::sync::mpsc::Receiver;
use vfs::WriteBy;
use vfs::{Cred, SetAttr, VfsError};

use crate::client::{Client, Opened, R, RW, W, open_head, read_open, unchecked};
use crate::harness::{Args, Harness};

const REVOKED: u32 = 0x40;
const CB_GETATTR: u32 = 3;
const CB_RECALL: u32 = 4;
const CB_SEQUENCE: u32 = 11;

/// The callback operation.
#[derive(Debug, PartialEq, Eq)]
pub enum Ask {
    Recall(Stateid),
    Attributes(Vec<u32>),
    /// Only CB_SEQUENCE.
    Nothing,
}

/// A callback as the client receives it.
pub struct Callback {
    session: Vec<u8>,
    sequence: u32,
    slot: u32,
    pub ask: Ask,
    pub fh: Vec<u8>,
    answer: tokio::sync::oneshot::Sender<Result<Buf, rdma_transport::channel::ChannelError>>,
}

impl Callback {
    pub async fn next(asked: &mut Receiver<Command>) -> Self {
        let command = tokio::time::timeout(Duration::from_secs(60), asked.recv()).await;
        let Ok(Some(Command::Call { head, answer })) = command else { panic!("no callback") };
        let body = Buf::from(head);
        let mut r = Reader::new(&body, &[]);
        let head: Vec<u32> = (0..10).map(|_| r.u32().unwrap()).collect();
        assert_eq!(head[1..], [0, 2, 0x4000_0000, 1, 1, 0, 0, 0, 0], "CALL, AUTH_NONE");
        assert_eq!(r.opaque(8), Ok(&b""[..]));
        let minor = r.u32().unwrap();
        assert!(minor == 1 || minor == 2);
        assert_eq!(r.u32(), Ok(0), "ident");
        let operations = r.u32().unwrap();
        assert_eq!(r.u32(), Ok(CB_SEQUENCE));
        let session = r.fixed::<16>().unwrap().to_vec();
        let (sequence, slot) = (r.u32().unwrap(), r.u32().unwrap());
        assert_eq!((r.u32(), r.bool(), r.u32()), (Ok(3), Ok(false), Ok(0)));
        let last = if operations == 1 { CB_SEQUENCE } else { r.u32().unwrap() };
        let (ask, fh) = match last {
            CB_SEQUENCE => (Ask::Nothing, Vec::new()),
            CB_RECALL => {
                let stateid = r.value::<Stateid>().unwrap();
                assert_eq!(r.bool(), Ok(false));
                (Ask::Recall(stateid), r.opaque(128).unwrap().to_vec())
            }
            CB_GETATTR => {
                let fh = r.opaque(128).unwrap().to_vec();
                let words = r.count(8).unwrap();
                (Ask::Attributes((0..words).map(|_| r.u32().unwrap()).collect()), fh)
            }
            other => panic!("operation {other}"),
        };
        assert!(r.is_at_end() && operations <= 2);
        Self { session, sequence, slot, ask, fh, answer }
    }

    pub fn stateid(&self) -> Stateid {
        let Ask::Recall(stateid) = self.ask else { panic!("not a recall: {:?}", self.ask) };
        stateid
    }

    pub fn reply(self, status: Status) {
        self.answer_with(status, |_| ());
    }

    /// Answers with size and change attribute of the client's cache.
    fn says(self, change: u64, size: u64) {
        assert_eq!(self.ask, Ask::Attributes(vec![0b1_1000]), "change and size");
        self.answer_with(Status::Ok, |w| {
            [1, 0b1_1000, 16].iter().for_each(|v| w.u32(*v));
            w.u64(change);
            w.u64(size);
        });
    }

    pub fn answer_with(self, status: Status, result: impl FnOnce(&mut Writer)) {
        let op = match self.ask {
            Ask::Recall(_) => Some(CB_RECALL),
            Ask::Attributes(_) => Some(CB_GETATTR),
            Ask::Nothing => None,
        };
        let (count, status) = (1 + u32::from(op.is_some()), status.to_u32());
        let mut w = Writer::new();
        [0, 1, 0, 0, 0, 0, status, 0, count, CB_SEQUENCE, 0].iter().for_each(|v| w.u32(*v));
        w.fixed(&self.session);
        [self.sequence, self.slot, 3, 3].iter().for_each(|v| w.u32(*v));
        if let Some(op) = op {
            [op, status].iter().for_each(|v| w.u32(*v));
            result(&mut w);
        }
        self.answer.send(Ok(Buf::from(w.into_reply().head))).unwrap();
    }
}

pub fn give_back(stateid: Stateid) -> impl FnOnce(&mut Writer) {
    move |w| w.value(&stateid)
}

/// A client with a delegation on the file `f`.
async fn holder<'k>(harness: &'k Harness) -> (Client<'k>, Receiver<Command>, Opened, Stateid) {
    let (_, _) = harness.with_file(b"f", b"content").await;
    let (handle, asked) = Handle::played();
    let c = Client::called_by(harness, b"holder", handle).await;
    let o = c.open(b"o", b"f", R).await.unwrap();
    let (1, Some(deleg)) = o.delegation else { panic!("no delegation: {:?}", o.delegation) };
    (c, asked, o, deleg)
}

/// A request may take longer than a lease, and the client need not send anything while it waits for the reply.
#[tokio::test]
async fn waiting_client_keeps_its_lease() {
    let harness = Harness::new();
    let (_holder, _asked, ..) = holder(&harness).await;
    let c = Client::new(&harness, b"waits").await;
    let write = |a: Args| a.root().lookup(b"data").lookup(b"f").write(0, 2, b"new");
    let mut waiting = Box::pin(c.send(0, 2, false, write));
    let first = poll_fn(|cx| Poll::Ready(waiting.as_mut().poll(cx))).await;
    assert!(first.is_pending(), "the delegation is to come back first");
    harness.at_ms(3_600_000);
    // The next client to arrive causes silent clients without state to be removed.
    Client::new(&harness, b"another").await;
    waiting.await;
    let r = c.send(0, 3, false, |a| a.root()).await;
    assert_eq!(r.status, Status::Ok, "its lease begins when it is answered");
}

#[tokio::test]
async fn reader_gets_and_uses_delegation() {
    let harness = Harness::new();
    let (c, _asked, o, deleg) = holder(&harness).await;
    assert_eq!(c.read(&o.fh, deleg).await, Status::Ok);
    assert_eq!(c.write(&o.fh, deleg, b"x").await, Status::OpenMode);
    assert_eq!(c.open(b"o", b"f", R).await.unwrap().delegation, (0, None), "once per client");
    let (handle, _other_asked) = Handle::played();
    let d = Client::called_by(&harness, b"other", handle).await;
    assert_eq!(d.open(b"o", b"f", R).await.unwrap().delegation.0, 1, "readers share");
    assert_eq!(d.open(b"o", b"g", W).await.unwrap().delegation, (0, None), "who only writes");
    assert_eq!(d.open(b"p", b"g", R).await.unwrap().delegation, (0, None), "nor beside them");
    let unreachable = Client::new(&harness, b"deaf").await;
    assert_eq!(unreachable.open(b"o", b"f", R).await.unwrap().delegation, (0, None));
    assert_eq!(c.on(&o.fh, op::DELEGRETURN, give_back(deleg)).await.0, Status::Ok);
    assert_eq!(c.on(&o.fh, op::DELEGRETURN, give_back(deleg)).await.0, Status::BadStateId);
    let open = Stateid { seqid: 0, ..o.stateid };
    assert_eq!(c.on(&o.fh, op::DELEGRETURN, give_back(open)).await.0, Status::BadStateId);
}

#[tokio::test]
async fn wishes_are_answered() {
    let harness = Harness::new();
    let (_, _) = harness.with_file(b"f", b"content").await;
    let (handle, _asked) = Handle::played();
    let c = Client::called_by(&harness, b"x", handle).await;
    for (want, said) in [(0x400, 3), (0x500, 3), (0x100, 1)] {
        assert_eq!(c.open(b"o", b"f", (1 | want, 0)).await.unwrap().delegation.0, said);
    }
    assert_eq!(c.open(b"o", b"f", (1 | 0x100, 0)).await.unwrap().delegation.0, 3, "there is one");
}

#[tokio::test]
async fn writer_waits_for_recall() {
    let harness = Harness::new();
    let (c, mut asked, o, deleg) = holder(&harness).await;
    let d = Client::new(&harness, b"writer").await;
    let gives_back = async {
        let call = Callback::next(&mut asked).await;
        assert_eq!((&call.session, call.sequence, call.slot), (&c.session, 1, 0));
        assert_eq!((call.stateid(), &call.fh), (deleg, &o.fh));
        call.reply(Status::Ok);
        assert_eq!(c.on(&o.fh, op::DELEGRETURN, give_back(deleg)).await.0, Status::Ok);
    };
    let (opened, ()) = tokio::join!(d.open(b"o", b"f", W), gives_back);
    let w = opened.expect("within the short wait");
    assert_eq!(d.write(&w.fh, w.stateid, b"new").await, Status::Ok);
    assert_eq!(d.close(&w).await, Status::Ok);
    let again = c.open(b"p", b"f", R).await.unwrap();
    assert_eq!(again.delegation, (0, None), "not again so soon");
}

#[tokio::test]
async fn every_change_by_others_recalls() {
    let root = Cred::root();
    let change_mode = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    for change in 0..6 {
        let harness = Harness::new();
        let (c, mut asked, _, _) = holder(&harness).await;
        let ns = &harness.nfs.core.namespace;
        let share = &ns.share_named(b"data").unwrap();
        let dir = share.backend.root();
        let (file, _) = dir.lookup(&root, b"f").await.unwrap();
        let done = match change {
            0 => {
                let data = vec![Buf::from(vec![1])];
                ns.write(share, &file, Some(&root), 0, data, vfs::Stable::File).await.map(drop)
            }
            1 => ns.setattr(share, &file, &root, change_mode, false).await.map(drop),
            2 => ns.unlink(share, &dir, &root, b"f").await.map(drop),
            3 => ns.rename(share, &dir, &root, b"f", &dir, b"g").await.map(drop),
            4 => ns.link(share, &file, &root, &dir, b"g").await.map(drop),
            _ => {
                let set = SetAttr { size: Some(0), ..SetAttr::default() };
                let how = vfs::CreateHow::Unchecked;
                ns.create(share, &dir, &root, b"f", how, set).await.map(drop)
            }
        };
        assert_eq!(done, Err(VfsError::Delay), "change {change}");
        Callback::next(&mut asked).await.reply(Status::Ok);
        let mut into = harness.conn.read_into.clone();
        into.account = iobuf::Account::new();
        assert!(ns.read(&file, Some(&root), 0, 9, &into).await.is_ok(), "reading recalls nothing");
        drop(c);
    }
}

#[tokio::test]
async fn foreign_change_recalls_file_delegation() {
    let harness = Harness::new();
    let (c, mut asked, o, deleg) = holder(&harness).await;
    harness.nfs.clients.tick().await;
    assert!(asked.try_recv().is_err(), "nothing has changed");
    let share = &harness.nfs.core.namespace.share_named(b"data").unwrap();
    let (file, _) = share.backend.root().lookup(&Cred::root(), b"f").await.unwrap();
    file.write(WriteBy::Open(None), 0, vec![Buf::from(vec![1])], vfs::Stable::File).await.unwrap();
    harness.nfs.clients.tick().await;
    let call = Callback::next(&mut asked).await;
    assert_eq!(call.stateid(), deleg);
    call.reply(Status::Ok);
    assert_eq!(c.on(&o.fh, op::DELEGRETURN, give_back(deleg)).await.0, Status::Ok);
    harness.nfs.clients.tick().await;
    assert!(asked.try_recv().is_err(), "once");
}

#[tokio::test]
async fn holder_may_change_file() {
    let harness = Harness::new();
    let (c, mut asked, o, deleg) = holder(&harness).await;
    let w = c.open(b"o", b"f", W).await.unwrap();
    assert_eq!(c.write(&o.fh, w.stateid, b"own").await, Status::Ok);
    let r = c.run(|a| a.data().op(op::REMOVE, |w| w.opaque(b"f"))).await;
    assert_eq!(r.status, Status::Ok);
    assert_eq!(c.read(&o.fh, deleg).await, Status::Ok);
    assert!(asked.try_recv().is_err(), "nobody was called");
}

#[tokio::test]
async fn unknown_recall_is_repeated() {
    let harness = Harness::new();
    let (c, mut asked, o, deleg) = holder(&harness).await;
    let d = Client::new(&harness, b"writer").await;
    assert_eq!(d.open(b"o", b"f", W).await.unwrap_err(), Status::Delay);
    Callback::next(&mut asked).await.reply(Status::BadHandle);
    let second = Callback::next(&mut asked).await;
    assert_eq!(second.sequence, 2);
    second.reply(Status::Ok);
    assert_eq!(c.on(&o.fh, op::DELEGRETURN, give_back(deleg)).await.0, Status::Ok);
    d.open(b"o", b"f", W).await.unwrap();
}

#[tokio::test]
async fn unreturned_delegation_is_revoked() {
    let harness = Harness::new();
    let (c, mut asked, o, deleg) = holder(&harness).await;
    let d = Client::new(&harness, b"writer").await;
    assert_eq!(d.open(b"o", b"f", W).await.unwrap_err(), Status::Delay);
    Callback::next(&mut asked).await.reply(Status::Ok);
    harness.at_ms(34_999);
    assert_eq!(d.open(b"o", b"f", W).await.unwrap_err(), Status::Delay);
    harness.at_ms(35_000);
    d.open(b"o", b"f", W).await.unwrap();
    assert_eq!(harness.nfs.clients.counters.revoked.load(Ordering::Relaxed), 1);
    assert_eq!(c.read(&o.fh, deleg).await, Status::DelegRevoked);
    assert_eq!(c.flags.get() & REVOKED, REVOKED);
    assert_eq!(c.on(&o.fh, op::DELEGRETURN, give_back(deleg)).await.0, Status::DelegRevoked);
    let test = |w: &mut Writer| {
        w.count(1);
        w.value(&deleg);
    };
    let mut r = c.run(|a| a.op(op::TEST_STATEID, test)).await;
    r.expect(op::TEST_STATEID, Status::Ok);
    assert_eq!((r.u32(), r.u32()), (1, Status::DelegRevoked.to_u32()));
    let r = c.run(|a| a.op(op::FREE_STATEID, |w| w.value(&deleg))).await;
    assert_eq!(r.status, Status::Ok);
    c.run(|a| a.root()).await;
    assert_eq!(c.flags.get() & REVOKED, 0);
}

/// The long time of a recall is for a client that answers: a silent one costs others that time once, not for each of its files.
#[tokio::test]
async fn unreturned_delegation_leaves_short_time_for_others() {
    let harness = Harness::new();
    let (c, mut asked, ..) = holder(&harness).await;
    for name in [b"g", b"h"] {
        assert_eq!(c.open(b"o", name, RW).await.unwrap().delegation.0, 2);
    }
    let d = Client::new(&harness, b"writer").await;
    let recall = async |asked: &mut Receiver<Command>, name, at: u64| {
        assert_eq!(d.open(b"o", name, W).await.unwrap_err(), Status::Delay);
        Callback::next(asked).await.reply(Status::Ok);
        harness.at_ms(at - 1);
        assert_eq!(d.open(b"o", name, W).await.unwrap_err(), Status::Delay);
        harness.at_ms(at);
        d.open(b"o", name, W).await.unwrap();
    };
    recall(&mut asked, b"f", 35_000).await;
    // Its requests show that it lives, but not that it returns delegations.
    c.run(|a| a.root()).await;
    assert_eq!(c.flags.get(), REVOKED, "callbacks reach it");
    recall(&mut asked, b"g", 37_187).await;
    recall(&mut asked, b"h", 39_374).await;
    assert_eq!(harness.nfs.clients.counters.revoked.load(Ordering::Relaxed), 3);
}

/// A client that did not return one delegation, and is back, keeps its others while it writes back what it has cached.
#[tokio::test(start_paused = true)]
async fn client_that_writes_back_after_a_miss_keeps_delegation() {
    let harness = Harness::new();
    let (c, mut asked, ..) = holder(&harness).await;
    let o = c.open(b"o", b"g", RW).await.unwrap();
    let (2, Some(deleg)) = o.delegation else { panic!("{:?}", o.delegation) };
    let d = Client::new(&harness, b"other").await;
    let opens = async |name, at| {
        harness.at_ms(at);
        // The task that waits for the delegation looks at the clock.
        tokio::time::sleep(Duration::from_secs(1)).await;
        d.open(b"o", name, R).await.map(drop)
    };
    assert_eq!(d.open(b"o", b"f", W).await.unwrap_err(), Status::Delay);
    Callback::next(&mut asked).await.reply(Status::Ok);
    assert_eq!(opens(b"f", 35_000).await, Ok(()));
    assert_eq!(opens(b"g", 35_000).await, Err(Status::Delay));
    Callback::next(&mut asked).await.reply(Status::Ok);
    // The short time would end at 37 187.
    for at in [37_000, 43_000, 69_999] {
        assert_eq!(opens(b"g", at).await, Err(Status::Delay), "{at}");
        assert_eq!(c.write(&o.fh, deleg, b"cached").await, Status::Ok, "{at}");
    }
    assert_eq!(opens(b"g", 70_000).await, Ok(()));
    assert_eq!(c.write(&o.fh, deleg, b"late").await, Status::DelegRevoked);
}

/// A client gets no delegation after one was revoked, until it answers callbacks again. It is asked when it opens a file.
#[tokio::test]
async fn silent_client_gets_no_delegation_until_it_answers() {
    let harness = Harness::new();
    let (c, mut asked, ..) = holder(&harness).await;
    let (handle, mut other_asked) = Handle::played();
    let other = Client::called_by(&harness, b"neighbor", handle).await;
    let d = Client::new(&harness, b"writer").await;
    assert_eq!(d.open(b"o", b"f", W).await.unwrap_err(), Status::Delay);
    Callback::next(&mut asked).await.reply(Status::Ok);
    harness.at_ms(35_000);
    d.open(b"o", b"f", W).await.unwrap();
    let tries =
        async |c: &Client<'_>, name: &[u8]| c.open(b"o", name, RW).await.unwrap().delegation.0;
    assert_eq!(tries(&c, b"g").await, 0);
    let probe = Callback::next(&mut asked).await;
    assert_eq!(probe.ask, Ask::Nothing);
    probe.reply(Status::Ok);
    // The other has the same address and never answered a recall.
    assert_eq!(tries(&other, b"h").await, 0);
    Callback::next(&mut other_asked).await.reply(Status::Ok);
    harness.at_ms(44_999);
    assert_eq!(tries(&c, b"i").await, 0, "it answered too soon");
    assert!(asked.try_recv().is_err(), "it is not asked again so soon");
    harness.at_ms(70_000);
    assert_eq!(tries(&c, b"j").await, 0);
    Callback::next(&mut asked).await.reply(Status::Ok);
    // The answer passes through tasks of the server.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(tries(&c, b"k").await, 2);
    assert_eq!(tries(&other, b"l").await, 2);
}

/// A client whose callbacks a firewall drops renews its lease all the time, and learns of both by the flags of SEQUENCE. It loses
/// no data that a WRITE has acknowledged, and its opens go on.
#[tokio::test(start_paused = true)]
async fn unanswered_recall_shows_in_flags_of_sequence() {
    const PATH_DOWN: u32 = 1 | 0x200;
    let harness = Harness::new();
    let (c, _asked, o, deleg, _) = writer(&harness).await;
    assert_eq!(c.write(&o.fh, deleg, b"acknowledged").await, Status::Ok);
    let d = Client::new(&harness, b"reader").await;
    assert_eq!(d.open(b"o", b"f", R).await.unwrap_err(), Status::Delay);
    c.run(|a| a.root()).await;
    assert_eq!(c.flags.get(), 0);
    tokio::time::sleep(Duration::from_secs(11)).await;
    c.run(|a| a.root()).await;
    assert_eq!(c.flags.get(), PATH_DOWN);
    harness.at_ms(35_000);
    let seen = d.open(b"o", b"f", R).await.unwrap();
    assert_eq!(look(&d, &seen.fh).await.unwrap().1, 12);
    c.run(|a| a.root()).await;
    assert_eq!(c.flags.get(), PATH_DOWN | REVOKED);
    assert_eq!(c.write(&o.fh, deleg, b"x").await, Status::DelegRevoked);
    assert_eq!(c.write(&o.fh, o.stateid, b"through the open").await, Status::Ok);
}

#[tokio::test]
async fn opens_are_made_from_a_delegation() {
    let harness = Harness::new();
    let (c, _asked, o, deleg) = holder(&harness).await;
    let from = |claim: u32, stateid: Stateid, share: (u32, u32)| {
        move |w: &mut Writer| {
            open_head(w, 0, 0, b"local", share);
            w.u32(0);
            w.u32(claim);
            w.value(&stateid);
            if claim == 2 {
                w.opaque(b"f");
            }
        }
    };
    assert_eq!(c.on(&o.fh, op::OPEN, from(5, deleg, R)).await.0, Status::Ok);
    assert_eq!(c.on(&o.fh, op::OPEN, from(5, deleg, W)).await.0, Status::OpenMode);
    assert_eq!(c.on(&o.fh, op::OPEN, from(5, o.stateid, R)).await.0, Status::BadStateId);
    let mut r = c.run(|a| a.data().op(op::OPEN, from(2, deleg, R))).await;
    r.ok(&[op::PUTROOTFH, op::LOOKUP]);
    assert_eq!(read_open(&mut r).delegation, (0, None));
    let old = |w: &mut Writer| {
        open_head(w, 0, 0, b"local", R);
        w.u32(0);
        w.u32(3);
        w.opaque(b"f");
    };
    let r = c.run(|a| a.data().op(op::OPEN, old)).await;
    assert_eq!(r.status, Status::NotSupp);
    let r = c.run(|a| a.op(op::DELEGPURGE, |w| w.u64(0))).await;
    assert_eq!(r.status, Status::NotSupp);
    let truncating = unchecked(0, b"o", b"f", W, &[0]);
    assert_eq!(c.run(|a| a.data().op(op::OPEN, truncating)).await.status, Status::Ok);
}

/// A client with a write delegation on the file `f`, and the file's change attribute.
async fn writer<'k>(harness: &'k Harness) -> (Client<'k>, Receiver<Command>, Opened, Stateid, u64) {
    let (_, _) = harness.with_file(b"f", b"content").await;
    let (handle, asked) = Handle::played();
    let c = Client::called_by(harness, b"holder", handle).await;
    let o = c.open(b"o", b"f", RW).await.unwrap();
    let (2, Some(deleg)) = o.delegation else { panic!("no delegation: {:?}", o.delegation) };
    let (change, _) = look(&c, &o.fh).await.unwrap();
    (c, asked, o, deleg, change)
}

/// Change attribute and size by GETATTR.
async fn look(c: &Client<'_>, fh: &[u8]) -> Result<(u64, u64), Status> {
    let (status, mut r) = c.on(fh, op::GETATTR, |w| w.value(&Bitmap::of(&[3, 4]))).await;
    if status != Status::Ok {
        return Err(status);
    }
    assert_eq!((r.bitmap(), r.u32()), (vec![3, 4], 16));
    Ok((r.u64(), r.u64()))
}

#[tokio::test]
async fn writer_gets_and_uses_delegation() {
    let harness = Harness::new();
    let (c, mut asked, o, deleg, _) = writer(&harness).await;
    assert_eq!(c.write(&o.fh, deleg, b"new").await, Status::Ok);
    assert_eq!(c.read(&o.fh, deleg).await, Status::Ok);
    assert_eq!(c.open(b"o", b"f", R).await.unwrap().delegation, (0, None), "it has one");
    assert_eq!(c.open(b"o", b"f", RW).await.unwrap().delegation, (0, None), "it has one");
    harness.nfs.clients.tick().await;
    assert!(asked.try_recv().is_err(), "its own changes are no changes behind its back");
    assert_eq!(c.on(&o.fh, op::DELEGRETURN, give_back(deleg)).await.0, Status::Ok);
    assert_eq!(c.write(&o.fh, deleg, b"x").await, Status::BadStateId);
}

#[tokio::test]
async fn writer_among_others_gets_no_delegation() {
    let harness = Harness::new();
    let (_, _) = harness.with_file(b"f", b"content").await;
    let other = Client::new(&harness, b"other").await;
    let o = other.open(b"o", b"f", R).await.unwrap();
    let (handle, _asked) = Handle::played();
    let c = Client::called_by(&harness, b"writer", handle).await;
    assert_eq!(c.open(b"o", b"f", RW).await.unwrap().delegation, (0, None), "another reads");
    assert_eq!(other.close(&o).await, Status::Ok);
    assert_eq!(c.open(b"p", b"f", RW).await.unwrap().delegation.0, 2);
    let denies = c.open(b"o", b"g", (3, 2)).await.unwrap();
    assert_eq!(denies.delegation, (0, None), "a share mode is the server's to keep");
    assert_eq!(c.open(b"o", b"h", (0x503, 0)).await.unwrap().delegation.0, 3, "unwanted");
    assert_eq!(c.open(b"o", b"i", (0x103, 0)).await.unwrap().delegation.0, 3, "of another sort");
    assert_eq!(c.open(b"o", b"j", (0x203, 0)).await.unwrap().delegation.0, 2, "wanted");
    let kept = harness.nfs.core.namespace.arbiter().state().grants();
    assert_eq!(kept, 2, "f and j");
}

/// Other clients wait for the delegation, and its client returns it after its writes.
#[tokio::test(start_paused = true)]
async fn writes_under_recalled_delegation_wait_for_no_rate() {
    let harness = Harness::new();
    let (c, mut asked, o, deleg, _) = writer(&harness).await;
    let other = Client::new(&harness, b"other").await;
    let limits = &harness.nfs.core.namespace.limits;
    let mut plan = rates::Plan::default();
    plan.all.write = Some(1);
    limits.set(plan, rates::Most::of_memory(1 << 30));
    assert_eq!(c.write(&o.fh, deleg, b"0123456789").await, Status::Ok);
    let began = tokio::time::Instant::now();
    let writes = async {
        assert_eq!(c.write(&o.fh, deleg, b"new").await, Status::Ok);
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
        assert_eq!(c.write(&o.fh, deleg, b"newer").await, Status::Ok);
        let returned = c.on(&o.fh, op::DELEGRETURN, give_back(deleg)).await.0;
        assert_eq!(returned, Status::Ok);
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    };
    let opens = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(limits.counts().0, 1, "the second write waits");
        let opened = other.open(b"o", b"f", R).await.map(drop);
        assert!(matches!(opened, Ok(()) | Err(Status::Delay)), "{opened:?}");
    };
    let recalls = async { Callback::next(&mut asked).await.reply(Status::Ok) };
    tokio::join!(writes, opens, recalls);
    assert_eq!(limits.read()[0].passed, 18, "they count");
}

#[tokio::test]
async fn read_delegation_is_upgraded_for_writer() {
    let harness = Harness::new();
    let (c, _asked, o, deleg) = holder(&harness).await;
    let wide = c.open(b"o", b"f", RW).await.unwrap().delegation;
    assert_eq!(wide, (2, Some(Stateid { seqid: 2, ..deleg })));
    assert_eq!(c.write(&o.fh, wide.1.unwrap(), b"new").await, Status::Ok);
    assert_eq!(c.write(&o.fh, deleg, b"new").await, Status::OldStateId);
}

fn lockt(w: &mut Writer) {
    w.u32(1);
    w.u64(0);
    w.u64(1);
    w.u64(0);
    w.opaque(b"locker");
}

#[tokio::test]
async fn foreign_access_recalls_write_delegation() {
    let root = Cred::root();
    for access in 0..5 {
        let harness = Harness::new();
        let (c, mut asked, o, deleg, _) = writer(&harness).await;
        let ns = &harness.nfs.core.namespace;
        let share = &ns.share_named(b"data").unwrap();
        let (file, _) = share.backend.root().lookup(&root, b"f").await.unwrap();
        let mut into = harness.conn.read_into.clone();
        into.account = iobuf::Account::new();
        let other = Client::new(&harness, b"other").await;
        let come = async {
            match access {
                0 => other.open(b"o", b"f", R).await.map(drop),
                1 => ns.read(&file, Some(&root), 0, 9, &into).await.map(drop).map_err(Status::from),
                2 => {
                    let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
                    ns.setattr(share, &file, &root, set, false)
                        .await
                        .map(drop)
                        .map_err(Status::from)
                }
                3 => match other.on(&o.fh, op::LOCKT, lockt).await.0 {
                    Status::Ok => Ok(()),
                    refused => Err(refused),
                },
                _ => match other.read(&o.fh, Stateid::ANONYMOUS).await {
                    Status::Ok => Ok(()),
                    refused => Err(refused),
                },
            }
        };
        let gives_back = async {
            let call = Callback::next(&mut asked).await;
            assert_eq!((call.stateid(), &call.fh), (deleg, &o.fh));
            call.reply(Status::Ok);
            assert_eq!(c.write(&o.fh, deleg, b"kept back").await, Status::Ok, "it flushes first");
            assert_eq!(c.on(&o.fh, op::DELEGRETURN, give_back(deleg)).await.0, Status::Ok);
        };
        let (came, ()) = tokio::join!(come, gives_back);
        assert_eq!(came, Ok(()), "access {access}");
    }
}

#[tokio::test]
async fn other_clients_see_holder_attributes() {
    let harness = Harness::new();
    let (c, mut asked, o, _, given) = writer(&harness).await;
    let other = Client::new(&harness, b"other").await;
    let (clean, ()) = tokio::join!(look(&other, &o.fh), async {
        let call = Callback::next(&mut asked).await;
        assert_eq!(call.fh, o.fh);
        call.says(given, 7);
    });
    assert_eq!(clean, Ok((given, 7)), "nothing is kept back");
    let mut last = given;
    for size in [20, 20, 30] {
        let (dirty, ()) = tokio::join!(look(&other, &o.fh), async {
            Callback::next(&mut asked).await.says(given + 1, size);
        });
        let (change, seen) = dirty.unwrap();
        assert_eq!(seen, size);
        assert!(change > last, "each look sees a change: {change} after {last}");
        last = change;
    }
    assert_eq!(look(&c, &o.fh).await.unwrap().1, 7, "the holder knows by itself");
    assert!(asked.try_recv().is_err());
    let modes = other.on(&o.fh, op::GETATTR, |w| w.value(&Bitmap::of(&[33]))).await.0;
    assert_eq!(modes, Status::Ok);
    assert!(asked.try_recv().is_err(), "a mode is kept back by nobody");
}

#[tokio::test]
async fn failed_getattr_callback_recalls_delegation() {
    let harness = Harness::new();
    let (c, mut asked, o, deleg, _) = writer(&harness).await;
    let other = Client::new(&harness, b"other").await;
    let (seen, ()) = tokio::join!(look(&other, &o.fh), async {
        Callback::next(&mut asked).await.reply(Status::BadHandle);
        let call = Callback::next(&mut asked).await;
        assert_eq!(call.stateid(), deleg);
        call.reply(Status::Ok);
        assert_eq!(c.on(&o.fh, op::DELEGRETURN, give_back(deleg)).await.0, Status::Ok);
    });
    assert_eq!(seen.unwrap().1, 7);
}

#[tokio::test]
async fn write_delegation_allows_local_opens() {
    let harness = Harness::new();
    let (c, _asked, o, deleg, _) = writer(&harness).await;
    let from = |share: (u32, u32)| {
        move |w: &mut Writer| {
            open_head(w, 0, 0, b"local", share);
            w.u32(0);
            w.u32(5);
            w.value(&deleg);
        }
    };
    for share in [R, W, RW] {
        assert_eq!(c.on(&o.fh, op::OPEN, from(share)).await.0, Status::Ok);
    }
}
