//! Links of a share come, change and go by reloads, while clients are connected and have files open below them.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use client::connect::{self, Local};
use client::nfs3::{self, Nfs3};
use client::nfs4::{self, LockType4, Minor, Nfs4, OpenFile, Recall, Recalls, StableHow4};
use client::smb::{Break, Caching, OpenHow, Options, Smb, SmbFile};
use client::{Credential, Error, NoCallbacks, mount};
use common::{Daemon, PASSWORD};
use iobuf::Buf;
use smb_proto::NtStatus;
use smb_proto::smb2::change_notify::filter;
use smb_proto::smb2::create::{Disposition, access, option};
use tokio::sync::mpsc;

const ENOUGH: Duration = Duration::from_secs(60);
/// NFS4ERR_MOVED and NFS4ERR_DENIED (RFC 8881 section 15.1).
const MOVED: u32 = 10_019;
const DENIED: u32 = 10_010;
/// Clients have these files open all the time.
const OPEN: [&str; 2] = ["old/report", "projects/far/plan"];
/// Other paths, of which some lead to a link at times.
const OTHERS: [&str; 4] = ["beside", "projects/here", "samba/x", "made/new/x"];
/// Bytes that the SMB client has locked in each open file.
const LOCKED: (u64, u64) = (100, 10);
/// The text of the symbolic link `samba`, and the server in it.
const SAMBA: (&str, &str) = (r"msdfs:gw5\share", "gw5/share");

/// Links as the configuration has them.
struct Stage {
    /// `links` of the share; empty for a share without links.
    text: &'static str,
    /// Each link with its servers, as `SERVER/SHARE`.
    links: &'static [(&'static str, &'static [&'static str])],
    /// Symbolic links of Samba are links.
    msdfs: bool,
}

const NONE: Stage = Stage { text: "", links: &[], msdfs: false };
const STAGES: [Stage; 8] = [
    Stage { text: "{at: old, to: 'gw2:/archive'}", links: &[("old", &["gw2/archive"])], ..NONE },
    Stage {
        text: "{at: old, to: ['gw3:/new', 'gw2:/archive']}",
        links: &[("old", &["gw3/new", "gw2/archive"])],
        ..NONE
    },
    Stage {
        text: "[{at: old, to: 'gw3:/new'}, {at: projects/far, to: 'gw4:/far'}]",
        links: &[("old", &["gw3/new"]), ("projects/far", &["gw4/far"])],
        ..NONE
    },
    // A folder above the link before, and a folder that the gateway has to make.
    Stage {
        text: "[{at: projects, to: 'gw4:/all'}, {at: made/new, to: 'gw2:/made'}]",
        links: &[("projects", &["gw4/all"]), ("made/new", &["gw2/made"])],
        ..NONE
    },
    Stage { text: "msdfs", msdfs: true, ..NONE },
    Stage {
        text: "[msdfs, {at: made/new, to: 'gw2:/made'}]",
        links: &[("made/new", &["gw2/made"])],
        msdfs: true,
    },
    NONE,
    Stage { text: "{at: old, to: 'gw2:/archive'}", links: &[("old", &["gw2/archive"])], ..NONE },
];

impl Stage {
    /// The slow model: the first link on a path, with its servers. `samba`: a link if the share says so.
    fn away(&self, path: &str, samba: bool) -> Option<(String, Vec<String>)> {
        let names: Vec<&str> = path.split('/').collect();
        (1..=names.len()).map(|n| names[..n].join("/")).find_map(|start| {
            if samba && self.msdfs && start == "samba" {
                return Some((start, vec![SAMBA.1.to_owned()]));
            }
            let (_, to) = self.links.iter().find(|(at, _)| *at == start)?;
            Some((start, to.iter().map(|to| (*to).to_owned()).collect()))
        })
    }

    /// Returns the links that one of two stages has and the other has not, or with other servers.
    fn changed(&self, next: &Self) -> BTreeSet<String> {
        let all = |stage: &Self| stage.links.iter().copied().collect::<BTreeSet<_>>();
        all(self).symmetric_difference(&all(next)).map(|(at, _)| (*at).to_owned()).collect()
    }
}

/// A file that clients of both protocols have open.
struct Held {
    smb: SmbFile,
    nfs: OpenFile,
}

/// Clients that connect once.
struct World {
    daemon: Daemon,
    folder: tempfile::TempDir,
    smb: Smb,
    nfs4: Nfs4,
    nfs3: (Nfs3, nfs3::Fh),
    recalls: mpsc::Receiver<Recall>,
    breaks: mpsc::Receiver<Break>,
    /// The top of the share, as a directory to watch.
    top: SmbFile,
    top4: nfs4::Fh,
    held: Vec<Held>,
}

fn shares(folder: &std::path::Path, links: &str) -> String {
    let links = if links.is_empty() { String::new() } else { format!(", links: {links}") };
    format!("shares:\n  - {{name: data, path: {}, squash: none{links}}}\n", folder.display())
}

async fn connect_smb(daemon: &Daemon) -> Smb {
    daemon.smb("data", "alice", PASSWORD, Options::default()).await.unwrap()
}

impl World {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for path in OPEN.iter().chain(&OTHERS[..2]) {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, [b'.'; 16]).unwrap();
        }
        fs::create_dir(folder.path().join("samples")).unwrap();
        std::os::unix::fs::symlink(SAMBA.0, folder.path().join("samba")).unwrap();
        let daemon = Daemon::start(&shares(folder.path(), ""));
        let smb = connect_smb(&daemon).await;
        let breaks = smb.breaks().unwrap();
        let (top, _) = smb.open_cached("", &OpenHow::LIST).await.unwrap();
        let (callbacks, recalls) = Recalls::new();
        let local = Local::default();
        let rpc = connect::tcp(daemon.nfs, &local, Arc::new(callbacks)).await.unwrap();
        let root = Credential::sys(0, 0, &[]);
        let nfs4 = Nfs4::connect(rpc, root.clone(), Minor::Two, b"links", [7; 8]).await.unwrap();
        let rpc = connect::tcp(daemon.nfs, &local, Arc::new(NoCallbacks)).await.unwrap();
        let top3 = mount::mount(&rpc, &root, "/data").await.unwrap();
        let nfs3 = (Nfs3::new(rpc, root), top3);
        let top4 = nfs4.walk("/data").await.unwrap();
        let mut held = Vec::new();
        for path in OPEN {
            let (file, _) =
                smb.open_cached(&path.replace('/', "\\"), &OpenHow::WRITE).await.unwrap();
            smb.lock(&file, LOCKED, true, false).await.unwrap();
            let (dir, name) = path.rsplit_once('/').unwrap();
            let dir = nfs4.walk(&format!("/data/{dir}")).await.unwrap();
            let how = nfs4::OpenHow { want: nfs4::OpenHow::WANT_NO_DELEG, ..nfs4::OpenHow::WRITE };
            let nfs = nfs4.open(&dir, name.as_bytes(), b"owner", how).await.unwrap();
            held.push(Held { smb: file, nfs });
        }
        Self { daemon, folder, smb, nfs4, nfs3, recalls, breaks, top, top4, held }
    }

    /// Root may have made symbolic links that count.
    fn samba_counts(&self) -> bool {
        fs::symlink_metadata(self.folder.path().join("samba")).unwrap().uid() == 0
    }

    fn reload(&self, stage: &Stage) {
        let file = self.daemon.home.path().join("gw.yaml");
        let before = fs::read_to_string(&file).unwrap();
        let (head, _) = before.split_once("shares:").unwrap();
        fs::write(&file, format!("{head}{}", shares(self.folder.path(), stage.text))).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_headgate"));
        let command = command.args(["reload", "--state", "state"]).current_dir(&self.daemon.home);
        let out = command.output().unwrap();
        assert!(out.status.success(), "{}: {out:?}", stage.text);
    }

    /// Reloads while clients watch the share and cache a listing of it. Returns once they know of each changed link.
    async fn reload_watched(&mut self, before: &Stage, stage: &Stage, is_first: bool) {
        let changed = before.changed(stage);
        // The link of Samba is there, and any folder may have one.
        let of_samba = before.msdfs != stage.msdfs;
        let at_top = of_samba || changed.iter().any(|at| !at.contains('/'));
        let below = [8; 16];
        let mut listed_below = None;
        if of_samba {
            let how = OpenHow::LIST.cached(Caching::Lease(below, 3));
            let (listing, granted) = self.smb.open_cached("samples", &how).await.unwrap();
            assert_eq!(granted, 3, "a lease of a listing below");
            listed_below = Some(listing);
        }
        let key = [9; 16];
        let mut lists = None;
        if at_top {
            let how = OpenHow::LIST.cached(Caching::Lease(key, 3));
            let (listing, granted) = self.smb.open_cached("", &how).await.unwrap();
            assert_eq!(granted, 3, "a lease of the listing");
            let delegation = self.nfs4.get_dir_delegation(&self.top4).await.unwrap();
            // After a recall the gateway grants no delegation of the same folder for a while.
            assert!(delegation.is_some() || !is_first, "{}", stage.text);
            lists = Some((listing, delegation));
        }
        let interims = self.smb.interims();
        let watched = async {
            let mut missing: BTreeSet<String> =
                changed.iter().map(|at| at.replace('/', "\\")).collect();
            while !missing.is_empty() {
                let what = filter::ATTRIBUTES | filter::DIR_NAME;
                let news = tokio::time::timeout(ENOUGH, self.smb.notify(&self.top, true, what));
                let news = news.await.unwrap_or_else(|_| panic!("{missing:?} is not told"));
                for change in news.unwrap() {
                    missing.remove(&change.name);
                }
            }
        };
        let reloaded = async {
            while !changed.is_empty() && self.smb.interims() == interims {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            tokio::task::block_in_place(|| self.reload(stage));
        };
        tokio::join!(watched, reloaded);
        let Some((listing, delegation)) = lists else { return };
        let mut keys = BTreeSet::from([key]);
        keys.extend(listed_below.is_some().then_some(below));
        while !keys.is_empty() {
            let told = tokio::time::timeout(ENOUGH, self.breaks.recv()).await;
            let told = told.unwrap_or_else(|_| panic!("{}: {keys:?} are not told", stage.text));
            let Some(Break::LeaseNotice(notice)) = told else { panic!("{told:?}") };
            assert!(keys.remove(&notice.key), "{}: {notice:?}", stage.text);
            assert_eq!(notice.to & 1, 0, "{}: {notice:?}", stage.text);
            self.smb.acknowledge_lease(notice.key, notice.to).await.unwrap();
        }
        for listing in [listing].into_iter().chain(listed_below) {
            self.smb.close(listing).await.unwrap();
        }
        let Some(delegation) = delegation else { return };
        let recall = tokio::time::timeout(ENOUGH, self.recalls.recv()).await.unwrap();
        assert_eq!(recall.map(|r| r.stateid), Some(delegation), "{}", stage.text);
        self.nfs4.delegreturn(&self.top4, delegation).await.unwrap();
    }

    /// Compares the next requests of these SMB clients with the model.
    async fn smb_sees(&self, stage: &Stage, clients: &[&Smb]) {
        let has_links = !stage.text.is_empty();
        for path in OPEN.iter().chain(&OTHERS) {
            let (away, what) =
                (stage.away(path, self.samba_counts()), format!("{path} of {}", stage.text));
            let exists = !OTHERS[2..].contains(path);
            for client in clients {
                let opened = client.find(&path.replace('/', "\\")).await;
                let is_away = matches!(opened, Err(Error::Smb(_, NtStatus::PATH_NOT_COVERED)));
                assert_eq!(is_away, away.is_some(), "{what}: {opened:?}");
                assert!(is_away || opened.is_ok() == exists, "{what}: {opened:?}");
                if let Ok(file) = opened {
                    client.close(file).await.unwrap();
                }
                let asked = format!("\\127.0.0.1\\data\\{}", path.replace('/', "\\"));
                match (client.referrals(&asked).await, &away) {
                    (Ok(told), Some((at, to))) => {
                        let to: Vec<_> = to.iter().map(|to| format!("/{to}")).collect();
                        let targets: Vec<_> =
                            told.targets.iter().map(|to| to.replace('\\', "/")).collect();
                        assert_eq!((targets, told.is_root), (to, false), "{what}");
                        let prefix = format!("/127.0.0.1/data/{at}");
                        assert_eq!(told.dfs_path.replace('\\', "/"), prefix, "{what}");
                    }
                    (Ok(told), None) => assert!(has_links && told.is_root, "{what}: {told:?}"),
                    (Err(Error::Smb(_, why)), None) => {
                        assert_eq!(
                            (has_links, why),
                            (false, NtStatus::FS_DRIVER_REQUIRED),
                            "{what}"
                        );
                    }
                    other => panic!("{what}: {other:?}"),
                }
            }
        }
    }

    /// Compares the next requests of the NFS clients with the model.
    async fn nfs_sees(&self, stage: &Stage) {
        for path in OPEN.iter().chain(&OTHERS) {
            let (away, what) =
                (stage.away(path, self.samba_counts()), format!("{path} of {}", stage.text));
            let walked = self.nfs4.walk(&format!("/data/{path}")).await;
            let is_away = matches!(walked, Err(Error::Nfs4(_, MOVED)));
            assert_eq!(is_away, away.is_some(), "{what}: {walked:?}");
            let exists = !OTHERS[2..].contains(path);
            assert!(is_away || walked.is_ok() == exists, "{what}: {walked:?}");
            let Some((at, to)) = &away else { continue };
            let walked = self.nfs4.walk(&format!("/data/{at}")).await;
            assert!(matches!(walked, Err(Error::Nfs4(_, MOVED))), "{what}: {walked:?}");
            let told = self.nfs4.locations(&format!("/data/{at}")).await.unwrap();
            let told: Vec<_> =
                told.iter().map(|one| format!("{}{}", one.server, one.path)).collect();
            assert_eq!(&told, to, "{what}");
        }
        // NFS 3 has no referrals: an empty folder.
        let (nfs3, top) = &self.nfs3;
        let (old, _) = nfs3.lookup(top, b"old").await.unwrap();
        let names = nfs3.list(&old).await.unwrap();
        let names = names.iter().filter(|entry| entry.name.first() != Some(&b'.')).count();
        let wanted = usize::from(stage.away("old", false).is_none());
        assert_eq!(names, wanted, "{}", stage.text);
    }

    /// Data goes through each handle, and locks hold.
    async fn handles_work(&self, stage: usize) {
        for (file, path) in self.held.iter().zip(OPEN) {
            let text = format!("{stage}: by NFS").into_bytes();
            let data = vec![Buf::from(text.clone())];
            let nfs = (&file.nfs.fh, file.nfs.io());
            let written = self.nfs4.write(nfs.0, nfs.1, 0, data, StableHow4::FileSync).await;
            assert_eq!(written.unwrap().count, 9, "{path}");
            let read = self.smb.read(&file.smb, 0, 9).await.unwrap();
            assert_eq!(read.iter().flat_map(|b| b.to_vec()).collect::<Vec<_>>(), text, "{path}");
            let text = format!("{stage}: by SMB").into_bytes();
            self.smb.write(&file.smb, 0, vec![Buf::from(text.clone())]).await.unwrap();
            let (read, _) = self.nfs4.read(nfs.0, nfs.1, 0, 9).await.unwrap();
            assert_eq!(read.iter().flat_map(|b| b.to_vec()).collect::<Vec<_>>(), text, "{path}");
            assert_eq!(fs::read(self.folder.path().join(path)).unwrap()[..9], text, "{path}");
            let lock = self.nfs4.lock(&file.nfs, b"locker", LockType4::Write, LOCKED).await;
            assert!(matches!(lock, Err(Error::Nfs4(_, DENIED))), "{path}: {lock:?}");
        }
    }

    /// Compares what `status` shows.
    fn status_shows(&self, stage: &Stage) {
        let status = self.daemon.told_status();
        let share = status.shares.iter().find(|share| share.name == "data").unwrap();
        let shown = share.links.iter().map(|link| {
            (link.at.clone(), link.to.iter().map(|to| to.replace(':', "")).collect::<Vec<_>>())
        });
        let wanted = stage.links.iter().map(|(at, to)| {
            ((*at).to_owned(), to.iter().map(|to| (*to).to_owned()).collect::<Vec<_>>())
        });
        assert_eq!(shown.collect::<Vec<_>>(), wanted.collect::<Vec<_>>(), "{}", stage.text);
        assert_eq!(share.msdfs, stage.msdfs, "{}", stage.text);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn links_change_below_connected_clients() {
    let mut world = World::start().await;
    let mut before = &NONE;
    world.smb_sees(before, &[&world.smb]).await;
    world.nfs_sees(before).await;
    let mut later: Option<Smb> = None;
    for (number, stage) in STAGES.iter().enumerate() {
        world.reload_watched(before, stage, number == 0).await;
        // This client learns at its connect that the share is of DFS.
        if later.is_none() {
            later = Some(connect_smb(&world.daemon).await);
        }
        let clients: Vec<&Smb> = [&world.smb].into_iter().chain(&later).collect();
        world.smb_sees(stage, &clients).await;
        world.nfs_sees(stage).await;
        world.handles_work(number).await;
        world.status_shows(stage);
        before = stage;
    }
    for file in &world.held {
        world.smb.unlock(&file.smb, LOCKED).await.unwrap();
        world.smb.close(file.smb).await.unwrap();
        world.nfs4.close(&file.nfs).await.unwrap();
    }
}

/// A reload is refused if the folder of a link cannot be made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reload_with_a_file_in_the_place_of_a_link_is_refused() {
    let world = World::start().await;
    world.reload(&STAGES[0]);
    let file = world.daemon.home.path().join("gw.yaml");
    let good = fs::read_to_string(&file).unwrap();
    let bad = good.replace("at: old", "at: beside/x");
    assert_ne!(good, bad);
    fs::write(&file, bad).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_headgate"));
    let command = command.args(["reload", "--state", "state"]).current_dir(&world.daemon.home);
    let out = command.output().unwrap();
    let said = String::from_utf8_lossy(&[&out.stdout[..], &out.stderr].concat()).into_owned();
    assert!(!out.status.success() && said.contains("beside/x"), "{said}");
    world.smb_sees(&STAGES[0], &[&world.smb]).await;
    world.nfs_sees(&STAGES[0]).await;
    world.handles_work(0).await;
}

/// The folder of a link has a name in each share that overlaps, and no client removes it there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn folder_of_a_link_is_not_deleted_through_another_share() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("inner/plain")).unwrap();
    let path = folder.path().display();
    let daemon = Daemon::start(&format!(
        "shares:\n  - {{name: data, path: {path}/inner, squash: none, links: [{{at: a/b, to: 'gw2:/archive'}}]}}\n  \
         - {{name: outer, path: {path}, squash: none}}\n"
    ));
    let outer = daemon.smb("outer", "alice", PASSWORD, Options::default()).await.unwrap();
    let open =
        |name: &'static str, options| outer.open(name, access::DELETE, Disposition::Open, options);
    let refused = |result: client::Result<()>| matches!(result, Err(Error::Smb(_, status)) if status == NtStatus::ACCESS_DENIED);
    let closing = option::DIRECTORY_FILE | option::DELETE_ON_CLOSE;
    assert!(refused(open(r"inner\a\b", closing).await.map(drop)));
    let link = open(r"inner\a\b", option::DIRECTORY_FILE).await.unwrap();
    assert!(refused(outer.delete_on_close(&link).await));
    outer.close(link).await.unwrap();
    assert!(folder.path().join("inner/a/b").exists());
    let plain = open(r"inner\plain", option::DIRECTORY_FILE).await.unwrap();
    outer.delete_on_close(&plain).await.unwrap();
    outer.close(plain).await.unwrap();
    assert!(!folder.path().join("inner/plain").exists());
}
