//! BIND_CONN_TO_SESSION (RFC 8881 section 18.34).

use crate::v4::compound::Compound;
use crate::v4::status::Status;
use nfs_proto::nfs4::ops::{BindConnToSession, ChannelDir4};

/// `channel_dir_from_server4`.
const FORE: u32 = 1;
const BACK: u32 = 2;
const BOTH: u32 = 3;

pub(in crate::v4) async fn bind_conn_to_session(cx: &mut Compound<'_>) -> Result<(), Status> {
    let BindConnToSession { sessid: id, dir: direction, .. } = cx.args.value()?;
    let clients = &cx.nfs.clients;
    let session = clients.sessions.get(&id).map(|s| s.clone()).ok_or(Status::BadSession)?;
    cx.may_manage(&session.client)?;
    let direction = ChannelDir4::from_u32(direction).ok_or(Status::Inval)?;
    // RFC 8881 section 18.34.3: a connection is never removed from a channel.
    if direction == ChannelDir4::Fore && session.back().has(cx.conn.id) {
        return Err(Status::Inval);
    }
    if session.is_dead() || !session.client.lease.renew(clients.now()) {
        return Err(Status::BadSession);
    }
    session.client.note_at(cx.conn.info.peer.ip());
    let bound = match direction {
        ChannelDir4::Fore => {
            session.bind_fore(cx.conn.id);
            FORE
        }
        ChannelDir4::Back | ChannelDir4::BackOrBoth | ChannelDir4::ForeOrBoth => {
            let mut back = session.back();
            back.wanted = true;
            back.bind(cx.conn);
            if direction == ChannelDir4::Back {
                BACK
            } else {
                session.bind_fore(cx.conn.id);
                BOTH
            }
        }
    };
    // A connection never changes its transport, so there is no step-up to RDMA.
    let use_conn_in_rdma_mode = false;
    cx.out.value(&BindConnToSession { sessid: id, dir: bound, use_conn_in_rdma_mode });
    Ok(())
}
