//! Quotas over NFS: RQUOTA, and the attributes of version 4.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::cast_possible_truncation)]

mod common;

use std::sync::Arc;

use iobuf::{Buf, Pool, PoolLimits};
use nfs_proto::rquota::{ExtGetquotaArgs, GetquotaArgs, QuotaRslt, SetquotaArgs, SqDqblk};
use nfs_proto::xdr::{Xdr, decode, encode};
use nfsrdma::served_programs::ServedPrograms;
use nfsrdma::server::Server;
use rdma_transport::channel::{Info, Transport};
use rdma_transport::xdr::Writer;
use vfs::mem::MemBackend;
use vfs::namespace::{Cidr, ClientRule, Flavor, Rules, Share, Squash};
use vfs::quota::{Quota, QuotaKind, QuotaLimits, QuotaState};
use vfs::{Backend, BoxFuture, Capabilities, FsStat, Handle, NodeRef, VfsError, VfsResult};

use common::nfs3::share;
use common::{NFS, call, flat, head, server, session, words};

const RQUOTA: u32 = 100_011;
const MIB: u64 = 1 << 20;
const USERS: u32 = 0;
const GROUPS: u32 = 1;

/// A volume on which each user and group uses a mebibyte for each of its last two digits, within limits of twice and three times as
/// much.
struct Counting {
    volume: Arc<MemBackend>,
    enforces: bool,
}

fn quota(id: u32) -> Quota {
    let used = u64::from(id % 100) * MIB;
    let limits = QuotaLimits { soft: Some(2 * used), hard: Some(3 * used) };
    let file_limits = QuotaLimits { soft: None, hard: Some(9) };
    Quota { id, used, limits, files: 4, file_limits, ..Quota::default() }
}

impl Backend for Counting {
    fn root(&self) -> NodeRef {
        self.volume.root()
    }

    fn resolve<'a>(&'a self, handle: &'a Handle) -> BoxFuture<'a, VfsResult<NodeRef>> {
        self.volume.resolve(handle)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { quotas: true, ..self.volume.capabilities() }
    }

    fn statfs(&self) -> BoxFuture<'_, VfsResult<FsStat>> {
        self.volume.statfs()
    }

    fn quota_state<'a>(
        &'a self,
        _: &'a NodeRef,
        _: QuotaKind,
    ) -> BoxFuture<'a, VfsResult<QuotaState>> {
        let enforces = self.enforces;
        Box::pin(async move { Ok(QuotaState { enforces, has_default: false }) })
    }

    fn quota<'a>(
        &'a self,
        _: &'a NodeRef,
        kind: QuotaKind,
        id: u32,
    ) -> BoxFuture<'a, VfsResult<Quota>> {
        Box::pin(async move {
            match kind {
                QuotaKind::User | QuotaKind::Group => Ok(quota(id)),
                QuotaKind::Project => Err(VfsError::NotSupported),
            }
        })
    }
}

fn counting(name: &str, enforces: bool) -> Share {
    let volume = MemBackend::new(256 * MIB).unwrap();
    Share { backend: Arc::new(Counting { volume, enforces }), ..share(name) }
}

fn all() -> Arc<Server> {
    let kerberos = Rules { sec: [Flavor::Krb5].into_iter().collect(), ..Rules::default() };
    let elsewhere = Cidr { addr: [198, 51, 100, 0].into(), bits: 24 };
    server(vec![
        counting("data", true),
        counting("lax", false),
        Share { squash: Squash::Root, ..counting("squashed", true) },
        Share { squash: Squash::All, ..counting("anonymous", true) },
        Share { rules: kerberos, ..counting("krb5", true) },
        Share { clients: Some(vec![ClientRule::from(elsewhere)]), ..counting("others", true) },
        share("plain"),
    ])
}

fn results(reply: Vec<u8>) -> QuotaRslt {
    assert_eq!(words(&reply[..24])[1..], [1, 0, 0, 0, 0], "an accepted, successful reply");
    decode::<QuotaRslt>(&reply[24..]).unwrap().1
}

fn message<'a>(uid: u32, (version, number): (u32, u32), args: &impl Xdr<'a>) -> Vec<u8> {
    let mut call = head(9, RQUOTA, version, number, uid).into_reply().head;
    call.extend(encode(args));
    call
}

fn ask<'a>(server: &Arc<Server>, uid: u32, which: (u32, u32), args: &impl Xdr<'a>) -> QuotaRslt {
    results(flat(call(&session(server), message(uid, which, args), vec![]).unwrap()))
}

/// Asks by version 2.
fn of(server: &Arc<Server>, uid: u32, path: &str, gqa_type: u32, gqa_id: u32) -> QuotaRslt {
    let args = ExtGetquotaArgs { gqa_pathp: path.as_bytes(), gqa_type, gqa_id };
    ask(server, uid, (2, 1), &args)
}

/// The blocks in use, of one KiB each.
fn used(result: QuotaRslt) -> Option<u64> {
    match result {
        QuotaRslt::Ok(quota) => {
            assert_eq!(quota.rq_bsize, 1024);
            Some(u64::from(quota.rq_curblocks) / 1024)
        }
        QuotaRslt::Noquota | QuotaRslt::Eperm => None,
    }
}

#[test]
fn callers_learn_their_quotas() {
    let server = all();
    let QuotaRslt::Ok(own) = of(&server, 1007, "/data", USERS, 1007) else { panic!("refused") };
    assert_eq!((own.rq_bsoftlimit, own.rq_bhardlimit), (14 * 1024, 21 * 1024));
    assert_eq!((own.rq_curfiles, own.rq_fhardlimit, own.rq_active), (4, 9, true));
    assert_eq!(used(of(&server, 1007, "/data", GROUPS, 1007)), Some(7));
    assert_eq!(used(of(&server, 0, "/data", USERS, 1008)), Some(8), "root, of others");
    for (uid, kind, id) in [(1007, USERS, 1008), (1007, USERS, 0), (1007, GROUPS, 1008)] {
        assert_eq!(of(&server, uid, "/data", kind, id), QuotaRslt::Eperm, "{uid} {kind} {id}");
    }
    assert_eq!(of(&server, 0, "/data", 2, 1), QuotaRslt::Noquota, "no such kind");
    let args = GetquotaArgs { gqa_pathp: b"/data/", gqa_uid: 1007 };
    assert_eq!(used(ask(&server, 1007, (1, 1), &args)), Some(7), "version 1");
}

#[test]
fn rules_of_mounts_apply() {
    let server = all();
    // The squashed caller learns about the user that it is served as, 65534.
    assert_eq!(used(of(&server, 0, "/squashed", USERS, 0)), Some(34));
    assert_eq!(of(&server, 0, "/squashed", USERS, 1007), QuotaRslt::Eperm);
    assert_eq!(used(of(&server, 1007, "/squashed", USERS, 1007)), Some(7));
    assert_eq!(used(of(&server, 1007, "/anonymous", USERS, 1007)), Some(34));
    assert_eq!(of(&server, 1007, "/krb5", USERS, 1007), QuotaRslt::Eperm, "unproven");
    assert_eq!(of(&server, 1007, "/others", USERS, 1007), QuotaRslt::Eperm);
    assert_eq!(of(&server, 1007, "/none", USERS, 1007), QuotaRslt::Noquota);
    assert_eq!(of(&server, 1007, "/data/none", USERS, 1007), QuotaRslt::Noquota);
    assert_eq!(of(&server, 1007, "/plain", USERS, 1007), QuotaRslt::Noquota);
}

#[test]
fn active_quotas_are_those_enforced() {
    let server = all();
    for (share, number, wanted) in [("/data", 2, Some(7)), ("/lax", 1, Some(7)), ("/lax", 2, None)]
    {
        let gqa_pathp = share.as_bytes();
        let args = ExtGetquotaArgs { gqa_pathp, gqa_type: USERS, gqa_id: 1007 };
        assert_eq!(used(ask(&server, 1007, (2, number), &args)), wanted, "{share} {number}");
    }
}

#[test]
fn quotas_are_not_set_by_calls() {
    let server = all();
    let none = SqDqblk {
        rq_bhardlimit: 1,
        rq_bsoftlimit: 1,
        rq_curblocks: 0,
        rq_fhardlimit: 0,
        rq_fsoftlimit: 0,
        rq_curfiles: 0,
        rq_btimeleft: 0,
        rq_ftimeleft: 0,
    };
    let args = SetquotaArgs { sqa_qcmd: 0, sqa_pathp: b"/data", sqa_id: 7, sqa_dqblk: none };
    for number in [3, 4] {
        assert_eq!(ask(&server, 0, (1, number), &args), QuotaRslt::Eperm);
    }
}

#[test]
fn datagrams_are_answered_and_versions_told() {
    let server = all();
    let args = ExtGetquotaArgs { gqa_pathp: b"/data", gqa_type: USERS, gqa_id: 1007 };
    let body = Buf::from(message(1007, (2, 1), &args));
    let pool = Pool::new(PoolLimits { buffers_max: [64, 16, 4] });
    let at = "127.0.0.1:2049".parse().unwrap();
    let peer = "127.0.0.1:40000".parse().unwrap();
    let info = Arc::new(Info::new(peer, at, Transport::Tcp, pool));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let reply = runtime.block_on(server.datagram(info, body, ServedPrograms::Datagrams));
    assert_eq!(used(results(flat(reply.unwrap()))), Some(7));
    let reply = flat(call(&session(&server), message(0, (3, 1), &args), vec![]).unwrap());
    assert_eq!(words(&reply)[5..], [2, 1, 2], "PROG_MISMATCH, and the versions");
    let cut = message(0, (2, 1), &7_u32);
    let reply = flat(call(&session(&server), cut, vec![]).unwrap());
    assert_eq!(words(&reply)[5], 4, "GARBAGE_ARGS");
}

/// GETATTR of a share's root by version 4.0; returns the words of the bitmap and the values.
fn getattr(server: &Arc<Server>, uid: u32, share: &str, bitmap: [u32; 2]) -> Vec<u32> {
    let mut w: Writer = head(9, NFS, 4, 1, uid);
    w.opaque(b"");
    [0, 3, 24, 15].into_iter().for_each(|n| w.u32(n));
    w.opaque(share.as_bytes());
    [9, 2, bitmap[0], bitmap[1]].into_iter().for_each(|n| w.u32(n));
    let reply = flat(call(&session(server), flat(w.into_reply()), vec![]).unwrap());
    let words = words(&reply[24..]);
    // Status, tag, three results; the first two end with their status.
    assert_eq!(words[..9], [0, 0, 3, 24, 0, 15, 0, 9, 0], "{share}");
    words[9..].to_vec()
}

#[test]
fn attributes_tell_what_caller_may_store() {
    let server = all();
    // quota_avail_hard, quota_avail_soft, quota_used: 38 to 40.
    let wanted = [0, 0x1c0];
    let values = |share: &str, uid: u32| {
        let words = getattr(&server, uid, share, wanted);
        assert_eq!(words[..4], [2, 0, 0x1c0, 24], "{share}");
        let number = |n: usize| (u64::from(words[n]) << 32 | u64::from(words[n + 1])) / MIB;
        [number(4), number(6), number(8)]
    };
    assert_eq!(values("data", 1007), [14, 7, 7]);
    let [hard, soft, own] = values("data", 0);
    assert!(hard > 200 && soft == hard && own == 0, "no limits: {hard} {soft} {own}");
    assert_eq!(values("anonymous", 1007)[2], 34);
    // Not supported without quotas: an empty answer.
    let none = getattr(&server, 1007, "plain", wanted);
    assert_eq!(none.last(), Some(&0));
    let supported = |share: &str| getattr(&server, 0, share, [1, 0])[4..].to_vec();
    let bits = |share: &str| supported(share)[1] & 0x1c0;
    assert_eq!((bits("data"), bits("plain")), (0x1c0, 0));
}
