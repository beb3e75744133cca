//! RPC calls and the arguments of NFS version 3.

use iobuf::Buf;
use nfs_proto::nfs3::{Args, Write3args, procedure};
use nfs_proto::rpcsec_gss::RPCSEC_GSS;
use nfsrdma::locate::NfsLocate;
use nfsrdma::rpc::{decode_call, decode_cred, program};
use rdma_transport::channel::{PayloadLocator, ReadChunkData};
use rdma_transport::xdr::Reader;

/// A whole message of a byte stream: its head, and where the transport locates bulk data.
pub fn rpc(data: &[u8]) {
    let located = NfsLocate.bulk(data, data.len());
    let body = Buf::from(data.to_vec());
    let mut r = Reader::new(&body, &[]);
    let Ok(head) = decode_call(&mut r) else { return };
    let _ = decode_cred(head.cred);
    if head.cred.flavor == RPCSEC_GSS {
        // Only the server unprotects arguments: `gss_calls` covers that.
        assert!(located.is_none_or(|(at, len)| at + len <= data.len()), "beyond the message");
        return;
    }
    if (head.program, head.version, head.procedure) != (program::NFS, 3, procedure::WRITE) {
        return;
    }
    // The server must find the data of a WRITE where the transport located it.
    let Ok(args) = r.value::<Write3args<'_>>() else { return };
    let Ok(pieces) = r.data(args.data) else { return };
    let decoded: Vec<u8> = pieces.iter().flat_map(|p| p.to_vec()).collect();
    match located {
        Some((at, len)) => assert_eq!(decoded, data[at..at + len]),
        None => assert!(decoded.is_empty(), "{} bytes of data were not located", decoded.len()),
    }
}

/// Arguments of a version 3 procedure (the first byte), with the bulk data inline and separate.
pub fn nfs3_args(data: &[u8]) {
    let Some((number, args)) = data.split_first() else { return };
    let body = Buf::from(args.to_vec());
    let number = u32::from(*number % 24);
    let decode = |r: &mut Reader<'_>| {
        let bulk = match r.parse(|i| Args::parse(number, i)) {
            Ok(Some(Args::Write(a))) => a.data,
            Ok(Some(Args::Symlink(a))) => a.symlink_data,
            _ => return Vec::new(),
        };
        r.data(bulk).unwrap_or_default()
    };
    let inline = decode(&mut Reader::new(&body, &[]));
    assert!(inline.iter().map(Buf::len).sum::<usize>() <= body.len(), "more data than came");
    // The same bytes with any piece of them moved out: the reader must survive a transport that locates wrongly.
    let at = args.first().map_or(0, |n| usize::from(*n)).min(args.len());
    let (head, bulk) = args.split_at(at);
    let body = Buf::from(head.to_vec());
    let read_chunks = [ReadChunkData { at, data: vec![Buf::from(bulk.to_vec())] }];
    decode(&mut Reader::new(&body, &read_chunks));
}
