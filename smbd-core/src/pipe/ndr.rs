//! As much of NDR (C706 chapter 14) as the interfaces need.

use crate::dtyp::Sid;
use crate::wire::{Fields, Malformed, utf16};

use super::rpc::Fault;

impl From<Malformed> for Fault {
    fn from(_: Malformed) -> Self {
        Self::BAD_STUB
    }
}

pub(super) type Read<T> = Result<T, Fault>;

/// Characters of a string at most.
const TEXT_MAX: u32 = 1024;

/// Reads arguments; every number is aligned to its size from the start.
pub(super) struct Reader<'a> {
    stub: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(stub: &'a [u8]) -> Self {
        Self { stub, at: 0 }
    }

    fn fields(&mut self, align: usize) -> Fields<'a> {
        self.at = self.at.next_multiple_of(align);
        Fields::new(self.stub, self.at)
    }

    pub(super) fn bytes(&mut self, len: usize) -> Read<&'a [u8]> {
        let found = self.fields(1).bytes(len, "bytes")?;
        self.at += len;
        Ok(found)
    }

    pub(super) fn u16(&mut self) -> Read<u16> {
        let found = self.fields(2).u16("short")?;
        self.at += 2;
        Ok(found)
    }

    pub(super) fn u32(&mut self) -> Read<u32> {
        let found = self.fields(4).u32("long")?;
        self.at += 4;
        Ok(found)
    }

    /// A pointer that may be null: whether it points.
    pub(super) fn pointer(&mut self) -> Read<bool> {
        Ok(self.u32()? != 0)
    }

    /// A conformant varying array of 16-bit characters; a zero at its end is not part of the text.
    pub(super) fn text(&mut self) -> Read<String> {
        let most = self.u32()?;
        let offset = self.u32()?;
        let count = self.u32()?;
        if offset != 0 || count > most || count > TEXT_MAX {
            return Err(Fault::BAD_STUB);
        }
        let bytes = self.bytes(2 * usize::try_from(count).map_err(|_| Fault::BAD_STUB)?)?;
        let text = utf16(bytes).ok_or(Fault::BAD_STUB)?;
        Ok(text.strip_suffix('\0').map(str::to_owned).unwrap_or(text))
    }

    /// A pointer to such an array.
    pub(super) fn unique_text(&mut self) -> Read<Option<String>> {
        if self.pointer()? { self.text().map(Some) } else { Ok(None) }
    }

    /// The fixed part of an RPC_UNICODE_STRING: whether its buffer follows.
    pub(super) fn string_head(&mut self) -> Read<bool> {
        self.u16()?;
        self.u16()?;
        self.pointer()
    }

    /// An RPC_SID.
    pub(super) fn sid(&mut self) -> Read<Sid> {
        let subs = self.u32()?;
        let subs = usize::try_from(subs).ok().filter(|n| *n <= Sid::SUBS_MAX);
        let bytes = self.bytes(8 + 4 * subs.ok_or(Fault::BAD_STUB)?)?;
        if Some(usize::from(bytes[1])) != subs {
            return Err(Fault::BAD_STUB);
        }
        Ok(Sid::parse(bytes).map_err(|fault| Malformed(fault.field))?)
    }
}

/// Writes results. What pointers of a structure point to follows behind the structure: [`Writer::later`].
#[derive(Default)]
pub(super) struct Writer {
    out: Vec<u8>,
    referents: u32,
}

/// Text of a structure that waits to be written behind it.
pub(super) enum Later {
    /// With a zero at the end.
    Text(String),
    /// The buffer of an RPC_UNICODE_STRING.
    Counted(String),
    Sid(Sid),
}

impl Writer {
    pub(super) fn align(&mut self, to: usize) {
        self.out.resize(self.out.len().next_multiple_of(to), 0);
    }

    pub(super) fn u16(&mut self, n: u16) {
        self.align(2);
        self.out.extend(n.to_le_bytes());
    }

    pub(super) fn u32(&mut self, n: u32) {
        self.align(4);
        self.out.extend(n.to_le_bytes());
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// A pointer that points.
    pub(super) fn pointer(&mut self) {
        self.referents += 4;
        self.u32(0x0002_0000 + self.referents);
    }

    pub(super) fn null(&mut self) {
        self.u32(0);
    }

    /// The fixed part of an RPC_UNICODE_STRING.
    pub(super) fn string_head(&mut self, text: &str) {
        let bytes = u16::try_from(2 * text.encode_utf16().count()).unwrap_or(u16::MAX);
        self.align(4);
        self.u16(bytes);
        self.u16(bytes);
        self.pointer();
    }

    fn array(&mut self, units: &[u16]) {
        let count = u32::try_from(units.len()).unwrap_or(u32::MAX);
        self.u32(count);
        self.u32(0);
        self.u32(count);
        self.out.extend(units.iter().flat_map(|u| u.to_le_bytes()));
    }

    /// Writes what was put off.
    pub(super) fn later(&mut self, all: Vec<Later>) {
        for one in all {
            match one {
                Later::Text(text) => {
                    self.array(&text.encode_utf16().chain([0]).collect::<Vec<_>>());
                }
                Later::Counted(text) => self.array(&text.encode_utf16().collect::<Vec<_>>()),
                Later::Sid(sid) => {
                    self.u32(u32::try_from(sid.subs().len()).unwrap_or_default());
                    sid.put(&mut self.out);
                }
            }
        }
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.out
    }
}
