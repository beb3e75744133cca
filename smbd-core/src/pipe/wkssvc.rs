//! The workstation service (MS-WKST), which Explorer queries before it shows a server.

use smb_proto::ndr::{Later, Reader, Writer};

use super::Host;
use super::rpc::{Fault, Read, Syntax};
use super::srvsvc::{PLATFORM, VERSION};

/// 6bffd098-a112-3610-9833-46c3f87e345a, version 1.0.
pub(crate) const SYNTAX: Syntax = Syntax {
    uuid: [
        0x98, 0xd0, 0xff, 0x6b, 0x12, 0xa1, 0x10, 0x36, 0x98, 0x33, 0x46, 0xc3, 0xf8, 0x7e, 0x34,
        0x5a,
    ],
    version: 1,
};

/// ERROR_INVALID_LEVEL
const INVALID_LEVEL: u32 = 124;

/// Runs one operation.
pub(crate) fn call(host: &dyn Host, op: u16, stub: &[u8]) -> Result<Vec<u8>, Fault> {
    match op {
        0 => get_info(host, &mut Reader::new(stub)),
        // Changes of the workstation, and the list of its users: not available to clients.
        1 | 2 => Err(Fault::ACCESS_DENIED),
        _ => Err(Fault::NO_OPERATION),
    }
}

/// NetrWkstaGetInfo (section 3.2.4.1).
fn get_info(host: &dyn Host, r: &mut Reader<'_>) -> Read<Vec<u8>> {
    r.unique_text()?;
    let level = r.u32()?;
    let mut w = Writer::default();
    w.u32(level);
    if !(100..=102).contains(&level) {
        w.null();
        w.u32(INVALID_LEVEL);
        return Ok(w.finish());
    }
    w.pointer();
    w.u32(PLATFORM);
    w.pointer();
    w.pointer();
    w.u32(VERSION.0);
    w.u32(VERSION.1);
    let mut later = vec![Later::Text(host.computer()), Later::Text("WORKGROUP".into())];
    if level > 100 {
        w.pointer();
        later.push(Later::Text(String::new()));
    }
    if level > 101 {
        w.u32(host.sessions());
    }
    w.later(later);
    w.u32(0);
    Ok(w.finish())
}
