//! Compares the engine with slow, obvious models, and tests waits on a paused clock.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use policy::{Measure, Rates};
use proptest::prelude::*;
use tokio::time::{advance, sleep};

use crate::engine::{Arrival, Caller, Engine, Key, Kind};
use crate::{Admitted, Ask, Full, Limits, Most, OfShare, OfUser, Plan, Refused};

const MIB: u64 = 1 << 20;
const ROOMY: Most = Most {
    requests: 10_000,
    requests_of_address: 10_000,
    bytes: u64::MAX,
    bytes_of_address: u64::MAX,
};
const KINDS: [Kind; 3] = [Kind::Read, Kind::Write, Kind::Other];

fn host(n: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, n])
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn both(bytes: u64, burst: Duration) -> Rates {
    Rates { read: Some(bytes), write: Some(bytes), burst, ..Rates::default() }
}

/// A request in a history: when it passed, and what for.
#[derive(Clone, Copy, Debug)]
struct Pass {
    at: Duration,
    key: Key,
    bytes: u64,
    moved: u64,
}

/// Returns the cost of a pass in a measure, by a second implementation.
fn counted(pass: &Pass, measure: Measure) -> u64 {
    match (measure, pass.key.kind) {
        (Measure::Read, Kind::Read) | (Measure::Write, Kind::Write) => pass.moved,
        (Measure::ReadOperations, Kind::Read) | (Measure::WriteOperations, Kind::Write) => 1,
        (Measure::Operations, _) => 1,
        _ => 0,
    }
}

/// Checks every window between two passes: no more than `rate * window + burst`, or the largest request in place of a smaller
/// burst.
fn holds(passes: &[Pass], rates: &Rates, whose: &str) -> Result<(), TestCaseError> {
    for measure in Measure::ALL {
        let Some(rate) = rates.of(measure) else { continue };
        let burst = rate as f64 * rates.burst.as_secs_f64();
        let asked = |p: &Pass| if measure.is_bytes() { p.bytes } else { 1 };
        let largest = passes.iter().filter(|p| counted(p, measure) > 0).map(asked).max();
        for (n, first) in passes.iter().enumerate() {
            let mut sum = 0;
            for last in &passes[n..] {
                sum += counted(last, measure);
                let window = (last.at - first.at).as_secs_f64();
                let most = rate as f64 * window + burst.max(largest.unwrap_or(0) as f64) + 1.0;
                prop_assert!(sum as f64 <= most, "{whose} {measure}: {sum} in {window}s, {most}");
            }
        }
    }
    Ok(())
}

#[derive(Clone, Debug)]
struct Step {
    share: u32,
    host: u8,
    uid: u32,
    kind: usize,
    bytes: u64,
    /// Per cent of the bytes that it moves.
    moves: u64,
    pause: u64,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let one = (0..3u32, 0..3u8, 0..3u32, 0..3usize, 0..3 * MIB, 0..=100u64, 0..400u64);
    let step = one.prop_map(|(share, host, uid, kind, bytes, moves, pause)| {
        let pause = pause.saturating_sub(300);
        Step { share, host, uid, kind, bytes: bytes / 10 * 10, moves, pause }
    });
    prop::collection::vec(step, 1..80)
}

fn rates() -> impl Strategy<Value = Rates> {
    let bytes = || prop::option::of(MIB..16 * MIB);
    let operations = || prop::option::of(5..200u64);
    (bytes(), bytes(), operations(), operations(), operations(), 10..3000u64).prop_map(
        |(read, write, operations, read_operations, write_operations, burst)| Rates {
            read,
            write,
            operations,
            read_operations,
            write_operations,
            burst: ms(burst),
        },
    )
}

fn plan() -> impl Strategy<Value = Plan> {
    let some = || prop::option::of(rates());
    (some(), some(), some(), some()).prop_map(|(all, client, share, user)| Plan {
        all: all.unwrap_or_default(),
        client: client.unwrap_or_default(),
        shares: share
            .map(|rates| OfShare { id: 1, name: "one".into(), rates })
            .into_iter()
            .collect(),
        users: user
            .map(|rates| OfUser { name: "ann".into(), uid: Some(1), rates })
            .into_iter()
            .collect(),
    })
}

/// Runs a history, and returns what passed and when. All that arrived pass in the end.
fn run(plan: &Plan, steps: &[Step]) -> Result<Vec<Pass>, TestCaseError> {
    let mut engine = Engine::<usize>::new(ROOMY);
    let mut now = Duration::ZERO;
    engine.set(plan.clone(), now);
    let (mut passes, mut asks) = (Vec::new(), Vec::<(Key, u64, u64)>::new());
    let mut pass = |engine: &mut Engine<usize>, one: (Key, u64, u64), at| {
        let (key, bytes, moved) = one;
        engine.settle(key, (bytes, false), moved, at);
        passes.push(Pass { at, key, bytes, moved });
    };
    let look = |engine: &mut Engine<usize>, asks: &[(Key, u64, u64)], at| {
        let (passed, next) = engine.turn(at);
        (passed.into_iter().map(|n| asks[n]).collect::<Vec<_>>(), next)
    };
    for step in steps {
        let until = now + ms(step.pause);
        while now < until {
            now += ms(1);
            let (passed, _) = look(&mut engine, &asks, now);
            passed.into_iter().for_each(|one| pass(&mut engine, one, now));
        }
        let kind = KINDS[step.kind];
        let bytes = if kind == Kind::Other { 0 } else { step.bytes };
        let key = engine.key(step.share, host(step.host), Caller::Uid(step.uid), kind);
        let n = asks.len();
        asks.push((key, bytes, bytes * step.moves / 100));
        match engine.arrive(key, (bytes, 0), now, || n) {
            Ok(Arrival::Waits(_)) => {}
            Ok(_) => pass(&mut engine, asks[n], now),
            Err(full) => prop_assert!(false, "{full:?}"),
        }
    }
    // Each waiting request is passed in a time that the rates bound: no later than all of it by the slowest, one after another.
    let slowest = (3.0 * MIB as f64 / MIB as f64).max(1.0 / 5.0);
    let latest = now + Duration::from_secs_f64(slowest * (asks.len() as f64 + 1.0));
    while engine.waiting() > 0 {
        let (passed, next) = look(&mut engine, &asks, now);
        passed.into_iter().for_each(|one| pass(&mut engine, one, now));
        if engine.waiting() > 0 {
            now += next.unwrap_or(ms(1)).max(ms(1));
            prop_assert!(now <= latest, "{} still wait", engine.waiting());
        }
    }
    prop_assert_eq!(passes.len(), asks.len());
    Ok(passes)
}

fn of(passes: &[Pass], is: impl Fn(&Key) -> bool) -> Vec<Pass> {
    passes.iter().filter(|p| is(&p.key)).copied().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Random rates of all scopes, and random requests of all kinds.
    #[test]
    fn any_window_has_at_most_its_rate_and_burst(plan in plan(), steps in steps()) {
        let passes = run(&plan, &steps)?;
        holds(&passes, &plan.all, "all")?;
        for n in 0..3 {
            holds(&of(&passes, |k| k.host == host(n)), &plan.client, "client")?;
        }
        if let Some(share) = plan.shares.first() {
            holds(&of(&passes, |k| k.share == 1), &share.rates, "share")?;
        }
        if let Some(user) = plan.users.first() {
            let is_ann = |k: &Key| matches!(k.user, crate::engine::User::Named(_));
            holds(&of(&passes, is_ann), &user.rates, "user")?;
        }
        // Requests of one lane pass in their order.
        let mut seen = std::collections::HashMap::new();
        for pass in &passes {
            let last = seen.insert(pass.key, pass.at);
            prop_assert!(last.is_none_or(|last| last <= pass.at));
        }
    }
}

fn engine(plan: Plan) -> Engine<usize> {
    let mut engine = Engine::new(ROOMY);
    engine.set(plan, Duration::ZERO);
    engine
}

/// Keeps requests of these lanes waiting, `deep` of each, for `time`; returns the bytes that passed of each lane.
fn contend(
    engine: &mut Engine<usize>,
    lanes: &[(Key, u64)],
    deep: usize,
    time: Duration,
) -> Vec<u64> {
    contend_by(engine, lanes, time, |_| deep)
}

/// The same with a depth for each lane.
fn contend_by(
    engine: &mut Engine<usize>,
    lanes: &[(Key, u64)],
    time: Duration,
    deep: impl Fn(usize) -> usize,
) -> Vec<u64> {
    let mut passed = vec![0; lanes.len()];
    let mut waiting = vec![0; lanes.len()];
    let mut now = Duration::ZERO;
    while now < time {
        for (n, (key, bytes)) in lanes.iter().enumerate() {
            while waiting[n] < deep(n) {
                match engine.arrive(*key, (*bytes, 0), now, || n).unwrap() {
                    Arrival::Waits(_) => waiting[n] += 1,
                    _ => passed[n] += bytes,
                }
            }
        }
        let (done, next) = engine.turn(now);
        for n in done {
            waiting[n] -= 1;
            passed[n] += lanes[n].1;
        }
        now += next.unwrap_or(ms(1)).max(ms(1));
    }
    passed
}

fn share_plan(rates: Rates) -> Plan {
    let share = OfShare { id: 1, name: "one".into(), rates };
    Plan { shares: vec![share], ..Plan::default() }
}

#[test]
fn addresses_that_wait_get_equal_parts_whatever_their_sizes() {
    let mut engine = engine(share_plan(both(8 * MIB, ms(100))));
    let key = |e: &Engine<usize>, h, uid| e.key(1, host(h), Caller::Uid(uid), Kind::Read);
    let lanes = [
        (key(&engine, 1, 1), 64 << 10),
        (key(&engine, 1, 2), MIB),
        (key(&engine, 2, 1), 256 << 10),
        (key(&engine, 3, 1), 4 << 10),
    ];
    let passed = contend(&mut engine, &lanes, 512, Duration::from_secs(30));
    let all: u64 = passed.iter().sum();
    for (n, wanted) in [1.0 / 6.0, 1.0 / 6.0, 1.0 / 3.0, 1.0 / 3.0].into_iter().enumerate() {
        let part = passed[n] as f64 / all as f64;
        assert!((part - wanted).abs() < 0.03, "{n}: {part} of {passed:?}");
    }
}

/// An address gets no more by many users: of bytes, of operations, at a slow rate, on one share and on many.
#[test]
fn many_lanes_of_an_address_get_the_part_of_one() {
    let operations = Rates { operations: Some(400), burst: ms(100), ..Rates::default() };
    for (rates, bytes) in [
        (both(8 * MIB, ms(100)), 256 << 10),
        (operations, 4 << 10),
        (both(64 << 10, ms(100)), 4 << 10),
    ] {
        for shares in [1, 4] {
            let mut engine = engine(Plan { all: rates, ..Plan::default() });
            let lane =
                |h, share, name: &str| engine.key(share, host(h), Caller::Name(name), Kind::Read);
            let mut lanes: Vec<_> = (0..24u32)
                .map(|n| (lane(1, 1 + n % shares, &format!("user {n}")), bytes))
                .collect();
            lanes.push((lane(2, 1, "other"), bytes));
            let passed = contend(&mut engine, &lanes, 32, Duration::from_secs(20));
            let all: u64 = passed.iter().sum();
            let part = *passed.last().unwrap() as f64 / all as f64;
            assert!((0.4..0.6).contains(&part), "{part} of {passed:?}");
        }
    }
}

/// Nor by as many requests, one at a time of each user: their lanes end with each request.
#[test]
fn single_requests_of_many_users_get_the_part_of_one() {
    let mut engine = engine(share_plan(both(8 * MIB, ms(100))));
    let lane = |h, name: &str| engine.key(1, host(h), Caller::Name(name), Kind::Read);
    let many = (0..24).map(|n| (lane(1, &format!("user {n}")), 256 << 10));
    let lanes: Vec<_> = many.chain([(lane(2, "other"), 256 << 10)]).collect();
    let passed =
        contend_by(&mut engine, &lanes, Duration::from_secs(30), |n| if n == 24 { 32 } else { 1 });
    let all: u64 = passed.iter().sum();
    let part = *passed.last().unwrap() as f64 / all as f64;
    assert!((0.35..0.65).contains(&part), "{part} of {passed:?}");
}

/// A request that owes thousands of turns of a slow rate costs a look no thousands of moves.
#[test]
fn large_request_of_a_slow_rate_moves_lanes_seldom() {
    let mut engine = engine(share_plan(both(16 << 10, ms(100))));
    let lane = |uid| engine.key(1, host(1), Caller::Uid(uid), Kind::Write);
    let lanes: Vec<_> = (0..4).map(lane).collect();
    let mut now = Duration::ZERO;
    for _ in 0..3 {
        for (n, key) in lanes.iter().enumerate() {
            engine.arrive(*key, (64 * MIB, 0), now, || n).unwrap();
        }
    }
    for _ in 0..8 {
        let before = engine.moves();
        let (_, next) = engine.turn(now);
        assert!(engine.moves() - before < 100, "{}", engine.moves() - before);
        now += next.unwrap_or(ms(1)).max(ms(1));
    }
}

/// A large request, long ago, does not delay its user, while requests of another share wait all the time, nor after a change of
/// the rates.
#[test]
fn debts_of_lanes_end() {
    let plan = |rate| {
        let slow = OfShare { id: 2, name: "slow".into(), rates: both(1, ms(100)) };
        let one = OfShare { id: 1, name: "one".into(), rates: both(rate, ms(100)) };
        Plan { shares: vec![one, slow], ..Plan::default() }
    };
    const RATE: u64 = 256 << 10;
    // The time of 8 MiB is 32 seconds. What is owed then counts in full.
    for (after, sets, least, most) in [
        (ms(31_000), false, ms(20_000), ms(40_000)),
        (ms(33_000), false, ms(0), ms(1000)),
        (ms(5000), true, ms(0), ms(30_000)),
    ] {
        let mut engine = engine(plan(RATE));
        let key = |share, h| engine.key(share, host(h), Caller::Uid(1), Kind::Write);
        let [slow, user, neighbor] = [key(2, 1), key(1, 1), key(1, 2)];
        let mut now = Duration::ZERO;
        for _ in 0..2 {
            engine.arrive(slow, (1000, 0), now, || 0).unwrap();
        }
        // The first empties the bucket, so that the next has to wait.
        engine.arrive(user, (RATE / 10, 0), now, || 0).unwrap();
        engine.arrive(user, (8 * MIB, 0), now, || 0).unwrap();
        now += ms(200);
        assert_eq!(engine.turn(now).0.len(), 1);
        now += after;
        if sets {
            engine.set(plan(RATE / 2), now);
        }
        for _ in 0..1000 {
            engine.arrive(neighbor, (64 << 10, 0), now, || 1).unwrap();
        }
        let began = now;
        engine.arrive(user, (64 << 10, 0), now, || 2).unwrap();
        while !engine.turn(now).0.contains(&2) {
            now += ms(10);
        }
        let took = now - began;
        assert!((least..most).contains(&took), "{after:?} {sets}: {took:?}");
    }
}

/// A request of the largest size of SMB counts as the eight turns that it takes.
#[test]
fn large_requests_get_no_more_than_small_ones() {
    let mut engine = engine(share_plan(both(64 * MIB, ms(100))));
    let key = |e: &Engine<usize>, uid| e.key(1, host(1), Caller::Uid(uid), Kind::Write);
    let lanes = [
        (key(&engine, 1), 8 * MIB),
        (key(&engine, 2), MIB),
        (key(&engine, 3), 64 << 10),
        (key(&engine, 4), 3 * MIB),
    ];
    let passed = contend(&mut engine, &lanes, 256, Duration::from_secs(60));
    let all: u64 = passed.iter().sum();
    assert!(all >= 60 * 64 * MIB, "the rate is not used: {passed:?}");
    for (n, bytes) in passed.iter().enumerate() {
        let part = *bytes as f64 / all as f64;
        assert!((0.22..0.28).contains(&part), "{n}: {part} of {passed:?}");
    }
}

/// A lane of large requests uses the tokens that an earlier lane, with a slow bucket, cannot use.
#[test]
fn large_requests_are_not_slowed_by_a_slow_user() {
    let slow = OfUser { name: "slow".into(), uid: Some(1), rates: both(MIB, ms(1000)) };
    let mut engine = engine(Plan { users: vec![slow], ..share_plan(both(100 * MIB, ms(100))) });
    let lanes = [
        (engine.key(1, host(1), Caller::Uid(1), Kind::Read), MIB),
        (engine.key(1, host(1), Caller::Uid(2), Kind::Read), 8 * MIB),
    ];
    let passed = contend(&mut engine, &lanes, 16, Duration::from_secs(10));
    assert!(passed[0] >= 9 * MIB && passed[0] <= 12 * MIB, "{passed:?}");
    assert!(passed[1] >= 900 * MIB, "{passed:?}");
}

/// Nor where small requests of others could use each token before it.
#[test]
fn large_requests_get_turns_among_small_ones_and_a_slow_user() {
    let slow = OfUser { name: "slow".into(), uid: Some(1), rates: both(MIB, ms(1000)) };
    let mut engine = engine(Plan { users: vec![slow], ..share_plan(both(100 * MIB, ms(100))) });
    let lane = |uid| engine.key(1, host(1), Caller::Uid(uid), Kind::Read);
    let lanes = [(lane(1), MIB), (lane(2), 8 * MIB), (lane(3), MIB / 16)];
    let passed = contend(&mut engine, &lanes, 256, Duration::from_secs(10));
    assert!(passed[0] >= 9 * MIB && passed[0] <= 12 * MIB, "{passed:?}");
    assert!(passed[1] >= 350 * MIB && passed[2] >= 350 * MIB, "{passed:?}");
}

/// One lane needs two buckets, which others keep empty by turns that do not meet.
#[test]
fn request_of_two_busy_buckets_does_not_starve() {
    let rates = both(8 * MIB, ms(200));
    let users = ["ann", "bob"].into_iter().zip(1..).map(|(name, uid)| OfUser {
        name: name.into(),
        uid: Some(uid),
        rates: both(5 * MIB, ms(300)),
    });
    let mut engine = engine(Plan { users: users.collect(), ..share_plan(rates) });
    let lanes = [
        // The first uses the share's bucket, the second the user's, the third both.
        (engine.key(1, host(1), Caller::Uid(7), Kind::Write), 3 * MIB),
        (engine.key(2, host(1), Caller::Name("ANN"), Kind::Write), 2 * MIB + 77),
        (engine.key(1, host(1), Caller::Name("ann"), Kind::Write), MIB),
    ];
    let passed = contend(&mut engine, &lanes, 8, Duration::from_secs(60));
    assert!(passed[2] >= 60 * MIB, "{passed:?}");
    assert!(passed[0] >= 60 * MIB && passed[1] >= 60 * MIB, "{passed:?}");
}

/// A lane behind a slow bucket lets others use what it cannot.
#[test]
fn slow_user_does_not_slow_the_share() {
    let slow = OfUser { name: "slow".into(), uid: Some(1), rates: both(MIB, ms(1000)) };
    let mut engine = engine(Plan { users: vec![slow], ..share_plan(both(100 * MIB, ms(100))) });
    let lanes = [
        (engine.key(1, host(1), Caller::Uid(1), Kind::Read), MIB),
        (engine.key(1, host(1), Caller::Uid(2), Kind::Read), MIB),
    ];
    let passed = contend(&mut engine, &lanes, 64, Duration::from_secs(10));
    assert!(passed[0] >= 10 * MIB && passed[0] <= 12 * MIB, "{passed:?}");
    assert!(passed[1] >= 900 * MIB, "{passed:?}");
}

#[test]
fn who_waits_is_limited_in_all_and_of_each_address() {
    let most = Most { requests: 5, requests_of_address: 3, bytes: 400, bytes_of_address: 300 };
    let mut engine = Engine::<usize>::new(most);
    engine.set(share_plan(both(1, ms(1))), Duration::ZERO);
    let key = |e: &Engine<usize>, h| e.key(1, host(h), Caller::Uid(1), Kind::Write);
    let first = key(&engine, 1);
    assert_eq!(engine.arrive(first, (10, 10), Duration::ZERO, || 0), Ok(Arrival::Passed));
    let mut arrive = |h, held| {
        let key = key(&engine, h);
        engine.arrive(key, (10, held), Duration::ZERO, || 0).map(drop)
    };
    assert_eq!(arrive(1, 301), Err(Full::BytesOfAddress(300)));
    assert_eq!(arrive(1, 300), Ok(()));
    assert_eq!(arrive(2, 101), Err(Full::Bytes(400)));
    assert_eq!([arrive(1, 0), arrive(1, 0)], [Ok(()); 2], "these hold nothing");
    assert_eq!(arrive(1, 0), Err(Full::RequestsOfAddress(3)));
    assert_eq!([arrive(2, 100), arrive(2, 0)], [Ok(()); 2]);
    assert_eq!(arrive(3, 0), Err(Full::Requests(5)));
    assert_eq!(engine.release_all().len(), 5);
    let key = key(&engine, 3);
    assert!(engine.arrive(key, (10, 400), Duration::ZERO, || 0).is_err(), "one has at most 300");
    assert!(engine.arrive(key, (10, 300), Duration::ZERO, || 0).is_ok());
}

/// Each scope limits each measure, and only its own requests.
#[test]
fn each_scope_limits_each_measure() {
    let only = |measure| {
        let one = |m| (m == measure).then_some(10);
        Rates {
            read: one(Measure::Read),
            write: one(Measure::Write),
            operations: one(Measure::Operations),
            read_operations: one(Measure::ReadOperations),
            write_operations: one(Measure::WriteOperations),
            burst: Duration::from_secs(1),
        }
    };
    for measure in Measure::ALL {
        for scope in ["all", "client", "share", "user"] {
            let rates = only(measure);
            let of_user = OfUser { name: "ann".into(), uid: Some(1), rates };
            let plan = match scope {
                "all" => Plan { all: rates, ..Plan::default() },
                "client" => Plan { client: rates, ..Plan::default() },
                "share" => share_plan(rates),
                _ => Plan { users: vec![of_user], ..Plan::default() },
            };
            for kind in KINDS {
                let uses = match measure {
                    Measure::Read | Measure::ReadOperations => kind == Kind::Read,
                    Measure::Write | Measure::WriteOperations => kind == Kind::Write,
                    Measure::Operations => true,
                };
                let mut engine = engine(plan.clone());
                let mut passes = |share, h, caller| {
                    let key = engine.key(share, host(h), caller, kind);
                    // Ten of one byte empty the bucket of ten, by bytes and by number.
                    (0..20).find(|_| {
                        let arrived = engine.arrive(key, (1, 0), Duration::ZERO, || 0).unwrap();
                        matches!(arrived, Arrival::Waits(_))
                    })
                };
                let own = passes(1, 1, Caller::Uid(1));
                assert_eq!(own, uses.then_some(10), "{scope} {measure} {kind:?}");
                // Another share, another client, another user.
                let others = [
                    ("share", passes(2, 1, Caller::Uid(1))),
                    ("client", passes(1, 2, Caller::Uid(1))),
                    ("user", passes(1, 1, Caller::Uid(2))),
                ];
                for (differs, waits) in others {
                    let expected = match differs {
                        // It has its own bucket, which is full.
                        "client" if scope == "client" => uses.then_some(10),
                        _ if differs == scope => None,
                        _ => uses.then_some(0),
                    };
                    assert_eq!(waits, expected, "{scope} {measure} {kind:?} {differs}");
                }
                assert!(passes(1, 1, Caller::Name("Ann")).is_some() == uses, "by its name");
            }
        }
    }
}

/// Buckets of addresses are forgotten when they are full again; debts are not.
#[test]
fn full_buckets_of_addresses_are_forgotten() {
    let client = Rates { read: Some(1000), ..Rates::default() };
    let mut engine = engine(Plan { client, ..Plan::default() });
    let at = |n: u32| IpAddr::from((0x0a00_0000 + n).to_be_bytes());
    let read = |engine: &mut Engine<usize>, n, bytes, now| {
        let key = engine.key(1, at(n), Caller::Uid(1), Kind::Read);
        engine.arrive(key, (bytes, 0), now, || 0).unwrap()
    };
    // One owes for long, the others for a millisecond.
    assert_eq!(read(&mut engine, 1_000_000, 100_000, Duration::ZERO), Arrival::Passed);
    for n in 0..20_000 {
        assert_eq!(read(&mut engine, n, 1, ms(u64::from(n))), Arrival::Passed);
        assert!(engine.clients() <= 2 * 1025, "{n}: {}", engine.clients());
    }
    let again = read(&mut engine, 1_000_000, 1, ms(20_000));
    assert!(matches!(again, Arrival::Waits(_)), "its debt was forgotten");
}

fn ask(bytes: u64) -> Ask<'static> {
    Ask { share: 1, host: host(1), caller: Caller::Uid(1), kind: Kind::Read, bytes, held: 0 }
}

fn set(limits: &Limits, rate: u64) {
    limits.set(share_plan(both(rate, Duration::from_secs(1))), ROOMY);
}

async fn admit(limits: &Limits, ask: &Ask<'_>) -> Admitted {
    limits.admit(ask, Duration::from_secs(3600)).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn sixteen_mebibytes_take_two_seconds_at_eight() {
    let limits = Limits::default();
    assert!(!admit(&limits, &ask(MIB)).await.is_limited());
    set(&limits, 8 * MIB);
    let began = tokio::time::Instant::now();
    for _ in 0..24 {
        limits.settle(admit(&limits, &ask(MIB)).await, MIB);
    }
    let took = began.elapsed();
    // The first eight are the burst.
    assert!(took >= ms(2000) && took < ms(2100), "{took:?}");
    let read = limits.read();
    let of_read = read.iter().find(|r| r.measure == Measure::Read).unwrap();
    assert_eq!((of_read.passed, of_read.waited), (24 * MIB, 16));
    assert!(of_read.waited_for >= ms(1900) && of_read.waiting == 0, "{of_read:?}");
}

#[tokio::test(start_paused = true)]
async fn what_was_not_moved_is_put_back() {
    let limits = Limits::default();
    set(&limits, 4 * MIB);
    let began = tokio::time::Instant::now();
    // Each asks for a mebibyte and finds ten bytes.
    for _ in 0..1000 {
        limits.settle(admit(&limits, &ask(MIB)).await, 10);
    }
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_eq!(limits.read()[0].passed, 10_000);
    // A copy owes what it moved, and no more than ten seconds of it.
    limits.settle(admit(&limits, &ask(0)).await, 1 << 40);
    limits.settle(admit(&limits, &ask(1)).await, 1);
    assert!(
        began.elapsed() >= Duration::from_secs(10) && began.elapsed() < Duration::from_secs(11)
    );
}

#[tokio::test(start_paused = true)]
async fn counter_of_what_passed_never_goes_down() {
    let limits = Limits::default();
    let client = Rates { read: Some(64 * MIB), ..Rates::default() };
    let all = Rates { read: Some(1 << 40), ..Rates::default() };
    limits.set(Plan { client, all, ..Plan::default() }, ROOMY);
    let mut last = vec![0; 2];
    for n in 0..5000u32 {
        let host = IpAddr::from((0x0a00_0000 + n).to_be_bytes());
        let admitted = admit(&limits, &Ask { host, ..ask(MIB) }).await;
        for moved in [None, Some(10)] {
            if let Some(moved) = moved {
                limits.settle(admitted, moved);
            }
            let now: Vec<_> = limits.read().iter().map(|r| r.passed).collect();
            assert!(now.iter().zip(&last).all(|(now, last)| now >= last), "{n}: {last:?} {now:?}");
            last = now;
        }
        advance(ms(10)).await;
    }
    // Addresses were forgotten meanwhile. The last request was shown before it was settled.
    assert!(last.iter().all(|n| (50_000..50_000 + MIB).contains(n)), "{last:?}");
}

#[tokio::test(start_paused = true)]
async fn request_that_must_not_wait_is_owed() {
    let limits = Arc::new(Limits::default());
    set(&limits, MIB);
    limits.settle(admit(&limits, &ask(MIB)).await, MIB);
    // It passes an empty bucket.
    let owed = limits.owe(&ask(2 * MIB));
    assert!(owed.is_limited() && !owed.has_waited());
    limits.settle(owed, 2 * MIB);
    // Others wait as if it had not passed, whatever else passes in this way meanwhile.
    let began = tokio::time::Instant::now();
    let other = Ask { host: "192.0.2.9".parse().unwrap(), ..ask(MIB) };
    let waits = admit(&limits, &other);
    let floods = async {
        for _ in 0..200 {
            let owed = limits.owe(&ask(MIB));
            limits.settle(owed, MIB);
            tokio::time::sleep(ms(10)).await;
        }
    };
    let (admitted, ()) = tokio::join!(async { (waits.await, began.elapsed()) }, floods);
    assert!(
        admitted.0.has_waited() && admitted.1 >= ms(990) && admitted.1 <= ms(1010),
        "{:?}",
        admitted.1
    );
    assert!(!limits.owe(&Ask { share: 2, ..ask(1) }).is_limited());
}

/// Its own rate keeps the debt.
#[tokio::test(start_paused = true)]
async fn client_waits_for_what_it_owes() {
    let limits = Arc::new(Limits::default());
    let client = both(MIB, Duration::from_secs(1));
    limits.set(Plan { client, ..Plan::default() }, ROOMY);
    limits.settle(admit(&limits, &ask(MIB)).await, MIB);
    limits.settle(limits.owe(&ask(2 * MIB)), 2 * MIB);
    let began = tokio::time::Instant::now();
    admit(&limits, &ask(MIB)).await.has_waited();
    assert!(began.elapsed() >= ms(2990) && began.elapsed() <= ms(3010), "{:?}", began.elapsed());
}

#[test]
fn users_by_name_have_own_lanes() {
    let engine = Engine::<()>::new(ROOMY);
    let key = |name| engine.key(1, "192.0.2.1".parse().unwrap(), Caller::Name(name), Kind::Write);
    // The sums of their bytes are equal modulo eight.
    assert_ne!(key("alice").user, key("erin").user);
    assert_eq!(key("alice"), key("ALICE"));
}

#[tokio::test(start_paused = true)]
async fn debt_of_a_faster_rate_lasts_ten_seconds_at_most() {
    let limits = Limits::default();
    set(&limits, 100 * MIB);
    limits.settle(admit(&limits, &ask(0)).await, 500 * MIB);
    set(&limits, 1000);
    let began = tokio::time::Instant::now();
    admit(&limits, &ask(1)).await.has_waited();
    assert!(began.elapsed() >= ms(9000) && began.elapsed() <= ms(10_100), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn reload_frees_those_who_wait_at_once() {
    let limits = Arc::new(Limits::default());
    set(&limits, 1000);
    let waits = |bytes| {
        let limits = limits.clone();
        tokio::spawn(async move { admit(&limits, &ask(bytes)).await })
    };
    admit(&limits, &ask(1000)).await.has_waited();
    let waiting: Vec<_> = (0..10).map(|_| waits(1_000_000)).collect();
    sleep(ms(10)).await;
    assert_eq!(limits.counts().0, 10);
    let began = tokio::time::Instant::now();
    limits.set(Plan::default(), ROOMY);
    for one in waiting {
        assert!(one.await.unwrap().has_waited());
    }
    assert_eq!((began.elapsed(), limits.counts().0), (Duration::ZERO, 0));
    set(&limits, 1000);
    admit(&limits, &ask(1000)).await.has_waited();
    let faster = waits(100_000);
    sleep(ms(10)).await;
    set(&limits, 100_000);
    let began = tokio::time::Instant::now();
    assert!(faster.await.unwrap().has_waited());
    assert!(began.elapsed() <= ms(1100), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn late_and_cancelled_requests_leave_their_places() {
    let limits = Arc::new(Limits::default());
    set(&limits, MIB);
    admit(&limits, &ask(MIB)).await.has_waited();
    let late = limits.admit(&ask(MIB), ms(100)).await;
    assert_eq!(late.unwrap_err(), Refused::Late);
    let cancelled = tokio::time::timeout(ms(100), admit(&limits, &ask(MIB))).await;
    assert!(cancelled.is_err());
    assert_eq!(limits.counts(), (0, 1));
    // They used no tokens: 0.2 of a second have refilled a fifth.
    let began = tokio::time::Instant::now();
    admit(&limits, &ask(MIB)).await.has_waited();
    assert!(began.elapsed() >= ms(790) && began.elapsed() <= ms(810), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn others_are_not_delayed_by_those_who_wait() {
    let limits = Arc::new(Limits::default());
    set(&limits, 1000);
    for _ in 0..100 {
        let limits = limits.clone();
        tokio::spawn(async move { admit(&limits, &ask(5000)).await });
    }
    sleep(ms(10)).await;
    let began = tokio::time::Instant::now();
    for kind in KINDS {
        let other = Ask { share: 2, kind, ..ask(MIB) };
        assert!(!admit(&limits, &other).await.is_limited());
    }
    // The share is the same, the kind is another.
    let other = Ask { kind: Kind::Other, ..ask(0) };
    admit(&limits, &other).await.has_waited();
    assert_eq!(began.elapsed(), Duration::ZERO);
    advance(ms(1)).await;
    limits.lift();
    assert_eq!(limits.counts().0, 0);
    assert!(!limits.is_on());
}
