//! Declarations of `sss_nss_idmap.h`, interface version 0.5 and later.

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::ptr;
use std::time::{Duration, Instant};

use dylib::Library;

use super::asked::Asked;
use crate::error::Error;
use crate::text::copied;
use crate::types::{Kind, Number};

static SSS: Library = Library::new(c"libsss_nss_idmap.so.0");

// `enum sss_id_type`.
const UID: c_uint = 1;
const GID: c_uint = 2;
const BOTH: c_uint = 3;

/// `SSS_NSS_EX_FLAG_NO_FLAGS`.
const NO_FLAGS: u32 = 0;
/// Bytes for the texts of an account.
const ACCOUNT_MAX: usize = 64 << 10;
/// Most groups of a user that are read.
const GROUPS_MAX: usize = 16_384;
/// The library may see its time over a little earlier than this program.
const ROUNDED: Duration = Duration::from_millis(5);

dylib::functions! {
    in SSS, missing: libc::ENOSYS;
    fn sss_nss_getsidbyname_timeout(
        name: *const c_char,
        timeout: c_uint,
        sid: *mut *mut c_char,
        kind: *mut c_uint,
    ) -> c_int;
    fn sss_nss_getsidbyuid_timeout(
        uid: u32,
        timeout: c_uint,
        sid: *mut *mut c_char,
        kind: *mut c_uint,
    ) -> c_int;
    fn sss_nss_getsidbygid_timeout(
        gid: u32,
        timeout: c_uint,
        sid: *mut *mut c_char,
        kind: *mut c_uint,
    ) -> c_int;
    fn sss_nss_getnamebysid_timeout(
        sid: *const c_char,
        timeout: c_uint,
        name: *mut *mut c_char,
        kind: *mut c_uint,
    ) -> c_int;
    fn sss_nss_getidbysid_timeout(
        sid: *const c_char,
        timeout: c_uint,
        id: *mut u32,
        kind: *mut c_uint,
    ) -> c_int;
    fn sss_nss_getpwnam_timeout(
        name: *const c_char,
        account: *mut libc::passwd,
        buffer: *mut c_char,
        size: usize,
        result: *mut *mut libc::passwd,
        flags: u32,
        timeout: c_uint,
    ) -> c_int;
    fn sss_nss_getgrouplist_timeout(
        name: *const c_char,
        group: libc::gid_t,
        groups: *mut libc::gid_t,
        count: *mut c_int,
        flags: u32,
        timeout: c_uint,
    ) -> c_int;
}

/// The library that is installed. It connects to SSSD at the first question, and has no handle.
#[derive(Debug)]
pub(crate) struct Installed(());

impl Installed {
    /// # Errors
    /// [`Error::NoLibrary`], also for a library that is too old: its functions without a time limit may block for minutes.
    pub(super) fn new() -> Result<Self, Error> {
        for needed in [c"sss_nss_getsidbygid_timeout", c"sss_nss_getgrouplist_timeout"] {
            SSS.find(needed).map_err(Error::NoLibrary)?;
        }
        Ok(Self(()))
    }
}

fn kind_of(kind: c_uint) -> Kind {
    match kind {
        UID | BOTH => Kind::User,
        GID => Kind::Group,
        _ => Kind::Other,
    }
}

/// A text that the library has allocated with malloc(3), freed when dropped.
struct Owned(*mut c_char);

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: null, or memory that the library allocated for its caller, who frees it once.
        unsafe { libc::free(self.0.cast()) };
    }
}

/// One question, with its time limit.
struct Question {
    began: Instant,
    limit: Duration,
}

impl Question {
    fn begin(limit: Duration) -> Self {
        Self { began: Instant::now(), limit }
    }

    /// Returns the rest of the time in milliseconds.
    fn rest(&self) -> c_uint {
        let rest = self.limit.saturating_sub(self.began.elapsed()).as_millis();
        c_uint::try_from(rest).unwrap_or(c_uint::MAX).max(1)
    }

    /// Maps a result, which is empty for names that do not exist. The library returns the same code for a service that does not
    /// run, or that has not answered in time.
    fn checked(&self, code: c_int) -> Result<Option<()>, Error> {
        match code {
            0 => Ok(Some(())),
            libc::ENOENT if self.began.elapsed() + ROUNDED >= self.limit => {
                Err(Error::NotAvailable)
            }
            // EINVAL: no name has this form.
            libc::ENOENT | libc::ENETUNREACH | libc::EINVAL => Ok(None),
            libc::ENOSYS | libc::EBADMSG | libc::EFAULT | libc::ENOMEM => Err(Error::Failed(code)),
            _ => Err(Error::NotAvailable),
        }
    }

    /// Asks a question that is answered with a text.
    fn text(
        &self,
        ask: impl FnOnce(c_uint, *mut *mut c_char, *mut c_uint) -> c_int,
    ) -> Result<Option<(String, Kind)>, Error> {
        let (mut text, mut kind) = (ptr::null_mut(), 0);
        let code = ask(self.rest(), &raw mut text, &raw mut kind);
        let text = Owned(text);
        let found = self.checked(code)?;
        // SAFETY: null, or a C string of the library, which lives until `text` is dropped.
        Ok(found.map(|()| (unsafe { copied(text.0) }, kind_of(kind))))
    }
}

impl Asked for Installed {
    fn sid_of_name(
        &mut self,
        name: &CStr,
        limit: Duration,
    ) -> Result<Option<(String, Kind)>, Error> {
        Question::begin(limit).text(|rest, sid, kind| {
            // SAFETY: the name lives; the places are of the types that the library fills.
            unsafe { sss_nss_getsidbyname_timeout(name.as_ptr(), rest, sid, kind) }
        })
    }

    fn sid_of_uid(&mut self, uid: u32, limit: Duration) -> Result<Option<(String, Kind)>, Error> {
        Question::begin(limit).text(|rest, sid, kind| {
            // SAFETY: the places are of the types that the library fills.
            unsafe { sss_nss_getsidbyuid_timeout(uid, rest, sid, kind) }
        })
    }

    fn sid_of_gid(&mut self, gid: u32, limit: Duration) -> Result<Option<(String, Kind)>, Error> {
        Question::begin(limit).text(|rest, sid, kind| {
            // SAFETY: the places are of the types that the library fills.
            unsafe { sss_nss_getsidbygid_timeout(gid, rest, sid, kind) }
        })
    }

    fn name_of_sid(
        &mut self,
        sid: &CStr,
        limit: Duration,
    ) -> Result<Option<(String, Kind)>, Error> {
        Question::begin(limit).text(|rest, name, kind| {
            // SAFETY: the text lives; the places are of the types that the library fills.
            unsafe { sss_nss_getnamebysid_timeout(sid.as_ptr(), rest, name, kind) }
        })
    }

    fn number_of_sid(&mut self, sid: &CStr, limit: Duration) -> Result<Option<Number>, Error> {
        let question = Question::begin(limit);
        let (mut id, mut kind) = (0, 0);
        // SAFETY: the text lives; the places are of the types that the library fills.
        let code = unsafe {
            let rest = question.rest();
            sss_nss_getidbysid_timeout(sid.as_ptr(), rest, &raw mut id, &raw mut kind)
        };
        let number = match kind {
            UID => Number::Uid(id),
            GID => Number::Gid(id),
            BOTH => Number::Both(id),
            _ => return question.checked(code).map(|_| None),
        };
        Ok(question.checked(code)?.map(|()| number))
    }

    fn primary_group(&mut self, user: &CStr, limit: Duration) -> Result<Option<u32>, Error> {
        let question = Question::begin(limit);
        let mut size = 4096;
        loop {
            let mut buffer = vec![0; size];
            // SAFETY: all members may be zero: numbers and pointers.
            let mut account: libc::passwd = unsafe { std::mem::zeroed() };
            let mut found = ptr::null_mut();
            // SAFETY: the name, the structure and the buffer of this size live during the call; the place takes a pointer to the
            // structure.
            let code = unsafe {
                let (account, found) = (&raw mut account, &raw mut found);
                let (at, rest) = (buffer.as_mut_ptr(), question.rest());
                sss_nss_getpwnam_timeout(user.as_ptr(), account, at, size, found, NO_FLAGS, rest)
            };
            if code == libc::ERANGE && size < ACCOUNT_MAX {
                size *= 4;
                continue;
            }
            return Ok(question.checked(code)?.map(|()| account.pw_gid));
        }
    }

    fn groups(
        &mut self,
        user: &CStr,
        primary: u32,
        limit: Duration,
    ) -> Result<Option<Vec<u32>>, Error> {
        let question = Question::begin(limit);
        let mut most = 1024;
        loop {
            let mut groups: Vec<libc::gid_t> = vec![0; most];
            let mut count = c_int::try_from(most).map_err(|_| Error::Unfinished)?;
            // SAFETY: the name lives; the list has `count` entries, of which the library fills at most so many.
            let code = unsafe {
                let (at, count) = (groups.as_mut_ptr(), &raw mut count);
                let rest = question.rest();
                sss_nss_getgrouplist_timeout(user.as_ptr(), primary, at, count, NO_FLAGS, rest)
            };
            let count = usize::try_from(count).map_err(|_| Error::Unfinished)?;
            match code {
                libc::ERANGE if count > most && count <= GROUPS_MAX => most = count,
                libc::ERANGE => return Err(Error::Unfinished),
                code => {
                    groups.truncate(count);
                    return Ok(question.checked(code)?.map(|()| groups));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SSSD and its library say `ENOENT` of nearly everything.
    #[test]
    fn code_after_the_time_is_silence() {
        let long = Question::begin(Duration::from_secs(600));
        let over = Question::begin(Duration::ZERO);
        let told = |question: &Question, code| question.checked(code);
        for (code, wanted) in [
            (0, Ok(Some(()))),
            (libc::ENOENT, Ok(None)),
            (libc::ENETUNREACH, Ok(None)),
            (libc::EINVAL, Ok(None)),
            (libc::ETIME, Err(Error::NotAvailable)),
            (libc::ETIMEDOUT, Err(Error::NotAvailable)),
            (libc::EIO, Err(Error::NotAvailable)),
            (libc::ECONNREFUSED, Err(Error::NotAvailable)),
            (libc::ENOSYS, Err(Error::Failed(libc::ENOSYS))),
        ] {
            assert_eq!(told(&long, code), wanted, "{code}");
        }
        assert_eq!(told(&over, libc::ENOENT), Err(Error::NotAvailable));
        assert_eq!(told(&over, 0), Ok(Some(())), "it came in time after all");
        assert_eq!(over.rest(), 1, "the library waits for no answer in no time");
    }

    #[test]
    fn kinds_are_told_apart() {
        let kinds = [UID, GID, BOTH, 0, 7].map(kind_of);
        assert_eq!(kinds, [Kind::User, Kind::Group, Kind::User, Kind::Other, Kind::Other]);
    }
}
