//! Access control of every operation that reads, changes, creates, removes, renames, links or changes permissions, over every
//! protocol, for every shape of the object and every caller; and the use of another holder's stateids ([`stateids`]).
//!
//! *Operation.* Each cell has a separate folder and file. The gateway's answer is compared with the state of the host afterwards,
//! with a slow, obvious model ([`model`]), and, if mode bits and POSIX ACLs decide, with the kernel, which performs the same call
//! in a thread with the caller's credentials ([`kernel`]). The table in `table.md` is compared with the results (or
//! written, with `HEADGATE_UPDATE=1`). On CephFS (`cargo xtask ceph authority`) the kernel is the cluster's own client, ceph-fuse.

#![allow(clippy::unwrap_used)]

mod document;
mod holds;
mod kernel;
mod model;
mod nfs;
mod ops;
mod random;
mod shape;
mod smb;
mod stateids;

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use client::Credential;
use client::smb::User;
use config::{Access, Client, Durability, Identity, Share, Squash, Whom};
use headgate_tests::world::smb::{alice, with_alice};
use headgate_tests::world::{World, is_on_ceph};
pub(crate) use model::Acting;
pub(crate) use ops::Op;
use rustix::fs::IFlags;
use shape::{By, Shape};
use vfs::ANONYMOUS;

/// A user of the matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    Root,
    Owner,
    /// A member of the file's group by primary group.
    Group,
    /// A member of the file's group by supplementary group.
    Member,
    Other,
    /// Has rights only by access control lists.
    Listed,
    /// A client's root, through a share that squashes it.
    Squashed,
    /// Sends no identity: AUTH_NONE, or an SMB guest.
    Guest,
}

impl Caller {
    pub(crate) const ALL: [Self; 8] = [
        Self::Root,
        Self::Owner,
        Self::Group,
        Self::Member,
        Self::Other,
        Self::Listed,
        Self::Squashed,
        Self::Guest,
    ];

    /// Returns the caller's user id on the host.
    pub(crate) fn uid(self) -> u32 {
        match self {
            Self::Root => 0,
            Self::Owner => 1001,
            Self::Member => 1002,
            Self::Other => 1003,
            Self::Listed => 1004,
            Self::Group => 1005,
            Self::Squashed | Self::Guest => ANONYMOUS,
        }
    }

    pub(crate) fn gid(self) -> u32 {
        if self == Self::Group { Self::Owner.uid() } else { self.uid() }
    }

    pub(crate) fn groups(self) -> &'static [u32] {
        if self == Self::Member { &[1001] } else { &[] }
    }

    pub(crate) fn is_in(self, gid: u32) -> bool {
        self.gid() == gid || self.groups().contains(&gid)
    }

    /// The identity that it sends over NFS.
    fn credential(self) -> Credential {
        match self {
            Self::Squashed => Credential::sys(0, 0, &[]),
            Self::Guest => Credential::none(),
            other => Credential::sys(other.uid(), other.gid(), other.groups()),
        }
    }

    /// The share that it uses: all export the same folder.
    fn share(self, by: By) -> &'static str {
        by.names()[usize::from(self == Self::Squashed)]
    }
}

/// The protocol by which a caller acts.
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
const LEASE: Duration = Duration::from_secs(3600);
/// Bytes to allocate.
pub(crate) const MORE: u64 = 100;

/// The folder of one cell, on the host.
pub(crate) struct Cell {
    pub(crate) path: PathBuf,
    pub(crate) name: String,
    sealed: bool,
}

impl Drop for Cell {
    /// Removed before it reaches the disk: removing tens of thousands of folders later takes minutes.
    fn drop(&mut self) {
        if self.sealed {
            shape::seal(&self.path.join("d/f"), IFlags::empty()).unwrap_or_default();
        }
        std::fs::remove_dir_all(&self.path).unwrap_or_default();
    }
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
        own(&path.join("e/own"), caller.uid(), caller.gid(), 0o666);
        let of = Caller::Owner.uid();
        own(&path.join("d/f"), of, of, shape.file);
        own(&path.join("d"), of, of, shape.dir);
        shape.posix(&path);
        let sealed = !shape.sealed.is_empty();
        if sealed {
            shape::seal(&path.join("d/f"), shape.sealed).unwrap();
        }
        Self { path, name, sealed }
    }

    /// The mode of a newly created object, if it has one.
    fn mode_of_new(&self, op: Op) -> Option<u32> {
        let made = std::fs::symlink_metadata(self.path.join("d/n")).ok()?;
        op.has_mode().then(|| made.mode() & 0o7777)
    }

    /// True if the host shows that the operation was done; for operations without a visible effect, that it was not undone.
    pub(crate) fn shows(&self, op: Op, caller: Caller, acting: Acting) -> bool {
        let meta = |at: &str| std::fs::symlink_metadata(self.path.join(at)).ok();
        let f = meta("d/f");
        let text = |at: &str| std::fs::read(self.path.join(at)).unwrap_or_default();
        let made = |kind: fn(std::fs::FileType) -> bool| {
            // A file in a set-group-id folder gets the folder's group.
            let gid = match meta("d").filter(|d| d.mode() & 0o2000 != 0) {
                Some(dir) => dir.gid(),
                None => acting.gid(),
            };
            let is_its = |m: &std::fs::Metadata| (m.uid(), m.gid()) == (acting.uid(), gid);
            meta("d/n").is_some_and(|m| kind(m.file_type()) && is_its(&m))
        };
        use std::os::unix::fs::FileTypeExt;
        match op {
            Op::Write | Op::Copy => text("d/f").starts_with(NEW),
            Op::Append => text("d/f") == [OLD, NEW].concat(),
            Op::Truncate => f.is_some_and(|m| m.len() == 1),
            Op::Overwrite | Op::Supersede | Op::Allocation => f.is_some_and(|m| m.len() == 0),
            Op::Allocate => f.is_some_and(|m| m.len() == MORE),
            Op::ZeroData => text("d/f").starts_with(&[0; 4]),
            Op::Create | Op::OpenIf | Op::OverwriteIf | Op::SupersedeNew => made(|t| t.is_file()),
            Op::Mkdir => made(|t| t.is_dir()),
            Op::Symlink => made(|t| t.is_symlink()),
            Op::Fifo => made(|t| t.is_fifo()),
            Op::Device => made(|t| t.is_char_device()),
            Op::Remove | Op::Dispose | Op::DisposePosix => f.is_none(),
            Op::RenameIn => f.is_none() && text("d/g") == OLD,
            Op::RenameOut => f.is_none() && text("e/g") == OLD,
            Op::Replace | Op::ReplacePosix => text("d/f") == NEW && meta("e/own").is_none(),
            Op::LinkReplace | Op::LinkReplaceEx => {
                text("d/f") == NEW && meta("e/own").is_some_and(|m| m.nlink() == 2)
            }
            Op::Link => text("e/l") == OLD && f.is_some_and(|m| m.nlink() == 2),
            Op::Chmod => f.is_some_and(|m| m.mode() & 0o777 == 0o640),
            Op::SetGroup => f.is_some_and(|m| m.gid() == caller.gid()),
            Op::SetForeignGroup => f.is_some_and(|m| m.gid() == FOREIGN),
            Op::GiveAway => f.is_some_and(|m| m.uid() == Caller::Other.uid()),
            Op::SetTimes => f.is_some_and(|m| m.mtime() == TIME),
            Op::Read | Op::SetList | Op::Trim | Op::SetSparse | Op::Stream => true,
            Op::SetAttributes | Op::SetEa => true,
        }
    }
}

pub(crate) fn user(caller: Caller) -> User {
    match caller {
        // SMB users have logged on, and no share squashes them.
        Caller::Guest | Caller::Squashed => User::default(),
        caller => User { name: format!("{caller:?}").to_lowercase(), ..alice() },
    }
}

/// Sets the access rules of a share.
fn rules(share: &mut Share, by: By) {
    let who = |names: &[&str]| names.iter().map(|name| name.parse().unwrap()).collect();
    let group = format!("@{}", Caller::Owner.uid());
    let here = || Client::from(Whom::Range("127.0.0.1".parse().unwrap()));
    let of_group = || Some(group.parse().unwrap());
    match by {
        By::Open => {}
        By::ReadOnly => share.read_only = true,
        By::Named => {
            share.access = Some(Access {
                read: who(&[&group, "other"]),
                write: who(&["owner", "listed"]),
                deny: who(&["member"]),
                ..Access::default()
            });
        }
        By::Denied => {
            share.access = Some(Access { deny: who(&["listed", &group]), ..Access::default() });
        }
        By::ClientReads | By::ClientWrites => {
            let all = "127.0.0.0/8".parse().unwrap();
            share.clients = Some(vec![all, Client { read_only: true, ..here() }]);
        }
        By::ClientIsListed => {
            let id = Some(Caller::Listed.uid());
            let squash = Some(Squash::All);
            share.clients = Some(vec![Client { squash, anonuid: id, anongid: id, ..here() }]);
        }
        By::ForcedUser => share.force.user = Some("listed".parse().unwrap()),
        By::ForcedGroup => share.force.group = of_group(),
        By::Masked => {
            let [file, folder] = shape::MASKS.map(|bits| Some(config::Mode(bits)));
            share.masks = config::Masks { file, folder };
        }
    }
}

/// Starts a gateway for a folder that all users may traverse, with an SMB user for each caller.
pub(crate) async fn world() -> (World, tempfile::TempDir) {
    let (world, dir) = with_alice(|settings| {
        // Some clients are idle for long.
        (settings.lease, settings.grace) = (LEASE, LEASE);
        settings.limits.introduction = LEASE;
        let of = settings.shares[0].source.clone();
        settings.shares.clear();
        for caller in [Caller::Root, Caller::Squashed] {
            let squash = if caller == Caller::Squashed { Squash::Root } else { Squash::None };
            for by in By::ALL.into_iter().filter(|by| *by != By::ClientWrites) {
                let share = Share::new(caller.share(by), of.clone());
                let mut share = Share { squash, guest: true, ..share };
                share.durability = Durability::Relaxed;
                rules(&mut share, by);
                settings.shares.push(share);
            }
        }
        for caller in Caller::ALL {
            let mut user = settings.users[0].clone();
            user.name = format!("{caller:?}").to_lowercase();
            user.identity = Identity {
                uid: Some(caller.uid()),
                gid: Some(caller.gid()),
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

/// One cell of the table with the result of each protocol; `None`: the protocol lacks the operation.
pub(crate) struct Seen {
    pub(crate) shape: &'static str,
    pub(crate) op: Op,
    pub(crate) caller: Caller,
    pub(crate) ways: [Option<bool>; 3],
    /// The modes of created objects.
    pub(crate) modes: [Option<u32>; 3],
}

/// A caller's clients of one share.
pub(crate) struct Clients {
    nfs: nfs::Nfs,
    /// `None` if the share refuses the caller.
    smb: Option<client::smb::Smb>,
}

impl Clients {
    pub(crate) async fn connect(world: &World, caller: Caller, by: By) -> Self {
        Self {
            nfs: nfs::Nfs::connect(world, caller, by).await,
            smb: smb::connect(world, caller, by).await,
        }
    }

    /// Performs the operation; true if allowed, `None` if the protocol lacks it.
    pub(crate) async fn ask(&self, cell: &Cell, op: Op, caller: Caller, way: Way) -> Option<bool> {
        if is_on_ceph() && op.is_not_of_ceph() {
            return None;
        }
        match way {
            Way::V3 => self.nfs.by_3(cell, op, caller).await,
            Way::V4 => self.nfs.by_4(cell, op, caller).await,
            Way::Smb => smb::by_smb(self.smb.as_ref(), cell, op, caller).await,
        }
    }
}

/// The clients of one caller, and the clients that prepare the cells.
struct Asker {
    caller: Caller,
    top: PathBuf,
    setter: nfs::Nfs,
    maker: nfs::Nfs,
    /// Indexed as [`By::ALL`].
    clients: Vec<Clients>,
    /// Number of cells created.
    cells: usize,
    faults: Vec<String>,
}

impl Asker {
    async fn connect(world: &World, caller: Caller) -> Self {
        let mut clients = Vec::new();
        for by in By::ALL {
            clients.push(Clients::connect(world, caller, by).await);
        }
        Self {
            caller,
            top: world.folder(),
            setter: nfs::Nfs::connect(world, Caller::Root, By::Open).await,
            maker: nfs::Nfs::connect(world, Caller::Owner, By::Open).await,
            clients,
            cells: 0,
            faults: Vec::new(),
        }
    }

    fn cell(&mut self, shape: &Shape) -> Cell {
        self.cells += 1;
        Cell::new(&self.top, &format!("{:?}-{}", self.caller, self.cells), self.caller, shape)
    }

    /// The results of all protocols, which must match the host, the model, and the kernel if it was consulted; and the modes of
    /// created objects.
    async fn ask(
        &mut self,
        shape: &Shape,
        op: Op,
        way: Way,
        kernel: Option<bool>,
    ) -> Option<(bool, Option<u32>)> {
        let (cell, caller) = (self.cell(shape), self.caller);
        let acting = Acting::of(shape, caller, way);
        self.setter.prepare(&cell, shape).await;
        if shape.inherits {
            self.maker.make(&cell).await;
        }
        let clients = &self.clients[shape.by as usize];
        let done = clients.ask(&cell, op, caller, way).await?;
        let of = format!("{}, {op:?} by {caller:?}, {way:?}: {done}", shape.name);
        if !op.is_hidden() && !shape.is_so(op, caller) && done != cell.shows(op, caller, acting) {
            self.faults.push(format!("{of}, and the host shows the contrary"));
        }
        if done != model::may(shape, op, caller, way) {
            self.faults.push(format!("{of}, by the model the contrary"));
        }
        if kernel.is_some_and(|k| k != done) && !model::is_of_protocol(shape, op, caller, way) {
            self.faults.push(format!("{of}, by the kernel the contrary"));
        }
        let mode = cell.mode_of_new(op);
        let wanted = model::mode_of_new(shape, op, way).filter(|_| done);
        if let Some(wanted) = wanted
            && mode != Some(wanted)
        {
            let mode = mode.unwrap_or_default();
            self.faults.push(format!("{of}, mode {mode:04o}, by the model {wanted:04o}"));
        }
        Some((done, mode))
    }

    async fn ask_all(mut self, shapes: Arc<[Shape]>) -> (Vec<Seen>, Vec<String>) {
        let mut table = Vec::new();
        for shape in shapes.iter() {
            for (op, _) in Op::ALL {
                let has_op = !(is_on_ceph() && op.is_not_of_ceph());
                let asks = shape.is_kernels() && kernel::has(op) && has_op;
                // The user is the same whatever the protocol.
                let acting = Acting::of(shape, self.caller, Way::V3);
                let kernel = asks.then(|| kernel::may(&self.cell(shape), op, self.caller, acting));
                let (mut ways, mut modes) = ([None; 3], [None; 3]);
                for (n, way) in [Way::V3, Way::V4, Way::Smb].into_iter().enumerate() {
                    let seen = self.ask(shape, op, way, kernel).await;
                    (ways[n], modes[n]) = (seen.map(|s| s.0), seen.and_then(|s| s.1));
                }
                table.push(Seen { shape: shape.name, op, caller: self.caller, ways, modes });
            }
        }
        (table, self.faults)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn operations_follow_access_rights() {
    if !is_root() {
        return;
    }
    let (world, _dir) = world().await;
    let top = world.folder();
    let shapes: Arc<[Shape]> = shape::all().into_iter().filter(|s| s.is_possible(&top)).collect();
    let mut askers = Vec::new();
    for caller in Caller::ALL {
        askers.push(tokio::spawn(Asker::connect(&world, caller).await.ask_all(shapes.clone())));
    }
    let (mut table, mut faults) = (Vec::new(), Vec::new());
    for asker in askers {
        let (seen, its) = asker.await.unwrap();
        table.extend(seen);
        faults.extend(its);
    }
    // No client gets a delegation while the cluster has other clients.
    let asked = match is_on_ceph() {
        true => Vec::new(),
        false => {
            let (asked, its) = stateids::ask_all(&world).await;
            faults.extend(its);
            asked
        }
    };
    world.running.stop().await;
    assert_eq!(table.len(), Caller::ALL.len() * shapes.len() * Op::ALL.len());
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    // The page documents local disks; on CephFS only the model is compared.
    if is_on_ceph() {
        let cells: usize = table.iter().map(|seen| seen.ways.iter().flatten().count()).sum();
        println!("{cells} cells were asked on CephFS");
    } else {
        document::compare(&table, &asked);
    }
}
