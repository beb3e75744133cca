//! Encodes NFSv3 calls by hand, and decodes their replies.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use iobuf::Buf;
use nfsrdma::server::{Server, Session};
use nfsrdma::v3::procedure as p;
use rdma_transport::xdr::{Reader, Writer};
use vfs::mem::MemBackend;
use vfs::namespace::{Enforce, Namespace, Protocols, Share, Squash};

use super::{MOUNT, NFS, call, flat, head, server_over, session};

pub const OK: u32 = 0;

/// The parts of `fattr3` that tests use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fattr {
    pub ftype: u32,
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub rdev: (u32, u32),
    pub fileid: u64,
    pub mtime: (u32, u32),
    pub ctime: (u32, u32),
}

/// Reads `fattr3`.
pub fn fattr(r: &mut Reader<'_>) -> Fattr {
    let mut u = || r.u32().unwrap();
    let (ftype, mode, nlink, uid, gid) = (u(), u(), u(), u(), u());
    let size = r.u64().unwrap();
    let _used = r.u64().unwrap();
    let rdev = (r.u32().unwrap(), r.u32().unwrap());
    let _fsid = r.u64().unwrap();
    let fileid = r.u64().unwrap();
    let _atime = r.u64().unwrap();
    let mtime = (r.u32().unwrap(), r.u32().unwrap());
    let ctime = (r.u32().unwrap(), r.u32().unwrap());
    Fattr { ftype, mode, nlink, uid, gid, size, rdev, fileid, mtime, ctime }
}

/// Reads `post_op_attr`.
pub fn post(r: &mut Reader<'_>) -> Option<Fattr> {
    r.bool().unwrap().then(|| fattr(r))
}

/// Reads `wcc_data`: size, mtime and ctime before, attributes after.
pub fn wcc(r: &mut Reader<'_>) -> (Option<(u64, u64, u64)>, Option<Fattr>) {
    let pre = r.bool().unwrap().then(|| (r.u64().unwrap(), r.u64().unwrap(), r.u64().unwrap()));
    (pre, post(r))
}

/// A reply after the RPC head.
pub struct Results(pub Buf);

impl Results {
    pub fn reader(&self) -> Reader<'_> {
        Reader::new(&self.0, &[])
    }

    /// Splits off the status.
    pub fn status(&self) -> (u32, Reader<'_>) {
        let mut r = self.reader();
        (r.u32().unwrap(), r)
    }
}

/// A client of a server with volumes in memory.
pub struct Client {
    pub server: Arc<Server>,
    pub session: Session,
    pub uid: u32,
    xid: AtomicU32,
}

/// A share in memory that does not squash root.
pub fn share(name: &str) -> Share {
    Share {
        name: name.into(),
        id: Share::id_of(name),
        backend: MemBackend::new(256 << 20).unwrap(),
        read_only: false,
        protocols: Protocols::Both,
        squash: Squash::None,
        nfs_locks: Enforce::Smb,
        clients: None,
        rules: vfs::namespace::Rules::default(),
    }
}

impl Client {
    /// Connects to a server with one share, `data`.
    pub fn new() -> Self {
        Self::of(vec![share("data")])
    }

    pub fn of(shares: Vec<Share>) -> Self {
        Self::over(Namespace::new(shares))
    }

    pub fn over(namespace: Namespace) -> Self {
        let server = server_over(namespace);
        Self { session: session(&server), server, uid: 0, xid: AtomicU32::new(1) }
    }

    /// Calls a procedure; `args` writes its arguments.
    pub fn call(&self, program: u32, procedure: u32, args: impl FnOnce(&mut Writer)) -> Results {
        let xid = self.xid.fetch_add(1, Ordering::Relaxed);
        self.repeat(xid, program, procedure, args).expect("an answer")
    }

    /// Sends a call with this transaction id.
    pub fn repeat(
        &self,
        xid: u32,
        program: u32,
        procedure: u32,
        args: impl FnOnce(&mut Writer),
    ) -> Option<Results> {
        let mut w = head(xid, program, 3, procedure, self.uid);
        args(&mut w);
        let reply = flat(call(&self.session, flat(w.into_reply()), vec![])?);
        let mut accepted: Vec<u8> = xid.to_be_bytes().to_vec();
        accepted.extend([0, 0, 0, 1]);
        accepted.extend([0; 16]);
        assert_eq!(&reply[..24], &accepted, "an accepted, successful reply");
        Some(Results(Buf::from(reply[24..].to_vec())))
    }

    pub fn nfs(&self, procedure: u32, args: impl FnOnce(&mut Writer)) -> Results {
        self.call(NFS, procedure, args)
    }

    /// Mounts a path and returns its handle.
    pub fn mount(&self, path: &str) -> Result<Vec<u8>, u32> {
        let res = self.call(MOUNT, 1, |w| w.opaque(path.as_bytes()));
        let (status, mut r) = res.status();
        if status == OK { Ok(r.opaque(64).unwrap().to_vec()) } else { Err(status) }
    }

    pub fn root(&self) -> Vec<u8> {
        self.mount("/data").unwrap()
    }

    pub fn getattr(&self, fh: &[u8]) -> Result<Fattr, u32> {
        let res = self.nfs(p::GETATTR, |w| w.opaque(fh));
        let (status, mut r) = res.status();
        if status == OK { Ok(fattr(&mut r)) } else { Err(status) }
    }

    pub fn lookup(&self, dir: &[u8], name: &str) -> Result<Vec<u8>, u32> {
        let res = self.nfs(p::LOOKUP, |w| place(w, dir, name));
        let (status, mut r) = res.status();
        if status == OK { Ok(r.opaque(64).unwrap().to_vec()) } else { Err(status) }
    }

    /// CREATE, UNCHECKED, with this mode.
    pub fn create(&self, dir: &[u8], name: &str, mode: u32) -> Result<Vec<u8>, u32> {
        let res = self.nfs(p::CREATE, |w| {
            place(w, dir, name);
            w.u32(0);
            sattr(w, Some(mode), None);
        });
        made(&res).map(|(fh, _)| fh)
    }

    pub fn mkdir(&self, dir: &[u8], name: &str) -> Result<Vec<u8>, u32> {
        let res = self.nfs(p::MKDIR, |w| {
            place(w, dir, name);
            sattr(w, Some(0o755), None);
        });
        made(&res).map(|(fh, _)| fh)
    }

    pub fn write(&self, fh: &[u8], at: u64, data: &[u8], stable: u32) -> Results {
        self.nfs(p::WRITE, |w| {
            w.opaque(fh);
            w.u64(at);
            w.count(data.len());
            w.u32(stable);
            w.opaque(data);
        })
    }

    /// READ: returns the data and eof.
    pub fn read(&self, fh: &[u8], at: u64, count: u32) -> Result<(Vec<u8>, bool), u32> {
        let res = self.nfs(p::READ, |w| {
            w.opaque(fh);
            w.u64(at);
            w.u32(count);
        });
        let (status, mut r) = res.status();
        let after = post(&mut r);
        if status != OK {
            return Err(status);
        }
        assert!(after.is_some());
        let count = r.u32().unwrap();
        let eof = r.bool().unwrap();
        let data = r.opaque(1 << 20).unwrap().to_vec();
        assert_eq!(count as usize, data.len());
        Ok((data, eof))
    }
}

/// `diropargs3`.
pub fn place(w: &mut Writer, dir: &[u8], name: &str) {
    w.opaque(dir);
    w.opaque(name.as_bytes());
}

/// `sattr3` with a mode and a size.
pub fn sattr(w: &mut Writer, mode: Option<u32>, size: Option<u64>) {
    w.bool(mode.is_some());
    mode.into_iter().for_each(|m| w.u32(m));
    w.bool(false);
    w.bool(false);
    w.bool(size.is_some());
    size.into_iter().for_each(|s| w.u64(s));
    w.u32(0);
    w.u32(0);
}

/// The handle and attributes in the results of CREATE, MKDIR, SYMLINK, MKNOD.
pub fn made(res: &Results) -> Result<(Vec<u8>, Fattr), u32> {
    let (status, mut r) = res.status();
    if status != OK {
        let (pre, after) = wcc(&mut r);
        assert!(pre.is_none() && r.is_at_end());
        assert!(after.is_some() || status == 70 || status == 10001 || status == 13);
        return Err(status);
    }
    assert!(r.bool().unwrap());
    let fh = r.opaque(64).unwrap().to_vec();
    let attr = post(&mut r).expect("attributes");
    let (_, dir) = wcc(&mut r);
    assert!(dir.is_some() && r.is_at_end());
    Ok((fh, attr))
}
