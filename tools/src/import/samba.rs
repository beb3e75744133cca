//! Reads Samba's smb.conf in the format of smb.conf(5): sections of `key = value`, where blanks and case in keys do not
//! matter.

use config::{Client, Encryption, Protocols, Signing, Who, Whom};

use super::dialect::Dialect;
use super::fruit::Fruit;
use super::interfaces::{Bound, Interfaces};
use super::keys::{
    self, BUILT_IN, limits_logons, main_name, meaning, module_restricts, takes, truth,
};
use super::recycle::{CARRIED, MODULE, Recycle};
use super::shadow::{Place, Shadow};
use super::users::{self, Lists};

use super::{
    Imported, Locking, Said, Share, View, logical_lines, note, range, referrals, share_name,
};

struct Line<'a> {
    file: &'a str,
    number: usize,
    whole: &'a str,
    /// Main name of the key, in lower case and without blanks.
    key: String,
    value: &'a str,
}

/// Variables for the name of the user, also used as the name of a share that exists for each user.
const USER: [&str; 3] = ["%U", "%u", "%S"];
/// Default location of homes.
const HOMES: &str = "/home/{user}";

/// Returns a path of the section with this configuration's variable for the user. Other variables remain, and exclude the
/// share. `%S` is the section's name, which is the user's only in `[homes]`.
fn of_each(path: &str, section: &str) -> String {
    let path = match is_homes(section) {
        true => path.to_owned(),
        false => path.replace("%S", section),
    };
    let last = path.rsplit_once('/').filter(|(_, last)| USER.contains(last));
    last.map_or(path.clone(), |(folder, _)| format!("{folder}/{{user}}"))
}

fn is_homes(section: &str) -> bool {
    section.eq_ignore_ascii_case("homes")
}

fn is_of_each(share: &Share) -> bool {
    share.path.ends_with("/{user}")
}

/// Defaults of smb.conf: `strict locking = auto`, `posix locking = yes`.
const LOCKING: Locking = Locking { strict: Some(true), posix: Some(true) };

/// Returns whether a line restricts clients in any way.
fn restricts(line: &Line<'_>) -> bool {
    let by_module =
        line.key == "vfsobjects" && modules_of(line).any(|m| module_restricts(m).is_some());
    // With this setting the file's mode, which is all that is checked here, does not describe the rights of the file.
    let by_acls = line.key.ends_with(":ignoresystemacls") && truth(line.value) != Some(false);
    by_module || by_acls && !line.value.is_empty() || takes(&line.key, line.value)
}

/// Adds the shares and settings of the file.
pub(super) fn take(all: &mut Imported, file: &str, text: &str) {
    let mut of_all = OfAll::default();
    let first = all.shares.len();
    // A share is added when the next section begins: only then are all its lines known.
    let mut open: Option<Section> = None;
    let mut section = "global]".to_owned();
    for (number, line) in logical_lines(text, &['#', ';'], "", |_| false) {
        if let Some(header) = line.strip_prefix('[') {
            close(all, open.take());
            // Samba takes the text before the first `]`, and rejects a file without one.
            let (name, is_whole) =
                header.split_once(']').map_or((header, false), |(n, _)| (n, true));
            section = format!("{}]", name.trim().to_lowercase());
            if is_whole {
                open = begin(all, file, number, name.trim());
            } else {
                note(
                    all,
                    file,
                    number,
                    &line,
                    "left out: it has no `]`, and Samba refuses the file",
                );
            }
            continue;
        }
        let Some((key, value)) = line.split_once('=') else {
            note(all, file, number, &line, "not carried over: this is no `key = value`");
            continue;
        };
        let line = Line { file, number, whole: &line, key: main_name(key), value: value.trim() };
        match (&mut open, section.as_str()) {
            (Some(s), _) => s.line(all, &line),
            (None, "global]") => global(all, &line, &mut of_all),
            (None, _) => {} // of a section that was left out as a whole
        }
    }
    close(all, open);
    bind(all, file, &mut of_all);
    all.model = all.model.take().or(of_all.fruit.model().cloned());
    let encrypts_all = all.encryption == Some(Encryption::Required);
    let mut said = Vec::new();
    for share in &mut all.shares[first..] {
        share.lost.extend_from_slice(&of_all.lost);
        share.locking = share.locking.or(of_all.locking).or(LOCKING);
        share.view = share.view.or(of_all.view);
        share.recycle = std::mem::take(&mut share.recycle).or(&of_all.recycle);
        share.fruit = std::mem::take(&mut share.fruit).or(&of_all.fruit);
        settle(share, &of_all);
        said.extend(snapshots(share, &of_all.shadow));
        if let Some(dialect) = &of_all.dialect
            && !(dialect.is_3_0 && (encrypts_all || share.encrypt))
        {
            share.lost.push(dialect.lost());
        }
    }
    for (place, said) in said {
        note(all, &place.file, place.line, &place.whole, said);
    }
}

/// Takes over the snapshots of a share. Returns what is said of them.
fn snapshots(share: &mut Share, of_all: &Shadow) -> Option<(Place, String)> {
    let shadow = std::mem::take(&mut share.shadow).or(of_all);
    let (place, found) = shadow.pattern(&share.path)?;
    let said = match found {
        Ok((pattern, said)) => {
            share.snapshots = Some(pattern);
            said
        }
        Err(why) => why,
    };
    Some((place.clone(), format!("{}: {said}", share.name)))
}

/// Takes the addresses that Samba serves. If the file does not specify them, its shares would be reachable at more addresses
/// than before.
fn bind(all: &mut Imported, file: &str, of_all: &mut OfAll) {
    let Some((number, list)) = of_all.interfaces.list() else { return };
    let whole = format!("interfaces = {list}");
    match of_all.interfaces.bound() {
        Bound::Addresses(list) => {
            let said = "carried over as `bind`, which holds for SMB and for NFS";
            note(all, file, number, &whole, said);
            all.bind.extend(list);
        }
        Bound::All => {
            let said = "not needed: without `bind interfaces only` Samba serves all addresses, as the gateway does";
            note(all, file, number, &whole, said);
        }
        Bound::Unknown(words) => {
            let remedy = format!("write the addresses of {words} as `bind: [ADDRESS, ...]`");
            let said = format!(
                "LOST: `bind` takes addresses; all shares of this file are written as comments; {remedy}"
            );
            note(all, file, number, &whole, said);
            of_all
                .lost
                .push(format!("`{whole}` with `bind interfaces only`, for all shares: {remedy}"));
        }
    }
}

/// Computes the values of a share from its own lines and the global ones.
fn settle(share: &mut Share, of_all: &OfAll) {
    let own = share.said.clients.clone();
    let said = std::mem::take(&mut share.said).or(&of_all.said);
    // smb.conf(5): by default a share is read-only and not open to guests.
    let read_only = said.read_only.unwrap_or(true);
    share.guest = said.guest.unwrap_or(false);
    share.encrypt = said.encrypt.unwrap_or(false);
    (share.clients, share.force) = (said.clients, said.force);
    if said.denies_all == Some(true) && share.clients.is_none() {
        share.lost.push("`hosts deny` names every client, and `hosts allow` none".to_owned());
    } else {
        beside_all(share, own, &of_all.said);
    }
    let lists = std::mem::take(&mut share.lists).or(&of_all.lists);
    // Every user then acts as the guest, whatever the logon.
    if share.guest && said.guest_only == Some(true) {
        if lists.name_somebody() {
            let why = "`guest only`: its lists of users apply to the guest alone";
            share.lost.push(why.to_owned());
        }
        let guest = || Who::User(of_all.guest.as_deref().unwrap_or("nobody").to_owned());
        share.force.user.get_or_insert_with(guest);
    }
    match lists.access(read_only) {
        Ok((access, read_only)) => (share.access, share.read_only) = (access, read_only),
        Err(why) => share.lost.push(why),
    }
}

/// Samba checks the host lists of `[global]` when a client connects, and the share's lists afterwards: both must admit the
/// client.
fn beside_all(share: &mut Share, own: Option<Vec<Client>>, of_all: &Said) {
    let lost = match (&of_all.clients, own) {
        (None, _) if of_all.denies_all == Some(true) => {
            "`hosts deny` of `[global]` names every client, and its `hosts allow` none"
        }
        (Some(all), Some(own)) if are_within(&own, all) => return,
        (Some(all), Some(own)) if are_within(all, &own) => {
            share.clients = Some(all.clone());
            return;
        }
        (Some(_), Some(_)) => {
            "`hosts allow` of `[global]` applies as well as its own: write the clients that are in both"
        }
        _ => return,
    };
    share.lost.push(lost.to_owned());
}

/// Returns true if each client in `these` is among `those`, as far as that is known without a look-up.
fn are_within(these: &[Client], those: &[Client]) -> bool {
    let has = |outer: &Whom, inner: &Whom| match (outer, inner) {
        (Whom::Range(outer), Whom::Range(inner)) => outer.covers(inner),
        _ => outer == inner,
    };
    these.iter().all(|inner| those.iter().any(|outer| has(&outer.from, &inner.from)))
}

/// Settings of `[global]` that apply to shares.
#[derive(Default)]
struct OfAll {
    said: Said,
    locking: Locking,
    lists: Lists,
    view: View,
    shadow: Shadow,
    recycle: Recycle,
    fruit: Fruit,
    /// `guest account`, unless it is `nobody`.
    guest: Option<String>,
    interfaces: Interfaces,
    dialect: Option<Dialect>,
    /// Restrictions without a counterpart.
    lost: Vec<String>,
}

impl OfAll {
    fn lost(&mut self, all: &mut Imported, line: &Line<'_>, why: &str) {
        self.lost.push(format!("`{}`, for all shares", line.whole.trim()));
        let said = format!("LOST: {why}; all shares of this file are written as comments");
        note(all, line.file, line.number, line.whole, &said);
    }
}

/// A share whose lines are still being read.
struct Section {
    share: Share,
    /// Name of the section in smb.conf.
    name: String,
    file: String,
    line: usize,
    available: bool,
    printable: bool,
}

/// Starts a share. Sections with another meaning are recorded as notes.
fn begin(all: &mut Imported, file: &str, line: usize, name: &str) -> Option<Section> {
    let said = match name.to_lowercase().as_str() {
        "global" => return None,
        "printers" | "print$" => "left out: there is no printing",
        "netlogon" | "sysvol" => "left out: there is no domain",
        "ipc$" => "left out: the gateway has this share for its pipes, and no folder in it",
        _ => {
            let is_homes = is_homes(name);
            let path = if is_homes { HOMES } else { "" };
            let share = Share::new(&share_name(name), path, Protocols::Smb);
            if is_homes {
                let said = "carried over as one share for all: `\\\\SERVER\\homes` is each user's own folder of `path`, \
                            wherever the host has its home folder";
                note(all, file, line, &format!("[{name}]"), said);
            }
            let file = file.to_owned();
            let name = name.to_owned();
            return Some(Section { share, name, file, line, available: true, printable: false });
        }
    };
    note(all, file, line, &format!("[{name}]"), said);
    None
}

fn close(all: &mut Imported, section: Option<Section>) {
    let Some(section) = section else { return };
    let (share, name) = (section.share, format!("[{}]", "share"));
    let said = if section.printable {
        "left out: there is no printing"
    } else if !section.available {
        "left out: it was not available"
    } else if share.path.is_empty() {
        "left out: it has no path"
    } else if share.path.contains('%') {
        "left out: its path differs from client to client"
    } else if !share.path.starts_with('/') && share.refer.is_empty() {
        "left out: its path does not begin with `/`"
    } else {
        all.shares.push(share);
        return;
    };
    note(all, &section.file, section.line, &name.replace("share", &share.name), said);
}

impl Section {
    fn line(&mut self, all: &mut Imported, line: &Line<'_>) {
        let share = &mut self.share;
        let yes = truth(line.value);
        match (line.key.as_str(), yes) {
            ("path", _) => share.path = of_each(line.value.trim_matches('"'), &self.name),
            // The user for whom the share exists. `%S` is the user's name only in `[homes]`.
            ("validusers", _)
                if is_of_each(share)
                    && USER.contains(&line.value)
                    && (is_homes(&self.name) || line.value != "%S") => {}
            ("comment", _) => share.comment = line.value.trim_matches('"').to_owned(),
            _ if defaults(all, line, &mut share.said) => {}
            ("available", Some(yes)) => self.available = yes,
            ("printable", Some(yes)) => self.printable = yes,
            ("include", _) if !line.value.is_empty() => {
                share.lost.push(format!("`{}` was not read", line.whole.trim()));
                unknown(all, line);
            }
            ("smbencrypt", _) => match encryption(line.value) {
                Some(how) => share.said.encrypt = Some(how == Encryption::Required),
                None => unknown(all, line),
            },
            ("hostsallow", _) => match hosts(all, line) {
                Ok(list) => share.said.clients = Some(list),
                Err(Wider(list)) => {
                    // The draft in the comment admits as few as it can.
                    share.said.clients = list;
                    let why = why_no_clients(line);
                    share.lost.push(format!("`{}` {why}", line.whole));
                    let said = format!("LOST: {why}; the share is written as a comment");
                    note(all, line.file, line.number, line.whole, said);
                }
            },
            ("strictlocking" | "posixlocking", _) => locking(all, line, &mut share.locking),
            ("validusers" | "invalidusers" | "readlist" | "writelist", _) => {
                if !users(line, &mut share.lists) {
                    lost(all, line, share);
                }
            }
            ("forceuser" | "forcegroup", _) => self.force(all, line),
            // It only hid the name `homes`: each user still saw the own share.
            ("browseable", _) if is_homes(&share.name) => {}
            ("msdfsproxy", _) => match referrals::of_samba(line.value) {
                Some(servers) => share.refer = servers,
                None => lost(all, line, share),
            },
            _ if view(line, &mut share.view) => {}
            _ if recycle(all, line, &mut share.recycle) => {}
            _ if fruit(all, line, &mut share.fruit) => {}
            _ if share.shadow.line(&line.key, line.value) => {}
            ("vfsobjects", _) if names_shadow(line, &mut share.shadow) => unknown(all, line),
            _ if restricts(line) => lost(all, line, share),
            _ => unknown(all, line),
        }
    }

    /// Takes over `force user` or `force group`.
    fn force(&mut self, all: &mut Imported, line: &Line<'_>) {
        let force = &mut self.share.said.force;
        let (place, make): (_, fn(String) -> Who) = match line.key.as_str() {
            "forceuser" => (&mut force.user, Who::User),
            _ => (&mut force.group, Who::Group),
        };
        match users::name(line.value.trim_matches('"')) {
            _ if line.value.is_empty() => *place = None,
            // Samba forces a group with `+` only on its members.
            Some(Who::User(name)) => *place = Some(make(name)),
            _ => lost(all, line, &mut self.share),
        }
    }
}

/// Takes over a line about the visibility of shares or the masks of modes: a new file or folder gets every bit of its mask.
/// Returns false if the line is about something else.
fn view(line: &Line<'_>, view: &mut View) -> bool {
    let modes = &mut view.modes;
    let bits = match line.key.as_str() {
        "createmask" => &mut modes.file.0,
        "forcecreatemode" => &mut modes.file.1,
        "directorymask" => &mut modes.folder.0,
        "forcedirectorymode" => &mut modes.folder.1,
        "browseable"
        | "administrativeshare"
        | "hideunreadable"
        | "followsymlinks"
        | "crossmnt"
        | "msdfsroot" => {
            let Some(yes) = truth(line.value) else { return false };
            match line.key.as_str() {
                "browseable" => view.hidden = Some(!yes),
                "followsymlinks" => view.leaves_links = Some(!yes),
                "msdfsroot" => view.msdfs = Some(yes),
                // Windows hides it, whatever `browseable` is.
                "administrativeshare" if !yes => {}
                "administrativeshare" => view.hidden = Some(true),
                // Only ksmbd has this key; Samba crosses into each mount.
                "crossmnt" => view.hides_mounts = Some(!yes),
                _ => view.only_visible = Some(yes),
            }
            return true;
        }
        _ => return false,
    };
    let Ok(said) = u32::from_str_radix(line.value, 8) else { return false };
    *bits = Some(said);
    true
}

/// Takes over a line about removed files. Returns false if the line is about something else, or about other modules as well.
fn recycle(all: &mut Imported, line: &Line<'_>, recycle: &mut Recycle) -> bool {
    if line.key == "vfsobjects" {
        recycle.set_modules(modules_of(line));
        return false;
    }
    let Some(said) = recycle.line(&line.key, line.value) else { return false };
    note(all, line.file, line.number, line.whole, said);
    true
}

/// Takes over a line about macOS. Returns false if the line is about something else, or about other modules as well.
fn fruit(all: &mut Imported, line: &Line<'_>, fruit: &mut Fruit) -> bool {
    if line.key == "vfsobjects" {
        fruit.set_modules(modules_of(line));
        return false;
    }
    let Some(said) = fruit.line(&line.key, line.value) else { return false };
    note(all, line.file, line.number, line.whole, said);
    true
}

/// Takes over a line about a directory with users. Returns false if the line is about something else.
fn ldap(all: &mut Imported, line: &Line<'_>) -> bool {
    let Some(said) = all.ldap.line(&line.key, line.value) else { return false };
    note(all, line.file, line.number, line.whole, said);
    true
}

/// Takes over a list of users. Returns false if `access` cannot express some of them.
fn users(line: &Line<'_>, lists: &mut Lists) -> bool {
    match (users::names(line.value), lists.of(&line.key)) {
        (Some(names), Some(list)) => {
            *list = Some(names);
            true
        }
        _ => false,
    }
}

fn lost(all: &mut Imported, line: &Line<'_>, share: &mut Share) {
    share.lost.push(format!("`{}`", line.whole.trim()));
    let said = "LOST: headgate has no such restriction; the share is written as a comment";
    note(all, line.file, line.number, line.whole, said);
}

/// Notes whether a list of modules has the one of snapshots. Returns true if no other module of the list restricts clients.
fn names_shadow(line: &Line<'_>, shadow: &mut Shadow) -> bool {
    let place =
        || Place { file: line.file.into(), line: line.number, whole: line.whole.trim().into() };
    shadow.modules(modules_of(line).any(|m| m.eq_ignore_ascii_case("shadow_copy2")), place);
    !restricts(line)
}

fn global(all: &mut Imported, line: &Line<'_>, of_all: &mut OfAll) {
    match line.key.as_str() {
        _ if recycle(all, line, &mut of_all.recycle) => {}
        _ if fruit(all, line, &mut of_all.fruit) => {}
        _ if ldap(all, line) => {}
        _ if of_all.shadow.line(&line.key, line.value) => {}
        "vfsobjects" if names_shadow(line, &mut of_all.shadow) => unknown(all, line),
        "serversigning" => match line.value.to_lowercase().as_str() {
            "mandatory" | "required" | "force" | "forced" => all.signing = Some(Signing::Required),
            "default" => {}
            _ => all.signing = Some(Signing::Offered),
        },
        "smbencrypt" => match encryption(line.value) {
            Some(found) => all.encryption = Some(found),
            None => unknown(all, line),
        },
        "smbports" => {
            let mut ports = line.value.split([' ', ',']).filter_map(|p| p.parse::<u16>().ok());
            match ports.find(|p| *p != 139) {
                Some(445) | None => {}
                Some(port) => all.smb_port = Some(port),
            }
        }
        "interfaces" => of_all.interfaces.set_list(line.number, line.value),
        "bindinterfacesonly" => of_all.interfaces.set_only(truth(line.value) == Some(true)),
        "ntlmauth" if line.value.eq_ignore_ascii_case("disabled") => {
            of_all.lost(all, line, "write `smb: {ntlm: off}` and `kerberos: {keytab: FILE}`");
        }
        "ntlmauth" => {
            let said = "not needed: passwords are checked by NTLM version 2";
            note(all, line.file, line.number, line.whole, said);
        }
        "strictlocking" | "posixlocking" => locking(all, line, &mut of_all.locking),
        "hostsallow" => match hosts(all, line) {
            Ok(list) => of_all.said.clients = Some(list),
            Err(Wider(list)) => {
                of_all.said.clients = list;
                of_all.lost(all, line, why_no_clients(line));
            }
        },
        "validusers" | "invalidusers" | "readlist" | "writelist" => {
            if !users(line, &mut of_all.lists) {
                let why = "it names users or groups that cannot be written in `access`";
                of_all.lost(all, line, why);
            }
        }
        "forceuser" | "forcegroup" if !line.value.is_empty() => {
            of_all.lost(all, line, "set it in each share");
        }
        "security" if line.value.eq_ignore_ascii_case("user") => {}
        "security" | "realm" | "kerberosmethod" => {
            note(all, line.file, line.number, line.whole, keys::OF_WINBIND);
        }
        "guestaccount" if line.value == "nobody" => {}
        "guestaccount" => {
            of_all.guest = Some(line.value.to_owned());
            let said = "not carried over: guests are `nobody`, except where `guest only` makes every user the guest";
            note(all, line.file, line.number, line.whole, said);
        }
        "serverminprotocol" => least_protocol(all, line, of_all),
        "include" | "configfile" | "configbackend" if reads_more(line) => {
            of_all.lost(
                all,
                line,
                "NOT READ: what that file says is missing here; write it into this one",
            );
        }
        "available" if truth(line.value) == Some(false) => {
            of_all.lost(all, line, "no share was available")
        }
        "printable" if truth(line.value) == Some(true) => {
            of_all.lost(all, line, "there is no printing")
        }
        _ if defaults(all, line, &mut of_all.said) => {}
        _ if view(line, &mut of_all.view) => {}
        _ if restricts(line) => of_all.lost(all, line, "headgate has no such restriction"),
        _ => unknown(all, line),
    }
}

/// Takes over `server min protocol`.
fn least_protocol(all: &mut Imported, line: &Line<'_>, of_all: &mut OfAll) {
    let least = line.value.to_lowercase();
    let said = match least.starts_with("smb3") {
        true => {
            "LOST: clients of SMB 2.0.2 and 2.1 may connect, too; `smb: {encryption: required}` refuses them"
        }
        false => "not needed: SMB 2.0.2 to 3.1.1 are served, SMB 1 never",
    };
    let is_3_0 = matches!(least.as_str(), "smb3" | "smb3_00");
    let whole = line.whole.trim().to_owned();
    of_all.dialect = least.starts_with("smb3").then_some(Dialect { whole, is_3_0 });
    note(all, line.file, line.number, line.whole, said);
}

/// Returns true if the line makes Samba read configuration from outside this file.
fn reads_more(line: &Line<'_>) -> bool {
    let is_file = line.key == "configbackend" && line.value.eq_ignore_ascii_case("file");
    !line.value.is_empty() && !is_file
}

/// Takes over a line of a share, or of `[global]` as the default for shares without it. Returns false if the line is about
/// something else.
fn defaults(all: &mut Imported, line: &Line<'_>, said: &mut Said) -> bool {
    let yes = truth(line.value);
    match (line.key.as_str(), yes) {
        ("readonly", Some(yes)) => said.read_only = Some(yes),
        ("writable", Some(yes)) => said.read_only = Some(!yes),
        ("guestok", Some(yes)) => said.guest = Some(yes),
        ("guestonly", Some(yes)) => {
            said.guest_only = Some(yes);
            if yes {
                let means = "carried over as `force` in shares with `guest ok`: every user acts as the guest";
                note(all, line.file, line.number, line.whole, means);
            }
        }
        ("hostsdeny", _) if line.value.is_empty() => said.denies_all = Some(false),
        // Samba checks `hosts allow` first, so hosts outside that list are already denied.
        ("hostsdeny", _) if denies_all(line.value) => {
            said.denies_all = Some(true);
            let means = "not needed: `clients` admits no other client";
            note(all, line.file, line.number, line.whole, means);
        }
        _ => return false,
    }
    true
}

fn denies_all(value: &str) -> bool {
    let words = value.split([' ', ',', '\t']).filter(|w| !w.is_empty());
    let all = ["all", "0.0.0.0/0", "0.0.0.0/0.0.0.0", "::/0"];
    words.into_iter().all(|word| all.contains(&word.to_lowercase().as_str()))
}

/// Takes over a line about locks held outside of SMB. Only `no` differs from the gateway's default.
fn locking(all: &mut Imported, line: &Line<'_>, locking: &mut Locking) {
    // `auto` checks locks unless the client has an oplock.
    let yes = truth(line.value).or(line.value.eq_ignore_ascii_case("auto").then_some(true));
    let (setting, still) = match line.key.as_str() {
        "strictlocking" => (
            &mut locking.strict,
            "locks of an SMB client always block reads and writes of other SMB clients",
        ),
        _ => (
            &mut locking.posix,
            "no client, of NFS or SMB, gets a lock that conflicts with another client's",
        ),
    };
    *setting = yes.or(*setting);
    if yes != Some(false) {
        return unknown(all, line);
    }
    let said = format!("carried over as `nfs_locks: advisory`; still, {still}");
    note(all, line.file, line.number, line.whole, said);
}

/// Records the consequence of a line without a counterpart.
fn unknown(all: &mut Imported, line: &Line<'_>) {
    if line.key == "vfsobjects" {
        return modules(all, line);
    }
    if limits_logons(&line.key, line.value) {
        let said = "LOST: headgate has no such restriction of logons; give no password (`headgate user add`) and no ticket to \
                    users whom it refused";
        return note(all, line.file, line.number, line.whole, said);
    }
    note(all, line.file, line.number, line.whole, meaning(&line.key));
}

/// Returns the modules that a line names. The part after a colon only distinguishes several instances of one module.
fn modules_of<'a>(line: &Line<'a>) -> impl Iterator<Item = &'a str> {
    let words = line.value.split([' ', ',', '\t']).filter(|m| !m.is_empty());
    words.map(|word| word.split(':').next().unwrap_or(word))
}

/// Records which VFS modules of Samba have no counterpart.
fn modules(all: &mut Imported, line: &Line<'_>) {
    let missing: Vec<&str> = modules_of(line).filter(|m| !BUILT_IN.contains(m)).collect();
    let mut said = match missing.is_empty() {
        true if modules_of(line).any(|m| m == MODULE) => CARRIED.into(),
        true => {
            "not needed: streams, attributes, descriptors and what macOS expects need no modules"
                .into()
        }
        false => format!("not carried over: headgate has no counterpart of {}", missing.join(", ")),
    };
    if missing.contains(&"full_audit") {
        said += "; for full_audit write `audit` in the shares";
    }
    if modules_of(line).any(|m| m.eq_ignore_ascii_case("acl_xattr")) {
        said += "; the NT ACLs that Samba kept (`security.NTACL`) are NOT READ: the mode and the POSIX ACL of each file apply";
    }
    note(all, line.file, line.number, line.whole, &said);
}

fn encryption(value: &str) -> Option<Encryption> {
    match value.to_lowercase().as_str() {
        "required" | "mandatory" | "force" | "forced" => Some(Encryption::Required),
        "desired" | "default" | "auto" | "if_required" | "enabled" => Some(Encryption::Offered),
        "off" | "no" | "false" | "disabled" => Some(Encryption::Off),
        _ => None,
    }
}

/// Returns why a list of hosts cannot be written as `clients`.
fn why_no_clients(line: &Line<'_>) -> &'static str {
    match line.value.split([',', ' ', '\t']).any(|word| word.eq_ignore_ascii_case("EXCEPT")) {
        true => "has exceptions, which `clients` cannot express",
        false => "names no client",
    }
}

/// The clients of a list that admits fewer; `None` if it names no client.
struct Wider(Option<Vec<Client>>);

/// Returns the hosts of a list in the format of hosts_access(5) and notes entries that are not hosts. An error if no host is left,
/// or the list has an `EXCEPT`, without which it would admit the excluded hosts.
fn hosts(all: &mut Imported, line: &Line<'_>) -> Result<Vec<Client>, Wider> {
    let mut has_exceptions = false;
    let mut found: Vec<Whom> = Vec::new();
    for word in line.value.split([' ', ',', '\t']).filter(|w| !w.is_empty()) {
        match (word.to_lowercase().as_str(), range(word)) {
            ("all", _) => {
                found.extend(["0.0.0.0/0", "::/0"].iter().filter_map(|r| range(r)).map(Whom::Range))
            }
            ("localhost", _) => found.extend(range("127.0.0.1").map(Whom::Range)),
            ("except", _) => {
                has_exceptions = true;
                break;
            }
            (_, Some(r)) => found.push(Whom::Range(r)),
            (lower, None) => {
                // A leading dot means any host of that domain. Wildcards are not allowed in such a list.
                let domain = word.strip_prefix('.').map(|_| format!("*{word}"));
                let is_name =
                    !word.contains(['*', '?', '[']) && lower != "local" && lower != "fail";
                match domain.as_deref().unwrap_or(word).parse() {
                    Ok(whom) if is_name => found.push(whom),
                    _ => {
                        let said = "not carried over: not an address, host, domain or netgroup";
                        note(all, line.file, line.number, word, said);
                    }
                }
            }
        }
    }
    let mut once: Vec<Whom> = Vec::new();
    for whom in found {
        if !once.contains(&whom) {
            once.push(whom);
        }
    }
    let list: Vec<Client> = once.into_iter().map(Client::from).collect();
    match (list.is_empty(), has_exceptions) {
        (false, false) => Ok(list),
        (is_empty, _) => Err(Wider((!is_empty).then_some(list))),
    }
}

#[cfg(test)]
mod tests;
