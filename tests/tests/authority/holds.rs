//! A refused operation costs other clients no caching right: it causes no recall of a lease, oplock or delegation.
//!
//! *Operation.* The owner of a file caches it, or its folder, and returns caching rights when recalled. A caller without rights
//! attempts each operation over each protocol: refused ones must not have caused a recall. The superuser does the same, to show
//! which recalls each operation causes when allowed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use client::connect::Local;
use client::nfs4::{
    DelegatedAttrs, Fh, Keeps, Minor, Nfs4, OpenHow, Recall, Recalls, StableHow4, Stateid,
};
use client::smb::{Break, Caching, OpenHow as SmbHow, Options, Smb, SmbFile};
use headgate_tests::world::{World, buf, is_on_ceph};
use tokio::sync::mpsc::Receiver;

use crate::shape::{By, Shape};
use crate::{Caller, Cell, Clients, NEW, OLD, Op, Way, is_root, user, world};

/// `LeaseState`
const READ_WRITE_HANDLE: u32 = 7;

/// The caching right of the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// An SMB lease on the file: read, write, handle.
    Lease,
    /// A write delegation of the file.
    Write,
    /// A delegation of the folder.
    Folder,
}

/// An operation of the table, or READ or WRITE with a special stateid.
#[derive(Clone, Copy, Debug)]
enum Act {
    Table(Op, Way),
    Read,
    Write,
}

struct Owner {
    smb: Smb,
    breaks: Receiver<Break>,
    nfs: Nfs4,
    recalls: Receiver<Recall>,
    keeps: Keeps,
}

/// The owner's state in one cell.
enum Held {
    Lease(SmbFile, [u8; 16]),
    Delegation(Fh, Stateid),
}

impl Owner {
    async fn connect(world: &World) -> Self {
        let local = Local::default();
        let (to, share) = (world.running.smb[0], ("127.0.0.1", "data"));
        let user = user(Caller::Owner);
        let smb = Smb::connect(to, false, share, &user, Options::default(), &local);
        let smb = smb.await.unwrap();
        let (callbacks, recalls) = Recalls::new();
        let keeps = callbacks.keeps();
        let rpc = client::connect::tcp(world.running.nfs[0], &local, Arc::new(callbacks));
        let cred = Caller::Owner.credential();
        let nfs = Nfs4::connect(rpc.await.unwrap(), cred, Minor::Two, b"caches", [3; 8]);
        let (breaks, nfs) = (smb.breaks().unwrap(), nfs.await.unwrap());
        Self { smb, breaks, nfs, recalls, keeps }
    }

    async fn hold(&self, kind: Kind, cell: &Cell) -> Held {
        static KEYS: AtomicU64 = AtomicU64::new(1);
        let nfs = &self.nfs;
        let dir = nfs.walk(&format!("/data/{}/d", cell.name)).await.unwrap();
        match kind {
            Kind::Lease => {
                let key = u128::from(KEYS.fetch_add(1, Ordering::Relaxed)).to_be_bytes();
                let wanted = READ_WRITE_HANDLE;
                let how = SmbHow::WRITE.cached(Caching::Lease(key, wanted));
                let name = format!("{}\\d\\f", cell.name);
                let (file, granted) = self.smb.open_cached(&name, &how).await.unwrap();
                assert_eq!(granted, wanted);
                Held::Lease(file, key)
            }
            Kind::Write => {
                let file = nfs.open(&dir, b"f", b"o", OpenHow::WRITE).await.unwrap();
                let given = file.delegation.filter(|d| d.write).unwrap();
                let attr = nfs.getattr(&file.fh).await.unwrap();
                // The owner has written no data.
                let kept = DelegatedAttrs {
                    change: attr.change,
                    size: OLD.len() as u64,
                    access: (1, 0),
                    modify: (1, 0),
                };
                self.keeps.lock().unwrap().insert(file.fh.clone(), kept);
                if file.is_open() {
                    nfs.close(&file).await.unwrap();
                }
                Held::Delegation(file.fh, given.stateid)
            }
            Kind::Folder => {
                let given = nfs.get_dir_delegation(&dir).await.unwrap();
                Held::Delegation(dir, given.unwrap())
            }
        }
    }

    /// Returns the result of an operation, and whether it caused a recall, which is answered.
    async fn watched<T>(&mut self, held: &Held, asked: impl Future<Output = T>) -> (T, bool) {
        let mut asked = std::pin::pin!(asked);
        let mut is_taken = false;
        loop {
            tokio::select! {
                biased;
                Some(notice) = self.breaks.recv() => is_taken |= self.give_up(held, notice).await,
                Some(recall) = self.recalls.recv() => {
                    if let Held::Delegation(fh, stateid) = held
                        && recall.fh == *fh
                    {
                        is_taken = true;
                        self.nfs.delegreturn(fh, *stateid).await.unwrap();
                    }
                }
                answer = &mut asked => return (answer, is_taken),
            }
        }
    }

    /// True if this notice concerns the held right.
    async fn give_up(&self, held: &Held, notice: Break) -> bool {
        let (Held::Lease(_, key), Break::LeaseNotice(notice)) = (held, notice) else {
            return false;
        };
        if notice.key != *key {
            return false;
        }
        if notice.acknowledge {
            self.smb.acknowledge_lease(notice.key, notice.to).await.unwrap();
        }
        true
    }

    /// Returns the right; true if it was recalled meanwhile.
    async fn release(&mut self, held: Held, mut is_taken: bool) -> bool {
        match held {
            Held::Lease(file, key) => {
                self.smb.close(file).await.unwrap();
                while let Ok(notice) = self.breaks.try_recv() {
                    is_taken |= matches!(notice, Break::LeaseNotice(n) if n.key == key);
                }
            }
            Held::Delegation(fh, stateid) if !is_taken => {
                self.nfs.delegreturn(&fh, stateid).await.unwrap();
                while let Ok(recall) = self.recalls.try_recv() {
                    is_taken |= recall.fh == fh;
                }
            }
            Held::Delegation(..) => {}
        }
        is_taken
    }
}

/// Performs the operation; `None` if the protocol does not have it.
async fn act(clients: &Clients, v4: &Nfs4, cell: &Cell, act: Act, caller: Caller) -> Option<bool> {
    let f = async || v4.walk(&format!("/data/{}/d/f", cell.name)).await.unwrap();
    match act {
        Act::Table(op, way) => clients.ask(cell, op, caller, way).await,
        Act::Read => Some(v4.read(&f().await, Stateid::ANONYMOUS, 0, 4).await.is_ok()),
        Act::Write => {
            let data = vec![buf(NEW)];
            let how = StableHow4::Unstable;
            Some(v4.write(&f().await, Stateid::ANONYMOUS, 0, data, how).await.is_ok())
        }
    }
}

async fn anonymous(world: &World, caller: Caller) -> Nfs4 {
    let local = Local::default();
    let rpc = client::connect::tcp(world.running.nfs[0], &local, Arc::new(client::NoCallbacks));
    let name = format!("no open {caller:?}");
    let cred = caller.credential();
    Nfs4::connect(rpc.await.unwrap(), cred, Minor::Two, name.as_bytes(), [4; 8]).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_operation_causes_no_recall() {
    // No caching rights are granted while the cluster has other clients.
    if !is_root() || is_on_ceph() {
        return;
    }
    let (world, _dir) = world().await;
    let mut owner = Owner::connect(&world).await;
    let shape = Shape::modes("the owner's", 0o755, 0o600);
    let (mut faults, mut took) = (Vec::new(), BTreeSet::new());
    let mut refused = 0;
    let of_table = |(op, _): &(Op, _)| [Way::V3, Way::V4, Way::Smb].map(|way| Act::Table(*op, way));
    let mut acts: Vec<Act> = Op::ALL.iter().flat_map(of_table).collect();
    acts.extend([Act::Read, Act::Write]);
    for caller in [Caller::Other, Caller::Root] {
        let clients = Clients::connect(&world, caller, By::Open).await;
        let v4 = anonymous(&world, caller).await;
        for (n, what) in acts.iter().enumerate() {
            for kind in [Kind::Lease, Kind::Write, Kind::Folder] {
                let cell = format!("holds-{caller:?}-{n}-{kind:?}");
                let cell = Cell::new(&world.folder(), &cell, caller, &shape);
                let held = owner.hold(kind, &cell).await;
                let asked = act(&clients, &v4, &cell, *what, caller);
                let done = owner.watched(&held, asked);
                let done = tokio::time::timeout(Duration::from_secs(60), done).await;
                let (done, is_taken) = done.unwrap_or_else(|_| panic!("{what:?}, {kind:?} hangs"));
                let is_taken = owner.release(held, is_taken).await;
                match done {
                    // An open file cannot be replaced by any caller, and a recall is needed to find out whether it stays open.
                    Some(false) if caller == Caller::Root => {}
                    Some(false) if is_taken => {
                        faults.push(format!("{what:?} by {caller:?}: refused, and took {kind:?}"));
                    }
                    Some(false) => refused += 1,
                    Some(true) if is_taken => drop(took.insert((kind, format!("{what:?}")))),
                    _ => {}
                }
            }
        }
    }
    world.running.stop().await;
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    println!("{refused} refused; with rights {} take something: {took:?}", took.len());
    for (kind, least) in [(Kind::Lease, 20), (Kind::Write, 20), (Kind::Folder, 10)] {
        let count = took.iter().filter(|(its, _)| *its == kind).count();
        assert!(count >= least, "only {count} operations ask for {kind:?}: {took:?}");
    }
}
