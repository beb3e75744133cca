//! EXCHANGE_ID (RFC 8881 section 18.35).

use crate::v4::attrs::Bitmap;
use crate::v4::client::{Name, Principal};
use crate::v4::compound::Compound;
use crate::v4::limits::NETADDR_MAX;
use crate::v4::status::Status;
use crate::v4::wire::OPAQUE_LIMIT;
use crate::xdr::{Reader, XdrError};

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
        let shown = |b| String::from_utf8_lossy(b).into_owned();
        tracing::debug!(domain = shown(domain), name = shown(name), "client implementation");
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
    let (client, confirmed) =
        clients.exchange(&Name::new(true, owner), verifier, Principal::of(cx.call), update)?;
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
