//! What the tests of the formats share.

use super::{Command, Flags, Header, Parsed};

/// A message of this command with this body.
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

/// Bytes from hexadecimal digits; everything else is passed over.
pub(crate) fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks(2).map(|d| u8::try_from(d[0] << 4 | d[1]).unwrap()).collect()
}

/// What was read, or the name of the field that was rejected.
pub(crate) fn named<T>(read: Parsed<T>) -> Result<T, &'static str> {
    read.map_err(|fault| fault.field)
}
