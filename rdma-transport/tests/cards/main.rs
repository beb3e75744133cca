//! Drives the provider `verbs` with a card that exists only in `examples/cards.rs`. A child process loads it in place of libibverbs
//! and librdmacm; its log says what the card was asked.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use iobuf::{Buf, BufMut};
use rdma_transport::ibverbs::{Verbs, VerbsConfig};
use rdma_transport::traffic_class::TrafficClass;
use rdma_transport::verbs::{ConnectParams, Provider, RemoteSeg, Work, WorkId};

/// `IBV_ACCESS_REMOTE_WRITE`.
const REMOTE_WRITE: u32 = 2;
/// `RDMA_OPTION_ID_TOS`, with DSCP 26.
const CLASS: &str = "option 0 104 1";
const CLIENTS: usize = 2;

/// The library of the double, which cargo builds as an example.
fn double() -> PathBuf {
    let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let profile = deps.parent().unwrap();
    let built = profile.join("examples/libcards.so");
    // Cargo builds no examples for a test that is named alone.
    let target = profile.parent().unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "-q", "--example", "cards", "--target-dir"]).arg(target);
    if profile.ends_with("release") {
        cargo.arg("--release");
    }
    let done = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap();
    assert!(done.success() && built.exists(), "{}", built.display());
    built
}

/// Runs [`with_the_double`] with a card of this profile; returns the card's log.
fn log_of(profile: &str) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let library = double();
    // One library under two names, so that it has one state.
    for name in ["libibverbs.so.1", "librdmacm.so.1"] {
        std::os::unix::fs::symlink(&library, dir.path().join(name)).unwrap();
    }
    let log = dir.path().join("log");
    let done = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "with_the_double", "--nocapture"])
        .env("LD_LIBRARY_PATH", dir.path())
        .env("CARDS_PROFILE", profile)
        .env("CARDS_CLIENTS", CLIENTS.to_string())
        .env("CARDS_LOG", &log)
        .output()
        .unwrap();
    let text = std::fs::read_to_string(Path::new(&log)).unwrap_or_default();
    assert!(
        done.status.success(),
        "{}\n{}\n{text}",
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    );
    text.lines().map(str::to_owned).collect()
}

fn params() -> ConnectParams {
    ConnectParams {
        private_data: Bytes::new(),
        recvs: 16,
        sends: 128,
        reads_out: 8,
        reads_in: 8,
        recv_size: 4096,
    }
}

/// The child's part: clients connect, and the gateway reads from each and sends to it. Without the double it does nothing.
#[tokio::test]
async fn with_the_double() {
    if std::env::var_os("CARDS_PROFILE").is_none() {
        return;
    }
    let class = TrafficClass::default();
    class.set(Some(26));
    let config =
        VerbsConfig { class, close_time_max: Duration::from_millis(10), ..VerbsConfig::default() };
    let provider = Verbs::new(config);
    let mut listener = provider.listen("127.0.0.1:20555".parse().unwrap()).await.unwrap();
    let mut pairs = Vec::new();
    for _ in 0..CLIENTS {
        pairs.push(listener.accept().await.unwrap().accept(params()).await.unwrap().qp);
    }
    pairs.push(provider.connect("127.0.0.1:20556".parse().unwrap(), params()).await.unwrap().qp);
    for qp in &mut pairs {
        let from = vec![RemoteSeg { handle: 7, len: 65_536, offset: 0 }];
        let read = Work::Read { id: WorkId(1), from, into: BufMut::heap(65_536) };
        let send =
            Work::Send { id: WorkId(2), from: vec![Buf::from(vec![1; 40_000])], invalidate: None };
        qp.post(vec![read, send]).unwrap();
        let mut out = Vec::new();
        poll_fn(|cx| match qp.poll(cx, &mut out) {
            Poll::Pending => Poll::Ready(()),
            other => panic!("{other:?}"),
        })
        .await;
    }
}

/// The number after a word of a line.
fn number(line: &str, word: &str) -> u32 {
    let mut words = line.split(' ').skip_while(|w| *w != word);
    words.nth(1).unwrap().parse().unwrap()
}

/// Domains, by queue pair.
fn domains(log: &[String]) -> BTreeMap<u32, u32> {
    log.iter()
        .filter(|l| l.starts_with("qp "))
        .map(|l| (number(l, "qp"), number(l, "pd")))
        .collect()
}

#[test]
fn connections_of_iwarp_card_cannot_write_to_each_other() {
    let log = log_of("x722");
    let of = domains(&log);
    assert_eq!(of.len(), CLIENTS + 1, "{log:#?}");
    assert_eq!(
        of.values().collect::<BTreeSet<_>>().len(),
        CLIENTS + 1,
        "a domain for each: {log:#?}"
    );
    let writable =
        log.iter().filter(|l| l.starts_with("mr ") && number(l, "access") & REMOTE_WRITE != 0);
    let exposed: Vec<(u32, u32)> = writable.map(|l| (number(l, "mr"), number(l, "pd"))).collect();
    assert_eq!(exposed.len(), CLIENTS + 1, "one target of a Read each: {log:#?}");
    for (key, domain) in exposed {
        let read = log.iter().find(|l| l.starts_with("read ") && number(l, "key") == key).unwrap();
        assert_eq!(of[&number(read, "qp")], domain, "{log:#?}");
    }
    assert!(!log.iter().any(|l| l.starts_with("VIOLATION")), "{log:#?}");
    // Registrations end before their domain.
    let ends: Vec<&String> = log.iter().filter(|l| l.starts_with("end of pd ")).collect();
    assert!(
        ends.len() > CLIENTS && ends.iter().all(|l| l.ends_with("with 0 registrations")),
        "{log:#?}"
    );
}

#[test]
fn roce_card_exposes_no_memory_and_shares_a_domain() {
    let log = log_of("cx5-roce");
    assert_eq!(domains(&log).into_values().collect::<BTreeSet<_>>().len(), 1, "{log:#?}");
    let exposed = |l: &&String| l.starts_with("mr ") && number(l, "access") & REMOTE_WRITE != 0;
    assert_eq!(log.iter().find(exposed), None);
    assert!(!log.iter().any(|l| l.starts_with("VIOLATION")), "{log:#?}");
}

/// A listener has its class before it listens, a connection before it is accepted or resolved.
#[test]
fn class_is_set_before_it_counts() {
    for profile in ["x722", "cx5-roce"] {
        let log = log_of(profile);
        let mut is_set = 0;
        for line in &log {
            match line.as_str() {
                CLASS => is_set += 1,
                "listen" => assert_eq!(std::mem::take(&mut is_set), 1, "{log:#?}"),
                "accept" | "resolve" => assert_eq!(std::mem::take(&mut is_set), 1, "{log:#?}"),
                _ => {}
            }
        }
        assert_eq!(log.iter().filter(|l| *l == "accept").count(), CLIENTS);
        assert_eq!(log.iter().filter(|l| *l == CLASS).count(), CLIENTS + 2, "{log:#?}");
    }
}

/// `max_qp_wr` holds for the smallest request, and three pieces are the most.
#[test]
fn queue_pair_fits_small_card() {
    let made = |profile| {
        let log = log_of(profile);
        let line = log.iter().find(|l| l.starts_with("qp ")).unwrap().clone();
        ["sends", "pieces", "inline"].map(|word| number(&line, word))
    };
    assert_eq!(made("cx5-roce"), [128, 8, 256]);
    assert_eq!(made("x722"), [64, 3, 0]);
}
