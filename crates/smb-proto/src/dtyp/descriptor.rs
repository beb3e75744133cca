//! Access control lists and security descriptors (MS-DTYP sections 2.4.4 to 2.4.6) in self-relative form.

use wire::{Parser, Rule, le_u8, le_u16, le_u32, reject, take, times};

use super::Sid;
use crate::parse::{Parsed, Rejected, constant, size, whole};

/// Bits of [`SecurityDescriptor::control`] (MS-DTYP section 2.4.6).
#[allow(missing_docs)] // The names are the specification's.
pub mod control {
    pub const OWNER_DEFAULTED: u16 = 0x0001;
    pub const GROUP_DEFAULTED: u16 = 0x0002;
    pub const DACL_PRESENT: u16 = 0x0004;
    pub const DACL_DEFAULTED: u16 = 0x0008;
    pub const SACL_PRESENT: u16 = 0x0010;
    pub const SACL_DEFAULTED: u16 = 0x0020;
    pub const DACL_TRUSTED: u16 = 0x0040;
    pub const SERVER_SECURITY: u16 = 0x0080;
    pub const DACL_AUTO_INHERIT_REQ: u16 = 0x0100;
    pub const SACL_AUTO_INHERIT_REQ: u16 = 0x0200;
    pub const DACL_AUTO_INHERITED: u16 = 0x0400;
    pub const SACL_AUTO_INHERITED: u16 = 0x0800;
    pub const DACL_PROTECTED: u16 = 0x1000;
    pub const SACL_PROTECTED: u16 = 0x2000;
    pub const SELF_RELATIVE: u16 = 0x8000;
}

/// Types of entries that are interpreted (MS-DTYP section 2.4.4.1); others are kept unchanged.
#[allow(missing_docs)] // The names are the specification's.
pub mod kind {
    pub const ALLOWED: u8 = 0;
    pub const DENIED: u8 = 1;
    pub const AUDIT: u8 = 2;
    pub const ALARM: u8 = 3;
    pub const MANDATORY_LABEL: u8 = 0x11;
}

/// Flags of an entry (MS-DTYP section 2.4.4.1).
#[allow(missing_docs)] // The names are the specification's.
pub mod flag {
    pub const OBJECT_INHERIT: u8 = 0x01;
    pub const CONTAINER_INHERIT: u8 = 0x02;
    pub const NO_PROPAGATE: u8 = 0x04;
    pub const INHERIT_ONLY: u8 = 0x08;
    pub const INHERITED: u8 = 0x10;
    /// All flags that control inheritance.
    pub const PASSING_ON: u8 = OBJECT_INHERIT | CONTAINER_INHERIT | NO_PROPAGATE | INHERIT_ONLY;
}

/// An access control entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ace {
    /// An entry with only a mask and a SID.
    Simple {
        /// AceType
        kind: u8,
        /// AceFlags
        flags: u8,
        /// Access mask.
        mask: u32,
        /// User or group to which the entry applies.
        sid: Sid,
    },
    /// An entry of another type: kept, but neither inherited nor evaluated.
    Other {
        /// AceType
        kind: u8,
        /// AceFlags
        flags: u8,
        /// The bytes after the entry's four-byte header; a multiple of four.
        body: Vec<u8>,
    },
}

impl Ace {
    /// Builds an entry that allows access.
    pub fn allow(sid: Sid, mask: u32, flags: u8) -> Self {
        Self::Simple { kind: kind::ALLOWED, flags, mask, sid }
    }

    /// Returns the flags.
    pub fn flags(&self) -> u8 {
        match self {
            Self::Simple { flags, .. } | Self::Other { flags, .. } => *flags,
        }
    }

    fn wire_len(&self) -> usize {
        match self {
            Self::Simple { sid, .. } => 8 + sid.wire_len(),
            Self::Other { body, .. } => 4 + body.len(),
        }
    }

    fn parse(start: &[u8]) -> wire::Parsed<'_, Self> {
        let (size_place, (kind, flags)) = (le_u8("AceType"), le_u8("AceFlags")).parse(start)?;
        let (i, size) = le_u16("AceSize")(size_place)?;
        if size < 4 || size % 4 != 0 {
            return Err(reject("AceSize", Rule::Value, size_place));
        }
        let (i, body) = take(usize::from(size - 4), "Ace")(i)?;
        let ace = match kind {
            kind::ALLOWED..=kind::ALARM | kind::MANDATORY_LABEL => {
                let (_, (mask, sid)) = (le_u32("Mask"), Sid::field).parse(body)?;
                Self::Simple { kind, flags, mask, sid }
            }
            _ => Self::Other { kind, flags, body: body.to_vec() },
        };
        Ok((i, ace))
    }

    fn put(&self, out: &mut Vec<u8>) {
        let len = u16::try_from(self.wire_len()).unwrap_or(u16::MAX);
        match self {
            Self::Simple { kind, flags, mask, sid } => {
                out.extend([*kind, *flags]);
                out.extend(len.to_le_bytes());
                out.extend(mask.to_le_bytes());
                sid.put(out);
            }
            Self::Other { kind, flags, body } => {
                out.extend([*kind, *flags]);
                out.extend(len.to_le_bytes());
                out.extend(body);
            }
        }
    }
}

/// An access control list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl {
    /// 2, or 4 with object entries.
    pub revision: u8,
    /// Entries in evaluation order.
    pub aces: Vec<Ace>,
}

impl Acl {
    /// Length of the header, in bytes.
    const HEADER: usize = 8;

    /// Builds a list of these entries.
    pub fn new(aces: Vec<Ace>) -> Self {
        Self { revision: 2, aces }
    }

    /// Returns the length on the wire in bytes; a list above 65,535 cannot be sent.
    pub fn wire_len(&self) -> usize {
        Self::HEADER + self.aces.iter().map(Ace::wire_len).sum::<usize>()
    }

    /// Parses the list at the start of `bytes`.
    pub fn parse(bytes: &[u8]) -> Parsed<Self> {
        whole(bytes, Self::field)
    }

    fn field(start: &[u8]) -> wire::Parsed<'_, Self> {
        let (i, (revision, _)) = (le_u8("AclRevision"), le_u8("Sbz1")).parse(start)?;
        if !(2..=4).contains(&revision) {
            return Err(reject("AclRevision", Rule::Value, start));
        }
        let size_place = i;
        let (i, (size, count, _)) =
            (le_u16("AclSize"), le_u16("AceCount"), le_u16("Sbz2")).parse(i)?;
        let Some(rest) = usize::from(size).checked_sub(Self::HEADER) else {
            return Err(reject("AclSize", Rule::Value, size_place));
        };
        if rest > i.len() {
            return Err(reject("AclSize", Rule::OutOfBounds, size_place));
        }
        // Each entry has at least four bytes, so a wrong count is bounded by the input.
        let (i, body) = take(rest, "AclSize")(i)?;
        let (_, aces) = times(count.into(), Ace::parse)(body)?;
        Ok((i, Self { revision, aces }))
    }

    /// Serializes it.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.wire_len());
        self.put(&mut out);
        out
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.extend([self.revision, 0]);
        out.extend(u16::try_from(self.wire_len()).unwrap_or(u16::MAX).to_le_bytes());
        out.extend(u16::try_from(self.aces.len()).unwrap_or(u16::MAX).to_le_bytes());
        out.extend([0, 0]);
        self.aces.iter().for_each(|a| a.put(out));
    }
}

/// Owner, group and access control lists of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecurityDescriptor {
    /// Control bits. The PRESENT bit of a list says that it exists; `None` with that bit is a NULL list, which allows all access.
    pub control: u16,
    /// Owner.
    pub owner: Option<Sid>,
    /// Primary group.
    pub group: Option<Sid>,
    /// Audit list.
    pub sacl: Option<Acl>,
    /// Access list.
    pub dacl: Option<Acl>,
}

impl SecurityDescriptor {
    const HEADER: usize = 20;
    /// Maximum accepted length in bytes: two full lists, two identifiers.
    pub const LEN_MAX: usize = Self::HEADER + 2 * Sid::LEN_MAX + 2 * 65_535;

    /// Checks a bit of the control word.
    pub fn has(&self, bit: u16) -> bool {
        self.control & bit != 0
    }

    /// Returns the length on the wire, in bytes.
    pub fn wire_len(&self) -> usize {
        Self::HEADER
            + [&self.owner, &self.group].into_iter().flatten().map(Sid::wire_len).sum::<usize>()
            + [&self.sacl, &self.dacl].into_iter().flatten().map(Acl::wire_len).sum::<usize>()
    }

    /// Parses a descriptor (MS-DTYP section 2.4.6).
    pub fn parse(bytes: &[u8]) -> Parsed<Self> {
        whole(bytes, |start| {
            if start.len() > Self::LEN_MAX {
                let rule = Rule::OverLimit { max: Self::LEN_MAX };
                return Err(reject("SecurityDescriptor", rule, start));
            }
            let (i, ()) = constant("Revision", le_u8("Revision"), 1)(start)?;
            let (place, _) = le_u8("Sbz1")(i)?;
            let (i, control) = le_u16("Control")(place)?;
            if control & control::SELF_RELATIVE == 0 {
                return Err(reject("Control", Rule::Value, place));
            }
            let (i, owner) = part(start, "OffsetOwner", i)?;
            let (i, group) = part(start, "OffsetGroup", i)?;
            let (i, sacl) = part(start, "OffsetSacl", i)?;
            let (i, dacl) = part(start, "OffsetDacl", i)?;
            let has = |bit: u16| control & bit != 0;
            let value = Self {
                control,
                owner: owner.parse(true, Sid::field)?,
                group: group.parse(true, Sid::field)?,
                sacl: sacl.parse(has(control::SACL_PRESENT), Acl::field)?,
                dacl: dacl.parse(has(control::DACL_PRESENT), Acl::field)?,
            };
            Ok((i, value))
        })
    }

    /// Serializes the descriptor in the order that Windows uses: lists, then owner and group.
    pub fn emit(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.wire_len());
        out.extend([1, 0]);
        out.extend((self.control | control::SELF_RELATIVE).to_le_bytes());
        out.extend([0; 16]);
        let mut place = |field: usize, put: &dyn Fn(&mut Vec<u8>)| {
            let at = u32::try_from(out.len()).unwrap_or(u32::MAX);
            out[field..field + 4].copy_from_slice(&at.to_le_bytes());
            put(&mut out);
        };
        if let Some(sacl) = self.sacl.as_ref().filter(|_| self.has(control::SACL_PRESENT)) {
            place(12, &|out| sacl.put(out));
        }
        if let Some(dacl) = self.dacl.as_ref().filter(|_| self.has(control::DACL_PRESENT)) {
            place(16, &|out| dacl.put(out));
        }
        if let Some(owner) = &self.owner {
            place(4, &|out| owner.put(out));
        }
        if let Some(group) = &self.group {
            place(8, &|out| group.put(out));
        }
        out
    }
}

/// A part of a descriptor and its offset.
struct Part<'a> {
    whole: &'a [u8],
    at: usize,
    field: &'static str,
    place: &'a [u8],
}

fn part<'a>(whole: &'a [u8], field: &'static str, place: &'a [u8]) -> wire::Parsed<'a, Part<'a>> {
    let (i, at) = le_u32(field)(place)?;
    Ok((i, Part { whole, at: size(at), field, place }))
}

impl<'a> Part<'a> {
    /// Parses the part after the header; `None` at offset 0 or if the control word says so.
    fn parse<T>(
        self,
        is_present: bool,
        parser: impl Fn(&'a [u8]) -> wire::Parsed<'a, T>,
    ) -> Result<Option<T>, Rejected<'a>> {
        match self.at {
            _ if !is_present => Ok(None),
            0 => Ok(None),
            at if at < SecurityDescriptor::HEADER => {
                Err(reject(self.field, Rule::Value, self.place))
            }
            at => match self.whole.get(at..) {
                Some(from) => parser(from).map(|(_, part)| Some(part)),
                None => Err(reject(self.field, Rule::OutOfBounds, self.place)),
            },
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::test_harness::any_sid;
    use super::*;
    use crate::smb2::test_harness::named;
    use proptest::prelude::*;

    fn any_ace() -> impl Strategy<Value = Ace> {
        prop_oneof![
            (0..4_u8, any::<u8>(), any::<u32>(), any_sid())
                .prop_map(|(kind, flags, mask, sid)| Ace::Simple { kind, flags, mask, sid }),
            (5..9_u8, any::<u8>(), 0..9_usize).prop_map(|(kind, flags, n)| Ace::Other {
                kind,
                flags,
                body: vec![7; n * 4]
            }),
        ]
    }

    fn any_acl() -> impl Strategy<Value = Acl> {
        (2..=4_u8, proptest::collection::vec(any_ace(), 0..6))
            .prop_map(|(revision, aces)| Acl { revision, aces })
    }

    /// Generates any descriptor.
    pub(crate) fn any_descriptor() -> impl Strategy<Value = SecurityDescriptor> {
        use proptest::option::of;
        (any::<u16>(), of(any_sid()), of(any_sid()), of(any_acl()), of(any_acl())).prop_map(
            |(control, owner, group, sacl, dacl)| {
                let control = control | control::SELF_RELATIVE;
                let sacl = sacl.filter(|_| control & control::SACL_PRESENT != 0);
                let dacl = dacl.filter(|_| control & control::DACL_PRESENT != 0);
                SecurityDescriptor { control, owner, group, sacl, dacl }
            },
        )
    }

    #[test]
    fn malformed_lists_are_refused() {
        let acl = |bytes: &[u8]| Acl::parse(bytes);
        assert_eq!(named(acl(&[2, 0, 7, 0, 0, 0, 0, 0])), Err("AclSize"));
        assert_eq!(named(acl(&[2, 0, 9, 0, 0, 0, 0, 0])), Err("AclSize"));
        assert_eq!(named(acl(&[9, 0, 8, 0, 0, 0, 0, 0])), Err("AclRevision"));
        assert_eq!(named(acl(&[2, 0, 8, 0, 0xff, 0xff, 0, 0])), Err("AceType"));
        let odd = [2, 0, 16, 0, 1, 0, 0, 0, 5, 0, 6, 0, 0, 0, 0, 0];
        assert_eq!(named(acl(&odd)), Err("AceSize"));
        let short = [2, 0, 12, 0, 1, 0, 0, 0, 0, 0, 4, 0];
        assert_eq!(named(acl(&short)), Err("Mask"));
    }

    #[test]
    fn malformed_descriptors_are_refused() {
        let mut d =
            SecurityDescriptor { owner: Some(Sid::everyone()), ..Default::default() }.emit();
        assert!(SecurityDescriptor::parse(&d).is_ok());
        d[4] = 19;
        assert_eq!(named(SecurityDescriptor::parse(&d)), Err("OffsetOwner"), "in the header");
        d[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(named(SecurityDescriptor::parse(&d)), Err("OffsetOwner"));
        d[3] = 0;
        assert_eq!(named(SecurityDescriptor::parse(&d)), Err("Control"), "absolute form");
        let long = vec![1; SecurityDescriptor::LEN_MAX + 1];
        assert_eq!(named(SecurityDescriptor::parse(&long)), Err("SecurityDescriptor"));
    }

    #[test]
    fn a_null_list_stays_null() {
        let d = SecurityDescriptor {
            control: control::DACL_PRESENT | control::SELF_RELATIVE,
            ..Default::default()
        };
        assert_eq!(SecurityDescriptor::parse(&d.emit()), Ok(d));
    }

    proptest! {
        #[test]
        fn descriptors_round_trip(d in any_descriptor()) {
            let bytes = d.emit();
            prop_assert_eq!(bytes.len(), d.wire_len());
            prop_assert_eq!(SecurityDescriptor::parse(&bytes).unwrap(), d);
        }

        #[test]
        fn damaged_descriptors_never_panic(
            d in any_descriptor(), at in any::<prop::sample::Index>(), to in any::<u8>(), cut in any::<prop::sample::Index>(),
        ) {
            let mut bytes = d.emit();
            let i = at.index(bytes.len());
            bytes[i] = to;
            bytes.truncate(cut.index(bytes.len() + 1));
            if let Ok(d) = SecurityDescriptor::parse(&bytes) {
                prop_assert_eq!(SecurityDescriptor::parse(&d.emit()).unwrap(), d);
            }
        }
    }
}
