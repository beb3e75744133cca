//! One connection to winbindd, and its questions about machine, domains, numbers and names.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{self, NonNull};

use wire::Sid;

use super::ffi::{self, Code, DomainSid, UnixId};
use crate::error::Error;
use crate::text::{copied, given};
use crate::types::{Details, DomainNames, Kind, Name, Number};

/// A connection to winbindd.
#[derive(Debug)]
pub(crate) struct Context(NonNull<c_void>);

// SAFETY: a context has no ties to the thread that made it; `&mut self` gives it one user at a time.
unsafe impl Send for Context {}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the context came from `wbcCtxCreate` and is freed once.
        unsafe { ffi::wbcCtxFree(self.0.as_ptr()) };
    }
}

/// Memory of the library, freed when dropped.
pub(crate) struct Owned<T>(*mut T);

impl<T> Owned<T> {
    pub(crate) fn none() -> Self {
        Self(ptr::null_mut())
    }

    /// Returns the place in which the library stores its pointer.
    pub(crate) fn place(&mut self) -> *mut *mut T {
        &raw mut self.0
    }

    /// Returns null or the content.
    pub(crate) fn as_ptr(&self) -> *const T {
        self.0
    }

    /// Returns the content, if the library has stored one.
    pub(crate) fn get(&self) -> Option<&T> {
        // SAFETY: null, or memory of the library with a `T`, which lives until this is dropped.
        unsafe { self.0.as_ref() }
    }
}

impl Owned<c_char> {
    /// Copies the text; empty without one.
    fn text(&self) -> String {
        // SAFETY: null, or a C string of the library, which lives until this is dropped.
        unsafe { copied(self.0) }
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: the library allocated it for its caller, who frees it once.
            unsafe { ffi::wbcFreeMemory(self.0.cast()) };
        }
    }
}

/// Maps a result. Codes in `negative` are answers without a value.
pub(crate) fn checked(code: Code, negative: &[Code]) -> Result<Option<()>, Error> {
    match code {
        ffi::SUCCESS => Ok(Some(())),
        code if negative.contains(&code) => Ok(None),
        ffi::NOT_AVAILABLE => Err(Error::NotAvailable),
        code => Err(Error::Failed(code)),
    }
}

impl Context {
    /// Creates a context, which connects at its first question.
    ///
    /// # Errors
    /// [`Error::NoLibrary`].
    pub(crate) fn new() -> Result<Self, Error> {
        ffi::loaded().map_err(Error::NoLibrary)?;
        // SAFETY: no argument.
        let made = unsafe { ffi::wbcCtxCreate() };
        let none = || Error::NoLibrary("libwbclient.so.0 makes no context".into());
        NonNull::new(made).map(Self).ok_or_else(none)
    }

    pub(crate) fn at(&mut self) -> *mut c_void {
        self.0.as_ptr()
    }

    /// Asks for the names of the machine and its domain. May block.
    pub(crate) fn details(&mut self) -> Result<Details, Error> {
        let mut found = Owned::none();
        // SAFETY: the context lives; the place takes a pointer, which `found` frees.
        let code = unsafe { ffi::wbcCtxInterfaceDetails(self.at(), found.place()) };
        checked(code, &[])?;
        let found = found.get().ok_or(Error::NotAvailable)?;
        // SAFETY: the texts belong to `found`, which lives.
        let text = |text: *const c_char| unsafe { copied(text) };
        Ok(Details {
            machine: text(found.netbios_name),
            domain: text(found.netbios_domain),
            dns_domain: text(found.dns_domain),
            version: text(found.winbind_version),
        })
    }

    /// Asks for a domain that the machine trusts, by its NetBIOS or DNS name. May block.
    pub(crate) fn domain(&mut self, name: &str) -> Result<Option<DomainNames>, Error> {
        let name = given(name)?;
        let mut found = Owned::none();
        // SAFETY: the context and the name live; the place takes a pointer, which `found` frees.
        let code = unsafe { ffi::wbcCtxDomainInfo(self.at(), name.as_ptr(), found.place()) };
        if checked(code, &[ffi::DOMAIN_NOT_FOUND])?.is_none() {
            return Ok(None);
        }
        let found = found.get().ok_or(Error::NotAvailable)?;
        let Some(sid) = found.sid.read() else { return Ok(None) };
        // SAFETY: the texts belong to `found`, which lives.
        let text = |text: *const c_char| unsafe { copied(text) };
        Ok(Some(DomainNames { name: text(found.short_name), dns: text(found.dns_name), sid }))
    }

    /// Checks that a controller of a domain answers, by default that of the machine's: without one, winbindd says that names do not
    /// exist. May block.
    ///
    /// winbindd of a member has no connection to trusted domains. It looks for a controller of one by its DNS name, and asks it
    /// over CLDAP (MS-ADTS section 6.3.3).
    ///
    /// # Errors
    /// [`Error::NoController`], also if the library is too old to ask.
    pub(crate) fn reach_controller(&mut self, domain: Option<&str>) -> Result<(), Error> {
        match (self.ping_controller(domain), domain) {
            (Err(Error::NoController), Some(domain)) if domain.contains('.') => {
                self.find_controller(domain)
            }
            (done, _) => done,
        }
    }

    fn find_controller(&mut self, dns: &str) -> Result<(), Error> {
        let name = given(dns)?;
        let flags =
            ffi::LOOKUP_DC_NOW | ffi::LOOKUP_DC_IS_DNS_NAME | ffi::LOOKUP_DC_RETURN_DNS_NAME;
        let mut found = Owned::none();
        // winbindd ignores the flags of the function without `Ex`, and answers from what it has kept.
        // SAFETY: the context and the name live, null means any GUID and site; the place takes a pointer, which `found` frees.
        let code = unsafe {
            let (name, guid, site) = (name.as_ptr(), ptr::null_mut(), ptr::null());
            ffi::wbcCtxLookupDomainControllerEx(self.at(), name, guid, site, flags, found.place())
        };
        match code {
            ffi::SUCCESS if found.get().is_some_and(|found| !found.name.is_null()) => Ok(()),
            ffi::NOT_AVAILABLE => Err(Error::NotAvailable),
            _ => Err(Error::NoController),
        }
    }

    fn ping_controller(&mut self, domain: Option<&str>) -> Result<(), Error> {
        let domain = domain.map(given).transpose()?;
        let name = domain.as_ref().map_or(ptr::null(), |name| name.as_ptr());
        // SAFETY: the context and the name live. Null means the machine's domain, and that the caller wants no details.
        let code = unsafe { ffi::wbcCtxPingDc(self.at(), name, ptr::null_mut()) };
        match code {
            ffi::SUCCESS => Ok(()),
            ffi::NOT_AVAILABLE => Err(Error::NotAvailable),
            _ => Err(Error::NoController),
        }
    }

    /// Lets winbindd log on to a controller of its domain with the account of the machine. May block.
    ///
    /// # Errors
    /// [`Error::NoTrust`] if the account is refused, [`Error::NoController`] if none is reached.
    pub(crate) fn check_trust(&mut self) -> Result<(), Error> {
        let mut error: Owned<ffi::AuthErrorInfo> = Owned::none();
        // SAFETY: the context lives, null means the machine's domain; the place takes a pointer, which `error` frees.
        let code =
            unsafe { ffi::wbcCtxCheckTrustCredentials(self.at(), ptr::null(), error.place()) };
        if checked(code, &[ffi::AUTH_ERROR])?.is_some() {
            return Ok(());
        }
        let Some(error) = error.get() else { return Err(Error::Failed(code)) };
        // SAFETY: the text belongs to `error`, which lives.
        let name = unsafe { copied(error.nt_string) };
        Err(match ffi::REFUSED_ACCOUNT.contains(&error.nt_status) {
            true => Error::NoTrust(name),
            false => Error::NoController,
        })
    }

    /// Asks for the numbers of these identifiers, which winbindd may assign now; the results have the same order. May block.
    pub(crate) fn numbers(&mut self, sids: &[Sid]) -> Result<Vec<Option<Number>>, Error> {
        let asked: Vec<DomainSid> = sids.iter().map(DomainSid::of).collect();
        let mut ids = vec![UnixId::default(); asked.len()];
        let count = u32::try_from(asked.len()).map_err(|_| Error::Invalid)?;
        if count == 0 {
            return Ok(Vec::new());
        }
        // SAFETY: the context lives; both lists have `count` entries.
        let code =
            unsafe { ffi::wbcCtxSidsToUnixIds(self.at(), asked.as_ptr(), count, ids.as_mut_ptr()) };
        checked(code, &[])?;
        let number = |id: &UnixId| match id.kind {
            // chown(2) and setfsuid(2) read all ones as "no change".
            _ if id.id == u32::MAX => None,
            ffi::ID_UID => Some(Number::Uid(id.id)),
            ffi::ID_GID => Some(Number::Gid(id.id)),
            ffi::ID_BOTH => Some(Number::Both(id.id)),
            _ => None,
        };
        Ok(ids.iter().map(number).collect())
    }

    /// Asks for the name of an identifier, if it has one. May block.
    pub(crate) fn name_of(&mut self, sid: &Sid) -> Result<Option<Name>, Error> {
        let asked = DomainSid::of(sid);
        let (mut domain, mut name, mut kind) = (Owned::none(), Owned::none(), 0);
        // SAFETY: the context and the identifier live; the places take pointers, which their owners free.
        let code = unsafe {
            let (domain, name) = (domain.place(), name.place());
            ffi::wbcCtxLookupSid(self.at(), &raw const asked, domain, name, &raw mut kind)
        };
        if checked(code, &[ffi::DOMAIN_NOT_FOUND])?.is_none() {
            return Ok(None);
        }
        Ok(Some(Name { domain: domain.text(), name: name.text(), kind: Kind::of(kind) }))
    }

    /// Asks for the identifier of a name, if it exists. May block.
    pub(crate) fn sid_of(
        &mut self,
        domain: &str,
        name: &str,
    ) -> Result<Option<(Sid, Kind)>, Error> {
        let (domain, name) = (given(domain)?, given(name)?);
        let found = self.look_up(&domain, &name)?;
        Ok(found.and_then(|(sid, kind)| Some((sid.read()?, Kind::of(kind)))))
    }

    fn look_up(&mut self, domain: &CStr, name: &CStr) -> Result<Option<(DomainSid, c_int)>, Error> {
        let (mut sid, mut kind) = (DomainSid::default(), 0);
        // SAFETY: the context and the names live; the places are of the types that the library fills.
        let code = unsafe {
            let (domain, name) = (domain.as_ptr(), name.as_ptr());
            ffi::wbcCtxLookupName(self.at(), domain, name, &raw mut sid, &raw mut kind)
        };
        let found = checked(code, &[ffi::DOMAIN_NOT_FOUND])?;
        Ok(found.map(|()| (sid, kind)))
    }
}

impl DomainSid {
    pub(crate) fn of(sid: &Sid) -> Self {
        let mut made = Self { revision: 1, ..Self::default() };
        // The authority has 48 bits, the most significant first.
        made.authority.copy_from_slice(&sid.authority().to_be_bytes()[2..]);
        for (place, sub) in made.subs.iter_mut().zip(sid.subs()) {
            *place = *sub;
            made.count += 1;
        }
        made
    }

    pub(crate) fn read(&self) -> Option<Sid> {
        let mut authority = [0; 8];
        authority[2..].copy_from_slice(&self.authority);
        let subs = self.subs.get(..usize::from(self.count))?;
        Sid::new(u64::from_be_bytes(authority), subs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_come_back() {
        for text in ["S-1-5-21-1-2-4294967295-500", "S-1-0x123456789abc", "S-1-5-32-544"] {
            let sid: Sid = text.parse().unwrap();
            assert_eq!(DomainSid::of(&sid).read(), Some(sid));
        }
        let long = DomainSid { count: 16, ..DomainSid::default() };
        assert_eq!(long.read(), None, "more subauthorities than an identifier has");
    }
}
