//! Rules that every backend keeps, written once. Each function is one test and starts with an empty volume.

use std::sync::Arc;

use iobuf::{Account, Buf, Pool, PoolLimits};
use vfs::backend::{Made, ReadInto};
use vfs::*;

pub(crate) mod anycase;
pub(crate) mod crowd;
pub(crate) mod data;
pub(crate) mod lists;
pub(crate) mod names;
pub(crate) mod replace;
pub(crate) mod rights;
pub(crate) mod streams;
pub(crate) mod windows;

/// A backend under test with its pool and account.
pub(crate) struct Bench {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) root: NodeRef,
    pub(crate) into: ReadInto,
}

impl Bench {
    pub(crate) fn new(backend: Arc<dyn Backend>) -> Self {
        let root = backend.root();
        let pool = Pool::new(PoolLimits { buffers_max: [64, 64, 16] });
        Self {
            backend,
            root,
            into: ReadInto {
                pool,
                account: Account::new(),
                backpressure: None,
                pages: false,
                attributes: true,
            },
        }
    }

    /// Creates a regular file in the root.
    pub(crate) async fn file(&self, name: &str) -> NodeRef {
        self.create(name, CreateHow::Guarded).await.unwrap().node
    }

    pub(crate) async fn create(&self, name: &str, how: CreateHow) -> VfsResult<Made> {
        self.root.create(Acting::caller(&root()), name.as_bytes(), how, mode(0o644)).await
    }

    pub(crate) async fn dir(&self, name: &str) -> NodeRef {
        self.root.mkdir(Acting::caller(&root()), name.as_bytes(), mode(0o755)).await.unwrap().node
    }

    pub(crate) async fn write(&self, node: &NodeRef, at: u64, data: &[u8]) -> Written {
        let data = vec![Buf::from(data.to_vec())];
        node.write(WriteBy::Caller(&root()), at, data, Stable::Unstable).await.unwrap()
    }

    pub(crate) async fn read(&self, node: &NodeRef, at: u64, count: usize) -> (Vec<u8>, bool) {
        let r = node.read(Some(&root()), at, count, &self.into).await.unwrap();
        let bytes: Vec<u8> = r.data.iter().flat_map(|b| b.iter().copied()).collect();
        assert_eq!(bytes.len(), r.len());
        (bytes, r.eof)
    }

    /// Reads the whole file.
    pub(crate) async fn contents(&self, node: &NodeRef) -> Vec<u8> {
        let mut out = Vec::new();
        loop {
            let (some, eof) = self.read(node, out.len() as u64, 1 << 20).await;
            out.extend(some);
            if eof {
                return out;
            }
        }
    }

    /// Lists all names of a directory, `step` at a time.
    pub(crate) async fn names(&self, dir: &NodeRef, step: usize) -> Vec<String> {
        let mut out = Vec::new();
        let mut cookie = 0;
        loop {
            let (some, end) = dir.readdir(&root(), cookie, step).await.unwrap();
            assert!(some.len() <= step);
            assert!(end || !some.is_empty());
            for e in &some {
                assert!(e.cookie >= DirEntry::COOKIE_MIN);
                out.push(String::from_utf8(e.name.to_vec()).unwrap());
            }
            match some.last() {
                Some(last) => cookie = last.cookie,
                None => return out,
            }
            if end {
                return out;
            }
        }
    }
}

/// Returns the superuser, or the user that runs the tests.
pub(crate) fn root() -> Cred {
    Cred::root()
}

pub(crate) fn user(uid: u32) -> Cred {
    Cred { uid, gid: uid, groups: Arc::new([]), token: vfs::Token::NONE }
}

pub(crate) fn mode(mode: u32) -> SetAttr {
    SetAttr { mode: Some(mode), ..SetAttr::default() }
}

/// Returns bytes that depend on their position.
pub(crate) fn pattern(seed: u8, n: usize) -> Vec<u8> {
    (0..n).map(|i| (i as u64).wrapping_mul(131).wrapping_add(i as u64 >> 8) as u8 ^ seed).collect()
}

pub(crate) async fn refused<T>(what: impl Future<Output = VfsResult<T>>, why: VfsError) {
    match what.await {
        Ok(_) => panic!("allowed, expected {why}"),
        Err(e) => assert_eq!(e, why),
    }
}
