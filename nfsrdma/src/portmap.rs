//! The port mapper, version 2 (RFC 1833 section 3): tells clients that ask on its port where NFS and MOUNT are.

use crate::context::Outcome;
use crate::rpc::program;
use crate::xdr::{Reader, Writer, XdrResult};

/// Versions that are served.
pub const VERSIONS: (u32, u32) = (2, 2);

const NULL: u32 = 0;
const GETPORT: u32 = 3;
const DUMP: u32 = 4;
const TCP: u32 = 6;

/// What is registered: program, version. All are on the one TCP port.
const REGISTERED: [(u32, u32); 4] =
    [(program::NFS, 3), (program::NFS, 4), (program::MOUNT, 1), (program::MOUNT, 3)];

/// Does one call. `port` is where NFS and MOUNT are served over TCP; 0 when they are not.
pub fn serve(
    port: u16,
    number: u32,
    args: &mut Reader<'_>,
    out: &mut Writer,
) -> XdrResult<Outcome> {
    match number {
        NULL => {}
        GETPORT => {
            let (program, version, protocol) = (args.u32()?, args.u32()?, args.u32()?);
            let known = protocol == TCP && REGISTERED.contains(&(program, version));
            out.u32(if known { u32::from(port) } else { 0 });
        }
        DUMP => {
            for (program, version) in REGISTERED.iter().filter(|_| port != 0) {
                out.bool(true);
                out.u32(*program);
                out.u32(*version);
                out.u32(TCP);
                out.u32(u32::from(port));
            }
            out.bool(false);
        }
        _ => return Ok(Outcome::NoProcedure),
    }
    Ok(Outcome::Repeatable)
}
