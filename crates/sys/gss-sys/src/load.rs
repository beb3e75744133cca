//! The library, which is loaded when it is first called.

use dylib::Library;

pub(crate) static GSSAPI_KRB5: Library = Library::new(c"libgssapi_krb5.so.2");

/// Whether the library is there; otherwise the loader's own words.
pub fn loaded() -> Result<(), String> {
    GSSAPI_KRB5.loaded()
}
