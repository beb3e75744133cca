//! Simulates a power loss at every step. Whichever unsynced writes reached the disk, the store opens with all acknowledged commits,
//! and possibly the commit in progress.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use recovery::{Change, Kind, Store};
use redb::StorageBackend;

/// A disk that separates synced from unsynced writes.
#[derive(Debug, Default)]
struct Disk {
    /// The contents that certainly survive a power loss.
    durable: Vec<u8>,
    /// Unsynced steps, in order.
    loose: Vec<Step>,
    /// The contents that a reader sees.
    seen: Vec<u8>,
    /// Steps until the power fails; all later steps fail.
    left: Option<usize>,
    steps: usize,
}

#[derive(Clone, Debug)]
enum Step {
    Write(u64, Vec<u8>),
    Len(u64),
}

fn apply(image: &mut Vec<u8>, step: &Step) {
    match step {
        Step::Len(len) => image.resize(usize::try_from(*len).unwrap(), 0),
        Step::Write(at, data) => {
            let at = usize::try_from(*at).unwrap();
            if image.len() < at + data.len() {
                image.resize(at + data.len(), 0);
            }
            image[at..at + data.len()].copy_from_slice(data);
        }
    }
}

/// A small random generator: equal seeds cause equal damage.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

impl Disk {
    fn step(&mut self) -> io::Result<()> {
        self.steps += 1;
        match &mut self.left {
            Some(0) => Err(io::Error::other("the power is off")),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn change(&mut self, step: Step) -> io::Result<()> {
        self.step()?;
        apply(&mut self.seen, &step);
        self.loose.push(step);
        Ok(())
    }

    /// Returns possible contents after a power loss: each unsynced write is complete, absent or partial by sector, in any order.
    fn after_power_loss(&self, dice: &mut Dice) -> Vec<u8> {
        const SECTOR: usize = 512;
        let mut image = self.durable.clone();
        for step in &self.loose {
            match step {
                Step::Len(_) if dice.roll(2) == 0 => apply(&mut image, step),
                Step::Len(_) => {}
                Step::Write(at, data) => match dice.roll(3) {
                    0 => {}
                    1 => apply(&mut image, step),
                    _ => {
                        for (n, sector) in data.chunks(SECTOR).enumerate() {
                            if dice.roll(2) == 0 {
                                let at = at + (n * SECTOR) as u64;
                                apply(&mut image, &Step::Write(at, sector.to_vec()));
                            }
                        }
                    }
                },
            }
        }
        image
    }
}

#[derive(Clone, Debug, Default)]
struct Layer(Arc<Mutex<Disk>>);

impl Layer {
    fn of(image: Vec<u8>) -> Self {
        Self(Arc::new(Mutex::new(Disk { seen: image.clone(), durable: image, ..Disk::default() })))
    }
}

impl StorageBackend for Layer {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().seen.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let disk = self.0.lock().unwrap();
        let at = usize::try_from(offset).unwrap();
        let from = disk.seen.get(at..at + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(from);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.lock().unwrap().change(Step::Len(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut disk = self.0.lock().unwrap();
        disk.step()?;
        disk.durable = disk.seen.clone();
        disk.loose.clear();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.lock().unwrap().change(Step::Write(offset, data.to_vec()))
    }
}

type Contents = BTreeMap<Box<[u8]>, Box<[u8]>>;

fn contents(store: &Store) -> Contents {
    [Kind::SmbOpen, Kind::NfsClient].iter().flat_map(|k| store.read(*k).unwrap()).collect()
}

/// Returns transaction `n`, the same in every run: it adds, changes and removes records of two kinds.
fn transaction(n: u8) -> Vec<Change> {
    let open = [b'o', n % 5];
    let mut changes = vec![Change::put(Kind::SmbOpen, &open, &vec![n; 40 * usize::from(n)])];
    changes.push(Change::put(Kind::NfsClient, &[b'n', n], b"client"));
    if n > 2 {
        changes.push(Change::remove(Kind::NfsClient, &[b'n', n - 3]));
    }
    changes
}

fn expected(n: u8) -> Contents {
    let mut all = Contents::new();
    for change in (0..n).flat_map(transaction) {
        match change {
            Change::Put(_, key, value) => drop(all.insert(key, value)),
            Change::Remove(_, key) => drop(all.remove(&key)),
        }
    }
    all
}

const TRANSACTIONS: u8 = 12;

/// Runs until the power fails after `steps` steps; returns the number of acknowledged transactions.
fn run_until(steps: usize) -> (Layer, u8) {
    let layer = Layer::default();
    let again = layer.clone();
    let store = Store::on_backend(true, move || again.clone()).unwrap();
    layer.0.lock().unwrap().left = Some(steps);
    let mut acknowledged = 0;
    for n in 0..TRANSACTIONS {
        if store.commit_blocking(transaction(n)).is_err() {
            break;
        }
        acknowledged += 1;
    }
    drop(store);
    (layer, acknowledged)
}

#[test]
fn power_loss_leaves_committed_state() {
    let mut finished = false;
    let mut cut = 0;
    for steps in 0.. {
        let (layer, acknowledged) = run_until(steps);
        for seed in 1..=5 {
            let mut dice = Dice(seed * 0x9e37_79b9 + steps as u64);
            let image = layer.0.lock().unwrap().after_power_loss(&mut dice);
            let found = Layer::of(image);
            let store = Store::on_backend(false, move || found.clone())
                .unwrap_or_else(|e| panic!("step {steps}, seed {seed}: {e}"));
            let found = contents(&store);
            let under_way = (acknowledged + 1).min(TRANSACTIONS);
            assert!(
                found == expected(acknowledged) || found == expected(under_way),
                "step {steps}, seed {seed}: {acknowledged} were acknowledged, and neither these nor one more are there"
            );
            // The store continues to work.
            store.commit_blocking(transaction(200)).unwrap();
            cut += 1;
        }
        finished = acknowledged == TRANSACTIONS
            && layer.0.lock().unwrap().left.is_some_and(|left| left > 0);
        if finished {
            break;
        }
    }
    assert!(finished && cut > 300, "{cut} power losses");
}

#[test]
fn recovered_disk_is_written_again() {
    let layer = Layer::default();
    let again = layer.clone();
    let store = Store::on_backend(true, move || again.clone()).unwrap();
    store.commit_blocking(transaction(0)).unwrap();
    layer.0.lock().unwrap().left = Some(0);
    assert!(store.commit_blocking(transaction(1)).is_err());
    assert!(store.commit_blocking(transaction(1)).is_err(), "and says so every time");
    layer.0.lock().unwrap().left = None;
    store.commit_blocking(transaction(1)).unwrap();
    assert_eq!(contents(&store), expected(2));
}

#[test]
fn flipped_byte_is_detected_or_harmless() {
    let (layer, acknowledged) = run_until(usize::MAX);
    assert_eq!(acknowledged, TRANSACTIONS);
    let image = layer.0.lock().unwrap().durable.clone();
    let want = expected(TRANSACTIONS);
    let mut refused = 0;
    // Every byte of the header, and a sample of the rest, which is mostly empty.
    let sample = (0..320).chain((320..image.len()).step_by(2_039));
    for at in sample {
        let mut bad = image.clone();
        bad[at] ^= 0x40;
        let found = Layer::of(bad);
        match Store::on_backend(false, move || found.clone()) {
            Err(_) => refused += 1,
            Ok(store) => assert_eq!(contents(&store), want, "byte {at}"),
        }
    }
    assert!(refused > 20, "{refused} were noticed");
}
