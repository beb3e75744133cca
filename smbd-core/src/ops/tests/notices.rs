//! Break notices to a client with several connections: every way to lose a notice, and whether it is sent again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rdma_transport::channel::{Command as Asked, Silence};
use tokio::time::{Instant, timeout};

use super::hold::{HANDLE, READ, WRITE, acknowledge, cached_folders, leased};
use super::info::{set, to};
use super::persist::Others;
use crate::fscc::set::Set;
use crate::harness::{Answered, Client, Harness, create_request};
use crate::session::{Kind, User};
use crate::status::Status;
use crate::wire::create::{oplock, option};
use crate::wire::negotiate::Dialect;
use crate::wire::{Command, oplock_break};

const SILENT: Silence = Silence { owes: true, lasts: Duration::from_secs(2), repeats: 3 };
const DELIVERED: Silence = Silence { owes: false, ..SILENT };

/// Returns a client with a lease on `f` and three connections, oldest first, and another client whose open waits for the break.
async fn broken(harness: &Harness) -> [Client; 4] {
    crate::recall::attach(&harness.core);
    let [a, b, c] = [harness.client(), harness.client(), harness.client()];
    leased(&a, "f", 1, READ | WRITE).await.unwrap();
    let other = harness.machine(2, 0, Dialect::V311, super::data::RDMA);
    assert_eq!(other.create("f", |_| {}).await.unwrap_err(), Status::PENDING);
    [a, b, c, other]
}

/// Returns the next command of the server for this connection.
async fn next(c: &Client) -> Option<Asked> {
    std::future::poll_fn(|cx| c.asked.lock().unwrap().poll_recv(cx)).await
}

/// Expects the notice on this connection.
async fn notice(c: &Client) -> oplock_break::LeaseNotice {
    let pushed = c.pushed().await;
    assert_eq!(pushed.header.command(), Some(Command::OplockBreak));
    match oplock_break::Response::parse(&pushed.message) {
        Ok(oplock_break::Response::LeaseNotice(notice)) => notice,
        other => panic!("{other:?}"),
    }
}

/// Plays a peer whose transport reports this silence, until the server aborts the connection or stops asking.
async fn answers(c: &Client, silence: Silence) -> bool {
    loop {
        match timeout(Duration::from_secs(5), next(c)).await {
            Ok(Some(Asked::Silence { answer })) => drop(answer.send(Ok(silence))),
            Ok(Some(Asked::Abort { .. })) => return true,
            Ok(Some(other)) => panic!("{other:?}"),
            Ok(None) | Err(_) => return false,
        }
    }
}

fn cut(c: &Client) {
    *c.asked.lock().unwrap() = tokio::sync::mpsc::channel(1).1;
}

#[tokio::test(start_paused = true)]
async fn a_notice_goes_by_the_next_connection_when_its_own_ends() {
    let harness = Harness::new();
    let [a, b, c, other] = broken(&harness).await;
    let first = notice(&a).await;
    cut(&a);
    assert_eq!(notice(&b).await, first, "the same break, with the same epoch");
    cut(&b);
    assert_eq!(notice(&c).await, first);
    assert_eq!(acknowledge(&c, 1, READ).await, Status::SUCCESS);
    assert_eq!(other.pushed().await.status(), Status::SUCCESS);
}

#[tokio::test(start_paused = true)]
async fn a_notice_goes_by_the_next_connection_when_nothing_is_heard_on_its_own() {
    let harness = Harness::new();
    let [a, b, c, other] = broken(&harness).await;
    let first = notice(&a).await;
    assert!(answers(&a, SILENT).await, "no further notice is to be lost there");
    assert_eq!(notice(&b).await, first);
    assert!(answers(&b, SILENT).await);
    assert_eq!(notice(&c).await, first);
    let limits = rdma_transport::count::limits_met();
    assert!(limits.iter().any(|(limit, n)| *limit == "notice-unheard" && *n >= 2));
    // This is the last connection: it stays open, and the client keeps its time to acknowledge.
    assert!(timeout(Duration::from_secs(20), answers(&c, SILENT)).await.is_err());
    assert_eq!(acknowledge(&c, 1, READ).await, Status::SUCCESS);
    assert_eq!(other.pushed().await.status(), Status::SUCCESS);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_heard_its_notice_has_its_time_and_is_not_told_again() {
    for heard in [
        DELIVERED,
        Silence { lasts: Duration::from_millis(1400), ..SILENT },
        Silence { repeats: 2, ..SILENT },
    ] {
        let harness = Harness::new();
        let [a, b, _c, other] = broken(&harness).await;
        let began = Instant::now();
        notice(&a).await;
        let overruled = async {
            assert_eq!(other.pushed().await.status(), Status::SUCCESS, "in the end");
            began.elapsed()
        };
        let again = timeout(Duration::from_secs(50), next(&b));
        let (aborted, told, at) = tokio::join!(answers(&a, heard), again, overruled);
        assert!(!aborted && told.is_err(), "{heard:?}");
        // Both clocks count in milliseconds.
        assert!(at.abs_diff(Duration::from_secs(35)) <= Duration::from_millis(1), "{at:?}");
    }
}

/// The gateway was stopped, so it could not read the acknowledgement.
#[tokio::test(start_paused = true)]
async fn a_client_loses_no_right_while_the_clock_of_leases_stands() {
    for (runs, acknowledged) in [(34_999, Status::SUCCESS), (35_000, Status::UNSUCCESSFUL)] {
        let (harness, clock) = (Harness::new(), Arc::new(AtomicU64::new(0)));
        let its = clock.clone();
        let arbiter = harness.core.namespace.arbiter();
        assert!(arbiter.attach(Arc::new(Others::default()), move || its.load(Ordering::Relaxed)));
        let [a, _b, _c, other] = broken(&harness).await;
        notice(&a).await;
        assert!(timeout(Duration::from_secs(100), other.pushed()).await.is_err());
        clock.store(runs, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(35)).await;
        assert_eq!(acknowledge(&a, 1, READ).await, acknowledged, "{runs}");
        assert_eq!(other.pushed().await.status(), Status::SUCCESS);
    }
}

/// A client that let a break run out has a short time for the next one, and the whole time if it writes back meanwhile.
#[tokio::test(start_paused = true)]
async fn a_client_that_writes_back_after_a_miss_has_its_time() {
    for (writes, took) in [(false, 2_187), (true, 35_000)] {
        let harness = Harness::new();
        crate::recall::attach(&harness.core);
        let a = harness.client();
        let file = leased(&a, "f", 1, READ | WRITE).await.unwrap();
        a.conn.answers.get().unwrap().missed(harness.core.now());
        let other = harness.machine(2, 0, Dialect::V311, super::data::RDMA);
        let (began, real) = (Instant::now(), std::time::Instant::now());
        assert_eq!(other.create("f", |_| {}).await.unwrap_err(), Status::PENDING);
        notice(&a).await;
        if writes {
            assert_eq!(super::data::write(&a, file, 0, b"cached").await, Status::SUCCESS);
        }
        let opens = async {
            assert_eq!(other.pushed().await.status(), Status::SUCCESS, "in the end");
            began.elapsed()
        };
        let (_, at) = tokio::join!(answers(&a, DELIVERED), opens);
        // The server's clock is not paused here. Both clocks count in milliseconds.
        let took = Duration::from_millis(took);
        let most = took + Duration::from_millis(2);
        assert!(at <= most && at + real.elapsed() >= took - (most - took), "{at:?}");
    }
}

/// The close of a file that breaks shows that its client answers, unless the server closes it.
#[tokio::test]
async fn a_close_by_the_client_is_an_answer_to_a_break() {
    for (level, breaks, by_client, is_silent) in [
        (oplock::LEASE, true, true, false),
        (oplock::LEASE, true, false, true),
        (oplock::LEASE, false, true, true),
        (oplock::BATCH, true, true, false),
        (oplock::BATCH, true, false, true),
        (oplock::BATCH, false, true, true),
    ] {
        let harness = Harness::new();
        crate::recall::attach(&harness.core);
        let a = harness.client();
        let file = match level {
            oplock::LEASE => leased(&a, "f", 1, READ | WRITE | HANDLE).await.unwrap(),
            _ => a.create("f", |r| r.oplock_level = level).await.unwrap().file,
        };
        let answers = a.conn.answers.get().unwrap();
        // Its neighbor let a break run out, and it has never answered one.
        harness.core.leases.answers(a.conn.info.peer.ip()).missed(harness.core.now());
        assert!(answers.is_silent());
        if breaks {
            let other = harness.machine(2, 0, Dialect::V311, super::data::RDMA);
            assert_eq!(other.create("f", |_| {}).await.unwrap_err(), Status::PENDING);
        }
        if by_client {
            assert_eq!(a.close(file).await, Status::SUCCESS);
        } else {
            let open = harness.core.opens.get(file).unwrap();
            assert!(harness.core.close_open(open.party.holder).await);
        }
        assert_eq!(answers.is_silent(), is_silent, "{level} {breaks} {by_client}");
    }
}

/// A notice without acknowledgment is tracked until its peer has received it, even if the client has no other connection.
#[tokio::test(start_paused = true)]
async fn a_notice_that_was_heard_is_not_followed_any_more() {
    let harness = Harness::new();
    crate::recall::attach(&harness.core);
    let c = harness.client();
    leased(&c, "f", 1, READ).await.unwrap();
    let other = harness.machine(2, 0, Dialect::V311, super::data::RDMA);
    let file = other.open("f").await;
    assert_eq!(super::data::write(&other, file, 0, b"new").await, Status::SUCCESS);
    assert!(!notice(&c).await.acknowledge);
    let soon = Duration::from_millis(300);
    match timeout(soon, next(&c)).await {
        Ok(Some(Asked::Silence { answer })) => answer.send(Ok(DELIVERED)).unwrap(),
        other => panic!("{other:?}"),
    }
    assert!(timeout(Duration::from_secs(20), next(&c)).await.is_err(), "it was delivered");
}

/// Any client may claim another client's name; lease keys are resent only to users who logged on with a password.
#[tokio::test(start_paused = true)]
async fn a_stranger_who_names_the_same_client_hears_nothing() {
    let harness = Harness::new();
    let [a, b, stranger, _other] = broken(&harness).await;
    let session = harness.core.sessions.get(stranger.session_id).unwrap();
    let user = User::clone(&session.user().unwrap());
    session.log_on(User { name: String::new(), kind: Kind::Anonymous, ..user }, None);
    let first = notice(&a).await;
    cut(&a);
    assert_eq!(notice(&b).await, first);
    cut(&b);
    assert!(timeout(Duration::from_secs(50), next(&stranger)).await.is_err());
}

/// Skips a connection whose peer reads no data, but keeps it open.
#[tokio::test(start_paused = true)]
async fn a_notice_does_not_wait_for_a_connection_that_takes_nothing() {
    let harness = Harness::new();
    let [a, b, _c, _other] = broken(&harness).await;
    let began = Instant::now();
    notice(&b).await;
    assert_eq!(began.elapsed(), Duration::from_millis(1500));
    assert!(matches!(next(&a).await, Some(Asked::Push { .. })));
}

/// A rename notifies holders of the old directory, then of the new one, even if both notices follow the response.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn notices_of_one_change_keep_their_order() {
    let harness = Harness::new();
    crate::recall::attach(&harness.core);
    let c = harness.client();
    for name in ["d", "e"] {
        let folder = c.create(name, |r| r.options |= option::DIRECTORY_FILE).await.unwrap();
        c.close(folder.file).await;
    }
    let file = c.open("d\\f").await;
    for _ in 0..20 {
        for (from, name) in [(1, "e\\f"), (2, "d\\f")] {
            cached_folders(&c, &[("d", 1), ("e", 2)]).await;
            assert_eq!(set(&c, file, Set::Rename(to(name, 0))).await, Status::SUCCESS);
            let keys = [notice(&c).await.key[0], notice(&c).await.key[0]];
            assert_eq!(keys, [from, 3 - from]);
            for key in keys {
                assert_eq!(acknowledge(&c, key, 0).await, Status::SUCCESS);
            }
        }
    }
}

/// When a client other than Linux changes a directory that it caches, its notice follows the response, as on Windows.
#[tokio::test(start_paused = true)]
async fn a_notice_of_ones_own_change_of_a_directory_goes_behind_the_answer() {
    let harness = Harness::new();
    crate::recall::attach(&harness.core);
    let c = harness.client();
    let folder = c.create("d", |r| r.options |= option::DIRECTORY_FILE).await.unwrap().file;
    c.close(folder).await;
    leased(&c, "d", 1, READ | HANDLE).await.unwrap();
    let made = create_request("d\\f", |_| {}).emit();
    let made = c.reply(Command::Create, &made, &[]).await;
    assert_eq!(Answered::of(made.clone()).status(), Status::SUCCESS);
    assert!(timeout(Duration::from_millis(900), c.pushed()).await.is_err(), "it has not left");
    let began = Instant::now();
    drop(made);
    assert_eq!((notice(&c).await.to, began.elapsed()), (0, Duration::ZERO));
    assert_eq!(acknowledge(&c, 1, 0).await, Status::SUCCESS);
    // A notice of another client's change is sent at once, whatever else is queued.
    leased(&c, "d", 1, READ | HANDLE).await.unwrap();
    let _stuck = c.reply(Command::Echo, &crate::wire::simple::BODY, &[]).await;
    let other = harness.machine(2, 0, Dialect::V311, super::data::RDMA);
    other.create("d\\g", |_| {}).await.unwrap();
    let began = Instant::now();
    assert_eq!((notice(&c).await.to, began.elapsed()), (0, Duration::ZERO));
}
