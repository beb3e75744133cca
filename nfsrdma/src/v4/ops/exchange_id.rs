//! EXCHANGE_ID (RFC 8881 section 18.35).

use rdma_transport::channel::Facts;

use crate::v4::attrs::Bitmap;
use crate::v4::client::{Name, Principal};
use crate::v4::compound::Compound;
use crate::v4::limits::NETADDR_MAX;
use crate::v4::status::Status;
use crate::v4::wire::OPAQUE_LIMIT;
use crate::xdr::{Reader, XdrError};

/// Characters of what a client says of itself that are shown.
const IMPLEMENTATION_CHARS_MAX: usize = 80;
const UPD_CONFIRMED_REC_A: u32 = 0x4000_0000;
const CONFIRMED_R: u32 = 0x8000_0000;
const USE_NON_PNFS: u32 = 0x0001_0000;
/// What a client may say: moved referrals and migration, bound principals, the roles of parallel NFS, update.
const FLAGS_A: u32 = 0x4007_0103;
/// EXCHGID4_FLAG_SUPP_FENCE_OPS, of minor version 2 (RFC 7862 section 14.1).
const FENCE_OPS: u32 = 0x4;

/// `state_protect_how4`.
const SP4_NONE: u32 = 0;
const SP4_MACH_CRED: u32 = 1;
const SP4_SSV: u32 = 2;

pub(in crate::v4) async fn exchange_id(cx: &mut Compound<'_>) -> Result<(), Status> {
    let verifier = cx.args.fixed()?;
    let owner = cx.args.opaque(OPAQUE_LIMIT)?;
    let flags = cx.args.u32()?;
    let protect = decode_protection(&mut cx.args)?;
    for _ in 0..cx.args.count(1)? {
        let (domain, name) = (cx.args.opaque(OPAQUE_LIMIT)?, cx.args.opaque(OPAQUE_LIMIT)?);
        let _date = (cx.args.i64()?, cx.args.u32()?);
        cx.conn.info.facts.note(Facts::CLIENT, implementation(domain, name));
    }
    let known = if cx.minor == 1 { FLAGS_A } else { FLAGS_A | FENCE_OPS };
    if flags & !known != 0 {
        return Err(Status::Inval);
    }
    match protect {
        SP4_NONE => {}
        // Machine credentials need RPCSEC_GSS with integrity, which no caller here can have.
        SP4_MACH_CRED => return Err(Status::Inval),
        _ => return Err(Status::EncrAlgUnsupp),
    }
    let clients = &cx.nfs.clients;
    let update = flags & UPD_CONFIRMED_REC_A != 0;
    let (name, principal) = (Name::new(true, owner), Principal::of(cx.call));
    let at = cx.conn.info.peer.ip();
    let (client, confirmed) = clients.exchange(&name, verifier, principal, update, at).await?;
    client.note_at(at);
    cx.out.u64(client.id.0);
    cx.out.u32(client.create_order().next);
    cx.out.u32(USE_NON_PNFS | if confirmed { CONFIRMED_R } else { 0 });
    cx.out.u32(SP4_NONE);
    // so_minor_id, so_major_id, server_scope: one server with one state, whatever the address.
    cx.out.u64(0);
    cx.out.opaque(&clients.recovery.scope);
    cx.out.opaque(&clients.recovery.scope);
    // server_impl_id: none of the client's business.
    cx.out.count(0);
    Ok(())
}

/// `nfs_impl_id4` in words (RFC 8881 section 3.3.21). Linux gives the four parts of uname(1), of which the first two say what it
/// is. Whatever it is, it is one short line.
fn implementation(domain: &[u8], name: &[u8]) -> String {
    let text = |bytes: &[u8]| -> String {
        let text = String::from_utf8_lossy(bytes);
        let shown = text.chars().map(|c| if c.is_control() { ' ' } else { c });
        shown.take(IMPLEMENTATION_CHARS_MAX).collect()
    };
    let (domain, name) = (text(domain), text(name));
    if domain == "kernel.org" {
        return name.split(' ').take(2).collect::<Vec<_>>().join(" ");
    }
    match (domain.trim(), name.trim()) {
        ("", name) => name.to_owned(),
        (domain, "") => domain.to_owned(),
        (domain, name) => format!("{name} ({domain})"),
    }
}

fn decode_protection(r: &mut Reader<'_>) -> Result<u32, XdrError> {
    let how = r.u32()?;
    match how {
        SP4_NONE => {}
        SP4_MACH_CRED => {
            Bitmap::decode(r)?;
            Bitmap::decode(r)?;
        }
        SP4_SSV => {
            Bitmap::decode(r)?;
            Bitmap::decode(r)?;
            for _ in 0..2 {
                for _ in 0..r.count(16)? {
                    r.opaque(NETADDR_MAX)?;
                }
            }
            r.u32()?;
            r.u32()?;
        }
        _ => return Err(XdrError::BadValue),
    }
    Ok(how)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_shown_as_one_short_line() {
        let linux = b"Linux 6.12.117 #1 SMP PREEMPT_DYNAMIC Debian x86_64";
        assert_eq!(implementation(b"kernel.org", linux), "Linux 6.12.117");
        assert_eq!(implementation(b"example.org", b"client 7"), "client 7 (example.org)");
        assert_eq!(implementation(b"", b"a\nb"), "a b");
        assert_eq!(implementation(b"\xff", b""), "\u{fffd}");
        assert_eq!(implementation(b"", &[b'x'; 1000]).len(), IMPLEMENTATION_CHARS_MAX);
    }
}
