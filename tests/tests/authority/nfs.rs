//! The operations over NFS 3 and 4.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use client::connect::Local;
use client::nfs3::{CreateHow, Fh as Fh3, Nfs3, SetAttr, Stable};
use client::nfs4::{
    Compound, Fattr, Fh, Minor, Nfs4, OpenHow, Results, StableHow4, Stateid, Value, attr, op,
};
use client::{Error, NoCallbacks, Result, mount};
use headgate_tests::world::{World, buf};
use nfs_proto::nfs4::attrs::Settime4;
use nfs_proto::nfs4::ops::{Allocate, Component4, Copy4, Createtype4, Setxattr};
use nfs_proto::nfs4::{Nfstime4, Specdata4};

use crate::shape::{self, By, Shape};
use crate::{Caller, Cell, FOREIGN, MORE, NEW, OLD, Op, TIME};

const EPERM: u32 = 1;
const EACCES: u32 = 13;
const EROFS: u32 = 30;
const FILE_SYNC: StableHow4 = StableHow4::FileSync;

/// A caller's clients of both versions, of one share.
pub(crate) struct Nfs {
    share: &'static str,
    v3: Nfs3,
    root3: Fh3,
    v4: Nfs4,
}

/// True if done, false if refused for lack of rights.
fn allowed(what: Result<()>, of: &str) -> bool {
    match what {
        Ok(()) => true,
        Err(Error::Nfs3(EPERM | EACCES | EROFS)) => false,
        Err(Error::Nfs4(_, EPERM | EACCES | EROFS)) => false,
        Err(e) => panic!("{of}: {e}"),
    }
}

impl Nfs {
    pub(crate) async fn connect(world: &World, caller: Caller, by: By) -> Self {
        let (at, share) = (world.running.nfs[0], caller.share(by));
        let local = Local { from: Some(by.address()), ..Local::default() };
        let cred = caller.credential();
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
        let root3 = mount::mount(&rpc().await.unwrap(), &cred, &format!("/{share}")).await.unwrap();
        Self { share, v4, v3: Nfs3::new(rpc().await.unwrap(), cred), root3 }
    }

    /// Sets the lists of a cell's folder and file, as the superuser.
    pub(crate) async fn prepare(&self, cell: &Cell, shape: &Shape) {
        // FILE_INHERIT and DIRECTORY_INHERIT (RFC 8881 section 6.2.1.4.1).
        let (passed, file_list) = match shape.inherits {
            true => (3, None),
            false => (0, shape.file_list.as_ref()),
        };
        for (at, list, flags, mode) in
            [("d/f", file_list, 0, shape.file), ("d", shape.dir_list.as_ref(), passed, shape.dir)]
        {
            let Some(list) = list else { continue };
            let fh = self.v4.walk(&format!("/data/{}/{at}", cell.name)).await.unwrap();
            self.v4.set_acl(&fh, &shape::aces(list, flags)).await.unwrap();
            if mode & 0o7000 != 0 {
                self.v4.setattr(&fh, Stateid::ANONYMOUS, Some(mode), None).await.unwrap();
            }
        }
    }

    /// Recreates the file of a cell, so that it inherits.
    pub(crate) async fn make(&self, cell: &Cell) {
        let d = self.v4.walk(&format!("/data/{}/d", cell.name)).await.unwrap();
        self.v4.remove(&d, b"f").await.unwrap();
        let file = self.v4.open(&d, b"f", b"o", OpenHow::create(0o777)).await.unwrap();
        self.v4.write(&file.fh, file.io(), 0, vec![buf(OLD)], FILE_SYNC).await.unwrap();
        self.v4.close(&file).await.unwrap();
        if let Some(given) = file.delegation {
            self.v4.delegreturn(&file.fh, given.stateid).await.unwrap();
        }
    }

    pub(crate) async fn by_3(&self, cell: &Cell, op: Op, caller: Caller) -> Option<bool> {
        let more = [Op::Allocate, Op::ZeroData, Op::Copy, Op::SetEa, Op::SetList, Op::LinkReplace];
        if !crate::kernel::has(op) || more.contains(&op) {
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
            Op::Append => {
                let at = OLD.len() as u64;
                let file = find(&d, "f").await?;
                v3.write(&file, at, vec![buf(NEW)], Stable::File).await.map(drop)
            }
            Op::Truncate => of_file(SetAttr { size: Some(1), ..none }).await,
            Op::Overwrite => {
                let set = SetAttr { size: Some(0), ..none };
                v3.create(&d, b"f", CreateHow::Unchecked(set)).await.map(drop)
            }
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
            Op::SetGroup => of_file(SetAttr { gid: Some(caller.gid()), ..none }).await,
            Op::SetForeignGroup => of_file(SetAttr { gid: Some(FOREIGN), ..none }).await,
            Op::GiveAway => of_file(SetAttr { uid: Some(Caller::Other.uid()), ..none }).await,
            Op::SetTimes => {
                let at = u32::try_from(TIME).unwrap();
                of_file(SetAttr { mtime: Some((at, 0)), ..none }).await
            }
            _ => panic!("{op:?} is not of NFS 3"),
        }
    }

    pub(crate) async fn by_4(&self, cell: &Cell, op: Op, caller: Caller) -> Option<bool> {
        if !crate::kernel::has(op) || op == Op::LinkReplace {
            return None;
        }
        let of = format!("{op:?} by {caller:?}, NFS 4");
        Some(allowed(self.do_4(cell, op, caller).await, &of))
    }

    async fn use_4(&self, d: &Fh, access: u32) -> Result<()> {
        let how = OpenHow { access, want: OpenHow::WANT_NO_DELEG, ..OpenHow::READ };
        let file = self.v4.open(d, b"f", b"o", how).await?;
        let done = match access {
            1 => self.v4.read(&file.fh, file.io(), 0, 100).await.map(drop),
            _ => self.v4.write(&file.fh, file.io(), 0, vec![buf(NEW)], FILE_SYNC).await.map(drop),
        };
        self.v4.close(&file).await?;
        done
    }

    /// Runs operations after SEQUENCE, beginning with PUTFH; the results of all but the last are empty.
    async fn run_4(&self, c: Compound, ops: &[u32]) -> Result<()> {
        let answer = self.v4.call(c).await?;
        let mut results = Results::new(&answer)?;
        results.sequence()?;
        ops.iter().try_for_each(|op| results.next::<()>(*op))
    }

    /// SETATTR of one attribute.
    async fn set_4(&self, fh: &Fh, bit: u32, value: Value<'_>) -> Result<()> {
        let fattr = Fattr::of(&[bit], &[value]);
        let c = self.v4.compound().putfh(fh).setattr(Stateid::ANONYMOUS, &fattr);
        self.run_4(c, &[op::PUTFH, op::SETATTR]).await
    }

    /// CREATE of an object other than file and folder.
    async fn node_4(&self, d: &Fh, what: Createtype4<'_>) -> Result<()> {
        let c = self.v4.compound().putfh(d).create(b"n", what, 0o600);
        self.run_4(c, &[op::PUTFH, op::CREATE]).await
    }

    async fn data_4(&self, f: &Fh, op: Op, own: &Fh) -> Result<()> {
        let (c, stateid) = (self.v4.compound(), Stateid::ANONYMOUS);
        let (c, number) = match op {
            Op::Copy => {
                let whole = Copy4 {
                    src_stateid: stateid,
                    dst_stateid: stateid,
                    src_offset: 0,
                    dst_offset: 0,
                    count: 0,
                    consecutive: true,
                    synchronous: true,
                    source_server: Vec::new(),
                };
                let c = c.putfh(own).savefh().putfh(f).op(op::COPY, &whole);
                return self.run_4(c, &[op::PUTFH, op::SAVEFH, op::PUTFH, op::COPY]).await;
            }
            Op::SetEa => {
                let args = Setxattr { option: 0, key: b"x", value: b"y" };
                (c.putfh(f).op(op::SETXATTR, &args), op::SETXATTR)
            }
            _ => {
                let (number, length) = match op {
                    Op::Allocate => (op::ALLOCATE, MORE),
                    _ => (op::DEALLOCATE, 4),
                };
                let args = Allocate { stateid, offset: 0, length };
                (c.putfh(f).op(number, &args), number)
            }
        };
        self.run_4(c, &[op::PUTFH, number]).await
    }

    async fn do_4(&self, cell: &Cell, op: Op, caller: Caller) -> Result<()> {
        let v4 = &self.v4;
        let d = v4.walk(&format!("/{}/{}/d", self.share, cell.name)).await?;
        let e = v4.walk(&format!("/{}/{}/e", self.share, cell.name)).await?;
        let f = async || v4.lookup(&d, b"f").await.map(|(fh, _)| fh);
        match op {
            Op::Read => self.use_4(&d, 1).await,
            Op::Write => self.use_4(&d, 2).await,
            Op::Append => {
                let (at, f) = (OLD.len() as u64, f().await?);
                v4.write(&f, Stateid::ANONYMOUS, at, vec![buf(NEW)], FILE_SYNC).await.map(drop)
            }
            Op::Overwrite => {
                let want = OpenHow::WANT_NO_DELEG;
                let how = OpenHow { access: 2, want, ..OpenHow::create(0o644) };
                let file = v4.open(&d, b"f", b"o", how).await?;
                v4.close(&file).await
            }
            Op::Allocate | Op::ZeroData | Op::Copy | Op::SetEa => {
                let (own, _) = v4.lookup(&e, b"own").await?;
                self.data_4(&f().await?, op, &own).await
            }
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
            Op::Symlink => {
                let c = v4.compound().putfh(&d).symlink(b"n", b"x");
                self.run_4(c, &[op::PUTFH, op::CREATE]).await
            }
            Op::Fifo => self.node_4(&d, Createtype4::Fifo).await,
            Op::Device => {
                let device = Specdata4 { specdata1: 1, specdata2: 3 };
                self.node_4(&d, Createtype4::Chr(device)).await
            }
            Op::Remove => v4.remove(&d, b"f").await,
            Op::RenameIn => v4.rename(&d, b"f", &d, b"g").await,
            Op::RenameOut => v4.rename(&d, b"f", &e, b"g").await,
            Op::Replace => v4.rename(&e, b"own", &d, b"f").await,
            Op::Link => v4.link(&f().await?, &e, b"l").await,
            Op::Chmod => v4.setattr(&f().await?, Stateid::ANONYMOUS, Some(0o640), None).await,
            Op::SetList => {
                let list = shape::aces(&[(shape::Who::Owner, shape::CHANGE)], 0);
                v4.set_acl(&f().await?, &list).await
            }
            Op::SetGroup => self.group_4(&f().await?, caller.gid()).await,
            Op::SetForeignGroup => self.group_4(&f().await?, FOREIGN).await,
            Op::GiveAway => {
                let to = Caller::Other.uid().to_string();
                let owner = Value::Owner(Component4 { name: to.as_bytes() });
                self.set_4(&f().await?, attr::OWNER, owner).await
            }
            Op::SetTimes => {
                let time = Nfstime4 { seconds: TIME, nseconds: 0 };
                let time = Value::TimeModifySet(Settime4::ClientTime(time));
                self.set_4(&f().await?, attr::TIME_MODIFY_SET, time).await
            }
            _ => panic!("{op:?} is not of NFS 4"),
        }
    }

    async fn group_4(&self, f: &Fh, gid: u32) -> Result<()> {
        let gid = gid.to_string();
        self.set_4(f, attr::OWNER_GROUP, Value::OwnerGroup(Component4 { name: gid.as_bytes() }))
            .await
    }
}
