//! Named pipes of `IPC$`: remote procedure calls (MS-RPCE over SMB) that browsers and administration tools make.
//!
//! *Operation.* [`open`] gives the pipe of a name. Bytes written are put together to messages of connection-oriented RPC ([`rpc`]);
//! each whole call is answered at once by one of the interfaces ([`srvsvc`], [`wkssvc`], [`lsarpc`], [`samr`]), and the answer
//! waits to be read, in the order in which reads came ([`Pipe::turn`]). What the interfaces tell comes from a [`Host`], which may
//! wait for it: only calls do, while reads, questions and the end of the pipe go on. Nothing here touches the network.
//!
//! *Memory.* What a client has written but not completed and what it has not read are both bounded ([`UNREAD_MAX`],
//! [`rpc::STUB_MAX`]), and count together, with its handles, as a [`Part`] of what pipes of its address keep: a pipe that would
//! keep more is disconnected. What an answer may take counts there before it is made ([`Interface::price`]).
//!
//! *Errors.* A call that cannot be read is answered with a fault, as is an operation that is not offered, and one whose answer gets
//! no memory; a client that breaks the framing has its pipe disconnected.

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

use crate::dtyp::Sid;
use crate::parts::Part;
use crate::status::Status;
use mutex::locked;
use rpc::{Association, Fault};
use samr::handles::Handles;

/// Bytes of answers that wait to be read; a client that has not read so much is not answered any more.
pub const UNREAD_MAX: usize = 1 << 20;

/// Bytes of an answer about one object.
const PRICE_MIN: usize = 8 << 10;

/// What interfaces tell about the server.
pub trait Host: Send + Sync {
    /// NetBIOS name of the machine.
    fn computer(&self) -> String;
    /// The shares that are shown to the one who calls, and their comments, without `IPC$`.
    fn shares(&self) -> Vec<(String, String)>;
    /// Returns the bytes of names and comments of all shares, and the number of shares.
    fn shares_size(&self) -> (usize, usize);
    /// The share of this name, in any case of letters, also one that is in no list.
    fn share(&self, name: &str) -> Option<(String, String)> {
        self.shares().into_iter().find(|(known, _)| known.to_lowercase() == name.to_lowercase())
    }
    /// The share of this name is on other servers.
    fn is_elsewhere(&self, _: &str) -> bool {
        false
    }
    /// The identifier under which the machine's own accounts are: S-1-5-21 and three numbers.
    fn machine(&self) -> Sid;
    /// The account of this name: its name as it is written, and its uid.
    fn account(&self, name: &str) -> Option<(String, u32)>;
    /// The account that has this uid.
    fn account_of_uid(&self, uid: u32) -> Option<String>;
    /// Calls `each` with the name and the credentials of every account, in no order.
    fn each_account(&self, each: &mut dyn FnMut(&str, &Cred));
    /// Returns whether the caller has logged on under a name: as no guest, and not anonymously.
    fn knows_caller(&self) -> bool;
    /// The domain whose tickets the server takes.
    fn domain(&self) -> Option<Arc<Domain>> {
        None
    }
    /// Users and groups that are no accounts. May wait.
    fn others(&self) -> &dyn Directory;
    /// Name of the one who calls.
    fn caller(&self) -> String;
    /// Time of day and time since the start, in milliseconds.
    fn times(&self) -> (u64, u64);
    /// Sessions that are open.
    fn sessions(&self) -> u32;
}

/// The interfaces, by the names of their pipes.
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
            // MS-LSAT section 2.1: by both names.
            "lsarpc" | "lsass" => Some(Self::Lsarpc),
            "samr" => Some(Self::Samr),
            _ => None,
        }
    }

    /// Secondary address in the answer to a bind (C706 section 12.6.4.4).
    pub(crate) fn address(self) -> &'static [u8] {
        match self {
            Self::Srvsvc => b"\\PIPE\\srvsvc\0",
            Self::Wkssvc => b"\\PIPE\\wkssvc\0",
            // MS-SAMR section 2.1 has its own name for the same process.
            Self::Lsarpc | Self::Samr => b"\\PIPE\\lsass\0",
        }
    }

    /// Identifier and version.
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

/// What a read gives.
#[derive(Debug, PartialEq, Eq)]
pub struct Piece {
    /// The bytes.
    pub data: Vec<u8>,
    /// The message has more: STATUS_BUFFER_OVERFLOW.
    pub more: bool,
}

/// An open pipe.
pub struct Pipe {
    name: String,
    /// Held while a call is answered, which may ask the host for names and take as long as that takes: by threads that may wait.
    calls: Mutex<Calls>,
    /// Never held while anything is waited for.
    answers: Mutex<Answers>,
    /// Reads that find nothing wait for it in the order in which they came; the one that has it waits for [`Pipe::changed`].
    pub(crate) turn: tokio::sync::Mutex<()>,
    changed: tokio::sync::Notify,
    /// Its open has ended.
    closed: AtomicBool,
    /// `CompletionMode` is FILE_PIPE_COMPLETE_OPERATION: a read that finds nothing fails at once (MS-FSCC section 2.4.37).
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

/// What waits to be read.
struct Answers {
    /// Messages, and how much of the first has been read.
    out: VecDeque<Vec<u8>>,
    taken: usize,
    /// The client has broken the framing.
    broken: bool,
    /// Bytes of unfinished calls and of handles.
    begun: usize,
    /// Bytes for the call that is being answered.
    reserved: usize,
    /// All that is kept counts here.
    part: Part,
}

/// What the pipe of this name offers; STATUS_OBJECT_NAME_NOT_FOUND when there is none.
pub(crate) fn find(name: &str) -> Result<Interface, Status> {
    Interface::named(name).ok_or(Status::OBJECT_NAME_NOT_FOUND)
}

/// The pipe of this name. What it keeps counts as this part.
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
    /// Its name, as it was opened.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Takes bytes from the client. What they complete is answered at once; the answer waits to be read. Waits for the host, and
    /// for writes before this one.
    pub fn write(&self, host: &dyn Host, bytes: &[u8]) -> Result<(), Status> {
        let mut calls = locked(&self.calls);
        let written = self.answer(&mut calls, host, bytes).map(drop);
        self.changed.notify_one();
        written
    }

    /// At most `max` bytes of the first message that waits; STATUS_PIPE_EMPTY when none does, STATUS_PIPE_BROKEN when the pipe was
    /// closed.
    pub fn read(&self, max: usize) -> Result<Piece, Status> {
        self.take(&mut locked(&self.answers), max)
    }

    /// Writes a message and reads the first of the answer (FSCTL_PIPE_TRANSCEIVE). STATUS_PIPE_BUSY while an answer waits. Waits as
    /// [`Pipe::write`] does.
    pub fn transceive(&self, host: &dyn Host, bytes: &[u8], max: usize) -> Result<Piece, Status> {
        let mut calls = locked(&self.calls);
        if !locked(&self.answers).out.is_empty() {
            return Err(Status::PIPE_BUSY);
        }
        // The answer is this caller's, whoever waits to read.
        let answered = self.answer(&mut calls, host, bytes);
        let read = answered.and_then(|mut answers| self.take(&mut answers, max));
        self.changed.notify_one();
        read
    }

    /// Waits until there may be more to read than before. For the one that has the [turn](Self::turn).
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Its open has ended: reads that wait fail.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.changed.notify_one();
    }

    /// Reads of an empty pipe fail at once from now on, or wait.
    pub(crate) fn set_fails_at_once(&self, fails: bool) {
        self.fails_at_once.store(fails, Ordering::Relaxed);
    }

    /// See [`Pipe::set_fails_at_once`].
    pub(crate) fn fails_at_once(&self) -> bool {
        self.fails_at_once.load(Ordering::Relaxed)
    }

    /// Bytes that wait to be read, all and in the first message.
    pub fn waiting(&self) -> (usize, usize) {
        let answers = locked(&self.answers);
        let first = answers.out.front().map_or(0, Vec::len);
        let (all, taken) = (answers.bytes(), answers.taken);
        (all - taken.min(all), first - taken.min(first))
    }

    /// Answers what these bytes complete.
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
            // They are copied behind the bytes of an unfinished call.
            if let Err(too_much) = answers.reserve(bytes.len()) {
                calls.forget();
                answers.end();
                return Err(too_much);
            }
        }
        let Calls { association, handles } = calls;
        let interface = association.interface();
        let done = association.take(bytes, |answered, op, stub| {
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

    /// Counts what is kept.
    fn count(&mut self) -> Result<(), Status> {
        let kept = self.bytes() + self.begun + self.reserved;
        self.part.set(kept)
    }

    /// Counts these bytes for the call that is being answered, in place of those before.
    fn reserve(&mut self, bytes: usize) -> Result<(), Status> {
        let before = std::mem::replace(&mut self.reserved, bytes);
        self.count().inspect_err(|_| self.reserved = before)
    }

    /// Keeps nothing any more, and takes nothing.
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
            // Less than before.
            let _ = self.count();
        }
        Ok(Piece { data, more })
    }
}
