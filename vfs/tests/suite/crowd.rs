//! Many callers at once.

use super::*;

const THREADS: u64 = 4;
const STEPS: u64 = 400;

/// A small generator: the same steps in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, n: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// Returns true for errors that are possible when other callers change the same names at the same time.
fn expected(e: VfsError) -> bool {
    matches!(
        e,
        VfsError::NotFound
            | VfsError::Exists
            | VfsError::IsDir
            | VfsError::NotDir
            | VfsError::NotEmpty
            | VfsError::Invalid
            | VfsError::Stale
            | VfsError::WrongType
            | VfsError::Delay
    )
}

async fn one_step(b: &Bench, dirs: &[NodeRef], dice: &mut Dice, who: u64) -> VfsResult<()> {
    let c = root();
    let dir = &dirs[dice.roll(dirs.len() as u64) as usize];
    let other = &dirs[dice.roll(dirs.len() as u64) as usize];
    let name = [b'a' + dice.roll(6) as u8];
    let to = [b'a' + dice.roll(6) as u8];
    match dice.roll(10) {
        0 | 1 => {
            let how = if dice.roll(2) == 0 { CreateHow::Guarded } else { CreateHow::Unchecked };
            let made = dir.create(Acting::caller(&c), &name, how, mode(0o644)).await?;
            assert_eq!(made.attr.kind, made.node.kind());
            let data = vec![Buf::from(vec![who as u8; 5000])];
            made.node.write(WriteBy::Open(None), 0, data, Stable::Unstable).await?;
        }
        2 => drop(dir.mkdir(Acting::caller(&c), &name, mode(0o755)).await?),
        3 => drop(dir.unlink(Acting::caller(&c), &name).await?),
        4 => drop(dir.rmdir(Acting::caller(&c), &name).await?),
        5 | 6 => drop(dir.rename(Acting::caller(&c), &name, other.as_ref(), &to, true).await?),
        7 => {
            let (node, _) = dir.lookup(&c, &name).await?;
            node.link(Acting::caller(&c), other.as_ref(), &to).await?;
        }
        8 => {
            let (entries, _) = dir.readdir(&c, 0, 100).await?;
            let mut names: Vec<_> = entries.iter().map(|e| e.name.clone()).collect();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), entries.len());
        }
        _ => {
            let (node, attr) = dir.lookup(&c, &name).await?;
            let again = b.backend.resolve(&node.handle()).await?;
            assert_eq!(again.id(), node.id());
            if attr.kind == Kind::File {
                let read = node.read(None, 0, 5000, &b.into).await?;
                let mut bytes = read.data.iter().flat_map(|x| x.iter().copied());
                assert!(bytes.all(|x| u64::from(x) < THREADS));
            }
        }
    }
    Ok(())
}

/// No deadlock, no panic, no wrong link count when many callers change a few names.
pub(crate) async fn many_change_the_same_names(b: Bench) {
    let b = Arc::new(b);
    let mut dirs = vec![b.root.clone()];
    for name in ["x", "y"] {
        dirs.push(b.dir(name).await);
    }
    let threads: Vec<_> = (0..THREADS)
        .map(|who| {
            let (b, dirs) = (b.clone(), dirs.clone());
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                runtime.block_on(async {
                    let mut dice = Dice(who);
                    for _ in 0..STEPS {
                        if let Err(e) = one_step(&b, &dirs, &mut dice, who).await {
                            assert!(expected(e), "{e}");
                        }
                    }
                });
            })
        })
        .collect();
    for t in threads {
        t.join().unwrap();
    }
    // Every name leads to a node, and every file has as many links as names.
    let mut links = std::collections::HashMap::new();
    let mut left = vec![b.root.clone()];
    while let Some(dir) = left.pop() {
        let (entries, end) = dir.readdir(&root(), 0, 1000).await.unwrap();
        assert!(end);
        for e in entries {
            let (node, attr) = dir.lookup(&root(), &e.name).await.unwrap();
            assert_eq!(attr.fileid, e.fileid);
            match attr.kind {
                Kind::Dir => {
                    let (up, _) = node.lookup(&root(), b"..").await.unwrap();
                    assert_eq!(up.id(), dir.id());
                    left.push(node);
                }
                _ => {
                    let seen = links.entry(node.id()).or_insert((0, attr.nlink));
                    seen.0 += 1;
                }
            }
        }
    }
    assert!(links.values().all(|(names, nlink)| names == nlink), "{links:?}");
}
