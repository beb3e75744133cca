//! Describes which clients and users lose access to a share by a reload.

use config::{Client, Settings, Share, Who, Whom};

/// Returns a line for each share that admits fewer clients or users than before, or gives them fewer rights.
pub(crate) fn lost(old: &Settings, new: &Settings) -> Vec<String> {
    let now = |name: &str| new.shares.iter().find(|share| share.name == name);
    let both = old.shares.iter().filter_map(|was| Some((was, now(&was.name)?)));
    let lines = both.map(|(was, is)| (&was.name, of_share(was, is)));
    lines
        .filter(|(_, words)| !words.is_empty())
        .map(|(name, words)| format!("share `{name}`: {}", words.join("; ")))
        .collect()
}

fn of_share(was: &Share, is: &Share) -> Vec<String> {
    let mut words = Vec::new();
    if was.protocols.nfs() && !is.protocols.nfs() {
        words.push("all NFS clients".to_owned());
    }
    if was.protocols.smb() && !is.protocols.smb() {
        words.push("all SMB clients".to_owned());
    }
    words.extend(of_clients(was, is));
    if !was.read_only && is.read_only {
        words.push("all clients lose writing".to_owned());
    }
    if was.guest && !is.guest {
        words.push("guests".to_owned());
    }
    words.extend(of_users(was, is));
    words
}

fn of_clients(was: &Share, is: &Share) -> Vec<String> {
    let mut words = Vec::new();
    let Some(now) = &is.clients else {
        if was.clients.is_some() && is.protocols.nfs() {
            words.push("NFS clients outside of the attached networks".to_owned());
        }
        return words;
    };
    let list = |clients: &[&Client]| {
        clients.iter().map(|c| c.from.to_string()).collect::<Vec<_>>().join(", ")
    };
    match &was.clients {
        None => {
            let all: Vec<&Client> = now.iter().collect();
            if is.protocols.nfs() {
                words.push(format!(
                    "hosts of the attached networks that `clients` does not name, over NFS (it names {})",
                    list(&all)
                ));
            }
            if is.protocols.smb() {
                words.push("every address that `clients` does not name, over SMB".to_owned());
            }
        }
        Some(before) => {
            let covers = |wide: &Client, narrow: &Client| {
                let protocols = (!narrow.protocols.nfs() || wide.protocols.nfs())
                    && (!narrow.protocols.smb() || wide.protocols.smb());
                protocols
                    && match (&wide.from, &narrow.from) {
                        (Whom::Range(wide), Whom::Range(narrow)) => wide.covers(narrow),
                        (wide, narrow) => wide == narrow,
                    }
            };
            let gone = |was: &&Client| !now.iter().any(|is| covers(is, was));
            let gone: Vec<&Client> = before.iter().filter(gone).collect();
            if !gone.is_empty() {
                words.push(list(&gone));
            }
            let same = |was: &Client| now.iter().find(|is| is.from == was.from);
            let loses = |was: &&Client| !was.read_only && same(was).is_some_and(|is| is.read_only);
            let readers: Vec<&Client> = before.iter().filter(loses).collect();
            if !readers.is_empty() {
                words.push(format!("{} may only read", list(&readers)));
            }
        }
    }
    words
}

fn of_users(was: &Share, is: &Share) -> Vec<String> {
    let mut words = Vec::new();
    let Some(now) = &is.access else { return words };
    let list =
        |users: Vec<&Who>| users.iter().map(|who| who.to_string()).collect::<Vec<_>>().join(", ");
    let opened = was.access.as_ref().is_none_or(config::Access::only_denies);
    if opened && !now.only_denies() {
        words.push("users that `access` does not name".to_owned());
    }
    let (mut gone, mut readers) = (Vec::new(), Vec::new());
    if let Some(before) = &was.access {
        let named =
            |who: &Who| [&now.admin, &now.read, &now.write].iter().any(|list| list.contains(who));
        let everyone = named(&Who::Everyone) || now.only_denies();
        gone = before
            .read
            .iter()
            .chain(&before.write)
            .chain(&before.admin)
            .filter(|who| !everyone && !named(who))
            .collect();
        readers = before.write.iter().filter(|who| now.read.contains(who)).collect();
    }
    let denied = |who: &&Who| !was.access.as_ref().is_some_and(|before| before.deny.contains(who));
    gone.extend(now.deny.iter().filter(denied));
    if !gone.is_empty() {
        words.push(list(gone));
    }
    if !readers.is_empty() {
        words.push(format!("{} may only read", list(readers)));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(change: impl FnOnce(&mut Share)) -> Settings {
        let mut share = Share::new("data", config::Source::Folder("/srv".into()));
        share.protocols = config::Protocols::Both;
        change(&mut share);
        Settings { shares: vec![share], ..Settings::default() }
    }

    fn clients(list: &str) -> Option<Vec<Client>> {
        Some(list.split(' ').map(|one| Client::from(one.parse::<Whom>().unwrap())).collect())
    }

    #[test]
    fn clients_that_lose_access_are_named() {
        let none = || share(|_| {});
        let list = |text: &str| share(|s| s.clients = clients(text));
        for (was, is, wanted) in [
            (none(), none(), None),
            (
                none(),
                list("192.0.2.9"),
                Some(
                    "attached networks that `clients` does not name, over NFS (it names 192.0.2.9",
                ),
            ),
            (
                none(),
                list("192.0.2.9"),
                Some("every address that `clients` does not name, over SMB"),
            ),
            (list("10.0.0.0/8"), none(), Some("NFS clients outside of the attached networks")),
            (list("10.0.0.0/8"), list("10.0.0.0/8 192.0.2.9"), None),
            (list("10.1.0.0/16"), list("10.0.0.0/8"), None),
            (list("10.0.0.0/8 ws.lab"), list("10.0.0.0/8"), Some("share `data`: ws.lab")),
            (list("10.0.0.0/8"), list("10.1.0.0/16"), Some("share `data`: 10.0.0.0/8")),
            (none(), share(|s| s.protocols = config::Protocols::Smb), Some("all NFS clients")),
            (none(), share(|s| s.read_only = true), Some("all clients lose writing")),
            (share(|s| s.guest = true), none(), Some("guests")),
        ] {
            let lines = lost(&was, &is);
            match wanted {
                None => assert!(lines.is_empty(), "{lines:?}"),
                Some(words) => assert!(lines.len() == 1 && lines[0].contains(words), "{lines:?}"),
            }
        }
    }

    #[test]
    fn users_that_lose_access_are_named() {
        let access = |read: &[&str], write: &[&str], deny: &[&str]| {
            let list = |names: &[&str]| names.iter().map(|n| n.parse().unwrap()).collect();
            let (read, write, deny) = (list(read), list(write), list(deny));
            share(|s| s.access = Some(config::Access { read, write, deny, ..Default::default() }))
        };
        for (was, is, wanted) in [
            (share(|_| {}), access(&[], &["ann"], &[]), Some("users that `access` does not name")),
            (
                access(&[], &["ann", "bob"], &[]),
                access(&[], &["ann"], &[]),
                Some("share `data`: bob"),
            ),
            (access(&[], &["ann"], &[]), access(&["ann"], &[], &[]), Some("ann may only read")),
            (access(&[], &["ann"], &[]), access(&[], &["ann"], &["eve"]), Some("eve")),
            (access(&["ann"], &[], &[]), access(&[], &["ann", "bob"], &[]), None),
        ] {
            let lines = lost(&was, &is);
            assert_eq!(lines.is_empty(), wanted.is_none(), "{lines:?}");
            assert!(wanted.is_none_or(|words| lines[0].contains(words)), "{lines:?}");
        }
    }
}
