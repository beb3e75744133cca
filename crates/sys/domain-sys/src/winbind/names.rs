//! Questions about names of many identifiers, identifiers of numbers and of users, and the known domains.

use std::ffi::c_int;
use std::ptr;
use std::time::Instant;

use wire::Sid;

use super::context::{Context, Owned, checked};
use super::ffi::{self, DomainInfo, DomainSid, TranslatedName, UnixId};
use crate::error::Error;
use crate::text::copied;
use crate::types::{DomainNames, Kind, Name, Number};

/// Most entries of a list from the library; a longer one is taken for damaged.
const DOMAINS_MAX: usize = 16_384;
/// The same for the identifiers of a user. Windows issues no ticket with more than 1,015 groups.
pub(crate) const SIDS_MAX: usize = 16_384;

impl Context {
    /// Asks for the names of these identifiers until this time, and hands over each answer as it comes. Only an identifier
    /// that has a name has one there. May block for one question longer.
    ///
    /// # Errors
    /// [`Error::Unfinished`] after the time; other errors do not stop the questions about other domains.
    pub(crate) fn names_of(
        &mut self,
        sids: &[Sid],
        until: Instant,
        mut tell: impl FnMut(&Sid, Option<Name>),
    ) -> Result<(), Error> {
        let mut rest: Vec<&Sid> = sids.iter().collect();
        let mut result = Ok(());
        // One question for each domain: its answer has one domain, so that the size of that structure does not matter.
        while let Some(first) = rest.first() {
            let of = first.split().map(|(above, _)| above);
            let is_same = |sid: &&Sid| sid.split().map(|(above, _)| above) == of;
            let (same, others): (Vec<&Sid>, Vec<&Sid>) = rest.into_iter().partition(is_same);
            match self.names_in_domain(&same, until, &mut tell) {
                Err(error @ (Error::NotAvailable | Error::Unfinished)) => return Err(error),
                done => result = result.and(done),
            }
            rest = others;
        }
        result
    }

    fn names_in_domain(
        &mut self,
        sids: &[&Sid],
        until: Instant,
        tell: &mut impl FnMut(&Sid, Option<Name>),
    ) -> Result<(), Error> {
        in_time(until)?;
        let asked: Vec<DomainSid> = sids.iter().map(|sid| DomainSid::of(sid)).collect();
        let count = c_int::try_from(asked.len()).map_err(|_| Error::Invalid)?;
        let (mut domains, mut names) =
            (Owned::<DomainInfo>::none(), Owned::<TranslatedName>::none());
        // The library does not fill this in.
        let mut domains_count = 0;
        // SAFETY: the context and the `count` identifiers live; the places take pointers, which their owners free.
        let code = unsafe {
            let (domains, names) = (domains.place(), names.place());
            let at = asked.as_ptr();
            ffi::wbcCtxLookupSids(self.at(), at, count, domains, &raw mut domains_count, names)
        };
        if checked(code, &[ffi::DOMAIN_NOT_FOUND])?.is_none() {
            sids.iter().for_each(|sid| tell(sid, None));
            return Ok(());
        }
        let first = names.get().ok_or(Error::NotAvailable)?;
        // SAFETY: the list has an entry for each identifier, and belongs to `names`, which lives.
        let list = unsafe { std::slice::from_raw_parts(ptr::from_ref(first), asked.len()) };
        // SAFETY: `domains` lives, and null or not, has the list of this answer.
        let domain = unsafe { first_of(domains.as_ptr()) };
        for (one, sid) in list.iter().zip(sids) {
            // SAFETY: the text belongs to `names`, which lives.
            let name = unsafe { copied(one.name) };
            let kind = Kind::of(one.kind);
            let found = match (&domain, one.domain_index) {
                _ if kind == Kind::Other => None,
                (Some(domain), 0) if !name.is_empty() => {
                    Some(Name { domain: domain.clone(), name, kind })
                }
                // The identifier of the domain itself is in no domain.
                _ => {
                    in_time(until)?;
                    self.name_of(sid)?.filter(|name| name.kind != Kind::Other)
                }
            };
            tell(sid, found);
        }
        Ok(())
    }

    /// Asks for the identifiers of these numbers; the results have the same order. May block.
    pub(crate) fn sids_of(&mut self, numbers: &[Number]) -> Result<Vec<Option<Sid>>, Error> {
        let id = |number: &Number| match number {
            Number::Uid(id) => UnixId { kind: ffi::ID_UID, id: *id },
            Number::Gid(id) => UnixId { kind: ffi::ID_GID, id: *id },
            Number::Both(id) => UnixId { kind: ffi::ID_BOTH, id: *id },
        };
        let ids: Vec<UnixId> = numbers.iter().map(id).collect();
        let mut sids = vec![DomainSid::default(); ids.len()];
        let count = u32::try_from(ids.len()).map_err(|_| Error::Invalid)?;
        if count == 0 {
            return Ok(Vec::new());
        }
        // SAFETY: the context lives; both lists have `count` entries.
        let code =
            unsafe { ffi::wbcCtxUnixIdsToSids(self.at(), ids.as_ptr(), count, sids.as_mut_ptr()) };
        checked(code, &[])?;
        // S-0-0 marks a number without an identifier.
        Ok(sids.iter().map(|sid| sid.read().filter(|_| sid.count > 0)).collect())
    }

    /// Asks for the identifiers of a user, also before its first logon: of the user, of its primary group, and of its other groups
    /// in domains. Returns no list if winbindd does not find the user, or if its controller is silent. May block.
    ///
    /// # Errors
    /// [`Error::Unfinished`] for an answer about another user, or without a primary group.
    pub(crate) fn sids_of_user(&mut self, user: &Sid) -> Result<Option<Vec<Sid>>, Error> {
        let asked = DomainSid::of(user);
        let (mut found, mut count) = (Owned::<DomainSid>::none(), 0_u32);
        // SAFETY: the context and the identifier live; the places are of the types that the library fills, and `found` frees the
        // list.
        let code = unsafe {
            let (at, count) = (&raw const asked, &raw mut count);
            ffi::wbcCtxLookupUserSids(self.at(), at, true, count, found.place())
        };
        if checked(code, &[ffi::DOMAIN_NOT_FOUND])?.is_none() {
            return Ok(None);
        }
        let count = usize::try_from(count).ok().filter(|count| (2..=SIDS_MAX).contains(count));
        let (Some(first), Some(count)) = (found.get(), count) else {
            return Err(Error::Unfinished);
        };
        // SAFETY: the list has `count` entries and belongs to `found`, which lives.
        let list = unsafe { std::slice::from_raw_parts(ptr::from_ref(first), count) };
        let sids: Vec<Sid> =
            list.iter().map(DomainSid::read).collect::<Option<_>>().ok_or(Error::Unfinished)?;
        if sids.first() == Some(user) { Ok(Some(sids)) } else { Err(Error::Unfinished) }
    }

    /// Asks for all domains that winbindd knows: the machine's accounts, its domain, trusted domains. Returns `None` if the list
    /// has an unknown form. Asks no controller, but may block.
    pub(crate) fn domains(&mut self) -> Result<Option<Vec<DomainNames>>, Error> {
        let (mut found, mut count) = (Owned::<DomainInfo>::none(), 0_usize);
        // SAFETY: the context lives; the places are of the types that the library fills, and `found` frees the list.
        let code = unsafe { ffi::wbcCtxListTrusts(self.at(), found.place(), &raw mut count) };
        checked(code, &[])?;
        let Some(first) = found.get() else { return Ok(Some(Vec::new())) };
        // SAFETY: the list has `count` entries and belongs to `found`, which lives.
        Ok(unsafe { listed(ptr::from_ref(first).cast(), count) })
    }
}

fn in_time(until: Instant) -> Result<(), Error> {
    if Instant::now() < until { Ok(()) } else { Err(Error::Unfinished) }
}

/// Copies the name of the first domain, if the list has one.
///
/// # Safety
/// `list` is null, or the list of `wbcCtxLookupSids`: of structures of either size, with one more that is zero at its end.
unsafe fn first_of(list: *const DomainInfo) -> Option<String> {
    if list.is_null() {
        return None;
    }
    // SAFETY: a list has at least the entry at its end, and entries of both sizes have this member. It is null or a C string.
    let name = unsafe { copied((&raw const (*list).short_name).read()) };
    (!name.is_empty()).then_some(name)
}

/// Copies a list of `struct wbcDomainInfo` of either size. The size is that at which the second entry has an identifier of revision
/// 1: with another size there is the last byte of a pointer, which is even.
///
/// # Safety
/// `list` has `count` entries of one of the sizes.
unsafe fn listed(list: *const u8, count: usize) -> Option<Vec<DomainNames>> {
    const SID_AT: usize = std::mem::offset_of!(DomainInfo, sid);
    if !(2..=DOMAINS_MAX).contains(&count) {
        return None;
    }
    let is = |size: &usize| {
        // SAFETY: two entries of the smaller size reach beyond this byte, whatever the size.
        unsafe { list.add(size + SID_AT).read() == 1 }
    };
    let size = ffi::DOMAIN_INFO_SIZES.into_iter().find(is)?;
    let mut all = Vec::new();
    for n in 0..count {
        // SAFETY: the entry is one of `count`. Only members before the last are read, which entries of both sizes have.
        let (short, dns, sid) = unsafe {
            let at = list.add(n * size).cast::<DomainInfo>();
            (
                (&raw const (*at).short_name).read(),
                (&raw const (*at).dns_name).read(),
                (&raw const (*at).sid).read(),
            )
        };
        // SAFETY: the texts belong to the list.
        let (name, dns) = unsafe { (copied(short), copied(dns)) };
        all.extend(sid.read().map(|sid| DomainNames { name, dns, sid }));
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use super::*;

    /// Builds the list as a library with structures of this size does.
    fn list_of(size: usize, names: &[&CString]) -> Vec<u64> {
        let mut memory = vec![0_u64; names.len() * size / 8];
        for (n, name) in names.iter().enumerate() {
            let sid = DomainSid::of(&Sid::new(5, &[21, 1, 2, u32::try_from(n).unwrap()]).unwrap());
            // SAFETY: the entry is inside the memory.
            unsafe {
                let at = memory.as_mut_ptr().cast::<u8>().add(n * size).cast::<DomainInfo>();
                (&raw mut (*at).short_name).write(name.as_ptr().cast_mut());
                (&raw mut (*at).sid).write(sid);
            }
        }
        memory
    }

    #[test]
    fn first_domain_of_list_is_read() {
        let name = CString::new("LAB").unwrap();
        for size in ffi::DOMAIN_INFO_SIZES {
            let mut memory = list_of(size, &[&name]);
            memory.extend(vec![0; size / 8]);
            // SAFETY: lists with a zero entry at their end.
            unsafe {
                assert_eq!(first_of(memory.as_ptr().cast()), Some("LAB".into()));
                assert_eq!(first_of(memory.as_ptr().cast::<u8>().add(size).cast()), None, "empty");
            }
        }
        // SAFETY: null is allowed.
        assert_eq!(unsafe { first_of(ptr::null()) }, None);
    }

    #[test]
    fn lists_of_both_sizes_are_read() {
        let names = ["BUILTIN", "LAB", "OTHER"].map(|name| CString::new(name).unwrap());
        let names: Vec<&CString> = names.iter().collect();
        for size in ffi::DOMAIN_INFO_SIZES {
            let memory = list_of(size, &names);
            // SAFETY: the list has as many entries.
            let found = unsafe { listed(memory.as_ptr().cast(), names.len()) }.unwrap();
            let told: Vec<&str> = found.iter().map(|one| &*one.name).collect();
            assert_eq!(told, ["BUILTIN", "LAB", "OTHER"], "{size}");
            assert_eq!(found[2].sid.to_string(), "S-1-5-21-1-2-2");
        }
        let memory = list_of(ffi::DOMAIN_INFO_SIZES[1] + 16, &names);
        // SAFETY: the list has at least as many entries of the sizes.
        assert!(unsafe { listed(memory.as_ptr().cast(), names.len()) }.is_none(), "another size");
    }
}
