//! Converts Samba's four lists of users to `access`.
//!
//! smb.conf(5): `valid users` lists the users who may connect (empty: all users); `invalid users` is then excluded. Users in
//! `write list` may write, users in `read list` may only read, and `read only` decides about the others.

use config::{Access, Who};

/// Samba's lists; `None` means not set.
#[derive(Clone, Debug, Default)]
pub(super) struct Lists {
    pub(super) valid: Option<Vec<Who>>,
    pub(super) invalid: Option<Vec<Who>>,
    pub(super) read: Option<Vec<Who>>,
    pub(super) write: Option<Vec<Who>>,
}

impl Lists {
    /// Returns these lists, and takes unset ones from `other`.
    pub(super) fn or(self, other: &Self) -> Self {
        let either = |a: Option<Vec<Who>>, b: &Option<Vec<Who>>| a.or_else(|| b.clone());
        Self {
            valid: either(self.valid, &other.valid),
            invalid: either(self.invalid, &other.invalid),
            read: either(self.read, &other.read),
            write: either(self.write, &other.write),
        }
    }

    /// Returns true if some list has entries.
    pub(super) fn name_somebody(&self) -> bool {
        let lists = [&self.valid, &self.invalid, &self.read, &self.write];
        lists.into_iter().flatten().any(|list| !list.is_empty())
    }

    /// Returns the list that this key sets.
    pub(super) fn of(&mut self, key: &str) -> Option<&mut Option<Vec<Who>>> {
        match key {
            "validusers" => Some(&mut self.valid),
            "invalidusers" => Some(&mut self.invalid),
            "readlist" => Some(&mut self.read),
            "writelist" => Some(&mut self.write),
            _ => None,
        }
    }

    /// Returns the same rights as `access`, and whether the whole share is read-only. The error says why no `access` expresses
    /// them.
    pub(super) fn access(self, read_only: bool) -> Result<(Option<Access>, bool), String> {
        let list = |list: Option<Vec<Who>>| list.unwrap_or_default();
        let (valid, deny) = (list(self.valid), list(self.invalid));
        let (mut read, write) = (list(self.read), list(self.write));
        // A user in both lists may write.
        read.retain(|who| !write.contains(who));
        let only = |access: Access| Some(access).filter(|a| a.principals().next().is_some());
        let some = |read, write| only(Access { admin: vec![], read, write, deny: deny.clone() });
        match (read_only, valid.is_empty()) {
            (true, true) if write.is_empty() => Ok((some(vec![], vec![]), true)),
            (true, true) => Ok((some(vec![Who::Everyone], write), false)),
            (true, false) if write.is_empty() => Ok((some(valid, vec![]), true)),
            (true, false) => {
                // Membership is known only if the lists name users and no groups.
                let named = |who: &Who| valid.contains(who);
                if !write.iter().all(named) && valid.iter().chain(&write).any(is_group) {
                    return Err("`write list` names users and groups that `valid users` does not, and that may or may not be in \
                                its groups".into());
                }
                let write = write.into_iter().filter(named).collect();
                Ok((some(valid, write), false))
            }
            (false, true) if read.is_empty() => Ok((some(vec![], vec![]), false)),
            (false, true) => {
                Err("`read list` takes writing from some users, and all others may write".into())
            }
            (false, false) => {
                if !read.is_empty() && valid.iter().chain(&read).any(is_group) {
                    return Err(
                        "users that are in `read list`, and through a group in `valid users`, could write"
                            .into(),
                    );
                }
                let (readers, writers) = valid.into_iter().partition(|who| read.contains(who));
                Ok((some(readers, writers), false))
            }
        }
    }
}

fn is_group(who: &Who) -> bool {
    !matches!(who, Who::User(_))
}

/// Returns the users and groups of a list; names with blanks are in quotes. `None`: `access` cannot express some entry.
pub(super) fn names(text: &str) -> Option<Vec<Who>> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for c in text.chars() {
        match c {
            '"' => quoted = !quoted,
            c if !quoted && (c.is_whitespace() || c == ',' || c == ';') => {
                words.push(String::new())
            }
            c => words.last_mut()?.push(c),
        }
    }
    words.iter().filter(|w| !w.is_empty()).map(|w| name(w)).collect()
}

/// `@` and `+` mark groups of the host, `&` a netgroup, `%` a variable of the connection.
pub(super) fn name(word: &str) -> Option<Who> {
    if word.contains(['&', '%', '*']) {
        return None;
    }
    match word.strip_prefix(['@', '+']) {
        Some(group) => format!("@{group}").parse().ok(),
        None => word.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the rights that these lists give, in the notation of the configuration.
    fn rights(lists: [&str; 4], read_only: bool) -> Result<String, String> {
        let list = |text: &str| Some(names(text).unwrap()).filter(|l| !l.is_empty());
        let [valid, invalid, read, write] = lists.map(list);
        let (access, read_only) = Lists { valid, invalid, read, write }.access(read_only)?;
        let shown =
            |list: &[Who]| list.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        let access = access.map_or("-".into(), |a| {
            format!("{}|{}|{}", shown(&a.read), shown(&a.write), shown(&a.deny))
        });
        Ok(format!("{access}{}", if read_only { " ro" } else { "" }))
    }

    #[test]
    fn the_four_lists_give_the_same_rights_here() {
        for (lists, read_only, wanted) in [
            (["", "", "", ""], true, "- ro"),
            (["", "", "", ""], false, "-"),
            (["", "eve", "", ""], false, "||eve"),
            (["", "eve", "", ""], true, "||eve ro"),
            (["", "", "", "@admins"], true, "*|@admins|"),
            (["", "eve", "", "bob"], true, "*|bob|eve"),
            (["@staff, alice", "", "", ""], false, "|@staff alice|"),
            (["@staff", "", "", ""], true, "@staff|| ro"),
            (["+staff bob", "", "", "bob"], true, "@staff bob|bob|"),
            (["alice bob", "", "", "bob carol"], true, "alice bob|bob|"),
            (["alice bob", "eve", "bob", ""], false, "bob|alice|eve"),
            (["alice bob", "", "bob", "bob"], false, "|alice bob|"),
            (["\"DOM\\domain users\"", "", "", ""], false, "|DOM\\domain users|"),
        ] {
            assert_eq!(rights(lists, read_only).as_deref(), Ok(wanted), "{lists:?} {read_only}");
        }
    }

    #[test]
    fn what_would_give_somebody_more_is_not_carried_over() {
        for (lists, read_only) in [
            (["", "", "bob", ""], false),
            (["@staff", "", "bob", ""], false),
            (["alice bob", "", "@interns", ""], false),
            (["@staff", "", "", "bob"], true),
            (["alice", "", "", "@admins"], true),
        ] {
            assert!(rights(lists, read_only).is_err(), "{lists:?} {read_only}");
        }
        for text in ["&netgroup", "%S", "a, %U", "@"] {
            assert_eq!(names(text), None, "{text}");
        }
    }
}
