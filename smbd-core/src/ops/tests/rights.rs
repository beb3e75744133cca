//! Changes of share access: reconnected handles with fewer rights, and trees whose share was reconfigured.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rdma_transport::channel::Transport;
use recovery::Store;
use vfs::Acting;
use vfs::client_names::{AGE_MAX, ClientFacts, ClientNames, HostName, NameKind};
use vfs::mem::MemBackend;
use vfs::namespace::{ClientRule, Force, Protocols, Refusal, Rules, Share, Whom};
use vfs::{CreateHow, Cred, SetAttr, VfsError};

use super::listing::{BIG, list};
use crate::dtyp::mask;
use crate::harness::{Client, Harness, doom};
use crate::reauthorize::Taken;
use crate::settings::ShareSettings;
use crate::status::Status;
use crate::tree::{LastTakeUp, Target, Tree};
use crate::wire::context::{DHANDLE_FLAG_PERSISTENT, DurableV2, ReconnectV2};
use crate::wire::create::{self, Disposition, oplock, option};
use crate::wire::negotiate::Dialect;
use crate::wire::query_directory::flag;
use crate::wire::{Command, tree_connect};

const GUID: [u8; 16] = [5; 16];
/// Access granted to readers of a share.
const READS: u32 = 0x0012_00a9;

fn durable(flags: u32) -> impl FnOnce(&mut create::Request<'static>) {
    move |r| {
        r.oplock_level = oplock::BATCH;
        r.contexts = vec![DurableV2 { timeout: 0, flags, guid: GUID }.context()];
    }
}

/// Returns the share of this harness with changed rules.
fn share_by(harness: &Harness, change: impl FnOnce(&mut Share)) -> Share {
    let old = harness.core.namespace.shares()[0].clone();
    let mut share = Share {
        name: old.name.clone(),
        id: old.id,
        backend: old.backend.clone(),
        read_only: false,
        protocols: old.protocols,
        squash: old.squash,
        nfs_locks: old.nfs_locks,
        clients: None,
        rules: Rules::default(),
    };
    change(&mut share);
    share
}

fn now(harness: &Harness, change: impl FnOnce(&mut Share)) {
    harness.core.namespace.set_shares(Arc::new([Arc::new(share_by(harness, change))]));
}

fn someone(uid: u32) -> Cred {
    Cred { uid, gid: uid, groups: Arc::new([]), token: vfs::Token::NONE }
}

/// Reconnects the client to the share with these rights.
pub(super) fn connect(c: &mut Client, maximal_access: u32, cred: Cred) {
    let session = c.core.sessions.get(c.session_id).unwrap();
    let old = session.remove_tree(c.tree_id).unwrap();
    let tree = session.add_tree(|id| Tree {
        last_take_up: LastTakeUp::default(),
        is_dfs: false,
        home: None,
        id,
        session_id: session.id,
        name: old.name.clone(),
        target: Target::Files(old.share().unwrap().clone()),
        cred,
        maximal_access,
        settings: old.settings.clone(),
    });
    c.tree_id = tree.unwrap().id;
}

/// MS-SMB2 sections 3.3.5.9.10 and 3.3.5.9.12 return an open to its owner, but the share now grants the owner less.
#[tokio::test]
async fn a_handle_is_not_taken_up_by_a_tree_that_does_not_give_its_rights() {
    for (replays, maximal_access, uid, want) in [
        (false, READS, 0, Err(Status::ACCESS_DENIED)),
        (false, mask::FILE_ALL, 7, Err(Status::ACCESS_DENIED)),
        (true, READS, 0, Err(Status::ACCESS_DENIED)),
        (true, mask::FILE_ALL, 7, Err(Status::ACCESS_DENIED)),
        (false, mask::FILE_ALL, 0, Ok(())),
        (true, mask::FILE_ALL, 0, Ok(())),
    ] {
        let harness = Harness::new();
        let first = harness.client();
        let file = first.create("f", durable(0)).await.unwrap().file;
        crate::teardown::end_of_connection(&harness.core, &first.conn).await;
        assert_eq!(harness.core.opens.count_of(0), 1);
        let mut second = harness.client();
        connect(&mut second, maximal_access, someone(uid));
        second.replays.store(replays, Ordering::Relaxed);
        let back = second.create("f", |r| {
            durable(0)(r);
            if !replays {
                r.contexts = vec![ReconnectV2 { file, guid: GUID, flags: 0 }.context()];
            }
        });
        let back = back.await.map(|_| ());
        assert_eq!(back, want, "{replays} {maximal_access:x} {uid}");
        let left = harness.core.opens.count();
        assert_eq!(left, usize::from(want.is_ok()), "what is refused is not kept");
    }
}

#[tokio::test]
async fn a_waiting_handle_ends_where_its_user_acts_as_another_now() {
    let harness = Harness::new();
    let first = harness.client();
    first.create("f", durable(0)).await.unwrap();
    crate::teardown::end_of_connection(&harness.core, &first.conn).await;
    assert_eq!(
        crate::reauthorize::reauthorize(&harness.core).await.opens,
        0,
        "nothing has changed"
    );
    now(&harness, |share| share.rules.force = Some(Force::User(someone(7))));
    assert_eq!(crate::reauthorize::reauthorize(&harness.core).await.opens, 1);
}

/// After a restart with another configuration, handles that are no longer allowed must not block other clients.
#[tokio::test]
async fn a_start_gives_up_persistent_handles_that_would_not_be_granted() {
    let folder = tempfile::tempdir().unwrap();
    let volume = MemBackend::new(64 << 20).unwrap();
    let harness = Harness::on(volume.clone(), Some(Store::open(folder.path()).unwrap()));
    let c = harness.machine(1, 0, Dialect::V311, Transport::Tcp);
    let asked = c.create("f", |r| {
        durable(DHANDLE_FLAG_PERSISTENT)(r);
        r.share = 0;
    });
    asked.await.unwrap();
    let core = Arc::downgrade(&harness.core);
    drop((c, harness));
    while core.strong_count() > 0 {
        tokio::task::yield_now().await;
    }
    let harness = Harness::on(volume, Some(Store::open(folder.path()).unwrap()));
    now(&harness, |share| share.read_only = true);
    assert_eq!(
        crate::restore::restore(&harness.core, std::time::Duration::from_secs(60)).await.unwrap(),
        0
    );
    let other = harness.machine(2, 0, Dialect::V311, Transport::Tcp);
    let opened = other.create("f", |r| {
        r.access = mask::READ_DATA;
        r.disposition = Disposition::Open as u32;
    });
    assert_eq!(opened.await.map(|_| ()), Ok(()));
}

/// A delete-on-close handle waits for its client: access to the file's name does not give the right to end the handle or the file.
#[tokio::test]
async fn a_waiting_handle_gives_way_only_to_who_may_open_its_file() {
    for name in ["f", "f:s"] {
        let harness = Harness::new();
        crate::recall::attach(&harness.core);
        let first = harness.client();
        first.close(first.open(name).await).await;
        let asked = first.create("f", |r| {
            doom(r);
            durable(0)(r);
        });
        asked.await.unwrap();
        let root = harness.core.namespace.shares()[0].backend.root();
        let (node, _) = root.lookup(&Cred::root(), b"f").await.unwrap();
        let private = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        node.setattr(&Cred::root(), private, false).await.unwrap();
        crate::teardown::end_of_connection(&harness.core, &first.conn).await;
        // In the server's first millisecond no time is in the past yet.
        while harness.core.now() < 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let as_this = |how: Disposition| {
            move |r: &mut create::Request<'static>| {
                (r.access, r.disposition) = (mask::READ_DATA, how as u32);
            }
        };
        let stranger = harness.machine(2, 1005, Dialect::V311, Transport::Tcp);
        for (how, want) in [
            (Disposition::Open, Status::ACCESS_DENIED),
            (Disposition::OpenIf, Status::ACCESS_DENIED),
            (Disposition::OverwriteIf, Status::ACCESS_DENIED),
            (Disposition::Create, Status::OBJECT_NAME_COLLISION),
        ] {
            let refused = stranger.create(name, as_this(how)).await.map(|_| ());
            assert_eq!(refused, Err(want), "{name} {how:?}");
            assert_eq!(harness.core.opens.count_of(0), 1, "{name} {how:?}: the handle waits");
            assert!(root.lookup(&Cred::root(), b"f").await.is_ok(), "{name} {how:?}");
        }
        let owner = harness.machine(2, 0, Dialect::V311, Transport::Tcp);
        let new = owner.create(name, as_this(Disposition::OpenIf)).await.unwrap();
        assert_eq!(new.action, create::action::CREATED, "{name}");
    }
}

/// The same over NFS: a user who may not remove the name cannot end a handle by trying.
#[tokio::test]
async fn a_waiting_handle_gives_way_only_to_who_may_remove_its_file() {
    for (dir_mode, refusal) in [(0o755, VfsError::Access), (0o1777, VfsError::Perm)] {
        let harness = Harness::new();
        crate::recall::attach(&harness.core);
        let share = harness.core.namespace.shares()[0].clone();
        let root = share.backend.root();
        let mode = |mode| SetAttr { mode: Some(mode), ..SetAttr::default() };
        root.setattr(&Cred::root(), mode(dir_mode), false).await.unwrap();
        let first = harness.client();
        let asked = first.create("f", |r| {
            doom(r);
            durable(0)(r);
        });
        asked.await.unwrap();
        let nfs = harness.core.namespace.by(None);
        let stranger = someone(1005);
        let made = root
            .create(Acting::caller(&Cred::root()), b"own", CreateHow::Guarded, mode(0o644))
            .await;
        let owned = SetAttr { uid: Some(1005), ..SetAttr::default() };
        made.unwrap().node.setattr(&Cred::root(), owned, false).await.unwrap();
        crate::teardown::end_of_connection(&harness.core, &first.conn).await;
        // In the server's first millisecond no time is in the past yet.
        while harness.core.now() < 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let tried = [
            nfs.unlink(&share, &root, &stranger, b"f").await.map(drop),
            nfs.rename(&share, &root, &stranger, b"f", &root, b"g").await.map(drop),
            nfs.rename(&share, &root, &stranger, b"own", &root, b"f").await.map(drop),
        ];
        assert_eq!(tried, [Err(refusal); 3], "{dir_mode:o}");
        assert_eq!(harness.core.opens.count_of(0), 1, "{dir_mode:o}: it waits");
        assert!(root.lookup(&Cred::root(), b"f").await.is_ok(), "{dir_mode:o}");
        // Ending the handle deletes the file.
        let _ = nfs.unlink(&share, &root, &Cred::root(), b"f").await;
        assert_eq!(harness.core.opens.count_of(0), 0, "{dir_mode:o}");
        assert!(root.lookup(&Cred::root(), b"f").await.is_err(), "{dir_mode:o}");
    }
}

/// Settings of a share for listings and new files apply to existing trees, which keep their opens.
#[tokio::test]
async fn a_tree_lists_and_makes_by_the_share_as_it_is_now() {
    let harness = Harness::new();
    let forced = |share: &mut Share| share.rules.force = Some(Force::User(someone(7)));
    now(&harness, forced);
    let root = harness.core.namespace.shares()[0].backend.root();
    let mode = |mode| SetAttr { mode: Some(mode), ..SetAttr::default() };
    root.setattr(&Cred::root(), mode(0o777), false).await.unwrap();
    root.create(Acting::caller(&Cred::root()), b"secret", CreateHow::Guarded, mode(0o600))
        .await
        .unwrap();
    let mut c = harness.client();
    connect(&mut c, mask::FILE_ALL, someone(7));
    let held = c.open("held").await;
    let dir = c.create("", |r| r.options = option::DIRECTORY_FILE).await.unwrap().file;
    let is_listed = async |name: &str| {
        let found = list(&c, dir, "*", flag::RESTART_SCANS, BIG).await.unwrap();
        found.iter().any(|n| n == name)
    };
    let mode_of = async |name: &str| {
        c.close(c.open(name).await).await;
        let (_, attr) = root.lookup(&Cred::root(), name.as_bytes()).await.unwrap();
        attr.mode & 0o777
    };
    assert!(is_listed("secret").await);
    assert_eq!(mode_of("before").await, 0o644);
    now(&harness, |share| {
        forced(share);
        share.rules.only_visible = true;
        share.rules.masks.file = Some(0o640);
    });
    assert_eq!(crate::reauthorize::reauthorize(&harness.core).await, Taken::default());
    assert!(!is_listed("secret").await && is_listed("before").await);
    assert_eq!(mode_of("after").await, 0o640);
    assert_eq!(c.close(held).await, Status::SUCCESS);
}

#[test]
fn a_tree_sees_its_own_folder_and_a_reader_the_share_of_readers() {
    let harness = Harness::new();
    let connected = harness.core.namespace.shares()[0].reader();
    let tree = Tree {
        last_take_up: LastTakeUp::default(),
        is_dfs: false,
        home: None,
        id: 1,
        session_id: 1,
        name: connected.name.clone(),
        target: Target::Files(connected.clone()),
        cred: someone(7),
        maximal_access: READS,
        settings: ShareSettings::default(),
    };
    now(&harness, |share| share.rules.only_visible = true);
    let seen = tree.share_now(&harness.core.namespace).unwrap();
    assert!(seen.read_only && seen.rules.only_visible);
    now(&harness, |share| share.backend = MemBackend::new(1 << 20).unwrap());
    let seen = tree.share_now(&harness.core.namespace).unwrap();
    assert!(Arc::ptr_eq(&seen, &connected), "another folder is not this tree's");
}

/// Being refused is not a protocol violation by the client.
#[tokio::test]
async fn a_share_that_is_not_for_a_client_counts_a_refusal_and_no_broken_rule() {
    let harness = Harness::new();
    now(&harness, |share| share.clients = Some(Vec::new()));
    let c = harness.client_by(0, Dialect::V302, Transport::Tcp);
    let request = tree_connect::Request { flags: 0, path: r"\\gate\data".into() };
    let refused = c.ask(Command::TreeConnect, &request.emit()).await.status();
    assert_eq!(refused, Status::ACCESS_DENIED);
    let rule = Refusal::Address.name();
    let of = |counts: Vec<(&'static str, u64)>| counts.iter().any(|(name, _)| *name == rule);
    assert!(of(rdma_transport::refused::counts()));
    assert!(!of(rdma_transport::count::broken_rules()));
}

/// An unanswered name lookup takes no access from connected clients; its answer does, and so do other changes made meanwhile.
#[tokio::test]
async fn a_name_that_is_not_known_yet_ends_no_tree() {
    let (harness, known) = (Harness::new(), Arc::new(ClientNames::default()));
    let c = harness.client_by(0, Dialect::V302, Transport::Tcp);
    let session = c.core.sessions.get(c.session_id).unwrap();
    let by_pattern = |share: &mut Share| {
        let name = HostName { name: "*.lab".into(), kind: NameKind::Pattern, known: known.clone() };
        let rule = ClientRule {
            from: Whom::Name(name),
            protocols: Protocols::Both,
            read_only: false,
            squash: None,
            anonymous: (65_534, 65_534),
        };
        share.clients = Some(vec![rule]);
    };
    now(&harness, by_pattern);
    assert_eq!(crate::reauthorize::reauthorize(&harness.core).await, Taken::default());
    // A new tree connect is refused.
    let request = tree_connect::Request { flags: 0, path: r"\\gate\data".into() };
    let refused = c.ask(Command::TreeConnect, &request.emit()).await.status();
    assert_eq!(refused, Status::ACCESS_DENIED);
    let [ip] = session.addresses()[..] else { panic!("one connection") };
    for (name, ended) in [("ws.lab", 0), ("ws.org", 1)] {
        let facts = ClientFacts { names: vec![name.into()], netgroups: Vec::new() };
        known.set_client(ip.to_canonical(), facts, Instant::now());
        assert_eq!(crate::reauthorize::reauthorize(&harness.core).await.trees, ended, "{name}");
    }
    let harness = Harness::new();
    let _there = harness.client_by(0, Dialect::V302, Transport::Tcp);
    now(&harness, |share| {
        by_pattern(share);
        share.read_only = true;
    });
    known.retain(|_| false, Instant::now() + AGE_MAX);
    assert_eq!(
        crate::reauthorize::reauthorize(&harness.core).await.trees,
        1,
        "nobody changes anything now"
    );
}
