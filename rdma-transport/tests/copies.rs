//! The copy budget: our code copies no payload on the RDMA path. Alone in its process, since the counter counts all of it.
#![allow(clippy::unwrap_used)]

mod common;

use std::future::poll_fn;
use std::sync::Arc;

use common::{Echo, Message, bulk_of, pool, run};
use iobuf::{Buf, Pool, PoolLimits};
use rdma_transport::caller::{BulkResult, Call, Caller, Event};
use rdma_transport::channel::{Info, Payload, Place, Transport};
use rdma_transport::loopback;
use rdma_transport::rpcrdma::{RdmaCaller, RdmaChannel};
use rdma_transport::serve::serve;

#[test]
fn a_mebibyte_each_way_is_not_copied() {
    run(async {
        let nowhere = "127.0.0.1:0".parse().unwrap();
        let info = || Arc::new(Info::new(nowhere, nowhere, Transport::Rdma("loopback"), pool(4)));
        let (mine, theirs) = (RdmaCaller::connect_params(), RdmaChannel::accept_params());
        let [client, server] = loopback::pair(&mine, &theirs);
        let recvs = Pool::new(PoolLimits { buffers_max: [256, 1, 1] });
        let channel = RdmaChannel::new(server, info(), recvs.clone(), &mine.private_data).unwrap();
        tokio::spawn(serve(Box::new(channel), Arc::new(Echo::default())));
        let mut caller = RdmaCaller::new(client, info(), recvs, &theirs.private_data).unwrap();
        for bulk in [1 << 20, 4000, 100] {
            let m = Message::new(1, 100, bulk, 8);
            let (head, at) = m.split();
            let pad = u8::try_from(bulk.wrapping_neg() % 4).unwrap();
            let data = vec![Buf::from(m.bulk.clone())];
            let payloads = vec![Payload { at, data, pages: None, pad, place: Place::Eligible }];
            let (reply_max, bulk) = (head.len(), BulkResult { max: bulk, locate: bulk_of });
            caller.call(Call { head, payloads, reply_max, bulk: Some(bulk) });
            let Event::Answer(..) = poll_fn(|cx| caller.poll_event(cx)).await.unwrap() else {
                panic!("an answer")
            };
        }
        assert_eq!(iobuf::copied_bytes(), 0);
    });
}
