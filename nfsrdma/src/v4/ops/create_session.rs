//! CREATE_SESSION (RFC 8881 section 18.36): confirms a client and creates a session.

use std::sync::Arc;

use nfs_proto::nfs4::ops::{CreateSession, SessionCreated};
use nfs_proto::xdr::encode;
use state::ClientId;

use crate::v4::channel_attrs::ChannelAttrs;
use crate::v4::client::Client;
use crate::v4::compound::Compound;
use crate::v4::limits::SESSIONS_PER_CLIENT_MAX;
use crate::v4::principal::Principal;
use crate::v4::session::{Back, CallbackCred, Session};
use crate::v4::status::Status;

const FLAGS: u32 = 7;
const CONN_BACK_CHAN: u32 = 2;

pub(in crate::v4) async fn create_session(cx: &mut Compound<'_>) -> Result<(), Status> {
    let args: CreateSession<'_> = cx.args.value()?;
    let asked = Asked {
        sequence: args.sequence,
        flags: args.flags,
        fore: ChannelAttrs::of(&args.fore_chan_attrs),
        back: ChannelAttrs::of(&args.back_chan_attrs),
        program: args.cb_program,
        cred: CallbackCred::first_of(&args.sec_parms),
    };
    let sequence = asked.sequence;

    let client = cx.nfs.clients.find(ClientId(args.clientid)).ok_or(Status::StaleClientId)?;
    if client.name.as_bytes().first() != Some(&1) {
        return Err(Status::StaleClientId);
    }
    if client.is_bound_to_other(cx.call) {
        return Err(Status::WrongCred);
    }
    // Client ids are not secret. Only the principal of a confirmed client may create sessions for it: a session gives access to all
    // of the client's state.
    if client.is_confirmed() && client.principal != Principal::of(cx.call) {
        return Err(Status::ClidInUse);
    }
    if let Ok(wish) = asked.fore.agree_fore() {
        cx.nfs.clients.make_room_for_replies(&client, wish).await;
    }
    // RFC 8881 section 18.36.4, phase 2: the operation has a separate sequence and caches its last reply.
    let mut order = client.create_order();
    if sequence == order.next.wrapping_sub(1)
        && let Some(kept) = &order.last_reply
    {
        cx.out.head().extend_from_slice(kept);
        return Ok(());
    }
    if sequence != order.next && Some(sequence) != order.failed {
        return Err(Status::SeqMisordered);
    }
    let done = in_turn(cx, &client, asked);
    if let Err(Status::Delay | Status::StaleClientId) = done {
        // The client retries with the same number.
        return done.map(drop);
    }
    // A failed request also advances the sequence, as Linux' client assumes; clients that do not count it retry with the same
    // number.
    order.next = sequence.wrapping_add(1);
    order.failed = done.is_err().then_some(sequence);
    order.last_reply = done.as_ref().ok().cloned();
    cx.out.head().extend_from_slice(&done?);
    Ok(())
}

/// The arguments without the client id.
struct Asked {
    sequence: u32,
    flags: u32,
    fore: ChannelAttrs,
    back: ChannelAttrs,
    program: u32,
    cred: Option<CallbackCred>,
}

/// Executes a request that is next in sequence; returns the body of the reply.
fn in_turn(cx: &Compound<'_>, client: &Arc<Client>, asked: Asked) -> Result<Arc<[u8]>, Status> {
    let Asked { sequence, flags, fore, back, program, cred } = asked;
    if flags & !FLAGS != 0 {
        return Err(Status::Inval);
    }
    let fore = fore.agree_fore()?;
    let back_attrs = back.agree_back()?;
    cx.nfs.clients.confirm_by_session(client, Principal::of(cx.call))?;
    client.note_at(cx.conn.info.peer.ip());

    // RPCSEC_GSS callbacks would need a ticket for this server. A client that accepts no other flavor gets no backchannel.
    let wanted = flags & CONN_BACK_CHAN != 0 && cred.is_some();
    let count = usize::try_from(back_attrs.slots).unwrap_or(0);
    let mut back = Back {
        wanted,
        program,
        cred,
        conns: Vec::new(),
        slots: vec![(0, false); count],
        fault: false,
    };
    if wanted {
        back.bind(cx.conn);
    }
    let session = make(cx, client, fore, back_attrs, back)?;

    let body = encode(&SessionCreated {
        sessionid: session.id,
        sequence,
        // Sessions are stored in memory only, and RDMA needs no step-up: neither PERSIST nor CONN_RDMA is set.
        flags: if wanted { CONN_BACK_CHAN } else { 0 },
        fore_chan_attrs: session.fore.on_wire(),
        back_chan_attrs: session.back_attrs.on_wire(),
    });
    Ok(body.into())
}

fn make(
    cx: &Compound<'_>,
    client: &Arc<Client>,
    fore: ChannelAttrs,
    back_attrs: ChannelAttrs,
    back: Back,
) -> Result<Arc<Session>, Status> {
    let clients = &cx.nfs.clients;
    if client.lease.has_ended() {
        return Err(Status::StaleClientId);
    }
    // RFC 8881 section 2.10.5.1 leaves the format to the server; the random half makes session ids hard to guess.
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(|_| Status::ServerFault)?;
    id[..8].copy_from_slice(&client.id.0.to_be_bytes());
    let mut sessions = client.sessions();
    if sessions.len() >= SESSIONS_PER_CLIENT_MAX {
        // The client must end one of its sessions; a retry would not help.
        cx.limited("sessions-of-client", SESSIONS_PER_CLIENT_MAX);
        return Err(Status::NoSpc);
    }
    let room = clients.replies.agree(client.place.network(), fore);
    let (fore, pinned) = room.ok_or_else(|| {
        cx.limited("nfs-kept-replies", clients.replies.used());
        Status::NoSpc
    })?;
    if !client.lease.renew(clients.now()) {
        return Err(Status::StaleClientId);
    }
    let fore = (fore, pinned);
    let session = Arc::new(Session::new(id, client.clone(), cx.minor, fore, back_attrs, back));
    session.bind_fore(cx.conn.id);
    sessions.push(session.clone());
    clients.sessions.insert(id, session.clone());
    Ok(session)
}
