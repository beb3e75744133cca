//! Who may do what: every operation that reads, changes, makes, removes, renames, links or re-permits, by every protocol, times the
//! shape of the object, times the caller.
//!
//! *Operation.* Each cell has a folder and a file of its own. What the gateway answers is compared with what is on the host
//! afterwards, with a slow obvious model ([`model`]), and where mode bits and POSIX ACLs alone decide with the kernel, which is
//! asked by the same call in a thread that has the caller's credentials ([`kernel`]). The table is written into
//! `docs/permissions.md` (`HEADGATE_UPDATE=1`), and what stands there is compared with what was seen.

#![allow(clippy::unwrap_used)]

mod document;
mod kernel;
mod model;
mod nfs;
mod random;
mod shape;
mod smb;

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use client::smb::User;
use config::Identity;
use headgate_tests::world::World;
use headgate_tests::world::smb::{alice, with_alice};
use shape::Shape;

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    Root,
    Owner,
    /// In the file's group by a supplementary group.
    Member,
    Other,
    /// Named by lists alone.
    Listed,
}

impl Caller {
    pub(crate) const ALL: [Self; 5] =
        [Self::Root, Self::Owner, Self::Member, Self::Other, Self::Listed];

    pub(crate) fn uid(self) -> u32 {
        match self {
            Self::Root => 0,
            Self::Owner => 1001,
            Self::Member => 1002,
            Self::Other => 1003,
            Self::Listed => 1004,
        }
    }

    pub(crate) fn groups(self) -> &'static [u32] {
        if self == Self::Member { &[1001] } else { &[] }
    }

    pub(crate) fn is_in(self, gid: u32) -> bool {
        self.uid() == gid || self.groups().contains(&gid)
    }
}

/// What is done to the file `d/f`, or in its folder `d`. `e` is a folder that everybody may change, with a file of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Read,
    Write,
    Truncate,
    Create,
    Mkdir,
    Symlink,
    Fifo,
    Device,
    Remove,
    RenameIn,
    RenameOut,
    Replace,
    Link,
    LinkReplace,
    Chmod,
    SetGroup,
    SetForeignGroup,
    GiveAway,
    SetTimes,
    SetList,
}

impl Op {
    pub(crate) const ALL: [Self; 20] = [
        Self::Read,
        Self::Write,
        Self::Truncate,
        Self::Create,
        Self::Mkdir,
        Self::Symlink,
        Self::Fifo,
        Self::Device,
        Self::Remove,
        Self::RenameIn,
        Self::RenameOut,
        Self::Replace,
        Self::Link,
        Self::LinkReplace,
        Self::Chmod,
        Self::SetGroup,
        Self::SetForeignGroup,
        Self::GiveAway,
        Self::SetTimes,
        Self::SetList,
    ];
}

/// By what it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    V3,
    V4,
    Smb,
}

pub(crate) const FOREIGN: u32 = 7;
pub(crate) const TIME: i64 = 1_000_000_000;
pub(crate) const OLD: &[u8] = b"old data";
pub(crate) const NEW: &[u8] = b"new";

/// The folder of one cell, made on the host.
pub(crate) struct Cell {
    pub(crate) path: PathBuf,
    pub(crate) name: String,
}

pub(crate) fn own(path: &Path, uid: u32, gid: u32, mode: u32) {
    std::os::unix::fs::lchown(path, Some(uid), Some(gid)).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

impl Cell {
    pub(crate) fn new(top: &Path, name: &str, caller: Caller, shape: &Shape) -> Self {
        let name = name.to_owned();
        let path = top.join(&name);
        for dir in ["", "d", "e"] {
            std::fs::create_dir(path.join(dir)).unwrap();
        }
        std::fs::write(path.join("d/f"), OLD).unwrap();
        std::fs::write(path.join("e/own"), NEW).unwrap();
        own(&path, 0, 0, 0o755);
        own(&path.join("e"), 0, 0, 0o777);
        own(&path.join("e/own"), caller.uid(), caller.uid(), 0o666);
        let of = Caller::Owner.uid();
        own(&path.join("d/f"), of, of, shape.file);
        own(&path.join("d"), of, of, shape.dir);
        shape.posix(&path);
        Self { path, name }
    }

    /// What is on the host shows that it was done; of what leaves nothing to see, that it was not undone.
    pub(crate) fn shows(&self, op: Op, caller: Caller) -> bool {
        let meta = |at: &str| std::fs::symlink_metadata(self.path.join(at)).ok();
        let f = meta("d/f");
        let text = |at: &str| std::fs::read(self.path.join(at)).unwrap_or_default();
        let made = |kind: fn(std::fs::FileType) -> bool| {
            meta("d/n").is_some_and(|m| kind(m.file_type()) && m.uid() == caller.uid())
        };
        use std::os::unix::fs::FileTypeExt;
        match op {
            Op::Read | Op::SetList => true,
            Op::Write => text("d/f").starts_with(NEW),
            Op::Truncate => f.is_some_and(|m| m.len() == 1),
            Op::Create => made(|t| t.is_file()),
            Op::Mkdir => made(|t| t.is_dir()),
            Op::Symlink => made(|t| t.is_symlink()),
            Op::Fifo => made(|t| t.is_fifo()),
            Op::Device => made(|t| t.is_char_device()),
            Op::Remove => f.is_none(),
            Op::RenameIn => f.is_none() && text("d/g") == OLD,
            Op::RenameOut => f.is_none() && text("e/g") == OLD,
            Op::Replace => text("d/f") == NEW && meta("e/own").is_none(),
            Op::LinkReplace => text("d/f") == NEW && meta("e/own").is_some_and(|m| m.nlink() == 2),
            Op::Link => text("e/l") == OLD && f.is_some_and(|m| m.nlink() == 2),
            Op::Chmod => f.is_some_and(|m| m.mode() & 0o777 == 0o640),
            Op::SetGroup => f.is_some_and(|m| m.gid() == caller.uid()),
            Op::SetForeignGroup => f.is_some_and(|m| m.gid() == FOREIGN),
            Op::GiveAway => f.is_some_and(|m| m.uid() == Caller::Other.uid()),
            Op::SetTimes => f.is_some_and(|m| m.mtime() == TIME),
        }
    }
}

pub(crate) fn user(caller: Caller) -> User {
    User { name: format!("{caller:?}").to_lowercase(), ..alice() }
}

/// A gateway over a folder of the host that everybody may walk to, with a user of SMB for each caller.
pub(crate) async fn world() -> (World, tempfile::TempDir) {
    let (world, dir) = with_alice(|settings| {
        for caller in Caller::ALL {
            let mut user = settings.users[0].clone();
            user.name = format!("{caller:?}").to_lowercase();
            user.identity = Identity {
                uid: Some(caller.uid()),
                gid: Some(caller.uid()),
                groups: Some(caller.groups().to_vec()),
            };
            settings.users.push(user);
        }
    })
    .await;
    let folder = world.folder();
    own(folder.parent().unwrap(), 0, 0, 0o755);
    (world, dir)
}

pub(crate) fn is_root() -> bool {
    let yes = rustix::process::geteuid().is_root();
    if !yes {
        println!("skipped: serving callers as themselves needs root");
    }
    yes
}

/// One cell of the table: what each way answered; `None`: it has no such operation.
pub(crate) struct Seen {
    pub(crate) shape: &'static str,
    pub(crate) op: Op,
    pub(crate) caller: Caller,
    pub(crate) ways: [Option<bool>; 3],
}

/// The clients of one caller, and of the superuser to prepare what it meets.
struct Asker {
    caller: Caller,
    top: PathBuf,
    setter: nfs::Nfs,
    nfs: nfs::Nfs,
    smb: client::smb::Smb,
    /// Cells that were made.
    cells: usize,
    faults: Vec<String>,
}

impl Asker {
    async fn connect(world: &World, caller: Caller) -> Self {
        Self {
            caller,
            top: world.folder(),
            setter: nfs::Nfs::connect(world, Caller::Root).await,
            nfs: nfs::Nfs::connect(world, caller).await,
            smb: smb::connect(world, caller).await,
            cells: 0,
            faults: Vec::new(),
        }
    }

    fn cell(&mut self, shape: &Shape) -> Cell {
        self.cells += 1;
        Cell::new(&self.top, &format!("{:?}-{}", self.caller, self.cells), self.caller, shape)
    }

    /// What this way answers, which must be what the host shows, the model says, and the kernel where it was asked.
    async fn ask(&mut self, shape: &Shape, op: Op, way: Way, kernel: Option<bool>) -> Option<bool> {
        let (cell, caller) = (self.cell(shape), self.caller);
        self.setter.prepare(&cell, shape).await;
        let done = match way {
            Way::V3 => self.nfs.by_3(&cell, op, caller).await?,
            Way::V4 => self.nfs.by_4(&cell, op).await?,
            Way::Smb => smb::by_smb(&self.smb, &cell, op, caller).await?,
        };
        let of = format!("{}, {op:?} by {caller:?}, {way:?}: {done}", shape.name);
        // What leaves nothing to see was done as far as it was answered.
        let hidden = matches!(op, Op::Read | Op::SetList) || shape.is_so(op, caller);
        if !hidden && done != cell.shows(op, caller) {
            self.faults.push(format!("{of}, and the host shows the contrary"));
        }
        if done != model::may(shape, op, caller, way) {
            self.faults.push(format!("{of}, by the model the contrary"));
        }
        if kernel.is_some_and(|k| k != done) && !model::is_of_nfs(shape, op, caller, way) {
            self.faults.push(format!("{of}, by the kernel the contrary"));
        }
        Some(done)
    }

    async fn ask_all(mut self) -> (Vec<Seen>, Vec<String>) {
        let mut table = Vec::new();
        for shape in shape::all() {
            for op in Op::ALL {
                let kernel =
                    shape.is_kernels().then(|| kernel::may(&self.cell(&shape), op, self.caller));
                let mut ways = [None; 3];
                for (seen, way) in ways.iter_mut().zip([Way::V3, Way::V4, Way::Smb]) {
                    *seen = self.ask(&shape, op, way, kernel).await;
                }
                table.push(Seen { shape: shape.name, op, caller: self.caller, ways });
            }
        }
        (table, self.faults)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn everybody_gets_their_rights_and_no_more() {
    if !is_root() {
        return;
    }
    let (world, _dir) = world().await;
    let mut askers = Vec::new();
    for caller in Caller::ALL {
        askers.push(tokio::spawn(Asker::connect(&world, caller).await.ask_all()));
    }
    let (mut table, mut faults) = (Vec::new(), Vec::new());
    for asker in askers {
        let (seen, its) = asker.await.unwrap();
        table.extend(seen);
        faults.extend(its);
    }
    world.running.stop().await;
    assert_eq!(table.len(), Caller::ALL.len() * shape::all().len() * Op::ALL.len());
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    document::compare(&table);
}
