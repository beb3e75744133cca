//! Create contexts (MS-SMB2 sections 2.2.13.2.1 to 2.2.13.2.16, 2.2.14.2.1 to 2.2.14.2.14, the context of the POSIX extensions of
//! dialect 3.1.1, and that of macOS).
//!
//! Each context has a type for both directions. [`Asked`] has all contexts of a request, [`Told`] all contexts of a response.

use wire::{Malformed, Parser, Rule, bytes, le_u16, le_u32, le_u64, reject, take};

use super::create::Context;
use super::{FileId, Parsed, aapl};
use crate::parse::{constant, whole};

/// Names of contexts.
pub mod name {
    #![allow(missing_docs)] // The names are the specification's.
    pub const EA_BUFFER: &[u8] = b"ExtA";
    pub const SD_BUFFER: &[u8] = b"SecD";
    pub const DURABLE_HANDLE_REQUEST: &[u8] = b"DHnQ";
    pub const DURABLE_HANDLE_RECONNECT: &[u8] = b"DHnC";
    pub const ALLOCATION_SIZE: &[u8] = b"AlSi";
    pub const QUERY_MAXIMAL_ACCESS: &[u8] = b"MxAc";
    pub const TIMEWARP_TOKEN: &[u8] = b"TWrp";
    pub const QUERY_ON_DISK_ID: &[u8] = b"QFid";
    pub const REQUEST_LEASE: &[u8] = b"RqLs";
    pub const DURABLE_HANDLE_REQUEST_V2: &[u8] = b"DH2Q";
    pub const DURABLE_HANDLE_RECONNECT_V2: &[u8] = b"DH2C";
    pub const APP_INSTANCE_ID: &[u8] =
        b"\x45\xbc\xa6\x6a\xef\xa7\xf7\x4a\x90\x08\xfa\x46\x2e\x14\x4d\x74";
    pub const APP_INSTANCE_VERSION: &[u8] =
        b"\xb9\x82\xd0\xb7\x3b\x56\x07\x4f\xa0\x7b\x52\x4a\x81\x16\xa0\x10";
    pub const SVHDX_OPEN_DEVICE: &[u8] =
        b"\x9c\xcb\xcf\x9e\x04\xc1\xe6\x43\x98\x0e\x15\x8d\xa1\xf6\xec\x83";
    pub const POSIX: &[u8] = b"\x93\xad\x25\x50\x9c\xb4\x11\xe7\xb4\x23\x83\xde\x96\x8b\xcd\x7c";
    pub use crate::smb2::aapl::NAME as AAPL;
}

/// The bits of `LeaseFlags`.
pub mod lease_flag {
    #![allow(missing_docs)] // The names are the specification's.
    pub const BREAK_IN_PROGRESS: u32 = 2;
    pub const PARENT_LEASE_KEY_SET: u32 = 4;
}

/// SMB2_DHANDLE_FLAG_PERSISTENT
pub const DHANDLE_FLAG_PERSISTENT: u32 = 2;

/// SMB2_CREATE_REQUEST_LEASE and its version 2, in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    /// The key that the client assigned.
    pub key: [u8; 16],
    /// READ_CACHING 1, HANDLE_CACHING 2, WRITE_CACHING 4.
    pub state: u32,
    /// Bits of [`lease_flag`].
    pub flags: u32,
    /// The fields of version 2.
    pub v2: Option<LeaseV2>,
}

/// The additional fields of a version 2 lease context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseV2 {
    /// Lease key of the parent directory; valid if its flag is set.
    pub parent: [u8; 16],
    /// Number of changes of the lease state.
    pub epoch: u16,
}

impl Lease {
    fn parse(data: &[u8]) -> Parsed<Self> {
        let v1 = |i| {
            let (i, (key, state, flags, _)) = (
                bytes("LeaseKey"),
                le_u32("LeaseState"),
                le_u32("LeaseFlags"),
                le_u64("LeaseDuration"),
            )
                .parse(i)?;
            Ok((i, Self { key, state, flags, v2: None }))
        };
        if data.len() == 32 {
            return whole(data, v1);
        }
        let v2 = (bytes("ParentLeaseKey"), le_u16("Epoch"), le_u16("Reserved"))
            .map(|(parent, epoch, _)| LeaseV2 { parent, epoch });
        sized(data, 52, "RqLs", (v1, v2).map(|(v1, v2)| Self { v2: Some(v2), ..v1 }))
    }

    /// Converts it to a context for either direction.
    pub fn context(&self) -> Context<'static> {
        let mut out = Vec::with_capacity(52);
        out.extend(self.key);
        out.extend(self.state.to_le_bytes());
        out.extend(self.flags.to_le_bytes());
        out.extend([0; 8]);
        if let Some(v2) = self.v2 {
            out.extend(v2.parent);
            out.extend(v2.epoch.to_le_bytes());
            out.extend([0; 2]);
        }
        Context::new(name::REQUEST_LEASE, out)
    }
}

/// SMB2_CREATE_DURABLE_HANDLE_REQUEST_V2
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurableV2 {
    /// Milliseconds to keep the open after the connection is lost; 0: the server decides.
    pub timeout: u32,
    /// [`DHANDLE_FLAG_PERSISTENT`]
    pub flags: u32,
    /// GUID that the client assigned to the create.
    pub guid: [u8; 16],
}

impl DurableV2 {
    fn parse(i: &[u8]) -> wire::Parsed<'_, Self> {
        let (i, (timeout, flags, _, guid)) =
            (le_u32("Timeout"), le_u32("Flags"), le_u64("Reserved"), bytes("CreateGuid"))
                .parse(i)?;
        Ok((i, Self { timeout, flags, guid }))
    }

    /// Converts it to a context of a request.
    pub fn context(&self) -> Context<'static> {
        let mut out = Vec::with_capacity(32);
        out.extend(self.timeout.to_le_bytes());
        out.extend(self.flags.to_le_bytes());
        out.extend([0; 8]);
        out.extend(self.guid);
        Context::new(name::DURABLE_HANDLE_REQUEST_V2, out)
    }
}

/// SMB2_CREATE_DURABLE_HANDLE_RECONNECT_V2
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReconnectV2 {
    /// The open file.
    pub file: FileId,
    /// The GUID of its create.
    pub guid: [u8; 16],
    /// [`DHANDLE_FLAG_PERSISTENT`]
    pub flags: u32,
}

impl ReconnectV2 {
    fn parse(i: &[u8]) -> wire::Parsed<'_, Self> {
        let (i, (file, guid, flags)) =
            (FileId::parse, bytes("CreateGuid"), le_u32("Flags")).parse(i)?;
        Ok((i, Self { file, guid, flags }))
    }

    /// Converts it to a context of a request.
    pub fn context(&self) -> Context<'static> {
        let mut out = Vec::with_capacity(36);
        out.extend(self.file.emit());
        out.extend(self.guid);
        out.extend(self.flags.to_le_bytes());
        Context::new(name::DURABLE_HANDLE_RECONNECT_V2, out)
    }
}

/// All create contexts of a request. If a context occurs twice, the first one applies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked<'a> {
    /// FILE_FULL_EA_INFORMATION for a new file.
    pub ea: Option<&'a [u8]>,
    /// A security descriptor for a new file.
    pub sd: Option<&'a [u8]>,
    /// A durable open, version 1.
    pub durable: bool,
    /// Reconnect to a durable open, version 1.
    pub reconnect: Option<FileId>,
    /// Storage to reserve for a new file, in bytes.
    pub allocation_size: Option<u64>,
    /// Query the maximal access, unless the file is unchanged since this FILETIME.
    pub maximal_access: Option<Option<u64>>,
    /// Open a snapshot: a FILETIME.
    pub timewarp: Option<u64>,
    /// Query the file number on disk.
    pub on_disk_id: bool,
    /// A lease.
    pub lease: Option<Lease>,
    /// A durable open, version 2.
    pub durable_v2: Option<DurableV2>,
    /// Reconnect to a durable open, version 2.
    pub reconnect_v2: Option<ReconnectV2>,
    /// The application instance whose older opens are closed.
    pub app_instance: Option<[u8; 16]>,
    /// Its version, high and low.
    pub app_version: Option<(u64, u64)>,
    /// The request opens a shared virtual disk.
    pub svhdx: bool,
    /// POSIX: the mode of a new file.
    pub posix: Option<u32>,
    /// macOS asks for extensions.
    pub aapl: Option<aapl::Query>,
}

impl<'a> Asked<'a> {
    /// Parses the contexts of a request; ignores unknown ones (MS-SMB2 section 3.3.5.9).
    pub fn parse(contexts: &'a [Context<'_>]) -> Parsed<Self> {
        let mut a = Self::default();
        for c in contexts {
            a.one(&c.name, &c.data)?;
        }
        Ok(a)
    }

    fn one(&mut self, name: &[u8], data: &'a [u8]) -> Parsed<()> {
        match name {
            name::EA_BUFFER => first(&mut self.ea, data),
            name::SD_BUFFER => first(&mut self.sd, data),
            name::DURABLE_HANDLE_REQUEST => {
                sized(data, 16, "DHnQ", take(16, "DurableRequest"))?;
                self.durable = true;
            }
            name::DURABLE_HANDLE_RECONNECT => {
                first(&mut self.reconnect, sized(data, 16, "DHnC", FileId::parse)?);
            }
            name::ALLOCATION_SIZE => {
                let size = sized(data, 8, "AlSi", le_u64("AllocationSize"))?;
                first(&mut self.allocation_size, size);
            }
            name::QUERY_MAXIMAL_ACCESS => {
                let since = match data {
                    [] => None,
                    _ => Some(sized(data, 8, "MxAc", le_u64("Timestamp"))?),
                };
                first(&mut self.maximal_access, since);
            }
            name::TIMEWARP_TOKEN => {
                first(&mut self.timewarp, sized(data, 8, "TWrp", le_u64("Timestamp"))?);
            }
            name::QUERY_ON_DISK_ID => {
                sized(data, 0, "QFid", take(0, "QFid"))?;
                self.on_disk_id = true;
            }
            name::REQUEST_LEASE => first(&mut self.lease, Lease::parse(data)?),
            name::DURABLE_HANDLE_REQUEST_V2 => {
                first(&mut self.durable_v2, sized(data, 32, "DH2Q", DurableV2::parse)?);
            }
            name::DURABLE_HANDLE_RECONNECT_V2 => {
                first(&mut self.reconnect_v2, sized(data, 36, "DH2C", ReconnectV2::parse)?);
            }
            name::APP_INSTANCE_ID => {
                let id = (structure_size(20), le_u16("Reserved"), bytes("AppInstanceId"))
                    .map(|((), _, id)| id);
                first(&mut self.app_instance, sized(data, 20, "AppInstanceId", id)?);
            }
            name::APP_INSTANCE_VERSION => {
                let (high, low) =
                    (le_u64("AppInstanceVersionHigh"), le_u64("AppInstanceVersionLow"));
                let version = (structure_size(24), take(6, "Reserved"), high, low)
                    .map(|((), _, high, low)| (high, low));
                first(&mut self.app_version, sized(data, 24, "AppInstanceVersion", version)?);
            }
            name::SVHDX_OPEN_DEVICE => self.svhdx = true,
            name::POSIX => {
                first(&mut self.posix, sized(data, 4, "POSIX", le_u32("Mode"))?);
            }
            name::AAPL => {
                let len = aapl::Query::LEN;
                first(&mut self.aapl, sized(data, len, "AAPL", aapl::Query::parse)?);
            }
            _ => {}
        }
        Ok(())
    }
}

fn first<T>(slot: &mut Option<T>, value: T) {
    if slot.is_none() {
        *slot = Some(value);
    }
}

/// Parses the data of a context of fixed length.
fn sized<'a, T>(
    data: &'a [u8],
    len: usize,
    name: &'static str,
    mut each: impl Parser<&'a [u8], Output = T, Error = Malformed<'a>>,
) -> Parsed<T> {
    whole(data, |i| match i.len() {
        n if n < len => Err(reject(name, Rule::Truncated, i)),
        n if n > len => Err(reject(name, Rule::OverLimit { max: len }, i)),
        _ => each.parse(i),
    })
}

fn structure_size<'a>(size: u16) -> impl FnMut(&'a [u8]) -> wire::Parsed<'a, ()> {
    constant("StructureSize", le_u16("StructureSize"), size)
}

/// The POSIX context of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PosixTold {
    /// Hard links.
    pub nlink: u32,
    /// The reparse tag of a special file.
    pub reparse_tag: u32,
    /// Type and permission bits.
    pub mode: u32,
    /// SID of the owner, then of the group, in the format of MS-DTYP section 2.4.2.2.
    pub sids: Vec<u8>,
}

impl PosixTold {
    fn parse(i: &[u8]) -> wire::Parsed<'_, Self> {
        let (sids, (nlink, reparse_tag, mode)) =
            (le_u32("Nlink"), le_u32("ReparseTag"), le_u32("Mode")).parse(i)?;
        Ok((&[], Self { nlink, reparse_tag, mode, sids: sids.to_vec() }))
    }
}

/// All create contexts of a response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Status of the query, and the maximal access.
    pub maximal_access: Option<(u32, u32)>,
    /// Number of the file and of its volume.
    pub on_disk_id: Option<(u64, u64)>,
    /// The open is durable, version 1.
    pub durable: bool,
    /// The open is durable, version 2: milliseconds, flags.
    pub durable_v2: Option<(u32, u32)>,
    /// The current state of the lease.
    pub lease: Option<Lease>,
    /// The POSIX context.
    pub posix: Option<PosixTold>,
    /// The answer to macOS.
    pub aapl: Option<aapl::Told>,
}

impl Told {
    /// Parses the contexts of a response.
    pub fn parse(contexts: &[Context<'_>]) -> Parsed<Self> {
        let mut t = Self::default();
        for c in contexts {
            let data = &*c.data;
            match &*c.name {
                name::QUERY_MAXIMAL_ACCESS => {
                    let mut access = (le_u32("QueryStatus"), le_u32("MaximalAccess"));
                    t.maximal_access = Some(whole(data, |i| access.parse(i))?);
                }
                name::QUERY_ON_DISK_ID => {
                    let mut id = (le_u64("DiskFileId"), le_u64("VolumeId"));
                    t.on_disk_id = Some(whole(data, |i| id.parse(i))?);
                }
                name::DURABLE_HANDLE_REQUEST => t.durable = true,
                name::DURABLE_HANDLE_REQUEST_V2 => {
                    let mut durable = (le_u32("Timeout"), le_u32("Flags"));
                    t.durable_v2 = Some(whole(data, |i| durable.parse(i))?);
                }
                name::REQUEST_LEASE => t.lease = Some(Lease::parse(data)?),
                name::POSIX => {
                    t.posix = Some(whole(data, PosixTold::parse)?);
                }
                name::AAPL => t.aapl = Some(whole(data, aapl::Told::parse)?),
                _ => {}
            }
        }
        Ok(t)
    }

    /// Converts it to contexts.
    pub fn contexts(&self) -> Vec<Context<'static>> {
        let mut out = Vec::new();
        let two = |a: u32, b: u32| [a.to_le_bytes(), b.to_le_bytes()].concat();
        if let Some(lease) = &self.lease {
            out.push(lease.context());
        }
        if self.durable {
            out.push(Context::new(name::DURABLE_HANDLE_REQUEST, vec![0; 8]));
        }
        if let Some((timeout, flags)) = self.durable_v2 {
            out.push(Context::new(name::DURABLE_HANDLE_REQUEST_V2, two(timeout, flags)));
        }
        if let Some((status, access)) = self.maximal_access {
            out.push(Context::new(name::QUERY_MAXIMAL_ACCESS, two(status, access)));
        }
        if let Some((file, volume)) = self.on_disk_id {
            let mut data = [file.to_le_bytes(), volume.to_le_bytes()].concat();
            data.resize(32, 0);
            out.push(Context::new(name::QUERY_ON_DISK_ID, data));
        }
        if let Some(p) = &self.posix {
            let mut data = [p.nlink, p.reparse_tag, p.mode].map(u32::to_le_bytes).concat();
            data.extend(&p.sids);
            out.push(Context::new(name::POSIX, data));
        }
        out.extend(self.aapl.as_ref().map(aapl::Told::context));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(name: &'static [u8], data: &[u8]) -> Parsed<()> {
        Asked::parse(&[Context::new(name, data.to_vec())]).map(|_| ())
    }

    #[test]
    fn leases_of_both_versions_round_trip() {
        let v1 = Lease { key: [3; 16], state: 7, flags: 0, v2: None };
        let v2 = Lease { v2: Some(LeaseV2 { parent: [4; 16], epoch: 9 }), flags: 4, ..v1 };
        for (lease, len) in [(v1, 32), (v2, 52)] {
            let c = [lease.context()];
            assert_eq!(c[0].data.len(), len);
            assert_eq!(Asked::parse(&c).unwrap().lease, Some(lease));
            assert_eq!(Told::parse(&c).unwrap().lease, Some(lease));
        }
    }

    #[test]
    fn context_of_wrong_length_is_refused() {
        for (name, len) in [
            (name::DURABLE_HANDLE_REQUEST, 16),
            (name::DURABLE_HANDLE_RECONNECT, 16),
            (name::ALLOCATION_SIZE, 8),
            (name::QUERY_MAXIMAL_ACCESS, 8),
            (name::TIMEWARP_TOKEN, 8),
            (name::QUERY_ON_DISK_ID, 0),
            (name::REQUEST_LEASE, 32),
            (name::DURABLE_HANDLE_REQUEST_V2, 32),
            (name::DURABLE_HANDLE_RECONNECT_V2, 36),
            (name::POSIX, 4),
        ] {
            assert_eq!(asked(name, &vec![0; len]), Ok(()), "{name:?}");
            assert!(asked(name, &vec![0; len + 1]).is_err(), "{name:?}");
            if len > 0 {
                assert!(asked(name, &vec![0; len - 1]).is_err(), "{name:?}");
            }
        }
        let mut app = [0; 20];
        assert!(asked(name::APP_INSTANCE_ID, &app).is_err());
        app[0] = 20;
        assert_eq!(asked(name::APP_INSTANCE_ID, &app), Ok(()));
        let mut version = [0; 24];
        version[0] = 24;
        assert_eq!(asked(name::APP_INSTANCE_VERSION, &version), Ok(()));
        assert_eq!(asked(b"WhAt", &[1, 2, 3]), Ok(()), "what is not known is passed over");
    }

    #[test]
    fn request_contexts_are_parsed() {
        let durable = DurableV2 { timeout: 60_000, flags: 2, guid: [5; 16] };
        let again =
            ReconnectV2 { file: FileId { persistent: 7, volatile: 8 }, guid: [5; 16], flags: 2 };
        let contexts = [
            durable.context(),
            again.context(),
            Context::new(name::ALLOCATION_SIZE, 4096_u64.to_le_bytes().to_vec()),
            Context::new(name::ALLOCATION_SIZE, 1_u64.to_le_bytes().to_vec()),
            Context::new(name::QUERY_MAXIMAL_ACCESS, vec![]),
            Context::new(name::SD_BUFFER, vec![1, 2]),
        ];
        let a = Asked::parse(&contexts).unwrap();
        assert_eq!(a.durable_v2, Some(durable));
        assert_eq!(a.reconnect_v2, Some(again));
        assert_eq!(a.allocation_size, Some(4096), "the first counts");
        assert_eq!(a.maximal_access, Some(None));
        assert_eq!(a.sd, Some(&[1, 2][..]));
    }

    #[test]
    fn response_contexts_round_trip() {
        let told = Told {
            maximal_access: Some((0, 0x1f_01ff)),
            on_disk_id: Some((77, 3)),
            durable: true,
            durable_v2: Some((1000, 0)),
            lease: Some(Lease { key: [1; 16], state: 5, flags: 0, v2: None }),
            posix: Some(PosixTold { nlink: 1, reparse_tag: 0, mode: 0o100644, sids: vec![1; 24] }),
            aapl: Some(aapl::Told { server: Some(15), ..aapl::Told::default() }),
        };
        assert_eq!(Told::parse(&told.contexts()), Ok(told));
    }
}
