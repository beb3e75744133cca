//! Security identifiers (MS-DTYP section 2.4.2) in messages. What they are is [`vfs::acl::Sid`]: access control lists have
//! them, too.

pub use vfs::acl::Sid;

use crate::wire::{Fields, Malformed, Parsed};

/// Reads one where a message has come to.
pub fn read(f: &mut Fields<'_>) -> Parsed<Sid> {
    let head = f.array::<8>("Revision")?;
    // A count that is too large for an identifier is named by `parse`.
    let subs = f.bytes(4 * usize::from(head[1]).min(Sid::SUBS_MAX), "SubAuthority")?;
    Sid::parse(&[&head[..], subs].concat()).map_err(|bad| Malformed(bad.0))
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
