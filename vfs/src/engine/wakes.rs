//! How a thread outside wakes tasks of a runtime that has several workers.
//!
//! *Operation.* A worker that another thread wakes finds the task in the queue of all, and wakes a second worker before it runs it,
//! to look for more. Where an answer comes alone that is for nothing, and each costs as much as a small read takes. An event of a
//! descriptor wakes the one worker that waits for sockets, which runs the task and nobody else. So those that are to be woken are
//! listed here, and an eventfd(2) tells a task of the runtime, once for all that come until it has looked ([`by_event`]). Of a
//! runtime with one thread nothing changes.
//!
//! *Memory.* A descriptor and a task for each runtime, and a waker for each task that waits.
//!
//! *Errors.* None: where there is no descriptor to be had, or the runtime ends, tasks are woken directly.

// What a descriptor that tokio watches must be.
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

/// The tasks of one runtime that are to be woken.
struct Wakes {
    event: OwnedFd,
    /// `None`: nobody listens any more.
    list: Mutex<Option<Vec<Waker>>>,
}

static ALL: RwLock<Vec<(Id, Arc<Wakes>)>> = RwLock::new(Vec::new());

/// Polls `f`, and has its task woken by an event of the runtime it is polled in.
pub(crate) async fn by_event<T>(f: impl Future<Output = T>) -> T {
    let Some(wakes) = Wakes::of_this_runtime() else { return f.await };
    let mut f = pin!(f);
    // One waker does as long as the task is the same.
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

/// A task that waits.
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
    /// That of the runtime of the calling task, if it has several workers.
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
        // A runtime that ends drops the task at once, which takes this lock.
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
        // The number is never read: each write is an event.
        if is_first && rustix::io::write(&self.event, &1_u64.to_ne_bytes()).is_err() {
            self.wake_all();
        }
    }

    fn wake_all(&self) {
        let woken = self.list().as_mut().map(std::mem::take);
        woken.into_iter().flatten().for_each(Waker::wake);
    }
}

/// The task that listens. When it goes, its runtime goes.
struct Listening(Arc<Wakes>, Id);

impl Listening {
    async fn listen(self, event: AsyncFd<OwnedFd>) {
        while let Ok(mut told) = event.readable().await {
            // Before the look: what comes after that is an event of its own.
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

    /// A task that waits here may belong to another runtime than that which listens.
    #[test]
    fn the_end_of_a_runtime_leaves_nobody_asleep() {
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
    fn a_runtime_of_one_thread_has_none() {
        let one = Builder::new_current_thread().build().unwrap();
        assert!(one.block_on(async { Wakes::of_this_runtime().is_none() }));
        assert_eq!(one.block_on(by_event(async { 7 })), 7);
    }
}
