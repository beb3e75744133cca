//! EXCHANGE_ID (RFC 8881 section 18.35).

use nfs_proto::nfs4::ops::{ExchangeId, Exchanged, StateProtect4, StateProtected4};
use rdma_transport::channel::Facts;

use crate::v4::client::Introduction;
use crate::v4::compound::Compound;
use crate::v4::machine::Bound;
use crate::v4::name::Name;
use crate::v4::principal::Principal;
use crate::v4::status::Status;

/// Longest description of a client's implementation shown, in characters.
const IMPLEMENTATION_CHARS_MAX: usize = 80;
const UPD_CONFIRMED_REC_A: u32 = 0x4000_0000;
const CONFIRMED_R: u32 = 0x8000_0000;
const USE_NON_PNFS: u32 = 0x0001_0000;
/// Flags that a client may set: moved referrals and migration, bound principals, the roles of parallel NFS, update.
const FLAGS_A: u32 = 0x4007_0103;
/// EXCHGID4_FLAG_SUPP_FENCE_OPS, of minor version 2 (RFC 7862 section 14.1).
const FENCE_OPS: u32 = 0x4;

pub(in crate::v4) async fn exchange_id(cx: &mut Compound<'_>) -> Result<(), Status> {
    let asked: ExchangeId<'_> = cx.args.value()?;
    let ExchangeId { verifier, ownerid: owner, flags, .. } = asked;
    for implementation in &asked.client_impl_id {
        let text = in_words(implementation.domain, implementation.name);
        cx.conn.info.facts.note(Facts::CLIENT, text);
    }
    let known = if cx.minor == 1 { FLAGS_A } else { FLAGS_A | FENCE_OPS };
    if flags & !known != 0 {
        return Err(Status::Inval);
    }
    let is_protected = cx.call.flavor.is_protected();
    let bound = match asked.state_protect {
        StateProtect4::None => None,
        // RFC 8881 section 18.35.3: the call itself must prove the credential, with integrity protection.
        StateProtect4::MachCred(_) if !is_protected => return Err(Status::Inval),
        StateProtect4::MachCred(ops) => Some(Bound::agree(&ops)),
        StateProtect4::Ssv(_) => return Err(Status::EncrAlgUnsupp),
    };
    let clients = &cx.nfs.clients;
    let update = flags & UPD_CONFIRMED_REC_A != 0;
    let (name, principal) = (Name::new(true, owner), Principal::of(cx.call));
    let (name, at) = (&name, cx.conn.info.peer.ip());
    let new = Introduction { name, verifier, principal, is_protected, bound, at };
    let (client, confirmed) = clients.exchange(new, update).await?;
    client.note_at(at);
    let order = client.create_order();
    cx.out.value(&Exchanged {
        clientid: client.id.0,
        sequenceid: order.next,
        flags: USE_NON_PNFS | if confirmed { CONFIRMED_R } else { 0 },
        // A known client gets the protection negotiated at first.
        state_protect: match &client.bound {
            Some(bound) => StateProtected4::MachCred(bound.on_wire()),
            None => StateProtected4::None,
        },
        // All addresses belong to one server with one state.
        so_minor_id: 0,
        so_major_id: &clients.recovery.scope,
        server_scope: &clients.recovery.scope,
        // The server does not disclose its implementation.
        server_impl_id: Vec::new(),
    });
    Ok(())
}

/// Formats `nfs_impl_id4` for display (RFC 8881 section 3.3.21). Linux sends the four parts of uname(1); the first two describe it.
/// The result is always one short line.
fn in_words(domain: &[u8], name: &[u8]) -> String {
    let text = |bytes: &[u8]| -> String {
        let text = String::from_utf8_lossy(bytes);
        let shown = text.chars().map(|c| if c.is_control() { ' ' } else { c });
        let shown: String = shown.take(IMPLEMENTATION_CHARS_MAX).collect();
        audit::PeerText::from(shown).into_string()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn implementation_is_shown_as_short_line() {
        let linux = b"Linux 6.12.117 #1 SMP PREEMPT_DYNAMIC Debian x86_64";
        assert_eq!(in_words(b"kernel.org", linux), "Linux 6.12.117");
        assert_eq!(in_words(b"example.org", b"client 7"), "client 7 (example.org)");
        assert_eq!(in_words(b"", b"a\nb"), "a b");
        assert_eq!(in_words(b"\xff", b""), "\u{fffd}");
        assert_eq!(in_words(b"", &[b'x'; 1000]).len(), IMPLEMENTATION_CHARS_MAX);
    }
}
