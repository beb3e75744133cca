//! Commands without parameters: LOGOFF, TREE_DISCONNECT, ECHO, CANCEL (MS-SMB2 sections 2.2.7, 2.2.8, 2.2.11, 2.2.12, 2.2.28 to
//! 2.2.30).

use wire::le_u16;

use super::Parsed;
use crate::parse::body;

/// The body of requests and responses: its size and two reserved bytes.
pub const BODY: [u8; 4] = [4, 0, 0, 0];

/// Checks such a body.
pub fn parse(message: &[u8]) -> Parsed<()> {
    body(message, 4, le_u16("Reserved")).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::smb2::Command;
    use crate::smb2::test_harness::{message, named};

    #[test]
    fn body_size_is_checked() {
        assert_eq!(parse(&message(Command::Echo, &BODY)), Ok(()));
        assert_eq!(named(parse(&message(Command::Echo, &[4, 0]))), Err("Reserved"));
        assert_eq!(named(parse(&message(Command::Echo, &[5, 0, 0, 0]))), Err("StructureSize"));
    }
}
