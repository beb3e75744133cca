//! Tests two clients at once, each a separate process: one holds a file open for each share mode, the other opens these files.
//!
//! The first is `smb2.hold-sharemode`, which holds until it is killed, and so neither passes nor fails. The second is
//! `smb2.check-sharemode`, once for each file and each right: it must be refused exactly the rights that the first does not share.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use super::run::{self, Server, Verdict};
use crate::sh::Result;

pub(super) const TEST: &str = "smb2.check-sharemode";
const HOLDER: &str = "smb2.hold-sharemode";
/// Message of the holder when it has every file open.
const HOLDS: &str = "Waiting for SIGINT";

/// The files are named after their share modes.
const FILES: [&str; 8] = ["N", "R", "W", "D", "RW", "RD", "WD", "RWD"];
/// A right by the letter of its share mode, its bit, and the operation that the test does: an empty file has no data to read. A
/// removed file cannot be opened again, so removal comes last.
const RIGHTS: [(&str, &str, &str); 3] =
    [("R", "0x1", "-"), ("W", "0x2", "W"), ("D", "0x10000", "D")];
const REFUSED: &str = "NT_STATUS_SHARING_VIOLATION";

/// A client that holds files open until it is dropped.
struct Holder(Child);

impl Holder {
    fn begin(server: &Server, worker: usize, place: &Path) -> Result<Holder> {
        run::prepare(place, worker).map_err(|e| format!("{}: {e}", place.display()))?;
        let mut command = server.command(HOLDER, worker);
        command.current_dir(place).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.stderr(Stdio::piped()).spawn();
        let mut holder = Holder(child.map_err(|e| format!("cannot run smbtorture: {e}"))?);
        let said = holder.0.stderr.take().map(BufReader::new);
        let mut lines = said.into_iter().flat_map(BufRead::lines).map_while(|line| line.ok());
        let holds = lines.any(|line| line.starts_with(HOLDS));
        if holds { Ok(holder) } else { Err(format!("{HOLDER} holds nothing")) }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // The process passes the signal on to the test. It may have ended before.
        let _ = crate::sh::output(&["kill", "-TERM", &self.0.id().to_string()]);
        let _ = self.0.wait();
    }
}

/// Returns the result, and the second client's output if it failed.
pub(super) fn check(server: &Server, worker: usize, place: &Path) -> (Verdict, String) {
    let held = place.with_extension("held");
    let done = match Holder::begin(server, worker, &held) {
        Ok(_holder) => every_way(server, worker, place),
        Err(why) => (Verdict::Failure(why), String::new()),
    };
    let _ = fs::remove_dir_all(&held);
    done
}

fn every_way(server: &Server, worker: usize, place: &Path) -> (Verdict, String) {
    for file in FILES {
        for (right, access, operation) in RIGHTS {
            let mut command = server.command(TEST, worker);
            let told = [
                format!("filename=sharemode_hold_test\\{file}"),
                format!("access={access}"),
                format!("operation={operation}"),
                "sharemode=RWD".to_owned(),
            ];
            command.args(told.map(|option| format!("--option=torture:{option}")));
            let (verdict, log) = run::alone(command, worker, place);
            let is_right = match (&verdict, file.contains(right)) {
                (Verdict::Success, is_shared) => is_shared,
                (Verdict::Failure(why), false) => why.contains(REFUSED),
                _ => false,
            };
            if !is_right {
                let why = format!("{right} of a file that is shared for {file}: {verdict}");
                return (Verdict::Failure(why), log);
            }
        }
    }
    (Verdict::Success, String::new())
}
