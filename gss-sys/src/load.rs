//! Finds the library and its functions when they are first called.

use std::ffi::{CStr, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A library, opened once and kept until the process ends.
pub(crate) struct Library {
    soname: &'static CStr,
    handle: OnceLock<Result<usize, String>>,
}

pub(crate) static GSSAPI_KRB5: Library =
    Library { soname: c"libgssapi_krb5.so.2", handle: OnceLock::new() };

impl Library {
    pub(crate) fn open(&self) -> &Result<usize, String> {
        self.handle.get_or_init(|| {
            // SAFETY: the name is a C string; loading runs the library's own constructors, which is what it is for.
            let handle = unsafe { libc::dlopen(self.soname.as_ptr(), libc::RTLD_NOW) };
            if !handle.is_null() {
                return Ok(handle.expose_provenance());
            }
            // SAFETY: after a failure `dlerror` gives a C string that lives until this thread's next such call, or null.
            let why = unsafe {
                let why = libc::dlerror();
                (!why.is_null()).then(|| CStr::from_ptr(why).to_string_lossy().into_owned())
            };
            Err(why.unwrap_or_else(|| self.soname.to_string_lossy().into_owned()))
        })
    }
}

/// Whether the library is there; otherwise the loader's own words.
pub fn loaded() -> Result<(), String> {
    GSSAPI_KRB5.open().as_ref().map(|_| ()).map_err(String::clone)
}

/// One function of the library. Looking it up twice at once gives the same address twice.
pub(crate) struct Symbol {
    library: &'static Library,
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Symbol {
    pub(crate) const fn new(library: &'static Library, name: &'static CStr) -> Self {
        Self { library, name, address: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Its address; `None` without the library or the function.
    pub(crate) fn address(&self) -> Option<*mut c_void> {
        let known = self.address.load(Ordering::Acquire);
        if !known.is_null() {
            return Some(known);
        }
        let handle = *self.library.open().as_ref().ok()?;
        // SAFETY: the handle came from `dlopen` and is never closed; the name is a C string.
        let found = unsafe {
            libc::dlsym(std::ptr::with_exposed_provenance_mut(handle), self.name.as_ptr())
        };
        if found.is_null() {
            return None;
        }
        self.address.store(found, Ordering::Release);
        Some(found)
    }
}

/// Declares functions of the library, each a wrapper that finds the real one first and answers [`crate::ffi::UNAVAILABLE`] where it
/// does not exist.
macro_rules! functions {
    ($(fn $name:ident($($arg:ident: $of:ty),* $(,)?);)*) => {$(
        #[allow(clippy::too_many_arguments)] // As the header has them.
        pub(crate) unsafe fn $name($($arg: $of),*) -> u32 {
            use $crate::load::Symbol;
            static SYMBOL: Symbol = Symbol::new(
                &$crate::load::GSSAPI_KRB5,
                // SAFETY: the bytes end with the only zero; a C name has none within.
                unsafe {
                    std::ffi::CStr::from_bytes_with_nul_unchecked(
                        concat!(stringify!($name), "\0").as_bytes(),
                    )
                },
            );
            type Function = unsafe extern "C" fn($($of),*) -> u32;
            match SYMBOL.address() {
                // SAFETY: the library's function of this name has this signature, by its header; the caller keeps what its
                // specification asks for.
                Some(at) => unsafe {
                    std::mem::transmute::<*mut std::ffi::c_void, Function>(at)($($arg),*)
                },
                None => $crate::ffi::UNAVAILABLE,
            }
        }
    )*};
}
pub(crate) use functions;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_not_found() {
        static NONE: Library =
            Library { soname: c"libsurely-not-installed.so.9", handle: OnceLock::new() };
        static SYMBOL: Symbol = Symbol::new(&NONE, c"anything");
        assert!(SYMBOL.address().is_none());
        assert!(NONE.open().as_ref().is_err_and(|why| why.contains("libsurely-not-installed")));
    }

    #[test]
    fn a_function_of_a_library_is_found_once() {
        static C: Library = Library { soname: c"libc.so.6", handle: OnceLock::new() };
        static SYMBOL: Symbol = Symbol::new(&C, c"getpid");
        let at = SYMBOL.address().map(|at| at.addr());
        assert!(at.is_some());
        assert_eq!(SYMBOL.address().map(|at| at.addr()), at);
        static ABSENT: Symbol = Symbol::new(&C, c"surely_not_a_function");
        assert!(ABSENT.address().is_none());
    }
}
