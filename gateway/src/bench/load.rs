//! The loads: what is done, how many at once, and what is measured of it.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

use client::connect::Local;
use client::{Credential, Error, File, Result, Target, Volume};
use futures_util::future::try_join_all;
use iobuf::{Buf, BufMut};

use super::report::Progress;
use crate::cpu;

const MIB: u64 = 1 << 20;
const SMALL: u32 = 4096;
const FILE: &str = "headgate-bench.data";
const MADE: &str = "headgate-bench.made";

/// A kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A new file, sequentially, 1 MiB each, 8 at once.
    Write,
    /// The same file, sequentially, 1 MiB each, 8 at once.
    Read,
    /// 4 KiB anywhere in it, 32 at once.
    RandomRead,
    /// 4 KiB anywhere in it, 32 at once: seven of ten are read, three are written.
    Mixed,
    /// Its attributes, 32 at once.
    Getattr,
    /// Open a file by its name, ask for its attributes and close it, 32 at once.
    Open,
    /// Make, close and remove an empty file, one after the other.
    Create,
}

impl Kind {
    pub(super) const ALL: [Self; 7] = [
        Self::Write,
        Self::Read,
        Self::RandomRead,
        Self::Mixed,
        Self::Getattr,
        Self::Open,
        Self::Create,
    ];

    /// Its rate is in bytes.
    pub(super) fn is_bulk(self) -> bool {
        matches!(self, Self::Write | Self::Read)
    }

    /// Operations in flight, where nobody asked for another number.
    pub(super) fn depth(self) -> usize {
        match self {
            Self::Write | Self::Read => 8,
            Self::RandomRead | Self::Mixed | Self::Getattr | Self::Open => 32,
            Self::Create => 1,
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::RandomRead => "random-read",
            Self::Mixed => "mixed",
            Self::Getattr => "getattr",
            Self::Open => "open",
            Self::Create => "create",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Write => "write 1 MiB",
            Self::Read => "read 1 MiB",
            Self::RandomRead => "random read 4 KiB",
            Self::Mixed => "random 4 KiB, 7 read to 3 written",
            Self::Getattr => "GETATTR",
            Self::Open => "open+query+close",
            Self::Create => "create+close+unlink",
        })
    }
}

impl FromStr for Kind {
    type Err = String;
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        Self::ALL.into_iter().find(|k| k.word() == text).ok_or_else(|| {
            let all: Vec<&str> = Self::ALL.iter().map(|k| k.word()).collect();
            format!("there is no load `{text}`; there are {}", all.join(", "))
        })
    }
}

/// What to measure.
pub(super) struct Plan {
    pub(super) kinds: Vec<Kind>,
    /// Bytes of the file.
    pub(super) size: u64,
    /// How long each load of small operations runs.
    pub(super) time: Duration,
    pub(super) user: (u32, u32),
    /// Operations in flight, if not the usual number of each load.
    pub(super) depth: Option<usize>,
    /// Connections that they are spread over.
    pub(super) connections: usize,
}

impl Plan {
    pub(super) fn depth(&self, kind: Kind) -> usize {
        match kind {
            // Each is made and removed under one name.
            Kind::Create => 1,
            _ => self.depth.unwrap_or(kind.depth()),
        }
    }
}

/// What one load reached.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) kind: Kind,
    /// Operations that were in flight.
    pub(super) depth: usize,
    /// MB/s of bulk loads, operations per second of the others.
    pub(super) rate: f64,
    /// CPU time of this client per GiB or per operation.
    pub(super) client_cpu: Duration,
    /// CPU time of the server per GiB or per operation.
    pub(super) server_cpu: Option<Duration>,
    /// Latency at 50, 95 and 99 per cent, and the longest.
    pub(super) latency: [Duration; 4],
}

/// Takes times while a load runs.
struct Meter {
    kind: Kind,
    depth: usize,
    began: Instant,
    client: Duration,
    server: Option<Duration>,
    pid: Option<u32>,
    latencies: RefCell<Vec<Duration>>,
}

impl Meter {
    fn begin(kind: Kind, depth: usize, pid: Option<u32>) -> Self {
        Self {
            kind,
            depth,
            latencies: RefCell::default(),
            server: pid.and_then(cpu::of),
            client: cpu::own(),
            pid,
            began: Instant::now(),
        }
    }

    async fn time<T>(&self, operation: impl Future<Output = Result<T>>) -> Result<T> {
        let began = Instant::now();
        let done = operation.await?;
        self.latencies.borrow_mut().push(began.elapsed());
        Ok(done)
    }

    /// `bytes`: moved in all, for bulk loads.
    #[allow(clippy::cast_precision_loss)] // Rates are for reading.
    fn end(self, bytes: u64) -> Sample {
        let elapsed = self.began.elapsed().as_secs_f64();
        let client = cpu::own().saturating_sub(self.client);
        let server = self.pid.and_then(cpu::of).zip(self.server).map(|(a, b)| a.saturating_sub(b));
        let mut latencies = self.latencies.into_inner();
        latencies.sort_unstable();
        let done = latencies.len();
        let at = |per_cent: usize| {
            latencies
                .get((done * per_cent / 100).min(done.saturating_sub(1)))
                .copied()
                .unwrap_or_default()
        };
        let (units, rate) = match self.kind.is_bulk() {
            true => (bytes as f64 / (1u64 << 30) as f64, bytes as f64 / 1e6 / elapsed),
            false => (done as f64, done as f64 / elapsed),
        };
        let per_unit = |cpu: Duration| cpu.div_f64(units.max(f64::MIN_POSITIVE));
        Sample {
            kind: self.kind,
            depth: self.depth,
            rate,
            client_cpu: per_unit(client),
            server_cpu: server.map(per_unit),
            latency: [at(50), at(95), at(99), at(100)],
        }
    }
}

/// Small, fast and good enough to spread reads over a file (xorshift64*).
struct Random(Cell<u64>);

impl Random {
    fn below(&self, n: u64) -> u64 {
        let mut x = self.0.get();
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.0.set(x);
        x.wrapping_mul(0x2545_f491_4f6c_dd1d) % n.max(1)
    }
}

/// The connections, each with the file open.
struct Under(Vec<(Volume, File)>);

impl Under {
    async fn open(target: &Target, plan: &Plan) -> Result<Self> {
        let mut members = Vec::new();
        for n in 0..plan.connections {
            let cred = Credential::sys(plan.user.0, plan.user.1, &[]);
            let volume = Volume::open(target, &Local::asking_for_crc(target.crc), cred).await?;
            if n == 0 {
                // Files that an interrupted run left behind.
                let _ = volume.remove(FILE).await;
                let _ = volume.remove(MADE).await;
            }
            let file = volume.create(FILE).await?;
            members.push((volume, file));
        }
        Ok(Self(members))
    }

    /// Whom the worker of this number uses.
    fn of(&self, worker: usize) -> (&Volume, &File) {
        // Invariant: there is one connection at least.
        let (volume, file) = &self.0[worker % self.0.len()];
        (volume, file)
    }

    async fn close(self) -> Result<()> {
        let mut volumes = Vec::new();
        for (volume, file) in self.0 {
            volume.close(file).await?;
            volumes.push(volume);
        }
        if let Some(first) = volumes.first() {
            first.remove(FILE).await?;
        }
        for volume in volumes {
            volume.leave().await?;
        }
        Ok(())
    }
}

/// Connects and runs each load once.
pub(super) async fn round(
    target: &Target,
    pid: Option<u32>,
    plan: &Plan,
    progress: &Progress,
) -> Result<Vec<Sample>> {
    let under = Under::open(target, plan).await?;
    let mut samples = Vec::new();
    if !plan.kinds.contains(&Kind::Write) {
        write(&under, plan.size, &Meter::begin(Kind::Write, Kind::Write.depth(), None)).await?;
    }
    for kind in &plan.kinds {
        progress.kind(*kind);
        samples.push(load(*kind, &under, plan, pid).await?);
        progress.step();
    }
    under.close().await?;
    Ok(samples)
}

async fn load(kind: Kind, under: &Under, plan: &Plan, pid: Option<u32>) -> Result<Sample> {
    let meter = Meter::begin(kind, plan.depth(kind), pid);
    let bytes = match kind {
        Kind::Write => write(under, plan.size, &meter).await?,
        Kind::Read => read(under, plan.size, &meter).await?,
        Kind::RandomRead => random(under, plan, &meter, 10).await?,
        Kind::Mixed => random(under, plan, &meter, 7).await?,
        Kind::Getattr => getattr(under, plan, &meter).await?,
        Kind::Open => open(under, plan, &meter).await?,
        Kind::Create => create(under, plan, &meter).await?,
    };
    Ok(meter.end(bytes))
}

/// 4 KiB anywhere in the file; of ten, so many are read and the others written.
async fn random(under: &Under, plan: &Plan, meter: &Meter, reads: u64) -> Result<u64> {
    let random = Random(Cell::new(0x9e37_79b9_7f4a_7c15));
    let places = plan.size / u64::from(SMALL);
    let until = meter.began + plan.time;
    let small = pattern().slice(0..4096);
    let worker = |n| {
        let ((volume, file), random, small) = (under.of(n), &random, &small);
        async move {
            while Instant::now() < until {
                let at = random.below(places) * u64::from(SMALL);
                if random.below(10) < reads {
                    let (data, _) = meter.time(volume.read(file, at, SMALL)).await?;
                    expect(&data, u64::from(SMALL))?;
                } else {
                    let count = meter.time(volume.write(file, at, vec![small.clone()])).await?;
                    taken(count, u64::from(SMALL))?;
                }
            }
            Ok::<(), Error>(())
        }
    };
    try_join_all((0..meter.depth).map(worker)).await?;
    Ok(0)
}

async fn getattr(under: &Under, plan: &Plan, meter: &Meter) -> Result<u64> {
    let until = meter.began + plan.time;
    let worker = |n| async move {
        let (volume, file) = under.of(n);
        while Instant::now() < until {
            meter.time(volume.size(file)).await?;
        }
        Ok::<(), Error>(())
    };
    try_join_all((0..meter.depth).map(worker)).await?;
    Ok(0)
}

async fn open(under: &Under, plan: &Plan, meter: &Meter) -> Result<u64> {
    let until = meter.began + plan.time;
    let worker = |n| async move {
        let (volume, _) = under.of(n);
        while Instant::now() < until {
            meter
                .time(async {
                    let file = volume.find(FILE).await?;
                    volume.size(&file).await?;
                    volume.close(file).await
                })
                .await?;
        }
        Ok::<(), Error>(())
    };
    try_join_all((0..meter.depth).map(worker)).await?;
    Ok(0)
}

async fn create(under: &Under, plan: &Plan, meter: &Meter) -> Result<u64> {
    let (volume, _) = under.of(0);
    let until = meter.began + plan.time;
    while Instant::now() < until {
        meter
            .time(async {
                let made = volume.create(MADE).await?;
                volume.close(made).await?;
                volume.remove(MADE).await
            })
            .await?;
    }
    Ok(0)
}

fn taken(count: u32, want: u64) -> Result<()> {
    if u64::from(count) == want {
        return Ok(());
    }
    Err(Error::Protocol(format!("a WRITE took {count} of {want} bytes")))
}

fn expect(data: &[Buf], want: u64) -> Result<()> {
    let have: usize = data.iter().map(Buf::len).sum();
    if u64::try_from(have) == Ok(want) {
        return Ok(());
    }
    Err(Error::Protocol(format!("a READ gave {have} of {want} bytes")))
}

/// One MiB that does not repeat within itself.
fn pattern() -> Buf {
    let random = Random(Cell::new(88_172_645_463_325_252));
    let mut data = BufMut::heap(1 << 20);
    for word in data.whole_mut().chunks_exact_mut(8) {
        word.copy_from_slice(&random.below(u64::MAX).to_le_bytes());
    }
    data.set_filled(1 << 20);
    data.freeze()
}

async fn write(under: &Under, size: u64, meter: &Meter) -> Result<u64> {
    let (data, next) = (pattern(), Cell::new(0));
    let worker = |n| {
        let ((volume, file), data, next) = (under.of(n), &data, &next);
        async move {
            while let Some((at, n)) = part(next, size) {
                let piece = data.slice(0..usize::try_from(n).unwrap_or(0));
                taken(meter.time(volume.write(file, at, vec![piece])).await?, n)?;
            }
            Ok::<(), Error>(())
        }
    };
    try_join_all((0..meter.depth).map(worker)).await?;
    let (volume, file) = under.of(0);
    volume.commit(file).await?;
    Ok(size)
}

async fn read(under: &Under, size: u64, meter: &Meter) -> Result<u64> {
    let next = Cell::new(0);
    let worker = |n| {
        let ((volume, file), next) = (under.of(n), &next);
        async move {
            while let Some((at, n)) = part(next, size) {
                let count = u32::try_from(n).unwrap_or(0);
                let (data, _) = meter.time(volume.read(file, at, count)).await?;
                expect(&data, n)?;
            }
            Ok::<(), Error>(())
        }
    };
    try_join_all((0..meter.depth).map(worker)).await?;
    Ok(size)
}

/// The next MiB of the file, offset and bytes; `None` behind its end.
fn part(next: &Cell<u64>, size: u64) -> Option<(u64, u64)> {
    let at = next.get();
    let n = MIB.min(size.saturating_sub(at));
    next.set(at + n);
    (n > 0).then_some((at, n))
}
