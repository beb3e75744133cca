//! `headgate check --user NAME`: shows the rights of one user in each share, and the settings that decide them.
//!
//! *Operation.* Evaluates the rules of the shares like a running gateway, over a volume in memory: it opens no folder, and ignores
//! the permissions of files.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use config::Step::{self, Key};
use config::{Lines, Settings, Who};
use nfsrdma::clients::LocalSubnets;
use serde_json::json;
use vfs::Cred;
use vfs::namespace::{By, ClientRule, Entered, Refusal, Share};

use crate::domain_service::{self, Group};
use crate::identities::by_password;
use crate::identities::{self, Accounts, DomainUser, Found, InDomain, Reason, Resolver};
use crate::ldap;
use crate::writable;
use crate::{client_names, domain, networks, shares, users};
use tools::table::{Table, Tone};

/// Rights of a user in a share over one protocol, and the reason.
struct Answer {
    /// `nothing`, `read` or `write`.
    may: &'static str,
    why: String,
    /// The key of the share that decides.
    at: Vec<Step>,
    /// File and line of this key; `None`: the share is not defined in a file.
    line: Option<String>,
    /// Identity that the user acts as; `None`: the user's own.
    acts_as: Option<(u32, u32)>,
}

/// Prints the rights. The error is one line for standard error.
pub fn run(
    (settings, file): (&Settings, Option<&Path>),
    name: &str,
    client: Option<IpAddr>,
    is_json: bool,
) -> Result<(), String> {
    let mut accounts = users::accounts(settings)?;
    let person = of_directory(settings, name, &accounts);
    if let Ok(Some((cred, _))) = &person {
        accounts.insert(name.to_lowercase(), (cred.clone(), true));
    }
    let account = |name: &str| accounts.get(&name.to_lowercase()).cloned();
    let ticket = identities::by_ticket(settings, name, &account);
    let member = ticket.as_ref().and_then(|caller| identities::domain_user(settings, caller));
    let ticket = member.as_ref().map(|member| member.cred.clone()).or(ticket);
    let cred = match &member {
        Some(member) => member.cred.clone(),
        None => identities::user_of(name, settings, &account)
            .inspect(|cred| identities::learn_numbers(settings, cred))
            .or_else(|why| ticket.clone().ok_or_else(|| unknown(name, why, settings)))
            .map_err(|why| match &person {
                Err(silent) => format!("{why}; {silent}"),
                Ok(_) => why,
            })?,
    };
    let found = identities::on_host(settings, &account).or_else(|why| {
        // The name service of this host may ask that of the domain.
        let known = domain::has_service(settings).then(|| settings.on_host.clone());
        known.ok_or(why)
    })?;
    let asked = Asked {
        accounts: &account,
        found,
        domain: identities::in_domain(settings),
        host: domain::host_token(settings),
        local_subnets: LocalSubnets::new(networks::attached()),
        client: client.map(|ip| ip.to_canonical()),
        account: by_password(settings, account(name).filter(|_| member.is_none())),
        ways: ways(settings, member.as_ref()),
        member,
        ticket,
        of_directory: person.ok().flatten().map(|(_, groups)| groups),
        cred,
    };
    let names = Arc::default();
    let shares = shares::without_files(settings, &account, &names);
    client_names::look_up(settings, names, asked.client)?;
    let lines = file.and_then(Lines::of);
    let (mut rows, mut denied) = (Vec::new(), Vec::new());
    for (share, said) in shares.into_iter().zip(&settings.shares) {
        let share = match share {
            Ok(share) => share,
            // The service or the directory may not answer now.
            Err(why) if domain::has_service(settings) || settings.users_from.is_some() => {
                let row = || Answer { may: "unknown", ..nothing(why.clone(), vec![]) };
                let [nfs, smb] = [said.protocols.nfs(), said.protocols.smb()];
                rows.push((said.name.clone(), nfs.then(row), smb.then(row)));
                continue;
            }
            Err(why) => return Err(why),
        };
        let share = &share;
        let by_nfs = share.protocols.nfs().then(|| asked.by_nfs(share, said)).transpose()?;
        let by_smb = share.protocols.smb().then(|| asked.by_smb(share, said)).transpose()?;
        let [by_nfs, by_smb] = [by_nfs, by_smb].map(|answer| {
            answer.map(|a| Answer { line: line_of(file, lines.as_ref(), share, &a.at), ..a })
        });
        denied.extend([&by_nfs, &by_smb].into_iter().flatten().find_map(|a| asked.denied(said, a)));
        rows.push((share.name.clone(), by_nfs, by_smb));
    }
    if is_json {
        tell_json(name, &asked, rows)
    } else {
        tell(name, &asked, rows)
    }
    for what in denied {
        complain!("warning: {what}");
    }
    Ok(())
}

/// Returns a user of the LDAP directory, and its groups in words, unless the configuration or the database has the name. Blocks for
/// some seconds at most.
///
/// # Errors
/// One line: the directory does not answer, or its entry makes no user.
fn of_directory(
    settings: &Settings,
    name: &str,
    accounts: &users::Accounts,
) -> Result<Option<(Cred, Vec<String>)>, String> {
    let who = Who::User(name.to_owned());
    let is_plain = who.sid().is_none() && who.number().is_none() && who.in_domain().is_none();
    if !is_plain || accounts.contains_key(&name.to_lowercase()) {
        return Ok(None);
    }
    ldap::of(settings)?.map_or(Ok(None), |directory| directory.person(name))
}

/// Explains how the gateway would know this user. Blocks for some seconds at most.
fn unknown(name: &str, why: String, settings: &Settings) -> String {
    if let Some(service) = domain_service::of(settings) {
        let by = service.name();
        return match service.seen_now().away {
            Some(away) => {
                format!("{why}; {by} does not answer ({away}), and no earlier logon tells of it")
            }
            None => {
                let who = config::Who::User(name.to_owned());
                let asked = who.in_domain().map(|(plain, domain)| (domain, plain));
                match service.resolve(asked.as_slice()).pop() {
                    Some((Err(away), _)) => {
                        format!("{why}; {by} cannot look it up now: {}", away.detail)
                    }
                    _ => format!("{why}; {by} knows no such user with a number"),
                }
            }
        };
    }
    match settings.kerberos {
        Some(_) => format!(
            "{why}; a user of the domain whose numbers are made of SIDs is known after its first ticket, or by its SID"
        ),
        None => why,
    }
}

/// How the user logs on over SMB, in words; empty if it cannot.
fn ways(settings: &Settings, member: Option<&DomainUser>) -> String {
    let kerberos = settings.kerberos.as_ref();
    // Only where users have the names of this host, it knows their groups.
    let knows_groups = match member {
        Some(member) => member.groups.is_ok(),
        None => kerberos.is_none_or(|k| k.map == config::KerberosMap::Names),
    };
    let by_password = member.is_some()
        && settings.smb.ntlm == config::Ntlm::On
        && settings.domain_by != Some(config::DomainBy::Sssd);
    let way = match (member.is_none() || kerberos.is_some(), by_password) {
        (true, true) => "by a ticket or a password",
        (true, false) => "by a ticket",
        (false, true) => "by a password",
        (false, false) => return String::new(),
    };
    match (knows_groups, by_password) {
        (true, _) => way.to_owned(),
        (false, true) => format!("{way}, without its groups"),
        (false, false) => format!("{way}, without the groups of its ticket"),
    }
}

/// The user, and where it connects from.
struct Asked<'a> {
    /// Identity over NFS.
    cred: Cred,
    /// Identity over SMB, if the user may log on with a password.
    account: Option<Cred>,
    /// Identity over SMB after a logon with a ticket.
    ticket: Option<Cred>,
    /// The user is one of a domain that the service knows.
    member: Option<DomainUser>,
    /// The groups of a user of the LDAP directory, in words.
    of_directory: Option<Vec<String>>,
    /// How it logs on with its identity in the domain; empty if it cannot.
    ways: String,
    /// Token of callers with numbers alone.
    host: vfs::Token,
    client: Option<IpAddr>,
    local_subnets: LocalSubnets,
    accounts: Accounts<'a>,
    found: Found,
    domain: Option<InDomain>,
}

fn nothing(why: impl Into<String>, at: Vec<Step>) -> Answer {
    Answer { may: "nothing", why: why.into(), at, line: None, acts_as: None }
}

/// Formats `FILE:LINE`.
fn line_of(
    file: Option<&Path>,
    lines: Option<&Lines>,
    share: &Share,
    at: &[Step],
) -> Option<String> {
    let line = lines?.of_share(&share.name, at)?;
    Some(format!("{}:{line}", file?.display()))
}

fn of_client(why: Refusal) -> &'static str {
    match why {
        Refusal::NameUnknown => {
            "`clients` needs the name of the address, which cannot be looked up"
        }
        _ => "`clients` has no entry that matches the address",
    }
}

impl Asked<'_> {
    fn names(&self) -> Resolver<'_> {
        Resolver::new(self.accounts, &self.found, self.domain.as_ref())
    }

    /// Returns why the host denies the user write access that the share grants.
    fn denied(&self, said: &config::Share, answer: &Answer) -> Option<String> {
        let (uid, gid) = answer.acts_as.unwrap_or((self.cred.uid, self.cred.gid));
        let groups =
            if answer.acts_as.is_some() { Arc::default() } else { self.cred.groups.clone() };
        let cred = Cred { uid, gid, groups, token: vfs::Token::NONE };
        (answer.may == "write" && !said.homes).then(|| writable::denied(said, &cred))?
    }

    fn by_nfs(&self, share: &Arc<Share>, said: &config::Share) -> Result<Answer, String> {
        let rule = match self.client.map(|ip| (ip, share.client(ip, By::Nfs))) {
            Some((ip, Ok(None))) if !self.local_subnets.contains(ip) => {
                let near = "without `clients` the share is for this host and its directly attached networks";
                return Ok(nothing(near, vec![]));
            }
            Some((_, Err(why))) => return Ok(nothing(of_client(why), vec![Key("clients")])),
            Some((_, Ok(rule))) => rule,
            None => None,
        };
        let has_ticket = said.sec.want_kerberos();
        let cred = match &self.member {
            Some(_) if !has_ticket => Cred { token: self.host.clone(), ..self.cred.clone() },
            _ => self.cred.clone(),
        };
        // Apply the share's squash, because the share trusts only the resulting identity.
        let caller = match self.client {
            Some(ip) => share.squash_from(ip, cred.clone()),
            None => share.squash(cred.clone()),
        };
        let reason = identities::reason(said, self.names(), &caller)?;
        let entered = share.right_nfs(rule, &cred).map(|right| share.clone().granted(right));
        let mut answer = self.answer(share, rule, entered, reason.as_ref());
        if let Some(member) = &self.member {
            let way = if has_ticket { "by a ticket" } else { "by its number" };
            let groups = if member.groups.is_ok() { "" } else { ", without its groups" };
            answer.why = format!("{way}{groups}: {}", answer.why);
        }
        Ok(answer)
    }

    fn by_smb(&self, share: &Arc<Share>, said: &config::Share) -> Result<Answer, String> {
        let by_ticket = self.ticket.as_ref().filter(|_| self.account.is_none());
        let caller = match self.account.as_ref().or(by_ticket) {
            Some(_) if by_ticket.is_some() && self.ways.is_empty() => {
                let why = "`smb: {ntlm: off}` refuses its password, and `kerberos` is not set";
                return Ok(nothing(why, vec![]));
            }
            Some(cred) => cred.clone(),
            None if !said.guest => {
                return Ok(nothing("it has no account; add one with `headgate user add`", vec![]));
            }
            // A user without a password has no key for encryption.
            None if said.encrypt => {
                let why = "it has no account, and guests cannot encrypt: `encrypt: true`";
                return Ok(nothing(why, vec![Key("encrypt")]));
            }
            None => users::guest(),
        };
        let rule = match self.client.map(|ip| share.client(ip, By::Smb)).transpose() {
            Ok(rule) => rule.flatten(),
            Err(why) => return Ok(nothing(of_client(why), vec![Key("clients")])),
        };
        let caller = share.identified(caller);
        let reason = identities::reason(said, self.names(), &caller)?;
        let entered = share.enter_smb(self.client, &caller);
        let mut answer = self.answer(share, rule, entered, reason.as_ref());
        if by_ticket.is_some() {
            answer.why = format!("{}: {}", self.ways, answer.why);
        } else if self.account.is_none() {
            answer.why = format!("as a guest: {}", answer.why);
        }
        Ok(answer)
    }

    fn answer(
        &self,
        share: &Share,
        rule: Option<&ClientRule>,
        entered: Result<Entered, Refusal>,
        reason: Option<&Reason>,
    ) -> Answer {
        let named = reason.map(|r| {
            let at = vec![Key("access"), Key(r.list), Step::Entry(r.entry)];
            (format!("`access: {}: {}`", r.list, r.who), at)
        });
        let entered = match entered {
            Ok(entered) => entered,
            Err(why @ Refusal::Unsure(_)) => {
                let (named, at) = named.unwrap_or_default();
                return nothing(format!("{named}: {}", why.remedy()), at);
            }
            Err(Refusal::Denied) => {
                let (why, at) = named.unwrap_or_default();
                return nothing(why, at);
            }
            Err(Refusal::Elsewhere) => {
                return nothing(
                    "the share is on another server, which decides",
                    vec![Key("refer")],
                );
            }
            Err(_) => {
                let why = "`access` names neither it nor the user that it is squashed to";
                return nothing(why, vec![Key("access")]);
            }
        };
        let range = || {
            let is_it = |one: &ClientRule| rule.is_some_and(|rule| std::ptr::eq(rule, one));
            let entry = share.clients.iter().flatten().position(is_it).unwrap_or_default();
            let why = "`read_only` of its entry in `clients`".to_owned();
            (why, vec![Key("clients"), Step::Entry(entry)])
        };
        let (may, why) = match (entered.share.read_only, share.read_only) {
            (true, true) => ("read", Some(("`read_only: true`".into(), vec![Key("read_only")]))),
            (true, false) => match reason {
                Some(reason) if reason.list == "read" => ("read", named),
                _ => ("read", Some(range())),
            },
            (false, _) => ("write", named),
        };
        let is_itself = entered.cred.uid == self.cred.uid && entered.cred.gid == self.cred.gid;
        let acts_as = (!is_itself).then_some((entered.cred.uid, entered.cred.gid));
        let (why, at) = why.unwrap_or_else(|| ("no rule of the share".into(), vec![]));
        Answer { may, why, at, line: None, acts_as }
    }
}

type Row = (String, Option<Answer>, Option<Answer>);

/// Formats what the service tells of a user's groups.
fn words(member: &DomainUser) -> String {
    let groups = match &member.groups {
        Ok(groups) => groups,
        Err(why) => {
            return format!(
                "its groups are unknown: {why}. The rights below are those of the user alone"
            );
        }
    };
    let name = |group: &Group| group.name.clone().unwrap_or_else(|| group.sid.to_string());
    let names: Vec<String> = groups.all.iter().map(name).collect();
    let age = if groups.are_new {
        ""
    } else {
        "; no controller tells them now, so that these may be incomplete or of an earlier time"
    };
    format!("its groups in the domain: {}{age}", names.join(", "))
}

fn tell(name: &str, asked: &Asked<'_>, rows: Vec<Row>) {
    let cred = &asked.cred;
    let groups = cred.groups.iter().map(|g| format!(" {g}")).collect::<String>();
    say!(
        "{name}: user {}, groups {}{groups}; where the files allow it, it may",
        cred.uid,
        cred.gid
    );
    if let Some(member) = &asked.member {
        say!("{}", words(member));
    }
    if let Some(groups) = &asked.of_directory {
        let groups = if groups.is_empty() { "none".to_owned() } else { groups.join(", ") };
        say!("its groups in the LDAP directory: {groups}");
    }
    let mut table = Table::new(&["share", "by", "may", "because", "acts as", "said in"], 6, false);
    for (share, by_nfs, by_smb) in rows {
        for (by, answer) in [("NFS", by_nfs), ("SMB", by_smb)] {
            let Some(a) = answer else { continue };
            let tone = if a.may == "nothing" { Tone::Bad } else { Tone::Plain };
            let acts_as = a.acts_as.map_or(String::new(), |(uid, gid)| format!("{uid}:{gid}"));
            table.row(
                vec![
                    share.clone(),
                    by.into(),
                    a.may.into(),
                    a.why,
                    acts_as,
                    a.line.unwrap_or_default(),
                ],
                tone,
            );
        }
    }
    say_as_is!("{}", table.render());
}

/// Formats what the service tells of a user; null for one that is not of its domains.
fn in_domain(member: Option<&DomainUser>) -> serde_json::Value {
    let Some(DomainUser { cred, groups }) = member else { return serde_json::Value::Null };
    let group = |one: &Group| json!({"sid": one.sid.to_string(), "name": one.name});
    let all = groups.as_ref().ok().map(|its| its.all.iter().map(group).collect::<Vec<_>>());
    json!({
        "sid": cred.token.user().map(ToString::to_string),
        "groups": all,
        "are_new": groups.as_ref().is_ok_and(|its| its.are_new),
        "why_not": groups.as_ref().err(),
    })
}

fn tell_json(name: &str, asked: &Asked<'_>, rows: Vec<Row>) {
    let cred = &asked.cred;
    let answer = |a: Option<Answer>| {
        a.map(|a| {
            let acts_as = a.acts_as.map(|(uid, gid)| json!({"uid": uid, "gid": gid}));
            json!({"may": a.may, "because": a.why, "said_in": a.line, "acts_as": acts_as})
        })
    };
    let shares: Vec<_> = rows
        .into_iter()
        .map(|(share, nfs, smb)| json!({ "share": share, "nfs": answer(nfs), "smb": answer(smb) }))
        .collect();
    let all = json!({
        "user": name,
        "uid": cred.uid,
        "gid": cred.gid,
        "groups": cred.groups.to_vec(),
        "domain": in_domain(asked.member.as_ref()),
        "of_directory": asked.of_directory,
        "shares": shares,
    });
    say!("{all}");
}

#[cfg(test)]
mod tests {
    use config::{Access, Kerberos, Ntlm};
    use smbd_core::domain_engine::Numbers;
    use vfs::acl::Sid;

    use super::*;
    use crate::domain_service::Groups;

    fn lab(rid: u32) -> Sid {
        Sid::new(5, &[21, 1, 2, 3, rid]).unwrap()
    }

    /// Settings of a gateway whose service knows the domain LAB, with a share that sales may write and readers may not enter.
    fn settings(folder: &Path) -> Settings {
        std::fs::write(folder.join("domain"), "S-1-5-21-1-2-3 LAB lab.test\n").unwrap();
        let group = |rid| vec![Who::Group(lab(rid).to_string())];
        let mut share = config::Share::new("team", config::Source::Memory);
        share.access = Some(Access { write: group(1200), deny: group(1300), ..Access::default() });
        let (state, shares) = (folder.to_owned(), vec![share]);
        let domain_by = Some(config::DomainBy::Winbind);
        Settings { state, shares, domain_by, ..Settings::default() }
    }

    /// Returns what alice may do over NFS and SMB, and why.
    fn alice(settings: &Settings, groups: Result<Groups, String>) -> [(&'static str, String); 2] {
        let domain = domain::of(settings).unwrap();
        let token = vfs::Token::of_ticket(&domain, lab(1103), []);
        let caller = Cred { uid: 3001, gid: 3001, groups: [].into(), token };
        let member = identities::domain_user_with(&domain, &caller, groups);
        let accounts = |_: &str| None;
        let asked = Asked {
            cred: member.cred.clone(),
            account: None,
            ticket: Some(member.cred.clone()),
            ways: ways(settings, Some(&member)),
            of_directory: None,
            member: Some(member),
            host: domain::host_token(settings),
            client: None,
            local_subnets: LocalSubnets::new(Vec::new()),
            accounts: &accounts,
            found: Found::new(),
            domain: identities::in_domain(settings),
        };
        let share = shares::without_files(settings, &accounts, &Arc::default()).remove(0).unwrap();
        let said = &settings.shares[0];
        [asked.by_nfs(&share, said), asked.by_smb(&share, said)]
            .map(|answer| answer.map(|answer| (answer.may, answer.why)).unwrap())
    }

    fn groups(rids: &[u32]) -> Result<Groups, String> {
        let group = |rid: &u32| Group { sid: lab(*rid), name: Some(format!(r"LAB\{rid}")) };
        let gids = rids.iter().skip(1).map(|rid| 3000 + rid).collect();
        let numbers = Numbers { uid: 3001, gid: 3513, groups: gids };
        Ok(Groups { all: rids.iter().map(group).collect(), numbers, are_new: true })
    }

    #[test]
    fn groups_of_domain_decide_by_ticket_and_password() {
        let dir = tempfile::tempdir().unwrap();
        let mut settings = settings(dir.path());
        let silent = || Err("the service of the domain does not answer".to_owned());
        let is = |may, why: &str| (may, why.to_owned());
        let none = "`access` names neither it nor the user that it is squashed to";
        let (write, deny) =
            ("`access: write: @S-1-5-21-1-2-3-1200`", "`access: deny: @S-1-5-21-1-2-3-1300`");
        let smb = |settings: &Settings, groups| alice(settings, groups)[1].clone();
        let both = |why: &str| format!("by a ticket or a password: {why}");
        let password = |why: &str| format!("by a password: {why}");
        assert_eq!(smb(&settings, groups(&[513, 1200])), is("write", &password(write)));

        settings.kerberos = Some(Kerberos::new("keytab"));
        settings.shares[0].sec = "krb5p".parse().unwrap();
        for (rids, may, why) in [
            (&[513, 1200][..], "write", write),
            (&[513], "nothing", none),
            (&[1200, 513], "write", write),
            (&[513, 1200, 1300], "nothing", deny),
        ] {
            let told = alice(&settings, groups(rids));
            let wanted = [is(may, &format!("by a ticket: {why}")), is(may, &both(why))];
            assert_eq!(told, wanted, "{rids:?}");
        }
        let told = alice(&settings, silent());
        let smb_why = format!("by a ticket or a password, without its groups: {none}");
        let nfs_why = format!("by a ticket, without its groups: {none}");
        assert_eq!(told, [is("nothing", &nfs_why), is("nothing", &smb_why)]);
        let by_ticket = format!("by a ticket: {write}");
        // SSSD checks no password.
        settings.domain_by = Some(config::DomainBy::Sssd);
        assert_eq!(smb(&settings, groups(&[513, 1200])), is("write", &by_ticket));
        settings.domain_by = Some(config::DomainBy::Winbind);
        settings.smb.ntlm = Ntlm::Off;
        assert_eq!(smb(&settings, groups(&[513, 1200])), is("write", &by_ticket));
        settings.kerberos = None;
        let refused = "`smb: {ntlm: off}` refuses its password, and `kerberos` is not set";
        assert_eq!(smb(&settings, groups(&[513, 1200])), is("nothing", refused));
    }

    #[test]
    fn groups_are_named_or_said_to_be_unknown() {
        let cred = Cred { uid: 3001, gid: 3513, ..Cred::root() };
        let of = |groups| words(&DomainUser { cred: cred.clone(), groups });
        assert_eq!(of(groups(&[513, 1200])), r"its groups in the domain: LAB\513, LAB\1200");
        let old = groups(&[513]).map(|its| Groups { are_new: false, ..its });
        assert!(of(old).contains("no controller tells them now"));
        assert!(of(Err("silent".into())).starts_with("its groups are unknown: silent"));
    }
}
