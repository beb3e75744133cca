//! RPC calls and the arguments of NFS version 3.

use iobuf::Buf;
use nfsrdma::locate::NfsLocate;
use nfsrdma::rpc::{decode_call, decode_cred, program};
use nfsrdma::v3::procedure;
use nfsrdma::v3::{Args, decode_args};
use nfsrdma::xdr::Reader;
use rdma_transport::channel::{Locate, Pulled};

/// A whole message of a byte stream: its head, and what the transport believes about its bulk data.
pub fn rpc(data: &[u8]) {
    let located = NfsLocate.bulk(data, data.len());
    let body = Buf::from(data.to_vec());
    let mut r = Reader::new(&body, &[]);
    let Ok(head) = decode_call(&mut r) else { return };
    let _ = decode_cred(head.cred);
    if (head.program, head.version, head.procedure) != (program::NFS, 3, procedure::WRITE) {
        return;
    }
    // Where the transport finds the data of a WRITE, the decoder must find the same bytes.
    let Ok(Some(Args::Write { data: pieces, .. })) = decode_args(head.procedure, &mut r) else {
        return;
    };
    let decoded: Vec<u8> = pieces.iter().flat_map(|p| p.to_vec()).collect();
    match located {
        Some((at, len)) => assert_eq!(decoded, data[at..at + len]),
        None => assert!(decoded.is_empty(), "{} bytes of data were not located", decoded.len()),
    }
}

/// Arguments of a version 3 procedure (the first byte), with the bulk data in line and beside the message.
pub fn nfs3_args(data: &[u8]) {
    let Some((number, args)) = data.split_first() else { return };
    let body = Buf::from(args.to_vec());
    let number = u32::from(*number % 24);
    let inline = decode_args(number, &mut Reader::new(&body, &[]));
    if let Ok(Some(Args::Write { data, .. })) = inline {
        let len: usize = data.iter().map(Buf::len).sum();
        assert!(len <= body.len(), "more data than came");
    }
    // The same bytes with a piece of them moved out, anywhere: a transport that lies must not break the reader.
    let at = args.first().map_or(0, |n| usize::from(*n)).min(args.len());
    let (head, bulk) = args.split_at(at);
    let body = Buf::from(head.to_vec());
    let pulled = [Pulled { at, data: vec![Buf::from(bulk.to_vec())] }];
    let _ = decode_args(number, &mut Reader::new(&body, &pulled));
}
