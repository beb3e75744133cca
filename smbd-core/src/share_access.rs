//! What a user is granted in a share, as a newcomer's TREE_CONNECT, the review of a changed configuration and the list of shares
//! all ask it.

use std::net::IpAddr;
use std::sync::Arc;

use vfs::Cred;
use vfs::namespace::{By, Entered, Refusal, Share};

use crate::session::{Kind, User};
use crate::settings::ShareSettings;

/// Everything (MS-SMB2 section 2.2.13.1).
const FULL_ACCESS: u32 = 0x001f_01ff;
/// Everything that changes nothing, and to read security descriptors.
pub(crate) const READ_ACCESS: u32 = 0x0012_00a9;

/// Why a user is not connected to a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denial {
    /// The share is for users alone.
    Guest,
    /// The share's data is encrypted, and the client cannot do that.
    Clear,
    /// By the share's rules.
    Rule(Refusal),
}

/// What a user who comes from this address is granted in a share.
pub(crate) fn grant(
    share: &Arc<Share>,
    settings: &ShareSettings,
    user: &User,
    ip: IpAddr,
    can_encrypt: bool,
) -> Result<Entered, Denial> {
    // Guests have no folder of their own.
    if user.kind != Kind::User && (!settings.guest || share.rules.homes) {
        return Err(Denial::Guest);
    }
    share.client(ip, By::Smb).map_err(Denial::Rule)?;
    // Whoever has no password has no key, or one that is known to all.
    if settings.encrypt && (!can_encrypt || user.kind != Kind::User) {
        return Err(Denial::Clear);
    }
    share.enter_smb(Some(ip), &user.cred).map_err(Denial::Rule)
}

/// Most that opens in this share may ask for (an access mask).
pub(crate) fn most(share: &Share) -> u32 {
    if share.read_only { READ_ACCESS } else { FULL_ACCESS }
}

/// What was granted to a user (an access mask) it would be granted again, and acts as the one it acted as. `now` is the most that
/// it would be granted, and as whom it would act.
pub(crate) fn is_within(granted: u32, cred: &Cred, now: (u32, &Cred)) -> bool {
    granted & FULL_ACCESS & !now.0 == 0 && cred.is_same(now.1)
}

/// A client of this address may know of the share.
pub(crate) fn is_told(share: &Share, ip: IpAddr) -> bool {
    share.client(ip, By::Smb).is_ok()
}
