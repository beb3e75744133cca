//! What a stateid allows READ, WRITE, SETATTR of the size and the 4.2 data operations to do.

use state::Who;
use vfs::Cred;

use super::compound::{Compound, Located};
use super::status::Status;
use super::wire::Stateid;

/// What an operation wants to do with the data of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoAccess {
    /// READ, SEEK, READ_PLUS, the source of COPY and CLONE.
    Read,
    /// WRITE, ALLOCATE, DEALLOCATE, SETATTR of the size, the target of COPY and CLONE.
    Write,
}

/// The answer: the operation may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoRight {
    /// Who acts: for [`vfs::namespace::Namespace::by`].
    pub who: Option<Who>,
    /// OPEN checked the permission already; the node is not asked again.
    pub open_checked: bool,
}

impl IoRight {
    /// The credential for `read` and `write` of [`vfs::namespace::Door`]: none when an OPEN was checked.
    pub fn cred<'a>(&self, at: &'a Located) -> Option<&'a Cred> {
        if self.open_checked { None } else { Some(&at.cred) }
    }
}

/// Checks a stateid of a data operation on `at` (RFC 8881 sections 8.2.5 and 9.1.2).
pub async fn check_io(
    cx: &Compound<'_>,
    _at: &Located,
    stateid: Stateid,
    _access: IoAccess,
) -> Result<IoRight, Status> {
    match cx.stateid(stateid)? {
        Stateid::ANONYMOUS | Stateid::READ_BYPASS => Ok(IoRight { who: None, open_checked: false }),
        _ => Err(Status::BadStateId),
    }
}
