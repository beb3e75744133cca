//! Tests that a file system that stops responding blocks neither other shares nor the administrator.
#![allow(clippy::unwrap_used, clippy::expect_used, unreachable_pub)]

mod daemon;
mod fuse;
mod work;

use std::io::{BufRead, BufReader};
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::smb::Caching;

use daemon::{Daemon, configure, headgate, home, within};
use fuse::{Fuse, Silence};
use work::{ALL, Client};

/// More calls than the runtime has workers, and more than the share may run at once.
const CALLS: usize = 100;
/// Hanging calls of one kind: more than it has threads, and fewer than the share may queue.
const HUNG: usize = 40;
/// Clients that read one file: more than the runtime has workers.
const READERS: usize = 8;

#[tokio::test]
async fn a_file_system_that_falls_silent_keeps_nobody_else_waiting() {
    let Some(fuse) = Fuse::mount() else {
        println!("skipped: this user may not mount a file system of FUSE");
        return;
    };
    let daemon = Daemon::start(&fuse);
    let (nfs, root) = daemon.mount("silent").await;
    nfs.getattr(&root).await.unwrap();
    fuse.fall(Silence::All);
    let nfs = Arc::new(nfs);
    for n in 0..CALLS {
        let (nfs, root) = (nfs.clone(), root.clone());
        tokio::spawn(async move {
            match n % 2 {
                0 => drop(nfs.getattr(&root).await),
                _ => drop(nfs.lookup(&root, b"name").await),
            }
        });
    }
    daemon::until("the file system is asked", || fuse.heard() > 0).await;
    for n in 0..3 {
        let ok = Client::connect(&daemon, "ok").await;
        within("others are served", ok.make_and_use(&format!("f{n}"))).await;
    }
    within("the administrator is served", daemon.look()).await;
    within("the silent share is named", daemon.names_as_stuck("silent")).await;
    fuse.fall(Silence::None);
    within("it is told that it answers", daemon.names_none_as_stuck()).await;
}

/// All requests to a silent share, over every protocol, finish when it answers again. Other shares continue meanwhile: their
/// transfers do not wait for its threads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transfers_that_hang_keep_no_thread_from_other_shares() {
    let Some(fuse) = Fuse::mount() else {
        println!("skipped: this user may not mount a file system of FUSE");
        return;
    };
    let daemon = Daemon::start(&fuse);
    let silent = Arc::new(Client::connect(&daemon, "silent").await);
    let ok = Client::connect(&daemon, "ok").await;
    let files = silent.open_all(HUNG).await;
    for (round, (op, by)) in ALL.into_iter().enumerate() {
        fuse.fall(Silence::Data);
        let calls: Vec<_> = (0..HUNG)
            .map(|n| {
                let (silent, file) = (silent.clone(), files[n].clone());
                tokio::spawn(async move { silent.call(op, by, &file).await })
            })
            .collect();
        let what = format!("{op:?} by {by:?}");
        daemon::until(&format!("{what} is asked for"), || fuse.heard() >= op.threads()).await;
        within(&format!("{what}: others are served"), ok.make_and_use(&format!("f{round}"))).await;
        within(&format!("{what}: the administrator is served"), daemon.look()).await;
        fuse.fall(Silence::None);
        let all = async {
            for call in calls {
                call.await.unwrap().unwrap_or_else(|e| panic!("{what}: {e}"));
            }
        };
        within(&format!("{what}: what waited ends"), all).await;
    }
}

/// Hanging transfers use only a part of the memory; other shares have the rest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transfers_that_hang_leave_memory_to_other_shares() {
    let Some(fuse) = Fuse::mount() else {
        println!("skipped: this user may not mount a file system of FUSE");
        return;
    };
    let home = home(&[("silent", fuse.path())]);
    let file = home.path().join("gw.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    // All clients have one address, which may use all of it.
    let little = format!("{text}memory: 32MiB\nlimits: {{client_memory: 32MiB}}\n");
    std::fs::write(&file, little).unwrap();
    let daemon = Daemon::at_home(home);
    let silent = Arc::new(Client::connect(&daemon, "silent").await);
    let ok = Client::connect(&daemon, "ok").await;
    let files = silent.open_all(HUNG).await;
    fuse.fall(Silence::Data);
    for file in files {
        let silent = silent.clone();
        tokio::spawn(async move { silent.write_much(&file).await });
    }
    daemon::until("the file system is asked", || fuse.heard() > 0).await;
    within("others have memory", ok.make_and_use("f")).await;
    within("the administrator is served", daemon.look()).await;
    fuse.fall(Silence::None);
}

/// A start fails if the files of persistent handles are on storage that does not respond.
#[tokio::test]
async fn a_start_ends_where_persistent_handles_are_on_a_silent_share() {
    let Some(fuse) = Fuse::mount() else {
        println!("skipped: this user may not mount a file system of FUSE");
        return;
    };
    let home = home(&[("silent", fuse.path())]);
    let file = home.path().join("gw.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    let path = format!("{}, squash: none", fuse.path().display());
    let lasting = text.replace(&path, &format!("{path}, continuous_availability: true"));
    assert_ne!(lasting, text);
    std::fs::write(&file, lasting).unwrap();
    let daemon = Daemon::at_home(home);
    Client::connect(&daemon, "silent").await.hold("f0").await;
    let home = daemon.kill();
    fuse.fall(Silence::Files);
    let mut serve = daemon::begun(home.path());
    let said = serve.stderr.take().unwrap();
    let line = tokio::task::spawn_blocking(move || {
        BufReader::new(said).lines().map(Result::unwrap).find(|l| l.starts_with("error: "))
    });
    let line = within("it is told", line).await.unwrap().expect("an error");
    assert!(line.contains("share silent: its file system does not respond"), "{line}");
    // The kernel keeps the process until its request is answered.
    fuse.fall(Silence::None);
    let status = within("it ends", tokio::task::spawn_blocking(move || serve.wait())).await;
    assert_eq!(status.unwrap().unwrap().code(), Some(1));
}

/// A start waits only a while for a silent file system that is mounted inside a share: that alone is unavailable, and the handle
/// there comes back with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn start_goes_on_where_inner_mount_is_silent() {
    let outer = tempfile::tempdir().unwrap();
    let Some(fuse) = Fuse::mount_at(tempfile::tempdir_in(&outer).unwrap()) else {
        println!("skipped: this user may not mount a file system of FUSE");
        return;
    };
    let home = home(&[("outer", outer.path())]);
    let file = home.path().join("gw.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    let path = format!("{}, squash: none", outer.path().display());
    let lasting = text.replace(&path, &format!("{path}, continuous_availability: true"));
    assert_ne!(lasting, text);
    std::fs::write(&file, lasting).unwrap();
    let name = format!("{}\\f0", fuse.path().file_name().unwrap().to_str().unwrap());
    let guid = [7; 16];
    let daemon = Daemon::at_home(home);
    let smb = daemon.connect_as(1, "outer").await;
    let (held, _) = smb.open_persistent(&name, guid, Caching::None).await.unwrap();
    drop(smb);
    let home = daemon.kill();
    fuse.fall(Silence::All);
    let began = Instant::now();
    let daemon = within("it starts", tokio::task::spawn_blocking(move || Daemon::at_home(home)));
    let daemon = daemon.await.unwrap();
    println!("started after {:?}", began.elapsed());
    let smb = within("the share is served", daemon.connect_as(1, "outer")).await;
    let there = within("its own files too", smb.create("f")).await.unwrap();
    smb.close(there).await.unwrap();
    fuse.fall(Silence::None);
    within("the handle comes back", async {
        while smb.take_up(&name, guid, Some(&held), Caching::None).await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
}

/// A start also fails if its state folder or password file does not respond.
#[tokio::test]
async fn a_start_ends_where_its_own_files_are_silent() {
    let Some(fuse) = Fuse::mount() else {
        println!("skipped: this user may not mount a file system of FUSE");
        return;
    };
    fuse.fall(Silence::All);
    let home = home(&[]);
    let state = fuse.path().join("state");
    let by_state = ["serve", "--config", "gw.yaml", "--state", state.to_str().unwrap()];
    let output = headgate(home.path(), &by_state).await;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{text}");
    assert!(text.contains("state folder") && text.contains("does not respond"), "{text}");

    let file = home.path().join("gw.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    let password = fuse.path().join("password");
    let moved = text.replace(
        &format!("password_file: {}/password", home.path().display()),
        &format!("password_file: {}", password.display()),
    );
    assert_ne!(moved, text);
    std::fs::write(&file, moved).unwrap();
    for args in [
        &["serve", "--config", "gw.yaml", "--state", "state"][..],
        &["check", "--config", "gw.yaml"],
    ] {
        let output = headgate(home.path(), args).await;
        let text = [&output.stdout[..], &output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        assert!(!output.status.success(), "{args:?}: {text}");
        assert!(text.contains("password: its file system does not respond"), "{args:?}: {text}");
    }
}

/// Checks for the message that a share cannot be opened.
fn names_the_share(output: &std::process::Output) -> bool {
    let text = [&output.stdout[..], &output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    text.contains("silent") && text.contains("does not respond")
}

/// Neither a start nor `check` hangs with a share; both name it.
#[tokio::test]
async fn a_start_and_a_check_end_where_a_share_is_silent() {
    let Some(fuse) = Fuse::mount() else {
        println!("skipped: this user may not mount a file system of FUSE");
        return;
    };
    fuse.fall(Silence::All);
    let home = home(&[("silent", fuse.path())]);
    for args in [
        &["serve", "--config", "gw.yaml", "--state", "state"][..],
        &["check", "--config", "gw.yaml"],
    ] {
        let output = headgate(home.path(), args).await;
        assert!(!output.status.success() && names_the_share(&output), "{args:?}: {output:?}");
    }
}

/// Reads of one file wait for its single descriptor: the call that opens it must not hold a lock that others need.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_of_a_file_whose_open_hangs_keep_nobody_else_waiting() {
    let Some(fuse) = Fuse::mount() else {
        println!("skipped: this user may not mount a file system of FUSE");
        return;
    };
    let daemon = Daemon::start(&fuse);
    let mut clients = Vec::new();
    for _ in 0..READERS {
        let (nfs, root) = daemon.mount("silent").await;
        let (file, _) = nfs.lookup(&root, b"f1").await.unwrap();
        clients.push((nfs, file));
    }
    fuse.fall(Silence::Open);
    let reads: Vec<_> = clients
        .into_iter()
        .map(|(nfs, file)| tokio::spawn(async move { nfs.read(&file, 0, 4096).await }))
        .collect();
    // Fails if the open blocked all other reads, and with them the workers.
    daemon::until("all reads open the file", || fuse.heard() >= READERS).await;
    let ok = Client::connect(&daemon, "ok").await;
    within("others are served", ok.make_and_use("f")).await;
    within("the administrator is served", daemon.look()).await;
    fuse.fall(Silence::None);
    for read in reads {
        within("a read ends", read).await.unwrap().unwrap();
    }
}

/// A reload that would open a silent share is rejected and blocks no client meanwhile. A share that is already open may be
/// silent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_does_not_hang_with_a_share() {
    let Some(fuse) = Fuse::mount() else {
        println!("skipped: this user may not mount a file system of FUSE");
        return;
    };
    let daemon = Arc::new(Daemon::at_home(home(&[])));
    let reload = |daemon: &Arc<Daemon>| {
        let daemon = daemon.clone();
        tokio::spawn(async move { headgate(daemon.home(), &["reload", "--state", "state"]).await })
    };
    fuse.fall(Silence::All);
    configure(daemon.home(), &[("silent", fuse.path())], "");
    let refused = reload(&daemon);
    daemon::until("the folder is looked at", || fuse.heard() > 0).await;
    let others = async {
        let ok = Client::connect(&daemon, "ok").await;
        ok.make_and_use("f").await;
        daemon.look().await;
        let log = headgate(daemon.home(), &["log", "info", "--state", "state"]).await;
        assert!(log.status.success(), "{log:?}");
    };
    within("others are served", others).await;
    let refused = refused.await.unwrap();
    assert!(!refused.status.success() && names_the_share(&refused), "{refused:?}");

    fuse.fall(Silence::None);
    let added = reload(&daemon).await.unwrap();
    assert!(added.status.success(), "{added:?}");
    let silent = Client::connect(&daemon, "silent").await;
    fuse.fall(Silence::All);
    configure(daemon.home(), &[("silent", fuse.path())], ", read_only: true");
    let changed = reload(&daemon).await.unwrap();
    let text = String::from_utf8_lossy(&changed.stdout).into_owned();
    assert!(changed.status.success() && text.contains("shares changed: ok"), "{changed:?}");
    fuse.fall(Silence::None);
    within("the share is served as before", silent.open_all(3)).await;
    configure(daemon.home(), &[], "");
    let removed = reload(&daemon).await.unwrap();
    assert!(String::from_utf8_lossy(&removed.stdout).contains("shares removed: silent"));
}
