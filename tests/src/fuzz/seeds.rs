//! Initial inputs: one valid message of each kind, written word by word from the specifications.

use smb_compress::Algorithm;

use super::{
    compress, found, gss, gss_stranger, nfs_proto, pac, side, smb_direct, smb_pipe, smb_seeds,
    smb_session, spnego, tls, wire,
};
use crate::raw::{self, MPA_REQUEST, fpdu, tagged, untagged, words};

/// The seeds of a target, by its name.
pub fn of(target: &str) -> Vec<Vec<u8>> {
    match target {
        "mpa_ddp_rdmap" => frames(),
        "rpcrdma_header" => rpcrdma_headers(),
        "rpc" => calls(),
        "nfs3_args" => nfs3(),
        "nfs40_args" => nfs4(0),
        "nfs41_args" => nfs4(1),
        "nfs42_args" => nfs4(2),
        "gss_tokens" => gss::seeds(),
        "gss_calls" => gss::call_seeds(),
        "gss_stranger" => gss_stranger::seeds(),
        "discovery_dns" => found::dns_seeds(),
        "discovery_wsd" => found::wsd_seeds(),
        "pac_logon_info" => pac::seeds(),
        "side_calls" => side::seeds(),
        "nfs3_values" => nfs_proto::nfs3_seeds(&nfs3()),
        "nfs4_values" => nfs_proto::nfs4_seeds(),
        "side_values" => nfs_proto::side_seeds(),
        "smb2_message" => smb_seeds::messages(),
        "smb2_values" => smb_seeds::values(),
        "smb_direct" => smb_direct::seeds(),
        "smb_pipe" => smb_pipe::seeds(),
        "compress_lznt1" => compress::seeds(Algorithm::Lznt1),
        "compress_lz77" => compress::seeds(Algorithm::Lz77),
        "compress_lz77_huffman" => compress::seeds(Algorithm::Lz77Huffman),
        "compress_lz4" => compress::seeds(Algorithm::Lz4),
        "smb2_connection" => smb_session::connection_seeds(),
        "smb2_session" => smb_session::session_seeds(),
        "spnego_tickets" => spnego::seeds(),
        "tls_handshake" => tls::seeds(),
        "wire_leaves" => wire::seeds(),
        _ => vec![vec![]],
    }
}

/// One frame of each kind, in pieces of different sizes, with and without CRC; and the start frames.
fn frames() -> Vec<Vec<u8>> {
    let segments = [
        untagged(raw::SEND, 0, 1, 0, b"a message"),
        untagged(0x0143, 0, 1, 0, b"a first segment"),
        [&0x4144_u16.to_be_bytes()[..], &words(&[1, 0, 1, 0]), b"and invalidate"].concat(),
        untagged(raw::READ_REQUEST, 1, 1, 0, &words(&[9, 0, 0, 400, 2, 0, 0])),
        tagged(raw::WRITE, 1, 0, &[7; 500]),
        tagged(raw::READ_RESPONSE, 3, 0, &[7; 1200]),
        untagged(0x4147, 2, 1, 0, &words(&[0x0102_0000])),
    ];
    let together: Vec<u8> = segments.iter().flat_map(|s| fpdu(s, false)).collect();
    let with = |flags: u8, step: u8, bytes: Vec<u8>| [vec![flags, step], bytes].concat();
    let alone = segments.iter().map(|s| with(1, 200, fpdu(s, true)));
    alone
        .chain([with(0, 0, together.clone()), with(0xe0, 99, together), MPA_REQUEST.to_vec()])
        .collect()
}

/// RFC 8166 section 4: RDMA_MSG without chunks, with a Read chunk, with a Write list and a Reply chunk, RDMA_NOMSG, RDMA_ERROR; and
/// the private data of RFC 8797.
fn rpcrdma_headers() -> Vec<Vec<u8>> {
    let call = [7, 0, 2, 100_003, 3, 0, 0, 0, 0, 0];
    let with = |header: &[u32], call: &[u32]| words(&[header, call].concat());
    vec![
        with(&[7, 1, 32, 0, 0, 0, 0], &call),
        with(&[7, 1, 32, 0, 1, 40, 0xabc, 4096, 0, 0x1000, 0, 0, 0], &call),
        with(&[7, 1, 32, 0, 0, 1, 2, 1, 100, 0, 0, 2, 200, 0, 4096, 0, 1, 1, 3, 2048, 0, 0], &call),
        words(&[7, 1, 32, 1, 1, 0, 0xabc, 4096, 0, 0x1000, 0, 0, 0]),
        words(&[7, 1, 32, 4, 2]),
        words(&[7, 1, 32, 4, 1, 1, 1]),
        words(&[0xf6ab_0e18, 0x0101_0303]),
    ]
}

/// RFC 5531: NULL with AUTH_NONE, GETATTR with AUTH_SYS, WRITE with eight bytes.
fn calls() -> Vec<Vec<u8>> {
    let sys = [1, 24, 99, 0, 1000, 1000, 1, 7, 0, 0];
    let head = |procedure: u32| [&[5, 0, 2, 100_003, 3, procedure][..], &sys].concat();
    let handle = [8, 0x0102_0304, 0x0506_0708];
    vec![
        words(&[5, 0, 2, 100_003, 3, 0, 0, 0, 0, 0]),
        words(&[&head(1)[..], &handle].concat()),
        words(&[&head(7)[..], &handle, &[0, 0, 8, 2, 8, 1, 2]].concat()),
        words(&[5, 0, 2, 100_005, 3, 1, 0, 0, 0, 0, 4, 0x2f64_6174]),
    ]
}

/// RFC 1813: the procedure's number, then its arguments.
fn nfs3() -> Vec<Vec<u8>> {
    let handle = [4, 0x0102_0304];
    let place = [4, 0x0102_0304, 3, 0x6162_6300];
    let no_attributes = [0, 0, 0, 0, 0, 0];
    let procedure = |n: u8, parts: &[&[u32]]| [vec![n], words(&parts.concat())].concat();
    vec![
        procedure(1, &[&handle]),
        procedure(2, &[&handle, &[1, 0o644, 0, 0, 1, 0, 9, 2, 1, 5, 1], &[1, 3, 4]]),
        procedure(3, &[&place]),
        procedure(6, &[&handle, &[0, 0, 4096]]),
        procedure(7, &[&handle, &[0, 0, 5, 1, 5, 0x6865_6c6c, 0x6f00_0000]]),
        procedure(8, &[&place, &[1], &no_attributes]),
        procedure(8, &[&place, &[2, 1, 2]]),
        procedure(10, &[&place, &no_attributes, &[2, 0x6162_0000]]),
        procedure(11, &[&place, &[3], &no_attributes, &[1, 3]]),
        procedure(14, &[&place, &place]),
        procedure(17, &[&handle, &[0, 0, 0, 0, 512, 4096]]),
    ]
}

/// RFC 7530, RFC 8881 and RFC 7862: count, operations. Each begins with PUTROOTFH and a LOOKUP of `d`.
fn nfs4(minor: u8) -> Vec<Vec<u8>> {
    // The first minor version that has the operations; later ones have them, too.
    let compound = |since: u8, count: u8, parts: &[&[u32]]| {
        let start = [24, 15, 1, 0x6400_0000];
        (since, [vec![count + 2], words(&[&start[..], &parts.concat()].concat())].concat())
    };
    let (anonymous, current) = ([0; 4], [1, 0, 0, 0]);
    // OPEN with UNCHECKED4 of `f` for reading and writing, by an owner `o` of client 0; in a session the client is implied.
    let open = [18, 0, 3, 0, 0, 0, 1, 0x6f00_0000, 1, 0, 0, 0, 0, 1, 0x6600_0000];
    let io = |opcode: u32, id: [u32; 4], rest: &[u32]| [&[opcode][..], &id, rest].concat();
    let write = io(38, current, &[0, 8, 2, 5, 0x6865_6c6c, 0x6f00_0000]);
    let all = [9, 3, 0xf7ff_ffff, 0x00be_ffff, 0x0004_a800];
    let all_versions = vec![
        compound(0, 3, &[&all, &[26, 0, 0, 0, 0, 512, 4096, 2, 0x0010_0802, 0x0000_0002], &[10]]),
        compound(
            0,
            2,
            &[&[6, 2, 1, 0x7800_0000, 2, 0, 2, 4, 0o755], &[34], &anonymous, &[2, 0, 2, 4, 0o700]],
        ),
        compound(0, 3, &[&[32], &[29, 1, 0x6600_0000, 1, 0x6200_0000], &[28, 1, 0x6200_0000]]),
        compound(
            0,
            1,
            &[&[35, 1, 2, 2, 0x6964_0000, 0x4000_0000, 3, 0x7463_7000, 3, 0x312e_3200, 1]],
        ),
        compound(1, 4, &[&open, &write, &io(25, current, &[0, 0, 64]), &[4, 0], &current]),
        compound(
            1,
            2,
            &[&open, &[12, 2, 0, 0, 0, 0, 9, 1, 0], &current, &[0, 0, 0, 1, 0x6c00_0000]],
        ),
        compound(
            2,
            4,
            &[&open, &write, &io(69, current, &[0, 0, 1]), &io(68, current, &[0, 0, 4096])],
        ),
        compound(
            2,
            5,
            &[
                &open,
                &[73, 0, 1, 0x6100_0000, 1, 0x7600_0000],
                &[74, 0, 0, 256],
                &[72, 1, 0x6100_0000],
                &io(59, current, &[0, 0, 0, 4096]),
            ],
        ),
        compound(
            2,
            4,
            &[&open, &write, &[32], &io(60, current, &[1, 0, 0, 0, 0, 0, 0, 100, 0, 0, 1, 1, 0])],
        ),
    ];
    all_versions.into_iter().filter(|(since, _)| *since <= minor).map(|(_, seed)| seed).collect()
}
