//! iWARP frames and RPC-over-RDMA headers.

use rdma_transport::iwarp;
use rdma_transport::iwarp::wire::mpa::Start;
use rdma_transport::iwarp::wire::terminate::Terminate;
use rdma_transport::limits;
use rdma_transport::rpcrdma::chunks::{Message, parse};
use rdma_transport::rpcrdma::wire::{Lists, PrivateData};

/// The first bytes of a Send.
pub fn rpcrdma_header(data: &[u8]) {
    if let Ok((_, Message::Call { inline, call, reads, .. })) = parse(data) {
        let total: usize = reads.iter().chain(&call).map(|c| c.len).sum();
        assert!(total <= 2 * limits::RPC_PAYLOAD_MAX, "{total} bytes to fetch");
        assert!(inline.is_none_or(|at| at <= data.len()));
        assert!(reads.is_sorted_by_key(|c| c.at), "chunks out of order");
    }
    if let Ok((rest, lists)) = Lists::parse(data) {
        let mut out = Vec::new();
        lists.emit(&mut out);
        assert_eq!(out.len(), lists.len(), "emit writes what it says");
        assert_eq!(out, data[..data.len() - rest.len()], "what was read is what is written");
    }
    if let Some(private) = PrivateData::parse(data) {
        assert_eq!(PrivateData::parse(&private.emit()), Some(private));
    }
}

/// Data of a socket: start frames, then FPDUs in pieces of any size. The first two bytes choose the pieces.
pub fn mpa_ddp_rdmap(data: &[u8]) {
    iwarp::fuzz(data);
    iwarp::fuzz_start(data);
    if let Some((head, _)) = data.split_first_chunk()
        && let Some(start) = Start::parse(head)
    {
        assert_eq!(Start::parse(&start.emit()), Some(start));
    }
    if let Some(terminate) = Terminate::parse(data) {
        assert_eq!(Terminate::parse(&terminate.emit()), Some(terminate));
    }
}
