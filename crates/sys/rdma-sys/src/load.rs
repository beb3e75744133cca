//! Loads the libraries at their first use, and defines the results of missing functions.

use std::ffi::{c_char, c_int};

use dylib::Library;

pub(crate) static IBVERBS: Library = Library::new(c"libibverbs.so.1");
pub(crate) static RDMACM: Library = Library::new(c"librdmacm.so.1");

/// Checks that both libraries are installed; otherwise returns the loader's message.
pub fn loaded() -> Result<(), String> {
    IBVERBS.loaded()?;
    RDMACM.loaded()
}

/// Returns the result of a missing function and sets `errno` to `EOPNOTSUPP`.
#[cold]
pub(crate) fn missing<T: Missing>() -> T {
    // SAFETY: `errno` of this thread is always writable.
    unsafe { *libc::__errno_location() = libc::EOPNOTSUPP };
    T::missing()
}

/// A result type and its failure value.
pub(crate) trait Missing {
    fn missing() -> Self;
}

impl Missing for c_int {
    fn missing() -> Self {
        -1
    }
}

impl Missing for () {
    fn missing() -> Self {}
}

impl<T> Missing for *mut T {
    fn missing() -> Self {
        std::ptr::null_mut()
    }
}

impl Missing for *const c_char {
    fn missing() -> Self {
        std::ptr::null()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static C: Library = Library::new(c"libc.so.6");

    dylib::functions! { in C, missing: missing();
        fn surely_not_a_function(n: c_int) -> c_int;
        fn surely_not_one_either() -> *mut c_int;
        fn getpid() -> c_int;
    }

    #[test]
    fn missing_function_is_not_supported() {
        let errno = || std::io::Error::last_os_error().raw_os_error();
        // SAFETY: the first two do not exist; the third has no requirements.
        unsafe {
            assert_eq!((surely_not_a_function(1), errno()), (-1, Some(libc::EOPNOTSUPP)));
            assert!(surely_not_one_either().is_null());
            assert_eq!(u32::try_from(getpid()), Ok(std::process::id()));
        }
    }
}
