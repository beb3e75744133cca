//! Opens with caching, breaks of the granted caching, byte-range locks, and change notices of directories.

use smb_proto::fscc::notify::Change;
use smb_proto::fscc::set::Set;
use smb_proto::smb2::context::{Lease, Told};
use smb_proto::smb2::create::{self, Disposition, access, oplock, option, share};
use smb_proto::smb2::lock::{Element, flag};
use smb_proto::smb2::{
    Command, change_notify, lock, oplock_break, put_utf16, query_info, set_info,
};
use tokio::sync::mpsc;

use super::Smb;
use super::files::SmbFile;
use super::link::malformed;
use crate::error::Result;

pub use smb_proto::smb2::oplock_break::Response as Break;

/// FileEndOfFileInformation, FileBasicInformation, FileRenameInformation (MS-FSCC section 2.4).
const END_OF_FILE: u8 = 20;
const BASIC: u8 = 4;
const RENAME: u8 = 10;
/// FileLinkInformation
const LINK: u8 = 11;
const NOTIFY_BYTES: u32 = 16 << 10;

/// The caching that an open requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Caching {
    /// No caching.
    #[default]
    None,
    /// An oplock of this level (`OplockLevel`).
    Oplock(u8),
    /// A lease with this key and `LeaseState`.
    Lease([u8; 16], u32),
}

/// How to open a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenHow {
    /// `DesiredAccess`
    pub access: u32,
    /// `ShareAccess`
    pub share: u32,
    /// `CreateDisposition`
    pub disposition: Disposition,
    /// `CreateOptions`
    pub options: u32,
    /// The requested caching.
    pub caching: Caching,
}

impl OpenHow {
    /// Opens an existing file for reading and shares all access.
    pub const READ: Self = Self {
        access: access::READ_DATA | access::READ_ATTRIBUTES,
        share: share::READ | share::WRITE | share::DELETE,
        disposition: Disposition::Open,
        options: option::NON_DIRECTORY_FILE,
        caching: Caching::None,
    };
    /// Like [`OpenHow::READ`], but also for writing.
    pub const WRITE: Self = Self { access: Self::READ.access | access::WRITE_DATA, ..Self::READ };
    /// Opens a directory to list and watch it.
    pub const LIST: Self = Self { options: option::DIRECTORY_FILE, ..Self::READ };

    /// Requests this caching in addition.
    pub fn cached(self, caching: Caching) -> Self {
        Self { caching, ..self }
    }
}

impl Smb {
    /// Opens a file; returns it with the granted caching: `OplockLevel`, or `LeaseState` if a lease was requested.
    pub async fn open_cached(&self, name: &str, how: &OpenHow) -> Result<(SmbFile, u32)> {
        self.open_with(name, how, None).await.map(|(file, granted, _)| (file, granted))
    }

    /// Like [`Smb::open_cached`] with an additional context; also returns the contexts of the response.
    pub(super) async fn open_with(
        &self,
        name: &str,
        how: &OpenHow,
        more: Option<create::Context<'static>>,
    ) -> Result<(SmbFile, u32, Told)> {
        let mut units = Vec::new();
        put_utf16(&mut units, name);
        let (level, mut contexts) = match how.caching {
            Caching::None => (oplock::NONE, Vec::new()),
            Caching::Oplock(level) => (level, Vec::new()),
            Caching::Lease(key, state) => {
                let lease = Lease { key, state, flags: 0, v2: Some(Default::default()) };
                (oplock::LEASE, vec![lease.context()])
            }
        };
        contexts.extend(more);
        let request = create::Request {
            oplock_level: level,
            impersonation: 2,
            access: how.access,
            attributes: 0,
            share: how.share,
            disposition: how.disposition as u32,
            options: how.options,
            name: units.into(),
            contexts,
        };
        let answer = self.plain(Command::Create, request.emit()).await?;
        let opened = create::Response::parse(&answer.message).map_err(malformed)?;
        let told = Told::parse(&opened.contexts).map_err(malformed)?;
        let granted = match (how.caching, told.lease) {
            (Caching::Lease(..), lease) => lease.map_or(0, |l| l.state),
            _ => u32::from(opened.oplock_level),
        };
        Ok((SmbFile { id: opened.file, size: opened.basics.end_of_file }, granted, told))
    }

    /// Returns the receiver for breaks of this connection's oplocks and leases; `None` after the first call.
    pub fn breaks(&self) -> Option<mpsc::Receiver<Break>> {
        self.link.breaks()
    }

    /// Returns the number of interim responses (STATUS_PENDING).
    pub fn interims(&self) -> u64 {
        self.link.interims()
    }

    /// Acknowledges the break of an oplock.
    pub async fn acknowledge_oplock(&self, file: &SmbFile, level: u8) -> Result<()> {
        let body = oplock_break::Oplock { level, file: file.id }.emit();
        self.plain(Command::OplockBreak, body).await.map(drop)
    }

    /// Acknowledges the break of a lease.
    pub async fn acknowledge_lease(&self, key: [u8; 16], state: u32) -> Result<()> {
        let body = oplock_break::Lease { key, state }.emit();
        self.plain(Command::OplockBreak, body).await.map(drop)
    }

    /// Locks bytes. With `wait`, waits until they are free; otherwise fails at once with STATUS_LOCK_NOT_GRANTED.
    pub async fn lock(
        &self,
        file: &SmbFile,
        (offset, length): (u64, u64),
        exclusive: bool,
        wait: bool,
    ) -> Result<()> {
        let kind = if exclusive { flag::EXCLUSIVE } else { flag::SHARED };
        let flags = if wait { kind } else { kind | flag::FAIL_IMMEDIATELY };
        self.lock_element(file, Element { offset, length, flags }).await
    }

    /// Removes a lock of exactly these bytes.
    pub async fn unlock(&self, file: &SmbFile, (offset, length): (u64, u64)) -> Result<()> {
        self.lock_element(file, Element { offset, length, flags: flag::UNLOCK }).await
    }

    async fn lock_element(&self, file: &SmbFile, element: Element) -> Result<()> {
        let request = lock::Request {
            sequence_number: 0,
            sequence_index: 0,
            file: file.id,
            locks: vec![element],
        };
        self.plain(Command::Lock, request.emit()).await.map(drop)
    }

    /// Waits for the next changes in an open directory; the list is empty if there were too many.
    pub async fn notify(&self, dir: &SmbFile, below: bool, filter: u32) -> Result<Vec<Change>> {
        let request = change_notify::Request {
            flags: if below { change_notify::WATCH_TREE } else { 0 },
            output_len: NOTIFY_BYTES,
            file: dir.id,
            filter,
        };
        let answer = self.plain(Command::ChangeNotify, request.emit()).await?;
        let told = change_notify::Response::parse(&answer.message).map_err(malformed)?;
        Change::parse_list(&told.buffer).map_err(malformed)
    }

    /// Truncates or extends an open file (FileEndOfFileInformation).
    pub async fn set_size(&self, file: &SmbFile, size: u64) -> Result<()> {
        self.set(file, END_OF_FILE, size.to_le_bytes().to_vec()).await
    }

    /// Sets the attributes of an open file without changing its times (FileBasicInformation).
    pub async fn set_attributes(&self, file: &SmbFile, attributes: u32) -> Result<()> {
        let mut buffer = vec![0; 40];
        buffer[32..36].copy_from_slice(&attributes.to_le_bytes());
        self.set(file, BASIC, buffer).await
    }

    /// Renames an open file to a path from the share's root; overwrites an existing file if `replace` (FileRenameInformation).
    pub async fn rename(&self, file: &SmbFile, to: &str, replace: bool) -> Result<()> {
        self.name(file, RENAME, to, replace).await
    }

    /// Adds a hard link to an open file; overwrites an existing file if `replace` (FileLinkInformation).
    pub async fn link(&self, file: &SmbFile, to: &str, replace: bool) -> Result<()> {
        self.name(file, LINK, to, replace).await
    }

    async fn name(&self, file: &SmbFile, class: u8, to: &str, replace: bool) -> Result<()> {
        let mut name = Vec::new();
        put_utf16(&mut name, to);
        let mut buffer = vec![0; 20];
        buffer[0] = u8::from(replace);
        buffer[16..20]
            .copy_from_slice(&u32::try_from(name.len()).unwrap_or(u32::MAX).to_le_bytes());
        buffer.extend(name);
        self.set(file, class, buffer).await
    }

    /// Sets information of one class on an open file (MS-FSCC section 2.4).
    pub async fn set_info(&self, file: &SmbFile, what: &Set) -> Result<()> {
        let (class, buffer) = what.emit();
        self.set(file, class, buffer).await
    }

    async fn set(&self, file: &SmbFile, class: u8, buffer: Vec<u8>) -> Result<()> {
        let request = set_info::Request {
            info_type: query_info::info_type::FILE,
            class,
            additional: 0,
            file: file.id,
            buffer,
        };
        self.plain(Command::SetInfo, request.emit()).await.map(drop)
    }
}
