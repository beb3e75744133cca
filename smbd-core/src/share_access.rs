//! Access of a user to a share: used by TREE_CONNECT, by the review of a changed configuration and by the list of shares.

use std::net::IpAddr;
use std::sync::Arc;

use vfs::Cred;
use vfs::namespace::{By, Entered, Refusal, Share};

use crate::session::{Kind, User};
use crate::settings::ShareSettings;

/// Full access (MS-SMB2 section 2.2.13.1).
const FULL_ACCESS: u32 = 0x001f_01ff;
/// Every right that changes no data, and the right to read security descriptors.
pub(crate) const READ_ACCESS: u32 = 0x0012_00a9;

/// Why a user may not connect to a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denial {
    /// The share admits no guests or anonymous users.
    Guest,
    /// The share requires encryption, and the client does not support it.
    Clear,
    /// A rule of the share refuses the user.
    Rule(Refusal),
}

/// Returns the access of a user at this address to a share.
pub(crate) fn grant(
    share: &Arc<Share>,
    settings: &ShareSettings,
    user: &User,
    ip: IpAddr,
    can_encrypt: bool,
) -> Result<Entered, Denial> {
    // Guests have no folder of their own in a share of homes. The Guest account of a domain has a password, and is a guest as well.
    let is_guest = user.kind != Kind::User || user.cred.token.is_guest_account();
    if is_guest && (!settings.guest || share.rules.homes) {
        return Err(Denial::Guest);
    }
    share.client(ip, By::Smb).map_err(Denial::Rule)?;
    // A user without a password has no key, or a publicly known one.
    if settings.encrypt && (!can_encrypt || user.kind != Kind::User) {
        return Err(Denial::Clear);
    }
    share.enter_smb(Some(ip), &user.cred).map_err(Denial::Rule)
}

/// Returns the most access that opens in this share may get (an access mask).
pub(crate) fn most(share: &Share) -> u32 {
    if share.read_only { READ_ACCESS } else { FULL_ACCESS }
}

/// Returns whether access that was granted to a user (an access mask) would be granted again, to the same identity. `now` is the
/// access that it would get now, and the identity.
pub(crate) fn is_within(granted: u32, cred: &Cred, now: (u32, &Cred)) -> bool {
    granted & FULL_ACCESS & !now.0 == 0 && cred.is_same(now.1)
}

/// Returns whether a client at this address may know of the share.
pub(crate) fn is_told(share: &Share, ip: IpAddr) -> bool {
    share.client(ip, By::Smb).is_ok()
}

#[cfg(test)]
mod tests {
    use vfs::{Domain, Token};

    use super::*;
    use crate::harness::Harness;
    use crate::session::LogonWay;

    /// The Guest account of a domain proves a password, and still is a guest.
    #[test]
    fn guests_of_every_kind_need_a_guest_share() {
        let harness = Harness::new();
        let share = harness.core.namespace.share_named(b"data").unwrap();
        let domain = Domain::by_service();
        let token = |rid: u32| {
            let sid = |rid: u32| format!("S-1-5-21-1-2-3-{rid}").parse().unwrap();
            Token::of_ticket(&domain, sid(rid), [sid(514)])
        };
        let account = Token::of_account(Some(&domain));
        for (kind, token, needs_guest) in [
            (Kind::User, account.clone(), false),
            (Kind::User, token(1103), false),
            (Kind::User, token(501), true),
            (Kind::Guest, account.clone(), true),
            (Kind::Anonymous, account, true),
        ] {
            let cred = Cred { uid: 3001, gid: 3001, groups: [].into(), token };
            let way = LogonWay::Domain;
            let user = User { name: "LAB\\one".into(), kind, cred, rid: 1, way };
            for guest in [false, true] {
                let settings = ShareSettings { guest, ..ShareSettings::default() };
                let told = grant(&share, &settings, &user, [127, 0, 0, 1].into(), true);
                let is_refused = told.err() == Some(Denial::Guest);
                assert_eq!(is_refused, needs_guest && !guest, "{:?} {guest}", user.cred.token);
            }
        }
    }
}
