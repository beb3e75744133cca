//! What is run in the lab. The modules named in `jobs` are in tests/lab/guest.

/// What every version has to show.
const FILES: &str = "sizes,tree,untar,semantics,locks,v42,exports";

/// Where the server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Server {
    /// The gateway on the host's side of the tap.
    Host,
    /// In the guest: the gateway, on this file system.
    Guest(&'static str),
    /// In the guest: the kernel's own server, a reference for the jobs. Not part of a tier.
    Knfsd,
}

/// One run of one guest, or of two at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scenario {
    pub(super) name: &'static str,
    pub(super) vers: &'static str,
    pub(super) proto: &'static str,
    pub(super) jobs: &'static str,
    pub(super) server: Server,
    /// What the guest asks of the host in the middle of its copy.
    pub(super) trouble: Option<&'static str>,
    /// A second guest runs the same at the same time.
    pub(super) pair: bool,
    /// The first tap is captured, and decoded afterwards.
    pub(super) captured: bool,
    pub(super) seconds_max: u32,
}

impl Scenario {
    const fn new(name: &'static str, vers: &'static str, proto: &'static str) -> Scenario {
        Scenario {
            name,
            vers,
            proto,
            jobs: FILES,
            server: Server::Host,
            trouble: None,
            pair: false,
            captured: false,
            seconds_max: 600,
        }
    }

    const fn jobs(self, jobs: &'static str) -> Scenario {
        Scenario { jobs, ..self }
    }

    const fn on(self, server: Server) -> Scenario {
        Scenario { server, ..self }
    }

    const fn pair(self) -> Scenario {
        Scenario { jobs: "pair", pair: true, ..self }
    }

    const fn trouble(self, words: &'static str) -> Scenario {
        Scenario { jobs: "survive", trouble: Some(words), seconds_max: 300, ..self }
    }

    const fn captured(self) -> Scenario {
        Scenario { jobs: "traffic", captured: true, ..self }
    }

    pub(super) fn is_reference(&self) -> bool {
        self.server == Server::Knfsd
    }
}

/// The gateway and the kernel's client: the tier `lab`. Those that mostly wait stand beside those that compute: two run at
/// once.
pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario::new("v3-rdma", "3", "rdma"),
    Scenario::new("kill-v3-tcp", "3", "tcp").trouble("kill-gateway"),
    Scenario::new("v3-tcp", "3", "tcp"),
    Scenario::new("kill-v3-rdma", "3", "rdma").trouble("kill-gateway"),
    Scenario::new("v4.0-rdma", "4.0", "rdma"),
    Scenario::new("kill-v4.1-tcp", "4.1", "tcp").trouble("kill-gateway"),
    Scenario::new("v4.0-tcp", "4.0", "tcp"),
    Scenario::new("kill-v4.1-rdma", "4.1", "rdma").trouble("kill-gateway"),
    Scenario::new("v4.1-rdma", "4.1", "rdma"),
    Scenario::new("cut-v3-tcp", "3", "tcp").trouble("cut-connections"),
    Scenario::new("v4.1-tcp", "4.1", "tcp"),
    Scenario::new("cut-v3-rdma", "3", "rdma").trouble("cut-connections"),
    Scenario::new("v4.2-rdma", "4.2", "rdma"),
    Scenario::new("cut-v4.1-tcp", "4.1", "tcp").trouble("cut-connections"),
    Scenario::new("v4.2-tcp", "4.2", "tcp"),
    Scenario::new("cut-v4.1-rdma", "4.1", "rdma").trouble("cut-connections"),
    Scenario::new("claims-v4.0-rdma", "4.0", "rdma").jobs("claims"),
    Scenario::new("claims-v4.1-tcp", "4.1", "tcp").jobs("claims"),
    Scenario::new("claims-v4.2-rdma", "4.2", "rdma").jobs("claims"),
    Scenario::new("xfs-v4.2-rdma", "4.2", "rdma")
        .jobs("sizes,v42,semantics")
        .on(Server::Guest("xfs")),
    Scenario::new("pair-v3-tcp", "3", "tcp").pair(),
    Scenario::new("pair-v3-rdma", "3", "rdma").pair(),
    Scenario::new("pair-v4.0-rdma", "4.0", "rdma").pair(),
    Scenario::new("pair-v4.1-rdma", "4.1", "rdma").pair(),
    Scenario::new("pair-v4.2-tcp", "4.2", "tcp").pair(),
    // The jobs against the server that they were written with.
    Scenario::new("knfsd-v3-rdma", "3", "rdma").on(Server::Knfsd),
    Scenario::new("knfsd-v3-tcp", "3", "tcp").on(Server::Knfsd),
    Scenario::new("knfsd-v4.0-rdma", "4.0", "rdma").on(Server::Knfsd),
    Scenario::new("knfsd-v4.1-rdma", "4.1", "rdma").on(Server::Knfsd),
    Scenario::new("knfsd-v4.2-rdma", "4.2", "rdma").on(Server::Knfsd),
    Scenario::new("knfsd-v4.2-tcp", "4.2", "tcp").on(Server::Knfsd),
];

/// The kernel's client, captured: part of the tier `third`.
pub(super) const CAPTURED: &[Scenario] = &[
    Scenario::new("capture-v3", "3", "rdma").captured(),
    Scenario::new("capture-v4.1", "4.1", "rdma").captured(),
    Scenario::new("capture-v4.2", "4.2", "rdma").captured(),
];
