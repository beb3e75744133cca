//! The audit trail as the configuration wants it, and what this crate records in it.
//!
//! *Operation.* The trail begins before the first listener and ends when the last connection has. A reload opens its file anew,
//! whatever else it changes, so that the file can be renamed before. See the crate `audit`.
//!
//! *Errors.* A trail that is `required` and cannot be written stops the start, and a reload is refused. One that is not is told
//! of in the log and tried again.

use std::collections::HashMap;
use std::fmt::Display;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use audit::{Event, Host, Options, Sink};
use config::in_time::{LOOK_MAX, ask};
use config::{Audit, AuditTo};
use mutex::locked;
use rdma_transport::count;
use vfs::accounts::Directory;

use crate::changes::{Changes, Refusal};
use crate::users::UserDb;

/// How long the name of a user holds.
const NAME_HOLDS: Duration = Duration::from_secs(60);
/// Names that are kept.
const NAMES_MAX: usize = 4096;
/// How long a gateway that ends waits for its trail to be written.
const LAST: Duration = Duration::from_secs(2);

/// Who gives an order, for the log and the trail.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct By {
    /// How it came.
    pub(crate) way: &'static str,
    /// User of this host, where the way tells.
    pub(crate) uid: Option<u32>,
    /// Process, where the way tells.
    pub(crate) pid: Option<i32>,
}

/// Names of users of NFS, as those of SMB have them; and the limit.
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

    fn limit_met(&self, times: u64) {
        count::limit_met_times(audit::LIMIT, times);
    }
}

fn sink(to: &AuditTo) -> Sink {
    match to {
        AuditTo::File(path) => Sink::File(path.clone()),
        AuditTo::Journal => Sink::Journal(audit::JOURNAL.into()),
    }
}

/// Tries whether the trail can be written, and changes nothing.
///
/// # Errors
/// One line: it cannot be written, or its file system gives no answer.
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

/// Opens a trail that is required, which makes its file where it is not there: without it nothing is served.
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

/// Begins the trail of a gateway that starts.
///
/// # Errors
/// It is required, and cannot be written.
pub(crate) fn start(audit: Option<&Audit>, book: &Arc<UserDb>) -> Result<(), String> {
    if audit.is_some() {
        prove_required(audit)?;
        begin(audit, book);
    }
    Ok(())
}

/// Goes over to another configuration, which can be had. Blocks for as long as the old trail takes to write what it has, two
/// seconds at most.
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

/// Records what an administrator did, or tried to; `on` is empty where that is the gateway.
pub(crate) fn act<T, E: Display>(act: &'static str, by: By, on: &str, done: &Result<T, E>) {
    audit::record(|| Event::Administrator {
        act,
        by: by.way,
        uid: by.uid,
        pid: by.pid,
        on: on.to_owned(),
        result: done.as_ref().err().map_or("ok".to_owned(), |why| first_line(why)),
    });
}

/// Records another configuration, or why there is none.
pub(crate) fn configuration(done: &Result<Changes, Refusal>) {
    audit::record(|| {
        let (changes, result) = match done {
            Ok(changes) => (changes.of_configuration(), "ok".to_owned()),
            Err(why) => (Vec::new(), first_line(why)),
        };
        Event::Configuration { changes, result }
    });
}

/// Records who came and went in the database of users.
pub(crate) fn users(changes: Vec<String>) {
    audit::record(|| Event::Configuration { changes, result: "ok".into() });
}

#[cfg(test)]
mod tests {
    use audit::event::{About, COMMON, EVENTS, Field};

    use super::*;
    use crate::admin::testing;

    fn fields(fields: &[Field]) -> String {
        let mut out = String::from("| field | what it holds |\n|---|---|\n");
        for Field { name, about, may_miss } in fields {
            let left_out = if *may_miss { "; may be left out" } else { "" };
            out += &format!("| `{name}` | {about}{left_out} |\n");
        }
        out
    }

    #[test]
    fn the_page_of_the_audit_trail_is_in_step() {
        let mut page = String::from(include_str!("trail/page.md"));
        page += &format!("\n## Every record\n\n{}\n## Events\n", fields(COMMON));
        for About { name, about, fields: own } in EVENTS {
            page += &format!("\n### {name}\n\n{about}\n");
            if !own.is_empty() {
                page += &format!("\n{}", fields(own));
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
