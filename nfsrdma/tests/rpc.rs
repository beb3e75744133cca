//! The RPC layer: replies to calls that cannot be served.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::cast_possible_truncation)]

mod common;

use std::net::IpAddr;
use std::sync::Arc;

use iobuf::{Buf, Pool, PoolLimits};
use nfsrdma::served_programs::ServedPrograms;
use nfsrdma::source_port::Asked;
use rdma_transport::channel::{Info, Transport};

use common::{MOUNT, NFS, call, flat, head, server, session, words};

const NFSACL: u32 = 100_227;

fn answer(bytes: Vec<u8>) -> Option<Vec<u32>> {
    call(&session(&server(vec![])), bytes, vec![]).map(|r| words(&flat(r)))
}

fn of(words: &[u32]) -> Option<Vec<u32>> {
    answer(words.iter().flat_map(|w| w.to_be_bytes()).collect())
}

fn to(program: u32, version: u32, procedure: u32) -> Option<Vec<u32>> {
    answer(head(9, program, version, procedure, 0).into_reply().head)
}

#[test]
fn null_is_answered_by_all_programs() {
    let mappers = [2, 3, 4].map(|version| (100_000, version));
    let nfs = [(NFS, 3), (NFS, 4), (NFSACL, 3), (MOUNT, 1), (MOUNT, 3)];
    let locks = [(100_021, 4), (100_024, 1)];
    for (program, version) in mappers.into_iter().chain(nfs).chain(locks) {
        assert_eq!(to(program, version, 0), Some(vec![9, 1, 0, 0, 0, 0]));
    }
}

#[test]
fn unserved_calls_get_specific_error() {
    assert_eq!(to(100_026, 1, 0), Some(vec![9, 1, 0, 0, 0, 1]));
    assert_eq!(to(100_021, 3, 0), Some(vec![9, 1, 0, 0, 0, 2, 4, 4]));
    assert_eq!(to(NFS, 2, 0), Some(vec![9, 1, 0, 0, 0, 2, 3, 4]));
    assert_eq!(to(NFSACL, 2, 0), Some(vec![9, 1, 0, 0, 0, 2, 3, 3]));
    assert_eq!(to(NFSACL, 3, 3), Some(vec![9, 1, 0, 0, 0, 3]));
    assert_eq!(to(NFS, 5, 0), Some(vec![9, 1, 0, 0, 0, 2, 3, 4]));
    assert_eq!(to(MOUNT, 4, 0), Some(vec![9, 1, 0, 0, 0, 2, 1, 3]));
    assert_eq!(to(NFS, 3, 22), Some(vec![9, 1, 0, 0, 0, 3]));
    assert_eq!(to(NFS, 4, 2), Some(vec![9, 1, 0, 0, 0, 3]));
    assert_eq!(to(MOUNT, 3, 6), Some(vec![9, 1, 0, 0, 0, 3]));
    assert_eq!(to(MOUNT, 1, 1), Some(vec![9, 1, 0, 0, 0, 3]));
}

#[test]
fn broken_heads_are_answered_or_dropped() {
    assert_eq!(of(&[9]), None);
    assert_eq!(of(&[9, 1, 0, 0, 0, 0]), None);
    assert_eq!(of(&[9, 0, 3, NFS, 3, 0, 0, 0, 0, 0]), Some(vec![9, 1, 1, 0, 2, 2]));
    assert_eq!(of(&[9, 0, 2, NFS, 3]), Some(vec![9, 1, 0, 0, 0, 4]));
    // AUTH_BADCRED, AUTH_BADVERF, and an unsupported flavor.
    assert_eq!(of(&[9, 0, 2, NFS, 3, 0, 1, 401]), Some(vec![9, 1, 1, 1, 1]));
    assert_eq!(of(&[9, 0, 2, NFS, 3, 0, 0, 0, 0, 401]), Some(vec![9, 1, 1, 1, 3]));
    assert_eq!(of(&[9, 0, 2, NFS, 3, 0, 6, 0, 0, 0]), Some(vec![9, 1, 1, 1, 5]));
}

#[test]
fn truncated_arguments_are_garbage() {
    let of_nfs = (1..22).map(|procedure| (NFS, procedure));
    for (program, procedure) in of_nfs.chain([(NFSACL, 1), (NFSACL, 2)]) {
        let garbage = Some(vec![9, 1, 0, 0, 0, 4]);
        assert_eq!(to(program, 3, procedure), garbage, "procedure {procedure}");
        let mut too_long = head(9, program, 3, procedure, 0);
        too_long.u32(65);
        too_long.fixed(&[0; 68]);
        assert_eq!(answer(too_long.into_reply().head), garbage, "procedure {procedure}");
    }
}

#[test]
fn forged_handle_is_bad_handle() {
    const BADHANDLE: u32 = 10001;
    for forged in [vec![], vec![1; 10], vec![1; 30], vec![0xff; 64]] {
        let mut w = head(9, NFS, 3, 1, 0);
        w.opaque(&forged);
        assert_eq!(answer(w.into_reply().head), Some(vec![9, 1, 0, 0, 0, 0, BADHANDLE]));
        let mut w = head(9, NFSACL, 3, 1, 0);
        w.opaque(&forged);
        w.u32(1);
        // The reply contains no attributes.
        assert_eq!(answer(w.into_reply().head), Some(vec![9, 1, 0, 0, 0, 0, BADHANDLE, 0]));
    }
}

#[test]
fn port_mapper_lists_all_programs() {
    let server = server(vec![]);
    server.ports().set_tcp(2049);
    let mut w = head(9, 100_000, 2, 3, 0);
    [NFS, 3, 6, 0].into_iter().for_each(|v| w.u32(v));
    let reply = call(&session(&server), w.into_reply().head, vec![]).unwrap();
    assert_eq!(words(&flat(reply)), [9, 1, 0, 0, 0, 0, 2049]);
}

#[test]
fn violations_are_counted_by_name() {
    of(&[9, 1, 0, 0]);
    of(&[9, 0, 3, NFS, 3, 0, 0, 0, 0, 0]);
    of(&[9, 0, 2, NFS]);
    of(&[9, 0, 2, NFS, 3, 0, 6, 0, 0, 0]);
    of(&[9, 0, 2, NFS, 3, 0, 1, 4, 7, 0, 0]);
    to(NFS, 3, 1);
    let counted = rdma_transport::count::broken_rules();
    for rule in ["not-a-call", "version", "short-call", "credential", "arguments"] {
        let name = format!("rpc-{rule}");
        assert!(counted.iter().any(|(n, times)| *n == name && *times > 0), "{name}");
    }
    let rows = rdma_transport::refused::list();
    let flavor = rows.iter().find(|r| r.refused.rule == "rpc-credential").unwrap();
    assert!(flavor.refused.remedy.contains("sec=sys"), "{flavor:?}");
    assert!(
        rdma_transport::refused::counts()
            .iter()
            .any(|(rule, n)| *rule == "rpc-credential" && *n > 0)
    );
}

/// How often a rule was violated, and how often it caused a refusal.
fn counted(rule: &str) -> (u64, u64) {
    let of = |all: Vec<(&'static str, u64)>| {
        all.into_iter().find(|(name, _)| *name == rule).map_or(0, |(_, n)| n)
    };
    (of(rdma_transport::count::broken_rules()), of(rdma_transport::refused::counts()))
}

/// A datagram may carry a forged address.
#[test]
fn refused_datagram_names_no_peer() {
    const MNT: u32 = 1;
    let mut mount = head(9, MOUNT, 3, MNT, 1000);
    mount.opaque(b"/data");
    let kerberos = [9, 0, 2, NFS, 3, 0, 6, 0, 0, 0_u32].map(u32::to_be_bytes).concat();
    let server = server(vec![common::nfs3::share("data")]);
    server.core().source_ports.ask(Asked::All);
    let send = |peer: &str, body: Vec<u8>| {
        let pool = Pool::new(PoolLimits { buffers_max: [64, 16, 4] });
        let at = "192.0.2.1:2049".parse().unwrap();
        let info = Info::new(peer.parse().unwrap(), at, Transport::Tcp, pool);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime
            .block_on(server.datagram(Arc::new(info), Buf::from(body), ServedPrograms::All))
            .unwrap()
    };
    for (rule, port, body) in
        [("rpc-source-port", 50_000, mount.into_reply().head), ("rpc-credential", 700, kerberos)]
    {
        let before = counted(rule).1;
        send(&format!("127.0.0.9:{port}"), body);
        assert!(counted(rule).1 > before, "{rule}");
    }
    let rows = rdma_transport::refused::list();
    let named =
        |row: &&rdma_transport::refused::Row| row.refused.peer == IpAddr::from([127, 0, 0, 9]);
    assert_eq!(rows.iter().filter(named).count(), 0, "{rows:?}");
}
