//! Finds the libraries and their functions when they are first called.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

/// One of the two libraries, opened once and kept until the process ends.
pub(crate) struct Library {
    soname: &'static CStr,
    handle: OnceLock<Result<usize, String>>,
}

pub(crate) static IBVERBS: Library =
    Library { soname: c"libibverbs.so.1", handle: OnceLock::new() };
pub(crate) static RDMACM: Library = Library { soname: c"librdmacm.so.1", handle: OnceLock::new() };

impl Library {
    fn open(&self) -> &Result<usize, String> {
        self.handle.get_or_init(|| {
            // SAFETY: the name is a C string; loading runs the library's own constructors, which is what it is for.
            let handle = unsafe { libc::dlopen(self.soname.as_ptr(), libc::RTLD_NOW) };
            if !handle.is_null() {
                return Ok(handle.addr());
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

/// Whether both libraries are there; otherwise the loader's own words.
pub fn loaded() -> Result<(), String> {
    for library in [&IBVERBS, &RDMACM] {
        library.open().as_ref().map_err(String::clone)?;
    }
    Ok(())
}

/// One function of a library. Looking it up twice at once gives the same address twice.
pub(crate) struct Symbol {
    library: &'static Library,
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Symbol {
    pub(crate) const fn new(library: &'static Library, name: &'static CStr) -> Self {
        Self { library, name, address: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Its address; without it, `None` and `errno` is `EOPNOTSUPP`.
    pub(crate) fn address(&self) -> Option<*mut c_void> {
        let known = self.address.load(Ordering::Acquire);
        if !known.is_null() {
            return Some(known);
        }
        let found = self.library.open().as_ref().ok().map(|handle| {
            let handle = std::ptr::with_exposed_provenance_mut(*handle);
            // SAFETY: the handle came from `dlopen` and is never closed; the name is a C string.
            unsafe { libc::dlsym(handle, self.name.as_ptr()) }
        });
        match found.filter(|at| !at.is_null()) {
            Some(at) => {
                self.address.store(at, Ordering::Release);
                Some(at)
            }
            None => {
                // SAFETY: `errno` of this thread is always there to be written.
                unsafe { *libc::__errno_location() = libc::EOPNOTSUPP };
                None
            }
        }
    }
}

/// What a function answers when it does not exist.
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

/// Declares functions of a library, each a wrapper that finds the real one first.
macro_rules! functions {
    ($library:ident: $(fn $name:ident($($arg:ident: $of:ty),* $(,)?) $(-> $answer:ty)?;)*) => {$(
        #[inline]
        pub unsafe fn $name($($arg: $of),*) $(-> $answer)? {
            use $crate::load::{Missing, Symbol};
            static SYMBOL: Symbol = Symbol::new(
                &$crate::load::$library,
                // SAFETY: the bytes end with the only zero; a C name has none within.
                unsafe {
                    std::ffi::CStr::from_bytes_with_nul_unchecked(
                        concat!(stringify!($name), "\0").as_bytes(),
                    )
                },
            );
            type Function = unsafe extern "C" fn($($of),*) $(-> $answer)?;
            match SYMBOL.address() {
                // SAFETY: the library's function of this name has this signature, by its header; the caller keeps what
                // the manual page asks for.
                Some(at) => unsafe {
                    std::mem::transmute::<*mut std::ffi::c_void, Function>(at)($($arg),*)
                },
                None => Missing::missing(),
            }
        }
    )*};
}
pub(crate) use functions;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_not_supported() {
        static NONE: Library =
            Library { soname: c"libsurely-not-installed.so.9", handle: OnceLock::new() };
        static SYMBOL: Symbol = Symbol::new(&NONE, c"anything");
        assert!(SYMBOL.address().is_none());
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EOPNOTSUPP));
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
