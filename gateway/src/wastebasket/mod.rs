//! `headgate wastebasket`: lists files that clients removed, restores or erases them.
//!
//! *Operation.* The daemon does the work ([`perform`]), asked over the control socket, because it knows which files clients have
//! open. Where no daemon runs, the command does it itself. One request is in progress at a time, on a thread for blocking work.
//!
//! *Memory.* 16 bytes for each file in the wastebaskets asked about, and an answer of at most [`FILES_MAX`] files.
//!
//! *Errors.* What cannot be done to one file is in the answer, and the others are done.

pub(crate) mod command;
pub(crate) mod turns;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use audit::PeerText;
use serde::{Deserialize, Serialize};
use vfs::VfsError;
use vfs::namespace::Share;
use vfs::waste_keep;
use vfs::waste_record::{Id, Way};
use vfs::wastebasket::{Basket, Entry, counters};

use tools::table::{Table, Tone};

/// Largest number of files in one answer, and of files that one request gives back or removes.
const FILES_MAX: usize = 10_000;

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Act {
    List,
    Restore,
    Empty,
}

/// A request, and which files it is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) act: Act,
    /// Name of the share; `None`: all.
    pub(crate) share: Option<String>,
    /// Identifies one file.
    pub(crate) id: Option<String>,
    /// The path in the share at which a file, or all files below a folder, were.
    pub(crate) path: Option<String>,
    /// Name or number of the user that removed them.
    pub(crate) user: Option<String>,
    /// Removed within this many seconds.
    pub(crate) since: Option<u64>,
    /// Removed before this many seconds.
    pub(crate) older: Option<u64>,
    /// Restores files to this path instead of `path`, or of the path of the file.
    pub(crate) to: Option<String>,
    /// Give files back over others.
    pub(crate) replace: bool,
}

impl Request {
    /// Returns the object of the request, for the log and the trail.
    pub(crate) fn on(&self) -> String {
        let share = self.share.as_deref().unwrap_or("all shares");
        match self.id.as_deref().or(self.path.as_deref()) {
            Some(what) => format!("{share}: {what}"),
            None => share.to_owned(),
        }
    }
}

/// A file in a wastebasket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shown {
    pub(crate) id: String,
    pub(crate) share: String,
    /// Where it was; `None` if unknown.
    pub(crate) path: Option<PeerText>,
    /// Seconds since 1970 at which it was removed.
    pub(crate) removed: u64,
    /// The same as a date.
    pub(crate) date: String,
    /// `removed` or `replaced`.
    pub(crate) way: String,
    /// The user that removed it.
    pub(crate) user: PeerText,
    pub(crate) uid: u32,
    /// The owner of the file.
    pub(crate) owner: u32,
    pub(crate) client: Option<String>,
    pub(crate) protocol: String,
    pub(crate) size: u64,
    pub(crate) used: u64,
    /// Where it was given back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) to: Option<PeerText>,
    /// Why it was not given back or removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Answer {
    pub(crate) act: Act,
    /// The newest first.
    pub(crate) files: Vec<Shown>,
    /// Number of files that were left out.
    pub(crate) left_out: usize,
}

/// Reasons why nothing was done.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The request is wrong.
    Wrong(String),
    /// There is no such file.
    Nothing(String),
}

/// Looks up the name of a user.
pub(crate) type NameOf = Arc<dyn Fn(u32) -> Option<String> + Send + Sync>;

/// Carries out a request on these shares.
pub(crate) async fn perform(
    shares: &[Arc<Share>],
    request: Request,
    name_of: NameOf,
) -> Result<Answer, Refused> {
    let chosen = chosen(shares, &request)?;
    let act = request.act;
    let (mut files, mut more) = (Vec::new(), 0);
    for (share, basket) in chosen {
        let (request, name_of) = (request.clone(), name_of.clone());
        let name = share.name.clone();
        let find = move || found(&name, basket.as_ref(), &request, &name_of);
        let found =
            tokio::task::spawn_blocking(find).await.map_err(|e| Refused::Wrong(e.to_string()))?;
        let (found, others) =
            found.map_err(|e| Refused::Wrong(format!("share {}: {e}", share.name)))?;
        more += others;
        files.extend(found.into_iter().map(|(shown, entry)| (share.clone(), shown, entry)));
    }
    files.sort_by_key(|(_, shown, entry)| {
        (std::cmp::Reverse(entry.id.at), shown.share.clone(), entry.id)
    });
    if act == Act::Restore {
        // Of files of one path, the newest comes back.
        let mut seen = BTreeSet::new();
        files.retain(|(_, shown, entry)| {
            let path = entry.record.as_ref().map(|r| r.path.clone()).unwrap_or_default();
            request.id.is_some() || seen.insert((shown.share.clone(), path))
        });
    }
    if files.is_empty() && act != Act::List {
        return Err(Refused::Nothing(
            "no such file is in the wastebasket\n  = `headgate wastebasket list` lists them".into(),
        ));
    }
    let left_out = more + files.len().saturating_sub(FILES_MAX);
    files.truncate(FILES_MAX);
    let mut done = Vec::with_capacity(files.len());
    for (share, mut shown, entry) in files {
        match act {
            Act::List => {}
            Act::Restore => restore(&share, &mut shown, &entry, &request).await,
            Act::Empty => {
                let ended = waste_keep::end(&share, entry.id).await;
                shown.error = ended.err().map(|e| e.to_string());
            }
        }
        done.push(shown);
    }
    Ok(Answer { act, files: done, left_out })
}

/// A share and its wastebasket.
type Chosen = (Arc<Share>, Arc<dyn Basket>);

/// Returns the shares of a request that can have a wastebasket.
fn chosen(shares: &[Arc<Share>], request: &Request) -> Result<Vec<Chosen>, Refused> {
    let is_it = |share: &&Arc<Share>| request.share.as_ref().is_none_or(|name| *name == share.name);
    let with = |share: &Arc<Share>| Some((share.clone(), share.backend.basket()?));
    let chosen: Vec<_> = shares.iter().filter(is_it).filter_map(with).collect();
    match &request.share {
        Some(name) if chosen.is_empty() => {
            Err(Refused::Wrong(format!("there is no share `{name}` with a folder on this host")))
        }
        _ => Ok(chosen),
    }
}

/// Returns the files of one share that a request is about, at most [`FILES_MAX`] with the newest first, and the number of others.
fn found(
    share: &str,
    basket: &dyn Basket,
    request: &Request,
    name_of: &NameOf,
) -> Result<(Vec<(Shown, Entry)>, usize), VfsError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let age = |id: &Id| now.saturating_sub(Duration::from_micros(id.at)).as_secs();
    let is_in_time = |id: &Id| {
        request.since.is_none_or(|most| age(id) <= most)
            && request.older.is_none_or(|least| age(id) >= least)
    };
    let mut ids = Vec::new();
    match request.id.as_ref().map(|id| id.parse::<Id>()) {
        Some(Ok(id)) => ids.push(id),
        Some(Err(())) => {}
        None => basket.weights(&mut |weight| {
            if is_in_time(&weight.id) {
                ids.push(weight.id);
            }
            true
        })?,
    }
    ids.sort_unstable_by_key(|id| std::cmp::Reverse(id.at));
    let (mut found, mut left_out) = (Vec::new(), 0);
    for id in ids {
        let entry = match basket.entry(id) {
            // It expired meanwhile.
            Err(VfsError::NotFound) => continue,
            entry => entry?,
        };
        let shown = show(share, &entry, name_of);
        if is_wanted(&shown, &entry, request) {
            if found.len() < FILES_MAX {
                found.push((shown, entry));
            } else {
                left_out += 1;
            }
        }
    }
    Ok((found, left_out))
}

fn is_wanted(shown: &Shown, entry: &Entry, request: &Request) -> bool {
    let is_of = |user: &String| {
        let number = user.parse::<u32>().ok();
        shown.user.as_str().eq_ignore_ascii_case(user) || number == Some(shown.uid)
    };
    let is_at = |path: &String| {
        let path = path.trim_matches('/').as_bytes();
        let rest = entry.record.as_ref().and_then(|r| r.path.strip_prefix(path));
        path.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    };
    request.user.as_ref().is_none_or(is_of) && request.path.as_ref().is_none_or(is_at)
}

fn show(share: &str, entry: &Entry, name_of: &NameOf) -> Shown {
    let record = entry.record.as_ref();
    let uid = record.and_then(|r| r.uid).unwrap_or(entry.id.uid);
    let named = record.map(|r| r.user.clone()).filter(|user| !user.is_empty());
    let user = named.or_else(|| name_of(uid)).unwrap_or_else(|| uid.to_string());
    let at = UNIX_EPOCH.checked_add(Duration::from_micros(entry.id.at)).unwrap_or(UNIX_EPOCH);
    Shown {
        id: entry.id.to_string(),
        share: share.to_owned(),
        path: record.map(|r| PeerText::of(&r.path)),
        removed: entry.id.at / 1_000_000,
        date: audit::rfc3339(at),
        way: match record.map(|r| r.way) {
            Some(Way::Replaced) => "replaced",
            _ => "removed",
        }
        .into(),
        user: user.into(),
        uid,
        owner: entry.owner,
        client: record.and_then(|r| r.peer).map(|peer| peer.to_string()),
        protocol: record.map(|r| r.protocol.clone()).unwrap_or_default(),
        size: entry.size,
        used: entry.used,
        to: None,
        error: None,
    }
}

/// Returns the path at which a file is given back.
fn target(entry: &Entry, request: &Request) -> Result<Vec<u8>, String> {
    let to = request.to.as_ref().map(|to| to.trim_matches('/').as_bytes().to_vec());
    let record = entry.record.as_ref();
    match (record, to) {
        (Some(record), None) if record.is_whole => Ok(record.path.clone()),
        (_, None) => Err("its folder is not known; name a path by `--to`".into()),
        (record, Some(to)) => {
            let from = request.path.as_ref().map(|path| path.trim_matches('/').as_bytes());
            let rest = record.zip(from).and_then(|(r, from)| r.path.strip_prefix(from));
            let rest = rest.unwrap_or_default();
            let between: &[u8] = if rest.is_empty() || rest.starts_with(b"/") { b"" } else { b"/" };
            Ok([&to[..], between, rest].concat())
        }
    }
}

async fn restore(share: &Arc<Share>, shown: &mut Shown, entry: &Entry, request: &Request) {
    let to = match target(entry, request) {
        Ok(to) => to,
        Err(why) => {
            shown.error = Some(why);
            return;
        }
    };
    let Some(basket) = share.backend.basket() else { return };
    let (id, path, replace) = (entry.id, to.clone(), request.replace);
    let work = tokio::task::spawn_blocking(move || basket.restore(id, &path, replace));
    match work.await.unwrap_or(Err(VfsError::Io)) {
        Ok(()) => {
            counters().restored.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            shown.to = Some(PeerText::of(&to));
        }
        Err(VfsError::Exists) => {
            let shown_path = PeerText::of(&to);
            shown.error = Some(format!(
                "`{}` exists; name another path by `--to`, or replace it by `--replace`",
                shown_path.as_str()
            ));
        }
        Err(VfsError::CrossDevice) => {
            shown.error = Some("its place is on another file system; name a path by `--to`".into());
        }
        Err(e) => shown.error = Some(e.to_string()),
    }
}

impl Answer {
    /// Returns true if something that was asked for was not done.
    pub(crate) fn has_failed(&self) -> bool {
        self.files.iter().any(|file| file.error.is_some())
            || self.act != Act::List && self.left_out > 0
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.files.is_empty() {
            return f.write_str("the wastebasket is empty");
        }
        let unknown = || "(unknown)".to_owned();
        let at = |file: &Shown| {
            let path = file.path.as_ref().map_or_else(unknown, |path| path.as_str().to_owned());
            format!("/{}/{path}", file.share)
        };
        if self.act == Act::List {
            let mut table =
                Table::new(&["removed", "user", "from", "path", "id", "bytes"], 5, false);
            for file in &self.files {
                let from = match (&file.client, &*file.protocol) {
                    (Some(client), protocol) => format!("{client} {protocol}"),
                    (None, _) => "-".into(),
                };
                let date = file.date.split('.').next().unwrap_or_default().to_owned() + "Z";
                let user = file.user.as_str().to_owned();
                let cells =
                    vec![date, user, from, at(file), file.id.clone(), file.size.to_string()];
                table.row(cells, Tone::Plain);
            }
            f.write_str(table.render().trim_end())?;
        } else {
            let did = if self.act == Act::Restore { "restored" } else { "removed" };
            for (n, file) in self.files.iter().enumerate() {
                let end = if n == 0 { "" } else { "\n" };
                match (&file.error, &file.to) {
                    (Some(why), _) => {
                        write!(f, "{end}not {did}: {} ({}): {why}", at(file), file.id)?
                    }
                    (None, Some(to)) => write!(f, "{end}{did}: /{}/{}", file.share, to.as_str())?,
                    (None, None) => write!(f, "{end}{did}: {} ({})", at(file), file.id)?,
                }
            }
        }
        match self.left_out {
            0 => Ok(()),
            left_out => write!(f, "\nand {left_out} more"),
        }
    }
}
