//! The operations by NFS 3 and 4.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use client::connect::Local;
use client::nfs3::{CreateHow, Fh as Fh3, Nfs3, SetAttr, Stable};
use client::nfs4::{Fh, Minor, Nfs4, OpenHow, Stateid};
use client::{Credential, Error, NoCallbacks, Result, mount};
use headgate_tests::world::{World, buf};

use crate::shape::{self, Shape, Who};
use crate::{Caller, Cell, FOREIGN, NEW, OLD, Op, TIME};

const EPERM: u32 = 1;
const EACCES: u32 = 13;

/// A caller's clients of both versions.
pub(crate) struct Nfs {
    v3: Nfs3,
    root3: Fh3,
    v4: Nfs4,
}

/// Done, or refused because it is not allowed.
fn allowed(what: Result<()>, of: &str) -> bool {
    match what {
        Ok(()) => true,
        Err(Error::Nfs3(EPERM | EACCES) | Error::Nfs4(_, EPERM | EACCES)) => false,
        Err(e) => panic!("{of}: {e}"),
    }
}

impl Nfs {
    pub(crate) async fn connect(world: &World, caller: Caller) -> Self {
        let (at, local) = (world.running.nfs[0], Local::default());
        let cred = Credential::sys(caller.uid(), caller.uid(), caller.groups());
        let rpc = || client::connect::tcp(at, &local, Arc::new(NoCallbacks));
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{caller:?} {number}");
        let v4 = Nfs4::connect(
            rpc().await.unwrap(),
            cred.clone(),
            Minor::Two,
            name.as_bytes(),
            number.to_be_bytes(),
        );
        let v4 = v4.await.unwrap();
        let root3 = mount::mount(&rpc().await.unwrap(), &cred, "/data").await.unwrap();
        Self { v4, v3: Nfs3::new(rpc().await.unwrap(), cred), root3 }
    }

    /// Gives folder and file of a cell their lists, as the superuser.
    pub(crate) async fn prepare(&self, cell: &Cell, shape: &Shape) {
        for (at, list, mode) in
            [("d/f", &shape.file_list, shape.file), ("d", &shape.dir_list, shape.dir)]
        {
            let Some(list) = list else { continue };
            let fh = self.v4.walk(&format!("/data/{}/{at}", cell.name)).await.unwrap();
            self.v4.set_acl(&fh, &shape::aces(list)).await.unwrap();
            if mode & 0o7000 != 0 {
                debug_assert!(list.iter().any(|(who, _)| *who == Who::Everyone));
                self.v4.setattr(&fh, Stateid::ANONYMOUS, Some(mode), None).await.unwrap();
            }
        }
    }

    pub(crate) async fn by_3(&self, cell: &Cell, op: Op, caller: Caller) -> Option<bool> {
        if matches!(op, Op::SetList | Op::LinkReplace) {
            return None;
        }
        let of = format!("{op:?} by {caller:?}, NFS 3");
        Some(allowed(self.do_3(cell, op, caller).await, &of))
    }

    async fn do_3(&self, cell: &Cell, op: Op, caller: Caller) -> Result<()> {
        let (v3, find) = (&self.v3, |dir: &Fh3, name: &str| {
            let (dir, name) = (Fh3::new(dir.as_bytes()), name.to_owned());
            async move { self.v3.lookup(&dir, name.as_bytes()).await.map(|(fh, _)| fh) }
        });
        let top = find(&self.root3, &cell.name).await?;
        let (d, e) = (find(&top, "d").await?, find(&top, "e").await?);
        let none = SetAttr::default();
        let of_file = async |set: SetAttr| v3.setattr(&find(&d, "f").await?, &set).await;
        match op {
            Op::Read => {
                let read = v3.read(&find(&d, "f").await?, 0, 100).await?;
                assert_eq!(read.len(), OLD.len());
                Ok(())
            }
            Op::Write => {
                v3.write(&find(&d, "f").await?, 0, vec![buf(NEW)], Stable::File).await.map(drop)
            }
            Op::Truncate => of_file(SetAttr { size: Some(1), ..none }).await,
            Op::Create => {
                let set = SetAttr { mode: Some(0o644), ..none };
                v3.create(&d, b"n", CreateHow::Guarded(set)).await.map(drop)
            }
            Op::Mkdir => v3.mkdir(&d, b"n", 0o755).await.map(drop),
            Op::Symlink => v3.symlink(&d, b"n", b"x").await.map(drop),
            Op::Fifo => v3.mkfifo(&d, b"n", 0o600).await.map(drop),
            Op::Device => v3.mkdevice(&d, b"n", 0o600, (1, 3)).await.map(drop),
            Op::Remove => v3.remove(&d, b"f").await,
            Op::RenameIn => v3.rename(&d, b"f", &d, b"g").await,
            Op::RenameOut => v3.rename(&d, b"f", &e, b"g").await,
            Op::Replace => v3.rename(&e, b"own", &d, b"f").await,
            Op::Link => v3.link(&find(&d, "f").await?, &e, b"l").await,
            Op::Chmod => of_file(SetAttr { mode: Some(0o640), ..none }).await,
            Op::SetGroup => of_file(SetAttr { gid: Some(caller.uid()), ..none }).await,
            Op::SetForeignGroup => of_file(SetAttr { gid: Some(FOREIGN), ..none }).await,
            Op::GiveAway => of_file(SetAttr { uid: Some(Caller::Other.uid()), ..none }).await,
            Op::SetTimes => {
                let at = u32::try_from(TIME).unwrap();
                of_file(SetAttr { mtime: Some((at, 0)), ..none }).await
            }
            Op::SetList | Op::LinkReplace => Ok(()),
        }
    }

    pub(crate) async fn by_4(&self, cell: &Cell, op: Op) -> Option<bool> {
        let none = [
            Op::Symlink,
            Op::Fifo,
            Op::Device,
            Op::LinkReplace,
            Op::SetGroup,
            Op::SetForeignGroup,
            Op::GiveAway,
            Op::SetTimes,
        ];
        if none.contains(&op) {
            return None;
        }
        Some(allowed(self.do_4(cell, op).await, &format!("{op:?}, NFS 4")))
    }

    async fn use_4(&self, d: &Fh, access: u32) -> Result<()> {
        let how = OpenHow { access, want: OpenHow::WANT_NO_DELEG, ..OpenHow::READ };
        let file = self.v4.open(d, b"f", b"o", how).await?;
        let done = match access {
            1 => self.v4.read(&file.fh, file.io(), 0, 100).await.map(drop),
            _ => self.v4.write(&file.fh, file.io(), 0, vec![buf(NEW)], 2).await.map(drop),
        };
        self.v4.close(&file).await?;
        done
    }

    async fn do_4(&self, cell: &Cell, op: Op) -> Result<()> {
        let v4 = &self.v4;
        let d = v4.walk(&format!("/data/{}/d", cell.name)).await?;
        let e = v4.walk(&format!("/data/{}/e", cell.name)).await?;
        let f = async || v4.lookup(&d, b"f").await.map(|(fh, _)| fh);
        match op {
            Op::Read => self.use_4(&d, 1).await,
            Op::Write => self.use_4(&d, 2).await,
            Op::Truncate => v4.setattr(&f().await?, Stateid::ANONYMOUS, None, Some(1)).await,
            Op::Create => {
                let how = OpenHow {
                    access: 2,
                    want: OpenHow::WANT_NO_DELEG,
                    guarded: true,
                    ..OpenHow::create(0o644)
                };
                let made = v4.open(&d, b"n", b"o", how).await?;
                v4.close(&made).await
            }
            Op::Mkdir => v4.mkdir(&d, b"n", 0o755).await.map(drop),
            Op::Remove => v4.remove(&d, b"f").await,
            Op::RenameIn => v4.rename(&d, b"f", &d, b"g").await,
            Op::RenameOut => v4.rename(&d, b"f", &e, b"g").await,
            Op::Replace => v4.rename(&e, b"own", &d, b"f").await,
            Op::Link => v4.link(&f().await?, &e, b"l").await,
            Op::Chmod => v4.setattr(&f().await?, Stateid::ANONYMOUS, Some(0o640), None).await,
            Op::SetList => {
                let list = shape::aces(&[(Who::Owner, shape::CHANGE)]);
                v4.set_acl(&f().await?, &list).await
            }
            _ => Ok(()),
        }
    }
}
