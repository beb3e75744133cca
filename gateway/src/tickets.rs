//! Kerberos tickets over NFS: accepted with the keytab of SMB, and mapped to the users of SMB.

use std::sync::Arc;

use gss_sys::Established;
use nfsrdma::rpc::gss::{Accept, Kerberos, NoUser, Principals};
use smb_auth::ticket::Why;
use smbd_core::settings;
use vfs::Cred;

use crate::smb;
use crate::users::UserDb;

/// Returns the acceptor of tickets from NFS clients.
pub(crate) fn tickets(kerberos: &config::Kerberos, book: Arc<UserDb>) -> Arc<dyn Accept> {
    let users = Ours { kerberos: smb::kerberos(kerberos), book };
    Arc::new(Kerberos::new(&kerberos.keytab, Arc::new(users)))
}

/// Maps principals to the users of SMB.
struct Ours {
    kerberos: settings::Kerberos,
    book: Arc<UserDb>,
}

impl Principals for Ours {
    fn cred(&self, who: &Established) -> Result<Cred, NoUser> {
        let found = smbd_core::user_of(&self.kerberos, who, &*self.book);
        found.map(|user| user.cred).map_err(|(why, detail)| {
            let words = format!("{}: {detail}", why.reason());
            // Entries that deny a user of the domain, or its groups, would not apply to the anonymous user.
            let is_of_domain = matches!(self.kerberos.map, settings::Map::Engine);
            match why {
                Why::NameService | Why::Domain => NoUser::NotKnown(words),
                _ if is_of_domain => NoUser::NotKnown(words),
                _ => NoUser::Anonymous(words),
            }
        })
    }
}
