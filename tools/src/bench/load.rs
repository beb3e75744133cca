//! The loads: their operations, concurrency and measurements.

use std::cell::{Cell, RefCell};
use std::str::FromStr;
use std::time::{Duration, Instant};

use client::connect::Local;
use client::target::Protocol;
use client::{Credential, Error, File, Result, Target, Volume};
use futures_util::future::try_join_all;
use iobuf::{Buf, BufMut};

use super::report::Progress;
use super::sample::{Kind, Latency, Sample};
use crate::cpu;

/// Time for removing the files of a run that failed or was interrupted.
const CLEAN_MAX: Duration = Duration::from_secs(10);
/// Pause between two such attempts: the server may not have noticed yet that the run's connections are closed.
const CLEAN_AGAIN: Duration = Duration::from_millis(100);

/// A result whose error is one line.
type Told<T> = std::result::Result<T, String>;

/// File names of one run. They are unique, because several runs may use one share at the same time.
pub(super) struct Names {
    /// Common prefix of the names.
    all: String,
    file: String,
    made: String,
}

impl Names {
    /// Creates new names. The error is one line.
    pub(super) fn new() -> Told<Self> {
        let mut random = [0; 6];
        getrandom::fill(&mut random).map_err(|e| format!("no random numbers: {e}"))?;
        let digits: String = random.iter().map(|b| format!("{b:02x}")).collect();
        let all = format!("headgate-bench-{digits}");
        Ok(Self { file: format!("{all}.data"), made: format!("{all}.made"), all })
    }
}

/// Loads that one word selects: a single load, or a group.
#[derive(Clone, Debug)]
pub(super) struct Loads(Vec<Kind>);

impl Loads {
    /// Returns the loads that these words select, each once; all loads if the list is empty.
    pub(super) fn asked_for(words: &[Self]) -> Vec<Kind> {
        let asked = |kind: &Kind| words.is_empty() || words.iter().any(|w| w.0.contains(kind));
        Kind::ALL.into_iter().filter(asked).collect()
    }
}

impl FromStr for Loads {
    type Err = String;
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let kinds = match text {
            "sequential" => vec![Kind::Write, Kind::Read],
            "random" => vec![Kind::RandomRead, Kind::RandomWrite],
            "metadata" => vec![Kind::Getattr, Kind::Open, Kind::Create],
            _ => Kind::ALL.into_iter().filter(|k| k.word() == text).collect(),
        };
        if kinds.is_empty() {
            let all: Vec<&str> = Kind::ALL.iter().map(|k| k.word()).collect();
            return Err(format!(
                "there is no load `{text}`; the loads are {}, and the groups sequential, random and metadata",
                all.join(", ")
            ));
        }
        Ok(Self(kinds))
    }
}

/// The loads and settings of a measurement.
pub(super) struct Plan {
    pub(super) kinds: Vec<Kind>,
    pub(super) size: u64,
    /// Run time of each load of small operations.
    pub(super) time: Duration,
    pub(super) user: (u32, u32),
    /// Operations in flight, if other than the default of each load.
    pub(super) depth: Option<usize>,
    /// Bytes of one operation of the sequential loads, and of the random ones.
    pub(super) blocks: (u32, u32),
    /// Connections that share the operations.
    pub(super) connections: usize,
    pub(super) names: Names,
}

impl Plan {
    pub(super) fn depth(&self, kind: Kind) -> usize {
        match kind {
            // Each file is made and removed under one name, so only one can be in flight.
            Kind::Create => 1,
            _ => self.depth.unwrap_or(kind.depth()),
        }
    }

    /// Returns the bytes that one operation moves.
    fn block(&self, kind: Kind) -> u32 {
        match kind {
            Kind::Write | Kind::Read => self.blocks.0,
            Kind::RandomRead | Kind::RandomWrite | Kind::Mixed => self.blocks.1,
            Kind::Getattr | Kind::Open | Kind::Create => 0,
        }
    }
}

/// Operations between two updates of the progress.
const BETWEEN_LOOKS: usize = 64;

/// Measures times while a load runs.
struct Meter<'a> {
    kind: Kind,
    depth: usize,
    block: u32,
    began: Instant,
    client: Duration,
    server: Option<Duration>,
    pid: Option<u32>,
    latencies: RefCell<Vec<Duration>>,
    whole: Whole,
    progress: &'a Progress,
}

/// The end of a load.
#[derive(Clone, Copy)]
enum Whole {
    /// Ends after this number of operations.
    Operations(u64),
    /// Ends after this time.
    Time(Duration),
}

impl<'a> Meter<'a> {
    fn begin(kind: Kind, plan: &Plan, pid: Option<u32>, progress: &'a Progress) -> Self {
        let block = plan.block(kind);
        let whole = match kind.is_bulk() {
            true => Whole::Operations(plan.size.div_ceil(u64::from(block))),
            false => Whole::Time(plan.time),
        };
        Self {
            kind,
            depth: plan.depth(kind),
            block,
            latencies: RefCell::default(),
            server: pid.and_then(cpu::of),
            client: cpu::own(),
            pid,
            whole,
            progress,
            began: Instant::now(),
        }
    }

    async fn time<T>(&self, operation: impl Future<Output = Result<T>>) -> Result<T> {
        let began = Instant::now();
        let done = operation.await?;
        let mut latencies = self.latencies.borrow_mut();
        latencies.push(began.elapsed());
        if latencies.len().is_multiple_of(BETWEEN_LOOKS) {
            self.progress.within(self.part_done(latencies.len()));
        }
        Ok(done)
    }

    /// Returns the finished part, from 0 to 1.
    #[allow(clippy::cast_precision_loss)] // For a bar on a screen.
    fn part_done(&self, operations: usize) -> f64 {
        match self.whole {
            Whole::Operations(all) => operations as f64 / all.max(1) as f64,
            Whole::Time(all) => self.began.elapsed().as_secs_f64() / all.as_secs_f64(),
        }
    }

    /// Ends the measurement. `bytes`: total of a bulk load.
    #[allow(clippy::cast_precision_loss)] // Rates are for reading.
    fn end(self, bytes: u64) -> Sample {
        let elapsed = self.began.elapsed().as_secs_f64();
        let client = cpu::own().saturating_sub(self.client);
        let server = self.pid.and_then(cpu::of).zip(self.server).map(|(a, b)| a.saturating_sub(b));
        let latencies = self.latencies.into_inner();
        let done = latencies.len();
        let (units, rate) = match self.kind.is_bulk() {
            true => (bytes as f64 / (1u64 << 30) as f64, bytes as f64 / 1e6 / elapsed),
            false => (done as f64, done as f64 / elapsed),
        };
        let per_unit = |cpu: Duration| if units > 0.0 { cpu.div_f64(units) } else { cpu };
        Sample {
            kind: self.kind,
            depth: self.depth,
            block: self.block,
            rate,
            client_cpu: per_unit(client),
            server_cpu: server.map(per_unit),
            latency: Latency::of(latencies),
        }
    }
}

/// A small and fast generator, good enough to spread reads over a file (xorshift64*).
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

/// Longest time for opening a share.
const OPEN_MAX: Duration = Duration::from_secs(10);

/// Opens a share. If that fails or takes too long, the error suggests that the port may belong to another protocol: such a server
/// hangs up, or waits for more.
async fn opened<T>(target: &Target, opening: impl Future<Output = Result<T>>) -> Result<T> {
    let protocol = match target.protocol {
        Protocol::Nfs { .. } => "NFS",
        Protocol::Smb { .. } => "SMB",
    };
    let doubt =
        |what: String| Error::Connect(format!("{what}; does that address serve {protocol}?"));
    match tokio::time::timeout(OPEN_MAX, opening).await {
        Err(_) => Err(doubt("no answer".into())),
        Ok(Err(Error::Down(why))) => Err(doubt(format!("the connection ended ({why})"))),
        Ok(done) => done,
    }
}

/// The connections, each with the file open.
struct Under(Vec<(Volume, File)>);

impl Under {
    /// Opens all connections. Sets `is_made` before the file may exist on the share. The error is one line.
    async fn open(target: &Target, plan: &Plan, is_made: &Cell<bool>) -> Told<Self> {
        let mut members = Vec::new();
        let told = |e: Error| e.to_string();
        for n in 0..plan.connections {
            let cred = Credential::sys(plan.user.0, plan.user.1, &[]);
            let local = match target.device {
                true => Local::by_device(),
                false => Local::asking_for_crc(target.crc),
            };
            let volume = opened(target, Volume::open(target, &local, cred)).await.map_err(told)?;
            // If the server does not report its free space, writing will show it.
            if n == 0
                && let Ok(Some(free)) = volume.free().await
                && free < plan.size
            {
                let [size, free] = [plan.size, free].map(crate::table::bytes);
                return Err(format!(
                    "the file takes {size}, and the share has {free} free; give a smaller --size"
                ));
            }
            is_made.set(true);
            let file = volume.create(&plan.names.file).await.map_err(told)?;
            members.push((volume, file));
        }
        Ok(Self(members))
    }

    /// Returns the connection and file for this worker.
    fn of(&self, worker: usize) -> (&Volume, &File) {
        // Invariant: there is at least one connection.
        let (volume, file) = &self.0[worker % self.0.len()];
        (volume, file)
    }

    async fn close(self, names: &Names) -> Result<()> {
        let mut volumes = Vec::new();
        for (volume, file) in self.0 {
            volume.close(file).await?;
            volumes.push(volume);
        }
        if let Some(first) = volumes.first() {
            first.remove(&names.file).await?;
        }
        for volume in volumes {
            volume.leave().await?;
        }
        Ok(())
    }
}

/// Connects and runs each load once. Removes its files in any case. The error is one line.
pub(super) async fn round(
    target: &Target,
    pid: Option<u32>,
    plan: &Plan,
    progress: &Progress,
) -> Told<Vec<Sample>> {
    let is_made = Cell::new(false);
    let measured = async {
        let under = Under::open(target, plan, &is_made).await?;
        measured(under, pid, plan, progress).await.map_err(|e| e.to_string())
    };
    let done = tokio::select! {
        // Polled first, which installs the handlers: a signal before that would leave the files.
        biased;
        () = crate::interrupt::signalled() => Err("interrupted".into()),
        done = measured => done,
    };
    match done {
        Err(why) if is_made.get() => {
            let cleaned = tokio::time::timeout(CLEAN_MAX, clean(target, plan)).await;
            Err(match cleaned {
                Ok(Ok(())) => why,
                _ => format!("{why}; files that begin with {} stay on the share", plan.names.all),
            })
        }
        done => done,
    }
}

/// Removes the files of a run, over a separate connection.
async fn clean(target: &Target, plan: &Plan) -> Result<()> {
    let cred = Credential::sys(plan.user.0, plan.user.1, &[]);
    let local = match target.device {
        true => Local::by_device(),
        false => Local::asking_for_crc(target.crc),
    };
    let volume = Volume::open(target, &local, cred).await?;
    loop {
        let names = volume.list().await?.into_iter();
        let left: Vec<Vec<u8>> =
            names.filter(|n| n.starts_with(plan.names.all.as_bytes())).collect();
        if left.is_empty() {
            return volume.leave().await;
        }
        for name in &left {
            // A file that is still open is tried again.
            let _ = volume.remove(&String::from_utf8_lossy(name)).await;
        }
        tokio::time::sleep(CLEAN_AGAIN).await;
    }
}

async fn measured(
    under: Under,
    pid: Option<u32>,
    plan: &Plan,
    progress: &Progress,
) -> Result<Vec<Sample>> {
    let mut samples = Vec::new();
    if !plan.kinds.contains(&Kind::Write) {
        // Reads need an existing file.
        progress.preparing();
        load(Kind::Write, &under, plan, None, progress).await?;
    }
    for kind in &plan.kinds {
        progress.kind(*kind);
        samples.push(load(*kind, &under, plan, pid, progress).await?);
        progress.step();
    }
    under.close(&plan.names).await?;
    Ok(samples)
}

async fn load(
    kind: Kind,
    under: &Under,
    plan: &Plan,
    pid: Option<u32>,
    progress: &Progress,
) -> Result<Sample> {
    let meter = Meter::begin(kind, plan, pid, progress);
    let bytes = match kind {
        Kind::Write => write(under, plan.size, &meter).await?,
        Kind::Read => read(under, plan.size, &meter).await?,
        Kind::RandomRead => random(under, plan, &meter, 10).await?,
        Kind::RandomWrite => random(under, plan, &meter, 0).await?,
        Kind::Mixed => random(under, plan, &meter, 7).await?,
        Kind::Getattr => getattr(under, plan, &meter).await?,
        Kind::Open => open(under, plan, &meter).await?,
        Kind::Create => create(under, plan, &meter).await?,
    };
    Ok(meter.end(bytes))
}

/// Reads or writes blocks at random offsets; `reads` of ten operations are reads.
async fn random(under: &Under, plan: &Plan, meter: &Meter<'_>, reads: u64) -> Result<u64> {
    let random = Random(Cell::new(0x9e37_79b9_7f4a_7c15));
    let (block, until) = (meter.block, meter.began + plan.time);
    let places = plan.size / u64::from(block);
    let data = pattern(block);
    let worker = |n| {
        let ((volume, file), random, data) = (under.of(n), &random, &data);
        async move {
            loop {
                let at = random.below(places) * u64::from(block);
                if random.below(10) < reads {
                    let (data, _) = meter.time(volume.read(file, at, block)).await?;
                    expect(&data, block)?;
                } else {
                    let count = meter.time(volume.write(file, at, vec![data.clone()])).await?;
                    taken(count, block)?;
                }
                if Instant::now() >= until {
                    return Ok::<(), Error>(());
                }
            }
        }
    };
    try_join_all((0..meter.depth).map(worker)).await?;
    Ok(0)
}

async fn getattr(under: &Under, plan: &Plan, meter: &Meter<'_>) -> Result<u64> {
    let until = meter.began + plan.time;
    let worker = |n| async move {
        let (volume, file) = under.of(n);
        loop {
            meter.time(volume.size(file)).await?;
            if Instant::now() >= until {
                return Ok::<(), Error>(());
            }
        }
    };
    try_join_all((0..meter.depth).map(worker)).await?;
    Ok(0)
}

async fn open(under: &Under, plan: &Plan, meter: &Meter<'_>) -> Result<u64> {
    let until = meter.began + plan.time;
    // Each worker uses a separate file: in NFSv4, opens of one file by one client share one state, which the first CLOSE ends.
    let worker = |n| async move {
        let (volume, _) = under.of(n);
        let name = format!("{}-{n}", plan.names.file);
        volume.close(volume.create(&name).await?).await?;
        // Run each at least once, however long it took to make the files.
        loop {
            meter
                .time(async {
                    let file = volume.find(&name).await?;
                    volume.size(&file).await?;
                    volume.close(file).await
                })
                .await?;
            if Instant::now() >= until {
                return volume.remove(&name).await;
            }
        }
    };
    try_join_all((0..meter.depth).map(worker)).await?;
    Ok(0)
}

async fn create(under: &Under, plan: &Plan, meter: &Meter<'_>) -> Result<u64> {
    let (volume, _) = under.of(0);
    let until = meter.began + plan.time;
    loop {
        meter
            .time(async {
                let made = volume.create(&plan.names.made).await?;
                volume.close(made).await?;
                volume.remove(&plan.names.made).await
            })
            .await?;
        if Instant::now() >= until {
            return Ok(0);
        }
    }
}

/// The hint for a server that moves less than requested in one operation.
const LESS: &str = "the server may have a lower limit for one operation; give a smaller --block";

fn taken(count: u32, want: u32) -> Result<()> {
    if count == want {
        return Ok(());
    }
    Err(Error::Protocol(format!("a WRITE took {count} of {want} bytes; {LESS}")))
}

fn expect(data: &[Buf], want: u32) -> Result<()> {
    let have: usize = data.iter().map(Buf::len).sum();
    if u32::try_from(have) == Ok(want) {
        return Ok(());
    }
    Err(Error::Protocol(format!("a READ gave {have} of {want} bytes; {LESS}")))
}

/// Returns bytes without internal repetition.
fn pattern(len: u32) -> Buf {
    let random = Random(Cell::new(88_172_645_463_325_252));
    let len = usize::try_from(len).unwrap_or(0);
    let mut data = BufMut::heap(len);
    for word in data.whole_mut()[..len].chunks_mut(8) {
        let bytes = random.below(u64::MAX).to_le_bytes();
        word.copy_from_slice(&bytes[..word.len()]);
    }
    data.set_filled(len);
    data.freeze()
}

async fn write(under: &Under, size: u64, meter: &Meter<'_>) -> Result<u64> {
    let (data, next) = (pattern(meter.block), Cell::new(0));
    let worker = |n| {
        let ((volume, file), data, next) = (under.of(n), &data, &next);
        async move {
            while let Some((at, n)) = part(next, size, meter.block) {
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

async fn read(under: &Under, size: u64, meter: &Meter<'_>) -> Result<u64> {
    let next = Cell::new(0);
    let worker = |n| {
        let ((volume, file), next) = (under.of(n), &next);
        async move {
            while let Some((at, n)) = part(next, size, meter.block) {
                let (data, _) = meter.time(volume.read(file, at, n)).await?;
                expect(&data, n)?;
            }
            Ok::<(), Error>(())
        }
    };
    try_join_all((0..meter.depth).map(worker)).await?;
    Ok(size)
}

/// Returns offset and length of the file's next block, or `None` at its end.
fn part(next: &Cell<u64>, size: u64, block: u32) -> Option<(u64, u32)> {
    let at = next.get();
    let left = size.saturating_sub(at);
    let n = u32::try_from(left).map_or(block, |left| left.min(block));
    next.set(at + u64::from(n));
    (n > 0).then_some((at, n))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_server_of_another_protocol_is_doubted() {
        let target: Target = "smb://a:b@gw/x".parse().unwrap();
        let silent = opened(&target, std::future::pending::<Result<()>>()).await.unwrap_err();
        let why = "cannot connect: no answer; does that address serve SMB?";
        assert_eq!(silent.to_string(), why);
        let refused = async { Err::<(), _>(Error::Mount(2)) };
        assert_eq!(opened(&target, refused).await, Err(Error::Mount(2)));
    }

    #[test]
    fn words_are_loads_or_groups_of_them() {
        let asked = |words: &[&str]| {
            let words: Vec<Loads> = words.iter().map(|w| w.parse().unwrap()).collect();
            Loads::asked_for(&words)
        };
        assert_eq!(asked(&[]), Kind::ALL);
        assert_eq!(
            asked(&["metadata", "read"]),
            [Kind::Read, Kind::Getattr, Kind::Open, Kind::Create]
        );
        assert_eq!(asked(&["random", "random-read"]), [Kind::RandomRead, Kind::RandomWrite]);
        let why = "reed".parse::<Loads>().unwrap_err();
        assert!(why.starts_with("there is no load `reed`; the loads are write, read, "), "{why}");
    }

    #[test]
    fn a_file_is_cut_into_blocks_to_its_last_byte() {
        let next = Cell::new(0);
        let parts: Vec<_> = std::iter::from_fn(|| part(&next, 2500, 1000)).collect();
        assert_eq!(parts, [(0, 1000), (1000, 1000), (2000, 500)]);
        let far = Cell::new(0);
        assert_eq!(part(&far, 1 << 40, 4096), Some((0, 4096)));
    }

    #[test]
    fn data_to_write_has_every_byte_set() {
        let data = pattern(1003);
        assert_eq!(data.len(), 1003);
        assert!(data.as_slice()[995..].iter().any(|b| *b != 0));
    }
}
