//! Parses messages of a server and checks its rules. No I/O.

use wire::decode;

use super::check::Violation;
use super::wire::{Lists, Prefix, RDMA_ERROR, RDMA_MSG, RDMA_NOMSG, RdmaError, VERSION};
use crate::calls::xid_and_is_reply;
use crate::channel::RemoteSeg;

/// A message from the server, split from its header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromServer {
    /// A reply. Its RPC message is after the header at this offset, or in the Reply chunk.
    Reply(Option<usize>, Lists),
    /// A reverse-direction call at this offset (RFC 8167).
    Callback(usize),
    /// The server refused the call, or could not send its reply.
    Failed(RdmaError),
}

/// Parses one message of a server.
pub fn parse(message: &[u8]) -> Result<(Prefix, FromServer), Violation> {
    let (rest, prefix) =
        decode(message, Prefix::parse).map_err(|why| Violation::HeaderShort(why.at(message)))?;
    if prefix.proc == RDMA_ERROR {
        // An error has the version of the message that it answers.
        let (_, error) = decode(rest, RdmaError::parse)
            .map_err(|why| Violation::ErrorMalformed(why.at(message)))?;
        return Ok((prefix, FromServer::Failed(error)));
    }
    if prefix.vers != VERSION {
        return Err(Violation::Version(prefix.vers));
    }
    if prefix.proc != RDMA_MSG && prefix.proc != RDMA_NOMSG {
        return Err(Violation::Procedure(prefix.proc));
    }
    let (payload, lists) =
        decode(rest, Lists::parse).map_err(|why| Violation::of_lists(why, message))?;
    if prefix.proc == RDMA_NOMSG {
        let why = if payload.is_empty() {
            Violation::ReplyChunkMissing
        } else {
            Violation::MessageAfterNoMsg
        };
        let there = payload.is_empty() && lists.reply.is_some();
        return if there { Ok((prefix, FromServer::Reply(None, lists))) } else { Err(why) };
    }
    let (xid, is_reply) = xid_and_is_reply(payload).ok_or(Violation::MessageShort)?;
    if xid != prefix.xid {
        return Err(Violation::XidMismatch);
    }
    let at = message.len() - payload.len();
    match (is_reply, lists.is_empty()) {
        (true, _) => Ok((prefix, FromServer::Reply(Some(at), lists))),
        (false, true) => Ok((prefix, FromServer::Callback(at))),
        (false, false) => Err(Violation::ReverseChunks),
    }
}

/// Checks that a reply returns the lists of its call with the used lengths (RFC 8166 section 3.4.6.2), or omits them.
pub fn check(offered: &Lists, returned: &Lists) -> Result<(), Violation> {
    let same = |o: &Vec<RemoteSeg>, r: &Vec<RemoteSeg>| {
        let shrunk = |(o, r): (&RemoteSeg, &RemoteSeg)| {
            o.handle == r.handle && o.offset == r.offset && r.len <= o.len
        };
        o.len() == r.len() && o.iter().zip(r).all(shrunk)
    };
    let writes = returned.writes.is_empty()
        || offered.writes.len() == returned.writes.len()
            && offered.writes.iter().zip(&returned.writes).all(|(o, r)| same(o, r));
    let reply = match (&offered.reply, &returned.reply) {
        (_, None) => true,
        (Some(o), Some(r)) => same(o, r),
        (None, Some(_)) => false,
    };
    if returned.reads.is_empty() && writes && reply { Ok(()) } else { Err(Violation::ListsChanged) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpcrdma::wire::ReadSeg;

    fn seg(handle: u32, len: u32, offset: u64) -> RemoteSeg {
        RemoteSeg { handle, len, offset }
    }

    fn message(proc: u32, lists: &Lists, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        Prefix { xid: 5, vers: 1, credits: 9, proc }.emit(&mut out);
        lists.emit(&mut out);
        out.extend_from_slice(payload);
        out
    }

    const REPLY: [u8; 8] = [0, 0, 0, 5, 0, 0, 0, 1];
    const CALL: [u8; 8] = [0, 0, 0, 5, 0, 0, 0, 0];

    #[test]
    fn replies_and_callbacks_are_distinguished() {
        let none = Lists::default();
        let parsed = |m: &[u8]| parse(m).map(|(_, f)| f);
        let reply = message(RDMA_MSG, &none, &REPLY);
        assert_eq!(parsed(&reply), Ok(FromServer::Reply(Some(28), none.clone())));
        assert_eq!(parsed(&message(RDMA_MSG, &none, &CALL)), Ok(FromServer::Callback(28)));
        let long = Lists { reply: Some(vec![seg(1, 2, 3)]), ..Lists::default() };
        assert_eq!(
            parsed(&message(RDMA_NOMSG, &long, &[])),
            Ok(FromServer::Reply(None, long.clone()))
        );
        assert_eq!(parsed(&message(RDMA_NOMSG, &none, &[])), Err(Violation::ReplyChunkMissing));
        assert_eq!(parsed(&message(RDMA_NOMSG, &long, &REPLY)), Err(Violation::MessageAfterNoMsg));
        assert_eq!(parsed(&message(RDMA_MSG, &long, &CALL)), Err(Violation::ReverseChunks));
        assert_eq!(parsed(&message(3, &none, &[])), Err(Violation::Procedure(3)));
        assert_eq!(parsed(&message(RDMA_MSG, &none, &[0; 8])), Err(Violation::XidMismatch));
        assert_eq!(parsed(&message(RDMA_MSG, &none, &[0; 7])), Err(Violation::MessageShort));
        let short = parsed(&reply[..15]).unwrap_err();
        assert_eq!(
            (short.name(), &*short.to_string()),
            ("rpcrdma.header.short", "rdma_proc truncated at 12")
        );
        let cut = parsed(&message(RDMA_NOMSG, &long, &[])[..40]).unwrap_err();
        assert_eq!(
            (cut.name(), &*cut.to_string()),
            ("rpcrdma.list.truncated", "offset truncated at 40")
        );
        let error = RdmaError::Chunk.answer(Prefix { xid: 5, vers: 1, credits: 9, proc: 0 }, 9);
        assert_eq!(parsed(&error), Ok(FromServer::Failed(RdmaError::Chunk)));
    }

    #[test]
    fn server_may_only_shrink_chunks() {
        let offered = Lists {
            reads: Vec::new(),
            writes: vec![vec![seg(1, 10, 0), seg(2, 10, 0)]],
            reply: Some(vec![seg(3, 10, 0)]),
        };
        let ok = |change: &dyn Fn(&mut Lists)| {
            let mut returned = offered.clone();
            change(&mut returned);
            check(&offered, &returned).is_ok()
        };
        assert!(ok(&|_| {}));
        assert!(ok(&|l| l.writes[0][1].len = 0));
        assert!(ok(&|l| l.reply = None));
        assert!(ok(&|l| l.writes.clear()));
        assert!(!ok(&|l| l.writes[0][1].len = 11));
        assert!(!ok(&|l| l.writes[0][1].handle = 7));
        assert!(!ok(&|l| l.writes[0][1].offset = 7));
        assert!(!ok(&|l| l.writes[0].truncate(1)));
        assert!(!ok(&|l| l.writes.push(vec![])));
        assert!(!ok(&|l| l.reply = Some(vec![])));
        assert!(!ok(&|l| l.reads.push(ReadSeg { position: 0, target: seg(1, 1, 1) })));
        let bare = Lists::default();
        assert!(check(&bare, &Lists { reply: Some(vec![]), ..Lists::default() }).is_err());
    }
}
