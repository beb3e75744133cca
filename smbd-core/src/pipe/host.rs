//! What the interfaces tell, as this server knows it.

use std::sync::Arc;

use vfs::accounts::Directory;

use super::Host;
use crate::dtyp::Sid;
use crate::server::Core;

/// The server, asked by one user.
pub(crate) struct CoreHost {
    pub(crate) core: Arc<Core>,
    pub(crate) caller: String,
}

/// 100 ns from 1601 to 1970.
const UNIX_EPOCH: u64 = 116_444_736_000_000_000;

impl Host for CoreHost {
    fn computer(&self) -> String {
        crate::auth::Identity::standalone(&self.core.settings().host).computer
    }

    fn shares(&self) -> Vec<(String, String)> {
        let shares = self.core.namespace.shares();
        shares
            .iter()
            .filter(|s| s.protocols.smb())
            .map(|s| (s.name.clone(), self.core.settings().share(&s.name).comment))
            .collect()
    }

    fn machine(&self) -> Sid {
        machine(&self.core.settings().server_guid)
    }

    fn account(&self, name: &str) -> Option<(String, u32)> {
        self.core.users.find(name).map(|a| (a.name, a.cred.uid))
    }

    fn account_of_uid(&self, uid: u32) -> Option<String> {
        self.core.users.by_uid(uid).map(|a| a.name)
    }

    fn others(&self) -> &dyn Directory {
        self.core.users.others()
    }

    fn caller(&self) -> String {
        self.caller.clone()
    }

    fn times(&self) -> (u64, u64) {
        let (now, began) = (self.core.filetime(), self.core.started());
        (now.saturating_sub(UNIX_EPOCH) / 10_000, now.saturating_sub(began) / 10_000)
    }

    fn sessions(&self) -> u32 {
        u32::try_from(self.core.sessions.count()).unwrap_or(u32::MAX)
    }
}

/// S-1-5-21 with three numbers that are as lasting and as much our own as the server's GUID.
fn machine(guid: &[u8; 16]) -> Sid {
    let (words, _) = guid.as_chunks::<4>();
    let word = |n: usize| words.get(n).map_or(0, |w| u32::from_le_bytes(*w));
    // Invariant: an authority of one digit and four numbers are an identifier.
    Sid::new(5, &[21, word(0), word(1) ^ word(3), word(2)]).unwrap_or_else(Sid::everyone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::Kit;
    use vfs::namespace::{Protocols, Share};

    #[test]
    fn a_share_of_nfs_is_not_in_the_list() {
        let core = Kit::new().core;
        let host = CoreHost { core: core.clone(), caller: "alice".into() };
        assert_eq!(host.shares(), [("data".to_owned(), String::new())]);
        let data = core.namespace.shares()[0].clone();
        let share = Share {
            name: data.name.clone(),
            backend: data.backend.clone(),
            clients: None,
            rules: data.rules.clone(),
            protocols: Protocols::Nfs,
            ..*data
        };
        core.namespace.set_shares([Arc::new(share)].into());
        assert_eq!(host.shares(), []);
    }
}
