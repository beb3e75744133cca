//! Counts wordings in comments and documentation that readers of English stumble over, and compares the count with a budget.
//!
//! A sentence with such a wording is a signal, not proof of a fault, so each crate has a budget in per cent instead of a ban. The
//! same expressions find 2 to 4 % of the comment sentences of smoltcp, cloud-hypervisor and quinn.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use regex::Regex;

use crate::sh::{Result, Tally, output, tracked_files};

/// Per cent of sentences that may have such a wording.
const BUDGET: usize = 5;

/// Crates, and `*.md` for documentation, that are still above [`BUDGET`], with what they may have. The numbers only fall.
const ABOVE: &[(&str, usize)] = &[];

/// Expressions and what to write instead.
const WORDINGS: [(&str, &str); 14] = [
    (
        r"^(What|Who|Whoever|Whom|Whose|That which|Which)\b.*[^?]$",
        "name the subject: Clients that ..., The attributes ...",
    ),
    (r"\b([Nn]obody|[Nn]othing|[Nn]one)\b", "say what holds: no client, never"),
    (
        r"\b([Ss]omebody|[Aa]nybody|[Ww]hoever|[Ee]verybody|whom)\b",
        "client, caller, user, holder, peer",
    ),
    (
        concat!(
            r"\b(is|are|was|were|be|been|being) ",
            r"(told|asked|said|let|waited|heard|had|looked|given back|taken back|taken up|begun|meant)\b",
        ),
        "returns, reports, requests, allows, waits for",
    ),
    (
        r"\bby (TCP|UDP|RDMA|NFS\w*|SMB|SMB Direct|iWARP|TLS|RPC|krb5\w*|IPv\d|verbs|Send)\b",
        "over, via, with",
    ),
    (r"\b(that of|those of|that is of|that are of|is of|are of)\b", "repeat the noun"),
    (r"\b(stands?|stood|lies|lie there|lay there)\b", "is, is stored, resides"),
    (r"\bof (its|their|our|one's|his) own\b", "its own X, a separate X"),
    (
        r"\b([Bb]esides?|anew|by itself|by themselves|for good|in order that|at the longest|as ever|alone)\b",
        "next to, again, only, at most",
    ),
    (
        r"^(With|Of|As|By|For|Without|Beside|So|And|From|Until|Under|To be)\b[^.;:]*[.:;]?$",
        "a sentence with its verb first: Returns, Builds",
    ),
    (
        r"\b(in the way|in its way|has (no|a) place|finds? no place|in turn|its turn|their turn|gives? way)\b",
        "conflicts, queued, evicts",
    ),
    (
        r"\b(what there is|that there is|is there|are there|there yet|there already|goes on|go on|stays? there)\b",
        "exists, continues",
    ),
    (
        r"\b(is so|are so|does so|do so|not so|as it is|as it was|as they are|as they were|as such|so it is)\b",
        "say what it is",
    ),
    (r"\b(comes? to be|is to be|are to be|has to be|have to be|is to\b|are to\b)", "must, will"),
];

/// Words that begin a subject which names a thing instead of the change.
const SUBJECT: &str = r"(?i)^[\w ,/.-]+: (an?|the|what|who|whom|whoever|whose|no|nobody|one|every|how|why|each|there)\b";
/// Columns of a commit's subject.
const SUBJECT_COLUMNS_MAX: usize = 72;
/// Commits whose subjects are checked.
const SUBJECTS_CHECKED: &str = "40";

/// Checks the comments of each crate, the documentation, and the subjects of the last commits.
pub(crate) fn check() -> Result<Tally> {
    let mut tally = Tally::default();
    let wordings = compiled()?;
    let mut groups: BTreeMap<String, Count> = BTreeMap::new();
    for file in tracked_files()? {
        let is_rust = has_ext(&file, "rs");
        if !is_rust && !has_ext(&file, "md") {
            continue;
        }
        let Ok(text) = fs::read_to_string(&file) else { continue };
        let group = groups.entry(group_of(&file)).or_default();
        for (line, sentence) in sentences(&text, is_rust) {
            group.add(&file, line, &sentence, &wordings);
        }
    }
    for (name, count) in groups {
        tally.count(&format!("words of {name}"), count.judge(&name));
    }
    if Path::new(".git").exists() {
        let subjects =
            output(&["git", "log", "--no-merges", "--format=%s", "-n", SUBJECTS_CHECKED])?;
        tally.count("subjects of commits", judge_subjects(&subjects)?);
    }
    Ok(tally)
}

/// Prints each sentence with such a wording below a path.
pub(crate) fn list(prefix: &str) -> Result<()> {
    let wordings = compiled()?;
    for file in tracked_files()?.into_iter().filter(|file| file.starts_with(prefix)) {
        let is_rust = has_ext(&file, "rs");
        if !is_rust && !has_ext(&file, "md") {
            continue;
        }
        let Ok(text) = fs::read_to_string(&file) else { continue };
        for (line, sentence) in sentences(&text, is_rust) {
            for (_, instead) in wordings.iter().filter(|(r, _)| r.is_match(&sentence)) {
                println!("{file}:{line}: {sentence} [{instead}]");
            }
        }
    }
    Ok(())
}

/// Sentences of a crate, and those with a wording.
#[derive(Default)]
struct Count {
    all: usize,
    hits: usize,
    first: Option<String>,
}

impl Count {
    fn add(&mut self, file: &str, line: usize, sentence: &str, wordings: &[(Regex, &str)]) {
        self.all += 1;
        if wordings.iter().any(|(r, _)| r.is_match(sentence)) {
            self.hits += 1;
            self.first.get_or_insert_with(|| format!("{file}:{line}"));
        }
    }

    fn judge(&self, name: &str) -> Result<()> {
        let budget = ABOVE.iter().find(|(n, _)| *n == name).map_or(BUDGET, |(_, budget)| *budget);
        // A crate of a few sentences may have one.
        if self.hits <= 1 || self.hits * 100 <= budget * self.all {
            return Ok(());
        }
        let first = self.first.as_deref().unwrap_or_default();
        Err(format!(
            "{} of {} sentences, more than {budget} %: `cargo xtask prose {name}` lists them, the first is {first}",
            self.hits, self.all
        ))
    }
}

fn judge_subjects(subjects: &str) -> Result<Result<()>> {
    let bad = Regex::new(SUBJECT).map_err(|e| e.to_string())?;
    let found: Vec<&str> = subjects.lines().filter(|s| bad.is_match(s)).collect();
    Ok(if found.is_empty() {
        Ok(())
    } else {
        Err(format!("these begin with an article or pronoun, not a verb: {}", found.join("; ")))
    })
}

/// Checks the message of a commit that Git is about to make: the hook `.githooks/commit-msg` passes its file.
///
/// # Errors
/// Says what the subject must look like.
pub(crate) fn check_message(file: &str) -> Result<()> {
    let message = fs::read_to_string(file).map_err(|e| format!("{file}: {e}"))?;
    let subject = message.lines().find(|l| !l.starts_with('#')).unwrap_or_default();
    judge_subject(subject)
}

fn judge_subject(subject: &str) -> Result<()> {
    // Git itself writes these.
    if ["Merge ", "Revert ", "fixup! ", "squash! "].iter().any(|git| subject.starts_with(git)) {
        return Ok(());
    }
    let area = Regex::new(r"^[a-z0-9][a-z0-9., -]*: \S").map_err(|e| e.to_string())?;
    if !area.is_match(subject) || subject.chars().count() > SUBJECT_COLUMNS_MAX {
        return Err(format!(
            "{subject:?} is not `area: imperative summary` in {SUBJECT_COLUMNS_MAX} columns"
        ));
    }
    judge_subjects(subject)?
}

fn compiled() -> Result<Vec<(Regex, &'static str)>> {
    let each = WORDINGS.iter().map(|(r, instead)| Regex::new(r).map(|r| (r, *instead)));
    each.collect::<std::result::Result<_, _>>().map_err(|e| e.to_string())
}

fn has_ext(file: &str, ext: &str) -> bool {
    Path::new(file).extension().is_some_and(|e| e == ext)
}

/// The crate that a file belongs to, or `*.md`.
fn group_of(file: &str) -> String {
    if has_ext(file, "md") {
        return "*.md".to_owned();
    }
    let parts: Vec<&str> = file.split('/').collect();
    let depth = match parts.as_slice() {
        ["crates", "sys", ..] => 3,
        ["crates", ..] => 2,
        _ => 1,
    };
    parts.iter().take(depth).copied().collect::<Vec<_>>().join("/")
}

/// The sentences of comments (Rust) or of paragraphs and table rows (Markdown), each with the line where its block begins.
fn sentences(text: &str, is_rust: bool) -> Vec<(usize, String)> {
    let blocks = if is_rust { comments(text) } else { paragraphs(text) };
    let least = if is_rust { 4 } else { 5 };
    let mut found = Vec::new();
    for (line, block) in blocks {
        for sentence in split(&block) {
            let is_row = is_rust && sentence.starts_with('|');
            let is_apart = sentence.starts_with("SAFETY") || sentence.contains("```") || is_row;
            if !is_apart && sentence.split_whitespace().count() >= least {
                found.push((line, sentence));
            }
        }
    }
    found
}

/// Splits after `.`, `:` or `;` where a capital, a quote or a bracket follows.
fn split(block: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut sentence = String::new();
    let mut words = block.split_whitespace().peekable();
    while let Some(word) = words.next() {
        if !sentence.is_empty() {
            sentence.push(' ');
        }
        sentence.push_str(word);
        let begins = |next: &&str| {
            next.starts_with(|c: char| c.is_ascii_uppercase() || matches!(c, '`' | '"' | '(' | '*'))
        };
        if word.ends_with(['.', ':', ';']) && words.peek().is_some_and(begins) {
            found.push(std::mem::take(&mut sentence));
        }
    }
    if !sentence.is_empty() {
        found.push(sentence);
    }
    found
}

/// Blocks of comment lines.
fn comments(text: &str) -> Vec<(usize, String)> {
    let mut blocks: Vec<(usize, String)> = Vec::new();
    let mut is_open = false;
    for (n, line) in text.lines().enumerate() {
        let Some(comment) = line.trim_start().strip_prefix("//") else {
            is_open = false;
            continue;
        };
        let comment = comment.strip_prefix(['/', '!']).unwrap_or(comment).trim();
        match blocks.last_mut().filter(|_| is_open) {
            Some((_, block)) => {
                block.push(' ');
                block.push_str(comment);
            }
            None => blocks.push((n + 1, comment.to_owned())),
        }
        is_open = true;
    }
    blocks
}

/// Paragraphs and rows of tables, without code and headings.
fn paragraphs(text: &str) -> Vec<(usize, String)> {
    let mut blocks: Vec<(usize, String)> = Vec::new();
    let (mut is_code, mut is_open) = (false, false);
    for (n, line) in text.lines().enumerate() {
        let is_fence = line.starts_with("```");
        is_code ^= is_fence;
        let is_row = line.starts_with('|');
        if is_code || is_fence || line.starts_with('#') || line.trim().is_empty() || is_row {
            is_open = false;
            if is_row && !is_code {
                blocks.push((n + 1, line.to_owned()));
            }
            continue;
        }
        match blocks.last_mut().filter(|_| is_open) {
            Some((_, block)) => {
                block.push(' ');
                block.push_str(line.trim());
            }
            None => blocks.push((n + 1, line.trim().to_owned())),
        }
        is_open = true;
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits(text: &str, is_rust: bool) -> usize {
        let wordings = compiled().unwrap();
        let all = sentences(text, is_rust);
        all.iter().filter(|(_, s)| wordings.iter().any(|(r, _)| r.is_match(s))).count()
    }

    #[test]
    fn wordings_in_comments_are_found() {
        let text = "/// Whoever asks is told nothing of it.\n/// Returns the number of open handles.\nfn f() {}\n";
        assert_eq!(sentences(text, true).len(), 2);
        assert_eq!(hits(text, true), 1);
        assert_eq!(hits("let s = \"nobody is told of this\";\n", true), 0);
        assert_eq!(hits("// SAFETY: nobody else has the pointer.\n", true), 0);
    }

    #[test]
    fn markdown_code_is_not_counted() {
        let text = "# Nobody is told of it\n\n```\nnobody is told of it\n```\n| nobody | is told of it |\n";
        assert_eq!(hits(text, false), 1);
    }

    #[test]
    fn subjects_begin_with_a_verb() {
        assert!(judge_subjects("smb: refuse a name").unwrap().is_ok());
        assert!(judge_subjects("smb: a name is refused").unwrap().is_err());
    }

    #[test]
    fn hook_refuses_subjects_out_of_form() {
        for good in ["nfs4: refuse a name", "smb, acl: mend lists", "Merge branch 'x'"] {
            assert!(judge_subject(good).is_ok(), "{good}");
        }
        let long = format!("smb: {}", "x".repeat(68));
        for bad in ["", "refuse a name", "Smb: refuse", "smb:refuse", "smb: the name", &long] {
            assert!(judge_subject(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn budgets_judge_each_crate() {
        let count = |all, hits| Count { all, hits, first: None };
        assert!(count(100, 5).judge("vfs").is_ok());
        assert!(count(100, 90).judge("vfs").is_err());
        assert_eq!(group_of("crates/sys/dylib/src/lib.rs"), "crates/sys/dylib");
        assert_eq!(group_of("crates/wire/src/lib.rs"), "crates/wire");
        assert_eq!(group_of("docs/tls.md"), "*.md");
    }
}
