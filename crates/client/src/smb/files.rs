//! Operations on a share and its files.

use std::sync::atomic::Ordering;

use iobuf::{Buf, BufMut};
use rdma_transport::limits::SMBD_FRAGMENTED_RECV_MAX;
use smb_proto::NtStatus;
use smb_proto::fscc::chained;
use smb_proto::fscc::dir::Level;
use smb_proto::fscc::file::Standard;
use smb_proto::fscc::volume::FullSize;
use smb_proto::smb2::create::{self, Disposition, access, option, share};
use smb_proto::smb2::dfs::{ReferralRequest, ReferralResponse};
use smb_proto::smb2::file_id::FileId;
use smb_proto::smb2::negotiate::Dialect;
use smb_proto::smb2::rdma::Channel;
use smb_proto::smb2::{
    Command, close, flush, fsctl::code, ioctl, put_utf16, query_directory, query_info, read,
    set_info, simple, tree_connect, utf16, write,
};

use super::Smb;
use super::link::{Answer, HEAD_MAX, RequestBody, malformed};
use crate::error::{Error, Result};

/// FileNamesInformation, FileStandardInformation, FileDispositionInformation, FileNormalizedNameInformation (MS-FSCC section 2.4).
const NAMES: u8 = 12;
const STANDARD: u8 = 5;
/// FileFsFullSizeInformation.
const FULL_SIZE: u8 = 7;
const DISPOSITION: u8 = 13;
const NORMALIZED_NAME: u8 = 48;
const LIST_BYTES: u32 = 65_536;

/// An open file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmbFile {
    pub(super) id: FileId,
    /// Size in bytes when it was opened.
    pub size: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub name: String,
}

/// Returns the credit charge for a request or response of this size (MS-SMB2 section 3.1.5.2).
fn charge(bytes: u32) -> u16 {
    u16::try_from(bytes.saturating_sub(1) / 65_536 + 1).unwrap_or(u16::MAX)
}

impl SmbFile {
    /// Checks whether a break names this file.
    pub fn is(&self, id: FileId) -> bool {
        self.id == id
    }
}

impl Smb {
    pub(super) async fn tree_connect(mut self, server: &str, share: &str) -> Result<Self> {
        let path = format!("\\\\{server}\\{share}");
        let request = tree_connect::Request { flags: 0, path };
        let answer = self.plain(Command::TreeConnect, request.emit()).await?;
        let response = tree_connect::Response::parse(&answer.message).map_err(malformed)?;
        self.maximal_access = response.maximal_access;
        self.tree = answer.header.tree_id();
        Ok(self)
    }

    /// Opens or creates a file. `name` uses backslashes.
    pub async fn open(
        &self,
        name: &str,
        mask: u32,
        disposition: Disposition,
        options: u32,
    ) -> Result<SmbFile> {
        let mut units = Vec::new();
        put_utf16(&mut units, name);
        let request = create::Request {
            oplock_level: create::oplock::NONE,
            impersonation: 2,
            access: mask,
            attributes: 0,
            share: share::READ | share::WRITE | share::DELETE,
            disposition: disposition as u32,
            options,
            name: units.into(),
            contexts: Vec::new(),
        };
        let answer = self.plain(Command::Create, request.emit()).await?;
        let opened = create::Response::parse(&answer.message).map_err(malformed)?;
        Ok(SmbFile { id: opened.file, size: opened.basics.end_of_file })
    }

    /// Creates an empty file, or truncates an existing one.
    pub async fn create(&self, name: &str) -> Result<SmbFile> {
        let mask =
            access::READ_DATA | access::WRITE_DATA | access::READ_ATTRIBUTES | access::DELETE;
        self.open(name, mask, Disposition::OverwriteIf, option::NON_DIRECTORY_FILE).await
    }

    /// Opens an existing file for reading.
    pub async fn find(&self, name: &str) -> Result<SmbFile> {
        let mask = access::READ_DATA | access::READ_ATTRIBUTES;
        self.open(name, mask, Disposition::Open, option::NON_DIRECTORY_FILE).await
    }

    /// Closes the file.
    pub async fn close(&self, file: SmbFile) -> Result<()> {
        let request = close::Request { flags: 0, file: file.id };
        self.plain(Command::Close, request.emit()).await.map(drop)
    }

    /// Makes written data stable.
    pub async fn flush(&self, file: &SmbFile) -> Result<()> {
        let request = flush::Request::of(file.id);
        self.plain(Command::Flush, request.emit()).await.map(drop)
    }

    /// Returns the maximum payload of one message. Over SMB Direct the receiver's reassembly size limits a message.
    fn inline_max(&self, towards_server: bool) -> u32 {
        let room = match towards_server {
            true => self.info().message_out_max.load(Ordering::Relaxed),
            false => SMBD_FRAGMENTED_RECV_MAX,
        };
        if !self.is_rdma || room == 0 {
            return u32::MAX;
        }
        let max = u32::try_from(room.saturating_sub(HEAD_MAX)).unwrap_or(u32::MAX);
        // Whole pages are written faster than partial ones.
        if max > 65_536 { max & !0xffff } else { max }
    }

    /// Reads up to `count` bytes; fewer at the end of the file.
    pub async fn read(&self, file: &SmbFile, offset: u64, count: u32) -> Result<Vec<Buf>> {
        let mut data = Vec::new();
        let mut done = 0;
        while done < count {
            let part = match self.is_direct(count - done) {
                true => (count - done).min(self.agreed.read_max),
                false => (count - done).min(self.agreed.read_max).min(self.inline_max(false)),
            };
            let got = match self.read_one(file, offset + u64::from(done), part).await {
                Err(Error::Smb(_, NtStatus::END_OF_FILE)) => break,
                other => other?,
            };
            let len: usize = got.iter().map(Buf::len).sum();
            data.extend(got);
            let len = u32::try_from(len).unwrap_or(u32::MAX);
            done = done.saturating_add(len);
            if len < part {
                break;
            }
        }
        Ok(data)
    }

    /// Returns the RDMA channel; dialect 3.0 lacks remote invalidation (MS-SMB2 section 2.2.19).
    fn channel(&self) -> Channel {
        match self.agreed.dialect {
            Dialect::V300 => Channel::RdmaV1,
            _ => Channel::RdmaV1Invalidate,
        }
    }

    fn read_of(file: &SmbFile, offset: u64, length: u32) -> read::Request {
        read::Request {
            padding: read::Response::DATA_OFFSET,
            flags: 0,
            length,
            offset,
            file: file.id,
            minimum_count: 0,
            channel: Some(Channel::None),
            remaining: 0,
            descriptors: Vec::new(),
        }
    }

    async fn read_one(&self, file: &SmbFile, offset: u64, length: u32) -> Result<Vec<Buf>> {
        if self.is_direct(length) {
            let info = self.info();
            let len = usize::try_from(length).unwrap_or(0);
            let into = info.pool.acquire_all(len, info.account).await;
            let into = into.map_err(|e| Error::Protocol(e.to_string()))?;
            return self.read_into(file, offset, length, into).await;
        }
        let mut request = Self::read_of(file, offset, length);
        if self.link.compression().is_some() {
            request.flags |= read::REQUEST_COMPRESSED;
        }
        let ask = RequestBody::Plain(request.emit(), Vec::new());
        let answer = self.ask(Command::Read, charge(length), ask).await?;
        let response = read::Response::parse(&answer.message).map_err(malformed)?;
        let Answer { message, bulk: mut data, .. } = answer;
        if data.is_empty() {
            let at = usize::from(response.data_offset);
            let len = usize::try_from(response.data_length).unwrap_or(0);
            data.push(message.slice(at..at + len));
        }
        data.retain(|b| !b.is_empty());
        Ok(data)
    }

    /// Sends one READ whose data the server writes into these buffers, at most `length` bytes; requires an RDMA connection. Returns
    /// the buffers with data.
    pub async fn read_into(
        &self,
        file: &SmbFile,
        offset: u64,
        length: u32,
        into: Vec<BufMut>,
    ) -> Result<Vec<Buf>> {
        if !self.is_rdma || self.link.is_inline_only() {
            return Err(Error::Protocol("no data comes by RDMA here".into()));
        }
        let channel = Some(self.channel());
        let request = read::Request { channel, ..Self::read_of(file, offset, length) };
        let answer =
            self.ask(Command::Read, charge(length), RequestBody::Read(request, into)).await?;
        let mut data: Vec<Buf> = answer.into.into_iter().map(BufMut::freeze).collect();
        data.retain(|b| !b.is_empty());
        Ok(data)
    }

    /// Writes data; returns the number of bytes written.
    pub async fn write(&self, file: &SmbFile, offset: u64, data: Vec<Buf>) -> Result<u32> {
        let mut rest = data;
        let mut done = 0_u32;
        loop {
            let left: usize = rest.iter().map(Buf::len).sum();
            let left = u32::try_from(left).unwrap_or(u32::MAX);
            if left == 0 && done > 0 {
                return Ok(done);
            }
            let part = match self.is_direct(left) {
                true => left.min(self.agreed.write_max),
                false => left.min(self.agreed.write_max).min(self.inline_max(true)),
            };
            let now = take(&mut rest, usize::try_from(part).unwrap_or(0));
            let at = offset + u64::from(done);
            let count = self.write_one(file, at, part, now).await?;
            done += count;
            if count < part || left == part {
                return Ok(done);
            }
        }
    }

    async fn write_one(
        &self,
        file: &SmbFile,
        offset: u64,
        length: u32,
        data: Vec<Buf>,
    ) -> Result<u32> {
        let mut request = write::Request {
            data_offset: write::Request::DATA_OFFSET,
            length,
            offset,
            file: file.id,
            channel: Some(Channel::None),
            remaining: 0,
            flags: 0,
            descriptors: Vec::new(),
            transform: None,
        };
        let ask = if self.is_direct(length) {
            request.channel = Some(self.channel());
            (request.remaining, request.length, request.data_offset) = (length, 0, 0);
            RequestBody::Write(request, data)
        } else {
            RequestBody::Plain(request.emit(), data)
        };
        let answer = self.ask(Command::Write, charge(length), ask).await?;
        Ok(write::Response::parse(&answer.message).map_err(malformed)?.count)
    }

    /// Queries the size of an open file (FileStandardInformation).
    pub async fn size(&self, file: &SmbFile) -> Result<u64> {
        let info = self.file_info(file, STANDARD, 24).await?;
        Ok(Standard::parse(&info).map_err(malformed)?.end_of_file)
    }

    /// Queries the path of an open file from the share's root (FileNormalizedNameInformation, dialect 3.1.1).
    pub async fn path(&self, file: &SmbFile) -> Result<String> {
        let info = self.file_info(file, NORMALIZED_NAME, LIST_BYTES).await?;
        let name = info.split_at_checked(4).and_then(|(_, name)| utf16(name));
        name.ok_or_else(|| Error::Protocol("FileNormalizedNameInformation is no name".into()))
    }

    /// Queries the free bytes for this caller on the share's file system (FileFsFullSizeInformation, MS-FSCC section 2.5.4).
    pub async fn free(&self) -> Result<u64> {
        let mask = access::READ_ATTRIBUTES;
        let root = self.open("", mask, Disposition::Open, option::DIRECTORY_FILE).await?;
        let told = self.queried(&root, query_info::info_type::FILESYSTEM, FULL_SIZE, 32).await;
        self.close(root).await?;
        let told = FullSize::parse(&told?).map_err(malformed)?;
        let unit = u64::from(told.sectors_per_unit).saturating_mul(told.bytes_per_sector.into());
        Ok(told.caller_available.saturating_mul(unit))
    }

    async fn file_info(&self, file: &SmbFile, class: u8, output_len: u32) -> Result<Vec<u8>> {
        self.queried(file, query_info::info_type::FILE, class, output_len).await
    }

    async fn queried(
        &self,
        file: &SmbFile,
        info_type: u8,
        class: u8,
        output_len: u32,
    ) -> Result<Vec<u8>> {
        let request = query_info::Request {
            info_type,
            class,
            output_len,
            additional: 0,
            flags: 0,
            file: file.id,
            input: Vec::new(),
        };
        let answer = self.plain(Command::QueryInfo, request.emit()).await?;
        Ok(query_info::Response::parse(&answer.message).map_err(malformed)?.buffer.to_vec())
    }

    /// Returns parts of an open file's security descriptor, unparsed.
    pub async fn security(&self, file: &SmbFile, parts: u32) -> Result<Vec<u8>> {
        let request = query_info::Request {
            info_type: query_info::info_type::SECURITY,
            class: 0,
            output_len: LIST_BYTES,
            additional: parts,
            flags: 0,
            file: file.id,
            input: Vec::new(),
        };
        let answer = self.plain(Command::QueryInfo, request.emit()).await?;
        Ok(query_info::Response::parse(&answer.message).map_err(malformed)?.buffer.to_vec())
    }

    /// Sets parts of an open file's security descriptor.
    pub async fn set_security(&self, file: &SmbFile, parts: u32, sd: Vec<u8>) -> Result<()> {
        let request = set_info::Request {
            info_type: query_info::info_type::SECURITY,
            class: 0,
            additional: parts,
            file: file.id,
            buffer: sd,
        };
        self.plain(Command::SetInfo, request.emit()).await.map(drop)
    }

    /// Returns the names in a directory, without `.` and `..`.
    pub async fn list(&self, directory: &str) -> Result<Vec<Entry>> {
        let mask = access::READ_DATA | access::READ_ATTRIBUTES;
        let dir = self.open(directory, mask, Disposition::Open, option::DIRECTORY_FILE).await?;
        let mut names = Vec::new();
        loop {
            let request = query_directory::Request {
                class: NAMES,
                flags: 0,
                file_index: 0,
                file: dir.id,
                output_len: LIST_BYTES,
                pattern: "*".into(),
            };
            let answer = self.plain(Command::QueryDirectory, request.emit()).await;
            let answer = match answer {
                Err(Error::Smb(_, NtStatus::NO_MORE_FILES)) => break,
                other => other?,
            };
            let part = query_directory::Response::parse(&answer.message).map_err(malformed)?;
            entries(&part.buffer, &mut names)?;
        }
        self.close(dir).await?;
        names.retain(|e| e.name != "." && e.name != "..");
        Ok(names)
    }

    /// Queries the server's addresses (FSCTL_QUERY_NETWORK_INTERFACE_INFO); returns the unparsed response.
    pub async fn interfaces(&self) -> Result<Vec<u8>> {
        self.ioctl(FileId::PREVIOUS, code::QUERY_NETWORK_INTERFACE_INFO, &[]).await
    }

    /// Queries the targets of a path (FSCTL_DFS_GET_REFERRALS), `\server\share` with one leading backslash.
    pub async fn referrals(&self, path: &str) -> Result<ReferralResponse> {
        let asked = ReferralRequest { max_level: 4, path: path.into(), site: None };
        let told = self.ioctl(FileId::PREVIOUS, code::DFS_GET_REFERRALS, &asked.emit()).await?;
        ReferralResponse::parse(&told).map_err(malformed)
    }

    /// Sends a control code to an open file (MS-FSCC section 2.3); returns the unparsed output.
    pub async fn control(&self, file: &SmbFile, code: u32, input: &[u8]) -> Result<Vec<u8>> {
        self.ioctl(file.id, code, input).await
    }

    async fn ioctl(&self, file: FileId, code: u32, input: &[u8]) -> Result<Vec<u8>> {
        let request = ioctl::Request {
            code,
            file,
            input,
            input_max: 0,
            output_max: LIST_BYTES,
            flags: ioctl::IS_FSCTL,
        };
        let answer = self.plain(Command::Ioctl, request.emit()).await?;
        Ok(ioctl::Response::parse(&answer.message).map_err(malformed)?.output.to_vec())
    }

    /// Removes a file.
    pub async fn unlink(&self, name: &str) -> Result<()> {
        let options = option::NON_DIRECTORY_FILE | option::DELETE_ON_CLOSE;
        let file = self.open(name, access::DELETE, Disposition::Open, options).await?;
        self.close(file).await
    }

    /// Marks an open file for deletion at its last close (FileDispositionInformation).
    pub async fn delete_on_close(&self, file: &SmbFile) -> Result<()> {
        self.set_disposition(file, true).await
    }

    /// Clears that mark.
    pub async fn keep(&self, file: &SmbFile) -> Result<()> {
        self.set_disposition(file, false).await
    }

    async fn set_disposition(&self, file: &SmbFile, delete: bool) -> Result<()> {
        let request = set_info::Request {
            info_type: query_info::info_type::FILE,
            class: DISPOSITION,
            additional: 0,
            file: file.id,
            buffer: vec![u8::from(delete)],
        };
        self.plain(Command::SetInfo, request.emit()).await.map(drop)
    }

    /// Disconnects from the share and ends the session.
    pub async fn leave(self) -> Result<()> {
        self.plain(Command::TreeDisconnect, simple::BODY.to_vec()).await?;
        self.plain(Command::Logoff, simple::BODY.to_vec()).await.map(drop)
    }
}

/// Removes and returns the first `n` bytes.
fn take(from: &mut Vec<Buf>, n: usize) -> Vec<Buf> {
    let mut left = n;
    let mut taken = Vec::with_capacity(from.len());
    for piece in from.iter_mut() {
        let part = piece.split_to(left);
        left -= part.len();
        taken.push(part);
    }
    from.retain(|b| !b.is_empty());
    taken.retain(|b| !b.is_empty());
    taken
}

/// Parses entries of FileNamesInformation (MS-FSCC section 2.4.33).
fn entries(buffer: &[u8], into: &mut Vec<Entry>) -> Result<()> {
    // An empty response would make the listing endless.
    if buffer.is_empty() {
        return Err(Error::Protocol("a listing without entries".into()));
    }
    for entry in chained(buffer) {
        let (name, _) = entry.and_then(|e| Level::Names.parse(e)).map_err(malformed)?;
        into.push(Entry { name });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_charge_counts_64_kib() {
        for (bytes, credits) in [(0, 1), (1, 1), (65_536, 1), (65_537, 2), (1 << 20, 16)] {
            assert_eq!(charge(bytes), credits);
        }
    }

    #[test]
    fn take_removes_from_front() {
        let mut from = vec![Buf::from(vec![1, 2, 3]), Buf::from(vec![4, 5])];
        let first: Vec<u8> = take(&mut from, 4).iter().flat_map(|b| b.to_vec()).collect();
        assert_eq!(first, [1, 2, 3, 4]);
        assert_eq!(take(&mut from, 9).len(), 1);
        assert!(from.is_empty());
    }

    #[test]
    fn directory_names_are_parsed() {
        let mut buffer = vec![0; 16];
        buffer[0] = 16;
        buffer[8] = 4;
        buffer[12..16].copy_from_slice(&[b'a', 0, b'b', 0]);
        buffer.extend([0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, b'c', 0]);
        let mut names = Vec::new();
        entries(&buffer, &mut names).unwrap();
        let names: Vec<&str> = names.iter().map(|e| e.name.as_str()).collect();
        assert_eq!(names, ["ab", "c"]);
        for cut in [0, 11, 15, 27, 29] {
            assert!(entries(&buffer[..cut], &mut Vec::new()).is_err(), "{cut}");
        }
    }
}
