//! Reads /etc/exports in the format of exports(5): a folder, then its clients with their options.

use config::{Client, Export, Protocols, Squash, Whom};

use super::{Imported, Share, logical_lines, note, range, referrals, share_name};

/// Options of exports(5) that take no value.
const FLAGS: [&str; 32] = [
    "ro",
    "rw",
    "secure",
    "insecure",
    "sync",
    "async",
    "nordirplus",
    "security_label",
    "sign_fh",
    "hide",
    "nohide",
    "crossmnt",
    "nocrossmnt",
    "wdelay",
    "no_wdelay",
    "root_squash",
    "no_root_squash",
    "all_squash",
    "no_all_squash",
    "subtree_check",
    "no_subtree_check",
    "auth_nlm",
    "no_auth_nlm",
    "secure_locks",
    "insecure_locks",
    "acl",
    "no_acl",
    "pnfs",
    "no_pnfs",
    "nopnfs",
    "mountpoint",
    "mp",
];

/// Options of exports(5) that take a value.
const VALUES: [&str; 10] = [
    "anonuid",
    "anongid",
    "sec",
    "xprtsec",
    "fsid",
    "mountpoint",
    "mp",
    "refer",
    "replicas",
    "reexport",
];

/// Options of exports files of macOS and BSD, where options begin with a dash and may follow the clients.
const OF_BSD: [&str; 16] = [
    "alldirs",
    "maproot",
    "mapall",
    "network",
    "mask",
    "fspath",
    "fsuuid",
    "offline",
    "32bitclients",
    "public",
    "webnfs",
    "index",
    "quiet",
    "kerb",
    "noprivports",
    "manglednames",
];

/// Kind of a client name. If several names match a host, the first kind in this list decides, and within one kind the first
/// name on the line (exports(5)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Host,
    Network,
    /// Names with wildcards.
    Pattern,
    Netgroup,
    Everybody,
}

struct Spec<'a> {
    text: &'a str,
    kind: Kind,
    /// Clients that it means; empty if `clients` cannot express it.
    from: Vec<Whom>,
    rights: Rights,
}

/// Options of one client.
#[derive(Clone, Copy, Debug)]
struct Rights {
    read_only: bool,
    /// knfsd treats these as two separate flags: setting one does not clear the other.
    root_squash: bool,
    all_squash: bool,
    /// The client may call from any port.
    insecure: bool,
    anonuid: Option<u32>,
    anongid: Option<u32>,
}

/// Position in the input files.
struct At<'a> {
    file: &'a str,
    line: usize,
}

/// Adds the shares of the file.
pub(super) fn take(all: &mut Imported, file: &str, text: &str) {
    for (line, words) in logical_lines(text, &['#'], " ", |line| split(line).1) {
        let at = At { file, line };
        let mut parts = split(&words).0.into_iter();
        let Some(path) = parts.next() else { continue };
        if !path.starts_with('/') {
            let said = "not carried over: the line does not begin with a folder";
            note(all, file, line, &words, said);
            continue;
        }
        export(all, &at, &path, &parts.collect::<Vec<_>>());
    }
}

/// Builds the share of an exported folder, under the path that its clients mount if that is possible.
fn share_of(all: &mut Imported, at: &At<'_>, path: &str) -> Share {
    let name = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let mut share = Share::new(&share_name(name), path, Protocols::Nfs);
    match own_path(all, path) {
        Ok(export) if path != format!("/{}", share.name) => share.export = Some(export),
        Ok(_) => {}
        Err(why) => {
            let usual = share.name.clone();
            let names = (2..100).map(|n| format!("{usual}-{n}"));
            let mut names = std::iter::once(usual.clone()).chain(names);
            let fits = |name: &String| own_path(all, &format!("/{name}")).is_ok();
            share.name = names.find(fits).unwrap_or(usual);
            let name = &share.name;
            let said =
                format!("NFS clients have to mount `/{name}` now instead of `{path}`: {why}");
            note(all, at.file, at.line, path, said);
        }
    }
    share
}

fn export(all: &mut Imported, at: &At<'_>, path: &str, clients: &[String]) {
    let mut share = share_of(all, at, path);
    let mut specs: Vec<Spec<'_>> = Vec::new();
    let mut common: &str = "";
    for (n, client) in clients.iter().enumerate() {
        if let Some(options) = client.strip_prefix('-') {
            common = options;
            lose_of_bsd(&mut share, options);
            if n > 0 && clients[n..].iter().all(|word| word.starts_with('-')) {
                behind_clients(&mut share, options);
            }
            continue;
        }
        let (mut who, own) = match client.split_once('(') {
            Some((who, own)) => (who, own.trim_end_matches(')')),
            None => (client.as_str(), ""),
        };
        // exports(5): the older form of `*` with `sec=`.
        if let Some(flavor) = who.strip_prefix("gss/") {
            lose(&mut share, flavors(who, flavor));
            who = "*";
        }
        let (kind, from) = who_is(who);
        if from.is_empty() {
            let said = "not carried over: wildcards are for names (exports(5)); write a range of addresses";
            note(all, at.file, at.line, who, said);
        }
        let list = format!("{common},{own}");
        hide_mounts(&mut share, &list);
        let rights = options(all, at, &mut share, &list);
        specs.push(Spec { text: who, kind, from, rights });
    }
    if clients.iter().all(|c| c.starts_with('-')) {
        // exports(5): a folder without clients is exported to all clients.
        let (kind, from) = who_is("*");
        let rights = options(all, at, &mut share, common);
        specs.push(Spec { text: "*", kind, from, rights });
    }
    match referrals::of_all(&share.sent, specs.len()) {
        Ok(servers) => share.refer = servers,
        Err(why) => share.lost.push(why),
    }
    all.source_ports.take(at, path, &specs);
    specs.sort_by_key(|spec| spec.kind);
    share.lost.extend(gains(&specs));
    let rights = clients_of(all, at, &specs);
    if rights.is_empty() {
        share.lost.push("none of its clients can be written in `clients`".to_owned());
    }
    share.read_only = rights.iter().all(|(_, r)| r.read_only);
    // Clients that are added to the share later get the strictest.
    share.squash = rights.iter().map(|(_, r)| r.squash()).max_by_key(|squash| *squash as u8);
    let client = |(from, its): (Whom, Rights)| Client {
        from,
        protocols: Protocols::Both,
        read_only: its.read_only && !share.read_only,
        squash: Some(its.squash()).filter(|squash| Some(*squash) != share.squash),
        anonuid: its.anonuid,
        anongid: its.anongid,
    };
    let clients: Vec<Client> = rights.into_iter().map(client).collect();
    share.clients = (!clients.is_empty()).then_some(clients);
    all.shares.push(share);
}

/// Excludes a share with options that only BSD and macOS know.
fn lose_of_bsd(share: &mut Share, options: &str) {
    for option in options.split(',') {
        if OF_BSD.contains(&option.split('=').next().unwrap_or(option)) {
            lose(share, of_bsd(option));
        }
    }
}

/// Excludes a share that has options behind its clients: macOS and BSD apply such options to all clients of the line,
/// exportfs to no client.
fn behind_clients(share: &mut Share, options: &str) {
    for option in options.split(',').filter(|option| !option.is_empty()) {
        let key = option.split('=').next().unwrap_or(option);
        if !OF_BSD.contains(&key) {
            let why = "follows the clients, as in exports of macOS and BSD; exportfs gives it to no client";
            lose(share, format!("`-{option}` {why}"));
        }
    }
}

/// Returns why an option of another system excludes a share.
fn of_bsd(option: &str) -> String {
    let (key, value) = option.split_once('=').unwrap_or((option, ""));
    let (user, group) = value.split_once(':').unwrap_or((value, ""));
    let ids: Vec<String> = [("anonuid", user), ("anongid", group)]
        .into_iter()
        .filter(|(_, id)| id.parse::<u32>().is_ok())
        .map(|(key, id)| format!("`{key}: {id}`"))
        .collect();
    let remedy = match (key, user) {
        ("maproot", "root" | "0") => "; write `squash: none`".to_owned(),
        ("mapall", _) if !ids.is_empty() => {
            format!("; write `squash: all`, and in the entry of each client {}", ids.join(", "))
        }
        ("network" | "mask", _) => "; write the network in `clients`".to_owned(),
        _ => String::new(),
    };
    format!("`{option}`: exports(5) has no such option, macOS and BSD have{remedy}")
}

/// Requirements on source ports, over the clients of all files.
#[derive(Debug, Default)]
pub(super) struct SourcePorts {
    /// Folders with a client that must use a port below 1024, each with its file and line.
    secure: Vec<(String, usize, String)>,
    /// Some client may call from any port.
    insecure: bool,
}

impl SourcePorts {
    fn take(&mut self, at: &At<'_>, path: &str, specs: &[Spec<'_>]) {
        self.insecure |= specs.iter().any(|spec| spec.rights.insecure);
        if specs.iter().any(|spec| !spec.rights.insecure) {
            self.secure.push((at.file.to_owned(), at.line, path.to_owned()));
        }
    }

    /// Returns true if every client must call from a port below 1024.
    pub(super) fn required(&self) -> bool {
        !self.secure.is_empty() && !self.insecure
    }
}

/// Notes the restriction that `secure` clients lose if other clients are `insecure`: the setting applies to all shares.
pub(super) fn source_ports(all: &mut Imported) {
    if all.source_ports.required() {
        return;
    }
    let said = "LOST: `secure`, the default: another client is `insecure`, and `privileged_ports: required` is for all shares. \
                Without it an unprivileged user of a client host can claim any uid";
    for (file, line, path) in std::mem::take(&mut all.source_ports.secure) {
        note(all, &file, line, &path, said);
    }
}

/// Returns the path that clients continue to mount; the error says why they cannot.
fn own_path(all: &Imported, path: &str) -> Result<Export, String> {
    let export: Export = path.parse()?;
    let lies_in = |path: &str, other: &str| {
        path.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let others = all.shares.iter().map(|s| s.export.as_ref().map_or(&*s.name, Export::path));
    for other in others.filter(|other| *other != export.path()) {
        if lies_in(export.path(), other) {
            return Err(format!("it lies inside `/{other}`, another share"));
        }
        if lies_in(other, export.path()) {
            return Err(format!("another share, `/{other}`, lies inside it"));
        }
    }
    Ok(export)
}

/// Returns these clients, given in the order in which exports(5) matches them. Here the longest prefix decides, so a range
/// inside an earlier one is dropped: it would get rights that it never had.
fn clients_of(all: &mut Imported, at: &At<'_>, specs: &[Spec<'_>]) -> Vec<(Whom, Rights)> {
    let mut kept: Vec<(Whom, Rights)> = Vec::new();
    for (from, its) in specs.iter().flat_map(|s| s.from.iter().map(|from| (from, s.rights))) {
        match kept.iter().find(|(first, _)| contains(first, from)) {
            Some((first, _)) if first == from => {
                let said = "not carried over: a second entry for the same client";
                note(all, at.file, at.line, &from.to_string(), said);
            }
            Some((first, _)) => {
                let said = format!("not carried over: {first} covers it and takes precedence");
                note(all, at.file, at.line, &from.to_string(), said);
            }
            None => kept.push((from.clone(), its)),
        }
    }
    kept
}

/// Returns true if every client of `other` is also a client of `first`, as far as that is known without a look-up.
fn contains(first: &Whom, other: &Whom) -> bool {
    let (Whom::Range(range), Whom::Range(other)) = (first, other) else {
        // A network takes precedence over patterns and netgroups, even the network of all hosts.
        let of_many = matches!(other, Whom::Pattern(_) | Whom::Netgroup(_));
        return first == other || of_many && first.range().is_some_and(|r| r.bits == 0);
    };
    range.covers(other)
}

/// Returns the clients that would gain rights: they are also matched by a name that cannot be expressed here and gave them
/// fewer rights than the names after it.
fn gains(specs: &[Spec<'_>]) -> Vec<String> {
    let gains = |(n, named): (usize, &Spec<'_>)| {
        let mut after = specs[n + 1..].iter().filter(|s| !s.from.is_empty());
        let more = after.find(|s| s.rights.is_more_than(named.rights))?;
        Some(format!(
            "`{}` had fewer rights than `{}`, and cannot be written in `clients`",
            named.text, more.text
        ))
    };
    specs.iter().enumerate().filter(|(_, s)| s.from.is_empty()).filter_map(gains).collect()
}

impl Rights {
    /// exports(5), defaults: read-only, root squashed, and only ports below 1024.
    fn new() -> Self {
        Self {
            read_only: true,
            root_squash: true,
            all_squash: false,
            insecure: false,
            anonuid: None,
            anongid: None,
        }
    }

    /// Takes an option without a value. Returns false if the option has no counterpart.
    fn take(&mut self, option: &str) -> bool {
        let (place, value) = match option {
            "ro" => (&mut self.read_only, true),
            "rw" => (&mut self.read_only, false),
            "root_squash" => (&mut self.root_squash, true),
            "no_root_squash" => (&mut self.root_squash, false),
            "all_squash" => (&mut self.all_squash, true),
            "no_all_squash" => (&mut self.all_squash, false),
            "secure" => (&mut self.insecure, false),
            "insecure" => (&mut self.insecure, true),
            _ => return false,
        };
        *place = value;
        true
    }

    fn squash(self) -> Squash {
        match (self.all_squash, self.root_squash) {
            (true, _) => Squash::All,
            (false, true) => Squash::Root,
            (false, false) => Squash::None,
        }
    }

    /// Returns true if these rights allow something that `other` does not.
    fn is_more_than(self, other: Self) -> bool {
        let squash = (self.squash() as u8) < other.squash() as u8;
        let anonymous = (self.anonuid, self.anongid) != (other.anonuid, other.anongid);
        other.read_only && !self.read_only || squash || anonymous
    }
}

/// Returns the kind of a client name, and its clients; empty if `clients` cannot express them.
fn who_is(who: &str) -> (Kind, Vec<Whom>) {
    match (who, range(who)) {
        ("*" | "", _) => {
            let all = ["0.0.0.0/0", "::/0"].iter().filter_map(|r| range(r));
            (Kind::Everybody, all.map(Whom::Range).collect())
        }
        (_, Some(found)) => {
            let kind = if who.contains('/') { Kind::Network } else { Kind::Host };
            (kind, vec![Whom::Range(found)])
        }
        (_, None) => {
            let kind = match who {
                who if who.starts_with('@') => Kind::Netgroup,
                who if who.contains(['*', '?', '[']) => Kind::Pattern,
                _ => Kind::Host,
            };
            (kind, who.parse().into_iter().collect())
        }
    }
}

fn options(all: &mut Imported, at: &At<'_>, share: &mut Share, list: &str) -> Rights {
    let mut rights = Rights::new();
    let mut transports: Vec<&str> = Vec::new();
    for option in list.split(',').map(str::trim).filter(|o| !o.is_empty()) {
        let (key, value) = option.split_once('=').unwrap_or((option, ""));
        let known = if option.contains('=') { &VALUES[..] } else { &FLAGS[..] };
        if !known.contains(&key) {
            let why = match OF_BSD.contains(&key) {
                true => of_bsd(option),
                false => format!(
                    "`{option}`: exports(5) has no such option, and exportfs refuses the line"
                ),
            };
            lose(share, why);
            continue;
        }
        if rights.take(option) && option != "insecure" {
            continue;
        }
        let lost = match key {
            "sync" | "wdelay" | "no_wdelay" | "no_subtree_check" | "hide" | "auth_nlm"
            | "secure_locks" | "fsid" | "nopnfs" | "no_pnfs"
                if value != "0" && value != "root" =>
            {
                continue;
            }
            "anonuid" | "anongid" => {
                if !set_anonymous(&mut rights, key, value) {
                    lose(share, format!("`{option}`: not a number; exportfs refuses it"));
                }
                continue;
            }
            "refer" => {
                match referrals::of_exports(value) {
                    Some(servers) => share.sent.push(servers),
                    None => {
                        lose(share, format!("`{option}` referred its clients to another server"))
                    }
                }
                continue;
            }
            "sec" if value.split(':').all(|s| s == "sys") => continue,
            "sec" => {
                lose(share, flavors(option, value));
                continue;
            }
            "xprtsec" => {
                transports.extend(value.split(':'));
                continue;
            }
            "async" => "not carried over: the gateway answers as the protocol demands",
            "insecure" => {
                "carried over, but for this host's own addresses only with `privileged_ports: off`, which applies to all shares"
            }
            "subtree_check" => "not carried over: handles are checked against the share",
            "crossmnt" => continue,
            "nohide" => {
                "not carried over: a share has all file systems that are mounted inside it, or with `cross: false` none"
            }
            "no_acl" => {
                lose(share, format!("`{option}`: clients would see the access lists of files"));
                continue;
            }
            "nocrossmnt" | "acl" => continue,
            "sign_fh" => "not needed: handles are checked against the share",
            "fsid" => "not carried over: the root of NFSv4 lists all shares by name",
            "mountpoint" | "mp" => {
                let why = "the gateway would serve the folder below while nothing is mounted there";
                lose(share, format!("`{option}`: {why}"));
                continue;
            }
            _ => "not carried over: headgate has no such option",
        };
        note(all, at.file, at.line, option, lost);
    }
    require_tls(share, &transports);
    rights
}

/// Takes over `anonuid` or `anongid`. Returns false if the value is not a number.
fn set_anonymous(rights: &mut Rights, key: &str, value: &str) -> bool {
    let Some(id) = anonymous(value) else { return false };
    let place = match key {
        "anonuid" => &mut rights.anonuid,
        _ => &mut rights.anongid,
    };
    *place = Some(id).filter(|id| *id != 65_534);
    true
}

/// Excludes a share whose `xprtsec` requires TLS. Each `xprtsec` adds to the earlier ones; a share without any accepts all
/// transports.
fn require_tls(share: &mut Share, transports: &[&str]) {
    if transports.is_empty() || transports.contains(&"none") {
        return;
    }
    let modes = transports.join(":");
    let tls = if modes == "mtls" { "mutual" } else { "required" };
    let why = format!(
        "`xprtsec={modes}` requires TLS; set `tls: {tls}` once the group `tls` has a certificate"
    );
    lose(share, why);
}

/// Returns why a list of flavors is not carried over: flavors with tickets need a keytab, which a file of exports does not
/// name.
fn flavors(option: &str, value: &str) -> String {
    let known = ["sys", "krb5", "krb5i", "krb5p"];
    match value.split(':').find(|flavor| !known.contains(flavor)) {
        Some(flavor) => format!("`{option}`: headgate has no flavor `{flavor}`"),
        None => format!(
            "`{option}` requires Kerberos; set `sec: [{}]`, and `kerberos: {{keytab: FILE}}`",
            value.replace(':', ", ")
        ),
    }
}

/// Returns the number of an anonymous user or group. nfs-utils accepts negative numbers such as `-2`; the kernel rejects -1,
/// which is not a valid id.
fn anonymous(value: &str) -> Option<u32> {
    let number: i64 = value.parse().ok()?;
    let id = u32::try_from(number).or_else(|_| i32::try_from(number).map(i32::cast_unsigned)).ok();
    id.filter(|id| *id != u32::MAX)
}

/// If one client does not cross into file systems mounted inside, no client does.
fn hide_mounts(share: &mut Share, list: &str) {
    let crosses = list.split(',').any(|option| option.trim() == "crossmnt");
    share.view.hides_mounts = share.view.hides_mounts.max(Some(!crosses));
}

/// Excludes the share. Each reason is recorded once, however many clients have it.
fn lose(share: &mut Share, why: String) {
    if !share.lost.contains(&why) {
        share.lost.push(why);
    }
}

/// Splits at blanks outside of quotes and parentheses. `\040` is a byte by its octal number: `\303\244` is `ä`. The second
/// value is true if the line ends with a comment.
fn split(line: &str) -> (Vec<String>, bool) {
    let mut out: Vec<Vec<u8>> = vec![Vec::new()];
    let mut push = [0; 4];
    let (mut quoted, mut depth, mut in_comment) = (false, 0, false);
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        let last = out.len() - 1;
        match c {
            '"' => quoted = !quoted,
            '\\' => {
                let digits: String = chars.clone().take(3).collect();
                let is_octal = digits.len() == 3 && digits.bytes().all(|d| d.is_ascii_digit());
                match u8::from_str_radix(&digits, 8) {
                    Ok(byte) if is_octal => {
                        out[last].push(byte);
                        chars.nth(2);
                    }
                    _ => out[last].push(b'\\'),
                }
            }
            '#' if !quoted && out[last].is_empty() => {
                in_comment = true;
                break;
            }
            c if c.is_whitespace() && !quoted && depth == 0 => out.push(Vec::new()),
            c if c.is_whitespace() && depth > 0 => {}
            c => {
                depth += i32::from(c == '(') - i32::from(c == ')');
                out[last].extend_from_slice(c.encode_utf8(&mut push).as_bytes());
            }
        }
    }
    out.retain(|w| !w.is_empty());
    let words = out.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    (words, in_comment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_line() {
        assert_eq!(split("/a  b(rw, sync) # x").0, ["/a", "b(rw,sync)"]);
        assert_eq!(split(r#""/a b" *(ro)"#).0, ["/a b", "*(ro)"]);
        assert_eq!(split(r"/a\040b *").0, ["/a b", "*"]);
        assert_eq!(split(r"/a\b").0, [r"/a\b"]);
        assert_eq!(split(r"/\303\244ä *").0, ["/ää", "*"]);
        assert_eq!(split(r"/a\+12 *").0, [r"/a\+12", "*"]);
    }

    fn read(text: &str) -> Imported {
        let mut all = Imported::default();
        take(&mut all, "exports", text);
        all
    }

    #[test]
    fn nothing_said_is_read_only_and_squashed() {
        let all = read("/srv 10.0.0.0/8\n");
        let share = &all.shares[0];
        assert!(share.read_only && share.squash == Some(Squash::Root) && share.lost.is_empty());
        assert_eq!(share.clients.as_ref().unwrap()[0].to_string(), "10.0.0.0/8");
    }

    /// No share lies below another, in any order of the lines.
    #[test]
    fn exports_below_each_other_get_paths_of_their_own() {
        for (text, wanted) in [
            ("/export/users *(ro)\n/export *(ro)\n", ["export/users", "export-2"]),
            ("/export *(ro)\n/export/users *(ro)\n", ["export", "users"]),
        ] {
            let all = read(text);
            let path = |s: &Share| s.export.as_ref().map_or(&*s.name, Export::path).to_owned();
            assert_eq!(all.shares.iter().map(path).collect::<Vec<_>>(), wanted, "{text}");
        }
    }

    #[test]
    fn one_squash_does_not_take_back_the_other() {
        for (options, squash) in [
            ("all_squash,root_squash", Squash::All),
            ("all_squash,no_root_squash", Squash::All),
            ("no_root_squash,all_squash,no_all_squash", Squash::None),
            ("all_squash,no_all_squash", Squash::Root),
            ("no_root_squash,no_all_squash", Squash::None),
        ] {
            let all = read(&format!("/srv 10.0.0.1(rw,{options})\n"));
            assert_eq!(all.shares[0].squash, Some(squash), "{options}");
        }
        let all = read("/srv -all_squash 10.0.0.1(rw,no_root_squash)\n");
        assert_eq!(all.shares[0].squash, Some(Squash::All), "of all clients");
    }

    #[test]
    fn each_client_keeps_its_own_rights() {
        let all = read(
            "/srv 10.0.0.1(rw,no_root_squash) 10.0.0.0/24(rw,all_squash,anonuid=7,anongid=8) *(ro) 10.0.0.1(ro)\n",
        );
        let share = &all.shares[0];
        assert!(!share.read_only && share.squash == Some(Squash::All));
        let shown: Vec<String> =
            share.clients.as_ref().unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(
            shown,
            [
                "10.0.0.1/32(squash=none)",
                "10.0.0.0/24(anonuid=7,anongid=8)",
                "0.0.0.0/0(ro,squash=root)",
                "::/0(ro,squash=root)"
            ]
        );
        assert_eq!(all.notes.last().unwrap().what, "10.0.0.1/32");
        let written = crate::import::write::one(share);
        let of_written = "{from: \"10.0.0.0/24\", anonuid: 7, anongid: 8}";
        assert!(written.contains(of_written), "{written}");
        assert!(read("/srv 10.0.0.1(ro) 10.0.0.2(ro)\n").shares[0].read_only);
    }

    #[test]
    fn of_one_kind_the_first_on_the_line_counts() {
        for (line, wanted) in [
            // The network that contains it comes first, so it never had an effect.
            ("10.0.0.0/8(ro) 10.1.0.0/16(rw)", "10.0.0.0/8"),
            (
                "10.0.0.0/8(rw) 10.1.0.1/32(rw,no_root_squash) 192.0.2.0/24(ro)",
                "10.0.0.0/8 192.0.2.0/24(ro)",
            ),
            ("10.1.0.0/16(rw) 10.0.0.0/8(ro)", "10.1.0.0/16 10.0.0.0/8(ro)"),
            // A host takes precedence over networks, and these over `*`.
            ("10.0.0.0/8(ro) 10.0.0.1(rw)", "10.0.0.1/32 10.0.0.0/8(ro)"),
            ("*(rw) 0.0.0.0/0(ro)", "0.0.0.0/0(ro) ::/0"),
        ] {
            let all = read(&format!("/srv {line}\n"));
            let shown = all.shares[0].clients.iter().flatten().map(ToString::to_string);
            assert_eq!(shown.collect::<Vec<_>>().join(" "), wanted, "{line}");
            let dropped = all.notes.iter().filter(|n| n.meaning.starts_with("not carried over"));
            let (named, kept) = (line.split(' ').count(), wanted.split(' ').count());
            let ranges = named + usize::from(line.contains('*'));
            assert_eq!(dropped.count(), ranges - kept, "{line}");
        }
    }

    #[test]
    fn names_are_carried_over_in_the_order_in_which_they_count() {
        for (line, wanted) in [
            (
                "@hosts(ro) *.lab(rw) 10.0.0.0/8(ro) ws.lab(rw)",
                "ws.lab 10.0.0.0/8(ro) *.lab @hosts(ro)",
            ),
            ("ws.lab(rw) WS.lab(ro)", "ws.lab"),
            ("*(rw) @hosts(ro)", "@hosts(ro) 0.0.0.0/0 ::/0"),
            // This network contains every IPv4 host and takes precedence over patterns.
            ("*.lab(rw) 0.0.0.0/0(ro) ws.lab(rw)", "ws.lab 0.0.0.0/0(ro)"),
            ("10.0.0.1(ro) ws.lab(rw)", "10.0.0.1/32(ro) ws.lab"),
        ] {
            let all = read(&format!("/srv {line}\n"));
            let share = &all.shares[0];
            let shown = share.clients.iter().flatten().map(ToString::to_string);
            assert_eq!(shown.collect::<Vec<_>>().join(" "), wanted, "{line}");
            assert!(share.lost.is_empty(), "{line}");
        }
        let written = crate::import::write::one(&read("/srv @hosts(ro) *.lab(rw)\n").shares[0]);
        let clients = r#"clients: ["*.lab", {from: "@hosts", read_only: true}]"#;
        assert!(written.contains(clients), "{written}");
    }

    #[test]
    fn who_cannot_be_named_is_not_given_more() {
        for (line, is_lost) in [
            ("192.168.1.*(ro) *(rw)", true),
            ("192.168.1.*(rw) *(ro)", false),
            ("192.168.1.*(ro) 192.168.0.0/16(rw)", false),
            ("192.168.1.*(rw)", true),
            ("a_b\\040c(ro) 10.0.0.0/8(rw)", true),
        ] {
            let all = read(&format!("/srv {line}\n"));
            assert_eq!(!all.shares[0].lost.is_empty(), is_lost, "{line}");
        }
    }

    #[test]
    fn what_is_lost_keeps_a_share_from_being_served() {
        assert!(!read("/srv 10.0.0.1(rw,sec=krb5p)").shares[0].lost.is_empty());
        assert!(read("/srv 10.0.0.1(rw) host(rw)").shares[0].lost.is_empty());
        let lost = |list: &str| read(&format!("/srv -{list}")).shares[0].lost.join(" ");
        let krb5 = lost("sec=sys:krb5p");
        assert!(krb5.contains("`sec: [sys, krb5p]`, and `kerberos: {keytab: FILE}`"), "{krb5}");
        assert!(lost("sec=krb5:none").contains("no flavor `none`"));
    }

    #[test]
    fn a_demand_for_tls_keeps_a_share_from_being_served() {
        for (options, demands) in [
            ("xprtsec=mtls", true),
            ("xprtsec=tls", true),
            ("xprtsec=tls:mtls", true),
            ("xprtsec=tls,xprtsec=mtls", true),
            ("xprtsec=", true),
            ("xprtsec=none", false),
            ("xprtsec=none:tls:mtls", false),
            ("xprtsec=mtls,xprtsec=none", false),
        ] {
            let all = read(&format!("/srv 10.0.0.1(rw,{options}) 10.0.0.2(rw,{options})\n"));
            let share = &all.shares[0];
            assert_eq!(share.lost.len(), usize::from(demands), "{options}: {:?}", share.lost);
            assert!(share.lost.iter().all(|why| why.contains("TLS")), "{options}");
        }
        assert!(!read("/srv -xprtsec=mtls 10.0.0.1(rw)\n").shares[0].lost.is_empty());
    }

    #[test]
    fn callers_of_this_host_from_any_port_are_not_carried_over_in_silence() {
        let all = read("/srv *(rw,insecure)\n");
        assert_eq!(all.notes.len(), 1);
        assert_eq!(all.notes[0].what, "insecure");
        assert!(all.notes[0].meaning.contains("`privileged_ports: off`"));
        assert!(all.shares[0].lost.is_empty());
    }

    #[test]
    fn mounts_inside_are_hidden_without_crossmnt() {
        let hides = |text: &str| read(text).shares[0].view.hides_mounts;
        assert_eq!(hides("/srv *(rw,crossmnt)\n"), Some(false));
        assert_eq!(hides("/srv *(rw)\n"), Some(true));
        assert_eq!(hides("/srv 10.0.0.1(rw,crossmnt) 10.0.0.2(rw)\n"), Some(true));
    }

    #[test]
    fn clients_from_ports_of_root_stay_so_where_all_are() {
        let told = |text: &str| {
            let mut all = read(text);
            source_ports(&mut all);
            let required =
                crate::import::write::yaml(&all).contains("\nprivileged_ports: required\n");
            let lost = all.notes.iter().filter(|n| n.meaning.starts_with("LOST: `secure`"));
            (required, lost.map(|n| n.line).collect::<Vec<_>>())
        };
        assert_eq!(told("/a 10.0.0.1(rw)\n/b *\n"), (true, vec![]));
        assert_eq!(told("/a\n"), (true, vec![]));
        assert_eq!(told("/a -insecure 10.0.0.1(rw,secure)\n"), (true, vec![]));
        assert_eq!(told("/a 10.0.0.1(insecure)\n"), (false, vec![]));
        assert_eq!(told("/a 10.0.0.1\n/b 10.0.0.1(insecure)\n/c *\n"), (false, vec![1, 3]));
        assert_eq!(told("/a 10.0.0.1(secure) 10.0.0.2(insecure)\n"), (false, vec![1]));
        assert_eq!(told(""), (false, vec![]));
    }

    #[test]
    fn options_that_have_no_counterpart_are_told_one_by_one() {
        let all = read("/srv *(rw,async,crossmnt,anonuid=7,fsid=0,nordirplus,no_subtree_check)\n");
        let told: Vec<&str> = all.notes.iter().map(|n| n.what.as_str()).collect();
        assert_eq!(told, ["async", "fsid=0", "nordirplus"]);
        assert!(all.shares[0].lost.is_empty());
    }

    #[test]
    fn an_option_that_exportfs_refuses_keeps_a_share_from_being_served() {
        for option in [
            "noaccess",
            "rw=@trusted",
            "ro=10.0.0.9",
            "no_root_squash=1",
            "anonuid",
            "anonuid=x",
            "anongid=-1",
            "anonuid=4294967295",
            "squash_uids=0-15",
            "mountpoint",
            "mp=/srv",
        ] {
            let all = read(&format!("/srv 10.0.0.7({option}) 10.0.0.8(rw)\n/ok 10.0.0.8(rw)\n"));
            let lost: Vec<usize> = all.shares.iter().map(|share| share.lost.len()).collect();
            assert_eq!(lost, [1, 0], "{option}");
            assert!(all.shares[0].lost[0].contains(option), "{option}");
        }
        let all = read("/srv 10.0.0.7(rw,anonuid=-2,anongid=0)\n");
        let client = all.shares[0].clients.as_ref().unwrap()[0].clone();
        assert_eq!((client.anonuid, client.anongid), (Some(4_294_967_294), Some(0)));
    }

    #[test]
    fn what_sends_all_clients_away_refers_them() {
        for (option, servers) in [
            ("refer=/srv@192.0.2.9", "192.0.2.9:/srv"),
            ("refer=/a@gw2+gw3:/b@gw4", "gw2:/a, gw3:/a, gw4:/b"),
        ] {
            let all = read(&format!("/srv 10.0.0.7({option}) 10.0.0.8(rw,{option})\n"));
            assert!(all.shares[0].lost.is_empty(), "{:?}", all.shares[0].lost);
            let yaml = super::super::write::one(&all.shares[0]);
            assert!(
                yaml.contains(&format!("refer: [\"{}", &servers[..6])) && !yaml.contains("path:"),
                "{yaml}"
            );
            let shown: Vec<_> = all.shares[0].refer.iter().map(ToString::to_string).collect();
            assert_eq!(shown.join(", "), servers);
        }
        for option in ["refer=/a", "refer=/a@[2001:db8::1]"] {
            let all = read(&format!("/srv 10.0.0.7({option})\n"));
            let [lost] = &all.shares[0].lost[..] else { panic!("{option}") };
            assert!(lost.contains("another server"), "{option}: {lost}");
        }
    }

    #[test]
    fn a_comment_behind_a_client_ends_with_its_line_too() {
        let all = read(
            "/a 10.0.0.1(ro) # no \\\n/b 10.0.0.2(ro) \\\n# no \\\n/c 10.0.0.3(ro)\n/d 10.0.0.4(ro)\n",
        );
        let paths: Vec<_> = all.shares.iter().map(|s| s.path.clone()).collect();
        assert_eq!(paths, ["/a", "/b", "/c", "/d"]);
    }

    #[test]
    fn a_reason_stays_in_its_comment() {
        let all = read("/srv 10.0.0.7(rw,a\\012shares:\\040[])\n");
        let written = crate::import::write::yaml(&all);
        assert_eq!(written.matches("\nshares:").count(), 1, "{written}");
        // Each of these also ends a comment in YAML.
        for ends in ["\u{85}", "\u{2028}", "\u{2029}"] {
            let all = read(&format!("/srv/a{ends}smb: 10.0.0.7(mp=/a{ends}b)\n"));
            let written = crate::import::write::yaml(&all);
            assert!(!written.contains(ends), "{written}");
        }
        let all = read("/srv/a\\342\\200\\250b 10.0.0.7(rw)\n");
        let written = crate::import::write::yaml(&all);
        let read: serde_yaml::Value = serde_yaml::from_str(&written).unwrap();
        assert_eq!(read["shares"][0]["path"].as_str(), Some("/srv/a\u{2028}b"), "{written}");
    }
}
