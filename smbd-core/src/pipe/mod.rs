//! Named pipes of `IPC$`: remote procedure calls (MS-RPCE over SMB) of browsers and administration tools.
//!
//! *Operation.* [`open`] opens a pipe by name. Written bytes are joined to messages of connection-oriented RPC ([`rpc`]); one of
//! the interfaces ([`srvsvc`], [`wkssvc`], [`lsarpc`], [`samr`]) answers each complete call at once, and the answer waits for
//! reads, which are served in order of arrival ([`Pipe::turn`]). Interfaces get their data from a [`Host`], which may block: this
//! delays only calls, not reads, queries or the close of the pipe. This module does no network access.
//!
//! *Memory.* Incomplete calls and unread answers are both bounded ([`UNREAD_MAX`], [`rpc::STUB_MAX`]) and count, together with
//! handles, as a [`Part`] of the quota for pipes of the client's address: a pipe beyond the quota is disconnected. The space for an
//! answer is reserved before it is made ([`Interface::price`]).
//!
//! *Errors.* A malformed call, an operation that is not offered, and an answer without memory each get a fault. A client that
//! breaks the framing has its pipe disconnected.

pub(crate) mod lsarpc;
pub(crate) mod rpc;
pub(crate) mod samr;
pub(crate) mod srvsvc;
pub(crate) mod wkssvc;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use vfs::accounts::Directory;
use vfs::{Cred, Domain};

use crate::auth::password::Change;
use crate::domain_engine::Engine;
use crate::dtyp::Sid;
use crate::parts::Part;
use crate::status::Status;
use mutex::locked;
pub use rpc::Guard;
use rpc::{Association, Fault};
use samr::handles::Handles;

/// Bytes of unread answers; beyond this no call is answered.
pub const UNREAD_MAX: usize = 1 << 20;

/// Bytes reserved for an answer about one object.
const PRICE_MIN: usize = 8 << 10;

/// A password that stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotChanged {
    pub status: Status,
    /// The rule that the new password breaks; 0 if that is not the reason.
    pub reason: u32,
}

/// Data about the server for the interfaces.
pub trait Host: Guard + Send + Sync {
    /// NetBIOS name of the machine.
    fn computer(&self) -> String;
    /// Returns the names and comments of the shares that the caller may see, without `IPC$`.
    fn shares(&self) -> Vec<(String, String)>;
    /// Returns the bytes of names and comments of all shares, and the number of shares.
    fn shares_size(&self) -> (usize, usize);
    /// Returns the share of this name, ignoring case, even if it is in no list.
    fn share(&self, name: &str) -> Option<(String, String)> {
        self.shares().into_iter().find(|(known, _)| known.to_lowercase() == name.to_lowercase())
    }
    /// Returns whether the share of this name is on other servers.
    fn is_dfs_root(&self, _: &str) -> bool {
        false
    }
    /// Returns the security descriptor that the rules of the share of this name mean. `None` for guests and anonymous callers.
    fn share_descriptor(&self, _: &str) -> Option<Vec<u8>> {
        None
    }
    /// Returns the SID of the machine's own accounts: S-1-5-21 and three numbers.
    fn machine(&self) -> Sid;
    /// Returns the stored spelling of an account's name, and its uid.
    fn account(&self, name: &str) -> Option<(String, u32)>;
    /// Returns the account with this uid.
    fn account_of_uid(&self, uid: u32) -> Option<String>;
    /// Calls `each` with the name and the credentials of every account, in any order.
    fn each_account(&self, each: &mut dyn FnMut(&str, &Cred));
    /// Returns whether the caller has logged on with a user name, neither as a guest nor anonymously.
    fn knows_caller(&self) -> bool;
    /// Returns the domain whose tickets the server accepts.
    fn domain(&self) -> Option<Arc<Domain>> {
        None
    }
    /// Returns the service that knows the users of the domain, if there is one.
    fn engine(&self) -> Option<Arc<dyn Engine>> {
        None
    }
    /// Returns users and groups that are not accounts. May block.
    fn others(&self) -> &dyn Directory;
    /// Returns the name of the caller.
    fn caller(&self) -> String;
    /// Returns the time of day and the time since the start, in milliseconds.
    fn times(&self) -> (u64, u64);
    /// Returns the number of open sessions.
    fn sessions(&self) -> u32;
    /// Returns the fewest characters of a new password.
    fn password_length(&self) -> u16 {
        0
    }
    /// Gives the account of this name another password, if the client knows the present one. May block.
    fn change_password(&self, _name: &str, _change: &Change) -> Result<(), NotChanged> {
        Err(NotChanged { status: Status::ACCESS_DENIED, reason: 0 })
    }
}

/// The interfaces, one per pipe name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interface {
    Srvsvc,
    Wkssvc,
    Lsarpc,
    Samr,
}

impl Interface {
    fn named(name: &str) -> Option<Self> {
        let name = name.trim_start_matches('\\').to_ascii_lowercase();
        match name.strip_prefix("pipe\\").unwrap_or(&name) {
            "srvsvc" => Some(Self::Srvsvc),
            "wkssvc" => Some(Self::Wkssvc),
            // MS-LSAT section 2.1: under both names.
            "lsarpc" | "lsass" => Some(Self::Lsarpc),
            "samr" => Some(Self::Samr),
            _ => None,
        }
    }

    /// Returns the secondary address for the answer to a bind (C706 section 12.6.4.4).
    pub(crate) fn address(self) -> &'static [u8] {
        match self {
            Self::Srvsvc => b"\\PIPE\\srvsvc\0",
            Self::Wkssvc => b"\\PIPE\\wkssvc\0",
            // MS-SAMR section 2.1 uses another name for the same process.
            Self::Lsarpc | Self::Samr => b"\\PIPE\\lsass\0",
        }
    }

    /// Returns whether clients of the interface may authenticate once more, and guess passwords by that or by its calls.
    pub(crate) fn takes_passwords(self) -> bool {
        self == Self::Samr
    }

    /// Returns the interface's UUID and version.
    pub(crate) fn syntax(self) -> rpc::Syntax {
        match self {
            Self::Srvsvc => srvsvc::SYNTAX,
            Self::Wkssvc => wkssvc::SYNTAX,
            Self::Lsarpc => lsarpc::SYNTAX,
            Self::Samr => samr::SYNTAX,
        }
    }

    /// Runs one operation.
    pub(crate) fn call(
        self,
        host: &dyn Host,
        handles: &mut Handles,
        op: u16,
        stub: &[u8],
    ) -> Result<Vec<u8>, Fault> {
        match self {
            Self::Srvsvc => srvsvc::call(host, op, stub),
            Self::Wkssvc => wkssvc::call(host, op, stub),
            Self::Lsarpc => lsarpc::call(host, op, stub),
            Self::Samr => samr::call(host, handles, op, stub),
        }
    }

    /// Returns the most bytes that an answer takes while it is made: objects, results, and their fragments.
    pub(crate) fn price(self, host: &dyn Host, op: u16, stub: &[u8]) -> usize {
        match self {
            Self::Srvsvc => srvsvc::price(host, op),
            Self::Wkssvc => PRICE_MIN,
            Self::Lsarpc => lsarpc::price(stub),
            Self::Samr => samr::price(op, stub),
        }
    }
}

/// The result of a read.
#[derive(Debug, PartialEq, Eq)]
pub struct Piece {
    pub data: Vec<u8>,
    /// True if the message has more bytes: STATUS_BUFFER_OVERFLOW.
    pub more: bool,
}

pub struct Pipe {
    name: String,
    /// Held while a call is answered, possibly for long because the host may block: only for threads that may block.
    calls: Mutex<Calls>,
    /// Never held during a wait.
    answers: Mutex<Answers>,
    /// Queue of waiting reads, in order of arrival; the one at its head waits for [`Pipe::changed`].
    pub(crate) turn: tokio::sync::Mutex<()>,
    changed: tokio::sync::Notify,
    /// Set once its open has ended.
    closed: AtomicBool,
    /// `CompletionMode` is FILE_PIPE_COMPLETE_OPERATION: a read of an empty pipe fails at once (MS-FSCC section 2.4.37).
    fails_at_once: AtomicBool,
}

/// The state of a client's calls.
struct Calls {
    association: Association,
    handles: Handles,
}

impl Calls {
    /// Returns the bytes of unfinished calls and of handles.
    fn bytes(&self) -> usize {
        self.association.begun() + self.handles.bytes()
    }

    fn forget(&mut self) {
        self.association.forget();
        self.handles.forget();
    }
}

/// Answers that wait to be read.
struct Answers {
    /// Messages, and the bytes already read of the first.
    out: VecDeque<Vec<u8>>,
    taken: usize,
    /// Set once the client has broken the framing.
    broken: bool,
    /// Bytes of unfinished calls and of handles.
    begun: usize,
    /// Bytes reserved for the current answer.
    reserved: usize,
    /// The quota for all memory of the pipe.
    part: Part,
}

/// Returns the interface of this pipe name; STATUS_OBJECT_NAME_NOT_FOUND without one.
pub(crate) fn find(name: &str) -> Result<Interface, Status> {
    Interface::named(name).ok_or(Status::OBJECT_NAME_NOT_FOUND)
}

/// Opens the pipe of this name, with `part` as the quota for its memory.
pub fn open(name: &str, part: Part) -> Result<Pipe, Status> {
    let interface = find(name)?;
    Ok(Pipe {
        name: name.trim_start_matches('\\').to_owned(),
        calls: Mutex::new(Calls {
            association: Association::new(interface),
            handles: Handles::default(),
        }),
        answers: Mutex::new(Answers::of(part)),
        turn: tokio::sync::Mutex::default(),
        changed: tokio::sync::Notify::new(),
        closed: AtomicBool::new(false),
        fails_at_once: AtomicBool::new(false),
    })
}

impl Pipe {
    /// Returns the name under which it was opened.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// See [`Interface::takes_passwords`].
    pub(crate) fn takes_passwords(&self) -> bool {
        Interface::named(&self.name).is_some_and(Interface::takes_passwords)
    }

    /// Takes bytes from the client and answers completed calls at once; the answer waits to be read. Blocks on the host and on
    /// earlier writes.
    pub fn write(&self, host: &dyn Host, bytes: &[u8]) -> Result<(), Status> {
        let mut calls = locked(&self.calls);
        let written = self.answer(&mut calls, host, bytes).map(drop);
        self.changed.notify_one();
        written
    }

    /// Reads at most `max` bytes of the first waiting message; STATUS_PIPE_EMPTY without one, STATUS_PIPE_BROKEN once the pipe was
    /// closed.
    pub fn read(&self, max: usize) -> Result<Piece, Status> {
        self.take(&mut locked(&self.answers), max)
    }

    /// Writes a message and reads the first part of the answer (FSCTL_PIPE_TRANSCEIVE). STATUS_PIPE_BUSY if an unread answer waits.
    /// Blocks like [`Pipe::write`].
    pub fn transceive(&self, host: &dyn Host, bytes: &[u8], max: usize) -> Result<Piece, Status> {
        let mut calls = locked(&self.calls);
        if !locked(&self.answers).out.is_empty() {
            return Err(Status::PIPE_BUSY);
        }
        // This caller gets the answer, even if reads are waiting.
        let answered = self.answer(&mut calls, host, bytes);
        let read = answered.and_then(|mut answers| self.take(&mut answers, max));
        self.changed.notify_one();
        read
    }

    /// Waits until there may be more to read. Only for the read at the head of the [queue](Self::turn).
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Closes the pipe: waiting reads fail.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.changed.notify_one();
    }

    /// Sets whether reads of an empty pipe fail at once or wait.
    pub(crate) fn set_fails_at_once(&self, fails: bool) {
        self.fails_at_once.store(fails, Ordering::Relaxed);
    }

    /// See [`Pipe::set_fails_at_once`].
    pub(crate) fn fails_at_once(&self) -> bool {
        self.fails_at_once.load(Ordering::Relaxed)
    }

    /// Returns the bytes that wait to be read, in total and in the first message.
    pub fn waiting(&self) -> (usize, usize) {
        let answers = locked(&self.answers);
        let first = answers.out.front().map_or(0, Vec::len);
        let (all, taken) = (answers.bytes(), answers.taken);
        (all - taken.min(all), first - taken.min(first))
    }

    /// Answers the calls that these bytes complete.
    fn answer(
        &self,
        calls: &mut Calls,
        host: &dyn Host,
        bytes: &[u8],
    ) -> Result<MutexGuard<'_, Answers>, Status> {
        {
            let mut answers = locked(&self.answers);
            if answers.broken {
                return Err(Status::PIPE_DISCONNECTED);
            }
            if answers.bytes() > UNREAD_MAX {
                return Err(Status::PIPE_BUSY);
            }
            // The bytes are appended to an incomplete call.
            if let Err(too_much) = answers.reserve(bytes.len()) {
                calls.forget();
                answers.end();
                return Err(too_much);
            }
        }
        let Calls { association, handles } = calls;
        let interface = association.interface();
        let done = association.take(bytes, host, |answered, op, stub| {
            let price = interface.price(host, op, stub);
            let reserved = bytes.len() + answered + price;
            locked(&self.answers).reserve(reserved).map_err(|_| Fault::NO_MEMORY)?;
            let results = interface.call(host, handles, op, stub)?;
            // The fragments are a second copy.
            if 2 * results.len() > price { Err(Fault::NO_MEMORY) } else { Ok(results) }
        });
        let mut answers = locked(&self.answers);
        answers.reserved = 0;
        let Ok(new) = done else {
            calls.forget();
            answers.end();
            return Err(Status::PIPE_DISCONNECTED);
        };
        answers.out.extend(new);
        answers.begun = calls.bytes();
        if let Err(too_much) = answers.count() {
            calls.forget();
            answers.end();
            return Err(too_much);
        }
        Ok(answers)
    }

    fn take(&self, answers: &mut Answers, max: usize) -> Result<Piece, Status> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Status::PIPE_BROKEN);
        }
        answers.take(max)
    }
}

impl Answers {
    fn of(part: Part) -> Self {
        Self { out: VecDeque::new(), taken: 0, broken: false, begun: 0, reserved: 0, part }
    }

    /// Updates the quota.
    fn count(&mut self) -> Result<(), Status> {
        let kept = self.bytes() + self.begun + self.reserved;
        self.part.set(kept)
    }

    /// Reserves bytes for the current answer, in place of an earlier reservation.
    fn reserve(&mut self, bytes: usize) -> Result<(), Status> {
        let before = std::mem::replace(&mut self.reserved, bytes);
        self.count().inspect_err(|_| self.reserved = before)
    }

    /// Drops all data, and refuses more.
    fn end(&mut self) {
        (self.broken, self.begun, self.taken, self.reserved) = (true, 0, 0, 0);
        self.out = VecDeque::new();
        let _ = self.count();
    }

    fn bytes(&self) -> usize {
        self.out.iter().map(Vec::len).sum()
    }

    fn take(&mut self, max: usize) -> Result<Piece, Status> {
        let Some(first) = self.out.front() else {
            return Err(if self.broken { Status::PIPE_DISCONNECTED } else { Status::PIPE_EMPTY });
        };
        let rest = first.get(self.taken..).unwrap_or_default();
        let data = rest[..rest.len().min(max)].to_vec();
        let more = data.len() < rest.len();
        if more {
            self.taken += data.len();
        } else {
            self.taken = 0;
            self.out.pop_front();
            // A smaller amount cannot fail.
            let _ = self.count();
        }
        Ok(Piece { data, more })
    }
}
