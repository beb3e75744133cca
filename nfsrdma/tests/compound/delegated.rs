//! Delegations as extended by RFC 9754: in place of an open, and covering the file's times.

use nfsrdma::v4::attrs::Bitmap;
use nfsrdma::v4::status::Status;
use nfsrdma::v4::wire::{Stateid, attr, op};
use rdma_transport::channel::{Command, Handle};
use rdma_transport::xdr::Writer;
use tokio::sync::mpsc::Receiver;
use vfs::Time;

use crate::client::{Client, Opened, R, RW, W, open_head};
use crate::delegations::{Ask, Callback, give_back};
use crate::harness::{Harness, fattr};

const TIMES: u32 = 0x0010_0000;
const XOR: u32 = 0x0020_0000;
const NO_OPEN_STATEID: u32 = 0x10;
const WRITE_ATTRS: u32 = 5;

async fn client<'k>(harness: &'k Harness, name: &[u8]) -> (Client<'k>, Receiver<Command>) {
    let (handle, asked) = Handle::played();
    (Client::of_minor_2(harness, name, handle).await, asked)
}

/// Number of opens that clients have on files of the share.
async fn opens(harness: &Harness, name: &[u8]) -> usize {
    let ns = &harness.nfs.core.namespace;
    let root = ns.share_named(b"data").unwrap().backend.root();
    let (node, _) = root.lookup(&vfs::Cred::root(), name).await.unwrap();
    ns.arbiter().state().opens(node.id(), None)
}

/// CLAIM_DELEG_CUR_FH
fn from(deleg: Stateid, share: (u32, u32)) -> impl FnOnce(&mut Writer) {
    move |w| {
        open_head(w, 0, 0, b"local", share);
        w.u32(0);
        w.u32(5);
        w.value(&deleg);
    }
}

#[tokio::test]
async fn delegation_replaces_open_on_request() {
    let harness = Harness::new();
    let (_, _) = harness.with_file(b"f", b"content").await;
    let (c, _asked) = client(&harness, b"holder").await;
    for (access, kind, name) in [(R.0, 1, b"f"), (RW.0, 2, b"g")] {
        let o = c.open(b"o", name, (access | XOR, 0)).await.unwrap();
        let (given, Some(deleg)) = o.delegation else { panic!("{:?}", o.delegation) };
        assert_eq!((given, o.stateid), (kind, Stateid::ANONYMOUS));
        assert_eq!(o.rflags & NO_OPEN_STATEID, NO_OPEN_STATEID);
        assert_eq!(opens(&harness, name).await, 0);
        assert_eq!(c.read(&o.fh, deleg).await, Status::Ok);
        let more = c.open(b"o", name, (access | XOR, 0)).await.unwrap();
        assert_eq!((more.delegation, more.rflags & NO_OPEN_STATEID), ((0, None), 0), "it has one");
        assert_eq!((opens(&harness, name).await, c.close(&more).await), (1, Status::Ok));
    }
    let denies = c.open(b"o", b"h", (RW.0 | XOR, 2)).await.unwrap();
    assert_eq!((denies.rflags & NO_OPEN_STATEID, denies.delegation), (0, (0, None)));
    let first = c.open(b"o", b"i", (W.0 | XOR, 0)).await.unwrap();
    assert_eq!(first.rflags & NO_OPEN_STATEID, 0, "no delegation");
    let second = c.open(b"o", b"i", (RW.0 | XOR, 0)).await.unwrap();
    assert_eq!(second.delegation.0, 2);
    assert_eq!(second.rflags & NO_OPEN_STATEID, 0, "more than this OPEN came to that open");
    assert_eq!(opens(&harness, b"i").await, 1);
}

/// A write clears the set-id bits, which other clients would see until the data is written back (Linux' server grants no delegation
/// either).
#[tokio::test]
async fn set_id_file_gets_no_delegation() {
    let harness = Harness::new();
    let (c, _asked) = client(&harness, b"holder").await;
    let root = harness.nfs.core.namespace.share_named(b"data").unwrap().backend.root();
    for (n, (mode, wanted)) in
        [(0o755, 2), (0o4755, 0), (0o2755, 0), (0o6755, 0), (0o1755, 2)].into_iter().enumerate()
    {
        let name = format!("f{n}");
        let (_, _) = harness.with_file(name.as_bytes(), b"content").await;
        let (node, _) = root.lookup(&vfs::Cred::root(), name.as_bytes()).await.unwrap();
        let set = vfs::SetAttr { mode: Some(mode), ..Default::default() };
        node.setattr(&vfs::Cred::root(), set, false).await.unwrap();
        let o = c.open(b"o", name.as_bytes(), (RW.0 | TIMES, 0)).await.unwrap();
        let wanted = if wanted == 2 { WRITE_ATTRS } else { 0 };
        assert_eq!(o.delegation.0, wanted, "{mode:o}");
    }
}

#[tokio::test]
async fn wants_need_minor_version_2() {
    let harness = Harness::new();
    let (handle, _asked) = Handle::played();
    let c = Client::called_by(&harness, b"older", handle).await;
    let o = c.open(b"o", b"f", (RW.0 | XOR | TIMES, 0)).await.unwrap();
    assert_eq!((o.delegation.0, o.rflags & NO_OPEN_STATEID), (2, 0));
    assert_eq!(opens(&harness, b"f").await, 1);
}

#[tokio::test]
async fn holder_reopens_before_returning_delegation() {
    let harness = Harness::new();
    let (c, mut asked) = client(&harness, b"holder").await;
    let o = c.open(b"o", b"f", (RW.0 | XOR, 0)).await.unwrap();
    let deleg = o.delegation.1.unwrap();
    let d = Client::new(&harness, b"other").await;
    let gives_back = async {
        let call = Callback::next(&mut asked).await;
        assert_eq!((call.stateid(), &call.fh), (deleg, &o.fh));
        call.reply(Status::Ok);
        assert_eq!(c.on(&o.fh, op::OPEN, from(deleg, RW)).await.0, Status::Ok);
        assert_eq!(c.on(&o.fh, op::DELEGRETURN, give_back(deleg)).await.0, Status::Ok);
    };
    // The second open, with a deny mode, conflicts with the open that the holder made.
    let (opened, ()) = tokio::join!(d.open(b"o", b"f", (R.0, 2)), gives_back);
    assert_eq!(opened.unwrap_err(), Status::ShareDenied);
    assert_eq!(opens(&harness, b"f").await, 1);
}

fn times(access: Time, modify: Time) -> impl FnOnce(&mut Writer) {
    move |w| {
        fattr(w, &[attr::TIME_DELEG_ACCESS, attr::TIME_DELEG_MODIFY], |v| {
            for t in [access, modify] {
                v.i64(t.sec);
                v.u32(t.nsec);
            }
        });
    }
}

async fn set(c: &Client<'_>, fh: &[u8], by: Stateid, modify: Time) -> Status {
    let args = |w: &mut Writer| {
        w.value(&by);
        times(Time { sec: 7, nsec: 8 }, modify)(w);
    };
    c.on(fh, op::SETATTR, args).await.0
}

/// Returns change, size, access time and modify time.
async fn look(c: &Client<'_>, fh: &[u8]) -> (u64, u64, Time, Time) {
    let asked = [attr::CHANGE, attr::SIZE, attr::TIME_ACCESS, attr::TIME_MODIFY];
    let (status, mut r) = c.on(fh, op::GETATTR, |w| w.value(&Bitmap::of(&asked))).await;
    assert_eq!(status, Status::Ok);
    assert_eq!((r.bitmap(), r.u32()), (asked.to_vec(), 40));
    let head = (r.u64(), r.u64());
    let mut time = || {
        let sec = r.u64();
        Time { sec: sec.try_into().unwrap(), nsec: r.u32() }
    };
    (head.0, head.1, time(), time())
}

async fn arbiter<'k>(harness: &'k Harness) -> (Client<'k>, Receiver<Command>, Opened, Stateid) {
    let (c, asked) = client(harness, b"holder").await;
    let o = c.open(b"o", b"f", (RW.0 | TIMES, 0)).await.unwrap();
    let (WRITE_ATTRS, Some(deleg)) = o.delegation else { panic!("{:?}", o.delegation) };
    (c, asked, o, deleg)
}

#[tokio::test]
async fn only_holder_sets_delegated_times() {
    let harness = Harness::new();
    let (c, _asked, o, deleg) = arbiter(&harness).await;
    let long_ago = Time { sec: 1_000_000_000, nsec: 5 };
    assert_eq!(set(&c, &o.fh, o.stateid, long_ago).await, Status::BadStateId);
    assert_eq!(set(&c, &o.fh, Stateid::ANONYMOUS, long_ago).await, Status::BadStateId);
    let d = Client::of_minor_2(&harness, b"other", Handle::detached()).await;
    assert_eq!(set(&d, &o.fh, deleg, long_ago).await, Status::BadStateId);
    let read = Bitmap::of(&[attr::TIME_DELEG_MODIFY]);
    assert_eq!(c.on(&o.fh, op::GETATTR, |w| w.value(&read)).await.0, Status::Inval);
    let none = Time { sec: 1, nsec: 1_000_000_000 };
    assert_eq!(set(&c, &o.fh, deleg, none).await, Status::Inval);
    // The holder also sets times on behalf of a user, even ones before the delegation.
    assert_eq!(set(&c, &o.fh, deleg, long_ago).await, Status::Ok);
    let (_, _, access, modify) = look(&c, &o.fh).await;
    assert_eq!((access, modify), (Time { sec: 7, nsec: 8 }, long_ago));
    let (before, future) = (Time::now(), Time { sec: i64::MAX, nsec: 0 });
    assert_eq!(set(&c, &o.fh, deleg, future).await, Status::Ok);
    let (_, _, _, modify) = look(&c, &o.fh).await;
    let seconds = |t: Time| (t.sec, t.nsec);
    assert!(seconds(before) <= seconds(modify) && seconds(modify) <= seconds(Time::now()));
    assert_eq!(c.on(&o.fh, op::DELEGRETURN, give_back(deleg)).await.0, Status::Ok);
    assert_eq!(set(&c, &o.fh, deleg, long_ago).await, Status::BadStateId, "it was given back");
}

#[tokio::test]
async fn times_need_read_write_delegation() {
    let harness = Harness::new();
    let (_, _) = harness.with_file(b"f", b"content").await;
    let (c, _asked) = client(&harness, b"holder").await;
    let reads = c.open(b"o", b"f", (R.0 | TIMES, 0)).await.unwrap();
    assert_eq!(reads.delegation.0, 1);
    let writes = c.open(b"o", b"g", RW).await.unwrap();
    for o in [reads, writes] {
        let status = set(&c, &o.fh, o.delegation.1.unwrap(), Time::now()).await;
        assert_eq!(status, Status::BadStateId);
    }
    let wide = c.open(b"o", b"f", (RW.0 | TIMES, 0)).await.unwrap();
    assert_eq!(wide.delegation.0, WRITE_ATTRS, "widened, and with the times");
    assert_eq!(set(&c, &wide.fh, wide.delegation.1.unwrap(), Time::now()).await, Status::Ok);
}

/// A user who may write a file of another owner may set its times to now only, also through a delegation.
#[tokio::test]
async fn writer_without_ownership_cannot_backdate() {
    let harness = Harness::new();
    harness.with_file(b"f", b"").await;
    let root = harness.nfs.core.namespace.share_named(b"data").unwrap().backend.root();
    let (node, _) = root.lookup(&vfs::Cred::root(), b"f").await.unwrap();
    let set_mode = vfs::SetAttr { mode: Some(0o666), ..Default::default() };
    node.setattr(&vfs::Cred::root(), set_mode, false).await.unwrap();
    let (mut c, mut asked) = client(&harness, b"holder").await;
    c.cred = vfs::Cred { uid: 7003, gid: 7003, groups: [].into(), token: vfs::Token::NONE };
    let o = c.open(b"o", b"f", (RW.0 | TIMES, 0)).await.unwrap();
    let (WRITE_ATTRS, Some(deleg)) = o.delegation else { panic!("{:?}", o.delegation) };
    let (given, size, access, at_first) = look(&c, &o.fh).await;
    let long_ago = Time { sec: 1_000_000_000, nsec: 5 };
    assert_eq!(set(&c, &o.fh, deleg, long_ago).await, Status::Ok);
    assert_eq!(look(&c, &o.fh).await, (given, size, access, at_first), "they are passed over");
    let d = Client::of_minor_2(&harness, b"other", Handle::detached()).await;
    let seen = tokio::join!(look(&d, &o.fh), async {
        says(Callback::next(&mut asked).await, given, 0, long_ago);
    });
    assert_eq!(seen.0, (given, size, access, at_first));
    let before = Time::now();
    let (seen, ()) = tokio::join!(look(&d, &o.fh), async {
        says(Callback::next(&mut asked).await, given + 1, 20, long_ago);
    });
    let seconds = |t: Time| (t.sec, t.nsec);
    assert_eq!((seen.1, seen.2), (20, access));
    assert!(seconds(seen.3) >= seconds(before), "the server's own time");
    // The time of its own write is accepted.
    let now = Time::now();
    assert_eq!(set(&c, &o.fh, deleg, now).await, Status::Ok);
    assert_eq!(look(&c, &o.fh).await.3, now);
}

/// Answers CB_GETATTR.
fn says(call: Callback, change: u64, size: u64, modify: Time) {
    assert_eq!(call.ask, Ask::Attributes(vec![0b1_1000, 0, 3 << 20]), "and the times");
    call.answer_with(Status::Ok, |w| {
        [3, 0b1_1000, 0, 3 << 20, 40].iter().for_each(|v| w.u32(*v));
        w.u64(change);
        w.u64(size);
        for t in [Time { sec: 7, nsec: 8 }, modify] {
            w.i64(t.sec);
            w.u32(t.nsec);
        }
    });
}

#[tokio::test]
async fn other_clients_see_holder_times() {
    let harness = Harness::new();
    let (c, mut asked, o, _) = arbiter(&harness).await;
    let (given, _, _, at_first) = look(&c, &o.fh).await;
    let d = Client::of_minor_2(&harness, b"other", Handle::detached()).await;
    let mut last = given;
    let clean = tokio::join!(look(&d, &o.fh), async {
        says(Callback::next(&mut asked).await, given, 0, at_first);
    });
    assert_eq!(clean.0, (given, 0, Time { sec: 7, nsec: 8 }, at_first), "nothing has changed");
    let long_ago = Time { sec: 1_000_000_000, nsec: 5 };
    for (change, size, modify) in [(given, 0, long_ago), (given + 1, 20, long_ago)] {
        let (seen, ()) = tokio::join!(look(&d, &o.fh), async {
            says(Callback::next(&mut asked).await, change, size, modify);
        });
        assert_eq!((seen.1, seen.2, seen.3), (size, Time { sec: 7, nsec: 8 }, modify));
        assert!(seen.0 > last, "a look sees the change");
        last = seen.0;
    }
}

/// Each answer of the holder takes 60 ms: a listing waits for two of them, not for all.
#[tokio::test(start_paused = true)]
async fn listing_waits_briefly_for_a_slow_holder() {
    const FILES: usize = 8;
    let harness = Harness::new();
    let (c, mut asked) = client(&harness, b"holder").await;
    for n in 0..FILES {
        let o = c.open(b"o", format!("f{n}").as_bytes(), (RW.0 | TIMES, 0)).await.unwrap();
        assert_eq!(o.delegation.0, WRITE_ATTRS);
    }
    let listed = async {
        // With `rdattr_error` every name is there, some with NFS4ERR_DELAY; without it the reply ends early.
        let mut counts = Vec::new();
        for attrs in [&[attr::RDATTR_ERROR, attr::SIZE][..], &[attr::SIZE]] {
            let mut r = harness.run(|c| c.data().readdir(0, 0, 1 << 16, attrs)).await;
            r.ok(&[op::PUTROOTFH, op::LOOKUP]).expect(op::READDIR, Status::Ok);
            r.fixed(8);
            let (mut names, mut late) = (0, 0);
            while r.bool() {
                let (_cookie, _name, _bitmap) = (r.u64(), r.opaque(), r.bitmap());
                let values = r.opaque();
                names += 1;
                late += usize::from(values == 10_008_u32.to_be_bytes());
            }
            counts.push((names, late, r.bool()));
        }
        counts
    };
    let answers = async {
        loop {
            let call = Callback::next(&mut asked).await;
            tokio::time::sleep(std::time::Duration::from_millis(60)).await;
            says(call, 1, 5, Time { sec: 1, nsec: 0 });
        }
    };
    let counts = tokio::select! {
        counts = listed => counts,
        () = answers => unreachable!("it answers without end"),
    };
    assert_eq!(counts, [(FILES, FILES - 2, true), (2, 0, false)]);
}
