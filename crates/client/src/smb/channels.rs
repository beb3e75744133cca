//! A session over several connections, TCP and RDMA together (MS-SMB2 sections 3.2.4.2.3 and 3.2.7.1).
//!
//! *Operation.* Operations on open files use the connections in rotation. When one is lost, its pending requests are sent again
//! over another one, as replays with the next `ChannelSequence`, so that the server can recognize them.
//!
//! *Memory.* A write keeps its payload until the response arrives.
//!
//! *Errors.* [`Error::Down`] when the last connection is lost. A server that is still processing the original request, or received
//! requests out of order, returns STATUS_FILE_NOT_AVAILABLE; the request is then repeated up to [`TRIES_MAX`] times.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use iobuf::Buf;
use mutex::locked;
use rdma_transport::channel::ChannelError;
use smb_proto::NtStatus;

use super::Smb;
use super::files::SmbFile;
use crate::error::{Error, Result};

const TRIES_MAX: usize = 200;
const TRY_AGAIN: Duration = Duration::from_millis(20);

/// A session and its remaining connections.
pub struct Channels {
    all: Mutex<Members>,
    turn: AtomicUsize,
}

struct Members {
    live: Vec<(usize, Smb)>,
    /// Number of connections added so far, which is the number of the next one.
    added: usize,
    /// The reason why the last connection was lost.
    lost: Option<ChannelError>,
}

impl Channels {
    /// Starts with the connection that created the session.
    pub fn new(first: Smb) -> Self {
        let all = Members { live: vec![(0, first)], added: 1, lost: None };
        Self { all: Mutex::new(all), turn: AtomicUsize::new(0) }
    }

    /// Adds a connection created by [`Smb::bind`].
    pub fn add(&self, bound: Smb) {
        let mut all = self.lock();
        let number = all.added;
        all.added += 1;
        all.live.push((number, bound));
    }

    /// Returns the number of remaining connections.
    pub fn left(&self) -> usize {
        self.lock().live.len()
    }

    /// Returns the number of lost connections.
    pub fn lost(&self) -> usize {
        let all = self.lock();
        all.added - all.live.len()
    }

    /// Reads up to `count` bytes; fewer at the end of the file.
    pub async fn read(&self, file: &SmbFile, offset: u64, count: u32) -> Result<Vec<Buf>> {
        self.by_any(async |smb| smb.read(file, offset, count).await).await
    }

    /// Writes data; returns the number of bytes written.
    pub async fn write(&self, file: &SmbFile, offset: u64, data: &[Buf]) -> Result<u32> {
        self.by_any(async |smb| smb.write(file, offset, data.to_vec()).await).await
    }

    /// Makes written data stable.
    pub async fn flush(&self, file: &SmbFile) -> Result<()> {
        self.by_any(async |smb| smb.flush(file).await).await
    }

    /// Runs an operation on one connection, and again on another if the first is lost.
    pub async fn by_any<T>(&self, operation: impl AsyncFn(&Smb) -> Result<T>) -> Result<T> {
        let mut replays = false;
        let mut tries = 0;
        loop {
            let (number, smb) = self.next()?;
            match operation(&Smb { replays, ..smb }).await {
                Err(Error::Down(why)) => {
                    self.lose(number, why);
                    replays = true;
                }
                Err(Error::Smb(_, NtStatus::FILE_NOT_AVAILABLE)) if tries < TRIES_MAX => {
                    tries += 1;
                    tokio::time::sleep(TRY_AGAIN).await;
                }
                done => return done,
            }
        }
    }

    /// Returns the next connection in rotation.
    fn next(&self) -> Result<(usize, Smb)> {
        let all = self.lock();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let gone = || all.lost.clone().unwrap_or(ChannelError::Closed("by this side".into()));
        let next = turn.checked_rem(all.live.len()).and_then(|n| all.live.get(n));
        next.cloned().ok_or_else(|| Error::Down(gone()))
    }

    /// Removes a lost connection; only the first caller to notice counts it.
    fn lose(&self, number: usize, why: ChannelError) {
        let mut all = self.lock();
        if let Some(at) = all.live.iter().position(|(n, _)| *n == number) {
            let (_, gone) = all.live.swap_remove(at);
            gone.sequence.fetch_add(1, Ordering::Relaxed);
            all.lost = Some(why);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Members> {
        // Consistent after every step.
        locked(&self.all)
    }
}
