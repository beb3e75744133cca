//! Clients that record which writes were acknowledged.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use client::connect::Local;
use client::target::Target;
use client::{Credential, Volume};
use iobuf::Buf;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::random::{asked, spread};
use crate::until;
use crate::world::{How, World};

pub const BLOCK: usize = 4096;

/// Opens a separate mount as root.
pub async fn connect(target: &str) -> client::Result<Volume> {
    let target: Target = target.parse().unwrap();
    Volume::open(&target, &Local::default(), Credential::sys(0, 0, &[])).await
}

/// Files that a client writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Files {
    /// A new file for each block.
    New,
    /// The same file, always from its start.
    Same,
    /// The end of one file, without a COMMIT, for storage that does not need it.
    End,
}

/// A client that writes one block after the other and records the acknowledged ones.
pub struct Writer {
    name: &'static str,
    target: String,
    files: Files,
    acknowledged: AtomicU64,
    /// Its longest stall in milliseconds.
    longest: AtomicU64,
    /// Whether the client must stop.
    stop: AtomicBool,
}

/// Returns the bytes of a block.
pub fn block(name: &str, number: u64) -> Vec<u8> {
    format!("{name} {number:08} ").into_bytes().into_iter().cycle().take(BLOCK).collect()
}

impl Writer {
    /// Creates a client that writes a new file for each block.
    pub fn new(name: &'static str, target: String) -> Arc<Self> {
        Self::of(name, target, Files::New)
    }

    /// Creates a client that overwrites the same file.
    pub fn of_one_file(name: &'static str, target: String) -> Arc<Self> {
        Self::of(name, target, Files::Same)
    }

    /// Creates a client that extends a file, without COMMIT.
    pub fn of_an_end(name: &'static str, target: String) -> Arc<Self> {
        Self::of(name, target, Files::End)
    }

    fn of(name: &'static str, target: String, files: Files) -> Arc<Self> {
        let (acknowledged, longest, stop) = Default::default();
        Arc::new(Self { name, target, files, acknowledged, longest, stop })
    }

    async fn connect(&self) -> client::Result<Volume> {
        connect(&self.target).await
    }

    fn file(&self, number: u64) -> String {
        match self.files {
            Files::New => format!("{}.{number}", self.name),
            Files::Same | Files::End => self.name.into(),
        }
    }

    /// Writes one block.
    async fn write(&self, volume: &Volume, number: u64) -> client::Result<()> {
        let name = self.file(number);
        // Creating it again would truncate acknowledged data.
        let file = if self.files != Files::New && number > 0 {
            volume.find(&name).await?
        } else {
            volume.create(&name).await?
        };
        let at = if self.files == Files::End { number * BLOCK as u64 } else { 0 };
        let taken = volume.write(&file, at, vec![Buf::from(block(self.name, number))]).await?;
        assert_eq!(taken as usize, BLOCK);
        if self.files != Files::End {
            volume.commit(&file).await?;
        }
        volume.close(file).await
    }

    async fn run(self: Arc<Self>) {
        let mut opened = None;
        let mut last = Instant::now();
        let mut said = String::new();
        while !self.stop.load(Ordering::Relaxed) {
            let number = self.acknowledged.load(Ordering::Relaxed);
            let once = async {
                let volume = match opened.take() {
                    Some(volume) => volume,
                    None => self.connect().await?,
                };
                self.write(opened.insert(volume), number).await
            };
            match timeout(Duration::from_secs(1), once).await {
                Ok(Ok(())) => {
                    let stall = u64::try_from(last.elapsed().as_millis()).unwrap();
                    self.longest.fetch_max(stall, Ordering::Relaxed);
                    last = Instant::now();
                    self.acknowledged.store(number + 1, Ordering::Relaxed);
                    sleep(Duration::from_millis(10)).await;
                }
                // Like a real client: connect and write again.
                failed => {
                    let why =
                        failed.map_or("no answer in a second".into(), |done| format!("{done:?}"));
                    if said != why {
                        println!("{} after {number} blocks: {why}", self.name);
                        said = why;
                    }
                    opened = None;
                    sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }

    fn count(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// Checks that every acknowledged block is in the share, whose files `read` returns.
    fn check(&self, read: &dyn Fn(&str) -> Vec<u8>) {
        let lost = |number| format!("{}: block {number} is lost", self.name);
        match self.files {
            Files::New => {
                for number in 0..self.count() {
                    assert_eq!(
                        read(&self.file(number)),
                        block(self.name, number),
                        "{}",
                        lost(number)
                    );
                }
            }
            Files::Same => {
                let data = read(self.name);
                // The next block may have been written although its answer was lost.
                let next = self.count();
                let is = |number| data == block(self.name, number);
                assert!(is(next - 1) || is(next), "{}", lost(next - 1));
            }
            Files::End => {
                let data = read(self.name);
                let mut blocks = data.chunks(BLOCK);
                for number in 0..self.count() {
                    let found = blocks.next().unwrap_or_default();
                    assert_eq!(found, block(self.name, number), "{}", lost(number));
                }
            }
        }
    }
}

/// Clients that write at the same time.
pub struct Writers {
    all: Vec<Arc<Writer>>,
    tasks: Vec<JoinHandle<()>>,
}

/// Result of a takeover by another node.
pub struct TakenOver {
    /// Name of the previous owner.
    pub owner: String,
    /// Its epoch.
    pub epoch: u64,
    /// Index of its node.
    pub node: usize,
    /// The longest stall of each client in milliseconds.
    pub stalls: Vec<u64>,
}

impl Writers {
    /// Starts all clients.
    pub async fn start(all: Vec<Arc<Writer>>) -> Self {
        let tasks = all.iter().map(|w| tokio::spawn(w.clone().run())).collect();
        let writers = Self { all, tasks };
        until("all clients write", || writers.have_gone_on(&vec![0; writers.all.len()])).await;
        writers
    }

    /// Returns the number of acknowledged blocks of each client.
    pub fn counts(&self) -> Vec<u64> {
        self.all.iter().map(|w| w.count()).collect()
    }

    fn have_gone_on(&self, from: &[u64]) -> bool {
        self.all.iter().zip(from).all(|(w, from)| w.count() > from + 5)
    }

    /// Ends the owner of the service in this way, and waits until all clients write again through another node.
    pub async fn taken_over(&self, world: &World, how: How) -> TakenOver {
        let (owner, epoch) = world.owner().unwrap();
        let node = usize::from(owner == "gw1");
        for writer in &self.all {
            writer.longest.store(0, Ordering::Relaxed);
        }
        world.strike(how, node);
        until("another node serves", || {
            world.owner().is_some_and(|(other, later)| other != owner && later > epoch)
        })
        .await;
        let before = self.counts();
        until(&format!("all clients write after {how:?}"), || self.have_gone_on(&before)).await;
        let stalls = self.all.iter().map(|w| w.longest.load(Ordering::Relaxed)).collect();
        TakenOver { owner, epoch, node, stalls }
    }

    /// Ends the nodes alternately, in all ways one after the other: `HEADGATE_TAKEOVERS` times (default 4), in the ways that
    /// `HEADGATE_TAKEOVER_WAYS` names. Prints the duration for each way.
    pub async fn taken_over_in_turn(&self, world: &mut World) {
        let rounds = usize::try_from(asked("HEADGATE_TAKEOVERS", 4)).unwrap();
        let named = std::env::var("HEADGATE_TAKEOVER_WAYS");
        let ways = named.unwrap_or("drain,kill,stop,cut".into());
        let ways = ways.split(',').map(|way| How::named(way).expect(way));
        let ways: Vec<How> = ways.collect();
        let mut took = BTreeMap::<(How, &str), Vec<u64>>::new();
        for how in ways.iter().cycle().take(rounds).copied() {
            until("some node serves", || world.owner().is_some()).await;
            let TakenOver { owner, epoch, node, stalls } = self.taken_over(world, how).await;
            let seconds = world.takeover_seconds(epoch).await;
            println!(
                "{how:?} of {owner} in epoch {epoch}: taken over in {seconds:.3} s; stalls in ms: {stalls:?}"
            );
            let milliseconds = u64::try_from(Duration::from_secs_f64(seconds).as_millis()).unwrap();
            took.entry((how, "from election to service")).or_default().push(milliseconds);
            for (writer, stall) in self.all.iter().zip(stalls) {
                took.entry((how, writer.name)).or_default().push(stall);
            }
            world.mend(how, node).await;
        }
        for ((how, name), mut list) in took {
            println!("| {how:?} | {name} | {} | {:?} ms |", list.len(), spread(&mut list));
        }
    }

    /// Stops the clients and checks that every acknowledged block is in the share.
    pub async fn end(self, share: &Path) {
        self.end_by(|| Box::new(|name| fs::read(share.join(name)).unwrap_or_default())).await;
    }

    /// Does the same for a share whose files the reader returns, after the last write.
    pub async fn end_by<'a>(self, reader: impl FnOnce() -> Box<dyn Fn(&str) -> Vec<u8> + 'a>) {
        for writer in &self.all {
            writer.stop.store(true, Ordering::Relaxed);
        }
        for task in self.tasks {
            task.await.unwrap();
        }
        let read = reader();
        for writer in &self.all {
            writer.check(&read);
        }
    }
}
