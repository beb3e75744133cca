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
    /// Its attributes, 32 at once.
    Getattr,
    /// Make, close and remove an empty file, one after the other.
    Create,
}

impl Kind {
    pub(super) const ALL: [Self; 5] =
        [Self::Write, Self::Read, Self::RandomRead, Self::Getattr, Self::Create];

    /// Its rate is in bytes.
    pub(super) fn is_bulk(self) -> bool {
        matches!(self, Self::Write | Self::Read)
    }

    pub(super) fn depth(self) -> usize {
        match self {
            Self::Write | Self::Read => 8,
            Self::RandomRead | Self::Getattr => 32,
            Self::Create => 1,
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::RandomRead => "random-read",
            Self::Getattr => "getattr",
            Self::Create => "create",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Write => "write 1 MiB, depth 8",
            Self::Read => "read 1 MiB, depth 8",
            Self::RandomRead => "random read 4 KiB, depth 32",
            Self::Getattr => "GETATTR, depth 32",
            Self::Create => "create+close+unlink, depth 1",
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
}

/// What one load reached.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) kind: Kind,
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
    began: Instant,
    client: Duration,
    server: Option<Duration>,
    pid: Option<u32>,
    latencies: RefCell<Vec<Duration>>,
}

impl Meter {
    fn begin(kind: Kind, pid: Option<u32>) -> Self {
        Self {
            kind,
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

/// Connects and runs each load once.
pub(super) async fn round(
    target: &Target,
    pid: Option<u32>,
    plan: &Plan,
    progress: &Progress,
) -> Result<Vec<Sample>> {
    let cred = Credential::sys(plan.user.0, plan.user.1, &[]);
    let volume = Volume::open(target, &Local::asking_for_crc(target.crc), cred).await?;
    // A file that an interrupted run left behind.
    let _ = volume.remove(FILE).await;
    let _ = volume.remove(MADE).await;
    let file = volume.create(FILE).await?;
    let mut samples = Vec::new();
    if !plan.kinds.contains(&Kind::Write) {
        write(&volume, &file, plan.size, &Meter::begin(Kind::Write, None)).await?;
    }
    for kind in &plan.kinds {
        progress.kind(*kind);
        samples.push(load(*kind, &volume, &file, plan, pid).await?);
        progress.step();
    }
    volume.close(file).await?;
    volume.remove(FILE).await?;
    volume.leave().await?;
    Ok(samples)
}

async fn load(
    kind: Kind,
    volume: &Volume,
    file: &File,
    plan: &Plan,
    pid: Option<u32>,
) -> Result<Sample> {
    let meter = Meter::begin(kind, pid);
    let mut bytes = 0;
    match kind {
        Kind::Write => bytes = write(volume, file, plan.size, &meter).await?,
        Kind::Read => bytes = read(volume, file, plan.size, &meter).await?,
        Kind::RandomRead => {
            let random = Random(Cell::new(0x9e37_79b9_7f4a_7c15));
            let places = plan.size / u64::from(SMALL);
            let until = meter.began + plan.time;
            let worker = || async {
                while Instant::now() < until {
                    let at = random.below(places) * u64::from(SMALL);
                    let (data, _) = meter.time(volume.read(file, at, SMALL)).await?;
                    expect(&data, u64::from(SMALL))?;
                }
                Ok::<(), Error>(())
            };
            try_join_all((0..kind.depth()).map(|_| worker())).await?;
        }
        Kind::Getattr => {
            let until = meter.began + plan.time;
            let worker = || async {
                while Instant::now() < until {
                    meter.time(volume.size(file)).await?;
                }
                Ok::<(), Error>(())
            };
            try_join_all((0..kind.depth()).map(|_| worker())).await?;
        }
        Kind::Create => {
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
        }
    }
    Ok(meter.end(bytes))
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

async fn write(volume: &Volume, file: &File, size: u64, meter: &Meter) -> Result<u64> {
    let (data, next) = (pattern(), Cell::new(0));
    let worker = || async {
        loop {
            let at = next.get();
            if at >= size {
                return Ok::<(), Error>(());
            }
            let n = MIB.min(size - at);
            next.set(at + n);
            let part = data.slice(0..usize::try_from(n).unwrap_or(0));
            let count = meter.time(volume.write(file, at, vec![part])).await?;
            if u64::from(count) != n {
                return Err(Error::Protocol(format!("a WRITE took {count} of {n} bytes")));
            }
        }
    };
    try_join_all((0..Kind::Write.depth()).map(|_| worker())).await?;
    volume.commit(file).await?;
    Ok(size)
}

async fn read(volume: &Volume, file: &File, size: u64, meter: &Meter) -> Result<u64> {
    let next = Cell::new(0);
    let worker = || async {
        loop {
            let at = next.get();
            if at >= size {
                return Ok::<(), Error>(());
            }
            let n = MIB.min(size - at);
            next.set(at + n);
            let count = u32::try_from(n).unwrap_or(0);
            let (data, _) = meter.time(volume.read(file, at, count)).await?;
            expect(&data, n)?;
        }
    };
    try_join_all((0..Kind::Read.depth()).map(|_| worker())).await?;
    Ok(size)
}
