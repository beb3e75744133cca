//! Information levels of domains, accounts and groups (MS-SAMR sections 2.2.4 to 2.2.7).
//!
//! *Operation.* An account has a name and numbers. All other fields are empty, or times that never come. No level has a password in
//! any form.

use smb_proto::ndr::{Later, Writer};

use super::super::Host;
use super::PASSWORD_PROPERTIES;
use super::handles::Domain;
use super::lists::{self, ALL_USERS, ALL_USERS_NAME, BUILTIN};
use crate::status::Status;

/// A time that never comes, of an account.
const NEVER: u64 = 0x7fff_ffff_ffff_ffff;
/// A span of time without an end, of a domain: spans are negative.
pub(super) const FOR_EVER: u64 = 0x8000_0000_0000_0000;
/// ACB_NORMAL and ACB_PWNOEXP: a user whose password does not expire.
pub(super) const ACCOUNT_CONTROL: u32 = 0x0000_0210;
/// SE_GROUP_MANDATORY, SE_GROUP_ENABLED_BY_DEFAULT and SE_GROUP_ENABLED.
pub(super) const GROUP_ATTRIBUTES: u32 = 7;
/// The fields of USER_ALL_INFORMATION that are no secrets.
const PUBLIC_FIELDS: u32 = 0x00ff_ffff;

/// A structure, and the buffers of its strings, which follow it.
pub(super) struct Structure {
    w: Writer,
    later: Vec<Later>,
}

impl Structure {
    /// Writes a pointer to a union and its switch. Every arm has the largest alignment of all arms (C706 section 14.3.2).
    pub(super) fn of_union(level: u16, align: usize) -> Self {
        let mut w = Writer::default();
        w.pointer();
        w.u16(level);
        w.align(align);
        Self { w, later: Vec::new() }
    }

    pub(super) fn text(&mut self, text: &str) {
        self.w.string_head(text);
        self.later.push(Later::Counted(text.to_owned()));
    }

    fn texts(&mut self, texts: &[&str]) {
        texts.iter().for_each(|text| self.text(text));
    }

    pub(super) fn words(&mut self, words: &[u32]) {
        words.iter().for_each(|word| self.w.u32(*word));
    }

    fn times(&mut self, times: &[u64]) {
        times.iter().for_each(|time| self.w.old_large(*time));
    }

    /// SAMPR_LOGON_HOURS: every hour of a week.
    fn logon_hours(&mut self) {
        const HOURS: u16 = 168;
        const ROOM: u32 = 1260;
        self.w.align(4);
        self.w.u16(HOURS);
        self.w.pointer();
        self.later.push(Later::Bytes { most: ROOM, bytes: vec![0xff; usize::from(HOURS / 8)] });
    }

    fn shorts(&mut self, shorts: &[u16]) {
        shorts.iter().for_each(|short| self.w.u16(*short));
    }

    /// Writes the buffers.
    pub(super) fn end(mut self) -> Writer {
        self.w.later(self.later);
        self.w
    }
}

/// SAMPR_DOMAIN_INFO_BUFFER (section 2.2.4.17).
pub(super) fn domain(host: &dyn Host, domain: Domain, level: u16) -> Result<Writer, Status> {
    /// Thirty minutes.
    const LOCKOUT: u64 = 0u64.wrapping_sub(18_000_000_000);
    const ENABLED: u32 = 1;
    const PRIMARY: u32 = 3;
    let name = || match domain {
        Domain::Machine => host.computer(),
        Domain::Builtin => "Builtin".to_owned(),
    };
    // An arm has numbers of 64 bits.
    let mut s = Structure::of_union(level, 8);
    let general = |s: &mut Structure| {
        let counts = match domain {
            Domain::Machine => {
                let users = u32::try_from(lists::users(host).len()).unwrap_or(u32::MAX);
                let aliases = lists::Groups::of(host).after(0).0.len();
                [users, 1, u32::try_from(aliases).unwrap_or(u32::MAX)]
            }
            Domain::Builtin => [0, 0, u32::try_from(BUILTIN.len()).unwrap_or(u32::MAX)],
        };
        s.times(&[FOR_EVER]);
        s.texts(&["", &name(), ""]);
        s.times(&[0]);
        s.words(&[ENABLED, PRIMARY, 1]);
        s.words(&counts);
    };
    let lockout = |s: &mut Structure| {
        s.w.u64(LOCKOUT);
        s.w.u64(LOCKOUT);
        // Accounts are not locked.
        s.w.u16(0);
    };
    match level {
        1 => {
            s.shorts(&[host.password_length(), 0]);
            s.words(&[PASSWORD_PROPERTIES]);
            s.times(&[FOR_EVER, 0]);
        }
        2 => general(&mut s),
        3 => s.times(&[FOR_EVER]),
        4 | 6 => s.text(""),
        5 => s.text(&name()),
        7 => s.words(&[PRIMARY]),
        8 => s.times(&[0, 0]),
        9 => s.words(&[ENABLED]),
        11 => {
            general(&mut s);
            lockout(&mut s);
        }
        12 => lockout(&mut s),
        13 => s.times(&[0, 0, 0]),
        _ => return Err(Status::INVALID_INFO_CLASS),
    }
    Ok(s.end())
}

/// SAMPR_USER_INFO_BUFFER (section 2.2.7.29), without the levels of passwords.
pub(super) fn user(rid: u32, name: &str, level: u16) -> Result<Writer, Status> {
    let mut s = Structure::of_union(level, 4);
    match level {
        1 => {
            s.texts(&[name, ""]);
            s.words(&[ALL_USERS]);
            s.texts(&["", ""]);
        }
        2 => {
            s.texts(&["", ""]);
            s.shorts(&[0, 0]);
        }
        3 => {
            s.texts(&[name, ""]);
            s.words(&[rid, ALL_USERS]);
            s.texts(&[""; 5]);
            s.times(&[0, NEVER, 0, 0, NEVER]);
            s.logon_hours();
            s.shorts(&[0, 0]);
            s.words(&[ACCOUNT_CONTROL]);
        }
        4 => s.logon_hours(),
        5 => {
            s.texts(&[name, ""]);
            s.words(&[rid, ALL_USERS]);
            s.texts(&[""; 6]);
            s.times(&[0, NEVER]);
            s.logon_hours();
            s.shorts(&[0, 0]);
            s.times(&[0, NEVER]);
            s.words(&[ACCOUNT_CONTROL]);
        }
        6 => s.texts(&[name, ""]),
        7 => s.text(name),
        8 | 11 | 12 | 13 | 14 | 20 => s.text(""),
        9 => s.words(&[ALL_USERS]),
        10 => s.texts(&["", ""]),
        16 => s.words(&[ACCOUNT_CONTROL]),
        17 => s.times(&[NEVER]),
        21 => all_of_user(&mut s, rid, name),
        _ => return Err(Status::INVALID_INFO_CLASS),
    }
    Ok(s.end())
}

/// SAMPR_USER_ALL_INFORMATION (section 2.2.7.6).
fn all_of_user(s: &mut Structure, rid: u32, name: &str) {
    // Last logon, last logoff, password set, account expires, password may and must be changed.
    s.times(&[0, NEVER, 0, NEVER, 0, NEVER]);
    s.text(name);
    s.texts(&[""; 9]);
    // Both forms of the password, and private data: lengths and null pointers.
    for _ in 0..3 {
        s.shorts(&[0, 0]);
        s.w.null();
    }
    // No security descriptor.
    s.words(&[0]);
    s.w.null();
    s.words(&[rid, ALL_USERS, ACCOUNT_CONTROL, PUBLIC_FIELDS]);
    s.logon_hours();
    // Wrong passwords, logons, country code, code page.
    s.shorts(&[0; 4]);
    // Flags: LM password, NT password, password expired, private data sensitive.
    s.w.bytes(&[0; 4]);
}

/// SAMPR_GROUP_INFO_BUFFER (section 2.2.5.7), of the group of all accounts.
pub(super) fn group(members: u32, level: u16) -> Result<Writer, Status> {
    let mut s = Structure::of_union(level, 4);
    match level {
        1 | 5 => {
            s.text(ALL_USERS_NAME);
            s.words(&[GROUP_ATTRIBUTES, members]);
            s.text("");
        }
        2 => s.text(ALL_USERS_NAME),
        3 => s.words(&[GROUP_ATTRIBUTES]),
        4 => s.text(""),
        _ => return Err(Status::INVALID_INFO_CLASS),
    }
    Ok(s.end())
}

/// SAMPR_ALIAS_INFO_BUFFER (section 2.2.6.6).
pub(super) fn alias(name: &str, members: u32, level: u16) -> Result<Writer, Status> {
    let mut s = Structure::of_union(level, 4);
    match level {
        1 => {
            s.text(name);
            s.words(&[members]);
            s.text("");
        }
        2 => s.text(name),
        3 => s.text(""),
        _ => return Err(Status::INVALID_INFO_CLASS),
    }
    Ok(s.end())
}
