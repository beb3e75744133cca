//! Loads the library and looks up all functions at the first call.

use std::sync::OnceLock;

use dylib::Library;

use crate::ffi::Api;

static CEPHFS: Library = Library::new(c"libcephfs.so.2");

/// Returns the functions, or the reason why they are unavailable.
pub(crate) fn api() -> Result<&'static Api, &'static str> {
    static API: OnceLock<Result<Api, String>> = OnceLock::new();
    API.get_or_init(|| Api::find(|name| CEPHFS.find(name))).as_ref().map_err(String::as_str)
}

/// Checks that the library is installed with all functions; otherwise describes what is missing.
pub fn loaded() -> Result<(), String> {
    api().map(drop).map_err(str::to_owned)
}

/// Returns the library's interface version, like `10.0.2`.
pub fn version() -> Result<String, String> {
    let api = api()?;
    let (mut major, mut minor, mut patch) = (0, 0, 0);
    // SAFETY: the pointers are valid for three numbers; the returned string is not used.
    unsafe { (api.ceph_version)(&raw mut major, &raw mut minor, &raw mut patch) };
    Ok(format!("{major}.{minor}.{patch}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incompatible_library_names_missing_function() {
        static C: Library = Library::new(c"libc.so.6");
        let why = Api::find(|name| C.find(name)).err().unwrap_or_default();
        assert!(why.contains("ceph_version") && why.contains("another version"), "{why}");
    }
}
