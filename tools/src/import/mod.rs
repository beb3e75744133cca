//! `headgate import FILE...`: makes a configuration from Samba's smb.conf, from /etc/exports, or from both.
//!
//! *Operation.* Converts each file to shares and a few settings ([`samba`], [`exports`]), joins shares of one folder into
//! one, and writes the result as YAML to standard output ([`write`]). Lines that could not be carried over go to standard
//! error, one line for each with its consequence.
//!
//! *Errors.* A share whose restrictions have no counterpart is written as a comment, with the reasons above it. A share is
//! served over the protocol that served it before, and over both if both files have its folder.

mod dialect;
mod exports;
mod forms;
mod fruit;
mod interfaces;
mod keys;
mod ldap;
mod recycle;
mod referrals;
mod samba;
mod shadow;
mod users;
mod write;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use config::{
    Access, Cidr, Client, Encryption, Export, Force, Masks, Mode, NfsLocks, Protocols, Refer,
    Signing, Squash,
};
use fruit::Fruit;
use recycle::Recycle;
use shadow::Shadow;
use users::Lists;

/// Maximum size of a file in bytes.
const FILE_BYTES_MAX: usize = 4 << 20;

/// Options of `headgate import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// smb.conf, /etc/exports, or both; their contents tell which is which
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// Contents of the files, as far as the configuration can express them.
#[derive(Debug, Default)]
struct Imported {
    shares: Vec<Share>,
    bind: Vec<std::net::IpAddr>,
    smb_port: Option<u16>,
    signing: Option<Signing>,
    encryption: Option<Encryption>,
    /// The model that macOS shows.
    model: Option<config::Model>,
    /// The directory that has Samba's users.
    ldap: ldap::OfLdap,
    source_ports: exports::SourcePorts,
    notes: Vec<Note>,
}

/// A share, and the reasons why it cannot be served as before.
#[derive(Debug)]
struct Share {
    name: String,
    path: String,
    protocols: Protocols,
    read_only: bool,
    squash: Option<Squash>,
    clients: Option<Vec<Client>>,
    view: View,
    export: Option<Export>,
    access: Option<Access>,
    /// Lists from which `access` is made after all files are read.
    lists: Lists,
    force: Force,
    encrypt: bool,
    guest: bool,
    said: Said,
    locking: Locking,
    shadow: Shadow,
    /// The pattern of its snapshots.
    snapshots: Option<String>,
    /// Settings of Samba's recycle bin.
    recycle: Recycle,
    /// Settings of Samba's module for macOS.
    fruit: Fruit,
    comment: String,
    /// The servers that have the share; it is then served there alone.
    refer: Vec<Refer>,
    /// The servers to which exports(5) refers some of its clients, an entry for each client.
    sent: Vec<Vec<Refer>>,
    /// Restrictions without a counterpart: with any, the share is written as a comment.
    lost: Vec<String>,
}

impl Share {
    fn new(name: &str, path: &str, protocols: Protocols) -> Self {
        Self {
            name: name.to_owned(),
            path: path.to_owned(),
            protocols,
            read_only: false,
            squash: None,
            clients: None,
            view: View::default(),
            export: None,
            access: None,
            lists: Lists::default(),
            force: Force::default(),
            encrypt: false,
            guest: false,
            said: Said::default(),
            locking: Locking::default(),
            shadow: Shadow::default(),
            snapshots: None,
            recycle: Recycle::default(),
            fruit: Fruit::default(),
            comment: String::new(),
            refer: Vec::new(),
            sent: Vec::new(),
            lost: Vec::new(),
        }
    }
}

/// Values of a section of smb.conf, for which `[global]` may give defaults. Unset values are `None`.
#[derive(Clone, Debug, Default)]
struct Said {
    read_only: Option<bool>,
    guest: Option<bool>,
    guest_only: Option<bool>,
    encrypt: Option<bool>,
    clients: Option<Vec<Client>>,
    /// `hosts deny` names all hosts.
    denies_all: Option<bool>,
    force: Force,
}

impl Said {
    /// Returns these values, and takes unset ones from `other`.
    fn or(self, other: &Self) -> Self {
        Self {
            read_only: self.read_only.or(other.read_only),
            guest: self.guest.or(other.guest),
            guest_only: self.guest_only.or(other.guest_only),
            encrypt: self.encrypt.or(other.encrypt),
            clients: self.clients.or_else(|| other.clients.clone()),
            denies_all: self.denies_all.or(other.denies_all),
            force: Force {
                user: self.force.user.or_else(|| other.force.user.clone()),
                group: self.force.group.or_else(|| other.force.group.clone()),
            },
        }
    }
}

/// Modes of new files and folders in smb.conf: the bits that may be set, and the bits that are always set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Modes {
    file: (Option<u32>, Option<u32>),
    folder: (Option<u32>, Option<u32>),
}

/// Visibility of a share and modes of its new files. Unset values are `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct View {
    hidden: Option<bool>,
    only_visible: Option<bool>,
    /// File systems that are mounted inside are not served.
    hides_mounts: Option<bool>,
    /// The server does not follow symbolic links.
    leaves_links: Option<bool>,
    /// Symbolic links with the text `msdfs:...` lead to other servers.
    msdfs: Option<bool>,
    modes: Modes,
}

impl View {
    /// Returns these values, and takes unset ones from `other`.
    fn or(self, other: Self) -> Self {
        Self {
            hidden: self.hidden.or(other.hidden),
            only_visible: self.only_visible.or(other.only_visible),
            hides_mounts: self.hides_mounts.or(other.hides_mounts),
            leaves_links: self.leaves_links.or(other.leaves_links),
            msdfs: self.msdfs.or(other.msdfs),
            modes: self.modes.or(other.modes),
        }
    }
}

impl Modes {
    fn or(self, other: Self) -> Self {
        type Bits = (Option<u32>, Option<u32>);
        let either = |a: Bits, b: Bits| (a.0.or(b.0), a.1.or(b.1));
        Self { file: either(self.file, other.file), folder: either(self.folder, other.folder) }
    }

    /// Returns the modes as masks. smb.conf(5): 0744 and 0755 are the defaults for the bits that may be set.
    fn masks(self) -> Masks {
        let mask = |(may, are): (Option<u32>, Option<u32>), usual: u32, known: u32| {
            may.or(are).map(|_| Mode((may.unwrap_or(usual) | are.unwrap_or(0)) & known))
        };
        Masks { file: mask(self.file, 0o744, 0o777), folder: mask(self.folder, 0o755, 0o3777) }
    }
}

/// Settings of smb.conf about locks that SMB clients did not take. Unset values are `None`.
#[derive(Clone, Copy, Debug, Default)]
struct Locking {
    /// `strict locking`: reads and writes are checked against locks.
    strict: Option<bool>,
    /// `posix locking`: locks taken outside of SMB are visible.
    posix: Option<bool>,
}

impl Locking {
    /// Returns these values, and takes unset ones from `other`.
    fn or(self, other: Self) -> Self {
        Self { strict: self.strict.or(other.strict), posix: self.posix.or(other.posix) }
    }

    /// Returns the stricter of two settings.
    fn and(self, other: Self) -> Self {
        // `None` is less than any value, so a value that only one of them has wins.
        Self { strict: self.strict.max(other.strict), posix: self.posix.max(other.posix) }
    }

    /// Either setting is enough to let SMB clients read and write ranges that NFS clients have locked.
    fn nfs_locks(self) -> NfsLocks {
        match (self.strict, self.posix) {
            (Some(false), _) | (_, Some(false)) => NfsLocks::Advisory,
            _ => NfsLocks::Enforced,
        }
    }
}

/// A line that is missing from the result or changed in it, and the reason.
#[derive(Debug)]
struct Note {
    file: String,
    line: usize,
    /// The line, or the relevant part of it.
    what: String,
    meaning: String,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.file, self.line, self.what, self.meaning)
    }
}

/// Runs the command. An error is one line for standard error.
pub fn run(args: &ImportArgs) -> Result<(), String> {
    let mut all = Imported::default();
    let mut others = Vec::new();
    for file in &args.files {
        let text = read(file)?;
        match forms::other_form(&text) {
            Some(said) => others.push(format!("{}: {said}", file.display())),
            None => take(&mut all, &file.display().to_string(), &text),
        }
    }
    if others.len() == args.files.len() {
        return Err(others.join("\n"));
    }
    for said in others {
        complain!("{said}");
    }
    merge(&mut all);
    exports::source_ports(&mut all);
    for note in &all.notes {
        complain!("{note}");
    }
    if all.shares.is_empty() {
        return Err("the files read contain no share".into());
    }
    say_as_is!("{}", write::yaml(&all));
    let waiting = all.shares.iter().filter(|s| !s.lost.is_empty()).count();
    if waiting > 0 {
        complain!(
            "{waiting} of {} shares are written as comments: read the reasons, and decide",
            all.shares.len()
        );
    }
    Ok(())
}

fn read(path: &Path) -> Result<String, String> {
    let bytes = fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    if bytes.len() > FILE_BYTES_MAX {
        return Err(format!("{} is too large to be a configuration", path.display()));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Adds the contents of a file. A file with a `[section]` line is Samba's: in exports, lines begin with a folder.
fn take(all: &mut Imported, file: &str, text: &str) {
    let is_section = |(_, line): &(usize, String)| line.starts_with('[');
    match logical_lines(text, &['#', ';'], "", |_| false).iter().any(is_section) {
        true => samba::take(all, file, text),
        false => exports::take(all, file, text),
    }
}

/// Merges shares so that each folder has one share and each name is unique.
fn merge(all: &mut Imported) {
    let mut merged: Vec<Share> = Vec::new();
    for share in std::mem::take(&mut all.shares) {
        match merged.iter_mut().find(|s| s.path == share.path) {
            Some(first) => join(first, share),
            None => merged.push(share),
        }
    }
    for i in 0..merged.len() {
        let taken = |name: &str| {
            merged.iter().take(i).any(|s| s.name.to_lowercase() == name.to_lowercase())
        };
        let name = merged[i].name.clone();
        if let Some(free) = (1..)
            .map(|n| if n == 1 { name.clone() } else { format!("{name}-{n}") })
            .find(|n| !taken(n))
        {
            merged[i].name = free;
        }
    }
    all.shares = merged;
}

/// Joins two ways to serve one folder into the stricter one. If one is NFS and the other SMB, each keeps its clients, and
/// guests remain only for SMB.
fn join(first: &mut Share, mut second: Share) {
    let is_apart = matches!(
        (first.protocols, second.protocols),
        (Protocols::Nfs, Protocols::Smb) | (Protocols::Smb, Protocols::Nfs)
    );
    if is_apart {
        each_its_clients(first, &mut second);
        first.guest |= second.guest;
    } else {
        first.guest &= second.guest;
        first.read_only |= second.read_only;
    }
    if first.protocols != second.protocols {
        first.protocols = Protocols::Both;
    }
    first.encrypt |= second.encrypt;
    first.locking = first.locking.and(second.locking);
    // `None` is less than any value.
    first.view.hidden = first.view.hidden.max(second.view.hidden);
    first.view.only_visible = first.view.only_visible.max(second.view.only_visible);
    first.view.hides_mounts = first.view.hides_mounts.max(second.view.hides_mounts);
    first.view.leaves_links = first.view.leaves_links.max(second.view.leaves_links);
    first.view.msdfs = first.view.msdfs.max(second.view.msdfs);
    if first.refer != second.refer {
        let why = "one of two entries for this folder referred its clients to another server";
        first.lost.push(why.to_owned());
    }
    first.export = first.export.take().or(second.export);
    if first.force != second.force {
        let why = "two sections differ in the forced user or group, and one would apply to both";
        first.lost.push(why.to_owned());
    }
    let (none, modes) = (Modes::default(), second.view.modes);
    if first.view.modes == none {
        first.view.modes = modes;
    } else if modes != none && modes != first.view.modes {
        first.lost.push("two sections give new files different modes".to_owned());
    }
    first.access = match (first.access.take(), second.access) {
        (Some(a), Some(b)) if a != b => {
            first.lost.push("two sections admit different users".to_owned());
            Some(a)
        }
        (a, b) => a.or(b),
    };
    first.squash = first.squash.or(second.squash);
    first.clients = match (first.clients.take(), second.clients) {
        (Some(a), Some(b)) if a != b => {
            first
                .lost
                .push("two files admit different clients; those of the first are below".to_owned());
            Some(a)
        }
        (a, b) => a.or(b),
    };
    first.lost.extend(second.lost);
}

/// Keeps, for two shares of one folder with different protocols, the clients of each and whether they may write.
fn each_its_clients(first: &mut Share, second: &mut Share) {
    if first.clients == second.clients && first.read_only == second.read_only {
        return;
    }
    let is_read_only = first.read_only && second.read_only;
    for share in [&mut *first, &mut *second] {
        let all = || ["0.0.0.0/0", "::/0"].iter().filter_map(|all| all.parse().ok()).collect();
        let clients: Vec<Client> = match (share.clients.take(), share.protocols) {
            (Some(clients), _) => clients,
            // Every user who can log on.
            (None, Protocols::Smb) => all(),
            (None, _) => Vec::new(),
        };
        let only = |client: Client| Client {
            protocols: share.protocols,
            read_only: client.read_only || share.read_only && !is_read_only,
            ..client
        };
        share.clients = Some(clients.into_iter().map(only).collect());
    }
    first.read_only = is_read_only;
    let clients = first.clients.take().into_iter().chain(second.clients.take()).flatten();
    let clients: Vec<Client> = clients.collect();
    (first.clients, second.clients) = (Some(clients.clone()), Some(clients));
}

/// Records words of a line and what happened to them.
fn note(all: &mut Imported, file: &str, line: usize, what: &str, meaning: impl Into<String>) {
    let what = what.chars().filter(|c| !c.is_control()).take(100).collect();
    all.notes.push(Note { file: file.to_owned(), line, what, meaning: meaning.into() });
}

/// Returns logical lines: a backslash at the end of a line continues it, `joint` is put between the parts, and comments and
/// empty lines are removed. The numbers are those of the first physical line. Both Samba and nfs-utils end a comment at the
/// end of its own line, even after a backslash; `in_comment` says whether the line so far ends in a comment.
fn logical_lines(
    text: &str,
    comments: &[char],
    joint: &str,
    in_comment: fn(&str) -> bool,
) -> Vec<(usize, String)> {
    let mut out: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for (n, raw) in text.lines().enumerate() {
        if !goes_on && raw.trim_start().starts_with(comments) {
            continue;
        }
        let (line, continued) = match raw.trim_end().strip_suffix('\\') {
            Some(line) => (line, true),
            None => (raw.trim_end(), false),
        };
        match out.last_mut().filter(|_| goes_on) {
            Some((_, last)) => {
                // Samba keeps one of the blanks that begin the next line; nfs-utils inserts one.
                let has_blank = line.starts_with(char::is_whitespace) && !last.is_empty();
                last.push_str(if has_blank { " " } else { joint });
                last.push_str(line.trim_start());
            }
            None => out.push((n + 1, line.trim_start().to_owned())),
        }
        goes_on = continued && !out.last().is_some_and(|(_, last)| in_comment(last));
    }
    out.retain(|(_, l)| !l.trim().is_empty());
    out
}

/// Replaces the characters that a share name cannot contain here.
fn share_name(text: &str) -> String {
    let allowed = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '$' | ' ');
    let name: String = text.chars().map(|c| if allowed(c) { c } else { '-' }).take(80).collect();
    match name.trim().trim_matches('.') {
        "" => "root".to_owned(),
        name => name.to_owned(),
    }
}

/// Parses a range of addresses in the forms of either file: `10.0.0.1`, `10.0.0.0/8`, `10.0.0.0/255.0.0.0`, `10.`, a host
/// inside a range.
fn range(text: &str) -> Option<Cidr> {
    if let Some(prefix) = text.strip_suffix('.') {
        let parts: Vec<u8> = prefix.split('.').map(|p| p.parse().ok()).collect::<Option<_>>()?;
        let bits = u8::try_from(parts.len() * 8).ok().filter(|b| *b < 32)?;
        let byte = |i: usize| parts.get(i).copied().unwrap_or(0);
        let addr = std::net::Ipv4Addr::new(byte(0), byte(1), byte(2), byte(3));
        return Some(Cidr { addr: addr.into(), bits });
    }
    let (addr, mask) = match text.split_once('/') {
        Some((addr, mask)) => (addr.parse::<std::net::IpAddr>().ok()?, Some(mask)),
        None => (text.parse().ok()?, None),
    };
    let whole = if addr.is_ipv4() { 32 } else { 128 };
    let bits = match mask {
        None => whole,
        Some(mask) => match mask.parse::<std::net::Ipv4Addr>() {
            Ok(mask) if mask.to_bits().leading_ones() == mask.to_bits().count_ones() => {
                u8::try_from(mask.to_bits().count_ones()).ok()?
            }
            Ok(_) => return None,
            Err(_) => mask.parse().ok().filter(|b| *b <= whole)?,
        },
    };
    Some(Cidr::around(addr, bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> Option<String> {
        range(text).map(|r| r.to_string())
    }

    #[test]
    fn ranges_of_both_files() {
        for (text, expected) in [
            ("192.0.2.7", "192.0.2.7/32"),
            ("10.1.2.3/8", "10.0.0.0/8"),
            ("192.168.1.0/255.255.255.0", "192.168.1.0/24"),
            ("192.168.", "192.168.0.0/16"),
            ("fd00::1/8", "fd00::/8"),
            ("0.0.0.0/0", "0.0.0.0/0"),
        ] {
            assert_eq!(told(text).as_deref(), Some(expected), "{text}");
        }
        for text in ["", "host", "10.0.0.0/33", "10.0.0.0/255.0.255.0", "1.2.3.4.", "a.b.", "."] {
            assert_eq!(told(text), None, "{text}");
        }
    }

    #[test]
    fn lines_go_on_after_a_backslash() {
        let lines = logical_lines("# no\na = b \\\n  c\n\n d\n", &['#'], " ", |_| false);
        assert_eq!(lines, [(2, "a = b  c".to_owned()), (5, "d".to_owned())]);
        let joined = |joint| logical_lines("a\\\nb\\\n c\n", &['#'], joint, |_| false)[0].1.clone();
        assert_eq!((joined(" "), joined("")), ("a b c".to_owned(), "ab c".to_owned()));
    }

    #[test]
    fn a_comment_ends_with_its_line() {
        for joint in ["", " "] {
            let lines = logical_lines(" # no \\\na = b\\\n# c\n", &['#'], joint, |_| false);
            assert_eq!(lines, [(2, format!("a = b{joint}# c"))]);
        }
    }

    #[test]
    fn text_behind_the_header_of_a_section_is_no_part_of_it() {
        let mut all = Imported::default();
        take(&mut all, "smb.conf", "[a] ; x\npath=/a\n");
        assert_eq!((all.shares.len(), all.shares[0].name.as_str()), (1, "a"));
        let mut all = Imported::default();
        take(&mut all, "exports", "/srv \\\n[ab].lab(ro)\n");
        assert_eq!(all.shares[0].protocols, Protocols::Nfs);
    }

    #[test]
    fn names_become_possible_and_stay_apart() {
        assert_eq!(share_name("a:b"), "a-b");
        assert_eq!(share_name(".."), "root");
        let mut all = Imported::default();
        for path in ["/a/x", "/b/x", "/a/x"] {
            all.shares.push(Share::new("x", path, Protocols::Smb));
        }
        merge(&mut all);
        let names: Vec<&str> = all.shares.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["x", "x-2"]);
    }
}
