//! Output of commands. In `headgate files | head` the reader ends before the writer: this is not an error, and must not panic
//! as the standard macros do. Other output errors are reported, since the output may be a file that will be used.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};

use crate::journal;

/// Prints a line to standard output, as `println!`.
#[macro_export]
macro_rules! say {
    () => { $crate::say::print(format_args!("\n")) };
    ($($text:tt)*) => { $crate::say::print(format_args!("{}\n", format_args!($($text)*))) };
}

/// Prints to standard output, as `print!`.
#[macro_export]
macro_rules! say_as_is {
    ($($text:tt)*) => { $crate::say::print(format_args!($($text)*)) };
}

/// Prints a line to standard error like `eprintln!`, but ignores errors.
#[macro_export]
macro_rules! complain {
    ($($text:tt)*) => { $crate::say::print_error(format_args!("{}\n", format_args!($($text)*))) };
}

/// Used by [`complain!`].
pub fn print_error(text: Arguments<'_>) {
    let mut out = io::stderr().lock();
    if journal::is_standard_error() {
        let lines = journal::prefixed(&text.to_string());
        let _ = out.write_all(lines.as_bytes()).and_then(|()| out.flush());
        return;
    }
    let _ = out.write_fmt(text).and_then(|()| out.flush());
}

/// Used by [`say!`] and [`say_as_is!`].
pub fn print(text: Arguments<'_>) {
    let mut out = io::stdout().lock();
    if let Err(e) = out.write_fmt(text).and_then(|()| out.flush())
        && e.kind() != ErrorKind::BrokenPipe
    {
        complain!("error: standard output cannot be written: {e}");
        std::process::exit(1);
    }
}
