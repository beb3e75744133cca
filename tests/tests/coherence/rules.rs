//! The rule behind each cell, and its source.

use crate::kinds::{H, Kind, W};

/// The first client's holding, as rules distinguish them.
enum First {
    Caches(u32, By),
    Shares,
    Denies,
    Locks,
    Nothing,
}

enum By {
    Lease,
    Oplock,
    Delegation,
}

fn first(kind: Kind) -> First {
    match kind {
        Kind::Lease(s) => First::Caches(s, By::Lease),
        Kind::Oplock(_) => First::Caches(kind.caches(), By::Oplock),
        Kind::ReadDelegation | Kind::WriteDelegation => {
            First::Caches(kind.caches(), By::Delegation)
        }
        Kind::ShareDeny => First::Shares,
        Kind::V4Deny => First::Denies,
        Kind::RangeLock | Kind::V4Lock | Kind::NlmLock => First::Locks,
        _ => First::Nothing,
    }
}

/// The rule of a cell and its source.
pub(crate) fn rule(a: Kind, b: Kind) -> (&'static str, &'static str) {
    if b.is_local() {
        return local(a, b);
    }
    match first(a) {
        First::Nothing => nothing(b),
        First::Caches(rights, by) => caching(rights, &by, b),
        First::Shares => sharing(b),
        First::Denies => denying(b),
        First::Locks if a == Kind::RangeLock => mandatory(b),
        First::Locks => advisory(b),
    }
}

fn local(a: Kind, b: Kind) -> (&'static str, &'static str) {
    match (a.caches(), b) {
        (0, _) => (
            "local processes bypass the gateway: share modes and locks of clients do not bind them",
            "Headgate's rule; MS-FSA has no such access",
        ),
        (c, Kind::LocalRead) if c & W != 0 => (
            "a local process sees cached data once the client sends it",
            "Headgate's rule; close-to-open, as RFC 8881 section 10.3.1 has it for clients",
        ),
        (c, _) if c & W != 0 => (
            "the kernel reports the change; the client then writes its cached data over it",
            "Headgate's rule, by fanotify(7): a local process that shares a file with clients must use a mount",
        ),
        (_, Kind::LocalRead) => ("readers do not disturb each other", "RFC 8881 section 10.4"),
        _ => (
            "the kernel reports the change, and clients that cache the file for reading are notified",
            "Headgate's rule, by fanotify(7)",
        ),
    }
}

fn nothing(b: Kind) -> (&'static str, &'static str) {
    match b {
        Kind::WriteDelegation => (
            "no other client has the file open, so the delegation is granted",
            "RFC 8881 section 10.4",
        ),
        Kind::ReadDelegation => (
            "no client writes or denies reading, so the delegation is granted",
            "RFC 8881 section 10.4",
        ),
        Kind::Lease(_) | Kind::Oplock(_) => (
            "no other client has the file open, so all of it is granted",
            "MS-FSA section 2.1.5.18",
        ),
        _ => ("an access without an open leaves no state", "RFC 1813 section 1.1"),
    }
}

fn caching(rights: u32, by: &By, b: Kind) -> (&'static str, &'static str) {
    let source = match by {
        By::Delegation => "RFC 8881 section 10.4",
        _ => "MS-FSA section 2.1.4.12",
    };
    match b {
        Kind::ShareDeny | Kind::V4Deny if rights & H != 0 => (
            "an open that conflicts with a share mode first breaks cached handles (OPEN_BREAK_H); then share modes decide",
            "MS-FSA section 2.1.5.1.2, RFC 8881 section 10.4",
        ),
        Kind::ShareDeny | Kind::V4Deny => (
            "the first has the file open: the second must not deny the access that the first uses",
            "MS-FSA section 2.1.5.1.2, RFC 8881 section 9.7",
        ),
        Kind::V3Write | Kind::RangeLock | Kind::V4Lock | Kind::NlmLock => {
            ("a write or a lock ends caching of any kind", source)
        }
        _ if rights & W != 0 => {
            ("another open or read ends WRITE caching, after the cached data is sent", source)
        }
        Kind::WriteDelegation => (
            "an open for writing ends caching that conflicts with it, and gets no delegation, because the file has another open",
            "RFC 8881 section 10.4, MS-FSA section 2.1.4.12",
        ),
        Kind::Lease(_) | Kind::Oplock(_) => (
            "readers share READ caching; WRITE caching is exclusive; oplocks share READ only",
            "MS-FSA section 2.1.5.18",
        ),
        _ => ("READ and HANDLE caching coexist with readers", source),
    }
}

fn sharing(b: Kind) -> (&'static str, &'static str) {
    match b {
        Kind::V3Read | Kind::V3Write => (
            "an access without an open obeys share modes like one with an open",
            "MS-FSA section 2.1.5.1.2; RFC 1813 knows no share modes, so the answer is NFS3ERR_ACCES",
        ),
        _ => (
            "an open must not use access that another open denies, nor deny access that it uses",
            "MS-FSA section 2.1.5.1.2, RFC 8881 section 9.7",
        ),
    }
}

fn denying(b: Kind) -> (&'static str, &'static str) {
    match b {
        Kind::V3Read | Kind::V3Write => {
            ("an access without an open obeys share reservations", "RFC 8881 section 9.7")
        }
        _ => (
            "an open must not use access that another open denies, nor deny access that it uses",
            "RFC 8881 section 9.7, MS-FSA section 2.1.5.1.2",
        ),
    }
}

fn mandatory(b: Kind) -> (&'static str, &'static str) {
    match b {
        Kind::RangeLock | Kind::V4Lock | Kind::NlmLock => {
            ("exclusive locks exclude each other, of whatever protocol", "MS-FSA section 2.1.5.8")
        }
        Kind::ShareDeny | Kind::V4Deny => (
            "the lock holder has the file open for reading and writing, which the second denies",
            "MS-FSA section 2.1.5.1.2, RFC 8881 section 9.7",
        ),
        Kind::ReadDelegation | Kind::WriteDelegation => (
            "no delegation while another client has the file open for writing; reads of locked bytes are refused",
            "RFC 8881 sections 10.4 and 9.1.2",
        ),
        Kind::Lease(_) | Kind::Oplock(_) => (
            "a file with locked bytes is not cached; reads of the locked bytes are refused",
            "MS-FSA sections 2.1.5.18 and 2.1.4.10",
        ),
        _ => ("an SMB lock binds reads and writes of all clients", "MS-FSA section 2.1.4.10"),
    }
}

fn advisory(b: Kind) -> (&'static str, &'static str) {
    match b {
        Kind::RangeLock | Kind::V4Lock | Kind::NlmLock => {
            ("exclusive locks exclude each other, of whatever protocol", "RFC 8881 section 9.1")
        }
        Kind::ShareDeny | Kind::V4Deny => (
            "the lock holder has the file open for reading and writing, which the second denies",
            "MS-FSA section 2.1.5.1.2, RFC 8881 section 9.7",
        ),
        Kind::ReadDelegation | Kind::WriteDelegation => (
            "no delegation while another client has the file open for writing",
            "RFC 8881 section 10.4",
        ),
        Kind::Lease(_) | Kind::Oplock(_) => (
            "a file with locked bytes is not cached; NFS locks bind SMB clients, for which every lock is mandatory",
            "MS-FSA sections 2.1.5.18 and 2.1.4.10",
        ),
        _ => ("locks are advisory among NFS clients", "RFC 8881 section 9.1.2"),
    }
}
