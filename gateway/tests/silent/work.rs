//! Requests of clients.

use client::nfs3::{CreateHow, Fh, Nfs3, SetAttr, Stable};
use client::nfs4::{Nfs4, Results, Stateid, op, ops::Copy4};
use client::smb::{Caching, Smb, SmbFile};
use client::{Error, Result};
use iobuf::Buf;
use smb_proto::smb2::create::{Disposition, access, option};
use smb_proto::smb2::fsctl::{Chunk, CopyChunks, ResumeKey, code};

use crate::daemon::Daemon;

/// More bytes than are read or written in place.
const BYTES: u32 = 128 << 10;
/// Maximum bytes of one NFS call.
const MUCH: usize = 1 << 20;
/// Bytes of a file that takes long to truncate.
const LONG: u64 = 80 << 20;

#[derive(Clone, Copy, Debug)]
pub enum Op {
    Read,
    Write,
    StableWrite,
    Flush,
    Cut,
    Copy,
}

impl Op {
    /// Returns the maximum number of these requests in the kernel: one for each thread that the share has for them.
    pub fn threads(self) -> usize {
        if matches!(self, Self::Copy) { 8 } else { 16 }
    }
}

#[derive(Clone, Copy, Debug)]
pub enum By {
    Nfs,
    Smb,
}

pub const ALL: [(Op, By); 11] = [
    (Op::Read, By::Nfs),
    (Op::Read, By::Smb),
    (Op::Write, By::Nfs),
    (Op::Write, By::Smb),
    (Op::StableWrite, By::Nfs),
    (Op::Flush, By::Nfs),
    (Op::Flush, By::Smb),
    (Op::Cut, By::Nfs),
    (Op::Cut, By::Smb),
    (Op::Copy, By::Nfs),
    (Op::Copy, By::Smb),
];

/// A file with its handle in each protocol.
#[derive(Clone)]
pub struct File {
    nfs: Fh,
    nfs_4: Fh,
    smb: SmbFile,
}

/// A client that uses a share over all protocols.
pub struct Client {
    nfs: Nfs3,
    root: Fh,
    nfs_4: Nfs4,
    root_4: Fh,
    smb: Smb,
    folder: std::path::PathBuf,
}

fn data() -> Vec<Buf> {
    vec![Buf::from(vec![7; BYTES as usize])]
}

impl Client {
    pub async fn connect(daemon: &Daemon, share: &str) -> Self {
        let (nfs, root) = daemon.mount(share).await;
        let (nfs_4, root_4) = daemon.mount_4(share).await;
        let smb = daemon.connect(share).await;
        Self { nfs, root, nfs_4, root_4, smb, folder: daemon.folder() }
    }

    async fn open(&self, name: &str) -> Result<File> {
        let (nfs, _) = self.nfs.lookup(&self.root, name.as_bytes()).await?;
        let (nfs_4, _) = self.nfs_4.lookup(&self.root_4, name.as_bytes()).await?;
        let mask = access::READ_DATA | access::WRITE_DATA | access::READ_ATTRIBUTES;
        let options = option::NON_DIRECTORY_FILE;
        let smb = self.smb.open(name, mask, Disposition::Open, options).await?;
        Ok(File { nfs, nfs_4, smb })
    }

    /// Opens a persistent handle on an existing file.
    pub async fn hold(&self, name: &str) {
        self.smb.open_persistent(name, [7; 16], Caching::None).await.unwrap();
    }

    /// Writes the maximum of one call at the start of an open file.
    pub async fn write_much(&self, file: &File) -> Result<()> {
        let data = vec![Buf::from(vec![7; MUCH])];
        self.nfs.write(&file.nfs, 0, data, Stable::Unstable).await.map(drop)
    }

    /// Opens existing files with the names `f0` and so on.
    pub async fn open_all(&self, count: usize) -> Vec<File> {
        let mut files = Vec::new();
        for n in 0..count {
            files.push(self.open(&format!("f{n}")).await.unwrap());
        }
        files
    }

    pub async fn call(&self, op: Op, by: By, file: &File) -> Result<()> {
        match by {
            By::Nfs => self.by_nfs(op, file).await,
            By::Smb => self.by_smb(op, &file.smb).await,
        }
    }

    async fn by_nfs(&self, op: Op, file: &File) -> Result<()> {
        let (nfs, f) = (&self.nfs, &file.nfs);
        match op {
            Op::Read => nfs.read(f, 0, BYTES).await.map(drop),
            Op::Write => nfs.write(f, 0, data(), Stable::Unstable).await.map(drop),
            Op::StableWrite => nfs.write(f, 0, data(), Stable::File).await.map(drop),
            Op::Flush => nfs.commit(f, 0, 0).await.map(drop),
            Op::Cut => {
                let size = SetAttr { size: Some(0), ..SetAttr::default() };
                nfs.setattr(f, &size).await
            }
            Op::Copy => {
                let stateid = Stateid::ANONYMOUS;
                let copy = Copy4 {
                    src_stateid: stateid,
                    dst_stateid: stateid,
                    src_offset: 0,
                    dst_offset: 1 << 20,
                    count: u64::from(BYTES),
                    consecutive: true,
                    synchronous: true,
                    source_server: Vec::new(),
                };
                let (nfs, f) = (&self.nfs_4, &file.nfs_4);
                let answer = nfs.call(nfs.compound().putfh(f).savefh().op(op::COPY, &copy)).await?;
                let mut results = Results::new(&answer)?;
                results.sequence()?;
                [op::PUTFH, op::SAVEFH, op::COPY].iter().try_for_each(|op| results.next::<()>(*op))
            }
        }
    }

    async fn by_smb(&self, op: Op, f: &SmbFile) -> Result<()> {
        let smb = &self.smb;
        match op {
            Op::Read => smb.read(f, 0, BYTES).await.map(drop),
            Op::Write | Op::StableWrite => smb.write(f, 0, data()).await.map(drop),
            Op::Flush => smb.flush(f).await,
            Op::Cut => smb.set_size(f, 0).await,
            Op::Copy => {
                let key = smb.control(f, code::SRV_REQUEST_RESUME_KEY, &[]).await?;
                let key = ResumeKey::parse(&key).map_err(|e| Error::Protocol(format!("{e:?}")))?;
                let chunks = vec![Chunk { from: 0, to: 1 << 20, len: BYTES }];
                let copy = CopyChunks { key, count: 1, chunks };
                smb.control(f, code::SRV_COPYCHUNK_WRITE, &copy.emit()).await.map(drop)
            }
        }
    }

    /// Creates a file on the local share and runs every operation on it, over each protocol.
    pub async fn make_and_use(&self, name: &str) {
        let how = CreateHow::Guarded(SetAttr::default());
        self.nfs.create(&self.root, name.as_bytes(), how).await.unwrap();
        let path = self.folder.join(name);
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        let held = self.open(name).await.unwrap();
        for (op, by) in ALL {
            if !matches!(op, Op::Write | Op::StableWrite | Op::Flush) {
                file.set_len(LONG).unwrap();
                file.sync_all().unwrap();
                // Drops the file from the page cache.
                rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
            }
            self.call(op, by, &held).await.unwrap_or_else(|e| panic!("{op:?} by {by:?}: {e}"));
        }
        self.smb.close(held.smb).await.unwrap();
    }
}
