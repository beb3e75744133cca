//! Finds the library, and all functions in use at once, when the first is called.

use std::sync::OnceLock;

use dylib::Library;

use crate::ffi::Api;

static CEPHFS: Library = Library::new(c"libcephfs.so.2");

/// The functions, or in words why they cannot be had.
pub(crate) fn api() -> Result<&'static Api, &'static str> {
    static API: OnceLock<Result<Api, String>> = OnceLock::new();
    API.get_or_init(|| Api::find(|name| CEPHFS.find(name))).as_ref().map_err(String::as_str)
}

/// Whether the library is there with all functions in use; otherwise what is missing.
pub fn loaded() -> Result<(), String> {
    api().map(drop).map_err(str::to_owned)
}

/// The library's version of its interface, as it tells it, like `10.0.2`.
pub fn version() -> Result<String, String> {
    let api = api()?;
    let (mut major, mut minor, mut patch) = (0, 0, 0);
    // SAFETY: three places for numbers; what the function gives is not used.
    unsafe { (api.ceph_version)(&raw mut major, &raw mut minor, &raw mut patch) };
    Ok(format!("{major}.{minor}.{patch}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_of_another_version_is_told_by_what_it_lacks() {
        static C: Library = Library::new(c"libc.so.6");
        let why = Api::find(|name| C.find(name)).err().unwrap_or_default();
        assert!(why.contains("ceph_version") && why.contains("another version"), "{why}");
    }
}
