//! Random operations on data against the simplest model: a vector of bytes for each file.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

use std::sync::Arc;

use iobuf::{Account, Buf, Pool, PoolLimits};
use proptest::prelude::*;
use vfs::backend::ReadInto;
use vfs::local::{LocalBackend, LocalConfig};
use vfs::mem::MemBackend;
use vfs::*;

const FILES: usize = 3;
const BLOCK: u64 = 65536;

/// One step. Offsets and sizes stay small enough to overlap often.
#[derive(Clone, Debug)]
enum Step {
    Write { file: usize, at: u64, len: usize, seed: u8, cuts: Vec<usize> },
    Resize { file: usize, size: u64 },
    Punch { file: usize, at: u64, len: u64 },
    Allocate { file: usize, at: u64, len: u64 },
    Copy { from: usize, to: usize, from_at: u64, at: u64, len: u64 },
    Clone { from: usize, to: usize, from_block: u64, block: u64, blocks: u64 },
    Read { file: usize, at: u64, len: usize },
    Check { file: usize },
}

/// Small, around a boundary of pages, or any value.
fn offset() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..100_u64,
        (0..5_u64, 0..5_u64).prop_map(|(page, d)| (page * BLOCK + d).saturating_sub(2)),
        (0..80_u64, 0..3_u64).prop_map(|(page, d)| (page * 4096 + d).saturating_sub(1)),
        0..400_000_u64,
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let file = 0..FILES;
    let len = || offset().prop_map(|n| n + 1);
    prop_oneof![
        4 => (file.clone(), offset(), len(), any::<u8>(), prop::collection::vec(0..5000_usize, 0..4))
            .prop_map(|(file, at, len, seed, cuts)| Step::Write { file, at, len: len as usize, seed, cuts }),
        1 => (file.clone(), offset()).prop_map(|(file, size)| Step::Resize { file, size }),
        1 => (file.clone(), offset(), len()).prop_map(|(file, at, len)| Step::Punch { file, at, len }),
        1 => (file.clone(), offset(), len()).prop_map(|(file, at, len)| Step::Allocate { file, at, len }),
        2 => (file.clone(), file.clone(), offset(), offset(), len())
            .prop_map(|(from, to, from_at, at, len)| Step::Copy { from, to, from_at, at, len }),
        2 => (file.clone(), file.clone(), 0..6_u64, 0..6_u64, 0..4_u64).prop_map(
            |(from, to, from_block, block, blocks)| Step::Clone { from, to, from_block, block, blocks }),
        2 => (file.clone(), offset(), len()).prop_map(|(file, at, len)| Step::Read { file, at, len: len as usize }),
        1 => file.prop_map(|file| Step::Check { file }),
    ]
}

struct World {
    files: Vec<NodeRef>,
    model: Vec<Vec<u8>>,
    reflink: bool,
    into: ReadInto,
}

impl World {
    async fn new(backend: Arc<dyn Backend>) -> Self {
        let mut files = Vec::new();
        for i in 0..FILES {
            let name = format!("f{i}");
            let root = backend.root();
            let how = CreateHow::Guarded;
            let made = root
                .create(Acting::caller(&Cred::root()), name.as_bytes(), how, SetAttr::default())
                .await
                .unwrap();
            files.push(made.node);
        }
        let pool = Pool::new(PoolLimits { buffers_max: [32, 32, 8] });
        Self {
            files,
            model: vec![Vec::new(); FILES],
            reflink: backend.capabilities().reflink,
            into: ReadInto {
                pool,
                account: Account::new(),
                backpressure: None,
                pages: false,
                attributes: true,
            },
        }
    }

    async fn read(&self, file: usize, at: u64, len: usize) {
        let (mut at, end) = (at as usize, (at as usize).saturating_add(len));
        loop {
            let r = self.files[file].read(None, at as u64, end - at, &self.into).await.unwrap();
            let model = &self.model[file];
            let there = &model[at.min(model.len())..];
            let got: Vec<u8> = r.data.iter().flat_map(|b| b.iter().copied()).collect();
            assert!(got.len() <= end - at && got.len() <= there.len());
            assert!(got == there[..got.len()], "file {file} differs behind {at}");
            assert_eq!(r.attr.unwrap().size, model.len() as u64);
            at += got.len();
            assert_eq!(r.eof, at >= model.len());
            // Short reads are allowed, as long as they make progress.
            if r.eof || at == end {
                return;
            }
            assert!(!got.is_empty());
        }
    }

    async fn step(&mut self, step: Step) {
        match step {
            Step::Write { file, at, len, seed, cuts } => {
                let data: Vec<u8> = (0..len).map(|i| (i as u8).wrapping_mul(31) ^ seed).collect();
                let mut rest = Buf::from(data.clone());
                let mut pieces: Vec<Buf> = cuts.iter().map(|n| rest.split_to(*n)).collect();
                pieces.push(rest);
                let w = self.files[file]
                    .write(WriteBy::Open(None), at, pieces, Stable::Unstable)
                    .await
                    .unwrap();
                assert_eq!(w.count, len);
                self.put(file, at, &data);
                assert_eq!(w.after.size, self.model[file].len() as u64);
            }
            Step::Resize { file, size } => {
                let set = SetAttr { size: Some(size), ..SetAttr::default() };
                self.files[file].setattr(&Cred::root(), set, true).await.unwrap();
                self.model[file].resize(size as usize, 0);
            }
            Step::Punch { file, at, len } => {
                self.files[file].deallocate(None, at, len).await.unwrap();
                let size = self.model[file].len();
                let (from, to) = ((at as usize).min(size), ((at + len) as usize).min(size));
                self.model[file][from..to].fill(0);
            }
            Step::Allocate { file, at, len } => {
                self.files[file].allocate(None, at, len).await.unwrap();
                let size = self.model[file].len().max((at + len) as usize);
                self.model[file].resize(size, 0);
            }
            Step::Copy { from, to, from_at, at, len } => {
                self.copy(from, to, from_at, at, len).await
            }
            Step::Clone { from, to, from_block, block, blocks } => {
                self.clone(from, to, from_block * BLOCK, block * BLOCK, blocks * BLOCK).await;
            }
            Step::Read { file, at, len } => self.read(file, at, len).await,
            Step::Check { file } => {
                self.read(file, 0, 2 << 20).await;
                self.seek(file).await;
            }
        }
    }

    fn put(&mut self, file: usize, at: u64, data: &[u8]) {
        let (at, end) = (at as usize, at as usize + data.len());
        let model = &mut self.model[file];
        model.resize(model.len().max(end), 0);
        model[at..end].copy_from_slice(data);
    }

    async fn copy(&mut self, from: usize, to: usize, from_at: u64, at: u64, len: u64) {
        let answer =
            self.files[to].copy_range(None, self.files[from].as_ref(), from_at, at, len).await;
        let size = self.model[from].len() as u64;
        if from_at > size {
            assert_eq!(answer, Err(VfsError::Invalid));
            return;
        }
        let len = len.min(size - from_at);
        if from == to && from_at < at + len && at < from_at + len {
            assert_eq!(answer, Err(VfsError::Invalid));
            return;
        }
        assert_eq!(answer, Ok(len));
        let data = self.model[from][from_at as usize..(from_at + len) as usize].to_vec();
        if !data.is_empty() {
            self.put(to, at, &data);
        }
    }

    async fn clone(&mut self, from: usize, to: usize, from_at: u64, at: u64, len: u64) {
        let source = self.files[from].clone();
        let answer = self.files[to].clone_range(None, source.as_ref(), from_at, at, len).await;
        if !self.reflink {
            assert!(answer.is_err());
            return;
        }
        let size = self.model[from].len() as u64;
        // A refused operation makes no change; the model need not know all reasons.
        if answer.is_err() {
            return;
        }
        assert!(from_at + len <= size);
        let end = if len == 0 { size } else { from_at + len };
        let data = self.model[from][from_at as usize..end as usize].to_vec();
        if !data.is_empty() {
            self.put(to, at, &data);
        }
    }

    /// Between the reported data there are only zeros, and the walk ends.
    async fn seek(&self, file: usize) {
        let (node, model) = (&self.files[file], &self.model[file]);
        let mut at = 0;
        for _ in 0..10_000 {
            let data = match node.seek(at as u64, Seek::Data).await {
                Ok(data) => data as usize,
                Err(e) => {
                    assert_eq!(e, VfsError::NoMoreData);
                    model.len()
                }
            };
            assert!(model[at..data].iter().all(|b| *b == 0));
            if data >= model.len() {
                return;
            }
            let hole = node.seek(data as u64, Seek::Hole).await.unwrap() as usize;
            assert!(hole > data && hole <= model.len());
            at = hole;
            if at == model.len() {
                return;
            }
        }
        panic!("seeking does not end");
    }
}

fn run(backend: Arc<dyn Backend>, steps: Vec<Step>) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let mut world = World::new(backend).await;
        for step in steps {
            world.step(step).await;
        }
        for file in 0..FILES {
            world.read(file, 0, 2 << 20).await;
            world.seek(file).await;
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn memory_keeps_to_the_model(steps in prop::collection::vec(step(), 1..40)) {
        run(MemBackend::new(64 << 20).unwrap(), steps);
    }

    #[test]
    fn directory_matches_model(steps in prop::collection::vec(step(), 1..40)) {
        let dir = tempfile::tempdir().unwrap();
        run(LocalBackend::open(LocalConfig::new(dir.path())).unwrap(), steps);
    }
}
