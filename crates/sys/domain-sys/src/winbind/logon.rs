//! Logons with passwords, which a domain controller decides (NTLM pass-through, MS-APDS section 3.1).

use wire::Sid;
use zeroize::Zeroizing;

use super::context::{Context, Owned, checked};
use super::ffi::{self, AuthUserParams, ResponseParams};
use super::names::SIDS_MAX;
use crate::error::Error;
use crate::text::{copied, given};

/// A client's proof that it knows a password.
#[derive(Clone, Debug)]
pub struct Response<'a> {
    /// Names as the client sent them: they are part of the proof.
    pub user: &'a str,
    pub domain: &'a str,
    pub workstation: &'a str,
    pub challenge: [u8; 8],
    pub nt: &'a [u8],
}

/// A user whose password a controller has confirmed.
#[derive(Clone)]
pub struct LoggedOn {
    /// Names as the controller spells them.
    pub name: String,
    pub domain: String,
    pub user: Sid,
    pub primary_group: Sid,
    /// Other groups.
    pub groups: Vec<Sid>,
    /// `SessionBaseKey` (MS-NLMP section 3.3.2).
    pub key: Zeroizing<[u8; 16]>,
}

impl std::fmt::Debug for LoggedOn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LoggedOn({}\\{}, {})", self.domain, self.name, self.user)
    }
}

/// The controller's refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// NTSTATUS.
    pub status: u32,
    /// Its name, such as `NT_STATUS_ACCOUNT_DISABLED`.
    pub name: String,
}

impl Context {
    /// Asks a controller of the user's domain about a response. May block.
    ///
    /// # Errors
    /// [`Error`] if winbindd did not answer. It answers only processes of root or of the group `winbindd_priv`.
    pub(crate) fn authenticate(
        &mut self,
        response: &Response<'_>,
    ) -> Result<Result<LoggedOn, Refused>, Error> {
        let (user, domain) = (given(response.user)?, given(response.domain)?);
        let workstation = given(response.workstation)?;
        // The library takes pointers that are not constant.
        let mut nt = response.nt.to_vec();
        let nt_length = u32::try_from(nt.len()).map_err(|_| Error::Invalid)?;
        let params = AuthUserParams {
            account_name: user.as_ptr(),
            domain_name: domain.as_ptr(),
            workstation_name: workstation.as_ptr(),
            flags: 0,
            parameter_control: ffi::ALLOW_SERVER_TRUST_ACCOUNT
                | ffi::ALLOW_WORKSTATION_TRUST_ACCOUNT,
            level: ffi::LEVEL_RESPONSE,
            response: ResponseParams {
                challenge: response.challenge,
                nt_length,
                nt_data: nt.as_mut_ptr(),
                lm_length: 0,
                // The library refuses a pointer with the length zero.
                lm_data: std::ptr::null_mut(),
            },
        };
        let (mut info, mut error) = (Owned::none(), Owned::none());
        // SAFETY: the context and all that `params` points to live; the places take pointers, which their owners free.
        let code = unsafe {
            let (info, error) = (info.place(), error.place());
            ffi::wbcCtxAuthenticateUserEx(self.at(), &raw const params, info, error)
        };
        if checked(code, &[ffi::AUTH_ERROR])?.is_none() {
            let Some(error) = error.get() else { return Err(Error::Failed(code)) };
            // SAFETY: the text belongs to `error`, which lives.
            let name = unsafe { copied(error.nt_string) };
            return Ok(Err(Refused { status: error.nt_status, name }));
        }
        let info = info.get().ok_or(Error::Failed(code))?;
        if is_taken_for_guest(info, response.user) {
            let name = "NT_STATUS_NO_SUCH_USER: the controller took the user for its guest";
            return Ok(Err(Refused { status: NO_SUCH_USER, name: name.to_owned() }));
        }
        logged_on(info).map(Ok).ok_or(Error::Failed(code))
    }
}

/// STATUS_NO_SUCH_USER.
const NO_SUCH_USER: u32 = 0xc000_0064;
/// The Guest account of a domain or of a computer (MS-DTYP section 2.4.2.4).
const GUEST: u32 = 501;

/// Returns whether the controller has accepted an unknown user as Guest, without a password. The Guest account itself logs on by
/// its own name and has a key.
fn is_taken_for_guest(info: &ffi::AuthUserInfo, asked: &str) -> bool {
    // SAFETY: the list has `num_sids` entries and belongs to `info`, which lives.
    let user =
        (!info.sids.is_null() && info.num_sids > 0).then(|| unsafe { (*info.sids).sid.read() });
    let is_guest = info.user_flags & ffi::USER_GUEST != 0
        || user.flatten().is_some_and(|sid| sid.subs().last() == Some(&GUEST));
    // SAFETY: the text belongs to `info`, which lives.
    let name = unsafe { copied(info.account_name) };
    let plain = asked.rsplit_once('@').map_or(asked, |(plain, _)| plain);
    let is_itself = plain.to_lowercase() == name.to_lowercase() && info.user_session_key != [0; 16];
    is_guest && !is_itself
}

/// Copies the answer; `None` for anonymous callers, whom a controller has not identified, and for an answer without the key of the
/// session, which proves nothing about the messages of the session.
fn logged_on(info: &ffi::AuthUserInfo) -> Option<LoggedOn> {
    let count = usize::try_from(info.num_sids).ok()?;
    if info.sids.is_null() || count > SIDS_MAX {
        return None;
    }
    // SAFETY: the list has `num_sids` entries and belongs to `info`, which lives.
    let sids = unsafe { std::slice::from_raw_parts(info.sids, count) };
    let mut sids = sids.iter().map(|with| with.sid.read());
    // SAFETY: the texts belong to `info`, which lives.
    let (name, domain) = unsafe { (copied(info.account_name), copied(info.domain_name)) };
    let user = sids.next()??;
    // Anonymous callers have an identifier of another kind.
    let is_user = user.authority() == 5 && user.subs().first() == Some(&21);
    if !is_user || name.is_empty() || info.user_session_key == [0; 16] {
        return None;
    }
    Some(LoggedOn {
        name,
        domain,
        user,
        primary_group: sids.next()??,
        groups: sids.collect::<Option<_>>()?,
        key: Zeroizing::new(info.user_session_key),
    })
}
