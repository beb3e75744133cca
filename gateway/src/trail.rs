//! Runs the audit trail according to the configuration, and records the events of this crate.
//!
//! *Operation.* The trail starts before the first listener and ends after the last connection. Every reload reopens its file,
//! whatever else changes, so that the file can be renamed before. See the crate `audit`.
//!
//! *Errors.* If a trail is `required` and cannot be written, the start fails, and a reload is rejected. Otherwise the failure
//! is logged and the trail is tried again.

use std::collections::HashMap;
use std::fmt::Display;
use std::fs::OpenOptions;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use audit::{Event, Host, Options, RecordText, Sink};
use config::in_time::{LOOK_MAX, ask};
use config::{Audit, AuditTo};
use mutex::locked;
use rdma_transport::count;
use vfs::accounts::Directory;

use crate::changes::{Changes, Refusal};
use crate::users::UserDb;

/// Time for which the name of a user is cached.
const NAME_HOLDS: Duration = Duration::from_secs(60);
/// Maximum number of cached names.
const NAMES_MAX: usize = 4096;
/// Longest wait of an ending gateway for the writing of its trail.
const LAST: Duration = Duration::from_secs(2);

/// Origin of an order, for the log and the trail.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct By {
    /// Way in which the order arrived.
    pub(crate) way: &'static str,
    /// User of this host, if the way identifies the user.
    pub(crate) uid: Option<u32>,
    /// Process, if the way identifies it.
    pub(crate) pid: Option<i32>,
}

/// Looks up the names of NFS users, the same as for SMB, and caches them. Also counts records beyond the limit.
struct Names {
    book: Arc<UserDb>,
    known: Mutex<HashMap<u32, (Instant, Option<String>)>>,
}

impl Host for Names {
    fn user(&self, uid: u32) -> Option<String> {
        let now = Instant::now();
        let lock = || locked(&self.known);
        if let Some((since, name)) = lock().get(&uid)
            && now.duration_since(*since) < NAME_HOLDS
        {
            return name.clone();
        }
        let name = self.book.user(uid);
        let mut known = lock();
        if known.len() >= NAMES_MAX {
            known.clear();
        }
        known.insert(uid, (now, name.clone()));
        name
    }

    fn client(&self) -> Option<IpAddr> {
        iobuf::current_client()
    }

    fn limit_met(&self, limit: &'static str) {
        count::limit_met(limit);
    }
}

fn sink(to: &AuditTo) -> Sink {
    match to {
        AuditTo::File(path) => Sink::File(path.clone()),
        AuditTo::Journal => Sink::Journal(audit::JOURNAL.into()),
    }
}

/// Checks that the trail can be written, without changing it.
///
/// # Errors
/// One line: it cannot be written, or its file system does not respond.
pub(crate) fn prove(audit: &Audit) -> Result<(), String> {
    let sink = sink(&audit.to);
    tried(audit, move || match &sink {
        Sink::File(path) if path.symlink_metadata().is_ok() => {
            OpenOptions::new().read(true).append(true).open(path).map(drop)
        }
        Sink::File(path) => {
            let folder = path.parent().unwrap_or(Path::new("/"));
            tempfile::Builder::new().prefix(".headgate-check.").tempfile_in(folder).map(drop)
        }
        Sink::Journal(_) => sink.open().map(drop),
    })
}

fn tried(
    audit: &Audit,
    open: impl FnOnce() -> std::io::Result<()> + Send + 'static,
) -> Result<(), String> {
    let at = match &audit.to {
        AuditTo::File(path) => path.clone(),
        AuditTo::Journal => PathBuf::from(audit::JOURNAL),
    };
    let shown = sink(&audit.to).to_string();
    match ask(&at, LOOK_MAX, open) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(e)) => Err(format!("the audit trail cannot be written to {shown}: {e}")),
        Err(_) => Err(format!(
            "the audit trail cannot be written to {shown}: its file system does not respond"
        )),
    }
}

/// Opens a required trail, and creates its file if it is missing: the gateway does not serve without it.
///
/// # Errors
/// As [`prove`].
pub(crate) fn prove_required(audit: Option<&Audit>) -> Result<(), String> {
    let Some(audit) = audit.filter(|audit| audit.required) else { return Ok(()) };
    let sink = sink(&audit.to);
    tried(audit, move || sink.open().map(drop))
}

fn begin(audit: Option<&Audit>, book: &Arc<UserDb>) {
    let options = audit.map(|audit| {
        let host = Names { book: book.clone(), known: Mutex::default() };
        let host: Arc<dyn Host> = Arc::new(host);
        (Options { sink: sink(&audit.to), required: audit.required }, host)
    });
    audit::set(options);
    let (version, pid) = (env!("CARGO_PKG_VERSION"), std::process::id());
    audit::record(|| Event::Start { version, pid });
}

/// Starts the trail of a starting gateway.
///
/// # Errors
/// The trail is required and cannot be written.
pub(crate) fn start(audit: Option<&Audit>, book: &Arc<UserDb>) -> Result<(), String> {
    if audit.is_some() {
        prove_required(audit)?;
        begin(audit, book);
    }
    Ok(())
}

/// Changes to another, checked configuration. Blocks while the old trail writes its remaining records, at most two seconds.
pub(crate) fn follow(old: Option<&Audit>, new: Option<&Audit>, book: &Arc<UserDb>) {
    match old == new {
        true => audit::reopen(),
        false => begin(new, book),
    }
}

/// Ends the trail.
pub(crate) fn stop() {
    audit::record(|| Event::Stop);
    if !audit::flush(LAST) {
        tracing::error!("the last records of the audit trail could not be written");
    }
}

fn first_line(why: &dyn Display) -> String {
    let text = why.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

/// Records an order of an administrator and its result; `on` is empty if the order is about the whole gateway.
pub(crate) fn act<T, E: Display>(act: &'static str, by: By, on: &str, done: &Result<T, E>) {
    audit::record(|| Event::Administrator {
        act,
        by: by.way,
        uid: by.uid,
        pid: by.pid,
        on: on.into(),
        result: done.as_ref().err().map_or("ok".into(), |why| first_line(why).into()),
    });
}

/// Records a new configuration, or the reason why it was rejected.
pub(crate) fn configuration(done: &Result<Changes, Refusal>) {
    audit::record(|| {
        let (changes, result) = match done {
            Ok(changes) => (texts(changes.of_configuration()), "ok".into()),
            Err(why) => (Vec::new(), first_line(why).into()),
        };
        Event::Configuration { changes, result }
    });
}

/// Records changes in the database of users.
pub(crate) fn users(changes: Vec<String>) {
    audit::record(|| Event::Configuration { changes: texts(changes), result: "ok".into() });
}

fn texts(all: Vec<String>) -> Vec<RecordText> {
    all.into_iter().map(RecordText::from).collect()
}

#[cfg(test)]
mod tests {
    use audit::event::{About, COMMON, EVENTS, Field};

    use super::*;
    use crate::admin::testing;

    /// Number of events with a field from which on the page describes the field once.
    const MANY: usize = 4;

    /// Describes each field between `begin`, `middle` and `end`.
    fn rows(fields: &[Field], [begin, middle, end]: [&str; 3]) -> String {
        let mut out = String::new();
        for Field { name, about, may_miss } in fields {
            let left_out = if *may_miss { "; may be left out" } else { "" };
            out += &format!("{begin} `{name}`{middle} {about}{left_out}{end}\n");
        }
        out
    }

    fn table(fields: &[Field]) -> String {
        format!("| field | what it holds |\n|---|---|\n{}", rows(fields, ["|", " |", " |"]))
    }

    fn is_same(a: &Field, b: &Field) -> bool {
        (a.name, a.about, a.may_miss) == (b.name, b.about, b.may_miss)
    }

    fn is_shared(field: &Field) -> bool {
        let has = |event: &&About| event.fields.iter().any(|f| is_same(f, field));
        EVENTS.iter().filter(has).count() >= MANY
    }

    /// Returns the fields that many events have, in the order of the events.
    fn shared() -> Vec<Field> {
        let mut all: Vec<Field> = Vec::new();
        for field in EVENTS.iter().flat_map(|event| event.fields) {
            if is_shared(field) && !all.iter().any(|f| is_same(f, field)) {
                all.push(*field);
            }
        }
        all
    }

    #[test]
    fn the_page_of_the_audit_trail_is_in_step() {
        let mut page = String::from(include_str!("trail/page.md"));
        page += &format!("\n## Every record\n\n{}", table(COMMON));
        page += &format!(
            "\nAn event names those of the following fields that it has:\n\n{}",
            table(&shared())
        );
        page += "\n## Events\n";
        for About { name, about, fields } in EVENTS {
            page += &format!("\n### {name}\n\n{about}\n");
            let (shared, own): (Vec<Field>, Vec<Field>) =
                fields.iter().copied().partition(is_shared);
            let names: Vec<String> = shared.iter().map(|f| format!("`{}`", f.name)).collect();
            if !names.is_empty() {
                page += &format!("\nFields: {}.\n", names.join(", "));
            }
            if !own.is_empty() {
                page += &format!("\n{}", rows(&own, ["*", ":", ""]));
            }
        }
        testing::in_step("docs/audit.md", &page);
    }

    #[test]
    fn a_file_is_proved_and_not_made() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let to = |path: &Path| Audit { to: AuditTo::File(path.to_owned()), required: true };
        prove(&to(&path)).unwrap();
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
        std::fs::write(&path, "half").unwrap();
        prove(&to(&path)).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "half");
        let why = prove_required(Some(&to(&dir.path().join("no/audit.jsonl")))).unwrap_err();
        assert!(why.contains("no/audit.jsonl: No such file"), "{why}");
        prove_required(None).unwrap();
    }
}
