//! Errors of the library, and their causes.

use std::fmt;

use gss_krb5::Cause;

use crate::fault::Fault;
use crate::ffi::{self, GSS_CODE, KRB5, MECH_CODE, Output};

/// An error of the library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The cause, for the administrator.
    pub cause: Cause,
    /// The library's message.
    pub text: String,
    /// Token for the client: a KRB-ERROR in a GSS token (RFC 4121 section 4.1); may be empty.
    pub token: Vec<u8>,
    /// The library's code; 0 if the mechanism has given none.
    pub(crate) code: i32,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}

/// Codes of `krb5.h`, without the prefixes `KRB5` and `KRB5KRB_AP_ERR_`.
mod code {
    pub(super) const BASE: i32 = -1_765_328_384;
    // Of a KDC (RFC 4120 section 7.5.9, KDC_ERR).
    pub(super) const NAME_EXPIRED: i32 = BASE + 1;
    pub(super) const UNKNOWN_CLIENT: i32 = BASE + 6;
    pub(super) const UNKNOWN_SERVICE: i32 = BASE + 7;
    pub(super) const REVOKED: i32 = BASE + 18;
    pub(super) const KEY_EXPIRED: i32 = BASE + 23;
    pub(super) const PREAUTH_FAILED: i32 = BASE + 24;
    pub(super) const UNAVAILABLE: i32 = BASE + 29;
    pub(super) const BAD_INTEGRITY: i32 = BASE + 31;
    pub(super) const TKT_EXPIRED: i32 = BASE + 32;
    pub(super) const TKT_NYV: i32 = BASE + 33;
    pub(super) const REPEAT: i32 = BASE + 34;
    pub(super) const NOT_US: i32 = BASE + 35;
    pub(super) const SKEW: i32 = BASE + 37;
    pub(super) const MODIFIED: i32 = BASE + 41;
    pub(super) const BADKEYVER: i32 = BASE + 44;
    pub(super) const NOKEY: i32 = BASE + 45;
    pub(super) const WRONG_PRINC: i32 = BASE + 144;
    pub(super) const REPLY_SKEW: i32 = BASE + 150;
    pub(super) const REALM_UNKNOWN: i32 = BASE + 154;
    pub(super) const KDC_UNREACHABLE: i32 = BASE + 156;
    pub(super) const KT_NOTFOUND: i32 = BASE + 181;
    pub(super) const REALM_UNRESOLVED: i32 = BASE + 220;
    pub(super) const KT_KVNONOTFOUND: i32 = BASE + 230;
}

impl Error {
    pub(crate) fn new(cause: Cause, text: impl Into<String>) -> Self {
        Self { cause, text: text.into(), token: Vec::new(), code: 0 }
    }

    /// Returns the reason why a KDC has not issued a ticket.
    pub(crate) fn fault(&self) -> Fault {
        match (self.code, self.cause) {
            (code::UNKNOWN_CLIENT, _) => Fault::UnknownClient,
            (code::UNKNOWN_SERVICE, _) => Fault::UnknownService,
            (code::NAME_EXPIRED | code::REVOKED | code::KEY_EXPIRED, _) => Fault::Disabled,
            (code::PREAUTH_FAILED, _) | (_, Cause::WrongKey) => Fault::OldKey,
            (
                code::UNAVAILABLE
                | code::REALM_UNKNOWN
                | code::KDC_UNREACHABLE
                | code::REALM_UNRESOLVED,
                _,
            ) => Fault::NoKdc,
            (code::REPLY_SKEW, _) | (_, Cause::Clock) => Fault::Clock,
            _ => Fault::Other,
        }
    }

    /// Converts the result of a function.
    pub(crate) fn of(major: u32, minor: u32) -> Self {
        if major == ffi::UNAVAILABLE && minor == 0 {
            let why = crate::loaded().err();
            let text =
                why.unwrap_or_else(|| "the library lacks a function of MIT krb5 1.11".into());
            return Self::new(Cause::NoLibrary, text);
        }
        let text = status(minor, MECH_CODE);
        // The library maps the mechanism's codes, including "no error", to its own numbers; it returns "no error" for a token that
        // cannot be parsed. The text comes from the C library, for which this process has not set a language.
        if minor != 0 && !text.is_empty() && text != "Success" {
            let code = minor.cast_signed();
            return Self { code, ..Self::new(cause(major, code), text) };
        }
        Self::new(cause(major, 0), status(major, GSS_CODE))
    }
}

fn cause(major: u32, minor: i32) -> Cause {
    /// GSS_S_FAILURE
    const FAILURE: u32 = 13;
    let routine = (major & ffi::ERROR_MASK) >> 16;
    match minor {
        code::SKEW | code::TKT_NYV => return Cause::Clock,
        code::TKT_EXPIRED => return Cause::Expired,
        code::BAD_INTEGRITY | code::MODIFIED => return Cause::WrongKey,
        code::NOKEY
        | code::BADKEYVER
        | code::NOT_US
        | code::WRONG_PRINC
        | code::KT_NOTFOUND
        | code::KT_KVNONOTFOUND => return Cause::NoKey,
        code::REPEAT => return Cause::Replay,
        0 if routine == FAILURE => return Cause::Malformed,
        _ => {}
    }
    // Routine errors of RFC 2744 section 3.9.1. GSS_S_BAD_MECH denotes a token of another mechanism.
    match routine {
        6 => Cause::Mic,
        1 | 9 | 10 => Cause::Malformed,
        11 | 12 => Cause::Expired,
        _ => Cause::Other,
    }
}

/// Returns the library's message for a code.
fn status(value: u32, kind: std::ffi::c_int) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut more = 0;
    // A code has one message, rarely two.
    for _ in 0..4 {
        let mut text = Output::new();
        // SAFETY: all pointers refer to local variables.
        let major =
            unsafe { ffi::gss_display_status(&mut 0, value, kind, &KRB5, &mut more, &mut text.0) };
        if major & ffi::ERROR_MASK != 0 {
            break;
        }
        words.push(text.text());
        if more == 0 {
            break;
        }
    }
    words.join(": ")
}

/// Converts the result of a function.
pub(crate) fn check(major: u32, minor: u32) -> Result<u32, Error> {
    if major & ffi::ERROR_MASK == 0 { Ok(major) } else { Err(Error::of(major, minor)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn library_codes_map_to_causes() {
        for (minor, expected) in [
            (-1_765_328_347, Cause::Clock),
            (-1_765_328_352, Cause::Expired),
            (-1_765_328_353, Cause::WrongKey),
            (-1_765_328_339, Cause::NoKey),
            (-1_765_328_203, Cause::NoKey),
            (-1_765_328_350, Cause::Replay),
            (-1_765_328_154, Cause::NoKey),
            (-1_765_328_240, Cause::NoKey),
        ] {
            assert_eq!(cause(13 << 16, minor), expected, "{minor}");
        }
        for major in [1 << 16, 9 << 16, 13 << 16] {
            assert_eq!(cause(major, 0), Cause::Malformed);
        }
        assert_eq!(cause(6 << 16, 0), Cause::Mic);
        assert_eq!(cause(13 << 16, 1), Cause::Other);
    }

    #[test]
    fn answers_of_kdc_map_to_faults() {
        for (code, expected) in [
            (1, Fault::Disabled),
            (6, Fault::UnknownClient),
            (7, Fault::UnknownService),
            (18, Fault::Disabled),
            (23, Fault::Disabled),
            (24, Fault::OldKey),
            (29, Fault::NoKdc),
            (31, Fault::OldKey),
            (37, Fault::Clock),
            (14, Fault::Other),
            (150, Fault::Clock),
            (154, Fault::NoKdc),
            (156, Fault::NoKdc),
            (220, Fault::NoKdc),
        ] {
            let code = code::BASE + code;
            let error = Error { code, ..Error::new(cause(13 << 16, code), "") };
            assert_eq!(error.fault(), expected, "{code}");
        }
        assert_eq!(Error::new(Cause::Other, "").fault(), Fault::Other);
    }
}
