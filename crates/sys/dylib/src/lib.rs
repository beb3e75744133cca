//! C libraries that are loaded when they are first called, so that the program starts where they are not installed.
//!
//! *Operation.* A binding crate says its [`Library`] by soname and its functions by [`functions!`], with the names and types of the
//! C header. Each becomes an `unsafe fn` that finds the real one at its first call and jumps to it from then on. Without the
//! library, or in a version of it without the function, the wrapper gives what the `missing` expression says, which has the type of
//! the function's result:
//!
//! ```
//! use std::ffi::{c_char, c_int};
//!
//! static C: dylib::Library = dylib::Library::new(c"libc.so.6");
//!
//! dylib::functions! {
//!     in C, missing: -1;
//!     /// Digits as a number.
//!     pub fn atoi(text: *const c_char) -> c_int;
//!     fn surely_not_a_function(n: c_int) -> c_int;
//! }
//!
//! // SAFETY: the text is a C string.
//! assert_eq!(unsafe { atoi(c"42".as_ptr()) }, 42);
//! // SAFETY: the function does not exist.
//! assert_eq!(unsafe { surely_not_a_function(1) }, -1);
//! assert_eq!(C.loaded(), Ok(()));
//! ```
//!
//! Where results differ in type, `missing` calls a function of a trait of the binding crate. A crate that must have all functions
//! or none asks [`Library::find`] for each of them once.
//!
//! *Memory.* A library is opened once and kept until the process ends: its functions, threads and destructors may be in use
//! anywhere.
//!
//! *Errors.* [`Library::loaded`] says in the loader's own words why a library cannot be had; the answer stays until the process
//! ends, also when the library is installed meanwhile.
//!
//! *Threads.* Everything may be called by any thread. Two that look the same thing up at once find the same.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A library.
pub struct Library {
    soname: &'static CStr,
    /// The address of the loader's handle, or the loader's own words.
    handle: OnceLock<Result<usize, String>>,
}

impl Library {
    /// By its soname, such as `libibverbs.so.1`: the number is that of the interface the functions are declared by.
    pub const fn new(soname: &'static CStr) -> Self {
        Self { soname, handle: OnceLock::new() }
    }

    fn open(&self) -> Result<*mut c_void, &str> {
        let found = self.handle.get_or_init(|| {
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
        });
        match found {
            Ok(handle) => Ok(ptr::with_exposed_provenance_mut(*handle)),
            Err(why) => Err(why),
        }
    }

    /// Whether it can be had; loads it.
    ///
    /// # Errors
    ///
    /// The loader's own words.
    pub fn loaded(&self) -> Result<(), String> {
        self.open().map(drop).map_err(str::to_owned)
    }

    /// The address of a function, for as long as the process lives; never null.
    ///
    /// # Errors
    ///
    /// The loader's own words, or the name of the function that this version of the library lacks.
    pub fn find(&self, name: &CStr) -> Result<*mut c_void, String> {
        let handle = self.open()?;
        // SAFETY: the handle came from `dlopen` and is never closed; the name is a C string.
        let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
        if !found.is_null() {
            return Ok(found);
        }
        let (soname, name) = (self.soname.to_string_lossy(), name.to_string_lossy());
        Err(format!("{soname} has no function {name}: another version"))
    }
}

/// One function of a library, as [`functions!`] uses it.
pub struct Symbol {
    library: &'static Library,
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Symbol {
    /// By its name in the header.
    pub const fn new(library: &'static Library, name: &'static CStr) -> Self {
        Self { library, name, address: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Its address; `None` without the library or the function.
    #[inline]
    pub fn address(&self) -> Option<*mut c_void> {
        let known = self.address.load(Ordering::Acquire);
        if known.is_null() { self.look_up() } else { Some(known) }
    }

    #[cold]
    fn look_up(&self) -> Option<*mut c_void> {
        let found = self.library.find(self.name).ok()?;
        self.address.store(found, Ordering::Release);
        Some(found)
    }
}

/// Declares functions of a [`Library`] as the C header has them. The expression behind `missing` is the result of one that does
/// not exist. A caller keeps what the function's manual page asks for; the binding crate sees to it that the declaration is the
/// header's.
#[macro_export]
macro_rules! functions {
    (in $library:path, missing: $missing:expr; $(
        $(#[$attribute:meta])* $visibility:vis fn $name:ident($($arg:ident: $of:ty),* $(,)?) $(-> $answer:ty)?;
    )*) => {$(
        $(#[$attribute])*
        #[inline]
        #[allow(clippy::too_many_arguments)] // As the header has them.
        $visibility unsafe fn $name($($arg: $of),*) $(-> $answer)? {
            const NAME: &::std::ffi::CStr =
                match ::std::ffi::CStr::from_bytes_with_nul(
                    concat!(stringify!($name), "\0").as_bytes(),
                ) {
                    Ok(name) => name,
                    // Invariant: a name in C has no zero within.
                    Err(_) => unreachable!(),
                };
            static SYMBOL: $crate::Symbol = $crate::Symbol::new(&$library, NAME);
            type Function = unsafe extern "C" fn($($of),*) $(-> $answer)?;
            match SYMBOL.address() {
                // SAFETY: the library's function of this name has this signature, by its header; the caller keeps what its
                // specification asks for.
                Some(at) => unsafe {
                    ::std::mem::transmute::<*mut ::std::ffi::c_void, Function>(at)($($arg),*)
                },
                None => $missing,
            }
        }
    )*};
}

#[cfg(test)]
mod tests {
    use super::*;

    static C: Library = Library::new(c"libc.so.6");

    #[test]
    fn a_library_that_is_not_there_is_named() {
        static NONE: Library = Library::new(c"libsurely-not-installed.so.9");
        static SYMBOL: Symbol = Symbol::new(&NONE, c"anything");
        assert!(SYMBOL.address().is_none());
        assert!(NONE.loaded().is_err_and(|why| why.contains("libsurely-not-installed")));
        assert_eq!(NONE.find(c"anything"), Err(NONE.loaded().unwrap_err()));
    }

    #[test]
    fn a_function_of_a_library_is_found_once() {
        static SYMBOL: Symbol = Symbol::new(&C, c"getpid");
        let at = SYMBOL.address().map(|at| at.addr());
        assert!(at.is_some());
        assert_eq!(SYMBOL.address.load(Ordering::Acquire).addr(), at.unwrap_or_default());
        assert_eq!(SYMBOL.address().map(|at| at.addr()), at);
    }

    #[test]
    fn a_function_that_is_missing_is_named() {
        let why = C.find(c"surely_not_a_function").unwrap_err();
        assert_eq!(why, "libc.so.6 has no function surely_not_a_function: another version");
        static ABSENT: Symbol = Symbol::new(&C, c"surely_not_a_function");
        assert!(ABSENT.address().is_none());
    }
}
