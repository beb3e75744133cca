//! Use of a stateid, or an owner's name, that belongs to another holder.
//!
//! *Operation.* A stateid is not secret: RFC 8881 section 9.1.2 binds it to an owner, and section 2.4 the owner to a client, not to
//! a user. So its use requires the client that obtained it, and access to the file requires the caller's own rights; releasing
//! needs no rights, because a client may do that for a user who has gone. Each cell has an open of the file's owner, a lock and a
//! delegation. A refused operation must leave the holder's state unchanged.

use std::sync::Arc;

use client::connect::Local;
use client::nfs4::ops::{
    ExistLockOwner4, Lock, Locker4, Locku, OpenDowngrade, OpenToLockOwner4, TestStateid, Tested,
};
use client::nfs4::{
    Compound, Fattr, Fh, LockType4, Minor, Nfs4, OpenFile, OpenHow, Results, StableHow4,
    StateOwner4, Stateid, op,
};
use client::{Credential, Error, NoCallbacks, Result};
use headgate_tests::world::{World, buf};
use nfs_proto::nfs4::Nfsstat4;

use crate::shape::Shape;
use crate::{Caller, Cell, NEW};

const EACCES: u32 = 13;
/// `NFS4ERR_BAD_STATEID`
const BAD_STATEID: u32 = 10025;
/// The range locked by the holder, and the range that another caller tries to lock.
const LOCKED: (u64, u64) = (0, 4);
const FREE: (u64, u64) = (4, 4);

/// The caller that uses the stateid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comer {
    /// The user who obtained it.
    Holder,
    /// Another user of the same client, with rights on the file.
    Entitled,
    /// Another user of the same client, without rights.
    Other,
    /// The same user, through another client.
    Elsewhere,
}

impl Comer {
    pub(crate) const ALL: [(Self, &'static str); 4] = [
        (Self::Holder, "its holder"),
        (Self::Entitled, "another user who may use the file"),
        (Self::Other, "another user who may not"),
        (Self::Elsewhere, "another client, the same user"),
    ];

    fn credential(self) -> Credential {
        match self {
            Self::Holder | Self::Elsewhere => Caller::Owner.credential(),
            Self::Entitled => Caller::Root.credential(),
            Self::Other => Caller::Other.credential(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Read,
    ReadByLock,
    ReadByDelegation,
    Write,
    WriteByLock,
    SetSize,
    OpenAgain,
    Lock,
    LockAgain,
    Unlock,
    Downgrade,
    Close,
    Return,
    Free,
    Test,
}

impl Use {
    pub(crate) const ALL: [(Self, &'static str); 15] = [
        (Self::Read, "READ by an open"),
        (Self::ReadByLock, "READ by a lock"),
        (Self::ReadByDelegation, "READ by a delegation"),
        (Self::Write, "WRITE by an open"),
        (Self::WriteByLock, "WRITE by a lock"),
        (Self::SetSize, "SETATTR of the size"),
        (Self::OpenAgain, "OPEN as its open-owner"),
        (Self::Lock, "LOCK by an open, as its lock-owner"),
        (Self::LockAgain, "LOCK by a lock"),
        (Self::Unlock, "LOCKU"),
        (Self::Downgrade, "OPEN_DOWNGRADE"),
        (Self::Close, "CLOSE"),
        (Self::Return, "DELEGRETURN"),
        (Self::Free, "FREE_STATEID of a released lock"),
        (Self::Test, "TEST_STATEID"),
    ];

    /// True if it needs a right on the file; all others release state, or query it.
    fn uses_the_file(self) -> bool {
        !matches!(
            self,
            Self::Unlock | Self::Downgrade | Self::Close | Self::Return | Self::Free | Self::Test
        )
    }
}

/// The model: RFC 8881 section 8.2.4 for the client, the mode of the file, 0600, for the user.
fn may(comer: Comer, what: Use) -> bool {
    match comer {
        // Creates its own owner, which is unrelated to the other client's of the same name.
        Comer::Elsewhere => what == Use::OpenAgain,
        Comer::Holder | Comer::Entitled => true,
        Comer::Other => !what.uses_the_file(),
    }
}

/// The result of a cell.
pub(crate) struct Asked {
    pub(crate) what: Use,
    pub(crate) comer: Comer,
    pub(crate) done: bool,
}

async fn connect(world: &World, name: &str) -> Nfs4 {
    let local = Local::default();
    let rpc = client::connect::tcp(world.running.nfs[0], &local, Arc::new(NoCallbacks));
    let cred = Caller::Owner.credential();
    let rpc = rpc.await.unwrap();
    Nfs4::connect(rpc, cred, Minor::Two, name.as_bytes(), [1; 8]).await.unwrap()
}

/// The holder's state in one cell.
struct Held {
    dir: Fh,
    file: OpenFile,
    lock: Stateid,
    /// The second file, with its delegation.
    lent: OpenFile,
}

impl Held {
    /// Opens two files: a locked file has no delegation.
    async fn new(holder: &Nfs4, cell: &Cell) -> Self {
        let dir = holder.walk(&format!("/data/{}/d", cell.name)).await.unwrap();
        let none = OpenHow { want: OpenHow::WANT_NO_DELEG, ..OpenHow::WRITE };
        // OPEN_DOWNGRADE returns to an earlier mode (RFC 8881 section 18.18.3).
        holder.open(&dir, b"f", b"o", OpenHow { access: 1, ..none }).await.unwrap();
        let file = holder.open(&dir, b"f", b"o", none).await.unwrap();
        let lock = holder.lock(&file, b"l", LockType4::Write, LOCKED).await.unwrap();
        let how = OpenHow { truncate: false, ..OpenHow::create(0o600) };
        let lent = holder.open(&dir, b"lent", b"o", how).await.unwrap();
        assert!(lent.delegation.is_some(), "a client that is called back has a file for itself");
        Self { dir, file, lock, lent }
    }

    /// True if the holder has lost no state.
    async fn is_whole(&self, holder: &Nfs4) -> bool {
        let given = self.lent.delegation.unwrap().stateid;
        let stateids = vec![self.file.stateid, self.lock, self.lent.stateid, given];
        let c = holder.compound().op(op::TEST_STATEID, &TestStateid { stateids });
        let answer = holder.call(c).await.unwrap();
        let mut results = Results::new(&answer).unwrap();
        results.sequence().unwrap();
        let tested: Tested = results.next(op::TEST_STATEID).unwrap();
        tested.status_codes.iter().all(|status| *status == Nfsstat4::Ok)
    }
}

/// Performs the operation in the session of `by`, with the stateids of `held`.
async fn ask(by: &Nfs4, held: &Held, comer: Comer, what: Use) -> Result<()> {
    let given = held.lent.delegation.unwrap().stateid;
    let (open, lock) = (held.file.stateid, held.lock);
    let at = |fh: &Fh| by.compound_of(&comer.credential()).putfh(fh);
    let f = &held.file.fh;
    let data = || vec![buf(NEW)];
    let locking = |locker| {
        let (offset, length) = FREE;
        Lock { locktype: LockType4::Write, reclaim: false, offset, length, locker }
    };
    let (number, c): (u32, Compound) = match what {
        Use::Read => (op::READ, at(f).read(open, 0, 4)),
        Use::ReadByLock => (op::READ, at(f).read(lock, 0, 4)),
        Use::ReadByDelegation => (op::READ, at(&held.lent.fh).read(given, 0, 4)),
        Use::Write => (op::WRITE, at(f).write(open, 0, data(), StableHow4::Unstable)),
        Use::WriteByLock => (op::WRITE, at(f).write(lock, 0, data(), StableHow4::Unstable)),
        Use::SetSize => (op::SETATTR, at(f).setattr(open, &Fattr::mode_and_size(None, Some(2)))),
        Use::OpenAgain => {
            let how = OpenHow { want: OpenHow::WANT_NO_DELEG, ..OpenHow::READ };
            (op::OPEN, at(&held.dir).open(by.clientid(), b"o", b"f", how))
        }
        Use::Lock => {
            let lock_owner = StateOwner4 { clientid: by.clientid(), owner: b"l" };
            let (open_seqid, lock_seqid) = (0, 0);
            let by_open =
                OpenToLockOwner4 { open_seqid, open_stateid: open, lock_seqid, lock_owner };
            (op::LOCK, at(f).op(op::LOCK, &locking(Locker4::Open(by_open))))
        }
        Use::LockAgain => {
            let by_lock = ExistLockOwner4 { lock_stateid: lock, lock_seqid: 0 };
            (op::LOCK, at(f).op(op::LOCK, &locking(Locker4::Exist(by_lock))))
        }
        Use::Unlock => (op::LOCKU, at(f).op(op::LOCKU, &unlocking(lock))),
        Use::Downgrade => {
            let args =
                OpenDowngrade { open_stateid: open, seqid: 0, share_access: 1, share_deny: 0 };
            (op::OPEN_DOWNGRADE, at(f).op(op::OPEN_DOWNGRADE, &args))
        }
        Use::Close => (op::CLOSE, at(f).close(open)),
        Use::Return => (op::DELEGRETURN, at(&held.lent.fh).delegreturn(given)),
        Use::Free => (op::FREE_STATEID, at(f).op(op::FREE_STATEID, &lock)),
        Use::Test => {
            let args = TestStateid { stateids: vec![open] };
            (op::TEST_STATEID, at(f).op(op::TEST_STATEID, &args))
        }
    };
    let answer = by.call(c).await?;
    let mut results = Results::new(&answer)?;
    results.sequence()?;
    results.next::<()>(op::PUTFH)?;
    if what != Use::Test {
        return results.next::<()>(number);
    }
    let tested: Tested = results.next(number)?;
    match tested.status_codes[..] {
        [Nfsstat4::Ok] => Ok(()),
        [status] => Err(Error::Nfs4(number, status as u32)),
        _ => panic!("one stateid was asked about: {tested:?}"),
    }
}

fn unlocking(lock_stateid: Stateid) -> Locku {
    let (offset, length) = LOCKED;
    Locku { locktype: LockType4::Write, seqid: 0, lock_stateid, offset, length }
}

/// Runs every cell; returns the results and the errors.
pub(crate) async fn ask_all(world: &World) -> (Vec<Asked>, Vec<String>) {
    let holder = connect(world, "holder").await;
    let elsewhere = connect(world, "elsewhere").await;
    let shape = Shape::modes("the owner's", 0o755, 0o600);
    let (mut asked, mut faults) = (Vec::new(), Vec::new());
    for (what, _) in Use::ALL {
        for (comer, _) in Comer::ALL {
            let of = format!("{what:?} by {comer:?}");
            let name = format!("stateids-{what:?}-{comer:?}");
            let cell = Cell::new(&world.folder(), &name, Caller::Owner, &shape);
            let mut held = Held::new(&holder, &cell).await;
            if what == Use::Free {
                let c = holder.compound().putfh(&held.file.fh).op(op::LOCKU, &unlocking(held.lock));
                let answer = holder.call(c).await.unwrap();
                let mut results = Results::new(&answer).unwrap();
                results.sequence().unwrap();
                results.next::<()>(op::PUTFH).unwrap();
                held.lock = results.next(op::LOCKU).unwrap();
            }
            let by = if comer == Comer::Elsewhere { &elsewhere } else { &holder };
            let done = ask(by, &held, comer, what).await;
            let wanted = may(comer, what);
            match &done {
                Ok(()) if wanted => {}
                // The stateid itself is wrong for another client, for any user.
                Err(Error::Nfs4(_, BAD_STATEID)) if !wanted && comer == Comer::Elsewhere => {}
                Err(Error::Nfs4(_, EACCES)) if !wanted && comer == Comer::Other => {}
                other => faults.push(format!("{of}: {other:?}, by the model {wanted}")),
            }
            if done.is_err() && !held.is_whole(&holder).await {
                faults.push(format!("{of}: refused, and the holder lost something"));
            }
            asked.push(Asked { what, comer, done: done.is_ok() });
        }
    }
    (asked, faults)
}
