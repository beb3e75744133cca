//! The scenarios of the lab. The modules named in `jobs` are in tests/lab/guest.

use self::Linux::{V6_1, V7};
use super::gateway::Guests;
use super::posix::JOB;

/// Jobs for every protocol version.
const FILES: &str = "sizes,tree,untar,semantics,locks,v42,exports";

/// Jobs for the second transport of a version: the first has already moved large trees. The trees of 4.1 were moved by 4.2, which
/// uses the same operations for them.
const FEWER: &str = "sizes,semantics,locks,exports";
const FEWER_AND_TREE: &str = "sizes,tree,semantics,locks,exports";

/// Adds access control lists, set by the users' own programs.
const FILES_AND_LISTS: &str = "sizes,tree,untar,semantics,locks,v42,exports,acls";

/// Begins with the job that compares what `status` reports about the client: later there are connections of other kinds.
const FILES_AND_STATUS: &str = "told,sizes,tree,untar,semantics,locks,v42,exports";
const FEWER_AND_STATUS: &str = "told,sizes,semantics,locks,exports";

/// Jobs for verbs: many small files take minutes when both ends are in one guest, and do not test RDMA.
const VERBS: &str = "sizes,semantics,locks,v42,exports";

/// Jobs for every dialect of SMB; [`SMB_ALL`] runs for one of them.
const SMB: &str = "told,sizes,semantics,smb";
/// Jobs for scenarios that differ only by signatures or encryption.
const SMB_AGAIN: &str = "told,sizes";
const SMB_ALL: &str = "told,sizes,tree,untar,semantics,smb,smblocks";

/// Without the delayed close, a second after programs have closed their files: if that message is being sent when the connection is
/// reset, this client (Linux 6.12) waits for ever (`smbd_send`, docs/cluster.md).
const SMB_DIRECT_HARD: &str = "hard,closetimeo=0";
const NO_LATE_CLOSE: &str = "closetimeo=0";

/// Whether this client (Linux 6.12) asks for direct placement with `sec=krb5` depends on the earlier contents of its memory
/// (docs/kerberos.md): it does when memory is cleared first, and never when the slab allocator has filled it with 0x6b.
const CLEARED: &str = "init_on_alloc=1";
const STALE: &str = "slub_debug=P";

/// The protocol by which a guest mounts the share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Nfs,
    Cifs,
}

/// The kernel of a scenario's guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Linux {
    /// The kernel of Debian 12, without RDMA.
    V6_1,
    /// The kernel of most scenarios.
    V6_12,
    /// The newest kernel. Its client dials SMB Direct at the port of the device's fabric.
    V7,
}

impl Linux {
    pub(crate) const ALL: [Linux; 3] = [Linux::V6_12, Linux::V7, Linux::V6_1];

    /// Tells whether it may not boot on every machine: on one, no guest of Debian's package came to its first check. The tier runs
    /// these scenarios only when they are named.
    pub(crate) fn may_not_boot(self) -> bool {
        self == Linux::V6_1
    }

    /// Returns its name for `tests/lab/build-kernel`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Linux::V6_1 => "6.1",
            Linux::V6_12 => "6.12",
            Linux::V7 => "7",
        }
    }
}

/// The server of a measurement that compares two programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Program {
    Headgate,
    Ganesha,
}

/// The place of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Server {
    /// The gateway on the host's side of the tap.
    Host,
    /// Like `Host`, run as in the container image.
    Container,
    /// On the host's side, with its first share in CephFS. Not part of a tier.
    Ceph,
    /// Two nodes of a cluster on the host's side. Not part of a tier.
    Cluster,
    /// Like `Cluster`, with the share and the records in CephFS.
    ClusterOnCeph,
    /// One of two servers of a CephFS, on the host's side, and a spare node, for a measurement. Not part of a tier.
    Failover(Program),
    /// In the guest: the gateway, on this file system.
    Guest(&'static str),
    /// In the guest: the kernel's own server, a reference for the jobs. Not part of a tier.
    Knfsd,
    /// In the guest: both servers, for a measurement, each on a file system of this kind. Not part of a tier.
    Both(&'static str),
    /// Like `Knfsd`, for SMB; it needs the package ksmbd-tools.
    Ksmbd,
}

/// One run of one guest, or of two at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scenario {
    pub(super) name: &'static str,
    pub(super) linux: Linux,
    pub(super) kind: Kind,
    /// Further options of the mount.
    pub(super) options: &'static str,
    pub(super) vers: &'static str,
    pub(super) proto: &'static str,
    pub(super) jobs: &'static str,
    pub(super) server: Server,
    /// The kind of the guest's RDMA device.
    pub(super) device: &'static str,
    /// The RDMA provider when the gateway is in the guest.
    pub(super) provider: &'static str,
    /// A disruption of the server during the guest's work.
    pub(super) trouble: Option<&'static str>,
    /// A second guest runs the same at the same time, or is the client of a server in the first.
    pub(super) pair: bool,
    /// A parameter of the guest's kernel, `name=value`.
    pub(super) boot: Option<&'static str>,
    /// The first tap is captured, and decoded afterwards.
    pub(super) captured: bool,
    pub(super) seconds_max: u32,
    /// How often a job repeats its work, if not by default.
    pub(super) runs: Option<u32>,
}

impl Scenario {
    const fn new(name: &'static str, vers: &'static str, proto: &'static str) -> Scenario {
        Scenario {
            name,
            linux: Linux::V6_12,
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

    const fn linux(self, linux: Linux) -> Scenario {
        Scenario { linux, ..self }
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

    /// Puts the gateway in the guest, on a device of this kind with the verbs of the kernel and rdma-core.
    const fn verbs(self, device: &'static str) -> Scenario {
        Scenario { device, provider: "verbs", server: Server::Guest("ext4"), ..self }
    }

    /// Measures the gateway and the kernel's server in the guest.
    const fn beside(self, device: &'static str, provider: &'static str) -> Scenario {
        Scenario { device, provider, server: Server::Both("tmpfs"), jobs: "beside", ..self }
    }

    const fn pair(self) -> Scenario {
        Scenario { jobs: "pair", pair: true, ..self }
    }

    /// Puts the gateway in the first guest and these jobs in the second.
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

    /// Returns true if it mostly waits: for leases, tickets, or clients that reconnect.
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

    /// Returns true if the share is mounted with Kerberos.
    pub(super) fn has_kerberos(&self) -> bool {
        self.options.contains("sec=krb5")
    }

    /// Returns true if some shares are on another gateway.
    pub(super) fn refers(&self) -> bool {
        self.jobs == "refer"
    }

    /// Returns what the mounted share requires of its clients for TLS.
    pub(super) fn tls(&self) -> Option<&'static str> {
        let has = |option| self.options.split(',').any(|o| o == option);
        let mutual = has("xprtsec=mtls").then_some("mutual");
        mutual.or_else(|| has("xprtsec=tls").then_some("required"))
    }

    /// Returns true if its bulk data goes by RDMA Write and Read. A client that signs or seals does its I/O by Send, because a
    /// signature would not cover the direct bytes.
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
    // Only as root, except for `tickets`: other users of the guest have no tickets.
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
    Scenario::new("quota-ext4", "4.2", "rdma").jobs("quota").on(Server::Guest("ext4+quota")),
    Scenario::new("quota-xfs", "4.2", "rdma").jobs("quota").on(Server::Guest("xfs+quota")),
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
    // Left out: SMB, and a disconnect of the other end over siw. In one of four runs the client's own kernel (Linux 6.12) hangs
    // there, in the removal of the device that it uses too, while it waits for what its queue pair gave up; in the others it
    // recovers. The scenarios below, with the gateway's own client, show that the server does not hang.
    Scenario::new("verbs-rxe-unplug", "4.2", "rdma").trouble("unplug").verbs("rxe"),
    Scenario::new("verbs-siw-unplug", "3", "rdma").trouble("unplug").verbs("siw"),
    Scenario::cifs("verbs-rxe-smb", "3.1.1", "rdma").verbs("rxe"),
    Scenario::cifs("verbs-siw-smb", "3.1.1", "rdma")
        .jobs("sizes,semantics,smb,smblocks")
        .verbs("siw"),
    // Separate scenarios: they also move bulk data by Sends.
    Scenario::cifs("verbs-rxe-device", "3.1.1", "rdma").jobs("device").verbs("rxe"),
    Scenario::cifs("verbs-siw-device", "3.1.1", "rdma").jobs("device").verbs("siw"),
    Scenario::new("verbs-rxe-far", "4.2", "rdma").verbs("rxe").far("pair,sizes"),
    Scenario::new("verbs-rxe-far-v3", "3", "rdma").verbs("rxe").far("sizes"),
    Scenario::new("verbs-siw-far", "4.1", "rdma").verbs("siw").far("sizes"),
    Scenario::cifs("verbs-rxe-far-smb", "3.1.1", "rdma").verbs("rxe").far("sizes,semantics"),
    // The device on the server's side is removed, like a card.
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
    // The job mounts with `compress` itself, plain, signed and encrypted.
    Scenario::cifs("cifs-compress", "3.1.1", "tcp").jobs("compress"),
    Scenario::cifs("cifs-3.1.1-rdma", "3.1.1", "rdma").jobs(SMB_ALL),
    Scenario::cifs("cifs-3.1.1-rdma-sign", "3.1.1", "rdma").jobs(SMB_AGAIN).options("sign"),
    // With only `seal` the kernel's client fails at its own WRITE: `smb3_negotiate_wsize` and `smb3_negotiate_rsize` (Linux 6.12)
    // keep I/O below the limit of SMB Direct fragments only if the connection signs, although data of a sealed mount goes by Send,
    // too. The client's `smbd_send` refuses the message of 1 MiB and a header, before it reaches the wire. With `sign` the client
    // computes the right size and still encrypts everything; a server that requires signatures, which is the gateway's default, has
    // the same effect.
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
    // The clients of the newest kernel. No mount names a port of SMB Direct.
    Scenario::new("linux7-v4.2-tcp", "4.2", "tcp").jobs("sizes,semantics,locks,v42").linux(V7),
    Scenario::new("linux7-v4.2-rdma", "4.2", "rdma").jobs("sizes,semantics,v42").linux(V7),
    Scenario::cifs("linux7-cifs-tcp", "3.1.1", "tcp").jobs("told,sizes,semantics,smb").linux(V7),
    Scenario::cifs("linux7-cifs-iwarp", "3.1.1", "rdma").jobs("told,sizes,semantics,smb").linux(V7),
    Scenario::cifs("linux7-cifs-rxe", "3.1.1", "rdma")
        .jobs("sizes,semantics")
        .verbs("rxe")
        .linux(V7),
    Scenario::cifs("linux7-cifs-siw", "3.1.1", "rdma")
        .jobs("sizes,semantics")
        .verbs("siw")
        .linux(V7),
    // Debian 12's clients.
    Scenario::cifs("linux6.1-cifs-posix", "3.1.1", "tcp").options("posix").linux(V6_1),
    Scenario::new("linux6.1-v4.2-tcp", "4.2", "tcp").jobs("sizes,semantics,locks").linux(V6_1),
    Scenario::new("container-v4.1-rdma", "4.1", "rdma")
        .trouble("stop-container")
        .on(Server::Container),
    Scenario::cifs("container-smb-direct", "3.1.1", "rdma")
        .trouble("stop-container")
        .on(Server::Container),
    // The jobs against the server for which they were written.
    Scenario::cifs("ksmbd-tcp", "3.1.1", "tcp").jobs(SMB_ALL).on(Server::Ksmbd),
    Scenario::cifs("ksmbd-rdma", "3.1.1", "rdma").jobs(SMB_ALL).on(Server::Ksmbd),
    // The client's own fault, which the job reports: it fails here, and with these options against the gateway.
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

/// A mount whose files have modes, owners and groups of a POSIX host: Linux sends a new owner by its number only with `idsfromsid`.
const POSIX: &str = "posix,idsfromsid,actimeo=0,closetimeo=0";

/// A suite of system calls on files, on the gateway and on the kernel's own server; run by a separate command.
pub(super) const PJDFSTEST: &[Scenario] = &[
    Scenario::new("pjdfstest-v3", "3", "tcp").jobs(JOB),
    Scenario::new("pjdfstest-v4.2", "4.2", "tcp").jobs(JOB),
    Scenario::new("pjdfstest-knfsd-v3", "3", "tcp").jobs(JOB).on(Server::Knfsd),
    Scenario::new("pjdfstest-knfsd-v4.2", "4.2", "tcp").jobs(JOB).on(Server::Knfsd),
    Scenario::cifs("pjdfstest-cifs", "3.1.1", "tcp").jobs(JOB).options(POSIX),
    Scenario::cifs("pjdfstest-linux7-cifs", "3.1.1", "tcp").jobs(JOB).options(POSIX).linux(V7),
    Scenario::cifs("pjdfstest-multiuser", "3.1.1", "tcp")
        .jobs(JOB)
        .options("posix,idsfromsid,actimeo=0,closetimeo=0,sec=krb5,multiuser,cruid=0"),
];

/// The share is a folder of CephFS; run by a separate command.
pub(super) const ON_CEPH: &[Scenario] = &[
    Scenario::new("ceph-v4.2", "4.2", "tcp").jobs(FILES_AND_LISTS).on(Server::Ceph),
    Scenario::new("ceph-v3", "3", "tcp").jobs(FILES_AND_LISTS).on(Server::Ceph),
    Scenario::cifs("ceph-cifs", "3.1.1", "tcp").jobs(SMB_ALL).on(Server::Ceph),
    Scenario::cifs("ceph-mixed", "3.1.1", "tcp").jobs("mixed,threeways").on(Server::Ceph),
];

/// A service moves from node to node while the kernel's client works on it; run by a separate command.
pub(super) const TAKEOVERS: &[Scenario] = &[
    Scenario::new("takeover-v4.2-tcp", "4.2", "tcp").takeover(),
    Scenario::new("takeover-v4.1-rdma", "4.1", "rdma").takeover(),
    Scenario::new("takeover-v3-tcp", "3", "tcp").takeover(),
    // Without `hard` this client reports a brief absence of the server to programs.
    Scenario::cifs("takeover-cifs-tcp", "3.1.1", "tcp").takeover().options("hard"),
    Scenario::cifs("takeover-cifs-rdma", "3.1.1", "rdma").takeover().options(SMB_DIRECT_HARD),
];

/// Like [`TAKEOVERS`], on CephFS.
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

/// Moves of the service by order, as often as requested: run only by name.
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

/// The waiting time of clients when their server fails, and when the other one fails: the columns of the resulting table.
pub(super) const FAILOVERS: [Scenario; 4] = [
    Scenario::failover(Program::Ganesha, "failover-ganesha-dies", "dies"),
    Scenario::failover(Program::Headgate, "failover-headgate-dies", "dies"),
    Scenario::failover(Program::Ganesha, "failover-ganesha-stopped", "stopped"),
    Scenario::failover(Program::Headgate, "failover-headgate-stopped", "stopped"),
];

/// The gateway and the kernel's server, measured by the kernel's client over RDMA.
pub(super) const BESIDE: &[Scenario] = &[
    Scenario::new("beside-v3", "3", "rdma").beside("siw", "iwarp"),
    Scenario::new("beside-v4.2", "4.2", "rdma").beside("siw", "iwarp"),
];

/// Changes of names, which both servers have on stable storage before they answer.
pub(super) const BESIDE_ON_EXT4: &[Scenario] =
    &[Scenario::new("beside-changes", "3", "tcp").jobs("changes").on(Server::Both("ext4"))];

/// The cost of protection for either server, over TCP: the first scenario is unprotected.
pub(super) const BESIDE_PROTECTED: &[Scenario] = &[
    Scenario::new("beside-sys", "4.2", "tcp").beside("siw", "iwarp").options("sec=sys"),
    Scenario::new("beside-krb5", "4.2", "tcp").beside("siw", "iwarp").options("sec=krb5"),
    Scenario::new("beside-krb5i", "4.2", "tcp").beside("siw", "iwarp").options("sec=krb5i"),
    Scenario::new("beside-krb5p", "4.2", "tcp").beside("siw", "iwarp").options("sec=krb5p"),
    Scenario::new("beside-tls", "4.2", "tcp").beside("siw", "iwarp").options("xprtsec=tls"),
];

/// The same measurement over an RDMA device on both sides.
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
