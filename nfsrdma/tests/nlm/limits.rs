//! Limits of the lock manager for one address that requests as much as it can.

use vfs::arbiter::Arbiter;

use super::*;

const FULL: u32 = Stat::DeniedNolocks as u32;

impl Bed {
    fn lock_from(&self, peer: &str, who: Who<'_>, at: (u64, u64), block: bool) -> u32 {
        let args = lock_args(who, &self.fh, at, true, (block, false));
        stat(&self.from(peer, 0, p::LOCK, &args))
    }
}

fn refused_as(rule: &str) -> bool {
    rdma_transport::refused::list().iter().any(|r| r.refused.rule == rule)
}

#[test]
fn host_limit_is_enforced_and_shown() {
    let bed = Bed::new();
    let lock = |peer: &str, n: usize| {
        let (host, at) = (n.to_string(), (n as u64, 1));
        let args = lock_args(Who { host: &host, svid: 1 }, &bed.fh, at, false, (false, false));
        stat(&bed.from(peer, 0, p::LOCK, &args))
    };
    let refused_as = |rule| rdma_transport::refused::list().iter().any(|r| r.refused.rule == rule);
    let part = nlm::limits::HOSTS_OF_ADDRESS_MAX;
    for address in 1..=nlm::limits::HOSTS_MAX / part {
        let peer = format!("127.0.1.{address}:700");
        for n in 0..part {
            assert_eq!(lock(&peer, n), GRANTED, "host {n} at {peer}");
        }
        assert_eq!(lock(&peer, part), Stat::DeniedNolocks as u32);
        assert!(refused_as("nlm-hosts-of-address"));
        assert_eq!(lock(&peer, 0), GRANTED, "one that is known");
    }
    assert_eq!(lock("127.0.1.99:700", 0), Stat::DeniedNolocks as u32, "all are taken");
    assert!(refused_as("nlm-hosts"));
    // A datagram with the forged address of a host that has many locks.
    let met = || {
        let all = rdma_transport::count::limits_met();
        all.iter().find(|(limit, _)| *limit == "nlm-hosts").map_or(0, |(_, n)| *n)
    };
    let before = met();
    let peer = "127.0.0.7:700".parse().unwrap();
    let pool = iobuf::Pool::new(iobuf::PoolLimits { buffers_max: [64, 16, 4] });
    let info = Info::new(peer, "192.0.2.1:2049".parse().unwrap(), Transport::Tcp, pool);
    let lock = lock_args(Who { host: "5000", svid: 1 }, &bed.fh, (5000, 1), false, (false, false));
    let body = Buf::from(message(NLM, 4, p::LOCK, 0, &lock));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let answer = bed.client.server.datagram(Arc::new(info), body, ServedPrograms::Datagrams);
    assert_eq!(stat(&results(runtime.block_on(answer))), Stat::DeniedNolocks as u32);
    assert_eq!(met(), before + 1);
    let rows = rdma_transport::refused::list();
    assert!(rows.iter().all(|r| r.refused.peer != peer.ip()), "{rows:?}");
}

#[test]
fn waiting_locks_per_address_are_limited() {
    let bed = Bed::new();
    let part = nlm::limits::BLOCKED_OF_ADDRESS_MAX as u64;
    assert_eq!(bed.lock(A, (0, 0), true), GRANTED);
    for n in 0..part {
        assert_eq!(bed.lock_from("127.0.0.2:700", B, (n, 1), true), BLOCKED);
    }
    assert_eq!(bed.lock_from("127.0.0.2:700", B, (part, 1), true), FULL);
    assert!(refused_as("blocked-locks-of-address"));
    assert_eq!(bed.lock_from("127.0.0.3:700", B, (part, 1), true), BLOCKED, "others wait");
}

#[test]
fn file_locks_per_address_are_limited() {
    let limits = state::Limits { locks_per_host: 4, ..Default::default() };
    let deadlines = state::Deadlines::new(1000, 2000).unwrap();
    let arbiter = Arbiter::new(state::Table::new(deadlines, limits, 0));
    let client = Client::over(Namespace::with_arbiter(vec![share("data")], arbiter));
    let fh = client.create(&client.root(), "f", 0o644).unwrap();
    let bed = Bed { client, fh };
    for (n, host) in (0..).zip(["a", "b", "c"]) {
        let who = Who { host, svid: 1 };
        assert_eq!(bed.lock_from("127.0.0.4:700", who, (n * 10, 1), false), GRANTED);
    }
    let fourth = Who { host: "d", svid: 1 };
    assert_eq!(bed.lock_from("127.0.0.4:700", fourth, (30, 1), false), FULL);
    assert!(refused_as("locks-of-file-by-address"));
    assert_eq!(bed.lock_from("127.0.0.5:700", fourth, (30, 1), false), GRANTED);
}
