//! What is run in the lab. The modules named in `jobs` are in tests/lab/guest.

use super::gateway::Guests;

/// What every version has to show.
const FILES: &str = "sizes,tree,untar,semantics,locks,v42,exports";

/// What the other transport of a version has to show: large trees were moved by the first. Those of 4.1 were moved by 4.2, which
/// has the same operations for them.
const FEWER: &str = "sizes,semantics,locks,exports";
const FEWER_AND_TREE: &str = "sizes,tree,semantics,locks,exports";

/// With lists by the programs that users have.
const FILES_AND_LISTS: &str = "sizes,tree,untar,semantics,locks,v42,exports,acls";

/// With what `status` tells of the client, first: later there are connections of other kinds.
const FILES_AND_STATUS: &str = "told,sizes,tree,untar,semantics,locks,v42,exports";
const FEWER_AND_STATUS: &str = "told,sizes,semantics,locks,exports";

/// What verbs have to show: many small files cost minutes where both ends are in one guest, and show nothing of RDMA.
const VERBS: &str = "sizes,semantics,locks,v42,exports";

/// What every dialect of SMB has to show, and what one of them has to show for all.
const SMB: &str = "told,sizes,semantics,smb";
/// Where signatures or encryption are all that is new.
const SMB_AGAIN: &str = "told,sizes";
const SMB_ALL: &str = "told,sizes,tree,untar,semantics,smb,smblocks";

/// Without the closing of files a second after programs have closed them: where that is just being sent when the connection is
/// reset, this client (Linux 6.12) waits for ever (`smbd_send`, docs/cluster.md).
const SMB_DIRECT_HARD: &str = "hard,closetimeo=0";
const NO_LATE_CLOSE: &str = "closetimeo=0";

/// Whether this client (Linux 6.12) asks for direct placement by `sec=krb5` depends on what its memory held before
/// (docs/kerberos.md): it does where memory is cleared first, and never where it is filled with the slab allocator's 0x6b.
const CLEARED: &str = "init_on_alloc=1";
const STALE: &str = "slub_debug=P";

/// By which protocol a guest mounts the share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Nfs,
    Cifs,
}

/// What serves, where it is measured beside another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Program {
    Headgate,
    Ganesha,
}

/// Where the server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Server {
    /// The gateway on the host's side of the tap.
    Host,
    /// The same, as the container image has it.
    Container,
    /// On the host's side, with its first share in CephFS. Not part of a tier.
    Ceph,
    /// Two nodes of a cluster on the host's side. Not part of a tier.
    Cluster,
    /// The same, with the share and the records in CephFS.
    ClusterOnCeph,
    /// One of two servers of a CephFS, on the host's side, and a node to spare, to be measured. Not part of a tier.
    Failover(Program),
    /// In the guest: the gateway, on this file system.
    Guest(&'static str),
    /// In the guest: the kernel's own server, a reference for the jobs. Not part of a tier.
    Knfsd,
    /// In the guest: both, to be measured, each on such a file system. Not part of a tier.
    Both(&'static str),
    /// The same for SMB; it wants the package ksmbd-tools.
    Ksmbd,
}

/// One run of one guest, or of two at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scenario {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// Further options of the mount.
    pub(super) options: &'static str,
    pub(super) vers: &'static str,
    pub(super) proto: &'static str,
    pub(super) jobs: &'static str,
    pub(super) server: Server,
    /// The kind of the guest's RDMA device.
    pub(super) device: &'static str,
    /// Who serves RDMA, where the gateway is in the guest.
    pub(super) provider: &'static str,
    /// What happens to the server in the middle of the guest's work.
    pub(super) trouble: Option<&'static str>,
    /// A second guest runs the same at the same time, or is the client of a server in the first.
    pub(super) pair: bool,
    /// A parameter of the guest's kernel, `name=value`.
    pub(super) boot: Option<&'static str>,
    /// The first tap is captured, and decoded afterwards.
    pub(super) captured: bool,
    pub(super) seconds_max: u32,
    /// How many times a job does what it repeats, if not as often as it does by itself.
    pub(super) runs: Option<u32>,
}

impl Scenario {
    const fn new(name: &'static str, vers: &'static str, proto: &'static str) -> Scenario {
        Scenario {
            name,
            kind: Kind::Nfs,
            options: "",
            vers,
            proto,
            jobs: FILES,
            server: Server::Host,
            device: "siw",
            provider: "iwarp",
            trouble: None,
            pair: false,
            boot: None,
            captured: false,
            seconds_max: 600,
            runs: None,
        }
    }

    const fn cifs(name: &'static str, vers: &'static str, proto: &'static str) -> Scenario {
        Scenario { kind: Kind::Cifs, jobs: SMB, ..Scenario::new(name, vers, proto) }
    }

    const fn options(self, options: &'static str) -> Scenario {
        Scenario { options, ..self }
    }

    const fn jobs(self, jobs: &'static str) -> Scenario {
        Scenario { jobs, ..self }
    }

    const fn boot(self, parameter: &'static str) -> Scenario {
        Scenario { boot: Some(parameter), ..self }
    }

    const fn on(self, server: Server) -> Scenario {
        Scenario { server, ..self }
    }

    /// With the gateway in the guest, on a device of this kind by the verbs of the kernel and rdma-core.
    const fn verbs(self, device: &'static str) -> Scenario {
        Scenario { device, provider: "verbs", server: Server::Guest("ext4"), ..self }
    }

    /// Measured beside the kernel's server in the guest.
    const fn beside(self, device: &'static str, provider: &'static str) -> Scenario {
        Scenario { device, provider, server: Server::Both("tmpfs"), jobs: "beside", ..self }
    }

    const fn pair(self) -> Scenario {
        Scenario { jobs: "pair", pair: true, ..self }
    }

    /// The gateway in the first guest, these jobs in the second.
    const fn far(self, jobs: &'static str) -> Scenario {
        Scenario { jobs, pair: true, ..self }
    }

    const fn trouble(self, words: &'static str) -> Scenario {
        Scenario { jobs: "survive", trouble: Some(words), ..self }
    }

    const fn takeover(self) -> Scenario {
        Scenario { jobs: "takeover", server: Server::Cluster, ..self }
    }

    const fn failover(program: Program, name: &'static str, how: &'static str) -> Scenario {
        let trouble = Some(how);
        Scenario {
            jobs: "failover",
            trouble,
            seconds_max: 240,
            server: Server::Failover(program),
            ..Scenario::new(name, "4.1", "tcp")
        }
    }

    const fn captured(self) -> Scenario {
        Scenario { jobs: "traffic", captured: true, ..self }
    }

    pub(super) fn is_reference(&self) -> bool {
        matches!(self.server, Server::Knfsd | Server::Ksmbd)
    }

    /// For leases, tickets, or clients that come back.
    pub(super) fn mostly_waits(&self) -> bool {
        let waits = |job| ["claims", "tickets", "counting", "multichannel"].contains(&job);
        self.trouble.is_some() || self.jobs.split(',').any(waits)
    }

    pub(super) fn guests(&self) -> Guests {
        match self.kind {
            Kind::Nfs => Guests::Nfs,
            Kind::Cifs if self.options.contains("multichannel") => Guests::SmbChannels,
            Kind::Cifs => Guests::Smb,
        }
    }

    /// It is mounted by Kerberos.
    pub(super) fn has_kerberos(&self) -> bool {
        self.options.contains("sec=krb5")
    }

    /// Some shares are on another gateway.
    pub(super) fn refers(&self) -> bool {
        self.jobs == "refer"
    }

    /// What the share that is mounted demands of its clients.
    pub(super) fn tls(&self) -> Option<&'static str> {
        let has = |option| self.options.split(',').any(|o| o == option);
        let mutual = has("xprtsec=mtls").then_some("mutual");
        mutual.or_else(|| has("xprtsec=tls").then_some("required"))
    }

    /// Its bulk data goes by RDMA Write and Read. A client that signs or seals does its I/O by Send: the direct bytes would
    /// escape the signature.
    pub(super) fn is_direct(&self) -> bool {
        self.proto == "rdma" && !["sign", "seal"].iter().any(|o| self.options.contains(o))
    }
}

/// The gateway and the kernel's client: the tier `lab`.
pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario::new("v3-rdma", "3", "rdma").jobs(FILES_AND_LISTS),
    Scenario::new("kill-v3-tcp", "3", "tcp").trouble("kill-gateway"),
    Scenario::new("v3-tcp", "3", "tcp").jobs(FEWER),
    Scenario::new("kill-v3-rdma", "3", "rdma").trouble("kill-gateway"),
    Scenario::new("v4.0-rdma", "4.0", "rdma").jobs(FEWER_AND_TREE),
    Scenario::new("kill-v4.1-tcp", "4.1", "tcp").trouble("kill-gateway"),
    Scenario::new("v4.0-tcp", "4.0", "tcp").jobs(FEWER),
    Scenario::new("kill-v4.1-rdma", "4.1", "rdma").trouble("kill-gateway"),
    Scenario::new("v4.1-rdma", "4.1", "rdma").jobs(FEWER),
    Scenario::new("cut-v3-tcp", "3", "tcp").trouble("cut-connections"),
    Scenario::new("v4.1-tcp", "4.1", "tcp").jobs(FEWER_AND_STATUS),
    Scenario::new("cut-v3-rdma", "3", "rdma").trouble("cut-connections"),
    Scenario::new("v4.2-rdma", "4.2", "rdma").jobs(FILES_AND_STATUS),
    Scenario::new("cut-v4.1-tcp", "4.1", "tcp").trouble("cut-connections"),
    Scenario::new("v4.2-tcp", "4.2", "tcp").jobs(FILES_AND_LISTS),
    Scenario::new("cut-v4.1-rdma", "4.1", "rdma").trouble("cut-connections"),
    Scenario::new("first-share", "4.2", "tcp").jobs("first"),
    Scenario::new("tls-v4.2", "4.2", "tcp")
        .jobs("sizes,tree,semantics,exports")
        .options("xprtsec=tls"),
    Scenario::new("tls-v3", "3", "tcp").jobs("sizes,semantics").options("xprtsec=tls"),
    Scenario::new("mtls-v4.1", "4.1", "tcp").jobs("sizes").options("xprtsec=mtls"),
    Scenario::new("mtls-faults", "4.2", "tcp").jobs("tlsfaults").options("xprtsec=mtls"),
    Scenario::new("refer-v4.0-tcp", "4.0", "tcp").jobs("refer"),
    Scenario::new("refer-v4.1-rdma", "4.1", "rdma").jobs("refer"),
    Scenario::new("refer-v4.2-tcp", "4.2", "tcp").jobs("refer"),
    // As root alone but for `tickets`: other users of the guest have none.
    Scenario::new("krb5-v4.2-rdma", "4.2", "rdma").jobs("sizes").options("sec=krb5").boot(CLEARED),
    Scenario::new("krb5p-v4.2-rdma", "4.2", "rdma").jobs("sizes").options("sec=krb5p"),
    Scenario::new("krb5i-v3-tcp", "3", "tcp").jobs("sizes,tickets").options("sec=krb5i"),
    Scenario::new("krb5p-v4.1-tcp", "4.1", "tcp").jobs("sizes,tree,tickets").options("sec=krb5p"),
    Scenario::cifs("krb5-cifs", "3.1.1", "tcp")
        .jobs("sizes,tickets")
        .options("sec=krb5,multiuser,cruid=0"),
    // The other versions and flavors come from the job.
    Scenario::new("krb5-each-tcp", "4.2", "tcp").jobs("flavors").options("sec=krb5"),
    Scenario::new("krb5-each-rdma", "4.2", "rdma")
        .jobs("flavors")
        .options("sec=krb5")
        .boot(CLEARED),
    Scenario::new("krb5-whole-rdma", "4.1", "rdma").jobs("sizes").options("sec=krb5").boot(STALE),
    Scenario::new("claims-v3-rdma", "3", "rdma").jobs("claims"),
    Scenario::new("claims-v4.0-rdma", "4.0", "rdma").jobs("claims"),
    Scenario::new("claims-v4.1-tcp", "4.1", "tcp").jobs("claims"),
    Scenario::new("claims-v4.2-rdma", "4.2", "rdma").jobs("claims"),
    Scenario::new("xfs-v4.2-rdma", "4.2", "rdma")
        .jobs("sizes,v42,semantics")
        .on(Server::Guest("xfs")),
    Scenario::new("connects-iwarp", "4.1", "rdma").jobs("connects,names").on(Server::Guest("ext4")),
    Scenario::new("verbs-rxe-v3", "3", "rdma").jobs("sizes,semantics").verbs("rxe"),
    Scenario::new("verbs-rxe-v4.1", "4.1", "rdma").jobs("sizes,semantics,locks,auto").verbs("rxe"),
    Scenario::new("verbs-rxe-v4.2", "4.2", "rdma").jobs("sizes,v42,exports").verbs("rxe"),
    Scenario::new("verbs-siw-v3", "3", "rdma").jobs("sizes,semantics").verbs("siw"),
    Scenario::new("verbs-siw-v4.1", "4.1", "rdma").jobs("sizes,semantics").verbs("siw"),
    Scenario::new("verbs-siw-v4.2", "4.2", "rdma").jobs(VERBS).verbs("siw"),
    Scenario::cifs("verbs-rxe-smb-kill", "3.1.1", "rdma")
        .trouble("kill-gateway")
        .verbs("rxe")
        .options(SMB_DIRECT_HARD),
    Scenario::new("verbs-rxe-kill", "4.1", "rdma").trouble("kill-gateway").verbs("rxe"),
    Scenario::new("verbs-siw-kill", "3", "rdma").trouble("kill-gateway").verbs("siw"),
    Scenario::new("verbs-rxe-connects", "4.1", "rdma").jobs("connects,crowd,contract").verbs("rxe"),
    Scenario::new("verbs-siw-connects", "4.1", "rdma").jobs("connects,contract").verbs("siw"),
    // Not by SMB, and not the end above over siw: the client's own kernel (Linux 6.12) stands still in one of four, in the removal
    // where the device is its own as well, and waiting for what its queue pair gave up. In the others it comes back by itself.
    // That the server is not the one who stands still is seen with the gateway's own client, below.
    Scenario::new("verbs-rxe-unplug", "4.2", "rdma").trouble("unplug").verbs("rxe"),
    Scenario::new("verbs-siw-unplug", "3", "rdma").trouble("unplug").verbs("siw"),
    Scenario::cifs("verbs-rxe-smb", "3.1.1", "rdma").verbs("rxe"),
    Scenario::cifs("verbs-siw-smb", "3.1.1", "rdma")
        .jobs("sizes,semantics,smb,smblocks")
        .verbs("siw"),
    // By themselves: they also move bulk data by Sends.
    Scenario::cifs("verbs-rxe-device", "3.1.1", "rdma").jobs("device").verbs("rxe"),
    Scenario::cifs("verbs-siw-device", "3.1.1", "rdma").jobs("device").verbs("siw"),
    Scenario::new("verbs-rxe-far", "4.2", "rdma").verbs("rxe").far("pair,sizes"),
    Scenario::new("verbs-rxe-far-v3", "3", "rdma").verbs("rxe").far("sizes"),
    Scenario::new("verbs-siw-far", "4.1", "rdma").verbs("siw").far("sizes"),
    Scenario::cifs("verbs-rxe-far-smb", "3.1.1", "rdma").verbs("rxe").far("sizes,semantics"),
    // The device goes where the server is, as a card does.
    Scenario::new("verbs-rxe-far-unplug", "4.1", "rdma")
        .verbs("rxe")
        .far("survive")
        .trouble("unplug"),
    Scenario::new("verbs-siw-far-unplug", "4.2", "rdma")
        .verbs("siw")
        .trouble("unplug")
        .far("survive,ours"),
    Scenario::new("pair-v3-tcp", "3", "tcp").pair(),
    Scenario::new("pair-v3-rdma", "3", "rdma").pair(),
    Scenario::new("pair-v4.0-rdma", "4.0", "rdma").pair(),
    Scenario::new("pair-v4.1-rdma", "4.1", "rdma").pair(),
    Scenario::new("pair-v4.2-tcp", "4.2", "tcp").pair(),
    Scenario::cifs("cifs-2.1-tcp", "2.1", "tcp"),
    Scenario::cifs("cifs-kill-tcp", "3.1.1", "tcp").trouble("kill-gateway"),
    Scenario::cifs("cifs-2.1-tcp-sign", "2.1", "tcp").jobs(SMB_AGAIN).options("sign"),
    Scenario::cifs("cifs-cut-tcp", "3.1.1", "tcp").trouble("cut-connections"),
    Scenario::cifs("cifs-3.0-tcp", "3.0", "tcp"),
    Scenario::cifs("cifs-kill-rdma", "3.1.1", "rdma")
        .trouble("kill-gateway")
        .options(NO_LATE_CLOSE),
    Scenario::cifs("cifs-3.0-tcp-sign", "3.0", "tcp").jobs(SMB_AGAIN).options("sign"),
    Scenario::cifs("cifs-cut-rdma", "3.1.1", "rdma").trouble("cut-connections"),
    Scenario::cifs("cifs-3.0-tcp-seal", "3.0", "tcp").jobs(SMB_AGAIN).options("seal"),
    Scenario::cifs("cifs-3.0.2-tcp", "3.02", "tcp"),
    Scenario::cifs("cifs-3.0.2-tcp-sign", "3.02", "tcp").jobs(SMB_AGAIN).options("sign"),
    Scenario::cifs("cifs-3.0.2-tcp-seal", "3.02", "tcp").jobs(SMB_AGAIN).options("seal"),
    Scenario::cifs("cifs-3.1.1-tcp", "3.1.1", "tcp").jobs(SMB_ALL),
    Scenario::cifs("cifs-3.1.1-tcp-posix", "3.1.1", "tcp").options("posix"),
    Scenario::cifs("cifs-3.1.1-tcp-sign", "3.1.1", "tcp").options("sign"),
    Scenario::cifs("cifs-3.1.1-tcp-seal", "3.1.1", "tcp").jobs(SMB_AGAIN).options("seal"),
    Scenario::cifs("cifs-3.1.1-rdma", "3.1.1", "rdma").jobs(SMB_ALL),
    Scenario::cifs("cifs-3.1.1-rdma-sign", "3.1.1", "rdma").jobs(SMB_AGAIN).options("sign"),
    // With `seal` alone the kernel's client dies of its own WRITE: `smb3_negotiate_wsize` and `smb3_negotiate_rsize` (Linux 6.12)
    // keep I/O below what SMB Direct takes in fragments only if the connection signs, although data of a sealed mount goes by
    // Send, too. The message of 1 MiB and a header is refused by the client's `smbd_send`, and nothing of it reaches the wire.
    // `sign` makes it count right and still encrypts everything, as does a server that wants signatures, which is our default.
    Scenario::cifs("cifs-3.1.1-rdma-seal", "3.1.1", "rdma").options("seal,sign"),
    Scenario::cifs("cifs-multichannel", "3.1.1", "tcp")
        .jobs("multichannel")
        .options("multichannel,max_channels=4"),
    Scenario::cifs("mixed-rdma", "3.1.1", "rdma").jobs("mixed,threeways,stress"),
    Scenario::cifs("mixed-tcp", "3.1.1", "tcp").jobs("mixed,threeways,stress"),
    // The users' own mounts, by both protocols, come from the job.
    Scenario::cifs("mixed-rights", "3.1.1", "tcp").jobs("rights"),
    Scenario::cifs("counting", "3.1.1", "rdma").options("cache=none,actimeo=0").jobs("counting"),
    Scenario::cifs("ending-rdma", "3.1.1", "rdma").jobs("ending"),
    Scenario::new("container-v4.1-rdma", "4.1", "rdma")
        .trouble("stop-container")
        .on(Server::Container),
    Scenario::cifs("container-smb-direct", "3.1.1", "rdma")
        .trouble("stop-container")
        .on(Server::Container),
    // The jobs against the server that they were written with.
    Scenario::cifs("ksmbd-tcp", "3.1.1", "tcp").jobs(SMB_ALL).on(Server::Ksmbd),
    Scenario::cifs("ksmbd-rdma", "3.1.1", "rdma").jobs(SMB_ALL).on(Server::Ksmbd),
    // The client's own fault, which the job tells of: it fails here, and with these options against the gateway.
    Scenario::cifs("ksmbd-counting", "3.1.1", "rdma")
        .options("cache=strict,actimeo=0")
        .jobs("counting")
        .on(Server::Ksmbd),
    Scenario::new("knfsd-v3-rdma", "3", "rdma").on(Server::Knfsd),
    Scenario::new("knfsd-v3-tcp", "3", "tcp").on(Server::Knfsd),
    Scenario::new("knfsd-v4.0-rdma", "4.0", "rdma").on(Server::Knfsd),
    Scenario::new("knfsd-v4.1-rdma", "4.1", "rdma").on(Server::Knfsd),
    Scenario::new("knfsd-v4.2-rdma", "4.2", "rdma").on(Server::Knfsd),
    Scenario::new("knfsd-v4.2-tcp", "4.2", "tcp").on(Server::Knfsd),
];

/// The share is a folder of CephFS: a command of its own.
pub(super) const ON_CEPH: &[Scenario] = &[
    Scenario::new("ceph-v4.2", "4.2", "tcp").jobs(FILES_AND_LISTS).on(Server::Ceph),
    Scenario::new("ceph-v3", "3", "tcp").jobs(FILES_AND_LISTS).on(Server::Ceph),
    Scenario::cifs("ceph-cifs", "3.1.1", "tcp").jobs(SMB_ALL).on(Server::Ceph),
    Scenario::cifs("ceph-mixed", "3.1.1", "tcp").jobs("mixed,threeways").on(Server::Ceph),
];

/// A service that goes from node to node while the kernel's client works on it: a command of its own.
pub(super) const TAKEOVERS: &[Scenario] = &[
    Scenario::new("takeover-v4.2-tcp", "4.2", "tcp").takeover(),
    Scenario::new("takeover-v4.1-rdma", "4.1", "rdma").takeover(),
    Scenario::new("takeover-v3-tcp", "3", "tcp").takeover(),
    // Otherwise this client tells programs of a server that is away for a moment.
    Scenario::cifs("takeover-cifs-tcp", "3.1.1", "tcp").takeover().options("hard"),
    Scenario::cifs("takeover-cifs-rdma", "3.1.1", "rdma").takeover().options(SMB_DIRECT_HARD),
];

/// The same on CephFS.
pub(super) const TAKEOVERS_ON_CEPH: &[Scenario] = &[
    Scenario::new("ceph-takeover-v4.2-tcp", "4.2", "tcp").takeover().on(Server::ClusterOnCeph),
    Scenario::new("ceph-takeover-v4.1-rdma", "4.1", "rdma").takeover().on(Server::ClusterOnCeph),
    Scenario::new("ceph-takeover-v3-tcp", "3", "tcp").takeover().on(Server::ClusterOnCeph),
    Scenario::cifs("ceph-takeover-cifs-tcp", "3.1.1", "tcp")
        .takeover()
        .on(Server::ClusterOnCeph)
        .options("hard"),
    Scenario::cifs("ceph-takeover-cifs-rdma", "3.1.1", "rdma")
        .takeover()
        .on(Server::ClusterOnCeph)
        .options(SMB_DIRECT_HARD),
];

/// The same, by order and as often as is asked for: by their names alone.
pub(super) const MOVES: &[Scenario] = &[
    Scenario::new("moves-v4.2-tcp", "4.2", "tcp").jobs("moves").on(Server::Cluster),
    Scenario::new("moves-v4.1-rdma", "4.1", "rdma").jobs("moves").on(Server::Cluster),
    Scenario::cifs("moves-cifs-tcp", "3.1.1", "tcp")
        .jobs("moves")
        .on(Server::Cluster)
        .options("hard"),
    Scenario::cifs("moves-cifs-rdma", "3.1.1", "rdma")
        .jobs("moves")
        .on(Server::Cluster)
        .options(SMB_DIRECT_HARD),
];

/// What clients wait for when their server goes, and when another one goes: the columns of the table that is made of it.
pub(super) const FAILOVERS: [Scenario; 4] = [
    Scenario::failover(Program::Ganesha, "failover-ganesha-dies", "dies"),
    Scenario::failover(Program::Headgate, "failover-headgate-dies", "dies"),
    Scenario::failover(Program::Ganesha, "failover-ganesha-stopped", "stopped"),
    Scenario::failover(Program::Headgate, "failover-headgate-stopped", "stopped"),
];

/// The gateway beside the kernel's server, measured by the kernel's client over RDMA.
pub(super) const BESIDE: &[Scenario] = &[
    Scenario::new("beside-v3", "3", "rdma").beside("siw", "iwarp"),
    Scenario::new("beside-v4.2", "4.2", "rdma").beside("siw", "iwarp"),
];

/// Changes of names, which both have on stable storage before they answer.
pub(super) const BESIDE_ON_EXT4: &[Scenario] =
    &[Scenario::new("beside-changes", "3", "tcp").jobs("changes").on(Server::Both("ext4"))];

/// What protection costs either server, by TCP: the first is without any.
pub(super) const BESIDE_PROTECTED: &[Scenario] = &[
    Scenario::new("beside-sys", "4.2", "tcp").beside("siw", "iwarp").options("sec=sys"),
    Scenario::new("beside-krb5", "4.2", "tcp").beside("siw", "iwarp").options("sec=krb5"),
    Scenario::new("beside-krb5i", "4.2", "tcp").beside("siw", "iwarp").options("sec=krb5i"),
    Scenario::new("beside-krb5p", "4.2", "tcp").beside("siw", "iwarp").options("sec=krb5p"),
    Scenario::new("beside-tls", "4.2", "tcp").beside("siw", "iwarp").options("xprtsec=tls"),
];

/// The same over an RDMA device on both sides.
pub(super) const BESIDE_BY_DEVICE: &[Scenario] = &[
    Scenario::new("beside-rxe", "4.2", "rdma").beside("rxe", "verbs"),
    Scenario::new("beside-siw", "4.2", "rdma").beside("siw", "verbs"),
    Scenario::cifs("beside-rxe-smb", "3.1.1", "rdma").beside("rxe", "verbs"),
    Scenario::cifs("beside-siw-smb", "3.1.1", "rdma").beside("siw", "verbs"),
];

/// The kernel's client, captured: part of the tier `third`.
pub(super) const CAPTURED: &[Scenario] = &[
    Scenario::new("capture-v3", "3", "rdma").captured(),
    Scenario::new("capture-v4.1", "4.1", "rdma").captured(),
    Scenario::new("capture-v4.2", "4.2", "rdma").captured(),
    Scenario::cifs("capture-smb-direct", "3.1.1", "rdma").captured(),
    Scenario::cifs("capture-smb-tcp", "3.1.1", "tcp").captured(),
];
