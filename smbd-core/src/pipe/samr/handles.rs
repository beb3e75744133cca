//! Handles of one pipe: the object of each, and the rights with which it was opened (MS-SAMR section 2.2.3.2).
//!
//! *Operation.* A handle is a number that a pipe gives once, and a constant tag. A handle of another pipe, a closed handle and a
//! handle to an object of another kind are STATUS_INVALID_HANDLE.
//!
//! *Memory.* [`HANDLES_MAX`] for each pipe; their bytes count with what the pipe keeps.

use std::collections::BTreeMap;

use smb_proto::ndr::{Reader, Writer};

use super::super::rpc::Read;
use crate::status::Status;

/// Handles of one pipe.
pub(crate) const HANDLES_MAX: usize = 256;
/// Bytes of one handle, with its place in the table.
const HANDLE_BYTES: usize = 64;
/// Follows the number.
const TAG: [u8; 12] = *b"headgate sam";

/// A domain of this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Domain {
    /// The machine's own accounts and groups.
    Machine,
    /// S-1-5-32.
    Builtin,
}

/// The object of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Object {
    Server,
    Domain(Domain),
    /// The account with this RID.
    User(u32),
    /// The group of all accounts.
    Group,
    /// The local group with this RID in its domain.
    Alias(Domain, u32),
}

impl Object {
    /// Returns the rights that every caller has: to read and to execute (MS-SAMR section 2.2.1).
    pub(super) fn rights(self) -> [u32; 2] {
        match self {
            Self::Server => [0x0002_0010, 0x0002_0021],
            Self::Domain(_) => [0x0002_0084, 0x0002_0301],
            Self::User(_) => [0x0002_031a, 0x0002_0041],
            Self::Group => [0x0002_0010, 0x0002_0001],
            Self::Alias(..) => [0x0002_0004, 0x0002_0008],
        }
    }

    /// Grants the rights that a client asks for. No caller has a right to change the object.
    fn granted(self, asked: u32) -> Result<u32, Status> {
        const GENERIC_READ: u32 = 0x8000_0000;
        const GENERIC_EXECUTE: u32 = 0x2000_0000;
        const MAXIMUM_ALLOWED: u32 = 0x0200_0000;
        let [read, execute] = self.rights();
        let mut granted = asked & !(GENERIC_READ | GENERIC_EXECUTE | MAXIMUM_ALLOWED);
        for (bit, rights) in
            [(GENERIC_READ, read), (GENERIC_EXECUTE, execute), (MAXIMUM_ALLOWED, read | execute)]
        {
            if asked & bit != 0 {
                granted |= rights;
            }
        }
        if granted & !(read | execute) == 0 { Ok(granted) } else { Err(Status::ACCESS_DENIED) }
    }
}

/// The handles of one pipe.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    open: BTreeMap<u32, (Object, u32)>,
    last: u32,
}

/// A handle from a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Named(Option<u32>);

impl Named {
    pub(super) fn read(r: &mut Reader<'_>) -> Read<Self> {
        let (attributes, number) = (r.u32()?, r.u32()?);
        let is_ours = r.bytes(TAG.len())? == TAG && attributes == 0;
        Ok(Self(is_ours.then_some(number)))
    }
}

impl Handles {
    /// Returns the bytes of all handles.
    pub(crate) fn bytes(&self) -> usize {
        self.open.len() * HANDLE_BYTES
    }

    /// Closes all handles.
    pub(crate) fn forget(&mut self) {
        self.open.clear();
    }

    /// Opens an object and returns the number of its handle.
    pub(super) fn open(&mut self, object: Object, asked: u32) -> Result<u32, Status> {
        let granted = object.granted(asked)?;
        if self.open.len() >= HANDLES_MAX {
            return Err(Status::INSUFFICIENT_RESOURCES);
        }
        self.last = self.last.checked_add(1).ok_or(Status::INSUFFICIENT_RESOURCES)?;
        self.open.insert(self.last, (object, granted));
        Ok(self.last)
    }

    /// Closes a handle.
    pub(super) fn close(&mut self, named: Named) -> Result<(), Status> {
        let known = named.0.and_then(|number| self.open.remove(&number));
        known.map(drop).ok_or(Status::INVALID_HANDLE)
    }

    /// Returns the object of a handle that has these rights.
    pub(super) fn get(&self, named: Named, needs: u32) -> Result<Object, Status> {
        let (object, granted) =
            named.0.and_then(|number| self.open.get(&number)).ok_or(Status::INVALID_HANDLE)?;
        if granted & needs == needs { Ok(*object) } else { Err(Status::ACCESS_DENIED) }
    }

    /// Returns the object of a handle that has these rights, if `take` accepts its kind.
    pub(super) fn of<T>(
        &self,
        named: Named,
        needs: u32,
        take: impl Fn(Object) -> Option<T>,
    ) -> Result<T, Status> {
        let of_kind = take(self.get(named, 0)?).ok_or(Status::INVALID_HANDLE)?;
        self.get(named, needs)?;
        Ok(of_kind)
    }
}

/// Writes a handle, or zeros.
pub(super) fn put(w: &mut Writer, number: Option<u32>) {
    w.u32(0);
    w.u32(number.unwrap_or_default());
    w.bytes(&number.map_or([0; TAG.len()], |_| TAG));
}
