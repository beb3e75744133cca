//! Writes the observed results to `table.md` in this folder, and compares them with it.

use std::fmt::Write;
use std::path::PathBuf;

use crate::shape::Shape;
use crate::stateids::{Asked, Comer, Use};
use crate::{Caller, Op, Seen};

const BEGIN: &str = "<!-- Written by tests/tests/authority: do not edit below. -->\n";
/// Name of the section of stateids.
const STATEIDS: &str = "by what another holds, NFS 4";
/// Name of the section of modes.
const MODES: &str = "modes of what is new";
/// Longest line of a page.
const LINE_MAX: usize = 132;

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/authority/table.md")
}

fn named(caller: Caller) -> &'static str {
    match caller {
        Caller::Root => "root",
        Caller::Owner => "owner",
        Caller::Group => "its group",
        Caller::Member => "member",
        Caller::Other => "other",
        Caller::Listed => "listed",
        Caller::Squashed => "squashed",
        Caller::Guest => "guest",
    }
}

/// `yes`, `-`, or the protocols that allow it if they differ.
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

/// The section of one shape: operations with equal rights for all callers share a row.
fn section(shape: &Shape, table: &[Seen]) -> String {
    let mut rows: Vec<(String, String)> = Vec::new();
    for (op, name) in Op::ALL {
        let mut cells = String::new();
        for caller in Caller::ALL {
            let of = |s: &&Seen| s.shape == shape.name && s.op == op && s.caller == caller;
            let seen = table.iter().find(of).unwrap();
            let _ = write!(cells, " {} |", cell(&seen.ways));
        }
        let room = LINE_MAX - cells.len() - name.len() - 6;
        match rows.iter_mut().find(|(names, its)| *its == cells && names.len() <= room) {
            Some((names, _)) => {
                let _ = write!(names, ", {name}");
            }
            None => rows.push((name.to_owned(), cells)),
        }
    }
    let heads: Vec<&str> = Caller::ALL.into_iter().map(named).collect();
    let mut out = format!(
        "\n### {}\n\n| to | {} |\n|{}\n",
        shape.name,
        heads.join(" | "),
        "---|".repeat(heads.len() + 1)
    );
    for (names, cells) in rows {
        let _ = writeln!(out, "| {names} |{cells}");
    }
    out
}

/// The section of modes: those on the host after the superuser has created something over each protocol.
fn modes(table: &[Seen]) -> String {
    let mut out = format!(
        "\n### {MODES}\n\nNFS asks for 0644, for a folder 0755, and for a pipe 0600; SMB asks for no mode.\n\n\
         | in a folder with | a new | NFS 3 | NFS 4 | SMB |\n|---|---|---|---|---|\n"
    );
    for shape in crate::shape::OF_NEW {
        for (op, what) in [(Op::Create, "file"), (Op::Mkdir, "folder"), (Op::Fifo, "pipe")] {
            let of = |s: &&Seen| s.shape == shape && s.op == op && s.caller == Caller::Root;
            let seen = table.iter().find(of).unwrap();
            let cells =
                seen.modes.map(|mode| mode.map_or("-".into(), |mode| format!("{mode:04o}")));
            let _ = writeln!(out, "| {shape} | {what} | {} |", cells.join(" | "));
        }
    }
    out
}

/// The section of stateids.
fn stateids(asked: &[Asked]) -> String {
    let heads: Vec<&str> = Comer::ALL.into_iter().map(|(_, name)| name).collect();
    let mut out = format!(
        "\n### {STATEIDS}\n\nThe mode of the file is 0600. A client may use only its own stateids. A user needs rights to the \
         file where the file is used;\ngiving state back needs no rights.\n\n| to | {} |\n|{}\n",
        heads.join(" | "),
        "---|".repeat(heads.len() + 1)
    );
    for (what, name) in Use::ALL {
        let of = |comer| asked.iter().find(|a| a.what == what && a.comer == comer).unwrap().done;
        let cells = Comer::ALL.map(|(comer, _)| if of(comer) { "yes" } else { "-" });
        let _ = writeln!(out, "| {name} | {} |", cells.join(" | "));
    }
    out
}

/// Compares the page with the results, or rewrites it with `HEADGATE_UPDATE`; the text above the mark is kept, and so are sections
/// of shapes that this file system does not support.
pub(crate) fn compare(table: &[Seen], asked: &[Asked]) {
    let whole = std::fs::read_to_string(path()).unwrap();
    let (head, known) = whole.split_once(BEGIN).unwrap_or((&whole, ""));
    let (mut now, mut old) = (String::new(), String::new());
    for shape in crate::shape::all() {
        let kept = known.split("\n### ").find(|s| s.starts_with(&format!("{}\n", shape.name)));
        let kept = kept.map_or(String::new(), |s| format!("\n### {}\n", s.trim_end()));
        let seen = table.iter().any(|s| s.shape == shape.name);
        now += &if seen { section(&shape, table) } else { kept.clone() };
        old += &kept;
    }
    for (name, its) in [(MODES, modes(table)), (STATEIDS, stateids(asked))] {
        let kept = known.split("\n### ").find(|s| s.starts_with(name));
        old += &kept.map_or(String::new(), |s| format!("\n### {}\n", s.trim_end()));
        now += &its;
    }
    let cells: usize = table.iter().map(|seen| seen.ways.iter().flatten().count()).sum();
    println!("{cells} cells were asked");
    if std::env::var_os("HEADGATE_UPDATE").is_some() {
        std::fs::write(path(), format!("{head}{BEGIN}{now}")).unwrap();
    } else {
        assert!(
            old == now,
            "tests/tests/authority/table.md is out of date: HEADGATE_UPDATE=1 writes it"
        );
    }
}
