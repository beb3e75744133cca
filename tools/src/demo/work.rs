//! The work of one client: write, compare in the folder, read back, compare, remove.

use std::cell::Cell;
use std::fs::File as LocalFile;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use client::connect::Local;
use client::target::Transport;
use client::{Credential, File, Target, Volume};
use futures_util::future::try_join_all;
use indicatif::ProgressBar;
use iobuf::Buf;

use super::data::{Pattern, difference};
use crate::cpu;

const MIB: u64 = 1 << 20;
/// Operations in flight.
const DEPTH: usize = 8;
/// Sizes of the small files, close to the sizes at which transports change how they move a message.
const SMALL: [usize; 12] = [0, 1, 127, 1340, 4095, 4096, 4097, 8193, 16384, 40000, 65535, 65537];
const LARGE: &str = "large";

/// Work that all clients do.
pub(super) struct Plan {
    /// Folder of the share.
    pub(super) folder: PathBuf,
    /// User and group of the calls.
    pub(super) user: (u32, u32),
    /// Size of the large file.
    pub(super) size: u64,
}

impl Plan {
    /// Returns the number of bytes that a client moves in both directions together.
    pub(super) fn bytes(&self) -> u64 {
        2 * (self.size + SMALL.iter().map(|s| *s as u64).sum::<u64>())
    }
}

/// Result of one client.
pub(super) struct Row {
    /// Name and version of the protocol.
    pub(super) protocol: String,
    /// Protection of the messages: `none`, `sign` or `seal`.
    pub(super) protection: &'static str,
    pub(super) transport: Transport,
    pub(super) by_rdma_write: u64,
    pub(super) by_rdma_read: u64,
    pub(super) inline: u64,
    /// Bytes per second of the large file, in each direction.
    pub(super) write_rate: f64,
    pub(super) read_rate: f64,
    /// CPU time of client and gateway together.
    pub(super) cpu: Duration,
    /// Bytes compared.
    pub(super) verified: u64,
    /// First error, if any.
    pub(super) fault: Option<String>,
}

impl Row {
    pub(super) fn is_good(&self) -> bool {
        self.fault.is_none()
    }
}

/// Runs one client.
pub(super) async fn row(target: &Target, plan: &Plan, bar: &ProgressBar) -> Row {
    let mut row = Row {
        protocol: target.protocol.to_string(),
        protection: target.protocol.protection(),
        transport: target.transport,
        by_rdma_write: 0,
        by_rdma_read: 0,
        inline: 0,
        write_rate: 0.0,
        read_rate: 0.0,
        cpu: Duration::ZERO,
        verified: 0,
        fault: None,
    };
    let cpu = cpu::own();
    if let Err(why) = work(target, plan, bar, &mut row).await {
        row.fault = Some(why);
        bar.abandon_with_message("failed");
    } else {
        bar.finish_with_message("verified");
    }
    row.cpu = cpu::own().saturating_sub(cpu);
    row
}

async fn work(
    target: &Target,
    plan: &Plan,
    bar: &ProgressBar,
    row: &mut Row,
) -> Result<(), String> {
    let cred = Credential::sys(plan.user.0, plan.user.1, &[]);
    let volume = Volume::open(target, &Local::default(), cred).await.map_err(|e| e.to_string())?;
    let run = Run { volume: &volume, plan, pattern: Pattern::new(), bar, verified: Cell::new(0) };
    let done = run.all(row).await;
    row.verified = run.verified.get();
    let traffic = &volume.info().traffic;
    let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    row.by_rdma_write = of(&traffic.rdma_write);
    row.by_rdma_read = of(&traffic.rdma_read);
    row.inline = of(&traffic.inline_in) + of(&traffic.inline_out);
    done?;
    volume.leave().await.map_err(|e| format!("disconnect: {e}"))
}

struct Run<'a> {
    volume: &'a Volume,
    plan: &'a Plan,
    pattern: Pattern,
    bar: &'a ProgressBar,
    verified: Cell<u64>,
}

/// Returns the error with the name of the failed operation.
fn at(what: &str, e: &client::Error) -> String {
    format!("{what}: {e}")
}

impl Run<'_> {
    async fn all(&self, row: &mut Row) -> Result<(), String> {
        let size = self.plan.size;
        self.bar.set_message("writing");
        let began = Instant::now();
        let file = self.write(0, LARGE, size).await?;
        row.write_rate = rate(size, began.elapsed());
        self.in_folder(0, LARGE, size)?;
        self.bar.set_message("reading");
        let began = Instant::now();
        self.read(0, LARGE, &file, size).await?;
        row.read_rate = rate(size, began.elapsed());
        self.volume.close(file).await.map_err(|e| at("close", &e))?;
        self.bar.set_message("small files");
        for (number, size) in (1..).zip(SMALL) {
            let (name, size) = (format!("small-{size}"), size as u64);
            let file = self.write(number, &name, size).await?;
            self.in_folder(number, &name, size)?;
            self.read(number, &name, &file, size).await?;
            self.volume.close(file).await.map_err(|e| at(&name, &e))?;
        }
        self.tidy().await
    }

    /// Writes a file and makes it stable.
    async fn write(&self, number: u64, name: &str, size: u64) -> Result<File, String> {
        let file = self.volume.create(name).await.map_err(|e| at(name, &e))?;
        let next = Cell::new(0);
        let worker = || async {
            while let Some((offset, len)) = take(&next, size) {
                let data = self.pattern.piece(number, offset, len);
                let count = self.volume.write(&file, offset, vec![data]).await;
                let count = count.map_err(|e| at(name, &e))?;
                if usize::try_from(count) != Ok(len) {
                    return Err(format!("{name}: a WRITE took {count} of {len} bytes"));
                }
                self.bar.inc(len as u64);
            }
            Ok(())
        };
        try_join_all((0..DEPTH).map(|_| worker())).await?;
        self.volume.commit(&file).await.map_err(|e| at(name, &e))?;
        Ok(file)
    }

    /// Compares the file in the share's folder.
    fn in_folder(&self, number: u64, name: &str, size: u64) -> Result<(), String> {
        use std::os::unix::fs::FileExt;
        let path = self.plan.folder.join(name);
        let told = |e: std::io::Error| format!("{}: {e}", path.display());
        let file = LocalFile::open(&path).map_err(told)?;
        let have = file.metadata().map_err(told)?.len();
        if have != size {
            return Err(format!("{}: has {have} bytes, and {size} were written", path.display()));
        }
        let next = Cell::new(0);
        let mut buffer = vec![0; 1 << 20];
        while let Some((offset, len)) = take(&next, size) {
            file.read_exact_at(&mut buffer[..len], offset).map_err(told)?;
            let want = self.pattern.piece(number, offset, len);
            self.compare(name, "in the folder", offset, &want, [&buffer[..len]].into_iter())?;
        }
        Ok(())
    }

    /// Reads a file back and compares it.
    async fn read(&self, number: u64, name: &str, file: &File, size: u64) -> Result<(), String> {
        let next = Cell::new(0);
        let worker = || async {
            while let Some((offset, len)) = take(&next, size) {
                let count = u32::try_from(len).unwrap_or(0);
                let data = self.volume.read(file, offset, count).await;
                let (data, _) = data.map_err(|e| at(name, &e))?;
                let want = self.pattern.piece(number, offset, len);
                self.compare(name, "read back", offset, &want, data.iter().map(Buf::as_slice))?;
                self.bar.inc(len as u64);
            }
            Ok::<(), String>(())
        };
        try_join_all((0..DEPTH).map(|_| worker())).await?;
        Ok(())
    }

    fn compare<'b>(
        &self,
        name: &str,
        how: &str,
        offset: u64,
        want: &[u8],
        have: impl Iterator<Item = &'b [u8]>,
    ) -> Result<(), String> {
        if let Some(place) = difference(want, have) {
            return Err(format!("{name} {how}: differs at byte {}", offset + place as u64));
        }
        self.verified.set(self.verified.get() + want.len() as u64);
        Ok(())
    }

    /// Lists the names, removes the files, and checks that the folder is empty afterwards.
    async fn tidy(&self) -> Result<(), String> {
        let names = self.volume.list().await.map_err(|e| at("list", &e))?;
        if names.len() != SMALL.len() + 1 {
            return Err(format!("list: {} names, expected {}", names.len(), SMALL.len() + 1));
        }
        for name in names {
            let name = String::from_utf8_lossy(&name).into_owned();
            self.volume.remove(&name).await.map_err(|e| at(&name, &e))?;
        }
        let left = std::fs::read_dir(&self.plan.folder).map_err(|e| e.to_string())?.count();
        if left > 0 { Err(format!("{left} files are left in the folder")) } else { Ok(()) }
    }
}

/// Takes the next piece of at most 1 MiB.
fn take(next: &Cell<u64>, size: u64) -> Option<(u64, usize)> {
    let offset = next.get();
    let len = MIB.min(size.checked_sub(offset)?);
    next.set(offset + len);
    usize::try_from(len).ok().filter(|n| *n > 0).map(|n| (offset, n))
}

#[allow(clippy::cast_precision_loss)] // Rates are for reading.
fn rate(bytes: u64, time: Duration) -> f64 {
    bytes as f64 / time.as_secs_f64().max(1e-9)
}
