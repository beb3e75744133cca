//! Descriptors of watches. They are counted for the whole process, so this is a separate program with one test.

// Helpers of tests are tests too; and test data is cut to bytes on purpose.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, dead_code)]

mod suite;

use std::sync::Arc;
use std::task::Poll;

use suite::streams::plain;
use suite::*;
use vfs::local::{LocalBackend, LocalConfig, limit_descriptors};
use vfs::namespace::Namespace;
use vfs::watch::{Rooms, Watch, what};
use vfs::{Action, NodeRef};

const FOLDERS: usize = 7;

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Returns true if the future is ready at the first poll; it is dropped then.
async fn is_ready(future: impl Future<Output = ()>) -> bool {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_ready())).await
}

/// A walk to new folders that its caller cancels is repeated, and a check for waiting events makes no walk.
async fn cover_new_folders(ns: &Namespace, root: &NodeRef, watch: &Watch) {
    let (share, before) = (ns.shares()[0].id, watch.covered());
    ns.watches().post(share, root, b"new", Action::Added, what::DIR_NAME).await;
    assert!(is_ready(watch.something()).await);
    assert!(!is_ready(watch.ready()).await, "the walk yields");
    watch.ready().await;
    assert_eq!(watch.covered(), before + 1);
}

#[test]
fn watches_of_one_tree_share_descriptors() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("a/b/c/d/e/f")).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let b = Bench::new(LocalBackend::open(LocalConfig::new(dir.path())).unwrap());
        let ns = Namespace::new(vec![plain(&b)]);
        let (share, me) = (ns.shares()[0].clone(), root());
        let watch =
            async || ns.watches().watch((&share, &me), b.root.clone(), 0xfff, true).await.unwrap();
        let mut watches: Vec<Watch> = vec![watch().await];
        if watches[0].covered() == 0 {
            println!("skipped: no fanotify for this user");
            return;
        }
        let one = descriptors();
        for _ in 0..10 {
            watches.push(watch().await);
        }
        assert!(watches.iter().all(|w| w.covered() == FOLDERS));
        assert_eq!(descriptors(), one, "ten more watches take none");
        // Each watch sees a change, and the kernel's watch ends with the last of them.
        std::fs::write(dir.path().join("a/b/new"), b"").unwrap();
        watches.truncate(1);
        assert_eq!(descriptors(), one);
        watches.clear();
        assert!(descriptors() <= one - FOLDERS, "{} after {one}", descriptors());

        let wide = dir.path().join("wide");
        (0..40).for_each(|n| std::fs::create_dir_all(wide.join(n.to_string())).unwrap());
        let watch_all = watch().await;
        std::fs::create_dir(dir.path().join("new")).unwrap();
        cover_new_folders(&ns, &b.root, &watch_all).await;
        drop(watch_all);
        std::fs::remove_dir_all(wide).unwrap();
        std::fs::remove_dir(dir.path().join("new")).unwrap();

        // A client has room for three folders.
        let room = Arc::new(std::sync::Mutex::new(0));
        let taken = room.clone();
        let take = move |folders| {
            let is_little = folders <= 3;
            if is_little {
                *taken.lock().unwrap() = folders;
            }
            is_little
        };
        let by = (&share, &me);
        let rooms = Rooms { covered: Box::new(take), ..Rooms::unlimited() };
        let watch_within = ns.watches().watch_within(by, b.root.clone(), 0xfff, true, rooms);
        let few = watch_within.await.unwrap();
        assert_eq!((few.covered(), *room.lock().unwrap()), (3, 3));
        drop(few);

        // Descriptors of watches come from the budget of local files.
        limit_descriptors(FOLDERS);
        let short = watch().await;
        limit_descriptors(usize::MAX);
        assert!(short.covered() < FOLDERS, "{}", short.covered());
    });
}
