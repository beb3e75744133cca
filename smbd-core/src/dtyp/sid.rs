//! Security identifiers (MS-DTYP section 2.4.2) in messages. What they are is [`vfs::acl::Sid`]: access control lists have
//! them, too.

pub use vfs::acl::Sid;
use vfs::acl::sid::BadSid;

use crate::wire::{Fields, Malformed, Parsed};

impl From<BadSid> for Malformed {
    fn from(bad: BadSid) -> Self {
        Self(bad.0)
    }
}

/// Reads one where a message has come to.
pub fn read(f: &mut Fields<'_>) -> Parsed<Sid> {
    let head = f.array::<8>("Revision")?;
    // A count that is too large for an identifier is named by `parse`.
    let subs = f.bytes(4 * usize::from(head[1]).min(Sid::SUBS_MAX), "SubAuthority")?;
    Ok(Sid::parse(&[&head[..], subs].concat())?)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Any identifier.
    pub(crate) fn any_sid() -> impl Strategy<Value = Sid> {
        (0..1_u64 << 48, proptest::collection::vec(any::<u32>(), 0..=15))
            .prop_map(|(a, s)| Sid::new(a, &s).unwrap())
    }

    proptest! {
        #[test]
        fn one_is_read_as_far_as_it_goes(sid in any_sid(), more: Vec<u8>) {
            let bytes = [sid.emit(), more.clone()].concat();
            let mut f = Fields::new(&bytes, 0);
            prop_assert_eq!(read(&mut f), Ok(sid));
            prop_assert_eq!(f.bytes(more.len(), "rest"), Ok(&more[..]));
        }
    }
}
