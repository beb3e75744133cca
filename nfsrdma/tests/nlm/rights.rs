//! Waiting locks during a reload of the configuration.

use std::sync::Arc;

use nfsrdma::nlm::Stat;
use nfsrdma::nlm::procedure as p;
use rdma_transport::refused;
use vfs::namespace::{PrincipalSet, Protocols, Share, ShareAccess};

use crate::{
    A, B, BLOCKED, Bed, DENIED, GRANTED, Host, Live, NLM, lock_args, share_args, stat, unlock_args,
};

/// Reloads the configuration with a change of the share.
fn reload(live: &Live, change: impl FnOnce(&mut Share)) {
    let namespace = &live.server.core().namespace;
    let old = namespace.share_named(b"data").unwrap();
    let (name, clients) = (old.name.clone(), old.clients.clone());
    let (backend, rules) = (old.backend.clone(), old.rules.clone());
    let mut new = Share { name, clients, backend, rules, ..*old };
    change(&mut new);
    namespace.set_shares([Arc::new(new)].into());
}

/// Access for this user only.
fn only(uid: u32) -> Option<ShareAccess> {
    let write = PrincipalSet::new(vec![uid], Vec::new());
    Some(ShareAccess { write, ..ShareAccess::default() })
}

#[tokio::test]
async fn lost_right_cancels_waiting_lock() {
    let host = Host::start().await;
    let live = Live::start(host.rpcbind, None, 1).await;
    type Change = fn(&mut Share);
    let changes: [(&str, Change); 4] = [
        ("share-clients", |share| share.clients = Some(vec![])),
        ("share-access", |share| share.rules.access = only(1000)),
        ("share-name", |share| share.protocols = Protocols::Smb),
        ("", |share| share.read_only = true),
    ];
    for (rule, change) in changes {
        assert_eq!(live.lock(A, true).await, GRANTED, "{rule}");
        assert_eq!(live.lock(B, true).await, BLOCKED, "{rule}");
        reload(&live, change);
        live.unlock(A).await;
        live.nobody_waits().await;
        let counts = refused::counts();
        assert!(rule.is_empty() || counts.iter().any(|(name, _)| *name == rule), "{rule}");
        assert_ne!(live.lock(B, true).await, GRANTED, "{rule}: nor when it asks again");
        reload(&live, |share| {
            (share.clients, share.rules.access) = (None, None);
            (share.protocols, share.read_only) = (Protocols::Both, false);
        });
        assert_eq!(live.lock(A, false).await, GRANTED, "{rule}: it is free");
        live.unlock(A).await;
    }
    assert!(host.called(NLM, p::GRANTED).is_empty());
}

/// A lock to read needs no right to change the file.
#[tokio::test]
async fn read_only_share_permits_shared_lock() {
    let host = Host::start().await;
    let live = Live::start(host.rpcbind, None, 1).await;
    assert_eq!(live.lock(A, true).await, GRANTED);
    let shared = lock_args(B, &live.fh, (0, 10), false, (true, false));
    assert_eq!(stat(&live.nlm(p::LOCK, shared).await), BLOCKED);
    reload(&live, |share| share.read_only = true);
    live.unlock(A).await;
    host.wait_for(NLM, p::GRANTED, 1).await;
    live.nobody_waits().await;
    assert_eq!(live.lock(A, false).await, Stat::Rofs as u32);
}

/// A lock owner is a name that its host chose, and a host is an address as well as a name.
#[test]
fn forged_owner_from_other_address_fails() {
    const ELSEWHERE: &str = "127.0.0.2:700";
    let bed = Bed::new();
    let at = (0, 10);
    let elsewhere = |number, args: &[u8]| stat(&bed.from(ELSEWHERE, 0, number, args));
    assert_eq!(bed.lock(A, at, true), GRANTED);
    assert_eq!(elsewhere(p::UNLOCK, &unlock_args(A, &bed.fh, at)), GRANTED, "it holds nothing");
    assert_eq!(bed.lock(B, at, true), DENIED, "so nothing was given back");
    let lock = lock_args(A, &bed.fh, at, true, (false, false));
    assert_eq!(elsewhere(p::LOCK, &lock), DENIED, "nor is it given what it holds already");
    let deny_all = share_args(A, &bed.fh, 3, 1);
    assert_eq!(bed.unlock(A, at), GRANTED);
    assert_eq!(stat(&bed.nlm(p::SHARE, &deny_all)), GRANTED);
    assert_eq!(elsewhere(p::UNSHARE, &deny_all), GRANTED);
    assert_eq!(elsewhere(p::SHARE, &deny_all), DENIED, "the reservation stands");
}

/// Unlocking needs no right on the file: the user may have lost it, or be gone.
#[test]
fn other_user_may_only_unlock() {
    let bed = Bed::new();
    let (at, peer, other) = ((0, 10), "127.0.0.1:700", 1000);
    let set = vfs::SetAttr { mode: Some(0o600), ..vfs::SetAttr::default() };
    let core = bed.client.server.core();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let (_, node) = core.handles.resolve(&core.namespace, &bed.fh).await.unwrap();
        node.setattr(&vfs::Cred::root(), set, false).await.unwrap();
    });
    let lock = lock_args(A, &bed.fh, at, true, (false, false));
    assert_eq!(stat(&bed.from(peer, other, p::LOCK, &lock)), Stat::Failed as u32);
    assert_eq!(bed.lock(A, at, true), GRANTED);
    assert_eq!(
        stat(&bed.from(peer, other, p::LOCK, &lock)),
        Stat::Failed as u32,
        "not again either"
    );
    assert_eq!(bed.lock(B, at, true), DENIED, "the holder keeps it");
    assert_eq!(stat(&bed.from(peer, other, p::UNLOCK, &unlock_args(A, &bed.fh, at))), GRANTED);
    assert_eq!(bed.lock(B, at, true), GRANTED);
}
