//! `headgate check --user NAME`: what one user may do in each share, and what of the configuration says so.
//!
//! *Operation.* The share's own rules are asked, as the running gateway asks them, over a volume in memory: no folder is opened.
//! What the files allow is not looked at.

use std::net::IpAddr;

use config::Settings;
use serde_json::json;
use vfs::Cred;
use vfs::namespace::{Refusal, Share};

use crate::people::{self, Reason};
use crate::table::{Table, Tone};
use crate::{shares, users};

/// What a user may do in a share by one protocol, and why.
struct Answer {
    /// `nothing`, `read` or `write`.
    may: &'static str,
    why: String,
    /// As whom it is done; `None`: as the user itself.
    acts_as: Option<(u32, u32)>,
}

/// Tells it. The error is one line for standard error.
pub fn run(
    settings: &Settings,
    name: &str,
    client: Option<IpAddr>,
    is_json: bool,
) -> Result<(), String> {
    let accounts = users::accounts(settings)?;
    let account = |name: &str| accounts.get(&name.to_lowercase()).cloned();
    let has_account = account(name).is_some();
    let cred = people::user_of(name, settings, &account)?;
    let reasons = people::reasons(settings, &account, &cred)?;
    let shares = shares::without_files(settings, &account)?;
    let mut rows = Vec::new();
    for ((share, said), reason) in shares.iter().zip(&settings.shares).zip(&reasons) {
        let by_nfs = share.protocols.nfs().then(|| {
            let refused = client.is_some_and(|ip| share.admits(ip) == Some(false));
            let entered = client.map_or_else(
                || share.enter_nfs(NOWHERE, &cred),
                |ip| share.enter_nfs(ip.to_canonical(), &cred),
            );
            answer(share, refused, entered, &cred, reason)
        });
        let by_smb = share.protocols.smb().then(|| {
            if !has_account && !said.guest {
                let why = "it has no account: `headgate user add`".into();
                return Answer { may: "nothing", why, acts_as: None };
            }
            let refused = client.is_some_and(|ip| share.admits(ip) == Some(false));
            let entered = share.enter_smb(client.map(|ip| ip.to_canonical()), &cred);
            answer(share, refused, entered, &cred, reason)
        });
        rows.push((share.name.clone(), by_nfs, by_smb));
    }
    if is_json {
        tell_json(name, &cred, rows)
    } else {
        tell(name, &cred, rows)
    }
    Ok(())
}

/// An address that no range has but those of everybody: where none was asked about.
const NOWHERE: IpAddr = IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED);

fn answer(
    share: &Share,
    refused: bool,
    entered: Result<vfs::namespace::Entered, Refusal>,
    cred: &Cred,
    reason: &Option<Reason>,
) -> Answer {
    let named = || reason.as_ref().map(|r| format!("`access: {}: {}`", r.list, r.who));
    let nothing = |why: String| Answer { may: "nothing", why, acts_as: None };
    if refused {
        return nothing("`clients` has no range with the address".into());
    }
    let entered = match entered {
        Ok(entered) => entered,
        Err(Refusal::Denied) => return nothing(named().unwrap_or_default()),
        Err(_) => {
            return nothing("`access` does not name it, or not as whom it is squashed".into());
        }
    };
    let (may, why) = match (entered.share.read_only, share.read_only) {
        (true, true) => ("read", Some("`read_only: true`".into())),
        (true, false) => match &reason {
            Some(reason) if reason.list == "write" => {
                ("read", Some("`read_only` of its range in `clients`".into()))
            }
            Some(_) => ("read", named()),
            None => ("read", Some("`read_only` of its range in `clients`".into())),
        },
        (false, _) => ("write", named()),
    };
    let is_itself = entered.cred.uid == cred.uid && entered.cred.gid == cred.gid;
    let acts_as = (!is_itself).then_some((entered.cred.uid, entered.cred.gid));
    Answer { may, why: why.unwrap_or_else(|| "no rule of the share".into()), acts_as }
}

type Row = (String, Option<Answer>, Option<Answer>);

fn tell(name: &str, cred: &Cred, rows: Vec<Row>) {
    let groups = cred.groups.iter().map(|g| format!(" {g}")).collect::<String>();
    say!(
        "{name}: user {}, groups {}{groups}; beside what the files allow it may",
        cred.uid,
        cred.gid
    );
    let mut table = Table::new(&["share", "by", "may", "because", "acts as"], 5, false);
    for (share, by_nfs, by_smb) in rows {
        for (by, answer) in [("NFS", by_nfs), ("SMB", by_smb)] {
            let Some(a) = answer else { continue };
            let tone = if a.may == "nothing" { Tone::Bad } else { Tone::Plain };
            let acts_as = a.acts_as.map_or(String::new(), |(uid, gid)| format!("{uid}:{gid}"));
            table.row(vec![share.clone(), by.into(), a.may.into(), a.why, acts_as], tone);
        }
    }
    say_as_is!("{}", table.render());
}

fn tell_json(name: &str, cred: &Cred, rows: Vec<Row>) {
    let answer = |a: Option<Answer>| {
        a.map(|a| json!({ "may": a.may, "because": a.why, "acts_as": a.acts_as.map(|(uid, gid)| json!({"uid": uid, "gid": gid})) }))
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
