//! The libraries, which are loaded when they are first called, and what their functions answer where they do not exist.

use std::ffi::{c_char, c_int};

use dylib::Library;

pub(crate) static IBVERBS: Library = Library::new(c"libibverbs.so.1");
pub(crate) static RDMACM: Library = Library::new(c"librdmacm.so.1");

/// Whether both libraries are there; otherwise the loader's own words.
pub fn loaded() -> Result<(), String> {
    IBVERBS.loaded()?;
    RDMACM.loaded()
}

/// What a function answers when it does not exist; `errno` is `EOPNOTSUPP` then.
#[cold]
pub(crate) fn missing<T: Missing>() -> T {
    // SAFETY: `errno` of this thread is always there to be written.
    unsafe { *libc::__errno_location() = libc::EOPNOTSUPP };
    T::missing()
}

/// A type of results, and its value for a failure.
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
    fn what_is_not_there_is_not_supported() {
        let errno = || std::io::Error::last_os_error().raw_os_error();
        // SAFETY: the first two do not exist; the third asks for nothing.
        unsafe {
            assert_eq!((surely_not_a_function(1), errno()), (-1, Some(libc::EOPNOTSUPP)));
            assert!(surely_not_one_either().is_null());
            assert_eq!(u32::try_from(getpid()), Ok(std::process::id()));
        }
    }
}
