//! The log: lines on standard error, as text or JSON, whose levels can change while the program runs.
//!
//! *Operation.* A line must pass the levels, which `headgate log` and a reload replace, and then a limit: each place in the
//! code may log at most [`LINES_MAX`] lines per second, so that a client that causes messages cannot fill a disk. Suppressed
//! lines are counted and reported in the next second.
//!
//! *Memory.* One small entry for each place in the code that has logged.
//!
//! *Errors.* If the log cannot be written, the gateway continues without it.

use std::collections::HashMap;
use std::io;
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::Instant;

use audit::peer_text::{Escaped, JsonLines};
use config::{LogFilter, LogFormat};
use mutex::locked;
use tracing::callsite::Identifier;
use tracing::{Event, Metadata};
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::{EnvFilter, LevelFilter};
use tracing_subscriber::fmt::{FormatFields, format};
use tracing_subscriber::layer::{Context, Filter, SubscriberExt};
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry};

use tools::journal;

/// Lines per second from one place in the code.
const LINES_MAX: u32 = 50;

static LEVELS: OnceLock<reload::Handle<EnvFilter, Registry>> = OnceLock::new();
static LIMIT: OnceLock<Limit> = OnceLock::new();

/// Starts the log. A second call, as in tests with several gateways, only changes the levels.
pub fn start(filter: &LogFilter, format: LogFormat) {
    let (levels, handle) = reload::Layer::new(env_filter(filter));
    // If standard error has no reader, the library would report that on standard error, which would end the thread.
    let lines = tracing_subscriber::fmt::layer().log_internal_errors(false);
    let lines: Box<dyn Layer<_> + Send + Sync> = match (format, journal::is_standard_error()) {
        (LogFormat::Json, _) => {
            Box::new(lines.json().flatten_event(true).with_writer(|| JsonLines(io::stderr())))
        }
        // The journal adds the time and shows the priority of each line.
        (LogFormat::Text, true) => {
            let lines = lines.fmt_fields(text_fields()).with_ansi(false).without_time();
            Box::new(lines.with_writer(journal::Lines))
        }
        (LogFormat::Text, false) => {
            let is_terminal = io::IsTerminal::is_terminal(&io::stderr());
            let lines = lines.fmt_fields(text_fields()).with_ansi(is_terminal);
            Box::new(lines.with_writer(io::stderr))
        }
    };
    let limited = lines.with_filter(Limited(LIMIT.get_or_init(Limit::default)));
    match tracing_subscriber::registry().with(levels).with(limited).try_init() {
        Ok(()) => {
            let _ = LEVELS.set(handle);
        }
        Err(_) => set(filter),
    }
}

/// Formats the fields of a line of text. Some contain names that peers chose, so control characters are escaped in each.
fn text_fields() -> impl for<'w> FormatFields<'w> + Send + Sync + 'static {
    format::debug_fn(|out, field, value| {
        let value = Escaped(format_args!("{value:?}"));
        match field.name() {
            "message" => write!(out, "{value}"),
            name => write!(out, "{name}={value}"),
        }
    })
    .delimited(" ")
}

/// Replaces the levels.
pub fn set(filter: &LogFilter) {
    // There are no levels to replace if no log was started, as in tests.
    if let Some(levels) = LEVELS.get() {
        let _ = levels.reload(env_filter(filter));
    }
}

/// The model's filters are a subset of the library's, so this does not fail; if it did, the log would contain more, not less.
fn env_filter(filter: &LogFilter) -> EnvFilter {
    EnvFilter::try_new(filter.to_string())
        .unwrap_or_else(|_| EnvFilter::default().add_directive(LevelFilter::INFO.into()))
}

/// Logs how many lines were suppressed since the last call; call it about once per second.
pub fn tell_left_out() {
    let left_out = LIMIT.get().map(Limit::take_left_out).unwrap_or_default();
    for (place, lines) in left_out {
        tracing::warn!(lines, place, "more log lines like that were left out");
    }
}

/// Lines that each place in the code has written in this second.
struct Limit {
    began: Instant,
    places: Mutex<HashMap<Identifier, CallSite>>,
}

struct CallSite {
    name: &'static str,
    second: u64,
    lines: u32,
    left_out: u64,
}

impl Default for Limit {
    fn default() -> Self {
        Self { began: Instant::now(), places: Mutex::default() }
    }
}

impl Limit {
    fn places(&self) -> MutexGuard<'_, HashMap<Identifier, CallSite>> {
        locked(&self.places)
    }

    fn admits(&self, of: &'static Metadata<'static>, second: u64) -> bool {
        let mut places = self.places();
        let place = places.entry(of.callsite()).or_insert_with(|| CallSite {
            name: of.name(),
            second,
            lines: 0,
            left_out: 0,
        });
        if place.second != second {
            (place.second, place.lines) = (second, 0);
        }
        if place.lines >= LINES_MAX {
            place.left_out += 1;
            return false;
        }
        place.lines += 1;
        true
    }

    fn take_left_out(&self) -> Vec<(&'static str, u64)> {
        let mut places = self.places();
        let told = places.values_mut().filter(|p| p.left_out > 0);
        told.map(|p| (p.name, std::mem::take(&mut p.left_out))).collect()
    }
}

struct Limited(&'static Limit);

impl<S> Filter<S> for Limited {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        self.0.admits(event.metadata(), self.0.began.elapsed().as_secs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    struct Count(Arc<AtomicUsize>);

    impl<S: tracing::Subscriber> Layer<S> for Count {
        fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Lines that a logger writes.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            locked(&self.0).extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn names_of_peers_forge_no_line() {
        let hostile = "x\n2026-01-01 ERROR forged\u{1b}[2J\u{7}\u{202e}\u{9b}31m";
        let seen = Lines::default();
        let to = seen.clone();
        let text = tracing_subscriber::fmt::layer()
            .with_ansi(false)
            .fmt_fields(text_fields())
            .with_writer(move || to.clone());
        let to = seen.clone();
        let json = tracing_subscriber::fmt::layer()
            .json()
            .flatten_event(true)
            .with_writer(move || JsonLines(to.clone()));
        let log = tracing_subscriber::registry().with(text).with(json);
        tracing::subscriber::with_default(log, || {
            tracing::warn!(host = %hostile, user = hostile, debug = ?hostile, "of {hostile}");
        });
        let lines = String::from_utf8(locked(&seen.0).clone()).unwrap();
        assert_eq!(lines.lines().count(), 2, "{lines:?}");
        let obeyed = |c: char| c != '\n' && audit::peer_text::is_obeyed(c);
        assert!(!lines.contains(obeyed) && lines.contains("ERROR forged"), "{lines:?}");
        assert!(lines.contains("host=x\\n2026") && lines.contains("WARN"), "{lines:?}");
    }

    #[test]
    fn levels_change_and_floods_are_cut_and_counted() {
        let limit: &'static Limit = Box::leak(Box::default());
        let seen = Arc::new(AtomicUsize::new(0));
        let filter = |text: &str| env_filter(&text.parse().unwrap());
        let (levels, handle) = reload::Layer::new(filter("warn"));
        let lines = Count(seen.clone()).with_filter(Limited(limit));
        let log = tracing_subscriber::registry().with(levels).with(lines);
        tracing::subscriber::with_default(log, || {
            let say = |n: usize| (0..n).for_each(|n| tracing::info!(n, "something"));
            say(3);
            assert_eq!(seen.load(Ordering::Relaxed), 0);
            handle.reload(filter("warn,gateway::logs=info")).unwrap();
            say(3);
            assert_eq!(seen.load(Ordering::Relaxed), 3);
            handle.reload(filter("info")).unwrap();
            say(1000);
            let cut = seen.load(Ordering::Relaxed);
            // One or two new seconds may have begun meanwhile.
            let most = LINES_MAX as usize;
            assert!((most..=3 * most).contains(&cut), "{cut}");
            let left_out = limit.take_left_out();
            assert_eq!(left_out.len(), 1);
            assert!(left_out[0].0.contains("gateway/src/logs.rs"), "{left_out:?}");
            assert_eq!(usize::try_from(left_out[0].1).unwrap() + cut, 1003);
            // Another place in the code has its own limit.
            tracing::info!("something else");
            assert_eq!(seen.load(Ordering::Relaxed), cut + 1);
            assert!(limit.take_left_out().is_empty());
        });
    }
}
