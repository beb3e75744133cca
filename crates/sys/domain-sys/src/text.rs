//! Text to and from the library.

use std::ffi::{CStr, CString, c_char};

use crate::error::Error;

/// Copies a text of the library; null is empty.
///
/// # Safety
/// `text` is null or a C string that lives during the call.
pub(crate) unsafe fn copied(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: not null, so a C string by the contract of this function.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Makes a C string of a client's text.
pub(crate) fn given(text: &str) -> Result<CString, Error> {
    CString::new(text).map_err(|_| Error::Invalid)
}
