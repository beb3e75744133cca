//! Runs work on a companion thread, while the calling thread waits.
//!
//! The kernel's RDMA interface accepts commands only with the credential object with which its descriptor was opened
//! (`ib_safe_file_access` compares pointers, not contents), and a thread that has switched identity never gets its old object back.
//! If RDMA devices are used, a thread of the runtime keeps its credentials and lets a companion switch.
//!
//! *Operation.* Each thread that calls [`run`] has one companion, which ends with it. *Errors.* A panic of the work continues in
//! the caller. If no thread can be started, the work is done in place.
#![allow(unsafe_code)]

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

/// Borrowed work, which the companion has finished when it answers.
type Job = &'static mut (dyn FnMut() + Send);

struct Companion {
    jobs: Sender<Job>,
    done: Receiver<()>,
}

thread_local! {
    static COMPANION: Option<Companion> = Companion::start();
}

impl Companion {
    fn start() -> Option<Self> {
        let (jobs, work) = channel::<Job>();
        let (tell, done) = channel();
        let serve = move || {
            while let Ok(job) = work.recv() {
                job();
                if tell.send(()).is_err() {
                    break;
                }
            }
        };
        match thread::Builder::new().name("as-caller".into()).spawn(serve) {
            Ok(_) => Some(Self { jobs, done }),
            Err(error) => {
                tracing::error!(%error, "no thread to act as callers: RDMA devices may refuse this one from now on");
                None
            }
        }
    }
}

/// Runs `f` on the companion of this thread and returns its result.
pub(super) fn run<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    COMPANION.with(|companion| match companion {
        Some(companion) => companion.run(f),
        None => f(),
    })
}

impl Companion {
    fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> T {
        let mut f = Some(f);
        let mut answer: Option<Result<T, Box<dyn Any + Send>>> = None;
        let mut work = || {
            if let Some(f) = f.take() {
                answer = Some(catch_unwind(AssertUnwindSafe(f)));
            }
        };
        let job: &mut (dyn FnMut() + Send) = &mut work;
        // SAFETY: only the lifetime changes. The companion uses the reference while it runs the job, which cannot panic, and
        // reports its end afterwards; this function does not continue before that, or before the companion is gone and with it
        // every reference.
        let job = unsafe { std::mem::transmute::<&mut (dyn FnMut() + Send), Job>(job) };
        if self.jobs.send(job).is_ok() {
            let _ = self.done.recv();
        }
        match answer {
            Some(Ok(answer)) => answer,
            Some(Err(panic)) => resume_unwind(panic),
            // The companion ends only with this thread.
            None => unreachable!("the companion did not run its job"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_runs_on_same_companion() {
        let here = thread::current().id();
        let mut seen = Vec::new();
        for n in 0..100 {
            let local = [n; 3];
            let (there, sum) = run(|| (thread::current().id(), local.iter().sum::<i32>()));
            assert_eq!(sum, 3 * n);
            assert_ne!(there, here);
            seen.push(there);
        }
        seen.dedup();
        assert_eq!(seen.len(), 1);
    }

    #[test]
    fn panic_returns_and_companion_continues() {
        let panicked = catch_unwind(|| run(|| -> u8 { panic!("on purpose") }));
        assert_eq!(*panicked.unwrap_err().downcast_ref::<&str>().unwrap(), "on purpose");
        assert_eq!(run(|| 7), 7);
    }
}
