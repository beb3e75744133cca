//! Read delegations, their recall over the backchannel, and what happens to those that are kept (RFC 8881 sections 10.4, 20.2).

use std::sync::atomic::Ordering;
use std::time::Duration;

use iobuf::Buf;
use nfsrdma::v4::status::Status;
use nfsrdma::v4::wire::{Stateid, op};
use nfsrdma::xdr::{Reader, Writer};
use rdma_transport::channel::{Command, Handle};
use tokio::sync::mpsc::Receiver;
use vfs::{Cred, SetAttr, VfsError};

use crate::client::{Client, Opened, R, RW, W, open_head, read_open, unchecked};
use crate::kit::Kit;

const REVOKED: u32 = 0x40;

/// A callback as the client sees it.
struct Callback {
    session: Vec<u8>,
    sequence: u32,
    slot: u32,
    stateid: Stateid,
    fh: Vec<u8>,
    answer: tokio::sync::oneshot::Sender<Result<Buf, rdma_transport::channel::ChannelError>>,
}

impl Callback {
    async fn next(asked: &mut Receiver<Command>) -> Self {
        let command = tokio::time::timeout(Duration::from_secs(5), asked.recv()).await;
        let Ok(Some(Command::Call { head, answer })) = command else { panic!("no callback") };
        let body = Buf::from(head);
        let mut r = Reader::new(&body, &[]);
        let head: Vec<u32> = (0..10).map(|_| r.u32().unwrap()).collect();
        assert_eq!(head[1..], [0, 2, 0x4000_0000, 1, 1, 0, 0, 0, 0], "CALL, AUTH_NONE");
        assert_eq!(r.opaque(8), Ok(&b""[..]));
        assert_eq!((r.u32(), r.u32(), r.u32()), (Ok(1), Ok(0), Ok(2)), "minor, ident, operations");
        assert_eq!(r.u32(), Ok(11), "CB_SEQUENCE");
        let session = r.fixed::<16>().unwrap().to_vec();
        let (sequence, slot) = (r.u32().unwrap(), r.u32().unwrap());
        assert_eq!((r.u32(), r.bool(), r.u32()), (Ok(3), Ok(false), Ok(0)));
        assert_eq!(r.u32(), Ok(4), "CB_RECALL");
        let stateid = Stateid::decode(&mut r).unwrap();
        assert_eq!(r.bool(), Ok(false));
        let fh = r.opaque(128).unwrap().to_vec();
        assert!(r.is_at_end());
        Self { session, sequence, slot, stateid, fh, answer }
    }

    fn reply(self, recall: Status) {
        let mut w = Writer::new();
        [0, 1, 0, 0, 0, 0, recall.to_u32(), 0, 2, 11, 0].iter().for_each(|v| w.u32(*v));
        w.fixed(&self.session);
        [self.sequence, self.slot, 3, 3, 4, recall.to_u32()].iter().for_each(|v| w.u32(*v));
        self.answer.send(Ok(Buf::from(w.into_reply().head))).unwrap();
    }
}

fn give_back(stateid: Stateid) -> impl FnOnce(&mut Writer) {
    move |w| stateid.encode(w)
}

/// A client with a delegation on the file `f`.
async fn holder<'k>(kit: &'k Kit) -> (Client<'k>, Receiver<Command>, Opened, Stateid) {
    let (_, _) = kit.with_file(b"f", b"content").await;
    let (handle, asked) = Handle::played();
    let c = Client::called_by(kit, b"holder", handle).await;
    let o = c.open(b"o", b"f", R).await.unwrap();
    let (1, Some(deleg)) = o.delegation else { panic!("no delegation: {:?}", o.delegation) };
    (c, asked, o, deleg)
}

#[tokio::test]
async fn a_reader_gets_one_and_reads_by_it() {
    let kit = Kit::new();
    let (c, _asked, o, deleg) = holder(&kit).await;
    assert_eq!(c.read(&o.fh, deleg).await, Status::Ok);
    assert_eq!(c.write(&o.fh, deleg, b"x").await, Status::OpenMode);
    assert_eq!(c.open(b"o", b"f", R).await.unwrap().delegation, (0, None), "once per client");
    let (handle, _other_asked) = Handle::played();
    let d = Client::called_by(&kit, b"other", handle).await;
    assert_eq!(d.open(b"o", b"f", R).await.unwrap().delegation.0, 1, "readers share");
    assert_eq!(d.open(b"o", b"g", RW).await.unwrap().delegation, (0, None), "not for writers");
    assert_eq!(d.open(b"p", b"g", R).await.unwrap().delegation, (0, None), "nor beside them");
    let unreachable = Client::new(&kit, b"deaf").await;
    assert_eq!(unreachable.open(b"o", b"f", R).await.unwrap().delegation, (0, None));
    assert_eq!(c.on(&o.fh, op::DELEGRETURN, give_back(deleg)).await.0, Status::Ok);
    assert_eq!(c.on(&o.fh, op::DELEGRETURN, give_back(deleg)).await.0, Status::BadStateId);
    let open = Stateid { seqid: 0, ..o.stateid };
    assert_eq!(c.on(&o.fh, op::DELEGRETURN, give_back(open)).await.0, Status::BadStateId);
}

#[tokio::test]
async fn wishes_are_answered() {
    let kit = Kit::new();
    let (_, _) = kit.with_file(b"f", b"content").await;
    let (handle, _asked) = Handle::played();
    let c = Client::called_by(&kit, b"x", handle).await;
    for (want, said) in [(0x400, 3), (0x500, 3), (0x100, 1)] {
        assert_eq!(c.open(b"o", b"f", (1 | want, 0)).await.unwrap().delegation.0, said);
    }
    assert_eq!(c.open(b"o", b"f", (1 | 0x100, 0)).await.unwrap().delegation.0, 3, "there is one");
}

#[tokio::test]
async fn a_writer_waits_for_the_recall() {
    let kit = Kit::new();
    let (c, mut asked, o, deleg) = holder(&kit).await;
    let d = Client::new(&kit, b"writer").await;
    let gives_back = async {
        let call = Callback::next(&mut asked).await;
        assert_eq!((&call.session, call.sequence, call.slot), (&c.session, 1, 0));
        assert_eq!((call.stateid, &call.fh), (deleg, &o.fh));
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
        let kit = Kit::new();
        let (c, mut asked, _, _) = holder(&kit).await;
        let ns = &kit.nfs.core.namespace;
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
        let mut into = kit.conn.read_into.clone();
        into.account = iobuf::Account::new();
        assert!(ns.read(&file, Some(&root), 0, 9, &into).await.is_ok(), "reading recalls nothing");
        drop(c);
    }
}

#[tokio::test]
async fn a_change_behind_the_back_of_the_server_recalls() {
    let kit = Kit::new();
    let (c, mut asked, o, deleg) = holder(&kit).await;
    kit.nfs.clients.tick().await;
    assert!(asked.try_recv().is_err(), "nothing has changed");
    let share = &kit.nfs.core.namespace.share_named(b"data").unwrap();
    let (file, _) = share.backend.root().lookup(&Cred::root(), b"f").await.unwrap();
    file.write(None, 0, vec![Buf::from(vec![1])], vfs::Stable::File).await.unwrap();
    kit.nfs.clients.tick().await;
    let call = Callback::next(&mut asked).await;
    assert_eq!(call.stateid, deleg);
    call.reply(Status::Ok);
    assert_eq!(c.on(&o.fh, op::DELEGRETURN, give_back(deleg)).await.0, Status::Ok);
    kit.nfs.clients.tick().await;
    assert!(asked.try_recv().is_err(), "once");
}

#[tokio::test]
async fn the_holder_itself_may_change_the_file() {
    let kit = Kit::new();
    let (c, mut asked, o, deleg) = holder(&kit).await;
    let w = c.open(b"o", b"f", W).await.unwrap();
    assert_eq!(c.write(&o.fh, w.stateid, b"own").await, Status::Ok);
    let r = c.run(|a| a.data().op(op::REMOVE, |w| w.opaque(b"f"))).await;
    assert_eq!(r.status, Status::Ok);
    assert_eq!(c.read(&o.fh, deleg).await, Status::Ok);
    assert!(asked.try_recv().is_err(), "nobody was called");
}

#[tokio::test]
async fn a_recall_that_the_client_does_not_understand_yet_is_repeated() {
    let kit = Kit::new();
    let (c, mut asked, o, deleg) = holder(&kit).await;
    let d = Client::new(&kit, b"writer").await;
    assert_eq!(d.open(b"o", b"f", W).await.unwrap_err(), Status::Delay);
    Callback::next(&mut asked).await.reply(Status::BadHandle);
    let second = Callback::next(&mut asked).await;
    assert_eq!(second.sequence, 2);
    second.reply(Status::Ok);
    assert_eq!(c.on(&o.fh, op::DELEGRETURN, give_back(deleg)).await.0, Status::Ok);
    d.open(b"o", b"f", W).await.unwrap();
}

#[tokio::test]
async fn a_delegation_that_is_not_given_back_is_revoked() {
    let kit = Kit::new();
    let (c, mut asked, o, deleg) = holder(&kit).await;
    let d = Client::new(&kit, b"writer").await;
    assert_eq!(d.open(b"o", b"f", W).await.unwrap_err(), Status::Delay);
    Callback::next(&mut asked).await.reply(Status::Ok);
    kit.at_ms(34_999);
    assert_eq!(d.open(b"o", b"f", W).await.unwrap_err(), Status::Delay);
    kit.at_ms(35_000);
    d.open(b"o", b"f", W).await.unwrap();
    assert_eq!(kit.nfs.clients.counters.revoked.load(Ordering::Relaxed), 1);
    assert_eq!(c.read(&o.fh, deleg).await, Status::DelegRevoked);
    assert_eq!(c.flags.get() & REVOKED, REVOKED);
    assert_eq!(c.on(&o.fh, op::DELEGRETURN, give_back(deleg)).await.0, Status::DelegRevoked);
    let test = |w: &mut Writer| {
        w.count(1);
        deleg.encode(w);
    };
    let mut r = c.run(|a| a.op(op::TEST_STATEID, test)).await;
    r.expect(op::TEST_STATEID, Status::Ok);
    assert_eq!((r.u32(), r.u32()), (1, Status::DelegRevoked.to_u32()));
    let r = c.run(|a| a.op(op::FREE_STATEID, |w| deleg.encode(w))).await;
    assert_eq!(r.status, Status::Ok);
    c.run(|a| a.root()).await;
    assert_eq!(c.flags.get() & REVOKED, 0);
}

#[tokio::test]
async fn opens_are_made_from_a_delegation() {
    let kit = Kit::new();
    let (c, _asked, o, deleg) = holder(&kit).await;
    let from = |claim: u32, stateid: Stateid, share: (u32, u32)| {
        move |w: &mut Writer| {
            open_head(w, 0, 0, b"local", share);
            w.u32(0);
            w.u32(claim);
            stateid.encode(w);
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
