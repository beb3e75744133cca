//! Compares the port mapper's answers with rpcbind's: the address for each procedure and each version of a program.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::cast_possible_truncation)]

mod common;

use std::sync::Arc;

use iobuf::{Buf, Pool, PoolLimits};
use nfs_proto::rpcbind::procedure::*;
use nfs_proto::rpcbind::{
    CallArgs, EntryList, Mapping, Rpcb, Rpcblist, StatByvers, TCP, UDP, Uaddr,
};
use nfs_proto::xdr::{Xdr, decode, encode};
use nfsrdma::served_programs::ServedPrograms;
use nfsrdma::server::Server;
use rdma_transport::channel::{Info, Transport};

use common::{MOUNT, NFS, call, flat, head, server, session};

const MAPPER: u32 = 100_000;
const ACCEPTED: [u8; 24] = {
    let mut reply = [0; 24];
    reply[3] = 9;
    reply[7] = 1;
    reply
};
/// PROC_UNAVAIL in place of SUCCESS.
const NO_PROCEDURE: u8 = 3;

fn mapper() -> Arc<Server> {
    let server = server(vec![common::nfs3::share("data")]);
    server.ports().set_tcp(2049);
    server.ports().set_udp(2049);
    server.ports().set_mapper(111);
    server
}

fn message<'a, T: Xdr<'a>>(version: u32, procedure: u32, args: &T) -> Vec<u8> {
    let mut call = head(9, MAPPER, version, procedure, 0).into_reply().head;
    call.extend(encode(args));
    call
}

/// Makes a call over TCP; `None` if it is refused.
fn ask<'a, T: Xdr<'a>>(
    server: &Arc<Server>,
    version: u32,
    procedure: u32,
    args: &T,
) -> Option<Vec<u8>> {
    let reply = flat(call(&session(server), message(version, procedure, args), vec![])?);
    results(reply)
}

fn results(reply: Vec<u8>) -> Option<Vec<u8>> {
    let (head, results) = reply.split_at(24);
    match head == ACCEPTED {
        true => Some(results.to_vec()),
        false => {
            assert_eq!(head[23], NO_PROCEDURE);
            None
        }
    }
}

/// Makes a call as a datagram from this peer; there may be no answer.
fn send<'a, T: Xdr<'a>>(
    server: &Arc<Server>,
    peer: &str,
    (version, procedure): (u32, u32),
    args: &T,
) -> Option<Vec<u8>> {
    let pool = Pool::new(PoolLimits { buffers_max: [64, 16, 4] });
    let at = "10.0.0.1:111".parse().unwrap();
    let info = Arc::new(Info::new(peer.parse().unwrap(), at, Transport::Tcp, pool));
    let body = Buf::from(message(version, procedure, args));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(server.datagram(info, body, ServedPrograms::Portmap)).map(flat)
}

fn rpcb(prog: u32, vers: u32, netid: &str) -> Rpcb<'_> {
    Rpcb { r_prog: prog, r_vers: vers, r_netid: netid.as_bytes(), r_addr: b"", r_owner: b"" }
}

fn address(results: &[u8]) -> String {
    String::from_utf8(decode::<Uaddr<'_>>(results).unwrap().1.uaddr.to_vec()).unwrap()
}

#[test]
fn other_versions_of_programs_are_found() {
    let server = mapper();
    let port = |prog, vers, prot| {
        let args = Mapping { prog, vers, prot, port: 0 };
        decode::<u32>(&ask(&server, 2, GETPORT, &args).unwrap()).unwrap().1
    };
    // The caller learns the served versions from PROG_MISMATCH of the program itself: `rpcinfo -T tcp HOST 100003`.
    for (program, version) in [(NFS, 0), (NFS, 2), (NFS, 3), (NFS, 4), (NFS, u32::MAX), (MOUNT, 2)]
    {
        assert_eq!(port(program, version, TCP), 2049, "{program} {version}");
        for v in [3, 4] {
            let found = ask(&server, v, GETADDR, &rpcb(program, version, "tcp")).unwrap();
            assert!(address(&found).ends_with(".8.1"), "{program} {version}");
        }
    }
    assert_eq!(port(NFS, 3, UDP), 0, "not by datagrams");
    assert_eq!(port(MOUNT, 0, UDP), 2049);
    assert_eq!((port(MAPPER, 9, TCP), port(100_026, 1, TCP), port(NFS, 3, 99)), (111, 0, 0));
    // GETVERSADDR finds the exact version only.
    for (version, is_served) in [(0, false), (2, false), (3, true), (4, true), (5, false)] {
        let found = ask(&server, 4, GETVERSADDR, &rpcb(NFS, version, "tcp")).unwrap();
        assert_eq!(address(&found).ends_with(".8.1"), is_served, "version {version}");
        assert_eq!(address(&found).is_empty(), !is_served, "version {version}");
    }
    // For an unknown network id, the transport of the call counts.
    let found = ask(&server, 4, GETADDR, &rpcb(NFS, 3, "")).unwrap();
    assert!(address(&found).ends_with(".8.1"));
    let found = results(send(&server, "127.0.0.9:700", (4, GETADDR), &rpcb(NFS, 3, "")).unwrap());
    assert_eq!(address(&found.unwrap()), "");
    assert_eq!(ask(&server, 3, GETVERSADDR, &rpcb(NFS, 3, "tcp")), None, "version 4 has it alone");
}

#[test]
fn lists_contain_every_served_program() {
    let server = mapper();
    let served = server.ports().served().len() + 6;
    for version in [3, 4] {
        let list = ask(&server, version, DUMP, &0_u32).unwrap();
        let (_, list) = decode::<Rpcblist<'_>>(&list).unwrap();
        assert_eq!(list.rpcblist.0.len(), served);
    }
    let list = ask(&server, 4, GETADDRLIST, &rpcb(MOUNT, 3, "tcp")).unwrap();
    let (_, list) = decode::<EntryList<'_>>(&list).unwrap();
    let rows: Vec<_> = list.entries.0.iter().map(|e| (e.r_nc_netid, e.r_nc_semantics)).collect();
    assert_eq!(rows, [(&b"tcp"[..], 3), (b"udp", 1)]);
    let count = |prog, vers| {
        let list = ask(&server, 4, GETADDRLIST, &rpcb(prog, vers, "tcp")).unwrap();
        decode::<EntryList<'_>>(&list).unwrap().1.entries.0.len()
    };
    assert_eq!((count(NFS, 3), count(NFS, 2), count(100_026, 1)), (1, 0, 0));
    let now = ask(&server, 4, GETTIME, &0_u32).unwrap();
    assert!(decode::<u32>(&now).unwrap().1 > 1_700_000_000);
}

#[test]
fn statistics_count_calls_and_answers() {
    let server = mapper();
    for _ in 0..3 {
        ask(&server, 4, GETADDR, &rpcb(NFS, 3, "tcp")).unwrap();
    }
    ask(&server, 2, GETPORT, &Mapping { prog: MOUNT, vers: 2, prot: UDP, port: 0 }).unwrap();
    // Requests for unknown programs leave no trace.
    for program in 0..500 {
        ask(&server, 4, GETADDR, &rpcb(program, 3, "tcp")).unwrap();
    }
    let stat = ask(&server, 4, GETSTAT, &0_u32).unwrap();
    let (_, stat) = decode::<StatByvers<'_>>(&stat).unwrap();
    let calls = |info: &[u8], number: u32| {
        let at = 4 * number as usize;
        u32::from_be_bytes(info[at..at + 4].try_into().unwrap())
    };
    assert_eq!(calls(&stat.version4.info, GETADDR), 503);
    assert_eq!((calls(&stat.version4.info, GETSTAT), calls(&stat.version2.info, GETPORT)), (1, 1));
    let rows = |list: &[nfs_proto::rpcbind::Addrlist<'_>]| {
        list.iter().map(|a| (a.prog, a.vers, a.success)).collect::<Vec<_>>()
    };
    assert_eq!(rows(&stat.version4.addrinfo.0), [(NFS, 3, 3)]);
    assert_eq!(rows(&stat.version2.addrinfo.0), [(MOUNT, 3, 1)]);
}

#[test]
fn no_call_is_passed_on() {
    let server = mapper();
    let args = CallArgs { prog: NFS, vers: 3, proc: 0, args: b"" };
    for (version, procedure) in [(2, CALLIT), (3, CALLIT), (4, CALLIT), (4, INDIRECT)] {
        assert_eq!(ask(&server, version, procedure, &args), None);
        let answer = send(&server, "127.0.0.9:700", (version, procedure), &args);
        // A broadcast is answered only by hosts with the requested program.
        assert_eq!(answer.is_some(), procedure == INDIRECT);
    }
    for version in [2, 3, 4] {
        let args = match version {
            2 => encode(&Mapping { prog: NFS, vers: 3, prot: TCP, port: 1 }),
            _ => encode(&rpcb(NFS, 3, "tcp")),
        };
        let mut bytes = head(9, MAPPER, version, SET, 0).into_reply().head;
        bytes.extend(args);
        let reply = results(flat(call(&session(&server), bytes, vec![]).unwrap())).unwrap();
        assert!(!decode::<bool>(&reply).unwrap().1);
    }
}

/// A datagram may carry the forged address of a victim that should be flooded.
#[test]
fn strangers_get_no_answers() {
    let server = mapper();
    for call in [(2, NULL), (2, DUMP), (3, DUMP), (4, DUMP), (4, GETSTAT)] {
        assert!(send(&server, "127.0.0.9:700", call, &0_u32).is_some(), "{call:?}");
        assert_eq!(send(&server, "192.0.2.7:700", call, &0_u32), None, "{call:?}");
    }
}
