//! Builds the SMB server from the configuration.

use std::sync::Arc;

use config::{
    Compression, DirectoryLeases, Encryption, KerberosMap, Ntlm, RdmaTransforms, Settings, Signing,
};
use smbd_core::privileges::Holders;
use smbd_core::server::Server;
use smbd_core::server_state::ServerState;
use smbd_core::settings::{
    Encryption as Sealing, Kerberos, Map, Settings as SmbSettings, ShareSettings, Symlinks,
};
use smbd_core::time_machine::TimeMachine;
use vfs::namespace::Namespace;

use crate::boot::Run;
use crate::users::UserDb;
use crate::{domain, host_name};

pub fn server(
    settings: &Settings,
    (run, holders): (&Run, &Holders),
    namespace: Arc<Namespace>,
    book: Arc<UserDb>,
) -> Server {
    let core = ServerState::new(namespace, smb_settings(settings, run, holders), book);
    Server::new(core.with_store(run.store.clone()))
}

/// Returns whether SMB must be served: a share exists, and some user could log on (with a password, a ticket, or as a guest)
/// or the configuration requests SMB.
pub fn is_wanted(settings: &Settings, anybody: bool) -> bool {
    let mut shares = settings.by_smb().peekable();
    let elsewhere = settings.kerberos.is_some() || settings.users_from.is_some();
    let anybody = anybody || elsewhere || domain::has_service(settings);
    shares.peek().is_some() && (anybody || settings.smb.asked_for || shares.any(|s| s.guest))
}

fn symlinks(share: &config::Share) -> Symlinks {
    match share.symlinks {
        config::Symlinks::Client => Symlinks::Client,
        config::Symlinks::Server => Symlinks::Server(share.source.folders()),
    }
}

/// Converts the configuration to the server's settings.
pub fn smb_settings(settings: &Settings, run: &Run, holders: &Holders) -> SmbSettings {
    let share = |s: &config::Share| {
        let settings = ShareSettings {
            encrypt: s.encrypt,
            compress: s.compress,
            guest: s.guest,
            continuous: s.continuous_availability,
            comment: s.comment.clone(),
            symlinks: symlinks(s),
            time_machine: s.time_machine.map(|t| TimeMachine::of(t.size.map(|size| size.0))),
        };
        (s.name.clone(), settings)
    };
    SmbSettings {
        server_guid: run.server_guid,
        host: host_name::kernels(),
        signing_required: settings.smb.signing == Signing::Required,
        encryption: match settings.smb.encryption {
            Encryption::Off => Sealing::Off,
            Encryption::Offered => Sealing::Offered,
            Encryption::Required => Sealing::Required,
        },
        rdma_transforms: settings.smb.rdma_transforms == RdmaTransforms::On,
        directory_leases: settings.smb.directory_leases == DirectoryLeases::On,
        compression: settings.smb.compression == Compression::On,
        ntlm: settings.smb.ntlm == Ntlm::On,
        kerberos: settings.kerberos.as_ref().map(kerberos),
        opens_per_session: settings.limits.client_opens,
        model: settings.smb.model.to_string(),
        privileges: holders.clone(),
        shares: settings.by_smb().map(share).collect(),
        ..SmbSettings::default()
    }
}

/// Returns how tickets are accepted and mapped to users, for NFS too.
pub(crate) fn kerberos(kerberos: &config::Kerberos) -> Kerberos {
    Kerberos {
        keytab: kerberos.keytab.clone(),
        realm: kerberos.realm.as_ref().map(ToString::to_string),
        map: match kerberos.map {
            KerberosMap::Names => Map::Names,
            KerberosMap::Rid => Map::Rid { base: kerberos.rid_base },
            KerberosMap::Winbind | KerberosMap::Sssd => Map::Engine,
        },
    }
}
