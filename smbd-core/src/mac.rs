//! The agreement of a macOS client with the server, and the two streams in which macOS keeps the data that Finder shows of a file.
//!
//! *Operation.* macOS asks with the context `AAPL` of a CREATE ([`agree`]). The session remembers the answer, for all its
//! connections and trees, because the client does: one that mounts a second share relies on what it learned with the first.
//!
//! The streams [`AFP_INFO`](crate::fscc::mac::AFP_INFO) and [`AFP_RESOURCE`](crate::fscc::mac::AFP_RESOURCE) follow the rules of
//! Apple's servers for every client: FinderInfo is read and written whole and from its start, and either stream exists only while
//! it has contents. Clients do not see such a stream if the volume has it without bytes. Sizes of open streams follow from that,
//! and the last close removes such a stream ([`crate::teardown`]). If a stream with the name of FinderInfo has other data, it does
//! not exist for macOS, and other clients get the stored bytes. Pure.
//!
//! *Errors.* STATUS_INVALID_PARAMETER for data that is no FinderInfo.

use std::sync::atomic::{AtomicU8, Ordering};

use vfs::names::same;

use crate::fscc::mac::{AFP_INFO, AFP_RESOURCE, AfpInfo};
use crate::status::Status;
use crate::wire::aapl::{Query, Told, caps, part, volume};

/// Bits of the agreement between a session and its client.
pub(crate) mod agreed {
    /// The client is macOS.
    pub(crate) const MACOS: u8 = 1;
    /// Directory entries have what Finder shows.
    pub(crate) const READ_DIR_ATTR: u8 = 2;
    /// A server-side copy without chunks copies the whole file.
    pub(crate) const COPYFILE: u8 = 4;
}

/// Bits of [`agreed`].
#[derive(Debug, Default)]
pub(crate) struct Agreed(AtomicU8);

impl Agreed {
    /// Adds these.
    pub(crate) fn add(&self, bits: u8) {
        self.0.fetch_or(bits, Ordering::Relaxed);
    }

    /// Returns whether all of these were agreed on.
    pub(crate) fn has(&self, bits: u8) -> bool {
        self.0.load(Ordering::Relaxed) & bits == bits
    }
}

/// Answers a query. Returns also what is agreed on from then on. `for_backups`: the share is for Time Machine.
pub(crate) fn agree(query: &Query, for_backups: bool, model: &str) -> (Told, u8) {
    let wants = |bit: u64| query.parts & bit != 0;
    let mut bits = agreed::MACOS;
    let server = wants(part::SERVER_CAPS).then(|| {
        bits |= agreed::COPYFILE;
        let always = caps::UNIX_BASED | caps::OSX_COPYFILE | caps::NFS_ACE;
        match query.client & caps::READ_DIR_ATTR {
            0 => always,
            reads => {
                bits |= agreed::READ_DIR_ATTR;
                always | reads
            }
        }
    });
    // Names are found in any case.
    let volume = if for_backups { volume::FULL_SYNC } else { 0 };
    let told = Told {
        server,
        volume: wants(part::VOLUME_CAPS).then_some(volume),
        model: wants(part::MODEL_INFO).then(|| model.to_owned()),
    };
    (told, bits)
}

/// A stream that follows the rules of Apple's servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Special {
    /// FinderInfo.
    Info,
    /// The resource fork.
    Resource,
}

/// Length of FinderInfo in bytes.
pub(crate) const INFO_LEN: u64 = AfpInfo::LEN as u64;

impl Special {
    /// Returns the kind of the stream of this name; `None` for an ordinary stream.
    pub(crate) fn named(name: &str) -> Option<Self> {
        if same(name, AFP_INFO) {
            Some(Self::Info)
        } else if same(name, AFP_RESOURCE) {
            Some(Self::Resource)
        } else {
            None
        }
    }
}

/// Returns whether a stream that has this many bytes on the volume exists for a client. Empty streams do not exist for macOS, as on
/// Apple's volumes.
pub(crate) fn exists(name: &str, size: u64, is_macos: bool) -> bool {
    match Special::named(name) {
        Some(Special::Info) => size == INFO_LEN || size > 0 && !is_macos,
        Some(Special::Resource) => size > 0,
        None => size > 0 || !is_macos,
    }
}

/// Returns the size of an open stream that has this many bytes on the volume.
pub(crate) fn shown_size(name: &str, size: u64, is_macos: bool) -> u64 {
    match Special::named(name) {
        Some(Special::Info) if is_macos || size == 0 => INFO_LEN,
        _ => size,
    }
}

/// The effect of a write to FinderInfo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum InfoWrite {
    /// The write ends before the part that is kept.
    Nothing,
    /// FinderInfo of zeros only: the stream is removed.
    Remove,
    /// These are the stream's contents.
    Keep(Vec<u8>),
}

/// Decides a write of `count` bytes at `at`, of which `data` has the first, at most [`INFO_LEN`]: as Apple's servers do it,
/// wherever it begins it replaces the whole.
pub(crate) fn info_write(at: u64, count: usize, data: &[u8]) -> Result<InfoWrite, Status> {
    let is_part = count < AfpInfo::LEN;
    if at != 0 && is_part || !data.starts_with(b"AFP") {
        return Err(Status::INVALID_PARAMETER);
    }
    if count <= AfpInfo::FINDER_AT {
        return Ok(InfoWrite::Nothing);
    }
    let mut whole = AfpInfo::default().emit();
    whole.iter_mut().zip(data).for_each(|(old, new)| *old = *new);
    let info = AfpInfo::parse(&whole).map_err(|_| Status::INVALID_PARAMETER)?;
    Ok(if info.is_empty() { InfoWrite::Remove } else { InfoWrite::Keep(whole) })
}

/// Returns whether a stream with these bytes is a whole FinderInfo.
pub(crate) fn is_info(stored: &[u8]) -> bool {
    stored.len() == AfpInfo::LEN && AfpInfo::parse(stored).is_ok()
}

/// Returns the bytes that a read of FinderInfo gets. `stored`: the stream on the volume, which is ignored unless it is a whole
/// FinderInfo. Any offset up to the end reads from the start, as Apple's servers do.
pub(crate) fn info_read(stored: Vec<u8>, at: u64, count: usize) -> Vec<u8> {
    if at > INFO_LEN {
        return Vec::new();
    }
    let mut info = if is_info(&stored) { stored } else { AfpInfo::default().emit() };
    info.truncate(count);
    info
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn info(finder: &[u8]) -> Vec<u8> {
        let mut info = AfpInfo::default();
        info.finder[..finder.len()].copy_from_slice(finder);
        info.emit()
    }

    fn write(at: u64, data: &[u8]) -> Result<InfoWrite, Status> {
        info_write(at, data.len(), &data[..data.len().min(AfpInfo::LEN)])
    }

    #[test]
    fn answers_have_what_was_asked_for() {
        let all = part::SERVER_CAPS | part::VOLUME_CAPS | part::MODEL_INFO;
        let ask = |parts, client| agree(&Query { parts, client }, true, "RackMac");
        let (told, bits) = ask(all | 1 << 40, u64::MAX);
        assert_eq!(
            (told.server, told.volume, told.model.as_deref()),
            (Some(15), Some(4), Some("RackMac"))
        );
        assert_eq!(bits, agreed::MACOS | agreed::READ_DIR_ATTR | agreed::COPYFILE);
        let (told, bits) = ask(part::SERVER_CAPS, caps::READ_DIR_ATTR_V2);
        assert_eq!((told.server, told.volume, told.model), (Some(14), None, None));
        assert_eq!(bits, agreed::MACOS | agreed::COPYFILE);
        assert_eq!(ask(0, caps::READ_DIR_ATTR), (Told::default(), agreed::MACOS));
        let plain = agree(&Query { parts: all, client: 0 }, false, "x").0;
        assert_eq!(plain.volume, Some(0), "no case, and nothing beyond FLUSH");
        let agreed_on = Agreed::default();
        agreed_on.add(agreed::MACOS);
        assert!(agreed_on.has(agreed::MACOS) && !agreed_on.has(agreed::MACOS | agreed::COPYFILE));
    }

    #[test]
    fn names_are_known_in_any_case() {
        assert_eq!(Special::named("AFP_AfpInfo"), Some(Special::Info));
        assert_eq!(Special::named("afp_afpinfo"), Some(Special::Info));
        assert_eq!(Special::named("AFP_RESOURCE"), Some(Special::Resource));
        for other in ["", "AFP_", "AFP_AfpInfo2", "com.apple.FinderInfo"] {
            assert_eq!(Special::named(other), None, "{other}");
        }
    }

    #[test]
    fn empty_streams_exist_for_others_than_macos_only() {
        for (name, size, others, macos) in [
            ("s", 0, true, false),
            ("s", 1, true, true),
            ("AFP_Resource", 0, false, false),
            ("AFP_Resource", 1, true, true),
            ("AFP_AfpInfo", 0, false, false),
            ("AFP_AfpInfo", 59, true, false),
            ("AFP_AfpInfo", 60, true, true),
            ("AFP_AfpInfo", 61, true, false),
        ] {
            assert_eq!([false, true].map(|mac| exists(name, size, mac)), [others, macos], "{name}");
        }
        for (name, size, others, macos) in
            [("AFP_AfpInfo", 0, 60, 60), ("AFP_AfpInfo", 59, 59, 60), ("AFP_Resource", 7, 7, 7)]
        {
            let shown = [false, true].map(|mac| shown_size(name, size, mac));
            assert_eq!(shown, [others, macos], "{name}");
        }
    }

    #[test]
    fn info_is_written_whole_or_refused() {
        let (some, none) = (info(b"TEXT"), info(b""));
        assert_eq!(write(0, &some), Ok(InfoWrite::Keep(some.clone())));
        assert_eq!(write(9, &some), Ok(InfoWrite::Keep(some.clone())), "an offset means nothing");
        assert_eq!(write(u64::MAX, &some), Ok(InfoWrite::Keep(some.clone())));
        assert_eq!(write(0, &none), Ok(InfoWrite::Remove));
        assert_eq!(write(0, &[&some[..], b"more"].concat()), Ok(InfoWrite::Keep(some.clone())));
        assert_eq!(write(0, &some[..16]), Ok(InfoWrite::Nothing));
        assert_eq!(write(0, &some[..20]), Ok(InfoWrite::Keep(some.clone())), "the rest is empty");
        assert_eq!(write(0, &none[..17]), Ok(InfoWrite::Remove));
        let refused = Err(Status::INVALID_PARAMETER);
        let mut version = some.clone();
        version[6] ^= 1;
        for (at, data) in [(0, &b"AF"[..]), (0, b"afp"), (1, &some[..59]), (0, &version)] {
            assert_eq!(write(at, data), refused, "{at} {data:?}");
        }
    }

    #[test]
    fn info_is_read_from_its_start() {
        let some = info(b"TEXT");
        let read = |at, count| info_read(some.clone(), at, count);
        assert_eq!(read(0, 60), some);
        assert_eq!(read(0, 99), some);
        assert_eq!(read(59, 2), b"AF");
        assert_eq!(read(60, 1), b"A");
        assert_eq!(read(61, 1), b"");
        for stored in [vec![], b"foo".to_vec(), vec![0; 60], [&some[..], &[0]].concat()] {
            assert_eq!(info_read(stored, 0, 60), info(b""));
        }
    }

    proptest! {
        /// Reads return the FinderInfo that was kept, and an empty one after a removal.
        #[test]
        fn reads_return_what_writes_kept(
            writes in proptest::collection::vec((0..3_u64, proptest::collection::vec(0..3_u8, 0..70), any::<bool>()), 0..8),
        ) {
            let (mut stored, mut model) = (Vec::new(), info(b""));
            for (at, mut data, is_good) in writes {
                if is_good {
                    let head = info(b"");
                    data.iter_mut().zip(&head[..16]).for_each(|(byte, good)| *byte = *good);
                }
                match write(at, &data) {
                    Ok(InfoWrite::Nothing) => prop_assert!(is_good && data.len() <= 16),
                    Ok(InfoWrite::Remove) => (stored, model) = (Vec::new(), info(b"")),
                    Ok(InfoWrite::Keep(whole)) => {
                        prop_assert!(is_good);
                        model = info(b"");
                        model.iter_mut().zip(&data).for_each(|(old, new)| *old = *new);
                        stored = whole;
                    }
                    Err(_) => prop_assert!(!is_good || data.len() < 3 || at != 0 && data.len() < 60),
                }
                let mut read = info_read(stored.clone(), 0, 60);
                if stored.is_empty() {
                    prop_assert!(AfpInfo::parse(&read).unwrap().is_empty());
                    read = info(b"");
                }
                prop_assert_eq!(&read, &model);
            }
        }
    }
}
