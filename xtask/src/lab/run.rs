//! Runs the scenarios one after the other in one network namespace.

use std::fs;
use std::path::Path;
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use super::counters::Counters;
use super::failover::Failover;
use super::gateway::{self, Demands, Gateway};
use super::guest::Guest;
use super::kerberos::{self, Realm};
use super::net::{FIRST_GUEST, INSIDE, Net, SECOND_GUEST, guest_address, host_address};
use super::scenarios::{Kind, Program, Scenario, Server};
use super::third::{Capture, NFS_RDMA, SMB_DIRECT, SMB_TCP};
use super::{Lab, build_kernel, posix};
use super::{takeover, tls};
use crate::ceph::Cluster;
use crate::packages;
use crate::programs::test_program;
use crate::sh::{Result, Tally, output, target_dir};

/// Least number of bytes that the job `sizes` reads, and writes: every size twice, less the inline data.
const SIZES_BULK: u64 = 2 * 3 * (9 << 20);

/// Additional seconds for each run that was requested.
const SECONDS_OF_A_RUN: u32 = 90;

/// Reason to fail a run with the gateway in the guest whose RDMA connections are missing from the log.
const NOT_SEEN: &str = "no connection of this provider ended in the gateway's log";

/// A place to run scenarios in.
#[derive(Debug)]
pub(super) struct Place<'a> {
    pub(super) lab: &'a Lab,
    pub(super) net: Net,
}

impl Place<'_> {
    pub(super) fn run(&self, scenario: &Scenario) -> Result<Tally> {
        let dir = self.lab.dir.join(scenario.name);
        // Removes the folder of an earlier try.
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        let tally = match scenario.server {
            Server::Host if scenario.pair => self.two_guests(scenario, &dir)?,
            Server::Host | Server::Container | Server::Ceph => self.one_guest(scenario, &dir)?,
            Server::Cluster | Server::ClusterOnCeph => self.cluster(scenario, &dir)?,
            Server::Failover(program) => self.failover(scenario, &dir, program)?,
            Server::Guest(fs_kind) if scenario.pair => self.far_client(scenario, &dir, fs_kind)?,
            Server::Guest(fs_kind) => self.server_inside(scenario, &dir, "headgate", fs_kind)?,
            Server::Knfsd => self.server_inside(scenario, &dir, "knfsd", "ext4")?,
            Server::Both(fs_kind) => self.server_inside(scenario, &dir, "both", fs_kind)?,
            Server::Ksmbd => self.server_inside(scenario, &dir, "ksmbd", "ext4")?,
        };
        if tally.failures.is_empty() {
            // The folder of a failed scenario is kept for examination.
            let _ = fs::remove_dir_all(&dir);
        } else {
            println!("    see {}", dir.display());
        }
        Ok(tally)
    }

    /// Returns a guest with the scratch folder `dir/name`.
    fn guest(
        &self,
        scenario: &Scenario,
        taps: &'static [usize],
        dir: &Path,
        name: &str,
    ) -> Result<Guest<'_>> {
        let scratch = dir.join(name);
        let failed = |e| format!("{}: {e}", scratch.display());
        fs::create_dir_all(&scratch).map_err(failed)?;
        fs::copy(&self.lab.source_tree, scratch.join("source-tree.tar.gz")).map_err(failed)?;
        let kind = if scenario.kind == Kind::Cifs { "cifs" } else { "nfs" };
        let mut env = vec![
            ("KIND", kind.into()),
            ("OPTIONS", scenario.options.into()),
            ("VERS", scenario.vers.into()),
            ("PROTO", scenario.proto.into()),
            ("LABEL", scenario.name.into()),
            ("JOBS", scenario.jobs.into()),
            ("DEVICE", scenario.device.into()),
            ("RDMA", scenario.provider.into()),
        ];
        let kernel = build_kernel(scenario.linux)?;
        env.extend(kernel.modules.map(|at| ("MODULES", at.display().to_string())));
        if scenario.tls().is_some() {
            env.push(("TLSHD", tls::tlshd()?.display().to_string()));
        }
        if scenario.jobs == posix::JOB {
            env.push(("PJDFSTEST", posix::pjdfstest()?.display().to_string()));
        }
        if scenario.has_kerberos() {
            env.push(("SERVER_NAME", kerberos::SERVER.into()));
        }
        env.extend(scenario.trouble.map(|words| ("TROUBLE", words.into())));
        env.extend(scenario.boot.and_then(|set| set.split_once('=')).map(|(k, v)| (k, v.into())));
        env.extend(scenario.runs.map(|runs| ("RUNS", runs.to_string())));
        let seconds_max = scenario.seconds_max + SECONDS_OF_A_RUN * scenario.runs.unwrap_or(0);
        Ok(Guest {
            kernel: kernel.program,
            net: &self.net,
            taps,
            scratch,
            memory: "1G",
            seconds_max,
            env,
            verbose: self.lab.verbose,
        })
    }

    fn one_guest(&self, scenario: &Scenario, dir: &Path) -> Result<Tally> {
        let mut realm = match scenario.has_kerberos() {
            true => Some(Realm::start(&self.net, dir, &dir.join("scratch/krb5"), host_address(0))?),
            false => None,
        };
        // Started before the gateway, so that it ends after it.
        let cluster = match scenario.server {
            Server::Ceph => Some(Cluster::start(&self.net, dir, &dir.join("share"))?),
            _ => None,
        };
        let mut gateway = match scenario.server {
            Server::Container => Gateway::in_container(&self.net, dir)?,
            _ => {
                let rights = scenario.jobs == "rights";
                let refers = scenario.refers();
                let (tls, kerberos) = (scenario.tls(), realm.is_some());
                let ceph = cluster.is_some();
                let symlinks_by_client =
                    scenario.kind == Kind::Cifs && !scenario.vers.starts_with("3.1.1");
                let compress = scenario.jobs == "compress";
                let demands =
                    Demands { tls, kerberos, rights, refers, ceph, compress, symlinks_by_client };
                if demands.tls.is_some() {
                    tls::certificates(dir, &dir.join("scratch/tls"))?;
                }
                Gateway::start(&self.net, dir, &FIRST_GUEST, scenario.guests(), demands)?
            }
        };
        let mut other = match scenario.refers() {
            true => Some(Gateway::elsewhere(&self.net, &dir.join("other"))?),
            false => None,
        };
        let expected = match (scenario.kind, scenario.proto) {
            (Kind::Nfs, _) => &NFS_RDMA,
            (Kind::Cifs, "rdma") => &SMB_DIRECT,
            (Kind::Cifs, _) => &SMB_TCP,
        };
        let capture = match scenario.captured {
            true => Some(Capture::start(&self.net, dir, expected)?),
            false => None,
        };
        let mut guest = self.guest(scenario, &FIRST_GUEST, dir, "scratch")?;
        if cluster.is_some() {
            guest.env.push(("FS", "ceph".into()));
        }
        if scenario.jobs == "first" {
            let page = ("docs/first-share.md".into(), "first-share.md");
            for (from, to) in [(gateway::program(), "headgate"), page] {
                fs::copy(&from, guest.scratch.join(to))
                    .map_err(|e| format!("{}: {e}", from.display()))?;
            }
        }
        let mut tally = guest.run(scenario.name, |words| {
            let done = realm.as_mut().and_then(|realm| realm.obey(words));
            done.unwrap_or_else(|| gateway.obey(words))
        })?;
        if let Some(capture) = capture {
            capture.judge(scenario.name, &mut tally)?;
        }
        compare(&guest.scratch, &gateway.share(), &mut tally);
        if scenario.jobs.contains("sizes") {
            let said = which_way(&gateway, scenario.is_direct());
            tally.count(&format!("{}/gateway-counters", scenario.name), said);
        }
        for one in [Some(&mut gateway), other.as_mut()].into_iter().flatten() {
            gateway_is_content(one, scenario.name, &mut tally);
        }
        Ok(tally)
    }

    /// Runs one guest, and a service that moves from node to node.
    fn cluster(&self, scenario: &Scenario, dir: &Path) -> Result<Tally> {
        let is_on_ceph = scenario.server == Server::ClusterOnCeph;
        let mut nodes = takeover::Cluster::start(&self.net, dir, is_on_ceph)?;
        let mut guest = self.guest(scenario, &FIRST_GUEST, dir, "scratch")?;
        guest.env.push(("SERVER", takeover::ADDRESS.into()));
        guest.env.push(("TTL", takeover::TTL.to_string()));
        if is_on_ceph {
            guest.env.push(("FS", "ceph".into()));
        }
        let mut tally = guest.run(scenario.name, |words| match words.strip_prefix("figure ") {
            Some(figure) => self.lab.note(figure),
            None => nodes.obey(words),
        })?;
        compare(&guest.scratch, &nodes.share(), &mut tally);
        // The scenario makes nodes lose their leases, so these messages are expected.
        let is_said =
            |l: &&str| [" lost: ", "was not renewed in time"].iter().any(|it| l.contains(it));
        let log: Vec<String> =
            nodes.log().lines().filter(|l| !is_said(l)).map(str::to_owned).collect();
        tally.count(&format!("{}/gateway-log", scenario.name), nothing_broken(&log.join("\n")));
        Ok(tally)
    }

    /// Runs one guest, and two servers of which one fails.
    fn failover(&self, scenario: &Scenario, dir: &Path, program: Program) -> Result<Tally> {
        let mut servers = Failover::start(&self.net, dir, program)?;
        let mut guest = self.guest(scenario, &FIRST_GUEST, dir, "scratch")?;
        guest.env.push(("SERVER", takeover::ADDRESS.into()));
        guest.env.push(("TTL", takeover::TTL.to_string()));
        guest.env.push(("FS", "ceph".into()));
        guest.run(scenario.name, |words| match words.split_once(' ') {
            Some(("figure", figure)) => self.lab.note(figure),
            Some(("fail", how)) => {
                let after = servers.fail(how);
                // This error tells more than the timeout of the guest that waits.
                let told = fs::write(guest.scratch.join(words.replace(' ', "-")), "");
                self.lab.note(&format!("address | {:.2}", after?))?;
                told.map_err(|e| format!("{words}: {e}"))
            }
            _ => Err("the host does not know how".into()),
        })
    }

    fn two_guests(&self, scenario: &Scenario, dir: &Path) -> Result<Tally> {
        let everybody = [FIRST_GUEST.as_slice(), &SECOND_GUEST].concat();
        let mut gateway =
            Gateway::start(&self.net, dir, &everybody, scenario.guests(), Demands::default())?;
        let both = Mutex::new(Tally::default());
        thread::scope(|scope| {
            for (me, taps) in [("a", &FIRST_GUEST[..]), ("b", &SECOND_GUEST[..])] {
                let both = &both;
                scope.spawn(move || {
                    let mut tally = Tally::default();
                    let run = self.guest(scenario, taps, dir, me).and_then(|mut guest| {
                        guest.env.extend([("ME", me.into()), ("MEET", scenario.name.into())]);
                        guest.run(scenario.name, |_| Err("not in a pair".into()))
                    });
                    match run {
                        Ok(counted) => tally = counted,
                        Err(why) => tally.fail(format!("{}/{me}: {why}", scenario.name)),
                    }
                    if let Ok(mut both) = both.lock() {
                        both.add(tally);
                    }
                });
            }
        });
        let mut tally = both.into_inner().map_err(|e| e.to_string())?;
        gateway_is_content(&mut gateway, scenario.name, &mut tally);
        Ok(tally)
    }

    /// Runs the gateway in the first guest, which also is a client of it, and the scenario's jobs in the second guest. The host's
    /// side of the taps routes between them.
    fn far_client(&self, scenario: &Scenario, dir: &Path, fs_kind: &str) -> Result<Tally> {
        self.net.forward()?;
        let server = guest_address(FIRST_GUEST[0]);
        let mut near = self.guest(scenario, &FIRST_GUEST[..1], dir, "near")?;
        let mut far = self.guest(scenario, &SECOND_GUEST, dir, "far")?;
        for (guest, me, taps) in
            [(&mut near, "a", &FIRST_GUEST[..]), (&mut far, "b", &SECOND_GUEST)]
        {
            guest.env.extend([
                ("ME", me.into()),
                ("MEET", scenario.name.into()),
                ("SERVER", server.clone()),
                ("ROUTER", host_address(taps[0])),
            ]);
        }
        near.memory = "2G";
        let beside = if scenario.jobs.contains("pair") { "pair" } else { "" };
        near.env.retain(|(name, _)| *name != "JOBS");
        near.env.extend([("JOBS", beside.into()), ("BACKEND", "headgate".into())]);
        near.env.push(("FS", fs_kind.into()));
        for guest in [&near, &far] {
            fs::copy(gateway::program(), guest.scratch.join("headgate"))
                .map_err(|e| format!("headgate: {e}"))?;
        }
        let (serves, is_served) = mpsc::channel();
        let mut tally = thread::scope(|scope| {
            let near = &near;
            let first = scope.spawn(move || {
                near.run(scenario.name, |words| match words {
                    "serving" => serves.send(()).map_err(|e| e.to_string()),
                    other => Err(format!("{other}: the server is in a guest")),
                })
            });
            let second = match is_served.recv() {
                Ok(()) => far.run(scenario.name, |words| {
                    // The guest must not find it while it is empty.
                    let [new, there] = ["trouble-new", "trouble"].map(|it| near.scratch.join(it));
                    let asked = fs::write(&new, words).and_then(|()| fs::rename(&new, &there));
                    asked.map_err(|e| format!("{words}: {e}"))
                }),
                Err(_) => Err("the first guest served nothing".into()),
            };
            let handed = hand_over(&far.scratch, &near.scratch);
            let mut tally = first.join().map_err(|_| "the first guest's thread broke down")??;
            tally.add(second?);
            handed.map(|()| tally)
        })?;
        self.judge_inside(scenario, &near, &mut tally);
        Ok(tally)
    }

    fn server_inside(
        &self,
        scenario: &Scenario,
        dir: &Path,
        backend: &str,
        fs_kind: &str,
    ) -> Result<Tally> {
        let mut guest = self.guest(scenario, &[], dir, "scratch")?;
        guest.memory = "2G";
        guest.env.push(("BACKEND", backend.into()));
        guest.env.push(("FS", fs_kind.into()));
        guest.env.push(("SERVER", INSIDE.into()));
        if scenario.has_kerberos() {
            // The KDC moves into the guest, which has no other network: it ends here, and its files go there.
            drop(Realm::start(
                &self.net,
                &guest.scratch,
                &guest.scratch.join("krb5"),
                INSIDE.into(),
            )?);
        }
        if scenario.tls().is_some() {
            let tls = guest.scratch.join("tls");
            tls::certificates(&tls, &tls)?;
        }
        if backend != "knfsd" {
            fs::copy(gateway::program(), guest.scratch.join("headgate"))
                .map_err(|e| format!("headgate: {e}"))?;
        }
        if scenario.kind == Kind::Cifs && matches!(scenario.server, Server::Both(_) | Server::Ksmbd)
        {
            unpack_ksmbd_tools(&guest.scratch)?;
        }
        for (job, package, test) in
            [("contract", "rdma-transport", "verbs"), ("device", "headgate-tests", "device")]
        {
            if scenario.jobs.contains(job) {
                fs::copy(test_program(package, test)?, guest.scratch.join(job))
                    .map_err(|e| format!("{job}: {e}"))?;
            }
        }
        if scenario.jobs.contains("quota") {
            // Not installed, because the package would start a server of its own.
            packages::unpack("quota", &guest.scratch.join("quota"), "usr/bin/quota")?;
        }
        if scenario.jobs.contains("changes") {
            let words = ["--quiet", "-p", "client", "--example", "names"];
            output(&[&["cargo", "build", "--profile", gateway::profile()], &words[..]].concat())?;
            let program = target_dir().join(gateway::profile()).join("examples/names");
            fs::copy(program, guest.scratch.join("names")).map_err(|e| format!("names: {e}"))?;
        }
        let mut tally = guest.run(scenario.name, |words| match words.strip_prefix("figure ") {
            Some(figure) => self.lab.note(figure),
            None => Err("the server is in the guest".into()),
        })?;
        if backend == "headgate" {
            self.judge_inside(scenario, &guest, &mut tally);
        }
        Ok(tally)
    }

    /// Checks the log of a gateway in the guest: which provider its RDMA used, and how much data went by RDMA.
    fn judge_inside(&self, scenario: &Scenario, guest: &Guest<'_>, tally: &mut Tally) {
        let log = fs::read(guest.scratch.join("headgate.log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let label = scenario.name;
        tally.count(&format!("{label}/gateway-log"), nothing_broken(&log));
        let counters = Counters::of_log(&log, scenario.provider);
        let seen = if counters.connections > 0 { Ok(()) } else { Err(NOT_SEEN.to_owned()) };
        tally.count(&format!("{label}/{}", scenario.provider), seen);
        if scenario.jobs.contains("sizes") {
            let said = counters.bulk_by_rdma(SIZES_BULK);
            tally.count(&format!("{label}/gateway-counters"), said);
        }
    }
}

/// Tells the guest with the share to compare the files of the other guest, and to end.
fn hand_over(far: &Path, near: &Path) -> Result<()> {
    let manifests = far.join("manifests");
    let moved = match manifests.exists() {
        true => fs::rename(&manifests, near.join("manifests")),
        false => Ok(()),
    };
    moved.and_then(|()| fs::write(near.join("over"), "")).map_err(|e| format!("over: {e}"))
}

/// Unpacks the package as `ksmbd` instead of installing it, because it conflicts with Samba's, which other tests use.
fn unpack_ksmbd_tools(scratch: &Path) -> Result<()> {
    let at = scratch.display();
    let script = format!(
        "cd {at} && apt-get download -qq ksmbd-tools 2>&1 && dpkg -x ksmbd-tools_*.deb ksmbd && rm ksmbd-tools_*.deb"
    );
    output(&["sh", "-c", &script]).map(drop)
}

/// Compares the manifests that guests left with the share's folder.
fn compare(scratch: &Path, share: &Path, tally: &mut Tally) {
    let Ok(listing) = fs::read_dir(scratch.join("manifests")) else { return };
    for manifest in listing.flatten() {
        let paths = [share.display().to_string(), manifest.path().display().to_string()];
        let result = output(&["python3", "tests/lab/share.py", "compare", &paths[0], &paths[1]]);
        tally.count(&manifest.file_name().to_string_lossy(), result.map(drop));
    }
}

/// Checks the gateway's counters, once it has noticed that the guest is gone.
fn which_way(gateway: &Gateway<'_>, direct: bool) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let counters = Counters::of_log(&gateway.log(), "");
        let verdict =
            if direct { counters.bulk_by_rdma(SIZES_BULK) } else { counters.nothing_by_rdma() };
        if verdict.is_ok() || Instant::now() > end {
            return verdict;
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// Checks that the gateway still runs, and that its log reports no broken invariant.
fn gateway_is_content(gateway: &mut Gateway, label: &str, tally: &mut Tally) {
    tally.count(&format!("{label}/gateway-runs"), gateway.is_running());
    tally.count(&format!("{label}/gateway-log"), nothing_broken(&gateway.log()));
}

fn nothing_broken(log: &str) -> Result<()> {
    let panicked = log.lines().find(|l| l.contains("panicked") || l.contains(" ERROR "));
    panicked.map_or(Ok(()), |line| Err(line.to_owned()))
}
