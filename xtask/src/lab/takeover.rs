//! A cluster as a guest's server: two nodes, each in a separate network namespace on one bridge with the guest, and an etcd.
//!
//! *Operation.* The guest works on the share `data` of the service `files` at a floating address, and reads from the service
//! `beside`, which only the second node may serve. The guest requests how the first node should fail; this module makes it fail,
//! waits for the takeover, repairs the node, and confirms each step by files in the guest's folder. `data` is a folder of this host
//! that both nodes have, with a power switch as the fence, or it is in CephFS with the records of the service, without a fence.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::gateway::{self, LAB_USER};
use super::net::{Net, host_address};
use super::nodes::{Etcd, Nodes, until};
use crate::ceph::{self, FILE_SYSTEM};
use crate::sh::Result;

/// Lifetime of the owner's lease in etcd in seconds; the guest uses it as the limit for stalls.
pub(super) const TTL: u64 = 3;
/// Addresses of the two services, in the guest's network.
pub(super) const ADDRESS: &str = "10.77.0.10";
pub(super) const BESIDE: &str = "10.77.0.11";
const NODES: usize = 2;
/// Mount point where another client of the Ceph cluster shows its file system.
const CEPH_MOUNT: &str = "cephfs";

/// Two nodes and their etcd.
#[derive(Debug)]
pub(super) struct Cluster<'a> {
    net: &'a Net,
    dir: PathBuf,
    // Fields are dropped in order: the later ones must end after the earlier ones.
    nodes: Nodes<'a>,
    etcd: Option<Etcd>,
    /// How the first node failed, until that is repaired.
    gone: Option<String>,
    /// The cluster that holds the share, if not this host.
    ceph: Option<ceph::Cluster>,
}

impl<'a> Cluster<'a> {
    /// Starts it below `dir`, with the share in CephFS if `is_on_ceph`.
    pub(super) fn start(net: &'a Net, dir: &Path, is_on_ceph: bool) -> Result<Cluster<'a>> {
        let (nodes, dir) = (Nodes::start(net, NODES)?, dir.to_owned());
        let mut cluster = Cluster { net, dir, nodes, etcd: None, gone: None, ceph: None };
        if is_on_ceph {
            let (ip, mount) = (host_address(0), cluster.dir.join(CEPH_MOUNT));
            cluster.ceph = Some(ceph::Cluster::start_at(&ip, net, &cluster.dir, &mount)?);
        }
        cluster.configure()?;
        cluster.etcd = Some(Etcd::start(net, &cluster.dir)?);
        until("etcd answers", || cluster.ask(&["status"]).is_ok())?;
        cluster.start_node(0)?;
        let serves = |cluster: &Self, node, address| {
            until("a node serves", || cluster.nodes.has_address(node, address))
                .map_err(|why| format!("{why}:\n{}", cluster.log()))
        };
        serves(&cluster, 0, ADDRESS)?;
        cluster.start_node(1)?;
        serves(&cluster, 1, BESIDE)?;
        Ok(cluster)
    }

    /// Returns the folder that is served.
    pub(super) fn share(&self) -> PathBuf {
        match &self.ceph {
            Some(_) => self.dir.join(CEPH_MOUNT).join("data"),
            None => self.dir.join("share"),
        }
    }

    /// Returns the logs of all nodes.
    pub(super) fn log(&self) -> String {
        let log = |node| fs::read_to_string(self.dir.join(format!("gw{node}.log")));
        (0..NODES).map(|node| log(node).unwrap_or_default()).collect()
    }

    /// Carries out the guest's request and confirms it.
    pub(super) fn obey(&mut self, words: &str) -> Result<()> {
        let done = match words.split_once(' ') {
            Some(("takeover", how)) => self.strike(how),
            Some(("move", node)) => self.go_to(node),
            None if words == "mend" => self.mend(),
            _ => Err("the host does not know how".into()),
        };
        // This error tells more than the timeout of the guest that waits.
        let told = fs::write(self.dir.join("scratch").join(words.replace(' ', "-")), "");
        done.and(told.map_err(|e| format!("{words}: {e}")))
    }

    /// Makes the first node fail in this way, and waits until the other has the address.
    fn strike(&mut self, how: &str) -> Result<()> {
        match how {
            "drain" => drop(self.ask(&["drain", "gw0"])?),
            "kill" => self.nodes.signal(0, "-KILL"),
            "cut" => self.nodes.link(0, "down")?,
            "stop" => self.nodes.signal(0, "-STOP"),
            _ => return Err(format!("no way to end a node: {how}")),
        }
        self.gone = Some(how.to_owned());
        until("another node serves", || self.nodes.has_address(1, ADDRESS))
    }

    /// Moves the service to this node, while both nodes work.
    fn go_to(&self, node: &str) -> Result<()> {
        let number = node.parse().map_err(|e| format!("{node}: {e}"))?;
        self.ask(&["move", "files", &format!("gw{node}")])?;
        until("the node serves", || self.nodes.has_address(number, ADDRESS))
    }

    /// Restores the first node, which then serves again.
    fn mend(&mut self) -> Result<()> {
        let how = self.gone.take().ok_or("nothing is to be mended")?;
        let fenced = fs::read_to_string(self.dir.join("fenced")).unwrap_or_default();
        let wanted = if how == "drain" || self.ceph.is_some() { "" } else { "gw0" };
        if fenced.trim() != wanted {
            return Err(format!("after {how} these were fenced: {fenced:?}, wanted {wanted:?}"));
        }
        if how == "drain" {
            self.ask(&["undrain", "gw0"])?;
        } else {
            if self.ceph.is_none() {
                fs::remove_file(self.dir.join("fenced")).map_err(|e| format!("fenced: {e}"))?;
            }
            self.nodes.link(0, "up")?;
            self.nodes.kill(0);
            self.start_node(0)?;
        }
        self.ask(&["move", "files", "gw0"])?;
        until("the first node serves again", || self.nodes.has_address(0, ADDRESS))
    }

    fn configure(&self) -> Result<()> {
        let dir = self.dir.display();
        for folder in ["share", "state", "beside", "beside-state", "state0", "state1"] {
            gateway::make_folder(&self.dir.join(folder), 0o755)?;
        }
        if self.ceph.is_some() {
            gateway::make_folder(&self.share(), 0o755)?;
        }
        let secret = self.dir.join("password");
        self.write("password", LAB_USER.1)?;
        fs::set_permissions(&secret, Permissions::from_mode(0o600)).map_err(|e| e.to_string())?;
        for node in 0..NODES {
            let (source, state) = match self.ceph {
                Some(_) => (
                    format!(
                        "ceph: {{filesystem: {FILE_SYSTEM}, path: /data, config: {dir}/ceph/ceph.conf}}"
                    ),
                    format!("state{node}\nrecords: data"),
                ),
                None => (format!("path: {dir}/share"), "state".into()),
            };
            self.service(&format!("files{node}"), "data", &source, (&state, "own"))?;
        }
        let path = format!("path: {dir}/beside");
        self.service("beside", "beside", &path, ("beside-state", "off"))?;
        // A power switch: it ends every process of that node.
        let net = &self.net.name;
        self.write(
            "fence",
            &format!(
                "#!/bin/sh\necho $HEADGATE_FENCED_NODE >>{dir}/fenced\n\
                 ip -n {net} link set n${{HEADGATE_FENCED_NODE#gw}} down\n\
                 all() {{ ip netns pids {net}${{HEADGATE_FENCED_NODE#gw}}; }}\n\
                 while pids=$(all); [ -n \"$pids\" ]; do\n\
                 known=\"$known $pids\"; kill -9 $pids; sleep 0.01; done\n\
                 # One whose first thread has ended is in no namespace, and others still hold its files.\n\
                 for pid in $known; do\n\
                 while grep -qs '^State:.[^XZ]' /proc/$pid/task/*/status; do sleep 0.01; done\n\
                 done\n"
            ),
        )?;
        fs::set_permissions(self.dir.join("fence"), Permissions::from_mode(0o700))
            .map_err(|e| e.to_string())?;
        let fence = match self.ceph {
            Some(_) => String::new(),
            None => format!(", fence: {dir}/fence"),
        };
        for node in 0..NODES {
            self.write(
                &format!("gw{node}.yaml"),
                &format!(
                    "cluster:\n  etcd: http://{etcd}:2379\n  node: gw{node}\n  ttl: {TTL}s\n  services:\n  \
                     - {{name: files, config: {dir}/files{node}.yaml, addresses: [{ADDRESS}/24@eth0]{fence}}}\n  \
                     - {{name: beside, config: {dir}/beside.yaml, addresses: [{BESIDE}/24@eth0], fence: {dir}/fence, \
                     nodes: [gw1]}}\n",
                    etcd = host_address(0),
                ),
            )?;
        }
        Ok(())
    }

    /// Writes the file of a gateway with one share.
    fn service(
        &self,
        file: &str,
        share: &str,
        source: &str,
        (state, portmap): (&str, &str),
    ) -> Result<()> {
        let (dir, user) = (self.dir.display(), LAB_USER.0);
        self.write(
            &format!("{file}.yaml"),
            &format!(
                "shares: [{{name: {share}, {source}, squash: none, continuous_availability: true}}]\n\
                 users: [{{name: {user}, password_file: {dir}/password, uid: 0, gid: 0, groups: []}}]\n\
                 state: {dir}/{state}\nadmin: off\nrdma_crc: always\nsmb: {{signing: offered}}\n\
                 nfs: {{lease: 10s, grace: 10s, portmap: {portmap}}}\n"
            ),
        )
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        fs::write(self.dir.join(name), text).map_err(|e| format!("{name}: {e}"))
    }

    fn start_node(&mut self, node: usize) -> Result<()> {
        let (log, config) = (format!("gw{node}.log"), format!("gw{node}.yaml"));
        let [program, config] = [gateway::program(), self.dir.join(config)];
        let [program, config] = [program.display().to_string(), config.display().to_string()];
        let words = [&*program, "cluster", "run", "--config", &*config];
        self.nodes.run(node, &self.dir.join(log), &words)
    }

    /// Runs `headgate cluster`.
    fn ask(&self, words: &[&str]) -> Result<String> {
        let (program, config) = (gateway::program(), self.dir.join("gw1.yaml"));
        let (program, config) = (program.display().to_string(), config.display().to_string());
        self.net.output(&[&[&*program, "cluster"], words, &["--config", &*config]].concat())
    }
}
