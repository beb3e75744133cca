//! The command `headgate wastebasket`.

use std::path::Path;
use std::sync::Arc;

use clap::{Args, Subcommand};
use config::{Age, Known, Options, Source};
use vfs::local::SealKey;
use vfs::namespace::Share;

use super::{Act, Answer, Refused as NotDone, Request, perform};
use crate::boot;
use crate::control::client::{self as control, Refused};
use crate::place::DaemonArgs;
use crate::shares::ShareSet;

#[derive(Debug, Args)]
pub(crate) struct WastebasketArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List files that clients removed or replaced: when, who, from where, and the path; the newest first
    List {
        /// Only this share
        #[arg(value_name = "SHARE")]
        share: Option<String>,
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        order: Order,
    },
    /// Give files back at the path where they were
    Restore {
        /// The share
        #[arg(value_name = "SHARE")]
        share: String,
        /// The id of a file as `list` shows it, or the path in the share at which a file was, or a folder with all files in it; of
        /// several files of one path, the one removed last
        #[arg(value_name = "ID-OR-PATH", conflicts_with = "path")]
        what: String,
        /// Give it back at this path of the share
        #[arg(long, value_name = "PATH")]
        to: Option<String>,
        /// Replace files that are there
        #[arg(long)]
        replace: bool,
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        order: Order,
    },
    /// Remove files for good
    Empty {
        /// The share
        #[arg(value_name = "SHARE")]
        share: String,
        /// Only the file with this id, or the files that were at this path or below it
        #[arg(value_name = "ID-OR-PATH", conflicts_with = "path")]
        what: Option<String>,
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        order: Order,
    },
}

/// Selects files.
#[derive(Debug, Args)]
struct Which {
    /// Only files that this user removed: a name or a number
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// Only files that were at this path of the share, or below it
    #[arg(long, value_name = "PATH")]
    path: Option<String>,
    /// Only files that were removed within this time: `2d`, `12h`, `30m`
    #[arg(long, value_name = "TIME")]
    since: Option<Age>,
    /// Only files that were removed before this time
    #[arg(long, value_name = "TIME")]
    older: Option<Age>,
}

#[derive(Debug, Args)]
struct Order {
    #[command(flatten)]
    told: DaemonArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Command {
    /// Returns the request, and where it goes.
    fn request(self) -> (Request, Order) {
        let (act, share, what, to, replace, which, order) = match self {
            Self::List { share, which, order } => {
                (Act::List, share, None, None, false, which, order)
            }
            Self::Restore { share, what, to, replace, which, order } => {
                (Act::Restore, Some(share), Some(what), to, replace, which, order)
            }
            Self::Empty { share, what, which, order } => {
                (Act::Empty, Some(share), what, None, false, which, order)
            }
        };
        let is_id = |what: &String| what.parse::<vfs::waste_record::Id>().is_ok();
        let seconds = |age: Option<Age>| age.map(|age| age.0.as_secs());
        let request = Request {
            act,
            share,
            id: what.clone().filter(is_id),
            path: what.filter(|what| !is_id(what)).or(which.path),
            user: which.user,
            since: seconds(which.since),
            older: seconds(which.older),
            to,
            replace,
        };
        (request, order)
    }
}

/// Carries the command out; returns the output, and whether all of it was done.
pub(crate) async fn run(
    args: WastebasketArgs,
    known: fn() -> Known,
) -> Result<(String, bool), Refused> {
    let (request, Order { told, json }) = args.command.request();
    let state = told.state();
    let answer = if control::is_deserted(&state).await {
        let shares = shares_of(&told, request.share.as_deref(), known()).map_err(Refused::Wrong)?;
        let name_of = Arc::new(|uid| vfs::accounts::name_of(uid).ok().flatten());
        perform(&shares, request, name_of).await.map_err(|why| match why {
            NotDone::Wrong(why) => Refused::Wrong(format!("error: {why}")),
            NotDone::Nothing(why) => Refused::Failed(format!("error: {why}")),
        })?
    } else {
        control::wastebasket(&state, &request).await?
    };
    let is_done = !answer.has_failed();
    Ok((shown(&answer, json), is_done))
}

fn shown(answer: &Answer, json: bool) -> String {
    if json { serde_json::to_string(answer).unwrap_or_default() } else { answer.to_string() }
}

/// Opens the shares of a daemon that does not run.
fn shares_of(
    told: &DaemonArgs,
    name: Option<&str>,
    known: Known,
) -> Result<Vec<Arc<Share>>, String> {
    let file = crate::place::file_or(told.config.as_deref(), Path::new(crate::place::USUAL_FILE));
    let Some(file) = file else {
        let socket = crate::control::path(&told.state());
        return Err(format!(
            "error: no daemon listens at {}, and there is no configuration file\n  = name its state folder by `--state DIR`, or \
             its file by `--config FILE`",
            socket.display()
        ));
    };
    let known = Known { password: |_| Ok(()), keytab: |_| Ok(()), ..known };
    let options = Options { state: told.state.clone(), ..Options::default() };
    let mut settings =
        config::load(Some(&file), options, known).map_err(|faults| faults.to_string())?;
    settings.shares.retain(|share| {
        matches!(share.source, Source::Folder(_)) && name.is_none_or(|name| name == share.name)
    });
    let seal = boot::handle_key(&settings).map_err(|why| format!("error: {why}"))?;
    let none = match seal {
        Some(key) => ShareSet::sealed(SealKey::derived(&key)),
        None => ShareSet::default(),
    };
    let open = none.next(&settings, &|_| None).map_err(|why| format!("error: {why}"))?;
    Ok(open.shares().to_vec())
}
