//! Decides whether a handle may change the bytes of its file: the single check for every command that writes, truncates or clears.
//!
//! *Operation.* A command describes its change as a [`Change`] and gets a [`Changing`], the only type that passes changes on to the
//! volume. FILE_WRITE_DATA allows every change. FILE_APPEND_DATA without it allows only data at or past the end of the file
//! (MS-SMB2 section 3.3.5.13, MS-FSA section 2.1.5.4), and no change that truncates, clears or replaces existing data. The end is
//! read when the command is admitted, and the volume checks it again, atomically with the write. A copy through an append-only
//! handle is done as a write, since no volume can copy to the end of a file atomically. This module also handles the side effects
//! of each change: ordering changes through a handle that freezes the last-write time, setting the archive attribute, restoring
//! frozen times, and notifying watchers of streams and directories.
//!
//! *Errors.* STATUS_ACCESS_DENIED if the handle lacks the right; STATUS_PRIVILEGE_NOT_HELD for the valid data length, which only a
//! volume manager may set; STATUS_INVALID_PARAMETER for a range that ends beyond 2^63.

use std::sync::atomic::{AtomicBool, Ordering};

use iobuf::Buf;
use tokio::sync::MutexGuard;
use vfs::backend::{NodeRef, ReadInto};
use vfs::namespace::FileOps;
use vfs::types::SetAttr;
use vfs::watch::what;
use vfs::{AppendAt, Attr, Dos, Stable, VfsError, VfsResult};

use super::{held_times, stream_notice};
use crate::dtyp::mask;
use crate::fscc::mac::AfpInfo;
use crate::lease;
use crate::mac::{self, InfoWrite, Special};
use crate::open::{File, Open};
use crate::pace::Pace;
use crate::request_context::RequestContext;
use crate::status::Status;

/// An offset that means the end of the file (MS-FSA section 2.1.5.4).
const END: u64 = u64::MAX;

/// A change to the bytes of a file or stream. Offsets and lengths are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// WRITE. An offset of all ones means the end of the file.
    Write { at: u64, len: u64 },
    /// A chunk of FSCTL_SRV_COPYCHUNK or FSCTL_SRV_COPYCHUNK_WRITE.
    CopyInto { at: u64, len: u64 },
    /// FSCTL_DUPLICATE_EXTENTS_TO_FILE.
    DuplicateInto { at: u64, len: u64 },
    /// FSCTL_SET_ZERO_DATA.
    ZeroData { at: u64, len: u64 },
    /// FSCTL_FILE_LEVEL_TRIM.
    Trim { at: u64, len: u64 },
    /// FileEndOfFileInformation.
    EndOfFile(u64),
    /// FileAllocationInformation, which truncates the data if the allocation is shorter.
    Allocation(u64),
    /// FileValidDataLengthInformation.
    ValidDataLength,
}

/// Where a change is stored by the time the file-system call returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    /// The page cache.
    Cache,
    /// Stable storage if the share is strict ([`FileOps::make_durable`]), else the page cache.
    ByShare,
    /// Stable storage.
    Storage,
}

/// Returns whether the response must wait for a sync. Every data change over SMB uses this decision. `through`: the handle was
/// opened with write-through; `strict`: every change on the share is durable.
fn needs_sync(through: bool, strict: bool, kept: Kept) -> bool {
    match kept {
        Kept::Storage => false,
        Kept::ByShare => through && !strict,
        Kept::Cache => through,
    }
}

/// Chooses the stability of a write, which the volume syncs together with the data. `asked`: the request has the write-through
/// flag.
fn stable(open: &Open, asked: bool) -> Stable {
    if asked || open.writes_through() { Stable::Data } else { Stable::Unstable }
}

/// Records that a change through this handle still needs a sync, which [`settle`] does.
fn note_kept(cx: &RequestContext, open: &Open, file: &File, kept: Kept) {
    if needs_sync(open.writes_through(), file.share.backend.is_strict(true), kept) {
        cx.unsettled.store(true, Ordering::Relaxed);
    }
}

/// Syncs the changes that the command made through a write-through handle. Called once per command, however many ranges it changed,
/// and also if the command failed after some of them.
pub(crate) async fn settle(cx: &RequestContext, open: &Open) -> Result<(), Status> {
    if cx.unsettled.swap(false, Ordering::Relaxed) {
        let node = open.node()?;
        cx.by_storage(vfs::durability::make_node_durable(&node)).await??;
    }
    Ok(())
}

/// Empties a file or stream for a CREATE that overwrites it.
pub(crate) async fn empty(
    cx: &RequestContext,
    open: &Open,
    node: &NodeRef,
) -> Result<Attr, Status> {
    let file = open.file()?;
    let (_, attr) = cx.file_ops(open).empty(&file.share, node, &open.cred).await?;
    note_kept(cx, open, file, Kept::ByShare);
    settle(cx, open).await?;
    Ok(attr)
}

/// Takes all bytes of a file or stream.
fn no_bytes() -> SetAttr {
    SetAttr { size: Some(0), ..SetAttr::default() }
}

/// Copies a stream into a stream of the file that `open` has open for writing, for a copy of a whole file, in steps of at most
/// `step` bytes. The target loses what it had. The caller has opened the target for it, and has other clients write what they have
/// of the source.
pub(crate) async fn copy_stream(
    cx: &RequestContext,
    open: &Open,
    (from, reader): (&NodeRef, &FileOps<'_>),
    to: &NodeRef,
    step: u64,
) -> Result<(), Status> {
    let (share, file_ops, mut pace) = (&open.file()?.share, cx.file_ops(open), Pace::begin());
    file_ops.setattr(share, to, &open.cred, no_bytes(), true).await?;
    let (size, mut at) = (from.getattr().await?.size, 0);
    while at < size {
        pace.keep().await;
        let count = step.min(size - at);
        let copied = file_ops.copy_range_from(share, to, (from, reader), at, at, count).await;
        let some = match copied {
            Err(VfsError::NotSupported | VfsError::CrossDevice) => {
                let count = usize::try_from(count).unwrap_or(0);
                // The data does not go to the client, so ignore whether the client reads its responses.
                let into = ReadInto { backpressure: None, ..cx.conn.read_into.clone() };
                let read = reader.read(from, None, at, count, &into).await?;
                let stable = stable(open, false);
                file_ops.write(share, to, None, at, read.data, stable).await?.count as u64
            }
            copied => copied?,
        };
        if some == 0 && from.getattr().await?.size <= at {
            // Another client has cut the source.
            break;
        }
        if some == 0 {
            return Err(Status::DISK_FULL);
        }
        cx.copied.fetch_add(some, Ordering::Relaxed);
        at += some;
    }
    if open.writes_through() {
        cx.by_storage(vfs::durability::make_node_durable(to)).await??;
    }
    Ok(())
}

/// The part of a file that a handle's access lets a change reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    Anywhere,
    BehindTheEnd,
}

/// Decides from the granted access `granted` (bits of [`mask`]), without looking at the file.
fn reach(granted: u32, change: Change) -> Result<Reach, Status> {
    let has = |bit: u32| granted & bit != 0;
    match change {
        _ if has(mask::WRITE_DATA) => Ok(Reach::Anywhere),
        Change::Write { .. } | Change::CopyInto { .. } if has(mask::APPEND_DATA) => {
            Ok(Reach::BehindTheEnd)
        }
        _ => Err(Status::ACCESS_DENIED),
    }
}

impl Change {
    /// Returns the start and length of the range that changes.
    fn range(self) -> (u64, u64) {
        match self {
            Self::Write { at, len }
            | Self::CopyInto { at, len }
            | Self::DuplicateInto { at, len }
            | Self::ZeroData { at, len }
            | Self::Trim { at, len } => (at, len),
            Self::EndOfFile(at) | Self::Allocation(at) => (at, 0),
            Self::ValidDataLength => (0, 0),
        }
    }

    /// Returns the notification bits for a stream, apart from a change of its size.
    fn notice(self) -> u32 {
        match self {
            Self::EndOfFile(_) | Self::Allocation(_) | Self::ValidDataLength => 0,
            _ => what::STREAM_WRITE,
        }
    }
}

/// Permission to make one change through one handle.
pub(crate) struct Changing<'a> {
    cx: &'a RequestContext,
    open: &'a Open,
    file: &'a File,
    change: Change,
    reach: Reach,
    /// Holds [the lock](held_times::turn) until the time is restored, if the open freezes the last-write time.
    turn: Option<MutexGuard<'a, ()>>,
    /// Whether bytes may have changed.
    begun: AtomicBool,
    /// Size of the stream before the change, if a watcher exists.
    stream_size: Option<u64>,
}

/// Fails if this handle may not make this kind of change at any offset.
pub(crate) fn check(open: &Open, change: Change) -> Result<(), Status> {
    reach(open.granted, change).map(drop)
}

impl RequestContext {
    /// Checks that this handle may make this change, and returns the permission. If the open freezes the last-write time, waits for
    /// earlier changes through it, sending an interim response as for slow storage. A request cancelled during the wait has changed
    /// no data.
    pub(crate) async fn changing<'a>(
        &'a self,
        open: &'a Open,
        change: Change,
    ) -> Result<Changing<'a>, Status> {
        let reach = reach(open.granted, change)?;
        let file = open.file()?;
        let turn = self.by_storage(held_times::turn(open)).await?;
        let mut right = Changing {
            cx: self,
            open,
            file,
            change,
            reach,
            turn,
            begun: AtomicBool::new(false),
            stream_size: None,
        };
        let (at, len) = change.range();
        if at == END && matches!(change, Change::Write { .. }) {
            right.place(0, len).await?;
        } else {
            if reach == Reach::BehindTheEnd && len > 0 {
                right.place(0, len).await?;
            }
            let end = at.checked_add(len).and_then(|end| i64::try_from(end).ok());
            end.ok_or(Status::INVALID_PARAMETER)?;
        }
        right.stream_size = stream_notice::size_before(self, file).await;
        Ok(right)
    }
}

impl<'a> Changing<'a> {
    /// Prepares for the first change: an open that freezes the last-write time reads the current one.
    pub(crate) async fn begin(&self) -> VfsResult<()> {
        if self.begun.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        held_times::check_write(self.open, self.file, self.turn.is_some()).await
    }

    /// Runs a change that needs a FLUSH to become durable. The open records write errors from the start of the change, so that
    /// FLUSH or CLOSE reports them.
    async fn unflushed<T>(&self, change: impl Future<Output = T>) -> T {
        let losses = self.file.node().losses();
        let done = change.await;
        self.open.open_state.note_unflushed(losses);
        done
    }

    fn file_ops(&self) -> FileOps<'a> {
        self.cx.file_ops(self.open)
    }

    /// Called before a change, because a change that fails may still have modified data.
    fn note(&self, kept: Kept) {
        note_kept(self.cx, self.open, self.file, kept);
    }

    /// Returns the file offset of the `len` bytes that begin `skip` bytes into the range, given the file's current size.
    async fn place(&self, skip: u64, len: u64) -> Result<u64, Status> {
        let (start, whole) = self.change.range();
        if skip.checked_add(len).is_none_or(|end| end > whole) {
            return Err(Status::INTERNAL_ERROR);
        }
        let at_end = start == END;
        if self.reach == Reach::Anywhere && !at_end {
            return Ok(start.saturating_add(skip));
        }
        let size = self.file.node().getattr().await?.size;
        let at = if at_end { size } else { start.saturating_add(skip) };
        let end = at.checked_add(len).and_then(|end| i64::try_from(end).ok());
        end.ok_or(Status::INVALID_PARAMETER)?;
        if self.reach == Reach::BehindTheEnd && at < size {
            Err(Status::ACCESS_DENIED)
        } else {
            Ok(at)
        }
    }

    /// Writes data `skip` bytes into the range. Returns the file offset and the number of bytes written. `through`: the request has
    /// the write-through flag.
    pub(crate) async fn write(
        &self,
        skip: u64,
        data: Vec<Buf>,
        through: bool,
    ) -> Result<(u64, usize), Status> {
        let stable = stable(self.open, through);
        let len: usize = data.iter().map(Buf::len).sum();
        if self.is_info() {
            self.write_info(skip, &data, stable).await?;
            return Ok((0, len));
        }
        let at = self.place(skip, len as u64).await?;
        self.begin().await?;
        let (share, node) = (&self.file.share, self.file.node());
        let file_ops = self.file_ops();
        let write = async {
            match self.append_at(at) {
                Some(at) => {
                    let done = file_ops.append(share, &node, at, data, stable).await?;
                    Ok((done.at, done.written.count))
                }
                None => {
                    let done = file_ops.write(share, &node, None, at, data, stable).await?;
                    Ok((at, done.count))
                }
            }
        };
        // `FileOps` limits its own waits for other holders.
        let write = self.cx.wholly_by_storage(write);
        match stable {
            Stable::Unstable => {
                self.note(Kept::Cache);
                self.unflushed(write).await
            }
            Stable::Data | Stable::File => {
                self.note(Kept::Storage);
                write.await
            }
        }
    }

    /// Returns whether the stream is FinderInfo, which is only written as a whole.
    fn is_info(&self) -> bool {
        self.file.special() == Some(Special::Info)
    }

    /// Writes FinderInfo as Apple's servers do ([`mac::info_write`]).
    async fn write_info(&self, skip: u64, data: &[Buf], stable: Stable) -> Result<(), Status> {
        if self.reach != Reach::Anywhere {
            return Err(Status::ACCESS_DENIED);
        }
        let sent = data.iter().flat_map(|piece| piece.as_slice()).copied();
        let (sent, count): (Vec<u8>, usize) =
            (sent.take(AfpInfo::LEN).collect(), data.iter().map(Buf::len).sum());
        let at = self.change.range().0.saturating_add(skip);
        let (share, node, file_ops) = (&self.file.share, self.file.node(), self.file_ops());
        let whole = match mac::info_write(at, count, &sent)? {
            InfoWrite::Nothing => return Ok(()),
            InfoWrite::Remove => None,
            InfoWrite::Keep(whole) => Some(whole),
        };
        self.begin().await?;
        // Earlier bytes of another length are no FinderInfo, and would stay behind it.
        if whole.is_none() || node.getattr().await?.size > mac::INFO_LEN {
            self.note(Kept::ByShare);
            file_ops.setattr(share, &node, &self.open.cred, no_bytes(), true).await?;
        }
        let Some(whole) = whole else { return Ok(()) };
        let write = file_ops.write(share, &node, None, 0, vec![whole.into()], stable);
        let write = self.cx.wholly_by_storage(write);
        let written = match stable {
            Stable::Unstable => {
                self.note(Kept::Cache);
                self.unflushed(write).await?
            }
            Stable::Data | Stable::File => {
                self.note(Kept::Storage);
                write.await?
            }
        };
        if written.count < AfpInfo::LEN { Err(Status::DISK_FULL) } else { Ok(()) }
    }

    /// Returns the append position if the volume must find the end again: other writers could append between our check and the
    /// write.
    fn append_at(&self, at: u64) -> Option<AppendAt> {
        let (start, _) = self.change.range();
        match self.reach {
            _ if start == END => Some(AppendAt::End),
            Reach::BehindTheEnd => Some(AppendAt::Offset(at)),
            Reach::Anywhere => None,
        }
    }

    /// Copies up to `count` bytes of another file to `skip` bytes into the range, and returns the number copied. The outer error
    /// concerns this handle, the inner one the volume: on [`VfsError::NotSupported`] the caller must read and write the data
    /// instead.
    pub(crate) async fn copy_from(
        &self,
        skip: u64,
        from: (&NodeRef, &FileOps<'_>),
        from_at: u64,
        count: u64,
    ) -> Result<VfsResult<u64>, Status> {
        if self.is_info() {
            return Ok(Err(VfsError::NotSupported));
        }
        if self.reach == Reach::BehindTheEnd {
            // Between a check of the end and the copy, other writers could append data, which the copy would overwrite.
            return Ok(Err(VfsError::NotSupported));
        }
        let at = self.place(skip, count).await?;
        self.begin().await?;
        let (share, node) = (&self.file.share, self.file.node());
        let file_ops = self.file_ops();
        let copy = file_ops.copy_range_from(share, &node, from, from_at, at, count);
        self.note(Kept::Cache);
        Ok(self.unflushed(copy).await)
    }

    /// Makes the whole range share the storage of another file.
    pub(crate) async fn clone_from(
        &self,
        from: (&NodeRef, &FileOps<'_>),
        from_at: u64,
    ) -> VfsResult<()> {
        if self.is_info() {
            return Err(VfsError::NotSupported);
        }
        self.begin().await?;
        let (at, len) = self.change.range();
        let (share, node) = (&self.file.share, self.file.node());
        let file_ops = self.file_ops();
        self.note(Kept::ByShare);
        self.unflushed(file_ops.clone_range_unlocked(share, &node, from, from_at, at, len)).await
    }

    /// Frees the storage of the whole range, which then reads as zeros.
    pub(crate) async fn deallocate(&self) -> VfsResult<()> {
        if self.is_info() {
            return Err(VfsError::NotSupported);
        }
        self.begin().await?;
        let (at, len) = self.change.range();
        let (file_ops, node) = (self.file_ops(), self.file.node());
        let share = &self.file.share;
        match self.change {
            Change::Trim { .. } => {
                self.note(Kept::Cache);
                self.unflushed(file_ops.trim(share, &node, at, len)).await
            }
            _ => {
                self.note(Kept::ByShare);
                self.unflushed(file_ops.deallocate(share, &node, at, len)).await
            }
        }
    }

    /// Allocates storage for the whole range.
    pub(crate) async fn allocate(&self) -> VfsResult<()> {
        if self.is_info() {
            return Err(VfsError::NotSupported);
        }
        self.begin().await?;
        let (at, len) = self.change.range();
        self.note(Kept::ByShare);
        self.file_ops().allocate(&self.file.share, &self.file.node(), at, len).await
    }

    /// Sets the end of the file. A size above the file system's limit fails with STATUS_INVALID_PARAMETER (MS-FSA sections
    /// 2.1.5.15.1 and 2.1.5.15.4): Linux clients have no mapping to EFBIG and map this status to EINVAL, which truncate(2) may also
    /// return.
    pub(crate) async fn resize(self) -> Result<(), Status> {
        if self.is_info() {
            // Apple's servers let no client cut it.
            let fits = self.change.range().0 <= mac::INFO_LEN;
            return if fits { Ok(()) } else { Err(Status::ALLOTTED_SPACE_EXCEEDED) };
        }
        let node = self.file.node();
        let size_max = self.file.share.backend.capabilities_of(&node).size_max;
        if self.change.range().0 > size_max {
            return Err(Status::INVALID_PARAMETER);
        }
        let set = SetAttr { size: Some(self.change.range().0), ..SetAttr::default() };
        let (share, node) = (&self.file.share, self.file.node());
        self.begin().await?;
        self.note(Kept::ByShare);
        match self.file_ops().setattr(share, &node, &self.open.cred, set, true).await {
            Err(VfsError::TooBig) => return Err(Status::INVALID_PARAMETER),
            done => done?,
        };
        self.done().await
    }

    /// Runs the side effects of a change that was made, in whole or in part.
    pub(crate) async fn done(self) -> Result<(), Status> {
        match self.change {
            // Holders of directory leases learn a new size at once, but written data only when the handle closes.
            Change::EndOfFile(_) | Change::Allocation(_) => {
                lease::listing_changed(&self.cx.server, self.open);
            }
            _ => self.open.caching.note_changed(),
        }
        archive(self.cx, self.open).await?;
        held_times::give_times_back(self.cx, self.open).await?;
        stream_notice::changed(self.cx, self.file, self.stream_size, self.change.notice()).await;
        Ok(())
    }
}

/// Sets the archive attribute on a changed file (MS-FSA section 2.1.4.17).
async fn archive(cx: &RequestContext, open: &Open) -> Result<(), Status> {
    if !open.open_state.is_unarchived() {
        return Ok(());
    }
    let file = open.file()?;
    let attr = file.base().getattr().await?;
    let mut dos = file.base().dos(&attr).await?;
    dos.attributes = dos.attributes.map(|a| a | Dos::ARCHIVE);
    cx.file_ops(open).dos_set(&file.share, &file.base(), dos).await?;
    open.open_state.note_attributes(dos.attributes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Change; 8] = [
        Change::Write { at: 3, len: 1 },
        Change::CopyInto { at: 3, len: 1 },
        Change::DuplicateInto { at: 3, len: 1 },
        Change::ZeroData { at: 3, len: 1 },
        Change::Trim { at: 3, len: 1 },
        Change::EndOfFile(3),
        Change::Allocation(3),
        Change::ValidDataLength,
    ];

    /// Tries every set of rights: only the two data bits decide.
    #[test]
    fn two_bits_decide_how_far_a_handle_reaches() {
        for bit in (0..32).map(|n| 1_u32 << n).chain([0, !(mask::WRITE_DATA | mask::APPEND_DATA)]) {
            for change in ALL {
                let (writes, appends) =
                    (bit | mask::WRITE_DATA, (bit & !mask::WRITE_DATA) | mask::APPEND_DATA);
                let neither = bit & !(mask::WRITE_DATA | mask::APPEND_DATA);
                let (anywhere, refused) = (Ok(Reach::Anywhere), Status::ACCESS_DENIED);
                let adds = matches!(change, Change::Write { .. } | Change::CopyInto { .. });
                assert_eq!(reach(writes, change), anywhere, "{change:?}");
                assert_eq!(reach(neither, change), Err(refused), "{change:?}");
                let behind = if adds { Ok(Reach::BehindTheEnd) } else { Err(refused) };
                assert_eq!(reach(appends, change), behind, "{change:?}");
            }
        }
    }

    #[test]
    fn each_change_has_one_sync_decision() {
        use Kept::{ByShare, Cache, Storage};
        // Columns: handle opened with write-through, strict share, where the change is stored, whether the command waits for a
        // sync.
        for (through, strict, kept, waits) in [
            (false, false, Cache, false),
            (false, false, ByShare, false),
            (false, false, Storage, false),
            (false, true, Cache, false),
            (false, true, ByShare, false),
            (false, true, Storage, false),
            (true, false, Cache, true),
            (true, false, ByShare, true),
            (true, false, Storage, false),
            (true, true, Cache, true),
            (true, true, ByShare, false),
            (true, true, Storage, false),
        ] {
            assert_eq!(needs_sync(through, strict, kept), waits, "{through} {strict} {kept:?}");
        }
    }

    fn sources(dir: &std::path::Path, all: &mut Vec<std::path::PathBuf>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            match path.file_name().and_then(|n| n.to_str()) {
                Some("tests" | "tests.rs" | "kit.rs") => {}
                _ if path.is_dir() => sources(&path, all),
                _ => all.push(path),
            }
        }
    }

    /// Only this file contains the calls that change bytes, so no command can bypass the check.
    #[test]
    fn no_other_file_changes_bytes() {
        const CALLS: [&str; 11] = [
            ".empty(",
            ".trim(share",
            "file_ops.write(",
            "file_ops().write(",
            "file_ops.append(",
            "file_ops().append(",
            ".deallocate(share",
            ".allocate(&",
            ".copy_range",
            ".clone_range",
            "size: Some(",
        ];
        let mut all = Vec::new();
        sources(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut all);
        assert!(all.len() > 80);
        for path in all.iter().filter(|p| !p.ends_with("ops/bytes.rs")) {
            let text = std::fs::read_to_string(path).unwrap();
            for call in CALLS {
                assert!(!text.contains(call), "{}: {call}", path.display());
            }
        }
    }
}
