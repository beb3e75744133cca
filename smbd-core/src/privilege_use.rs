//! Use of privileges by one request.
//!
//! *Operation.* A request that asks for more than a list grants uses a privilege of its user: backup and restore only with
//! FILE_OPEN_FOR_BACKUP_INTENT (MS-FSA section 2.1.5.1), the others for the right that they are about. The rights become a
//! [`Grant`](vfs::authority::Grant) of the open, so that the process's own rights serve single calls on that file. Each use is
//! recorded in the audit trail.
//!
//! *Errors.* [`Status::AUDIT_FAILED`] if the trail is required and cannot be written.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, Ordering};

use audit::{Event, FileEvent, Permit};
use mutex::locked;
use vfs::audited::{Acting, Actor};
use vfs::namespace::Share;

use crate::dtyp::mask;
use crate::privileges::Privileges;
use crate::request_context::RequestContext;
use crate::session::Kind;
use crate::status::Status;

/// The privileges that one request may use, and those that it has used.
pub(crate) struct Asked {
    may: Privileges,
    used: AtomicU8,
    permit: Mutex<Option<Permit>>,
}

impl Asked {
    /// Returns the privileges of the session's user for this request, without those in `withheld`.
    pub(crate) fn by(cx: &RequestContext, withheld: Privileges) -> Result<Self, Status> {
        let held = held(cx)?.without(withheld);
        // A use cannot be taken back if its record fails, so reserve room for the record first.
        let permit = match held.is_none() {
            true => None,
            false => Some(audit::permit().map_err(|_| Status::AUDIT_FAILED)?),
        };
        Ok(Self { may: held, used: AtomicU8::default(), permit: Mutex::new(permit) })
    }

    /// Returns no privileges.
    pub(crate) fn nothing() -> Self {
        Self { may: Privileges::NONE, used: AtomicU8::default(), permit: Mutex::default() }
    }

    /// Checks whether the request may use any of these privileges.
    pub(crate) fn may(&self, some: Privileges) -> bool {
        self.may.has(some)
    }

    /// Checks whether a privilege of the request gives ACCESS_SYSTEM_SECURITY.
    pub(crate) fn may_see_sacl(&self) -> bool {
        self.may.give(mask::ACCESS_SYSTEM_SECURITY, false).0 != 0
    }

    /// Uses privileges for the rights that are missing, and returns the rights that they give.
    pub(crate) fn give(&self, missing: u32, is_maximum: bool) -> u32 {
        let (given, used) = self.may.give(missing, is_maximum);
        self.note(used);
        given
    }

    /// Uses a privilege for more than rights of one file. Returns whether the request may use it.
    pub(crate) fn uses(&self, privilege: Privileges) -> bool {
        let may = self.may.has(privilege);
        if may {
            self.note(privilege);
        }
        may
    }

    fn note(&self, used: Privileges) {
        self.used.fetch_or(used.0, Ordering::Relaxed);
    }

    /// Records the used privileges with the file's path and the result.
    pub(crate) async fn record(
        &self,
        cx: &RequestContext,
        share: &Share,
        path: impl AsyncFnOnce() -> Vec<u8>,
        status: Status,
    ) {
        let used = Privileges(self.used.load(Ordering::Relaxed));
        let permit = locked(&self.permit).take();
        let Some(permit) = permit.filter(|permit| !used.is_none() && permit.is_on()) else {
            return;
        };
        let path = audit::RecordText::of(&path().await);
        let Acting { peer, protocol, party, .. } = cx.acting();
        let result = match status {
            Status::SUCCESS => "ok",
            Status::ACCESS_DENIED => "denied",
            _ => "failed",
        };
        let share = share.name.as_str().into();
        let of = FileEvent { peer, protocol, party, share, path, result };
        permit.record(|| Event::Privilege { of, privileges: used.names() });
    }
}

/// Returns the privileges of the session's user. Guests and anonymous users have none.
fn held(cx: &RequestContext) -> Result<Privileges, Status> {
    let settings = cx.server.settings();
    if settings.privileges.is_empty() {
        return Ok(Privileges::NONE);
    }
    let user = cx.session()?.user().filter(|user| user.kind == Kind::User);
    Ok(user.map_or(Privileges::NONE, |user| settings.privileges.of(&user.cred)))
}
