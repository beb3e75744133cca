//! Directories that clients watch: what belongs to one open, between its CHANGE_NOTIFY requests.
//!
//! *Operation.* The first request makes the watch, with its filter, and the watch goes on until the open ends: what happens between
//! two requests waits for the second. Requests of one open are answered in their order.

use tokio::sync::{Mutex, watch};
use vfs::Action as Seen;
use vfs::names::Spelling;
use vfs::watch::{Event, Taken, Watch};

use crate::fscc::notify::{Action, Change};
use crate::parts::Part;
use crate::status::Status;

/// The watch of one open.
pub struct Watching {
    watch: Watch,
    /// Whose turn it is, in the order in which they came.
    pub(crate) turn: Mutex<()>,
    /// Bytes that what happens between requests may take: those of the first request.
    pub(crate) between: usize,
    ended: watch::Sender<Option<Status>>,
    /// Its place among the watches of its client's address.
    _part: Part,
}

impl Watching {
    /// Of this watch; `between`: bytes of the first request's buffer.
    pub(crate) fn new(watch: Watch, between: usize, part: Part) -> Self {
        let ended = watch::Sender::new(None);
        Self { watch, turn: Mutex::new(()), between, ended, _part: part }
    }

    /// The open ends or its directory is about to: whoever waits is told so.
    pub(crate) fn end(&self, why: Status) {
        self.ended.send_replace(Some(why));
    }

    /// Why nothing more will come.
    pub(crate) fn why(&self) -> Option<Status> {
        *self.ended.borrow()
    }

    /// Waits until something has happened or the watch has ended.
    pub(crate) async fn ready(&self) -> Result<(), Status> {
        let mut ended = self.ended.subscribe();
        let ended = async move {
            let why = ended.wait_for(Option::is_some).await.ok().and_then(|w| *w);
            why.unwrap_or(Status::NOTIFY_CLEANUP)
        };
        tokio::select! {
            biased;
            why = ended => Err(why),
            () = self.watch.ready() => Ok(()),
        }
    }

    /// Something waits already.
    pub(crate) async fn is_ready(&self) -> bool {
        let mut ready = std::pin::pin!(self.watch.something());
        std::future::poll_fn(|cx| std::task::Poll::Ready(ready.as_mut().poll(cx).is_ready())).await
    }

    /// What happened.
    pub(crate) fn take(&self) -> Taken {
        self.watch.take()
    }
}

/// A change as clients are told it.
pub(crate) fn change(event: &Event, spelling: Spelling) -> Change {
    let action = match event.action {
        Seen::Added => Action::Added,
        Seen::Removed => Action::Removed,
        Seen::Modified => Action::Modified,
        Seen::RenamedOld => Action::RenamedOldName,
        Seen::RenamedNew => Action::RenamedNewName,
        Seen::AddedStream => Action::AddedStream,
        Seen::RemovedStream => Action::RemovedStream,
        Seen::ModifiedStream => Action::ModifiedStream,
    };
    let is_stream =
        matches!(action, Action::AddedStream | Action::RemovedStream | Action::ModifiedStream);
    let colon = event.path.iter().rposition(|b| *b == b':').filter(|_| is_stream);
    let (path, stream) = event.path.split_at(colon.unwrap_or(event.path.len()));
    let names = path.split(|b| *b == b'/').map(|name| spelling.to_client(name));
    let names: Vec<String> = names.collect();
    let separator = match spelling {
        Spelling::Windows => "\\",
        // The other one may be part of a name.
        Spelling::Posix => "/",
    };
    let name = names.join(separator) + &String::from_utf8_lossy(stream);
    Change { action, name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_told_as_clients_write_them() {
        let event = |action, path: &[u8]| Event { action, path: path.to_vec() };
        let told = |action, path| change(&event(action, path), Spelling::Windows).name;
        assert_eq!(told(Seen::Added, b"a/b"), "a\\b");
        assert_eq!(told(Seen::Added, b"a:b"), "a\u{f022}b");
        assert_eq!(told(Seen::AddedStream, b"d/a:b"), "d\\a:b");
        let posix = change(&event(Seen::Added, b"d/a:b\\c"), Spelling::Posix);
        assert_eq!(posix.name, "d/a:b\\c");
    }
}
