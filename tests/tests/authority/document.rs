//! The end of `docs/permissions.md`: written from what was seen, and read to be compared with it.

use std::fmt::Write;
use std::path::PathBuf;

use crate::{Caller, Op, Seen};

const BEGIN: &str = "<!-- Written by tests/tests/authority: do not edit below. -->\n";

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/permissions.md")
}

fn named(op: Op) -> &'static str {
    match op {
        Op::Read => "read",
        Op::Write => "write",
        Op::Truncate => "cut",
        Op::Create => "make a file beside it",
        Op::Mkdir => "make a folder beside it",
        Op::Symlink => "make a symbolic link beside it",
        Op::Fifo => "make a pipe beside it",
        Op::Device => "make a device beside it",
        Op::Remove => "remove",
        Op::RenameIn => "rename in its folder",
        Op::RenameOut => "rename to a folder of everybody",
        Op::Replace => "rename one's own file onto it",
        Op::Link => "link in a folder of everybody",
        Op::LinkReplace => "link one's own file over it",
        Op::Chmod => "set the mode",
        Op::SetGroup => "give it to one's own group",
        Op::SetForeignGroup => "give it to another group",
        Op::GiveAway => "give it to another user",
        Op::SetTimes => "set times",
        Op::SetList => "set a list",
    }
}

/// `yes`, `-`, or by what it is allowed where that makes a difference.
fn cell(ways: &[Option<bool>; 3]) -> String {
    let all: Vec<bool> = ways.iter().flatten().copied().collect();
    if all.iter().all(|may| *may) {
        return "yes".into();
    }
    if !all.contains(&true) {
        return "-".into();
    }
    let names = ["NFS 3", "NFS 4", "SMB"];
    let may = names.iter().zip(ways).filter(|(_, way)| **way == Some(true));
    may.map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

fn text(table: &[Seen]) -> String {
    let mut out = String::new();
    let mut shapes: Vec<&str> = Vec::new();
    for seen in table {
        if !shapes.contains(&seen.shape) {
            shapes.push(seen.shape);
        }
    }
    for shape in shapes {
        let _ = write!(
            out,
            "\n### {shape}\n\n| to | root | owner | member of its group | other | listed |\n|---|---|---|---|---|---|\n"
        );
        for op in Op::ALL {
            let _ = write!(out, "| {} |", named(op));
            for caller in Caller::ALL {
                let of = |s: &&Seen| s.shape == shape && s.op == op && s.caller == caller;
                let seen = table.iter().find(of).unwrap();
                let _ = write!(out, " {} |", cell(&seen.ways));
            }
            out.push('\n');
        }
    }
    out
}

/// Compares the page with what was seen, or with `HEADGATE_UPDATE` writes it anew; what stands above the mark is kept.
pub(crate) fn compare(table: &[Seen]) {
    let whole = std::fs::read_to_string(path()).unwrap();
    let (head, known) = whole.split_once(BEGIN).unwrap_or((&whole, ""));
    let now = text(table);
    if std::env::var_os("HEADGATE_UPDATE").is_some() {
        std::fs::write(path(), format!("{head}{BEGIN}{now}")).unwrap();
    } else {
        assert!(known == now, "docs/permissions.md is out of date: HEADGATE_UPDATE=1 writes it");
    }
}
