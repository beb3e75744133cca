//! Loads C libraries at their first use, so that the program starts without them.
//!
//! *Operation.* A binding crate names its [`Library`] by soname and declares its functions with [`functions!`], with the names and
//! types of the C header. Each declaration becomes an `unsafe fn` that looks up the C function at the first call and then calls it
//! directly. If the library or the function is missing, the wrapper returns the `missing` expression, which must have the
//! function's result type:
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
//! If results have different types, `missing` calls a trait function of the binding crate. A crate that needs either all functions
//! or no function calls [`Library::find`] once for each.
//!
//! *Memory.* A library is opened once and stays open until the process exits, because its functions, threads and destructors may be
//! in use anywhere.
//!
//! *Errors.* [`Library::loaded`] returns the loader's message if a library is unavailable. The result does not change until the
//! process exits, even if the library is installed meanwhile.
//!
//! *Threads.* All functions may be called on any thread. Concurrent look-ups return the same result.

#![allow(missing_docs, reason = "comments that only repeat a name are left out")]
#![allow(unsafe_code)]

use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A shared library.
pub struct Library {
    soname: &'static CStr,
    /// The loader's handle as an address, or the loader's message.
    handle: OnceLock<Result<usize, String>>,
}

impl Library {
    /// Names a library by its soname, such as `libibverbs.so.1`; the number is the interface version of the declarations.
    pub const fn new(soname: &'static CStr) -> Self {
        Self { soname, handle: OnceLock::new() }
    }

    fn open(&self) -> Result<*mut c_void, &str> {
        let found = self.handle.get_or_init(|| {
            // SAFETY: the name is a C string; loading runs the library's constructors, as intended.
            let handle = unsafe { libc::dlopen(self.soname.as_ptr(), libc::RTLD_NOW) };
            if !handle.is_null() {
                return Ok(handle.expose_provenance());
            }
            // SAFETY: after a failure `dlerror` returns null or a C string that lives until this thread's next such call.
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

    /// Loads the library and reports whether it is available.
    ///
    /// # Errors
    ///
    /// The loader's message.
    pub fn loaded(&self) -> Result<(), String> {
        self.open().map(drop).map_err(str::to_owned)
    }

    /// Returns the address of a function, which is never null and stays valid until the process exits.
    ///
    /// # Errors
    ///
    /// The loader's message, or the name of the function that this library version lacks.
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

/// One function of a library, used by [`functions!`].
pub struct Symbol {
    library: &'static Library,
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Symbol {
    /// Names a function as in the header.
    pub const fn new(library: &'static Library, name: &'static CStr) -> Self {
        Self { library, name, address: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Returns its address; `None` without the library or the function.
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

/// Declares functions of a [`Library`] as in the C header. The expression after `missing` is the result of a missing function.
/// Callers must follow the function's manual page; the binding crate must ensure that the declaration matches the header.
#[macro_export]
macro_rules! functions {
    (in $library:path, missing: $missing:expr; $(
        $(#[$attribute:meta])* $visibility:vis fn $name:ident($($arg:ident: $of:ty),* $(,)?) $(-> $answer:ty)?;
    )*) => {$(
        $(#[$attribute])*
        #[inline]
        #[allow(clippy::too_many_arguments)] // Signatures come from the header.
        $visibility unsafe fn $name($($arg: $of),*) $(-> $answer)? {
            const NAME: &::std::ffi::CStr =
                match ::std::ffi::CStr::from_bytes_with_nul(
                    concat!(stringify!($name), "\0").as_bytes(),
                ) {
                    Ok(name) => name,
                    // Invariant: a C name contains no zero.
                    Err(_) => unreachable!(),
                };
            static SYMBOL: $crate::Symbol = $crate::Symbol::new(&$library, NAME);
            type Function = unsafe extern "C" fn($($of),*) $(-> $answer)?;
            match SYMBOL.address() {
                // SAFETY: the library's function of this name has this signature according to its header; the caller follows its
                // specification.
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
    fn missing_library_is_named() {
        static NONE: Library = Library::new(c"libsurely-not-installed.so.9");
        static SYMBOL: Symbol = Symbol::new(&NONE, c"anything");
        assert!(SYMBOL.address().is_none());
        assert!(NONE.loaded().is_err_and(|why| why.contains("libsurely-not-installed")));
        assert_eq!(NONE.find(c"anything"), Err(NONE.loaded().unwrap_err()));
    }

    #[test]
    fn function_is_looked_up_once() {
        static SYMBOL: Symbol = Symbol::new(&C, c"getpid");
        let at = SYMBOL.address().map(|at| at.addr());
        assert!(at.is_some());
        assert_eq!(SYMBOL.address.load(Ordering::Acquire).addr(), at.unwrap_or_default());
        assert_eq!(SYMBOL.address().map(|at| at.addr()), at);
    }

    #[test]
    fn missing_function_is_named() {
        let why = C.find(c"surely_not_a_function").unwrap_err();
        assert_eq!(why, "libc.so.6 has no function surely_not_a_function: another version");
        static ABSENT: Symbol = Symbol::new(&C, c"surely_not_a_function");
        assert!(ABSENT.address().is_none());
    }
}
