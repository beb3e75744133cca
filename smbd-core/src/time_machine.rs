//! Shares to which Macs back up with Time Machine: the size that they are shown.
//!
//! *Operation.* Time Machine fills a volume, and removes old backups when it is full. So a share with a size shows that size, and
//! as used the size of all backups in its folder: as Samba counts it, the number of files in `bands` of each bundle, times the
//! size of a band in its `Info.plist`. A count is kept for [`KEPT_MIN`], and for [`SHARE`] times as long as it took: a large one
//! takes seconds. While one query counts, others get the count before it, and wait up to [`FIRST_MAX`] for the first.
//!
//! *Memory.* One number for each share, or for each tree connect to a share with a folder for each user. A count holds a block of
//! names, and reads at most [`PLIST_MAX`] bytes of a bundle. It ends after [`BUNDLES_MAX`] bundles, and when the share is full.
//!
//! *Errors.* A bundle that cannot be read does not count: a Mac may be making it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mutex::locked;
use tokio::sync::Notify;
use vfs::backend::{NodeRef, ReadInto};
use vfs::{Cred, FsStat, Kind, VfsResult};

/// Shortest time for which a count is kept.
const KEPT_MIN: Duration = Duration::from_secs(30);
/// A count is kept for this many times as long as it took.
const SHARE: u32 = 20;
/// Longest wait for a first count, in which the share would seem to be empty.
const FIRST_MAX: Duration = Duration::from_secs(10);
/// Most bundles of a share that are counted; each Mac has one.
const BUNDLES_MAX: usize = 1024;
/// Largest `Info.plist` in bytes; Macs write about 500.
const PLIST_MAX: u64 = 64 << 10;
/// Names fetched at once.
const STEP: usize = 512;
/// How names of bundles end: while a Mac makes one, and since macOS 11 afterwards.
const ENDINGS: [&[u8]; 2] = [b".sparsebundle", b".backupbundle"];

/// A share for backups.
#[derive(Clone, Debug, Default)]
pub struct TimeMachine {
    /// Bytes that all backups together may have; `None`: what the file system has.
    size: Option<u64>,
    used: Arc<Used>,
}

/// What was counted does not make two shares different.
impl PartialEq for TimeMachine {
    fn eq(&self, other: &Self) -> bool {
        self.size == other.size
    }
}

impl Eq for TimeMachine {}

#[derive(Debug, Default)]
struct Used {
    last: Mutex<Option<Count>>,
    /// A query counts now.
    is_counting: AtomicBool,
    /// A count has ended.
    ended: Notify,
}

/// A count, and until when it holds.
#[derive(Clone, Copy, Debug)]
struct Count {
    bytes: u64,
    until: Instant,
}

/// Marks a count as ended, also if its query is cancelled.
struct Counting<'a>(&'a Used);

impl Drop for Counting<'_> {
    fn drop(&mut self) {
        self.0.is_counting.store(false, Ordering::Release);
        self.0.ended.notify_waiters();
    }
}

impl TimeMachine {
    /// Builds one of this size.
    pub fn of(size: Option<u64>) -> Self {
        Self { size, ..Self::default() }
    }

    /// Returns one of the same size for another folder.
    pub(crate) fn of_another_folder(self) -> Self {
        Self::of(self.size)
    }

    /// Returns the bytes that the backups in a folder have, as counted now or a short while ago.
    pub(crate) async fn used(&self, top: &NodeRef, into: &ReadInto) -> u64 {
        let Some(size) = self.size else { return 0 };
        let by_others = tokio::time::timeout(FIRST_MAX, self.counted_by_others());
        let last = match by_others.await {
            Ok(Ok(bytes)) => return bytes,
            Ok(Err(last)) => last,
            Err(_) => return 0,
        };
        let _counting = Counting(&self.used);
        let began = Instant::now();
        let bytes = match of_bundles(top, size, into).await {
            Ok(bytes) => bytes,
            Err(error) => {
                tracing::debug!(%error, "the backups of a share cannot be counted");
                last.map_or(0, |count| count.bytes)
            }
        };
        let until = Instant::now() + KEPT_MIN.max(began.elapsed().saturating_mul(SHARE));
        *locked(&self.used.last) = Some(Count { bytes, until });
        bytes
    }

    /// Returns the bytes of a count that holds, or of the one before a count in progress; waits for the first count. Otherwise the
    /// caller must count, and gets the last count.
    async fn counted_by_others(&self) -> Result<u64, Option<Count>> {
        loop {
            let mut ended = std::pin::pin!(self.used.ended.notified());
            ended.as_mut().enable();
            let last = *locked(&self.used.last);
            if let Some(count) = last.filter(|count| Instant::now() < count.until) {
                return Ok(count.bytes);
            }
            if !self.used.is_counting.swap(true, Ordering::AcqRel) {
                return Err(last);
            }
            if let Some(count) = last {
                return Ok(count.bytes);
            }
            ended.await;
        }
    }

    /// Returns the space of the share on a file system with this much, if its backups have so many bytes.
    pub(crate) fn limited(&self, stat: FsStat, used: u64) -> FsStat {
        let Some(size) = self.size else { return stat };
        let free = size.saturating_sub(used);
        FsStat {
            total_bytes: size.min(stat.total_bytes),
            free_bytes: free.min(stat.free_bytes),
            avail_bytes: free.min(stat.avail_bytes),
            ..stat
        }
    }
}

/// Adds up the bundles of a folder, until there are `most` bytes.
async fn of_bundles(top: &NodeRef, most: u64, into: &ReadInto) -> VfsResult<u64> {
    let (mut used, mut bundles, mut cookie, mut end) = (0_u64, 0, 0, false);
    while !end {
        let (names, last) = top.readdir(&Cred::root(), cookie, STEP).await?;
        end = last || names.is_empty();
        for entry in names {
            cookie = entry.cookie;
            if !ENDINGS.iter().any(|ending| entry.name.ends_with(ending)) {
                continue;
            }
            bundles += 1;
            if bundles > BUNDLES_MAX || used >= most {
                return Ok(used);
            }
            // A Mac may be making it.
            let bundle = of_bundle(top, &entry.name, most - used, into).await;
            used = used.saturating_add(bundle.ok().flatten().unwrap_or(0));
        }
        tokio::task::yield_now().await;
    }
    Ok(used)
}

/// Returns the bytes of one bundle, or a few more than `most`; `None` if it is none.
async fn of_bundle(
    top: &NodeRef,
    name: &[u8],
    most: u64,
    into: &ReadInto,
) -> VfsResult<Option<u64>> {
    let root = Cred::root();
    let (bundle, attr) = top.lookup(&root, name).await?;
    if attr.kind != Kind::Dir {
        return Ok(None);
    }
    let (plist, attr) = bundle.lookup(&root, b"Info.plist").await?;
    if attr.kind != Kind::File || attr.size > PLIST_MAX {
        return Ok(None);
    }
    let count = usize::try_from(attr.size).unwrap_or(0);
    let into = ReadInto { backpressure: None, ..into.clone() };
    let read = plist.read(None, 0, count, &into).await?;
    let text: Vec<u8> = read.data.iter().flat_map(|piece| piece.as_slice()).copied().collect();
    let Some(size) = band_size(&text) else { return Ok(None) };
    let (bands, attr) = bundle.lookup(&root, b"bands").await?;
    if attr.kind != Kind::Dir {
        return Ok(None);
    }
    let (mut used, mut cookie, mut end) = (0_u64, 0, false);
    while !end && used < most {
        let (names, last) = bands.readdir(&root, cookie, STEP).await?;
        end = last || names.is_empty();
        cookie = names.last().map_or(cookie, |entry| entry.cookie);
        used = used.saturating_add(size.saturating_mul(names.len() as u64));
        tokio::task::yield_now().await;
    }
    Ok(Some(used))
}

/// Returns the number after the key `band-size` of a property list; at least one byte, so that a count ends.
fn band_size(plist: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(plist).ok()?;
    let (_, after) = text.split_once("<key>band-size</key>")?;
    let (number, _) = after.trim_start().strip_prefix("<integer>")?.split_once("</integer>")?;
    number.trim().parse().ok().filter(|size| *size > 0)
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use iobuf::{Account, Buf, Pool, PoolLimits};
    use vfs::authority::Acting;
    use vfs::mem::MemBackend;
    use vfs::types::WriteBy;
    use vfs::{Backend, CreateHow, SetAttr, Stable};

    use super::*;

    const PLIST: &str = "<?xml version=\"1.0\"?>\n<plist><dict>\n<key>CFBundleInfoDictionaryVersion</key>\n<string>6.0</string>\n\
                         <key>band-size</key>\n\t<integer>8192</integer>\n<key>size</key><integer>9</integer></dict></plist>\n";

    fn into() -> ReadInto {
        let (pool, account) = (Pool::new(PoolLimits::of_bytes(8 << 20)), Account::new());
        ReadInto { pool, account, backpressure: None, pages: false, attributes: false }
    }

    async fn folder(dir: &NodeRef, name: &str) -> NodeRef {
        let by = Acting::caller(&ROOT);
        dir.mkdir(by, name.as_bytes(), SetAttr::default()).await.unwrap().node
    }

    static ROOT: std::sync::LazyLock<Cred> = std::sync::LazyLock::new(Cred::root);

    async fn file(dir: &NodeRef, name: &str, data: &str) {
        let (by, how) = (Acting::caller(&ROOT), CreateHow::Unchecked);
        let made = dir.create(by, name.as_bytes(), how, SetAttr::default()).await.unwrap();
        let data = vec![Buf::from(data.as_bytes().to_vec())];
        made.node.write(WriteBy::Caller(&ROOT), 0, data, Stable::Unstable).await.unwrap();
    }

    async fn bundle(top: &NodeRef, name: &str, plist: &str, bands: usize) {
        let bundle = folder(top, name).await;
        file(&bundle, "Info.plist", plist).await;
        let dir = folder(&bundle, "bands").await;
        for n in 0..bands {
            file(&dir, &format!("{n:x}"), "").await;
        }
    }

    #[test]
    fn band_size_is_read_from_lists_of_any_layout() {
        assert_eq!(band_size(PLIST.as_bytes()), Some(8192));
        assert_eq!(band_size(b"<key>band-size</key><integer> 7 </integer>"), Some(7));
        for bad in [
            "",
            "<key>band-size</key>",
            "<key>band-size</key><integer></integer>",
            "<key>band-size</key><integer>0</integer>",
            "<key>band-size</key><integer>-1</integer>",
            "<key>band-size</key><integer>99999999999999999999</integer>",
            "<key>band-size</key><string>7</string><integer>7</integer>",
            "<key>size</key><integer>7</integer>",
        ] {
            assert_eq!(band_size(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(band_size(b"\xff<key>band-size</key><integer>7</integer>"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn bundles_count_by_their_bands() {
        let backend = MemBackend::new(64 << 20).unwrap();
        let (top, into) = (backend.root(), into());
        bundle(&top, "a.sparsebundle", PLIST, 700).await;
        bundle(&top, "b.backupbundle", PLIST, 2).await;
        bundle(&top, "c.sparsebundle", "<key>other</key>", 5).await;
        bundle(&top, "data", PLIST, 5).await;
        file(&top, "d.sparsebundle", "no folder").await;
        folder(&top, "e.sparsebundle").await;
        let machine = TimeMachine::of(Some(1 << 30));
        assert_eq!(machine.used(&top, &into).await, 702 * 8192);
        bundle(&top, "f.sparsebundle", PLIST, 1).await;
        assert_eq!(machine.used(&top, &into).await, 702 * 8192, "it was counted just now");
        let small = TimeMachine::of(Some(8192));
        let used = small.used(&top, &into).await;
        assert!(
            (8192..=8192 * 512).contains(&used),
            "the count ends when the share is full: {used}"
        );
        assert_eq!(TimeMachine::of(None).used(&top, &into).await, 0);
    }

    #[test]
    fn space_is_that_of_the_share_or_of_the_volume() {
        let stat =
            FsStat { total_bytes: 1000, free_bytes: 500, avail_bytes: 400, ..FsStat::default() };
        let of = |size, used| {
            let stat = TimeMachine::of(size).limited(stat, used);
            (stat.total_bytes, stat.free_bytes, stat.avail_bytes)
        };
        assert_eq!(of(None, 0), (1000, 500, 400));
        assert_eq!(of(Some(300), 100), (300, 200, 200));
        assert_eq!(of(Some(300), 301), (300, 0, 0));
        assert_eq!(of(Some(5000), 100), (1000, 500, 400));
    }

    #[tokio::test]
    async fn cancelled_count_lets_others_count() {
        let backend = MemBackend::new(64 << 20).unwrap();
        let (top, into) = (backend.root(), into());
        bundle(&top, "a.sparsebundle", PLIST, 1).await;
        let machine = TimeMachine::of(Some(1 << 30));
        let mut first = Box::pin(machine.used(&top, &into));
        let yields = std::future::poll_fn(|cx| Poll::Ready(first.as_mut().poll(cx).is_pending()));
        assert!(yields.await);
        drop(first);
        assert_eq!(machine.used(&top, &into).await, 8192);
    }

    #[tokio::test(start_paused = true)]
    async fn queries_wait_for_the_first_count() {
        let backend = MemBackend::new(64 << 20).unwrap();
        let (top, into) = (backend.root(), into());
        bundle(&top, "a.sparsebundle", PLIST, 3).await;
        let machine = TimeMachine::of(Some(1 << 30));
        let counts = tokio::join!(machine.used(&top, &into), machine.used(&top, &into));
        assert_eq!(counts, (3 * 8192, 3 * 8192));
        machine.used.is_counting.store(true, Ordering::Release);
        *locked(&machine.used.last) = None;
        assert_eq!(machine.used(&top, &into).await, 0, "no longer than is useful");
    }
}
