//! Types and functions of `gssapi/gssapi.h`, `gssapi_ext.h` and `gssapi_krb5.h` (RFC 2744 and MIT's extensions), under their C
//! names.
#![allow(non_camel_case_types)]

use std::ffi::{c_char, c_int, c_void};

use crate::load::GSSAPI_KRB5;

/// `gss_ctx_id_t`, `gss_cred_id_t` and `gss_name_t`.
pub(crate) type Handle = *mut c_void;

#[repr(C)]
pub(crate) struct gss_buffer_desc {
    pub(crate) length: usize,
    pub(crate) value: *mut c_void,
}

#[repr(C)]
pub(crate) struct gss_OID_desc {
    pub(crate) length: u32,
    pub(crate) elements: *const u8,
}

// SAFETY: it points to bytes of a static, which are never written.
unsafe impl Sync for gss_OID_desc {}

#[repr(C)]
pub(crate) struct gss_OID_set_desc {
    pub(crate) count: usize,
    pub(crate) elements: *const gss_OID_desc,
}

#[repr(C)]
pub(crate) struct gss_buffer_set_desc {
    pub(crate) count: usize,
    pub(crate) elements: *const gss_buffer_desc,
}

#[repr(C)]
pub(crate) struct gss_key_value_element_desc {
    pub(crate) key: *const c_char,
    pub(crate) value: *const c_char,
}

#[repr(C)]
pub(crate) struct gss_key_value_set_desc {
    pub(crate) count: u32,
    pub(crate) elements: *const gss_key_value_element_desc,
}

#[repr(C)]
pub(crate) struct gss_krb5_lucid_key_t {
    pub(crate) key_type: u32,
    pub(crate) length: u32,
    pub(crate) data: *const u8,
}

#[repr(C)]
pub(crate) struct gss_krb5_rfc1964_keydata_t {
    pub(crate) sign_alg: u32,
    pub(crate) seal_alg: u32,
    pub(crate) ctx_key: gss_krb5_lucid_key_t,
}

#[repr(C)]
pub(crate) struct gss_krb5_cfx_keydata_t {
    pub(crate) have_acceptor_subkey: u32,
    pub(crate) ctx_key: gss_krb5_lucid_key_t,
    pub(crate) acceptor_subkey: gss_krb5_lucid_key_t,
}

#[repr(C)]
pub(crate) struct gss_krb5_lucid_context_v1_t {
    pub(crate) version: u32,
    pub(crate) initiate: u32,
    pub(crate) endtime: u32,
    pub(crate) send_seq: u64,
    pub(crate) recv_seq: u64,
    pub(crate) protocol: u32,
    pub(crate) rfc1964_kd: gss_krb5_rfc1964_keydata_t,
    pub(crate) cfx_kd: gss_krb5_cfx_keydata_t,
}

const fn oid(bytes: &'static [u8]) -> gss_OID_desc {
    // The longest is 11 bytes.
    #[allow(clippy::cast_possible_truncation)]
    let length = bytes.len() as u32;
    gss_OID_desc { length, elements: bytes.as_ptr() }
}

/// 1.2.840.113554.1.2.2
pub(crate) static KRB5: gss_OID_desc = oid(b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x02");
/// 1.2.840.113554.1.2.2.5.5, `GSS_C_INQ_SSPI_SESSION_KEY`
pub(crate) static SESSION_KEY: gss_OID_desc = oid(b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x02\x05\x05");
/// 1.2.840.113554.1.2.2.1, `GSS_KRB5_NT_PRINCIPAL_NAME`
pub(crate) static NT_PRINCIPAL: gss_OID_desc = oid(b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x02\x01");
/// 1.2.840.113554.1.2.1.4, `GSS_C_NT_HOSTBASED_SERVICE`
pub(crate) static NT_SERVICE: gss_OID_desc = oid(b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x01\x04");

/// `GSS_S_UNAVAILABLE`
pub(crate) const UNAVAILABLE: u32 = 16 << 16;
/// Calling errors and routine errors; the other bits are supplementary information.
pub(crate) const ERROR_MASK: u32 = 0xffff_0000;
/// `GSS_S_CONTINUE_NEEDED`
pub(crate) const CONTINUE_NEEDED: u32 = 1;
/// `GSS_C_ACCEPT`
pub(crate) const ACCEPT: c_int = 2;
/// `GSS_C_INITIATE`
pub(crate) const INITIATE: c_int = 1;
/// `GSS_C_GSS_CODE` and `GSS_C_MECH_CODE`
pub(crate) const GSS_CODE: c_int = 1;
pub(crate) const MECH_CODE: c_int = 2;

// A missing function returns [`UNAVAILABLE`].
dylib::functions! {
    in GSSAPI_KRB5, missing: UNAVAILABLE;
    pub(crate) fn gss_acquire_cred_from(
        minor: *mut u32, desired_name: Handle, time_req: u32, desired_mechs: *const gss_OID_set_desc, usage: c_int,
        store: *const gss_key_value_set_desc, cred: *mut Handle, actual_mechs: *mut *mut gss_OID_set_desc, time_rec: *mut u32,
    ) -> u32;
    pub(crate) fn gss_accept_sec_context(
        minor: *mut u32, context: *mut Handle, cred: Handle, input: *const gss_buffer_desc, bindings: *const c_void,
        source: *mut Handle, mech: *mut *const gss_OID_desc, output: *mut gss_buffer_desc, flags: *mut u32, time_rec: *mut u32,
        delegated: *mut Handle,
    ) -> u32;
    pub(crate) fn gss_init_sec_context(
        minor: *mut u32, cred: Handle, context: *mut Handle, target: Handle, mech: *const gss_OID_desc, req_flags: u32,
        time_req: u32, bindings: *const c_void, input: *const gss_buffer_desc, actual_mech: *mut *const gss_OID_desc,
        output: *mut gss_buffer_desc, flags: *mut u32, time_rec: *mut u32,
    ) -> u32;
    pub(crate) fn gss_import_name(
        minor: *mut u32, input: *const gss_buffer_desc, name_type: *const gss_OID_desc, name: *mut Handle,
    ) -> u32;
    pub(crate) fn gss_delete_sec_context(minor: *mut u32, context: *mut Handle, output: *mut gss_buffer_desc) -> u32;
    pub(crate) fn gss_release_cred(minor: *mut u32, cred: *mut Handle) -> u32;
    pub(crate) fn gss_release_name(minor: *mut u32, name: *mut Handle) -> u32;
    pub(crate) fn gss_release_buffer(minor: *mut u32, buffer: *mut gss_buffer_desc) -> u32;
    pub(crate) fn gss_release_buffer_set(minor: *mut u32, set: *mut *mut gss_buffer_set_desc) -> u32;
    pub(crate) fn gss_display_name(
        minor: *mut u32, name: Handle, output: *mut gss_buffer_desc, name_type: *mut *const gss_OID_desc,
    ) -> u32;
    pub(crate) fn gss_display_status(
        minor: *mut u32, value: u32, kind: c_int, mech: *const gss_OID_desc, more: *mut u32, text: *mut gss_buffer_desc,
    ) -> u32;
    pub(crate) fn gss_localname(minor: *mut u32, name: Handle, mech: *const gss_OID_desc, output: *mut gss_buffer_desc) -> u32;
    pub(crate) fn gss_inquire_context(
        minor: *mut u32, context: Handle, source: *mut Handle, target: *mut Handle, lifetime: *mut u32,
        mech: *mut *const gss_OID_desc, flags: *mut u32, local: *mut c_int, open: *mut c_int,
    ) -> u32;
    pub(crate) fn gss_inquire_sec_context_by_oid(
        minor: *mut u32, context: Handle, object: *const gss_OID_desc, set: *mut *mut gss_buffer_set_desc,
    ) -> u32;
    pub(crate) fn gss_get_name_attribute(
        minor: *mut u32, name: Handle, attribute: *const gss_buffer_desc, authenticated: *mut c_int, complete: *mut c_int,
        value: *mut gss_buffer_desc, display: *mut gss_buffer_desc, more: *mut c_int,
    ) -> u32;
    pub(crate) fn gss_get_mic(
        minor: *mut u32, context: Handle, qop: u32, message: *const gss_buffer_desc, mic: *mut gss_buffer_desc,
    ) -> u32;
    pub(crate) fn gss_verify_mic(
        minor: *mut u32, context: Handle, message: *const gss_buffer_desc, mic: *const gss_buffer_desc, qop: *mut u32,
    ) -> u32;
    pub(crate) fn gss_krb5_export_lucid_sec_context(
        minor: *mut u32, context: *mut Handle, version: u32, lucid: *mut *mut c_void,
    ) -> u32;
    pub(crate) fn gss_krb5_free_lucid_sec_context(minor: *mut u32, lucid: *mut c_void) -> u32;
}

impl gss_buffer_desc {
    pub(crate) const EMPTY: Self = Self { length: 0, value: std::ptr::null_mut() };

    /// Builds an input buffer. The bytes must outlive the call.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self { length: bytes.len(), value: bytes.as_ptr().cast_mut().cast() }
    }

    /// Returns the bytes that a function stored here.
    ///
    /// # Safety
    /// The buffer is empty or as the library filled it, and outlives the slice.
    pub(crate) unsafe fn bytes(&self) -> &[u8] {
        if self.value.is_null() || self.length == 0 {
            return &[];
        }
        // SAFETY: the library guarantees this length.
        unsafe { std::slice::from_raw_parts(self.value.cast(), self.length) }
    }
}

/// A buffer that the library allocated and releases.
pub(crate) struct Output(pub(crate) gss_buffer_desc);

impl Output {
    pub(crate) fn new() -> Self {
        Self(gss_buffer_desc::EMPTY)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: only the library fills it, and it lives until `self` is dropped.
        unsafe { self.0.bytes() }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(self.bytes()).into_owned()
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if !self.0.value.is_null() {
            // SAFETY: the library filled it; afterwards it is empty.
            unsafe { gss_release_buffer(&mut 0, &mut self.0) };
        }
    }
}

/// Declares a handle type that calls the library's release function when dropped.
macro_rules! owned {
    ($(#[$doc:meta])* $name:ident, $release:expr) => {
        $(#[$doc])*
        pub(crate) struct $name(pub(crate) Handle);

        // SAFETY: MIT's handles are not bound to a thread; this one has one owner, and no shared reference leaves a thread.
        unsafe impl Send for $name {}

        impl $name {
            pub(crate) fn none() -> Self {
                Self(std::ptr::null_mut())
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                if !self.0.is_null() {
                    // SAFETY: the library created the handle, which has no other owner.
                    unsafe { ($release)(&mut self.0) };
                }
            }
        }
    };
}

owned!(
    /// A context, complete or not.
    Context,
    |at: &mut Handle| gss_delete_sec_context(&mut 0, at, std::ptr::null_mut())
);
owned!(Cred, |at: &mut Handle| gss_release_cred(&mut 0, at));
owned!(Name, |at: &mut Handle| gss_release_name(&mut 0, at));

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::*;

    /// Values from a C compiler with the headers of krb5 1.20 on a 64-bit machine.
    #[test]
    #[cfg(target_pointer_width = "64")]
    fn layouts_match_c_headers() {
        assert_eq!((size_of::<gss_buffer_desc>(), size_of::<gss_OID_desc>()), (16, 16));
        assert_eq!(size_of::<gss_key_value_set_desc>(), 16);
        assert_eq!(size_of::<gss_krb5_lucid_key_t>(), 16);
        assert_eq!(size_of::<gss_krb5_lucid_context_v1_t>(), 104);
        assert_eq!(offset_of!(gss_krb5_lucid_context_v1_t, send_seq), 16);
        assert_eq!(offset_of!(gss_krb5_lucid_context_v1_t, rfc1964_kd), 40);
        assert_eq!(offset_of!(gss_krb5_lucid_context_v1_t, cfx_kd), 64);
    }
}
