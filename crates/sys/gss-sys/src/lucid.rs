//! Exported contexts, so that other code can sign and encrypt their messages.

use std::ptr;

use gss_krb5::Cause;
use zeroize::Zeroizing;

use crate::error::{Error, check};
use crate::ffi::{self, Context};

/// Exports the context and converts it with `read`.
pub(crate) fn export<T>(
    mut context: Context,
    read: impl FnOnce(*const ffi::gss_krb5_lucid_context_v1_t) -> Option<T>,
) -> Result<Option<T>, Error> {
    let (mut minor, mut exported) = (0, ptr::null_mut());
    // SAFETY: the context belongs to the library and is null afterwards; all other pointers refer to local variables.
    let major = unsafe {
        ffi::gss_krb5_export_lucid_sec_context(&mut minor, &mut context.0, 1, &mut exported)
    };
    check(major, minor)?;
    let read = read(exported.cast());
    // SAFETY: the library allocated it, and the needed fields have been copied.
    unsafe { ffi::gss_krb5_free_lucid_sec_context(&mut 0, exported) };
    Ok(read)
}

/// A key of a context.
pub struct LucidKey {
    /// Encryption type (RFC 3961 section 8): 17, 18 (RFC 3962), 19 or 20 (RFC 8009).
    pub enctype: u32,
    /// The protocol key.
    pub key: Zeroizing<Vec<u8>>,
}

/// An exported context of RFC 4121.
pub struct Lucid {
    /// Expiry of the ticket, in seconds since 1970.
    pub end_time: u32,
    /// Sequence number of the next message from this side.
    pub send_seq: u64,
    /// Expected sequence number of the peer's next message.
    pub recv_seq: u64,
    /// The initiator's subkey, or the ticket's session key.
    pub initiator_key: LucidKey,
    /// The acceptor's subkey. If present, both sides use it, and their tokens say so (RFC 4121 section 4.2.2, `AcceptorSubkey`).
    pub acceptor_key: Option<LucidKey>,
}

impl Lucid {
    /// Exports a complete context and consumes it.
    pub(crate) fn of(context: Context) -> Result<Self, Error> {
        // SAFETY: the argument is a structure of version 1.
        let lucid = export(context, |at| unsafe { Self::read(at) })?;
        lucid.ok_or_else(|| {
            Error::new(Cause::Other, "a context of RFC 1964: its encryption type is too old")
        })
    }

    /// # Safety
    /// The pointer is null or refers to a structure that the library filled.
    unsafe fn read(at: *const ffi::gss_krb5_lucid_context_v1_t) -> Option<Self> {
        // SAFETY: guaranteed by the caller.
        let context = unsafe { at.as_ref() }.filter(|c| c.version == 1 && c.protocol == 1)?;
        let key = |key: &ffi::gss_krb5_lucid_key_t| {
            let length = usize::try_from(key.length).ok().filter(|n| (1..=64).contains(n))?;
            if key.data.is_null() {
                return None;
            }
            // SAFETY: the library guarantees this length.
            let bytes = unsafe { std::slice::from_raw_parts(key.data, length) };
            Some(LucidKey { enctype: key.key_type, key: Zeroizing::new(bytes.to_vec()) })
        };
        let acceptor_key = match context.cfx_kd.have_acceptor_subkey {
            0 => None,
            _ => Some(key(&context.cfx_kd.acceptor_subkey)?),
        };
        Some(Self {
            end_time: context.endtime,
            send_seq: context.send_seq,
            recv_seq: context.recv_seq,
            initiator_key: key(&context.cfx_kd.ctx_key)?,
            acceptor_key,
        })
    }
}
