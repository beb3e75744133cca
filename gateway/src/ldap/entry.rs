//! Users and groups of directory entries (RFC 2307, Samba's and FreeIPA's schemas). Pure.
//!
//! *Errors.* An entry that makes no user has a reason with its remedy, one line for the log.

use std::collections::BTreeMap;

use audit::PeerText;
use ldap3::ldap_escape;
use smb_auth::NtHash;
use vfs::ANONYMOUS;
use zeroize::Zeroizing;

/// Most names in the entry of a user.
const NAMES_MAX: usize = 16;
/// Most groups of a user.
pub(super) const GROUPS_MAX: usize = 1000;
/// Most characters of the name of an entry in a message.
const DN_SHOWN: usize = 256;

/// Attributes of users.
pub(super) const USER_ATTRIBUTES: [&str; 7] = [
    "uid",
    "uidNumber",
    "gidNumber",
    "sambaNTPassword",
    "ipaNTHash",
    "sambaAcctFlags",
    "nsAccountLock",
];
/// Attributes of groups.
pub(super) const GROUP_ATTRIBUTES: [&str; 2] = ["cn", "gidNumber"];

/// An entry of a search: its name, and the values of its attributes by their names in lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) dn: String,
    pub(super) values: BTreeMap<String, Vec<Vec<u8>>>,
}

impl Row {
    /// Returns the name for messages: the directory chooses it, and it may be long.
    fn shown(&self) -> String {
        PeerText::from(self.dn.chars().take(DN_SHOWN).collect::<String>()).into_string()
    }

    fn values(&self, attribute: &str) -> &[Vec<u8>] {
        self.values.get(&attribute.to_lowercase()).map(Vec::as_slice).unwrap_or_default()
    }

    fn texts(&self, attribute: &str) -> impl Iterator<Item = &str> {
        self.values(attribute).iter().filter_map(|value| std::str::from_utf8(value).ok())
    }

    /// Returns the number that an attribute has.
    fn number(&self, attribute: &str) -> Result<u32, String> {
        let dn = self.shown();
        let value = match self.values(attribute) {
            [one] => std::str::from_utf8(one).ok().and_then(|text| text.parse::<u32>().ok()),
            [] => {
                return Err(format!(
                    "the entry {dn} has no {attribute}; add it, and let `bind_dn` read it"
                ));
            }
            _ => None,
        };
        value.ok_or_else(|| format!("the entry {dn} has no single number as {attribute}"))
    }
}

/// A user of the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct User {
    /// The name in the directory's spelling.
    pub(super) name: String,
    pub(super) hash: NtHash,
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Further groups.
    pub(super) groups: Vec<u32>,
}

/// Returns the filter for the entry of a user.
pub(super) fn user_filter(filter: &str, name: &str) -> String {
    format!("(&{filter}(uid={}))", ldap_escape(name))
}

/// Returns the filter for the groups of a user, which name it by any of its names or its entry.
pub(super) fn groups_filter(names: &[String], dn: &str) -> String {
    let by_name: Vec<String> =
        names.iter().map(|name| format!("(memberUid={})", ldap_escape(name))).collect();
    let (by_name, dn) = (by_name.concat(), ldap_escape(dn));
    format!("(&(objectClass=posixGroup)(|{by_name}(member={dn})))")
}

/// Returns the filter for a group.
pub(super) fn group_filter(name: &str) -> String {
    format!("(&(objectClass=posixGroup)(cn={}))", ldap_escape(name))
}

/// Returns whether a user or group with this number would own files of others.
pub(super) fn is_of_others(number: u32) -> bool {
    [0, ANONYMOUS, u32::MAX].contains(&number)
}

/// Returns the entry of this name, and the name as it has it.
fn named<'a>(rows: &'a [Row], asked: &str) -> Result<Option<(&'a Row, String)>, String> {
    let row = match rows {
        [] => return Ok(None),
        [row] => row,
        [one, other, ..] => {
            let (one, other) = (one.shown(), other.shown());
            return Err(format!(
                "the directory has two entries of the user: {one} and {other}; remove one, or let `filter` choose"
            ));
        }
    };
    let is_asked = |name: &&str| name.to_lowercase() == asked.to_lowercase();
    let name = row.texts("uid").find(is_asked).ok_or_else(|| {
        // The directory compares names in another way, and each other spelling would be another user here.
        format!("the entry {} has no such uid; log on with the name as it is there", row.shown())
    })?;
    Ok(Some((row, name.to_owned())))
}

/// Refuses a number of root or guests.
fn refuse_others(row: &Row, attribute: &str, number: u32) -> Result<(), String> {
    if !is_of_others(number) {
        return Ok(());
    }
    let (dn, whose) = (row.shown(), if number == 0 { "root" } else { "guests or of none" });
    Err(format!(
        "the entry {dn} has {attribute} {number}, which is that of {whose}: its user would have the files of others; \
         give it another number there"
    ))
}

/// Returns the user of this name, if an entry has it, without its groups.
pub(super) fn user(rows: &[Row], asked: &str) -> Result<Option<User>, String> {
    let Some((row, name)) = named(rows, asked)? else { return Ok(None) };
    refuse_flagged(row)?;
    let (uid, gid) = (row.number("uidNumber")?, row.number("gidNumber")?);
    refuse_others(row, "uidNumber", uid)?;
    refuse_others(row, "gidNumber", gid)?;
    let hash = hash(row)?;
    Ok(Some(User { name, hash, uid, gid, groups: Vec::new() }))
}

/// The identity of a user in a list or setting, without its groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Numbers {
    /// The names of the entry, in the directory's spelling: groups may have any of them.
    pub(super) names: Vec<String>,
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// Returns all names of an entry.
fn names(row: &Row) -> Result<Vec<String>, String> {
    let values = row.values("uid");
    let names: Vec<String> = row.texts("uid").map(str::to_owned).collect();
    if values.len() > NAMES_MAX || names.len() < values.len() {
        let dn = row.shown();
        return Err(format!(
            "the entry {dn} has more than {NAMES_MAX} values of uid, or one that is no text; its groups cannot be found by them"
        ));
    }
    Ok(names)
}

/// Returns the numbers of the user of this name, if an entry has it. They suffice for a list or setting, which may also name a user
/// who is disabled or has no password. An entry with the uid of root or guests is none: the name means the user of the host.
pub(super) fn numbers(rows: &[Row], asked: &str) -> Result<Option<Numbers>, String> {
    let Some((row, _)) = named(rows, asked)? else { return Ok(None) };
    let uid = row.number("uidNumber")?;
    if is_of_others(uid) {
        return Ok(None);
    }
    let gid = row.number("gidNumber")?;
    refuse_others(row, "gidNumber", gid)?;
    Ok(Some(Numbers { names: names(row)?, uid, gid }))
}

/// Refuses entries whose logons Samba's flags or FreeIPA's lock forbid, and those of computers and domains.
fn refuse_flagged(row: &Row) -> Result<(), String> {
    let has = |all: &[char]| row.texts("sambaAcctFlags").any(|flags| flags.contains(all));
    let is_locked = row.texts("nsAccountLock").any(|lock| lock.eq_ignore_ascii_case("true"));
    if has(&['D', 'L']) || is_locked {
        return Err(format!("the directory has disabled the user, in the entry {}", row.shown()));
    }
    // Trusts of workstations, servers and domains.
    if has(&['W', 'S', 'I']) {
        return Err(format!(
            "the entry {} is that of a computer or a domain, as sambaAcctFlags says, and no user's",
            row.shown()
        ));
    }
    Ok(())
}

fn hash(row: &Row) -> Result<NtHash, String> {
    let hex = row.texts("sambaNTPassword").find_map(unhex);
    let binary =
        || row.values("ipaNTHash").iter().find_map(|value| value.as_slice().try_into().ok());
    let found: Option<[u8; 16]> = hex.or_else(binary);
    let found = found.ok_or_else(|| {
        format!(
            "the entry {} has no NT hash that `bind_dn` may read, as sambaNTPassword or ipaNTHash; set the password again where \
             the directory makes such hashes, and let `bind_dn` read them",
            row.shown()
        )
    })?;
    Ok(NtHash(Zeroizing::new(found)))
}

/// Parses 32 hexadecimal digits. Samba writes other text for an account without a password.
pub(super) fn unhex(text: &str) -> Option<[u8; 16]> {
    let digits = text.as_bytes();
    if digits.len() != 32 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let mut out = [0; 16];
    for (byte, two) in out.iter_mut().zip(digits.chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok()?;
    }
    Some(out)
}

/// A group of the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) name: String,
    pub(super) gid: u32,
}

/// Returns the groups among the entries. Omits the groups of root and guests, and entries without a number.
///
/// # Errors
/// There are more than [`GROUPS_MAX`].
pub(super) fn groups(rows: &[Row]) -> Result<Vec<Group>, String> {
    if rows.len() > GROUPS_MAX {
        return Err(format!("the user is in more than {GROUPS_MAX} groups of the directory"));
    }
    let group = |row: &Row| {
        let gid = row.number("gidNumber").ok().filter(|gid| !is_of_others(*gid))?;
        let name = row.texts("cn").next().unwrap_or_default().to_owned();
        Some(Group { name, gid })
    };
    let mut groups: Vec<Group> = rows.iter().filter_map(group).collect();
    groups.sort_by(|a, b| (a.gid, &a.name).cmp(&(b.gid, &b.name)));
    groups.dedup_by_key(|group| group.gid);
    Ok(groups)
}

/// Returns the number of the group of this name, if an entry has it.
///
/// # Errors
/// Two entries have the name, or the number belongs to root or guests.
pub(super) fn group(rows: &[Row], asked: &str) -> Result<Option<u32>, String> {
    let row = match rows {
        [] => return Ok(None),
        [row] => row,
        [one, other, ..] => {
            let (one, other) = (one.shown(), other.shown());
            return Err(format!(
                "the directory has two groups `{asked}`: {one} and {other}; write the number, as in `\"@1000\"`"
            ));
        }
    };
    let gid = row.number("gidNumber")?;
    if is_of_others(gid) {
        return Err(format!(
            "the group {} has gidNumber {gid}, which is that of root or of guests",
            row.shown()
        ));
    }
    Ok(Some(gid))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn row(dn: &str, values: &[(&str, &[u8])]) -> Row {
        let mut row = Row { dn: dn.to_owned(), ..Row::default() };
        for (attribute, value) in values {
            row.values.entry(attribute.to_lowercase()).or_default().push(value.to_vec());
        }
        row
    }

    const HASH: &str = "8846F7EAEE8FB117AD06BDD830B7586C";

    fn dana(more: &[(&str, &[u8])]) -> Row {
        let of = |attribute: &str| more.iter().any(|(name, _)| *name == attribute);
        let usual: [(&str, &[u8]); 4] = [
            ("uid", b"Dana"),
            ("uidNumber", b"5001"),
            ("gidNumber", b"5000"),
            ("sambaNTPassword", HASH.as_bytes()),
        ];
        let usual = usual.into_iter().filter(|(name, _)| !of(name));
        let all: Vec<_> = usual.chain(more.iter().copied()).collect();
        row("uid=dana,o=lab", &all)
    }

    fn of(more: &[(&str, &[u8])]) -> Result<User, String> {
        user(&[dana(more)], "DANA").map(Option::unwrap)
    }

    #[test]
    fn user_has_name_numbers_and_hash() {
        let user = of(&[]).unwrap();
        assert_eq!((&*user.name, user.uid, user.gid), ("Dana", 5001, 5000));
        assert_eq!(user.hash, NtHash::of("password"));
        let binary = NtHash::of("of FreeIPA");
        let user = of(&[("ipaNTHash", &binary.0[..]), ("sambaNTPassword", b"")]).unwrap();
        assert_eq!(user.hash, binary);
        assert_eq!(super::user(&[], "dana"), Ok(None));
    }

    #[test]
    fn numbers_of_root_and_guests_are_refused() {
        for number in ["0", "65534", "4294967295"] {
            for attribute in ["uidNumber", "gidNumber"] {
                let why = of(&[(attribute, number.as_bytes())]).unwrap_err();
                let wanted = format!("has {attribute} {number}, which is that of ");
                assert!(why.contains(&wanted) && why.contains("give it another number"), "{why}");
            }
        }
        for number in ["", "-1", "4294967296", "5001x", " 1"] {
            assert!(of(&[("uidNumber", number.as_bytes())]).is_err(), "{number}");
        }
        assert!(of(&[("uidNumber", b"1"), ("uidNumber", b"2")]).is_err());
    }

    #[test]
    fn entries_that_make_no_user_say_why() {
        let two = user(&[dana(&[]), row("uid=dana,o=other", &[])], "dana").unwrap_err();
        assert!(two.contains("uid=dana,o=lab and uid=dana,o=other"), "{two}");
        for (more, wanted) in [
            (("sambaNTPassword", &b"NO PASSWORD*********************"[..]), "has no NT hash"),
            (("sambaNTPassword", b"8846"), "has no NT hash"),
            (("sambaAcctFlags", b"[UD         ]"), "has disabled the user"),
            (("sambaAcctFlags", b"[UL         ]"), "has disabled the user"),
            (("nsAccountLock", b"TRUE"), "has disabled the user"),
            (("sambaAcctFlags", b"[W          ]"), "is that of a computer or a domain"),
            (("sambaAcctFlags", b"[S          ]"), "is that of a computer or a domain"),
            (("sambaAcctFlags", b"[I          ]"), "is that of a computer or a domain"),
            (("uid", b"d\xc3\xa0na"), "has no such uid"),
        ] {
            let why = of(&[more]).unwrap_err();
            assert!(why.contains(wanted), "{why}");
        }
        assert!(of(&[("sambaAcctFlags", b"[U          ]"), ("nsAccountLock", b"FALSE")]).is_ok());
        let missing = user(&[row("uid=dana", &[("uid", b"dana")])], "dana").unwrap_err();
        assert!(missing.contains("has no uidNumber"), "{missing}");
    }

    #[test]
    fn numbers_need_no_password_and_root_is_that_of_the_host() {
        let of = |more: &[(&str, &[u8])]| numbers(&[dana(more)], "DANA");
        let wanted = Numbers { names: vec!["Dana".into()], uid: 5001, gid: 5000 };
        for more in [
            ("sambaNTPassword", &b""[..]),
            ("sambaAcctFlags", b"[UD         ]"),
            ("nsAccountLock", b"TRUE"),
        ] {
            assert_eq!(of(&[more]), Ok(Some(wanted.clone())), "{more:?}");
        }
        for uid in ["0", "65534", "4294967295"] {
            assert_eq!(of(&[("uidNumber", uid.as_bytes())]), Ok(None), "{uid}");
        }
        assert!(of(&[("gidNumber", b"0")]).unwrap_err().contains("gidNumber 0"));
        assert!(of(&[("uidNumber", b"x")]).is_err());
        assert_eq!(numbers(&[], "dana"), Ok(None));
    }

    /// Groups may have either name of a user.
    #[test]
    fn all_names_of_an_entry_are_those_of_its_groups() {
        let all = |more: &[(&str, &[u8])]| {
            let entry = dana(&[&[("uid", &b"Dana"[..])], more].concat());
            numbers(&[entry], "DANA").map(|found| found.unwrap().names)
        };
        assert_eq!(all(&[("uid", b"dsmith")]), Ok(vec!["Dana".into(), "dsmith".into()]));
        assert!(all(&[("uid", &b"d"[..]); NAMES_MAX - 1]).is_ok());
        assert!(all(&[("uid", &b"d"[..]); NAMES_MAX]).unwrap_err().contains("values of uid"));
        assert!(all(&[("uid", b"\xff")]).unwrap_err().contains("no text"));
    }

    #[test]
    fn long_names_of_entries_are_cut_in_messages() {
        let long = format!("uid=dana\n,ou={},o=lab", "x".repeat(5000));
        let why = user(&[row(&long, &[("uid", b"dana")])], "dana").unwrap_err();
        assert!(why.chars().count() < 400 && !why.contains('\n'), "{why}");
    }

    #[test]
    fn groups_are_sorted_and_those_of_root_are_left_out() {
        let group = |gid: &str| row("cn=g", &[("cn", b"g"), ("gidNumber", gid.as_bytes())]);
        let found = groups(&[group("7"), group("0"), group("5"), group("7"), group("x")]).unwrap();
        assert_eq!(found.iter().map(|group| group.gid).collect::<Vec<_>>(), [5, 7]);
        let many = vec![group("7"); GROUPS_MAX + 1];
        assert!(groups(&many).is_err() && groups(&many[1..]).is_ok());
        assert_eq!(super::group(&[group("7")], "g"), Ok(Some(7)));
        assert_eq!(super::group(&[], "g"), Ok(None));
        assert!(super::group(&[group("0")], "g").is_err());
        assert!(super::group(&[group("7"), group("8")], "g").unwrap_err().contains("two groups"));
    }

    #[test]
    fn values_of_filters_are_escaped() {
        let name = "*)(uid=root\\\0";
        let escaped = "\\2a\\29\\28uid=root\\5c\\00";
        assert_eq!(user_filter("(a=b)", name), format!("(&(a=b)(uid={escaped}))"));
        assert_eq!(
            groups_filter(&[name.into(), "dana".into()], "cn=a*,o=b"),
            format!(
                "(&(objectClass=posixGroup)(|(memberUid={escaped})(memberUid=dana)(member=cn=a\\2a,o=b)))"
            )
        );
        let groups = groups_filter(&[name.into()], name);
        let filters = [user_filter("(a=b)", name), groups, group_filter(name)];
        assert!(filters.iter().all(|filter| ldap3::parse_filter(filter).is_ok()));
    }
}
