//! What all connections share: the shares, the handles, this run of the server, and who may use what.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rdma_transport::refused::{self, Refused};
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

/// What makes one run of the server different from all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boot {
    /// What all write verifiers of this run begin from: see [`ServerState::write_verifier`].
    pub write_verifier: u64,
    /// A number that no earlier run had; in client ids and stateids.
    pub instance: u32,
}

impl Boot {
    /// By the wall clock, which is later at each start.
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let nanos = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        // Truncation is meant: seconds modulo 2^32 differ between any two runs that a client can remember.
        #[allow(clippy::cast_possible_truncation)]
        let instance = since.as_secs() as u32;
        Self { write_verifier: nanos, instance }
    }
}

/// What all connections of one server share.
pub struct ServerState {
    /// The shares and the state of their users.
    pub namespace: Arc<Namespace>,
    /// Makes and reads file handles.
    pub handles: Handles,
    /// This run.
    pub boot: Boot,
    /// Time.
    pub clock: Clock,
    /// Who counts as a neighbour, for shares that do not say who may come.
    pub local_subnets: LocalSubnets,
    /// Whose word needs a port below 1024.
    pub source_ports: SourcePorts,
    /// Share reservations of clients of version 3.
    pub reservations: Reservations,
    /// Who writes without an open, for the audit trail.
    pub(crate) writers: Writers,
    /// Which mounts the audit trail was told of.
    pub(crate) mounts: Mounts,
    /// Contexts of callers by Kerberos; none can be made where it is not configured.
    pub gss: Gss,
}

impl ServerState {
    /// Over these shares.
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

    /// Goes with the answers of WRITE and COMMIT; when it changes, clients send again what was not committed
    /// (RFC 1813 section 3.3.21, RFC 8881 section 18.3.3). `volume`: [`vfs::Node::verifier`], for WRITE from before the write,
    /// for COMMIT from after it.
    pub fn write_verifier(&self, volume: u64) -> [u8; 8] {
        self.boot.write_verifier.wrapping_add(volume).to_be_bytes()
    }

    /// The peer of this connection may use some share: what it says is listened to.
    pub fn may_use_any(&self, conn: &Conn) -> bool {
        self.admits(conn.info.peer.ip(), Some(conn.info.local.ip())).is_ok()
    }

    /// A client of this address, connected to `local`, may use some share. Where `local` is not known yet, shares for neighbours
    /// and this host admit everybody. [`Refusal::NameUnknown`]: that is not known of some share, and no other admits it.
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

    /// The peer of this connection may use this share.
    pub fn may_use(&self, conn: &Conn, share: &Share) -> bool {
        self.why_not(conn, share).is_none()
    }

    /// Why the peer of this connection may not use this share.
    pub fn why_not(&self, conn: &Conn, share: &Share) -> Option<Refusal> {
        self.rule_of(conn, share).err()
    }

    /// The share as this caller sees it, or a line in the log.
    pub fn enter(
        &self,
        conn: &Conn,
        call: &CallContext,
        share: Arc<Share>,
    ) -> Result<Entered, Refusal> {
        self.enter_unless(conn, call, share, |_, _| false)
    }

    /// As [`ServerState::enter`], for what clients do by AUTH_SYS and in clear whatever their mount says: MOUNT, and locks of
    /// version 3 (RFC 2623 section 2.5 has the same of MOUNT; lock managers of clients have no tickets).
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

    /// As [`ServerState::enter`], for what a client needs to mount: the attributes of a share's root and what the share can do are
    /// told to whoever comes from an address that may use it. A client mounts as its root, whom `access` need not name.
    pub fn enter_to_mount(
        &self,
        conn: &Conn,
        call: &CallContext,
        share: Arc<Share>,
        node: &NodeRef,
    ) -> Result<Entered, Refusal> {
        self.enter_unless(conn, call, share, |share, why| {
            // What a client mounts by it asks for by any flavor (RFC 2623 section 2.3.2); TLS it has from the first call.
            !why.is_of_client()
                && !matches!(why, Refusal::Tls | Refusal::Certificate | Refusal::Elsewhere)
                && share.backend.root().id() == node.id()
        })
    }

    /// As [`ServerState::enter_to_mount`], for FSSTAT, which is not among the calls of a mount (RFC 2623 section 2.3.2): by a
    /// flavor that the share does not have, the space of the share is not told. A root whom `access` does not name sees it, as of
    /// other mounts.
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

    /// As [`ServerState::enter`]; who is refused for a reason that `mounts` lets pass sees the share from outside.
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

    /// What this caller may do with the share. A refusal is told when it comes to that. A call that names a file of a share which
    /// admits its address introduces the client, however long its answer takes.
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

    /// As [`ServerState::judge`], whatever the flavor and what protects the connection.
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

    /// As [`ServerState::enter`], for a user at `peer` whose connection, to `local`, may have gone since it asked. A refusal is
    /// counted; who it was is told when the user asks again.
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

    /// Counts a refusal and tells the log of it.
    pub fn refused(&self, conn: &Conn, call: &CallContext, share: &Share, why: Refusal) {
        if !share.protocols.nfs() {
            // A reload took NFS from it after it was found: another address would be refused as well.
            return self.unknown_share(conn, call, share.name.as_bytes());
        }
        let (peer, uid) = (conn.peer_ip(), call.cred.uid);
        let acts_as = share.squash_from(peer, call.cred.clone()).uid;
        let user = format!("uid {acts_as}");
        let remedy: Cow<'static, str> = match why {
            Refusal::Address => {
                share.clients_remedy(&self.local_subnets.networks(), peer, Protocols::Nfs).into()
            }
            Refusal::NotNamed | Refusal::Denied if acts_as != uid => format!(
                "`squash` makes uid {uid} of this client uid {acts_as}: come as another user, or change `squash` of the share or \
                 of its entry in `clients`"
            )
            .into(),
            _ => why.remedy().into(),
        };
        let share = share.name.as_str().into();
        conn.refused(Refused { peer, user: user.into(), share, rule: why.name(), remedy });
    }

    /// Counts that a client named a share that NFS does not serve, and tells the log of it.
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

    /// What the share says of an address that it admits: nothing, where it has no ranges and admits its neighbours and this host.
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

    /// The root of a share, or a folder in it, is given to the client.
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
                share: share.name.clone(),
                version,
                path: String::from_utf8_lossy(path).into_owned(),
                repeats: news.repeats,
            });
        }
    }
}
