//! Tests which threads of the engine run which operations on a real directory.
#![allow(clippy::unwrap_used)]

use vfs::engine::threads::Engine;
use vfs::local::{LocalBackend, LocalConfig};
use vfs::*;

/// A stable write never waits for other clients' copies, which may be of any size.
#[tokio::test]
async fn copies_have_threads_of_their_own() {
    let engine = Engine::common();
    let dir = tempfile::tempdir().unwrap();
    let root = LocalBackend::open(LocalConfig::new(dir.path())).unwrap().root();
    let new = async |name: &[u8]| {
        let (root_user, set) = (Cred::root(), SetAttr::default());
        let by = Acting::caller(&root_user);
        root.create(by, name, CreateHow::Guarded, set).await.unwrap().node
    };
    let (f, g) = (new(b"f").await, new(b"g").await);
    let data = vec![iobuf::Buf::from(vec![7; 4096])];
    f.write(WriteBy::Open(None), 0, data, Stable::File).await.unwrap();
    assert_eq!(engine.copy_stats().done, 0, "a stable write is none");
    let long = engine.long_stats().done;
    assert_eq!(g.copy_range(None, f.as_ref(), 0, 0, 4096).await, Ok(4096));
    g.allocate(None, 0, 8192).await.unwrap();
    assert_eq!((engine.long_stats().done, engine.copy_stats().done), (long, 2), "no other job");
}
