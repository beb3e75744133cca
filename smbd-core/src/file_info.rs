//! File information in SMB's terms: the neutral attributes, and those that Windows stores with a file.
//!
//! *Operation.* CREATE, CLOSE, QUERY_INFO and QUERY_DIRECTORY all use this module, so that they report the same values.

use std::collections::HashMap;

use vfs::backend::NodeRef;
use vfs::dos::Dos;
use vfs::namespace::FileOps;
use vfs::types::{Attr, Kind};

use crate::dtyp::mask;
use crate::dtyp::time::file_time;
use crate::fscc::attribute;
use crate::fscc::ea::FullEa;
use crate::fscc::file::{Basic, FileInfo, Posix, Standard, shown_attributes};
use crate::mac;
use crate::open::{File, Open};
use crate::security::{sid_of_gid, sid_of_uid};
use crate::status::Status;
use crate::wire::close::Basics;
use crate::wire::reparse::{TAG_NFS, TAG_SYMLINK};

/// Returns the reparse tag of a node; 0 if it is no reparse point. A file or directory has the tag that a client gave it. A FIFO,
/// socket or device has the tag that GET_REPARSE_POINT reports and that SET and DELETE_REPARSE_POINT expect (MS-FSCC sections
/// 2.1.2.6 and 2.4.6): clients compare them.
pub(crate) fn reparse_tag(kind: Kind, dos: &Dos) -> u32 {
    match kind {
        Kind::File | Kind::Dir => dos.reparse.map_or(0, |kept| kept.tag),
        Kind::Symlink => TAG_SYMLINK,
        Kind::Fifo | Kind::Char | Kind::Block | Kind::Socket => TAG_NFS,
    }
}

/// Returns the tag for clients of the POSIX extensions, which read each link as an NFS link.
pub(crate) fn posix_reparse_tag(kind: Kind, dos: &Dos) -> u32 {
    if kind == Kind::Symlink { TAG_NFS } else { reparse_tag(kind, dos) }
}

/// Returns the attributes that clients see. `name`: the name in its directory, if known; as on Unix hosts, names that begin with a
/// period are hidden. A file that no Windows client has touched has ARCHIVE.
pub(crate) fn attributes(attr: &Attr, dos: &Dos, name: &[u8]) -> u32 {
    let hidden =
        if name.len() > 1 && name[0] == b'.' && name != b".." { attribute::HIDDEN } else { 0 };
    let kept = dos.attributes.unwrap_or(match attr.kind {
        Kind::Dir => hidden,
        _ => hidden | attribute::ARCHIVE,
    });
    const DERIVED: u32 = attribute::DIRECTORY | attribute::REPARSE_POINT;
    let tagged = if dos.reparse.is_some() { attribute::REPARSE_POINT } else { 0 };
    let kind = match attr.kind {
        Kind::File => tagged,
        Kind::Dir => attribute::DIRECTORY | tagged,
        _ => attribute::REPARSE_POINT,
    };
    shown_attributes(kept & !DERIVED | kind)
}

pub(crate) fn basic(attr: &Attr, dos: &Dos, name: &[u8]) -> Basic {
    Basic {
        creation: file_time(dos.creation_time(attr)),
        last_access: file_time(attr.atime),
        last_write: file_time(attr.mtime),
        change: file_time(dos.change_time(attr.ctime)),
        attributes: attributes(attr, dos, name),
    }
}

/// Allocation unit in bytes, in which sizes are reported.
const UNIT: u64 = 4096;

/// Returns the bytes of storage for this many bytes of data.
pub(crate) fn in_units(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(UNIT).unwrap_or(bytes)
}

/// Returns the allocation size of a file. Data without a place on disk yet counts as if it had one, except in sparse files.
pub(crate) fn allocation(attr: &Attr, dos: &Dos) -> u64 {
    match attr.kind {
        Kind::Dir => 0,
        _ if dos.attributes.unwrap_or(0) & attribute::SPARSE_FILE != 0 => attr.used,
        _ => {
            let data = in_units(attr.size);
            // On some file systems the extended attributes of Windows take an extra block.
            if attr.used <= data.saturating_add(UNIT) { data } else { attr.used }
        }
    }
}

/// Returns the information of CREATE and CLOSE answers.
pub(crate) fn basics(attr: &Attr, dos: &Dos, name: &[u8]) -> Basics {
    let b = basic(attr, dos, name);
    Basics {
        times: [b.creation.0, b.last_access.0, b.last_write.0, b.change.0],
        allocation_size: allocation(attr, dos),
        end_of_file: if attr.kind == Kind::Dir { 0 } else { attr.size },
        attributes: b.attributes,
    }
}

/// Returns mode bits with the file type above them, as POSIX clients see them. The numbers of the types differ from `stat`.
///
/// A directory gets no type, because its attributes mark it. Every Linux client reads those, and versions before 6.11 add their own
/// type to the field, so that any other number would make an inode that they refuse ("bogus i_mode").
pub(crate) fn posix_mode(attr: &Attr) -> u32 {
    let kind = match attr.kind {
        Kind::File | Kind::Dir => 0,
        Kind::Symlink => 2,
        Kind::Char => 3,
        Kind::Block => 4,
        Kind::Fifo => 5,
        Kind::Socket => 6,
    };
    kind << 12 | attr.mode
}

/// Returns mode bits with the file type above them as stat(2) has them, for macOS.
pub(crate) fn stat_mode(attr: &Attr) -> u32 {
    let kind = match attr.kind {
        Kind::Fifo => 1,
        Kind::Char => 2,
        Kind::Dir => 4,
        Kind::Block => 6,
        Kind::File => 8,
        Kind::Symlink => 10,
        Kind::Socket => 12,
    };
    kind << 12 | attr.mode
}

/// Returns the creation time in seconds since 1970.
pub(crate) fn created(facts: &FileInfo) -> i64 {
    facts.basic.creation.to_unix().map_or(0, |(seconds, _)| seconds)
}

/// Builds the information that a node's attributes give. Fields of an open (position, rights, name) keep their defaults.
pub(crate) fn of(attr: &Attr, dos: &Dos, name: &[u8]) -> FileInfo {
    let is_dir = attr.kind == Kind::Dir;
    FileInfo {
        basic: basic(attr, dos, name),
        standard: Standard {
            allocation: allocation(attr, dos),
            end_of_file: if is_dir { 0 } else { attr.size },
            links: if is_dir { 1 } else { attr.nlink },
            delete_pending: 0,
            directory: u8::from(is_dir),
        },
        file_id: attr.fileid,
        volume: attr.fsid,
        reparse_tag: reparse_tag(attr.kind, dos),
        posix: Posix {
            // Invariant: a mask of 32 bits fits.
            #[allow(clippy::cast_possible_truncation)]
            device: (attr.fsid & u64::from(u32::MAX)) as u32,
            links: attr.nlink,
            mode: posix_mode(attr),
            owner: sid_of_uid(attr.uid),
            group: sid_of_gid(attr.gid),
        },
        ..FileInfo::default()
    }
}

/// Returns the present information of an open file or stream: times and attributes of the file, sizes of the stream. `by_macos`: a
/// client of macOS has it open.
pub(crate) async fn of_file(
    file_ops: &FileOps<'_>,
    file: &File,
    by_macos: bool,
) -> Result<FileInfo, Status> {
    let attr = file_ops.getattr(&file.base()).await?;
    let dos = file.base().dos(&attr).await?;
    let place = file.place();
    let mut facts = of(&attr, &dos, &place.name);
    if let Some(stream) = file.stream() {
        let data = file.node().getattr().await?;
        let data = Attr { size: mac::shown_size(&stream, data.size, by_macos), ..data };
        facts.standard.end_of_file = data.size;
        facts.standard.allocation = allocation(&data, &dos);
        facts.standard.directory = 0;
        facts.basic.attributes = shown_attributes(facts.basic.attributes & !attribute::DIRECTORY);
    }
    Ok(facts)
}

/// Returns the name itself if it has 8.3 form (MS-FSCC section 2.1.5.2.1); no other short names are generated.
pub(crate) fn short_name(name: &[u8]) -> Option<String> {
    let allowed = |b: &u8| b.is_ascii_alphanumeric() || b"!#$%&'()-@^_`{}~".contains(b);
    let (base, extension) = match name.iter().position(|b| *b == b'.') {
        Some(dot) => (&name[..dot], Some(&name[dot + 1..])),
        None => (name, None),
    };
    let fits = |part: &[u8], max| (1..=max).contains(&part.len()) && part.iter().all(allowed);
    let is_short = fits(base, 8) && extension.is_none_or(|e| fits(e, 3));
    is_short.then(|| String::from_utf8_lossy(name).into_owned())
}

/// Adds the fields of the open except its name.
pub(crate) fn of_open(open: &Open, mut facts: FileInfo, delete_pending: bool) -> FileInfo {
    facts.standard.delete_pending = u8::from(delete_pending);
    facts.standard.links -= u32::from(delete_pending && facts.standard.links > 0);
    if facts.standard.links == 0 {
        // Another handle removed its last name (MS-FSA section 2.1.5.12.27).
        facts.standard.delete_pending = 1;
    }
    if facts.standard.directory == 0 {
        facts.posix.links = facts.standard.links;
    }
    facts.standard.allocation = facts.standard.allocation.max(open.open_state.reserved());
    facts.access = open.granted;
    facts.position = open.open_state.position();
    facts.mode = open.open_state.mode();
    facts
}

/// The extended attributes of a node, whose values are read one at a time.
pub(crate) struct Extended<'a> {
    node: &'a NodeRef,
    open: &'a Open,
    /// In the order of the volume; empty if the volume supports none.
    names: Vec<Vec<u8>>,
    /// Indexes into `names`, by exact name and by lower-case name: clients use any case, and two attributes of a host may differ
    /// only in case.
    by_name: HashMap<Vec<u8>, usize>,
    /// Index and value of the attribute that was read last: a request may name one repeatedly.
    last: Option<(usize, Vec<u8>)>,
}

impl<'a> Extended<'a> {
    /// Reads the names.
    pub(crate) async fn list(node: &'a NodeRef, open: &'a Open) -> Result<Self, Status> {
        let names = match node.xattr_list(open.actor(node, mask::READ_EA).cred()).await {
            Ok(names) => names,
            Err(vfs::VfsError::NotSupported) => Vec::new(),
            Err(e) => return Err(e.into()),
        };
        let mut by_name: HashMap<_, _> =
            names.iter().enumerate().map(|(at, name)| (name.clone(), at)).collect();
        for (at, name) in names.iter().enumerate() {
            by_name.entry(name.to_ascii_lowercase()).or_insert(at);
        }
        Ok(Self { node, open, names, by_name, last: None })
    }

    /// Returns the names after the first `skipped` ones.
    pub(crate) fn names_from(&self, skipped: usize) -> Result<Vec<Vec<u8>>, Status> {
        match self.names.get(skipped..) {
            _ if self.names.is_empty() => Err(Status::NO_EAS_ON_FILE),
            None | Some([]) => Err(Status::NONEXISTENT_EA_ENTRY),
            Some(names) => Ok(names.to_vec()),
        }
    }

    /// Returns the value of an attribute; `None` if it does not exist.
    pub(crate) async fn value(&mut self, name: &[u8]) -> Result<Option<&[u8]>, Status> {
        let Some(at) = self.place(name) else { return Ok(None) };
        if self.last.as_ref().is_none_or(|(last, _)| *last != at) {
            let actor = self.open.actor(self.node, mask::READ_EA);
            match self.node.xattr_get(actor.cred(), &self.names[at]).await {
                Ok(value) => self.last = Some((at, value)),
                Err(vfs::VfsError::NoXattr) => return Ok(None),
                Err(e) => return Err(e.into()),
            }
        }
        Ok(self.last.as_ref().map(|(_, value)| value.as_slice()))
    }

    fn place(&self, name: &[u8]) -> Option<usize> {
        let known = |name: &[u8]| self.by_name.get(name).copied();
        known(name).or_else(|| known(&name.to_ascii_lowercase()))
    }
}

/// Returns the bytes of the extended attributes of a node, each as FILE_FULL_EA_INFORMATION: `ExtendedAttributesLength` (MS-FSA
/// section 2.1.1.3).
pub(crate) async fn extended_len(node: &NodeRef, attr: &Attr) -> Result<u32, Status> {
    let sizes = node.xattr_sizes(attr).await?;
    let bytes = sizes.bytes.saturating_add(sizes.count.saturating_mul(FullEa::FRAME));
    Ok(u32::try_from(bytes).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_8_3_form_is_its_own_short_name() {
        for name in ["a", "BUFSIZE.TXT", "bufsize.txt", "12345678.123", "A~1.{}", "no_dot"] {
            assert_eq!(short_name(name.as_bytes()).as_deref(), Some(name));
        }
        for name in [
            "",
            ".",
            "..",
            ".txt",
            "a.",
            "123456789",
            "123456789.txt",
            "a.text",
            "a.b.c",
            "a b",
            "a+b",
            "a,b",
            "a;b",
            "a=b",
            "a[b]",
            "\u{e4}",
            "a:b",
        ] {
            assert_eq!(short_name(name.as_bytes()), None, "{name}");
        }
    }
}
