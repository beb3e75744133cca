//! Measures changes of names on an NFS version 3 server: `names TARGET CLIENTS SECONDS FILES SERVER-PID`. Each client has its own
//! connection and folder and waits for each reply. Prints a line per load: name, operations per second, and CPU seconds per 1000
//! operations, either of the server process or, if the process is `all`, of the whole machine, as for a server in the kernel.

#![allow(clippy::expect_used)] // A measurement that cannot continue should panic with a message.

use std::time::{Duration, Instant};

use client::connect::Local;
use client::nfs3::{CreateHow, Fh, Nfs3, SetAttr};
use client::target::Target;
use client::{Credential, Volume};
use tokio::task::JoinSet;

/// Kinds of changes in their order; each uses the result of the earlier ones.
const LOADS: [&str; 5] = ["create", "setattr", "rename", "mkdir", "remove"];

/// The processes whose CPU time is measured.
#[derive(Clone, Copy)]
enum CpuScope {
    Process(u32),
    Machine,
}

fn cpu(whose: CpuScope) -> f64 {
    match whose {
        CpuScope::Process(pid) => of_process(pid),
        CpuScope::Machine => of_machine(),
    }
}

/// Returns the busy time of all processors, in seconds (proc_stat(5) counts hundredths).
fn of_machine() -> f64 {
    let text = std::fs::read_to_string("/proc/stat").expect("/proc/stat");
    let fields = text.lines().next().unwrap_or_default().split_whitespace().skip(1);
    let ticks: Vec<f64> = fields.map(|f| f.parse().expect("ticks")).collect();
    // The fourth and fifth numbers are idle and I/O wait; the last two are already included in the first two.
    let busy = |(n, ticks): (usize, &f64)| if (3..5).contains(&n) { 0.0 } else { *ticks };
    ticks.iter().take(8).enumerate().map(busy).sum::<f64>() / 100.0
}

/// Returns the CPU time of all threads of a process, in seconds. The kernel counts nanoseconds per thread.
fn of_process(pid: u32) -> f64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the server's threads");
    let of = |thread: std::fs::DirEntry| -> Option<f64> {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse().ok()
    };
    // A thread that has just ended is not counted.
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

    /// Performs one change; returns false if no object is left for it.
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

    /// Performs changes until the time is over, the maximum is reached, or no object is left.
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
    let whose = match pid.as_str() {
        "all" => CpuScope::Machine,
        pid => CpuScope::Process(pid.parse().expect("a process")),
    };
    let mut clients = Vec::new();
    for number in 0..count {
        clients.push(Client::new(&target, number).await);
    }
    for load in LOADS {
        let (began, used) = (Instant::now(), cpu(whose));
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
        println!("{load} {:.1} {:.4}", done / took, (cpu(whose) - used) / done * 1000.0);
    }
}
