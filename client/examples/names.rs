//! What changes of names cost on a server of NFS 3: `names TARGET CLIENTS SECONDS FILES SERVER-PID`. Each client has a connection
//! and a folder of its own and waits for each answer. One line for each load: its name, operations per second, and the CPU seconds
//! of the server for 1000 operations.

#![allow(clippy::expect_used)] // A measurement that cannot go on says so.

use std::time::{Duration, Instant};

use client::connect::Local;
use client::nfs3::{CreateHow, Fh, Nfs3, SetAttr};
use client::target::Target;
use client::{Credential, Volume};
use tokio::task::JoinSet;

/// Kinds of changes, in the order in which they are made: each needs what the ones before left.
const LOADS: [&str; 5] = ["create", "setattr", "rename", "mkdir", "remove"];

/// CPU seconds of all threads of a process. Nanoseconds are counted for each thread.
fn cpu(pid: u32) -> f64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the server's threads");
    let of = |thread: std::fs::DirEntry| -> Option<f64> {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse().ok()
    };
    // A thread that ends meanwhile is not counted.
    threads.flatten().filter_map(of).sum::<f64>() / 1e9
}

struct Client {
    nfs: Nfs3,
    folder: Fh,
    files: Vec<Fh>,
}

impl Client {
    async fn new(target: &Target, number: usize) -> Self {
        let volume = Volume::open(target, &Local::default(), Credential::sys(0, 0, &[])).await;
        let Volume::V3(nfs, root) = volume.expect("the share") else { panic!("not NFS 3") };
        let name = format!("client-{}-{number}", std::process::id());
        let (folder, _) = nfs.mkdir(&root, name.as_bytes(), 0o755).await.expect("a folder");
        Self { nfs, folder, files: Vec::new() }
    }

    /// One change; false when nothing is left to be changed so.
    async fn step(&mut self, load: &str, n: usize) -> bool {
        if load != "create" && n >= self.files.len() {
            return false;
        }
        let (nfs, dir) = (&self.nfs, &self.folder);
        let name = |kind: char| format!("{kind}{n}").into_bytes();
        let done = match load {
            "create" => {
                let how = CreateHow::Guarded(SetAttr { mode: Some(0o644), ..SetAttr::default() });
                let made = nfs.create(dir, &name('f'), how).await;
                made.map(|(fh, _)| self.files.push(fh))
            }
            "setattr" => {
                let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
                nfs.setattr(&self.files[n], &set).await
            }
            "rename" => nfs.rename(dir, &name('f'), dir, &name('g')).await,
            "mkdir" => nfs.mkdir(dir, &name('d'), 0o755).await.map(|_| ()),
            _ => nfs.remove(dir, &name('g')).await,
        };
        done.expect(load);
        true
    }

    /// As many changes as there is time for and may be, or as there is something left for.
    async fn run(mut self, load: &'static str, most: usize, until: Instant) -> (Self, usize) {
        let mut n = 0;
        while n < most && (load != "create" || Instant::now() < until) && self.step(load, n).await {
            n += 1;
        }
        (self, n)
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [target, clients, seconds, most, pid] = &words[..] else {
        panic!("names TARGET CLIENTS SECONDS FILES SERVER-PID");
    };
    let target: Target = target.parse().expect("a target");
    let count: usize = clients.parse().expect("a number of clients");
    let seconds: f64 = seconds.parse().expect("seconds");
    let most = most.parse::<usize>().expect("a number of files").div_ceil(count);
    let pid: u32 = pid.parse().expect("a process");
    let mut clients = Vec::new();
    for number in 0..count {
        clients.push(Client::new(&target, number).await);
    }
    for load in LOADS {
        let (began, used) = (Instant::now(), cpu(pid));
        let until = began + Duration::from_secs_f64(seconds);
        let running: JoinSet<_> = clients.drain(..).map(|c| c.run(load, most, until)).collect();
        let mut done = 0;
        for (client, n) in running.join_all().await {
            clients.push(client);
            done += n;
        }
        let took = began.elapsed().as_secs_f64();
        #[allow(clippy::cast_precision_loss)] // Far below 2^52.
        let done = done as f64;
        println!("{load} {:.1} {:.4}", done / took, (cpu(pid) - used) / done * 1000.0);
    }
}
