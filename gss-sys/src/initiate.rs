//! The client's end, from the tickets of `kinit`.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use crate::accept;
use crate::error::{Cause, Error, check};
use crate::ffi::{
    self, CONTINUE_NEEDED, Context, Cred, INITIATE, KRB5, NT_PRINCIPAL, Name, Output,
    gss_buffer_desc, gss_key_value_element_desc, gss_key_value_set_desc,
};

/// `GSS_C_MUTUAL_FLAG`, `GSS_C_REPLAY_FLAG`, `GSS_C_CONF_FLAG` and `GSS_C_INTEG_FLAG`
const FLAGS: u32 = 2 | 4 | 16 | 32;

/// One exchange with one server. Asks a KDC where the cache has no ticket for the service, so it may wait.
pub struct Initiator {
    cred: Cred,
    target: Name,
    context: Context,
}

impl Initiator {
    /// To the service of this principal, such as `cifs/server.lab.test@LAB.TEST`, with the tickets of this cache (`FILE:PATH`).
    ///
    /// # Errors
    /// The library's, such as no cache.
    pub fn new(cache: &Path, service: &str) -> Result<Self, Error> {
        let path = CString::new([b"FILE:", cache.as_os_str().as_bytes()].concat())
            .map_err(|_| Error::new(Cause::Other, "a path with a zero byte"))?;
        let element = gss_key_value_element_desc { key: c"ccache".as_ptr(), value: path.as_ptr() };
        let store = gss_key_value_set_desc { count: 1, elements: &element };
        let cred = accept::acquire(INITIATE, &Name::none(), &store)?;
        let (mut minor, mut target) = (0, Name::none());
        let service = gss_buffer_desc::of(service.as_bytes());
        // SAFETY: the name's bytes outlive the call; the rest are variables here.
        let major =
            unsafe { ffi::gss_import_name(&mut minor, &service, &NT_PRINCIPAL, &mut target.0) };
        check(major, minor)?;
        Ok(Self { cred, target, context: Context::none() })
    }

    /// The next token, to the server's answer; empty for the first one. The second part: the exchange is complete on this side.
    ///
    /// # Errors
    /// The library's: no ticket, or an answer that is not the server's.
    pub fn step(&mut self, answer: &[u8]) -> Result<(Vec<u8>, bool), Error> {
        let (mut minor, mut token) = (0, Output::new());
        let input = gss_buffer_desc::of(answer);
        // SAFETY: the handles are of this library or null; the input outlives the call; the rest are variables here.
        let major = unsafe {
            ffi::gss_init_sec_context(
                &mut minor,
                self.cred.0,
                &mut self.context.0,
                self.target.0,
                &KRB5,
                FLAGS,
                0,
                ptr::null(),
                &input,
                ptr::null_mut(),
                &mut token.0,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        check(major, minor)?;
        Ok((token.bytes().to_vec(), major & CONTINUE_NEEDED == 0))
    }

    /// Signs a message as the client.
    ///
    /// # Errors
    /// The library's.
    pub fn mic(&mut self, message: &[u8]) -> Result<Vec<u8>, Error> {
        accept::mic(&self.context, message)
    }

    /// Verifies the server's signature of a message.
    ///
    /// # Errors
    /// As [`crate::Established::verify`].
    pub fn verify(&mut self, message: &[u8], mic: &[u8]) -> Result<(), Error> {
        accept::verify(&self.context, message, mic)
    }
}
