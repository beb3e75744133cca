//! Helpers for tests of the formats.

use super::{Command, Flags, Header, Parsed};

/// Builds a message with this command and body.
pub(crate) fn message(command: Command, body: &[u8]) -> Vec<u8> {
    let header = Header {
        credit_charge: 1,
        status: 0,
        command: command as u16,
        credits: 1,
        flags: Flags::default(),
        next: 0,
        message_id: 1,
        tree_or_async: Header::of_tree(1),
        session_id: 1,
        signature: [0; 16],
    };
    let mut out = header.emit().to_vec();
    out.extend(body);
    out
}

/// Decodes hexadecimal digits; skips all other characters.
pub(crate) fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks(2).map(|d| u8::try_from(d[0] << 4 | d[1]).unwrap()).collect()
}

/// Returns the parsed value, or the name of the rejected field.
pub(crate) fn named<T>(read: Parsed<T>) -> Result<T, &'static str> {
    read.map_err(|fault| fault.field)
}
