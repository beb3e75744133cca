//! Wakes tasks of a multi-threaded runtime from an outside thread.
//!
//! *Operation.* A worker woken from outside finds the task in the global queue, and wakes a second worker before running it, to
//! look for more. A single result gains nothing by it, and each wake-up costs as much as a small read. An event of a descriptor
//! wakes only the worker that polls sockets, which then runs the task. Tasks to wake are therefore collected in a list, and an
//! eventfd(2) notifies a task of the runtime, once for all entries until it has read the list ([`by_event`]). On a single-threaded
//! runtime tasks are woken directly.
//!
//! *Memory.* A descriptor and a task for each runtime, and a waker for each waiting task.
//!
//! *Errors.* If no descriptor is available, or the runtime ends, tasks are woken directly.

// Required for descriptors that tokio watches.
#![allow(unsafe_code)]

use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::task::{Context, Wake, Waker};

use mutex::{locked, reading, writing};
use rustix::event::EventfdFlags;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::{Handle, Id, RuntimeFlavor};

/// The tasks of one runtime to be woken.
struct Wakes {
    event: OwnedFd,
    /// `None` after the listener has ended.
    list: Mutex<Option<Vec<Waker>>>,
}

static ALL: RwLock<Vec<(Id, Arc<Wakes>)>> = RwLock::new(Vec::new());

/// Polls `f`, and has its task woken through the event of its runtime.
pub(crate) async fn by_event<T>(f: impl Future<Output = T>) -> T {
    let Some(wakes) = Wakes::of_this_runtime() else { return f.await };
    let mut f = pin!(f);
    // One waker suffices as long as the task is the same.
    let mut last: Option<(Waker, Waker)> = None;
    poll_fn(|task| {
        if !last.as_ref().is_some_and(|(its, _)| its.will_wake(task.waker())) {
            let sleeper = Sleeper { wakes: wakes.clone(), waker: task.waker().clone() };
            last = Some((task.waker().clone(), Arc::new(sleeper).into()));
        }
        match &last {
            Some((_, by_event)) => f.as_mut().poll(&mut Context::from_waker(by_event)),
            None => f.as_mut().poll(task),
        }
    })
    .await
}

/// A test task that waits for its wake-up.
struct Sleeper {
    wakes: Arc<Wakes>,
    waker: Waker,
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wakes.hand(&self.waker);
    }
}

impl Wakes {
    /// The list of the calling task's runtime, if it has several workers.
    fn of_this_runtime() -> Option<Arc<Self>> {
        let handle = Handle::try_current().ok()?;
        if handle.runtime_flavor() != RuntimeFlavor::MultiThread {
            return None;
        }
        let id = handle.id();
        let of_it = |all: &[(Id, Arc<Self>)]| {
            all.iter().find(|(its, _)| *its == id).map(|(_, wakes)| wakes.clone())
        };
        if let Some(wakes) = of_it(&reading(&ALL)) {
            return Some(wakes);
        }
        let mut all = writing(&ALL);
        if let Some(wakes) = of_it(&all) {
            return Some(wakes);
        }
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let event = rustix::event::eventfd(0, flags).ok()?;
        let listened = event.try_clone().ok()?;
        // SAFETY: it owns the descriptor, which is closed after it.
        let listener = unsafe { AsyncFd::register_with_interest(listened, Interest::READABLE) };
        let listener = listener.ok()?;
        let wakes = Arc::new(Self { event, list: Mutex::new(Some(Vec::new())) });
        all.push((id, wakes.clone()));
        // An ending runtime drops the task at once, which takes this lock.
        drop(all);
        handle.spawn(Listening(wakes.clone(), id).listen(listener));
        Some(wakes)
    }

    fn list(&self) -> MutexGuard<'_, Option<Vec<Waker>>> {
        locked(&self.list)
    }

    fn hand(&self, waker: &Waker) {
        let is_first = match &mut *self.list() {
            Some(list) => {
                list.push(waker.clone());
                list.len() == 1
            }
            None => return waker.wake_by_ref(),
        };
        // The counter is never read: each write causes an event.
        if is_first && rustix::io::write(&self.event, &1_u64.to_ne_bytes()).is_err() {
            self.wake_all();
        }
    }

    fn wake_all(&self) {
        let woken = self.list().as_mut().map(std::mem::take);
        woken.into_iter().flatten().for_each(Waker::wake);
    }
}

/// The task that listens. It is dropped when its runtime ends.
struct Listening(Arc<Wakes>, Id);

impl Listening {
    async fn listen(self, event: AsyncFd<OwnedFd>) {
        while let Ok(mut told) = event.readable().await {
            // Cleared before waking: a later write causes another event.
            told.clear_ready();
            self.0.wake_all();
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let left = self.0.list().take();
        left.into_iter().flatten().for_each(Waker::wake);
        writing(&ALL).retain(|(id, _)| *id != self.1);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use tokio::runtime::{Builder, Runtime};
    use tokio::sync::oneshot;

    use super::*;

    fn runtime() -> Runtime {
        Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
    }

    #[test]
    fn every_answer_of_threads_outside_arrives() {
        let runtime = runtime();
        let asked = |n: u32| {
            let (answer, answered) = oneshot::channel();
            thread::spawn(move || answer.send(n));
            async move { by_event(answered).await.unwrap() }
        };
        for round in 0..20 {
            let all: Vec<_> = (0..20).map(|n| runtime.spawn(asked(round * 20 + n))).collect();
            for (n, one) in (0..).zip(all) {
                assert_eq!(runtime.block_on(one).unwrap(), round * 20 + n);
            }
        }
    }

    /// A waiting task may belong to another runtime than the listener.
    #[test]
    fn ending_runtime_wakes_waiting_tasks() {
        let (ends, stays) = (runtime(), runtime());
        let (answer, answered) = oneshot::channel::<u32>();
        let wakes = ends.block_on(async { Wakes::of_this_runtime().unwrap() });
        let (polled, is_polled) = mpsc::channel();
        let waits = stays.spawn(async move {
            let mut answered = pin!(answered);
            poll_fn(|task| {
                let sleeper = Sleeper { wakes: wakes.clone(), waker: task.waker().clone() };
                let waker: Waker = Arc::new(sleeper).into();
                let answer = answered.as_mut().poll(&mut Context::from_waker(&waker));
                let _ = polled.send(());
                answer
            })
            .await
        });
        is_polled.recv().unwrap();
        drop(ends);
        answer.send(7).unwrap();
        assert_eq!(stays.block_on(waits).unwrap(), Ok(7));
    }

    #[test]
    fn single_threaded_runtime_has_no_list() {
        let one = Builder::new_current_thread().build().unwrap();
        assert!(one.block_on(async { Wakes::of_this_runtime().is_none() }));
        assert_eq!(one.block_on(by_event(async { 7 })), 7);
    }
}
