//! SMB Direct: its messages, and a channel that receives any sequence of them.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use iobuf::{Buf, Pool, PoolLimits};
use rdma_transport::channel::{Channel, Info, Transport};
use rdma_transport::limits;
use rdma_transport::loopback;
use rdma_transport::smbdirect::negotiate::{self, Ability};
use rdma_transport::smbdirect::wire::{DataTransfer, NegotiateRequest, NegotiateResponse};
use rdma_transport::smbdirect::{SmbDirectCaller, SmbDirectChannel};
use rdma_transport::verbs::{Work, WorkId};

/// How often both ends are polled: a message that has not arrived by then waits for something else.
const ROUNDS: usize = 8;
const RECVS: usize = 32;

/// Interprets the bytes as each message; then as a sequence of messages, each after a 16-bit length.
pub fn smb_direct(data: &[u8]) {
    let own = Ability::OURS;
    if let Ok(header) = DataTransfer::parse(data, own.max_receive, own.max_fragmented_receive) {
        let end = u64::from(header.offset) + u64::from(header.len);
        assert!(end <= data.len() as u64, "data beyond the message");
    }
    if let Ok((_, request)) = NegotiateRequest::parse(data) {
        assert_eq!(NegotiateRequest::parse(&request.emit()), Ok((&[][..], request)));
    }
    if let Ok((_, response)) = NegotiateResponse::parse(data) {
        assert_eq!(NegotiateResponse::parse(&response.emit()), Ok((&[][..], response)));
    }
    let _ = (negotiate::judge(own, data), negotiate::conclude(own, data));
    converse(data, false);
    converse(data, true);
}

/// With `greeted`, a valid negotiate request is sent first.
fn converse(data: &[u8], greeted: bool) {
    let pool = Pool::new(PoolLimits { buffers_max: [512, 8, 4] });
    let (ours, theirs) = (SmbDirectCaller::connect_params(), SmbDirectChannel::accept_params(&[]));
    let [mut peer, server] = loopback::pair(&ours, &theirs);
    let info = Info::new(
        ([192, 0, 2, 9], 700).into(),
        ([192, 0, 2, 1], 5445).into(),
        Transport::Rdma("loopback"),
        pool.clone(),
    );
    let Ok(mut channel) = SmbDirectChannel::new(server, Arc::new(info), pool.clone()) else {
        return;
    };
    for n in 0..RECVS {
        let Some(into) = pool.try_get(Ability::OURS.max_send) else { return };
        let _ = peer.post(vec![Work::Recv { id: WorkId(n as u64), into }]);
    }
    if greeted {
        let hello = negotiate::request(Ability::OURS).emit();
        send(peer.as_mut(), 1000, &hello);
    }
    let mut rest = data;
    let mut number = 2000;
    while let Some((len, more)) = rest.split_first_chunk() {
        let len = usize::from(u16::from_le_bytes(*len)).min(more.len());
        send(peer.as_mut(), number, &more[..len]);
        (rest, number) = (&more[len..], number + 1);
    }
    let mut cx = Context::from_waker(Waker::noop());
    let mut completions = Vec::new();
    for _ in 0..ROUNDS {
        let _ = peer.poll(&mut cx, &mut completions);
        match channel.poll_recv(&mut cx) {
            Poll::Ready(Ok(request)) => {
                let len = request.body.len();
                assert!(len <= limits::SMBD_FRAGMENTED_RECV_MAX, "a message of {len} bytes");
            }
            Poll::Ready(Err(_)) => return,
            Poll::Pending => {}
        }
    }
}

fn send(peer: &mut dyn rdma_transport::verbs::QueuePair, number: u64, message: &[u8]) {
    let from = vec![Buf::from(message.to_vec())];
    // A full queue refuses further messages; the queued ones suffice.
    let _ = peer.post(vec![Work::Send { id: WorkId(number), from, invalidate: None }]);
}

/// A negotiate request, a response, one whole message, one in three fragments of different sizes, and a message that only grants
/// credits.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let sized = |message: &[u8]| {
        let len = u16::try_from(message.len()).unwrap_or_default();
        [&len.to_le_bytes()[..], message].concat()
    };
    let data = |remaining: u32, len: u32| {
        let header = DataTransfer {
            credits_requested: 10,
            credits_granted: 1,
            flags: 1,
            remaining,
            offset: 24,
            len,
        };
        let body = vec![7; usize::try_from(len).unwrap_or_default()];
        [header.emit(), body].concat()
    };
    let hello = negotiate::request(Ability::OURS).emit();
    let grant = DataTransfer { credits_requested: 10, credits_granted: 5, ..Default::default() };
    vec![
        hello.clone(),
        NegotiateResponse::refusal(0xc000_00bb).emit(),
        [sized(&hello), sized(&data(0, 100))].concat(),
        [sized(&data(300, 500)), sized(&data(1, 299)), sized(&data(0, 1))].concat(),
        sized(&grant.emit()),
        data(0, 100),
    ]
}
