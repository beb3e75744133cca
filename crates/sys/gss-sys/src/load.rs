//! Loads the library at its first use.

use dylib::Library;

pub(crate) static GSSAPI_KRB5: Library = Library::new(c"libgssapi_krb5.so.2");

/// Checks that the library is installed; otherwise returns the loader's message.
pub fn loaded() -> Result<(), String> {
    GSSAPI_KRB5.loaded()
}
