//! Takeovers in random order at random moments, with three members of etcd.
//!
//! `HEADGATE_TAKEOVERS=50` sets their number, `HEADGATE_TAKEOVER_SEED` the choices.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::sleep;

use crate::load::{TakenOver, Writer, Writers};
use crate::until;
use crate::world::{How, Setup, World};

/// One takeover in this many finds etcd without its previous leader.
const LEADER_EVERY: u64 = 5;

/// Random numbers from a seed (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }
}

pub fn asked(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().expect(name))
}

/// Returns the minimum, the median, the 90th and the 99th percentile, and the maximum.
pub fn spread(stalls: &mut [u64]) -> [u64; 5] {
    stalls.sort_unstable();
    let at = |part: usize| stalls[(stalls.len() - 1) * part / 100];
    [at(0), at(50), at(90), at(99), at(100)]
}

#[tokio::test(flavor = "multi_thread")]
async fn takeovers_in_any_order_lose_nothing_that_was_acknowledged() {
    let (rounds, seed) = (asked("HEADGATE_TAKEOVERS", 3), asked("HEADGATE_TAKEOVER_SEED", 1));
    let mut random = Random(seed);
    let mut world = World::of(Setup { has_three_members: true, ..Setup::default() }).await;
    until("the service is served", || world.has_address(0)).await;
    world.start(1);
    let vip = world.vip();
    let v3 = format!("nfs://{vip}/data?version=3&mountport=2049");
    let writers = Writers::start(vec![
        Writer::new("v3", v3.clone()),
        Writer::new("v41", format!("nfs://{vip}/data?version=4.1")),
        Writer::new("smb", format!("smb://alice:moves-with-it@{vip}/data")),
        Writer::of_one_file("again", v3),
    ])
    .await;
    let mut stalls = BTreeMap::<(How, &str), Vec<u64>>::new();
    for round in 0..rounds {
        // Some of these moments are within the grace period of the previous takeover.
        sleep(Duration::from_millis(random.below(3000))).await;
        let leader = (round % LEADER_EVERY == LEADER_EVERY / 2).then(|| world.kill_leader());
        let how = [How::Drain, How::Kill, How::Cut, How::StandStill]
            [usize::try_from(random.below(4)).unwrap()];
        // An owner without contact to etcd for too long has stopped, and any node may be the next owner.
        until("some node serves", || world.owner().is_some()).await;
        let TakenOver { owner, epoch, node, stalls: these } = writers.taken_over(&world, how).await;
        println!(
            "{round}: {how:?} of {owner} in epoch {epoch}, leader killed: {leader:?}; stalls in ms: {these:?}"
        );
        for (name, stall) in ["v3", "v41", "smb", "again"].into_iter().zip(these) {
            stalls.entry((how, name)).or_default().push(stall);
        }
        world.mend(how, node).await;
        if let Some(leader) = leader {
            world.start_etcd(leader);
        }
    }
    let counts = writers.counts();
    writers.end(&world.path("share")).await;
    println!("acknowledged and there: {counts:?} blocks at least, seed {seed}");
    for ((how, name), mut list) in stalls {
        println!("| {how:?} | {name} | {} | {:?} |", list.len(), spread(&mut list));
    }
}
