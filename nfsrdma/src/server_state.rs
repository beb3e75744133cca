//! State shared by all connections: shares, file handles, the identity of this run, and access checks.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rdma_transport::refused::{self, Refused};
use vfs::callers::Asking;
use vfs::namespace::{By, ClientRule, Entered, Granted, Namespace, Protocols, Refusal, Share};
use vfs::{Cred, NodeRef};

use crate::clients::LocalSubnets;
use crate::clock::Clock;
use crate::context::{CallContext, Conn};
use crate::fh::Handles;
use crate::mounted::{Mount, Mounts};
use crate::nlm::reservations::Reservations;
use crate::rpc::gss::Gss;
use crate::source_port::SourcePorts;
use crate::unopened::Writers;

/// Distinguishes one run of the server from all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boot {
    /// The base of all write verifiers of this run: see [`ServerState::write_verifier`].
    pub write_verifier: u64,
    /// A number that no earlier run used; part of client ids and stateids.
    pub instance: u32,
}

impl Boot {
    /// Uses the wall clock, which is later at each start.
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let nanos = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        // Truncation is intended: seconds modulo 2^32 differ between any two runs that a client can remember.
        #[allow(clippy::cast_possible_truncation)]
        let instance = since.as_secs() as u32;
        Self { write_verifier: nanos, instance }
    }
}

/// State shared by all connections of one server.
pub struct ServerState {
    /// The shares and the state of open files.
    pub namespace: Arc<Namespace>,
    /// Builds and parses file handles.
    pub handles: Handles,
    pub boot: Boot,
    pub clock: Clock,
    /// The attached networks, for shares without a list of clients.
    pub local_subnets: LocalSubnets,
    /// Callers that must use a source port below 1024.
    pub source_ports: SourcePorts,
    /// Share reservations of NFSv3 clients.
    pub reservations: Reservations,
    /// Users who write without an open, for the audit trail.
    pub(crate) writers: Writers,
    /// Mounts that the audit trail has recorded recently.
    pub(crate) mounts: Mounts,
    /// Kerberos contexts; none can be created unless Kerberos is configured.
    pub gss: Gss,
}

impl ServerState {
    pub fn new(namespace: Arc<Namespace>, handles: Handles, boot: Boot, clock: Clock) -> Self {
        Self {
            namespace,
            handles,
            boot,
            clock,
            local_subnets: LocalSubnets::default(),
            source_ports: SourcePorts::default(),
            reservations: Reservations::default(),
            writers: Writers::default(),
            mounts: Mounts::default(),
            gss: Gss::default(),
        }
    }

    /// The verifier in replies to WRITE and COMMIT; when it changes, clients resend uncommitted data (RFC 1813 section 3.3.21, RFC
    /// 8881 section 18.3.3). `volume` is [`vfs::Node::verifier`], taken before the write for WRITE, and after the sync for COMMIT.
    pub fn write_verifier(&self, volume: u64) -> [u8; 8] {
        self.boot.write_verifier.wrapping_add(volume).to_be_bytes()
    }

    /// True if the peer of this connection may use at least one share, so its calls are worth reading.
    pub fn may_use_any(&self, conn: &Conn) -> bool {
        self.admits(conn.info.peer.ip(), Some(conn.info.local.ip())).is_ok()
    }

    /// Checks that a client of this address, connected to `local`, may use at least one share. If `local` is unknown yet, shares
    /// for neighbours and this host admit every address. [`Refusal::NameUnknown`]: the name service has not answered for some
    /// share, and no other share admits the client.
    pub fn admits(&self, peer: IpAddr, local: Option<IpAddr>) -> Result<(), Refusal> {
        let shares = self.namespace.shares();
        let mut why = Refusal::Address;
        for share in shares.iter() {
            match self.rule_for(peer, local, share) {
                Ok(_) => return Ok(()),
                Err(Refusal::NameUnknown) => why = Refusal::NameUnknown,
                Err(_) => {}
            }
        }
        Err(why)
    }

    pub fn may_use(&self, conn: &Conn, share: &Share) -> bool {
        self.why_not(conn, share).is_none()
    }

    /// The reason why the peer of this connection may not use this share.
    pub fn why_not(&self, conn: &Conn, share: &Share) -> Option<Refusal> {
        self.rule_of(conn, share).err()
    }

    /// Returns the share as this caller sees it, or logs the refusal.
    pub fn enter(
        &self,
        conn: &Conn,
        call: &CallContext,
        share: Arc<Share>,
    ) -> Result<Entered, Refusal> {
        self.enter_unless(conn, call, share, |_, _| false)
    }

    /// Like [`ServerState::enter`], for calls that clients always send as AUTH_SYS without TLS, whatever the mount uses: MOUNT, and
    /// NFSv3 locks (RFC 2623 section 2.5 says so of MOUNT; lock managers of clients have no tickets).
    pub fn enter_by_any(
        &self,
        conn: &Conn,
        call: &CallContext,
        share: Arc<Share>,
    ) -> Result<Entered, Refusal> {
        match self.judge_by_any(conn, call, &share) {
            Ok(granted) => Ok(share.granted(granted)),
            Err(why) => {
                self.refused(conn, call, &share, why);
                Err(why)
            }
        }
    }

    /// Like [`ServerState::enter`], for the calls of a mount: any client whose address may use the share gets the root's attributes
    /// and the share's capabilities. The client mounts as its root user, which `access` need not include.
    pub fn enter_to_mount(
        &self,
        conn: &Conn,
        call: &CallContext,
        share: Arc<Share>,
        node: &NodeRef,
    ) -> Result<Entered, Refusal> {
        self.enter_unless(conn, call, share, |share, why| {
            // Clients make the calls of a mount with any flavor (RFC 2623 section 2.3.2), but use TLS from the first call on.
            !why.is_of_client()
                && !matches!(why, Refusal::Tls | Refusal::Certificate | Refusal::Elsewhere)
                && share.backend.root().id() == node.id()
        })
    }

    /// Like [`ServerState::enter_to_mount`], for FSSTAT, which is not a call of a mount (RFC 2623 section 2.3.2): it needs a flavor
    /// of the share. A root user that `access` omits sees the space, as with other mounts.
    pub fn enter_to_measure(
        &self,
        conn: &Conn,
        call: &CallContext,
        share: Arc<Share>,
        node: &NodeRef,
    ) -> Result<Entered, Refusal> {
        if share.rules.sec.has(call.flavor.of_share()) {
            self.enter_to_mount(conn, call, share, node)
        } else {
            self.enter(conn, call, share)
        }
    }

    /// Like [`ServerState::enter`], but a caller refused for a reason that `mounts` permits gets the share without any rights.
    fn enter_unless(
        &self,
        conn: &Conn,
        call: &CallContext,
        share: Arc<Share>,
        mounts: impl FnOnce(&Share, Refusal) -> bool,
    ) -> Result<Entered, Refusal> {
        match self.judge(conn, call, &share) {
            Ok(granted) => Ok(share.granted(granted)),
            Err(why) if mounts(&share, why) => Ok(share.from_outside()),
            Err(why) => {
                self.refused(conn, call, &share, why);
                Err(why)
            }
        }
    }

    /// Returns a question to the service of the domain, whether the numbers of a caller by AUTH_SYS are those of identities of the
    /// domain, before the first access check of the caller on this connection. It ends after some seconds at most; a gateway
    /// without a service has none.
    pub(crate) fn ask_about(&self, conn: &Conn, cred: &Cred) -> Option<Asking> {
        // All shares are in the same domain.
        let share = self.namespace.shares().first()?.clone();
        share.rules.host.domain()?.learn(conn.peer_ip(), cred)
    }

    /// Decides the caller's rights on the share. The caller reports a refusal itself when it matters. A call on a file of a share
    /// that admits the address marks the client as known, however long the reply takes.
    pub fn judge(
        &self,
        conn: &Conn,
        call: &CallContext,
        share: &Share,
    ) -> Result<Granted, Refusal> {
        let granted = self.judge_by_any(conn, call, share)?;
        share.check_protection(conn.protection())?;
        let is_enough = share.rules.sec.has(call.flavor.of_share());
        is_enough.then_some(granted).ok_or(Refusal::Flavor)
    }

    /// Like [`ServerState::judge`], whatever the flavor and the protection of the connection.
    fn judge_by_any(
        &self,
        conn: &Conn,
        call: &CallContext,
        share: &Share,
    ) -> Result<Granted, Refusal> {
        let rule = self.rule_of(conn, share)?;
        if !conn.info.introduction.is_done() {
            conn.info.introduction.note();
        }
        share.right_nfs(rule, &call.cred)
    }

    /// Like [`ServerState::enter`], for a user at `peer` whose connection to `local` may have ended since the request. A refusal is
    /// only counted; it is logged when the user asks again.
    pub(crate) fn enter_later(
        &self,
        (peer, local): (IpAddr, IpAddr),
        cred: &Cred,
        share: Arc<Share>,
    ) -> Result<Entered, Refusal> {
        let rule = self.rule_for(peer, Some(local), &share);
        let granted = rule.and_then(|rule| share.right_nfs(rule, cred)).inspect_err(|why| {
            let by_nfs = share.protocols.nfs();
            refused::count(if by_nfs { why.name() } else { refused::SHARE_NAME });
        })?;
        Ok(share.granted(granted))
    }

    /// Counts and logs a refusal.
    pub fn refused(&self, conn: &Conn, call: &CallContext, share: &Share, why: Refusal) {
        if !share.protocols.nfs() {
            // A reload removed the share from NFS after the look-up: every address would be refused.
            return self.unknown_share(conn, call, share.name.as_bytes());
        }
        let (peer, uid) = (conn.peer_ip(), call.cred.uid);
        let acts_as = share.squash_from(peer, call.cred.clone()).uid;
        let user = format!("uid {acts_as}");
        let remedy: Cow<'static, str> = match why {
            Refusal::Address => {
                share.clients_remedy(&self.local_subnets.networks(), peer, Protocols::Nfs).into()
            }
            Refusal::NotNamed | Refusal::Denied | Refusal::Unsure(_) if acts_as != uid => format!(
                "`squash` makes uid {uid} of this client uid {acts_as}: come as another user, or change `squash` of the share or \
                 of its entry in `clients`"
            )
            .into(),
            _ => why.remedy().into(),
        };
        let share = share.name.as_str().into();
        conn.refused(Refused { peer, user: user.into(), share, rule: why.name(), remedy });
    }

    /// Counts and logs a request for a share that NFS does not serve.
    pub fn unknown_share(&self, conn: &Conn, call: &CallContext, name: &[u8]) {
        if conn.is_datagram() {
            return refused::count(refused::SHARE_NAME);
        }
        let user = format!("uid {}", call.cred.uid);
        refused::unknown_share(conn.peer_ip(), user.into(), audit::PeerText::of(name));
    }

    fn rule_of<'s>(
        &self,
        conn: &Conn,
        share: &'s Share,
    ) -> Result<Option<&'s ClientRule>, Refusal> {
        self.rule_for(conn.info.peer.ip(), Some(conn.info.local.ip()), share)
    }

    /// The rule of the share that matches an admitted address; `None` if the share has no ranges and admits neighbours and this
    /// host.
    fn rule_for<'s>(
        &self,
        peer: IpAddr,
        local: Option<IpAddr>,
        share: &'s Share,
    ) -> Result<Option<&'s ClientRule>, Refusal> {
        let ip = peer.to_canonical();
        let is_near = || {
            local.is_none_or(|local| ip == local.to_canonical()) || self.local_subnets.contains(ip)
        };
        if !share.protocols.nfs() {
            return Err(Refusal::Address);
        }
        match share.client(ip, By::Nfs)? {
            None if !is_near() => Err(Refusal::Address),
            rule => Ok(rule),
        }
    }

    /// Records that the client gets the handle of a share's root, or of a folder in it.
    pub(crate) fn mounted(
        &self,
        (conn, call): (&Conn, &CallContext),
        permit: audit::Permit,
        share: &Share,
        version: &'static str,
        path: &[u8],
    ) {
        if !permit.is_on() {
            return;
        }
        let (peer, user) = (conn.peer_ip(), (call.cred.uid, call.principal));
        let mount = Mount { peer, user, share: share.id, version };
        if let Some(news) = self.mounts.news(mount, call.now) {
            permit.record(|| audit::Event::Mount {
                peer,
                party: if news.is_of_one { call.party() } else { audit::Party::default() },
                share: share.name.as_str().into(),
                version,
                path: audit::RecordText::of(path),
                repeats: news.repeats,
            });
        }
    }
}
