//! A lock that is waited for, and a reload of the configuration meanwhile.

use std::sync::Arc;

use nfsrdma::nlm::Stat;
use nfsrdma::nlm::procedure as p;
use rdma_transport::refused;
use vfs::namespace::{People, Protocols, Share, ShareAccess};

use crate::{A, B, BLOCKED, GRANTED, Host, Live, NLM, lock_args, stat};

/// The configuration is read again, and says something else of the share.
fn reload(live: &Live, change: impl FnOnce(&mut Share)) {
    let namespace = &live.server.core().namespace;
    let old = namespace.share_named(b"data").unwrap();
    let (name, clients) = (old.name.clone(), old.clients.clone());
    let (backend, rules) = (old.backend.clone(), old.rules.clone());
    let mut new = Share { name, clients, backend, rules, ..*old };
    change(&mut new);
    namespace.set_shares([Arc::new(new)].into());
}

/// Nobody but the user of this number.
fn only(uid: u32) -> Option<ShareAccess> {
    let (read, deny) = (People::default(), People::default());
    Some(ShareAccess { read, write: People::new(vec![uid], Vec::new()), deny })
}

#[tokio::test]
async fn who_lost_the_right_while_it_waited_is_given_nothing() {
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
async fn a_shared_lock_is_given_where_nothing_may_be_changed_any_more() {
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
