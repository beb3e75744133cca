//! Lets one of two servers of a CephFS fail while a third node takes its place: with the gateway's cluster, or with NFS-Ganesha and
//! its grace periods in RADOS. The time that clients wait is only recorded, without a limit.
//!
//! *Operation.* Node 0 serves `data` to the guest's first client, node 1 `beside` to the second, node 2 is the spare. Ganesha
//! leaves the assignment of addresses to other programs; this module does their work without delay: the server with the `nodeid` of
//! the failed one gets the address as soon as it listens.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::gateway;
use super::net::{FIRST_GUEST, Net, guest_address, host_address};
use super::nodes::{Etcd, Nodes, until};
use super::scenarios::Program;
use super::takeover::{ADDRESS, BESIDE, TTL};
use crate::ceph::{self, FILE_SYSTEM};
use crate::sh::Result;

const NODES: usize = 3;
const SPARE: usize = 2;
/// The folder and the address of each server, by the number of the node that has it at first.
const SERVERS: [(&str, &str); 2] = [("data", ADDRESS), ("beside", BESIDE)];
/// Address of the second client of the guest.
const OTHER_CLIENT: &str = "10.77.0.4";
/// Where Ganesha keeps its grace periods: a pool and a namespace.
const GRACE: (&str, &str) = ("ganesha", "grace");
const RADOS_GRACE: &str = "ganesha-rados-grace";

/// The servers and what they need.
#[derive(Debug)]
pub(super) struct Failover<'a> {
    program: Program,
    dir: PathBuf,
    // Fields are dropped in order: the later ones must end after the earlier ones.
    nodes: Nodes<'a>,
    _etcd: Option<Etcd>,
    ceph: ceph::Cluster,
}

impl<'a> Failover<'a> {
    /// Starts both servers below `dir`.
    pub(super) fn start(net: &'a Net, dir: &Path, program: Program) -> Result<Failover<'a>> {
        let nodes = Nodes::start(net, NODES)?;
        let ceph = ceph::Cluster::start_at(&host_address(0), net, dir, &dir.join("cephfs"))?;
        for (folder, _) in SERVERS {
            gateway::make_folder(&ceph.mount().join(folder), 0o755)?;
        }
        let etcd = match program {
            Program::Headgate => Some(Etcd::start(net, dir)?),
            Program::Ganesha => None,
        };
        let mut failover = Failover { program, dir: dir.to_owned(), nodes, _etcd: etcd, ceph };
        match program {
            Program::Headgate => failover.start_gateways()?,
            Program::Ganesha => failover.start_ganeshas()?,
        }
        Ok(failover)
    }

    /// Makes the first server fail, and waits until its address is back. Returns the seconds of the outage.
    pub(super) fn fail(&mut self, how: &str) -> Result<f64> {
        for (node, client) in [(0, &*guest_address(FIRST_GUEST[0])), (1, OTHER_CLIENT)] {
            let connected = ["ss", "-Htn", "state", "established", "sport = :2049"];
            if !self.nodes.output(node, &connected)?.contains(client) {
                return Err(format!("{client} is no client of node {node}"));
            }
        }
        let began = Instant::now();
        match (how, self.program) {
            ("dies", program) => {
                self.nodes.link(0, "down")?;
                self.nodes.kill(0);
                if program == Program::Ganesha {
                    // The time after which a program that moves addresses would have noticed.
                    sleep(Duration::from_secs(TTL));
                }
            }
            ("stopped", Program::Headgate) => self.nodes.terminate(0)?,
            ("stopped", Program::Ganesha) => {
                self.nodes.ip(0, &format!("addr del {ADDRESS}/24 dev eth0"))?;
                self.nodes.terminate(0)?;
                until("Ganesha has ended", || self.nodes.has_ended(0))?;
            }
            _ => return Err(format!("no way for a server to go: {how}")),
        }
        if self.program == Program::Ganesha {
            self.start_ganesha(0, SPARE)?;
        }
        until("the third node serves", || self.nodes.has_address(SPARE, ADDRESS))?;
        let took = began.elapsed().as_secs_f64();
        if self.program == Program::Ganesha {
            // Announces the address's new owner to all hosts with an old entry.
            let announce = ["arping", "-q", "-U", "-c", "1", "-I", "eth0", ADDRESS];
            self.nodes.output(SPARE, &announce)?;
        }
        Ok(took)
    }

    fn start_gateways(&mut self) -> Result<()> {
        let (dir, etcd) = (self.dir.clone(), host_address(0));
        let at = dir.display();
        for node in 0..NODES {
            let mut services = String::new();
            for (server, (folder, address)) in SERVERS.into_iter().enumerate() {
                let nodes = if server == 0 { "gw0, gw2" } else { "gw1" };
                services.push_str(&format!(
                    "  - {{name: {folder}, config: {at}/{folder}{node}.yaml, addresses: [{address}/24@eth0], nodes: [{nodes}]}}\n"
                ));
                self.write(
                    &format!("{folder}{node}.yaml"),
                    &format!(
                        "shares:\n- name: {folder}\n  squash: none\n  \
                         ceph: {{filesystem: {FILE_SYSTEM}, path: /{folder}, config: {at}/ceph/ceph.conf}}\n\
                         records: {folder}\nstate: {at}/state-{folder}{node}\nadmin: off\n\
                         nfs: {{lease: 10s, grace: 10s, portmap: off}}\n"
                    ),
                )?;
                gateway::make_folder(&dir.join(format!("state-{folder}{node}")), 0o700)?;
            }
            self.write(
                &format!("gw{node}.yaml"),
                &format!("cluster:\n  etcd: http://{etcd}:2379\n  node: gw{node}\n  ttl: {TTL}s\n  services:\n{services}"),
            )?;
            let (program, config) = (gateway::program(), dir.join(format!("gw{node}.yaml")));
            let (program, config) = (program.display().to_string(), config.display().to_string());
            let words = [&*program, "cluster", "run", "--config", &*config];
            self.nodes.run(node, &dir.join(format!("gw{node}.log")), &words)?;
            // The first node to ask for a service gets it.
            if let Some((_, address)) = SERVERS.get(node) {
                until("a node serves", || self.nodes.has_address(node, address))?;
            }
        }
        Ok(())
    }

    fn start_ganeshas(&mut self) -> Result<()> {
        let (pool, space) = GRACE;
        self.ceph.call(&["ceph", "osd", "pool", "create", pool, "8"])?;
        let conf = self.dir.join("ceph/ceph.conf").display().to_string();
        let grace = [RADOS_GRACE, "--cephconf", &conf, "--userid", "admin", "--pool", pool];
        let names = SERVERS.map(|(folder, _)| folder);
        self.ceph.call(&[&grace[..], &["--ns", space, "add"], &names].concat())?;
        (0..SERVERS.len()).try_for_each(|server| self.start_ganesha(server, server))
    }

    /// Starts this server on a node, and gives the node its address as soon as it listens.
    fn start_ganesha(&mut self, server: usize, node: usize) -> Result<()> {
        let (folder, address) = SERVERS[server];
        let (pool, space) = GRACE;
        let conf = self.dir.join("ceph/ceph.conf").display().to_string();
        self.write(
            &format!("{folder}.conf"),
            &format!(
                "NFS_CORE_PARAM {{ Protocols = 4; Enable_NLM = false; Enable_RQUOTA = false; \
                 Plugins_Dir = /usr/lib/x86_64-linux-gnu/ganesha; }}\n\
                 NFSv4 {{ RecoveryBackend = rados_cluster; Minor_Versions = 1, 2; Lease_Lifetime = 10; Grace_Period = 10; \
                 Allow_Numeric_Owners = true; Only_Numeric_Owners = true; }}\n\
                 RADOS_KV {{ ceph_conf = \"{conf}\"; userid = admin; pool = {pool}; namespace = {space}; nodeid = {folder}; }}\n\
                 CEPH {{ Ceph_Conf = \"{conf}\"; }}\n\
                 MDCACHE {{ Dir_Chunk = 0; }}\n\
                 EXPORT {{ Export_Id = 1; Path = /{folder}; Pseudo = /{folder}; Access_Type = RW; Squash = No_Root_Squash; \
                 SecType = sys; Protocols = 4; Transports = TCP; \
                 FSAL {{ Name = CEPH; Filesystem = {FILE_SYSTEM}; User_Id = admin; }} }}\n\
                 LOG {{ Default_Log_Level = EVENT; }}\n"
            ),
        )?;
        let file = |end| self.dir.join(format!("{folder}{node}.{end}")).display().to_string();
        let (config, log, pid) = (
            self.dir.join(format!("{folder}.conf")).display().to_string(),
            file("log"),
            file("pid"),
        );
        // A separate host name, by which clients distinguish servers.
        let named = ["unshare", "--uts", "sh", "-c", "hostname \"$0\" && exec \"$@\"", folder];
        let ganesha = ["ganesha.nfsd", "-F", "-f", &config, "-L", &log, "-p", &pid];
        let said = self.dir.join(format!("{folder}{node}.out"));
        self.nodes.run(node, &said, &[&named[..], &ganesha].concat())?;
        let listens = ["ss", "-Htln", "sport = :2049"];
        until("Ganesha listens", || {
            self.nodes.output(node, &listens).is_ok_and(|s| !s.is_empty())
        })?;
        self.nodes.ip(node, &format!("addr add {address}/24 dev eth0")).map(drop)
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        fs::write(self.dir.join(name), text).map_err(|e| format!("{name}: {e}"))
    }
}
