//! `headgate check --user NAME`: shows the rights of one user in each share, and the settings that decide them.
//!
//! *Operation.* Evaluates the rules of the shares like a running gateway, over a volume in memory: it opens no folder, and ignores
//! the permissions of files.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use config::Step::{self, Key};
use config::{Lines, Settings};
use nfsrdma::clients::LocalSubnets;
use serde_json::json;
use vfs::Cred;
use vfs::namespace::{By, ClientRule, Entered, Refusal, Share};

use crate::identities::{self, Accounts, Found, InDomain, Reason, Resolver};
use crate::table::{Table, Tone};
use crate::writable;
use crate::{client_names, networks, shares, users};

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
    let accounts = users::accounts(settings)?;
    let account = |name: &str| accounts.get(&name.to_lowercase()).cloned();
    let ticket = identities::by_ticket(settings, name, &account);
    let cred = match (identities::user_of(name, settings, &account), &ticket) {
        (Ok(cred), _) => cred,
        (Err(_), Some(ticket)) => ticket.clone(),
        (Err(why), None) if settings.kerberos.is_some() => {
            return Err(format!(
                "{why}; a user of the domain whose numbers are made of SIDs is known after its first ticket, or by its SID"
            ));
        }
        (Err(why), None) => return Err(why),
    };
    let asked = Asked {
        accounts: &account,
        found: identities::on_host(settings, &account)?,
        domain: identities::in_domain(settings),
        local_subnets: LocalSubnets::new(networks::attached()),
        client: client.map(|ip| ip.to_canonical()),
        account: account(name).map(|(cred, _)| cred),
        knows_groups: settings
            .kerberos
            .as_ref()
            .is_none_or(|k| k.map == config::KerberosMap::Names),
        ticket,
        cred,
    };
    let names = Arc::default();
    let shares = shares::without_files(settings, &account, &names)?;
    client_names::look_up(settings, names, asked.client)?;
    let lines = file.and_then(Lines::of);
    let (mut rows, mut denied) = (Vec::new(), Vec::new());
    for (share, said) in shares.iter().zip(&settings.shares) {
        let by_nfs = share.protocols.nfs().then(|| asked.by_nfs(share, said)).transpose()?;
        let by_smb = share.protocols.smb().then(|| asked.by_smb(share, said)).transpose()?;
        let [by_nfs, by_smb] = [by_nfs, by_smb].map(|answer| {
            answer.map(|a| Answer { line: line_of(file, lines.as_ref(), share, &a.at), ..a })
        });
        denied.extend([&by_nfs, &by_smb].into_iter().flatten().find_map(|a| asked.denied(said, a)));
        rows.push((share.name.clone(), by_nfs, by_smb));
    }
    if is_json {
        tell_json(name, &asked.cred, rows)
    } else {
        tell(name, &asked.cred, rows)
    }
    for what in denied {
        complain!("warning: {what}");
    }
    Ok(())
}

/// The user, and where it connects from.
struct Asked<'a> {
    /// Identity over NFS.
    cred: Cred,
    /// Identity over SMB, if the user may log on with a password.
    account: Option<Cred>,
    /// Identity over SMB after a logon with a ticket.
    ticket: Option<Cred>,
    /// The groups of users with a ticket are those of this host.
    knows_groups: bool,
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
        // Apply the share's squash, because the share trusts only the resulting identity.
        let caller = match self.client {
            Some(ip) => share.squash_from(ip, self.cred.clone()),
            None => share.squash(self.cred.clone()),
        };
        let reason = identities::reason(said, self.names(), &caller)?;
        let entered = share.right_nfs(rule, &self.cred).map(|right| share.clone().granted(right));
        Ok(self.answer(share, rule, entered, reason.as_ref()))
    }

    fn by_smb(&self, share: &Arc<Share>, said: &config::Share) -> Result<Answer, String> {
        let by_ticket = self.ticket.as_ref().filter(|_| self.account.is_none());
        let caller = match self.account.as_ref().or(by_ticket) {
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
            let groups = if self.knows_groups { "" } else { ", without the groups of its ticket" };
            answer.why = format!("by a ticket{groups}: {}", answer.why);
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

fn tell(name: &str, cred: &Cred, rows: Vec<Row>) {
    let groups = cred.groups.iter().map(|g| format!(" {g}")).collect::<String>();
    say!(
        "{name}: user {}, groups {}{groups}; where the files allow it, it may",
        cred.uid,
        cred.gid
    );
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

fn tell_json(name: &str, cred: &Cred, rows: Vec<Row>) {
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
        "shares": shares,
    });
    say!("{all}");
}
