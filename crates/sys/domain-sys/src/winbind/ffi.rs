//! Declarations of `wbclient.h`, interface version 0.12 and later.
#![allow(non_snake_case)] // The names of the header.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

use dylib::Library;

static WBCLIENT: Library = Library::new(c"libwbclient.so.0");

/// Checks that the library is installed; otherwise returns the loader's message.
pub(crate) fn loaded() -> Result<(), String> {
    WBCLIENT.loaded()
}

/// `wbcErr`, an enumeration.
pub(crate) type Code = c_int;
pub(crate) const SUCCESS: Code = 0;
pub(crate) const NOT_IMPLEMENTED: Code = 1;
pub(crate) const NOT_AVAILABLE: Code = 6;
pub(crate) const DOMAIN_NOT_FOUND: Code = 7;
pub(crate) const AUTH_ERROR: Code = 10;

pub(crate) const SUBS_MAX: usize = 15;

/// `struct wbcDomainSid`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct DomainSid {
    pub(crate) revision: u8,
    pub(crate) count: u8,
    pub(crate) authority: [u8; 6],
    pub(crate) subs: [u32; SUBS_MAX],
}

/// `struct wbcSidWithAttr`.
#[repr(C)]
pub(crate) struct SidWithAttr {
    pub(crate) sid: DomainSid,
    pub(crate) attributes: u32,
}

/// `struct wbcInterfaceDetails`.
#[repr(C)]
pub(crate) struct InterfaceDetails {
    pub(crate) interface_version: u32,
    pub(crate) winbind_version: *mut c_char,
    pub(crate) winbind_separator: c_char,
    pub(crate) netbios_name: *mut c_char,
    pub(crate) netbios_domain: *mut c_char,
    pub(crate) dns_domain: *mut c_char,
}

/// `struct wbcDomainInfo`.
#[repr(C)]
pub(crate) struct DomainInfo {
    pub(crate) short_name: *mut c_char,
    pub(crate) dns_name: *mut c_char,
    pub(crate) sid: DomainSid,
    pub(crate) domain_flags: u32,
    pub(crate) trust_flags: u32,
    pub(crate) trust_type: u32,
    pub(crate) trust_routing: *mut c_char,
}

/// Bytes from one `struct wbcDomainInfo` of a list to the next: without the last member in libraries before version 0.15.
pub(crate) const DOMAIN_INFO_SIZES: [usize; 2] =
    [size_of::<DomainInfo>() - size_of::<*mut c_char>(), size_of::<DomainInfo>()];

/// `struct wbcTranslatedName`.
#[repr(C)]
pub(crate) struct TranslatedName {
    pub(crate) kind: c_int,
    pub(crate) name: *mut c_char,
    pub(crate) domain_index: c_int,
}

/// `struct wbcUnixId`. The union has two members of the same type.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct UnixId {
    pub(crate) kind: c_int,
    pub(crate) id: u32,
}

pub(crate) const ID_UID: c_int = 1;
pub(crate) const ID_GID: c_int = 2;
pub(crate) const ID_BOTH: c_int = 3;

/// The member `response` of the union in `struct wbcAuthUserParams`, its largest.
#[repr(C)]
pub(crate) struct ResponseParams {
    pub(crate) challenge: [u8; 8],
    pub(crate) nt_length: u32,
    pub(crate) nt_data: *mut u8,
    pub(crate) lm_length: u32,
    pub(crate) lm_data: *mut u8,
}

/// `struct wbcAuthUserParams` of the level [`LEVEL_RESPONSE`].
#[repr(C)]
pub(crate) struct AuthUserParams {
    pub(crate) account_name: *const c_char,
    pub(crate) domain_name: *const c_char,
    pub(crate) workstation_name: *const c_char,
    pub(crate) flags: u32,
    pub(crate) parameter_control: u32,
    pub(crate) level: c_int,
    pub(crate) response: ResponseParams,
}

pub(crate) const LEVEL_RESPONSE: c_int = 3;
pub(crate) const ALLOW_SERVER_TRUST_ACCOUNT: u32 = 0x20;
pub(crate) const ALLOW_WORKSTATION_TRUST_ACCOUNT: u32 = 0x800;

/// `struct wbcAuthUserInfo`.
#[repr(C)]
pub(crate) struct AuthUserInfo {
    pub(crate) user_flags: u32,
    pub(crate) account_name: *mut c_char,
    pub(crate) user_principal: *mut c_char,
    pub(crate) full_name: *mut c_char,
    pub(crate) domain_name: *mut c_char,
    pub(crate) dns_domain_name: *mut c_char,
    pub(crate) acct_flags: u32,
    pub(crate) user_session_key: [u8; 16],
    pub(crate) lm_session_key: [u8; 8],
    pub(crate) logon_count: u16,
    pub(crate) bad_password_count: u16,
    pub(crate) times: [u64; 6],
    pub(crate) logon_server: *mut c_char,
    pub(crate) logon_script: *mut c_char,
    pub(crate) profile_path: *mut c_char,
    pub(crate) home_directory: *mut c_char,
    pub(crate) home_drive: *mut c_char,
    pub(crate) num_sids: u32,
    pub(crate) sids: *mut SidWithAttr,
}

pub(crate) const USER_GUEST: u32 = 1;

/// The first member of `struct wbcDomainControllerInfoEx`.
#[repr(C)]
pub(crate) struct ControllerInfo {
    pub(crate) name: *const c_char,
}

/// `WBC_LOOKUP_DC_FORCE_REDISCOVERY`: ask a controller now.
pub(crate) const LOOKUP_DC_NOW: u32 = 1;
pub(crate) const LOOKUP_DC_IS_DNS_NAME: u32 = 0x0002_0000;
pub(crate) const LOOKUP_DC_RETURN_DNS_NAME: u32 = 0x4000_0000;

/// `struct wbcAuthErrorInfo` without its last member, which the library has since version 0.14.
#[repr(C)]
pub(crate) struct AuthErrorInfo {
    pub(crate) nt_status: u32,
    pub(crate) nt_string: *mut c_char,
    pub(crate) pam_error: i32,
    pub(crate) display_string: *mut c_char,
}

/// Statuses of a logon by the account of the machine that a controller has refused, or that the machine cannot try for want of a
/// password of its own (MS-ERREF section 2.3.1).
pub(crate) const REFUSED_ACCOUNT: [u32; 11] = [
    0xc000_0022, // STATUS_ACCESS_DENIED
    0xc000_0064, // STATUS_NO_SUCH_USER
    0xc000_006a, // STATUS_WRONG_PASSWORD
    0xc000_006d, // STATUS_LOGON_FAILURE
    0xc000_0072, // STATUS_ACCOUNT_DISABLED
    0xc000_00da, // STATUS_CANT_ACCESS_DOMAIN_INFO
    0xc000_018a, // STATUS_NO_TRUST_LSA_SECRET
    0xc000_018b, // STATUS_NO_TRUST_SAM_ACCOUNT
    0xc000_018c, // STATUS_TRUSTED_DOMAIN_FAILURE
    0xc000_018d, // STATUS_TRUSTED_RELATIONSHIP_FAILURE
    0xc000_0193, // STATUS_ACCOUNT_EXPIRED
];

/// Results of functions that an older library lacks.
trait Missing {
    fn missing() -> Self;
}

impl Missing for Code {
    fn missing() -> Self {
        NOT_IMPLEMENTED
    }
}

impl Missing for *mut c_void {
    fn missing() -> Self {
        ptr::null_mut()
    }
}

impl Missing for () {
    fn missing() -> Self {}
}

dylib::functions! {
    in WBCLIENT, missing: Missing::missing();
    pub(crate) fn wbcCtxCreate() -> *mut c_void;
    pub(crate) fn wbcCtxFree(ctx: *mut c_void);
    pub(crate) fn wbcFreeMemory(memory: *mut c_void);
    pub(crate) fn wbcCtxInterfaceDetails(ctx: *mut c_void, details: *mut *mut InterfaceDetails) -> Code;
    pub(crate) fn wbcCtxPingDc(
        ctx: *mut c_void,
        domain: *const c_char,
        error: *mut *mut AuthErrorInfo,
    ) -> Code;
    pub(crate) fn wbcCtxCheckTrustCredentials(
        ctx: *mut c_void,
        domain: *const c_char,
        error: *mut *mut AuthErrorInfo,
    ) -> Code;
    pub(crate) fn wbcCtxLookupDomainControllerEx(
        ctx: *mut c_void,
        domain: *const c_char,
        guid: *mut c_void,
        site: *const c_char,
        flags: u32,
        info: *mut *mut ControllerInfo,
    ) -> Code;
    pub(crate) fn wbcCtxDomainInfo(ctx: *mut c_void, domain: *const c_char, info: *mut *mut DomainInfo) -> Code;
    pub(crate) fn wbcCtxSidsToUnixIds(
        ctx: *mut c_void,
        sids: *const DomainSid,
        count: u32,
        ids: *mut UnixId,
    ) -> Code;
    pub(crate) fn wbcCtxLookupSid(
        ctx: *mut c_void,
        sid: *const DomainSid,
        domain: *mut *mut c_char,
        name: *mut *mut c_char,
        kind: *mut c_int,
    ) -> Code;
    pub(crate) fn wbcCtxLookupName(
        ctx: *mut c_void,
        domain: *const c_char,
        name: *const c_char,
        sid: *mut DomainSid,
        kind: *mut c_int,
    ) -> Code;
    pub(crate) fn wbcCtxLookupSids(
        ctx: *mut c_void,
        sids: *const DomainSid,
        count: c_int,
        domains: *mut *mut DomainInfo,
        domains_count: *mut c_int,
        names: *mut *mut TranslatedName,
    ) -> Code;
    pub(crate) fn wbcCtxUnixIdsToSids(
        ctx: *mut c_void,
        ids: *const UnixId,
        count: u32,
        sids: *mut DomainSid,
    ) -> Code;
    pub(crate) fn wbcCtxLookupUserSids(
        ctx: *mut c_void,
        user: *const DomainSid,
        domain_groups_only: bool,
        count: *mut u32,
        sids: *mut *mut DomainSid,
    ) -> Code;
    pub(crate) fn wbcCtxListTrusts(
        ctx: *mut c_void,
        domains: *mut *mut DomainInfo,
        count: *mut usize,
    ) -> Code;
    pub(crate) fn wbcCtxAuthenticateUserEx(
        ctx: *mut c_void,
        params: *const AuthUserParams,
        info: *mut *mut AuthUserInfo,
        error: *mut *mut AuthErrorInfo,
    ) -> Code;
}
