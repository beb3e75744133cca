//! Changes the configuration while clients are served.
//!
//! *Operation.* All steps that can fail come first and change nothing: checks for settings that cannot change, opening
//! folders, reading users, opening listeners. The new configuration is then applied in one step that cannot fail. Afterwards
//! existing clients are checked against it: they keep access that would be granted again and lose the rest.
//!
//! | removed | affected clients |
//! |---|---|
//! | a share, or one of its protocols | its NFS handles become stale, its SMB tree connects end; these clients keep the rest |
//! | a user, or the user's identity in the file system | the user's SMB sessions |
//! | an address or port | connections accepted there, after their requests in work are answered |
//!
//! *Errors.* After a [`Refusal`] everything is unchanged.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use config::Settings;
use vfs::namespace::Share;

use crate::admission::ConnectionLimits;
use crate::changes::{Changes, Fixed, Refusal};
use crate::client_names::Lookup;
use crate::descriptors::Descriptors;
use crate::ldap::{self, Ldap};
use crate::listeners::Service;
use crate::lost_access;
use crate::pools::{
    heap_limits, payload_limits, payload_share, rdma_first_most, rdma_parts_most, rdma_recv_limits,
    recv_limits, recv_share,
};
use crate::serve::{Running, sweep};
use crate::shares::ShareSet;
use crate::shutdown::Connections;
use crate::tickets::tickets;
use crate::tls::Certificate;
use crate::users::{Next, UserDb};
use crate::{logs, smb, trail};

/// Returns the differences between two configurations except for shares, users and listeners.
fn values(old: &Settings, new: &Settings) -> (Vec<String>, Vec<Fixed>) {
    // Every key is named, so that the compiler rejects a new key until it is handled. The others are compared elsewhere.
    let Settings {
        shares: _,
        bind: _,
        rdma: _,
        rdma_crc: _,
        rdma_spin: _,
        rdma_relaxed_ordering: _,
        rdma_dscp: _,
        nfs_port: _,
        nfs_rdma_port: _,
        portmap: _,
        domain: _,
        names: _,
        privileges: _,
        on_host: _,
        smb: _,
        tls: _,
        kerberos: _,
        domain_by: _,
        audit: _,
        users: _,
        users_from: _,
        state: _,
        records: _,
        recall: _,
        lease: _,
        grace: _,
        courtesy: _,
        memory: _,
        connections: _,
        limits: _,
        admin: _,
        admin_clients: _,
        privileged_ports: _,
        discovery: _,
        drain: _,
        log: _,
        log_format: _,
        warnings: _,
    } = new;
    (changed(old, new), fixed(old, new))
}

/// Describes values that change now or, like the grace period, at the next start.
fn changed(old: &Settings, new: &Settings) -> Vec<String> {
    let mut changed = Vec::new();
    let mut value = |key: &str, old: &dyn fmt::Display, new: &dyn fmt::Display| {
        let (old, new) = (old.to_string(), new.to_string());
        if old != new {
            changed.push(format!("{key} {new} (was {old})"));
        }
    };
    value("connections", &old.connections, &new.connections);
    let address = |s: &config::Limits| {
        s.client_connections.map_or("three quarters".to_owned(), |n| n.to_string())
    };
    value("limits.client_connections", &address(&old.limits), &address(&new.limits));
    let of_one = |s: &config::Limits| {
        s.client_memory.map_or("three quarters".to_owned(), |n| config::Size(n).to_string())
    };
    value("limits.client_memory", &of_one(&old.limits), &of_one(&new.limits));
    value("limits.client_opens", &old.limits.client_opens, &new.limits.client_opens);
    value("limits.nfs_clients", &old.limits.nfs_clients, &new.limits.nfs_clients);
    let time = |s: &config::Limits| config::Span(s.introduction);
    value("rates", &old.rates(), &new.rates());
    value("limits.introduction", &time(&old.limits), &time(&new.limits));
    value("memory", &config::Size(old.memory), &config::Size(new.memory));
    let dscp = |s: &Settings| s.rdma_dscp.map_or("default".to_owned(), |dscp| dscp.to_string());
    value("rdma.dscp of new connections", &dscp(old), &dscp(new));
    value("privileged_ports", &old.privileged_ports, &new.privileged_ports);
    value("discovery", &old.discovery, &new.discovery);
    value("drain", &config::Span(old.drain), &config::Span(new.drain));
    value("log.level", &old.log, &new.log);
    value("nfs.grace at the next start", &config::Span(old.grace), &config::Span(new.grace));
    value("smb.signing", &old.smb.signing, &new.smb.signing);
    value("smb.encryption", &old.smb.encryption, &new.smb.encryption);
    value("smb.ntlm", &old.smb.ntlm, &new.smb.ntlm);
    value("smb.model", &old.smb.model, &new.smb.model);
    let keys = |kerberos: &Option<config::Kerberos>| {
        kerberos.as_ref().map_or("none".to_owned(), ToString::to_string)
    };
    value("kerberos.keytab", &keys(&old.kerberos), &keys(&new.kerberos));
    value("smb.rdma_transforms", &old.smb.rdma_transforms, &new.smb.rdma_transforms);
    value("smb.directory_leases", &old.smb.directory_leases, &new.smb.directory_leases);
    value("smb.password_length", &old.smb.password_length, &new.smb.password_length);
    value("smb.compression", &old.smb.compression, &new.smb.compression);
    let files = |tls: &Option<config::Tls>| match tls {
        Some(tls) => tls.certificate.display().to_string(),
        None => "off".to_owned(),
    };
    value("tls", &files(&old.tls), &files(&new.tls));
    let trail = |audit: &Option<config::Audit>| {
        audit.as_ref().map_or("none".to_owned(), ToString::to_string)
    };
    value("audit", &trail(&old.audit), &trail(&new.audit));
    let by =
        |settings: &Settings| settings.domain_by.map_or("none".to_owned(), |by| by.to_string());
    value("domain.by", &by(old), &by(new));
    let from = |settings: &Settings| {
        settings.users_from.as_ref().map_or("none".to_owned(), ToString::to_string)
    };
    value("users_from", &from(old), &from(new));
    value("privileges", &old.privileges, &new.privileges);
    changed
}

/// Returns changed values that only take effect at the next start.
fn fixed(old: &Settings, new: &Settings) -> Vec<Fixed> {
    let mut fixed = Vec::new();
    let mut fix = |key, now: String, asked: String| {
        if now != asked {
            fixed.push(Fixed { key, now, asked });
        }
    };
    fix("state", old.state.display().to_string(), new.state.display().to_string());
    let place = |settings: &Settings| match &settings.records {
        Some(ceph) => ceph.to_string(),
        None => "the state folder".to_owned(),
    };
    fix("records", place(old), place(new));
    fix("nfs.lease", config::Span(old.lease).to_string(), config::Span(new.lease).to_string());
    fix(
        "nfs.courtesy",
        config::Span(old.courtesy).to_string(),
        config::Span(new.courtesy).to_string(),
    );
    fix("recall", config::Span(old.recall).to_string(), config::Span(new.recall).to_string());
    fix(
        "rdma_spin",
        config::Spin(old.rdma_spin).to_string(),
        config::Spin(new.rdma_spin).to_string(),
    );
    fix(
        "rdma.relaxed_ordering",
        old.rdma_relaxed_ordering.to_string(),
        new.rdma_relaxed_ordering.to_string(),
    );
    let domain_of = |domain: &Option<config::Domain>| {
        domain.as_ref().map_or("none".to_owned(), |d| format!("`{d}`"))
    };
    fix("nfs.domain", domain_of(&old.domain), domain_of(&new.domain));
    fix("names", old.names.to_string(), new.names.to_string());
    fix("nfs.portmap", old.portmap.to_string(), new.portmap.to_string());
    fix("admin", old.admin.to_string(), new.admin.to_string());
    let ranges = |list: &[config::Cidr]| match list {
        [] => "nobody".to_owned(),
        some => some.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    };
    fix("admin_clients", ranges(&old.admin_clients), ranges(&new.admin_clients));
    fix("log.format", old.log_format.to_string(), new.log_format.to_string());
    fixed
}

impl Running {
    /// Applies these settings.
    pub async fn reload(&mut self, new: Settings) -> Result<Changes, Refusal> {
        let sound = self.reader().read(new).await?;
        self.take(sound).await
    }

    /// Returns a reader that checks other settings concurrently. No reload may happen until it is done.
    pub(crate) fn reader(&self) -> Reader {
        Reader {
            settings: self.settings.clone(),
            shares: self.shares.clone(),
            book: self.servers.book.clone(),
            portmap_asked: self.portmap_asked,
            lookup: self.shared.lookup.clone(),
            connections: self.shared.connections.clone(),
        }
    }

    /// Applies settings whose checks are complete.
    pub(crate) async fn take(&mut self, sound: Sound) -> Result<Changes, Refusal> {
        let Sound { settings: new, shares, users, tls, directory, values } = sound;
        let with_smb = smb::is_wanted(&new, !users.is_empty());
        let listening = self.listeners.list();
        let step = self.listeners.prepare(&new, with_smb).await.map_err(|why| {
            self.shared.lookup.settle(&self.settings);
            Refusal::Failed(why)
        })?;
        // No step fails after this point.
        let difference = self.shares.difference(&shares);
        let (before, after) = (self.servers.book.names(), users.names());
        let only = |a: &BTreeSet<String>, b: &BTreeSet<String>| a.difference(b).cloned().collect();
        let mut changes = Changes {
            shares_added: difference.added,
            shares_removed: difference.removed,
            shares_changed: difference.changed,
            users_added: only(&after, &before),
            users_removed: only(&before, &after),
            access_lost: lost_access::lost(&self.settings, &new),
            values,
            ..Changes::default()
        };
        let audit = new.audit.clone();
        // The audit trail must exist before the first share uses it and until no share does.
        if audit.is_some() {
            self.follow_trail(audit.clone()).await;
        }
        self.put_in_force(&new, &shares, users, directory);
        if audit.is_none() {
            self.follow_trail(audit).await;
        }
        self.shared.lookup.settle(&new);
        self.shared.tls.set(tls);
        let moved = self.listeners.commit(&new, with_smb, step, &listening).await;
        let shown = |list: Vec<(Service, std::net::SocketAddr)>| {
            list.into_iter().map(|(service, at)| format!("{}={at}", service.short())).collect()
        };
        (changes.opened, changes.closed) = (shown(moved.opened), shown(moved.closed));
        let gone = self.shares.gone_from_nfs(&shares);
        self.settings = new;
        self.shares = shares;
        self.note_addresses();
        let served = self.listeners.served();
        let nfs = &self.servers.nfs;
        // A failure of only the UDP sockets does not undo the changes made so far.
        if let Err(error) = self.mapper.follow(&self.settings, &self.shared, nfs, served).await {
            tracing::error!(%error, "the UDP sockets of NFSv3 could not be changed");
        }
        self.judge(&gone, &mut changes).await;
        self.limit_sizes().await;
        Ok(changes)
    }

    /// Sets the sizes of the shares in force on a blocking thread. A failure cannot refuse the reload, whose check has found that
    /// the sizes can be set.
    async fn limit_sizes(&self) {
        let shares = self.shares.clone();
        let limited = tokio::task::spawn_blocking(move || shares.limit_sizes()).await;
        if let Err(why) = limited.unwrap_or_else(|e| Err(e.to_string())) {
            tracing::error!("not every share has its size; the next reload sets it again: {why}");
        }
    }

    /// Changes to another audit trail on a blocking thread, since the old one may still write.
    async fn follow_trail(&self, new: Option<config::Audit>) {
        let (old, book) = (self.settings.audit.clone(), self.servers.book.clone());
        let follow = move || trail::follow(old.as_ref(), new.as_ref(), &book);
        if let Err(error) = tokio::task::spawn_blocking(follow).await {
            tracing::error!(%error, "the audit trail stays as it was");
        }
    }

    /// Replaces all settings that requests use.
    fn put_in_force(
        &self,
        new: &Settings,
        shares: &ShareSet,
        users: Next,
        directory: Option<Arc<Ldap>>,
    ) {
        let added: Vec<Arc<Share>> = shares.gone(&self.shares);
        self.servers.namespace.set_shares(shares.shares());
        let others = self.servers.book.set(users);
        self.servers.book.follow_directory(directory);
        self.servers.book.set_password_least(new.smb.password_length);
        self.servers.smb.set_settings(smb::smb_settings(new, &self.run, shares.holders()));
        let of_domain = |s: &Settings| (s.kerberos.clone(), s.domain_by);
        if of_domain(new) != of_domain(&self.settings) {
            self.servers.book.follow_domain(new);
            let book = &self.servers.book;
            let accept = new.kerberos.as_ref().map(|k| tickets(k, book.clone()));
            self.servers.nfs.core().gss.set(accept);
        } else if others {
            self.servers.nfs.core().gss.forget();
        }
        self.shared.admission.set(ConnectionLimits::of(new, Descriptors::raised(new)));
        self.servers.limit(new);
        self.shared.payload.set_limits(payload_limits(new));
        self.shared.payload.set_share(payload_share(new));
        let (all, of_client) = heap_limits(new);
        self.shared.payload.set_heap(all, of_client);
        self.shared.recvs.set_limits(recv_limits(new));
        self.shared.recvs.set_share(recv_share(new));
        self.shared.rdma_recvs.set_limits(rdma_recv_limits(new));
        self.shared.rdma_receives.set_most(rdma_parts_most(new));
        self.shared.rdma_first.set_most(rdma_first_most(new));
        self.stuck.watch(shares.folders());
        logs::set(&new.log);
        tokio::spawn(sweep(added));
        let (namespace, before, now) =
            (self.servers.namespace.clone(), self.shares.clone(), shares.clone());
        tokio::spawn(async move { now.announce_links(&before, &namespace).await });
    }

    /// Removes from existing clients the access that would not be granted again.
    async fn judge(&self, gone_from_nfs: &[Arc<Share>], changes: &mut Changes) {
        let taken = self.servers.smb.reauthorize().await;
        changes.sessions_ended = taken.sessions;
        changes.trees_ended = taken.trees;
        changes.opens_ended = taken.opens;
        for share in gone_from_nfs {
            let root = share.backend.root();
            changes.opens_ended += self.servers.nfs.v4().clients.leave_share(&*root);
            changes.opens_ended += self.servers.nfs.nlm().leave_share(&*root);
        }
        let served = self.listeners.served();
        let dismissed = self.shared.connections.dismiss(|protocol, info| {
            !served.covers(Service::of(protocol, info.transport.is_rdma()), info.local)
        });
        changes.connections_ended = dismissed.count();
    }
}

/// Settings in force, for a comparison.
pub(crate) struct Reader {
    settings: Settings,
    shares: ShareSet,
    book: Arc<UserDb>,
    /// Value of `portmap` at the start; the settings have what it resolved to.
    portmap_asked: config::Portmap,
    lookup: Arc<Lookup>,
    connections: Arc<Connections>,
}

/// Valid settings, with their shares open.
pub(crate) struct Sound {
    settings: Settings,
    shares: ShareSet,
    users: Next,
    tls: Option<Certificate>,
    /// The directory of users.
    directory: Option<Arc<Ldap>>,
    /// Old and new values of the other keys.
    values: Vec<String>,
}

impl Reader {
    /// Queries the file system and then the name service for all that these settings need. Each share has a few seconds, and
    /// client names the time that [`Lookup::prepare`] waits.
    pub(crate) async fn read(self, mut new: Settings) -> Result<Sound, Refusal> {
        if new.portmap == self.portmap_asked {
            // Keep the result of the start.
            new.portmap = self.settings.portmap;
        }
        let (values, fixed) = values(&self.settings, &new);
        if !fixed.is_empty() {
            return Err(Refusal::Fixed(fixed));
        }
        let (book, shares) = (self.book, self.shares);
        let read = move || {
            let users = book.next(&new.users)?;
            let directory = ldap::of(&new)?;
            let shares = shares.next(&new, &|name| users.known(name))?;
            trail::prove_required(new.audit.as_ref())?;
            let tls = new.tls.as_ref().map(Certificate::load_in_time).transpose()?;
            Ok(Sound { settings: new, shares, users, tls, directory, values })
        };
        let done = tokio::task::spawn_blocking(read).await;
        let sound = done.unwrap_or_else(|e| Err(e.to_string())).map_err(Refusal::Failed)?;
        self.lookup.prepare(&sound.settings, || self.connections.peers()).await;
        Ok(sound)
    }
}
