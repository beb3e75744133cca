//! Work on a thread beside the one that asks for it, which waits.
//!
//! The kernel's RDMA interface takes commands only with the very credentials that its descriptor was opened with
//! (`ib_safe_file_access` compares the objects, not what is in them), and a thread that has acted as somebody else never gets its
//! old object back. So where RDMA devices are used, a thread of the runtime keeps its own and lets a companion act.
//!
//! *Operation.* Each thread that calls [`run`] has one companion, which ends with it. *Errors.* A panic of the work goes on in the
//! caller. Without a companion (no thread to be had) the work is done in place.
#![allow(unsafe_code)]

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

/// Runs what is borrowed, and is done with it before it answers.
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

/// Runs `f` on the companion of this thread and gives its answer.
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
        // says that it is done afterwards; this function does not go on before that, or before the companion is gone and with it
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
    fn the_work_is_done_elsewhere_and_always_at_the_same_place() {
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
    fn a_panic_comes_back_and_the_next_work_is_done() {
        let panicked = catch_unwind(|| run(|| -> u8 { panic!("on purpose") }));
        assert_eq!(*panicked.unwrap_err().downcast_ref::<&str>().unwrap(), "on purpose");
        assert_eq!(run(|| 7), 7);
    }
}
