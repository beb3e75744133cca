//! The recorded events. Programs read their names and fields, so both are stable. [`EVENTS`] describes each event and is the source
//! of the documentation; no field contains a secret.

use std::net::IpAddr;

use serde::Serialize;

use crate::peer_text::RecordText;

/// A field of an event.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    pub name: &'static str,
    /// Meaning of the value.
    pub about: &'static str,
    /// The field is omitted if it has no value.
    pub may_miss: bool,
}

/// Description of an event for the documentation.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// Value of the field `event`.
    pub name: &'static str,
    /// Meaning of the event.
    pub about: &'static str,
    /// Fields of this event, in addition to [`COMMON`].
    pub fields: &'static [Field],
}

const fn field(name: &'static str, about: &'static str) -> Field {
    Field { name, about, may_miss: false }
}

const fn maybe(name: &'static str, about: &'static str) -> Field {
    Field { name, about, may_miss: true }
}

const KEPT: Field =
    maybe("kept", "where the file that lost its name is in the wastebasket, if it went there");
const PEER: Field = field("peer", "address of the client");
const USER: Field = field("user", "name of the user; empty if unknown");
const UID: Field = maybe("uid", "number of the user on this host, if the protocol supplies it");
const SHARE: Field =
    field("share", "name of the share; empty if the event concerns no particular share");
const SESSION: Field = field("session", "number of the session");
const PROTOCOL: Field = field("protocol", "`smb` or `nfs`");
const PATH: Field = field("path", "name in the share, without a slash before it");
const RESULT: Field =
    field("result", "`ok`, or the name of the error: `denied`, `not found` and so on");

/// Fields at the beginning of every record.
pub const COMMON: &[Field] = &[
    field("time", "time in UTC, like `2026-11-26T05:50:12.123456Z`"),
    field("seq", "number of the record since the gateway started; a gap means lost records"),
    field("event", "name of the event, as on this page"),
];

/// All events.
pub const EVENTS: &[About] = &[
    About {
        name: "start",
        about: "The gateway has started, or has opened this trail.",
        fields: &[field("version", "of the gateway"), field("pid", "number of its process")],
    },
    About { name: "stop", about: "The gateway is about to end.", fields: &[] },
    About {
        name: "records-lost",
        about: "Earlier records were lost: the trail could not be written, or clients were refused more than 1200 times in a \
                minute.",
        fields: &[field("count", "how many")],
    },
    About {
        name: "logon",
        about: "SMB: a user has logged on, has authenticated again, or has added a connection to its session.",
        fields: &[
            PEER,
            USER,
            UID,
            SESSION,
            field("how", "`password`, `ticket`, `guest` or `anonymous`"),
            field("purpose", "`new`, `again` or `connection`"),
            field("dialect", "of SMB, like `3.1.1`"),
            field("transport", "`tcp` or `rdma`"),
            field("protection", "required protection of messages: `encrypted`, `signed` or `none`"),
        ],
    },
    About {
        name: "logon-refused",
        about: "SMB: a logon was refused.",
        fields: &[
            PEER,
            field(
                "user",
                "the name that the client tried, cut at 80 characters; empty if it gave no name",
            ),
            field("reason", "reason, like `wrong password` or `no such user`"),
        ],
    },
    About {
        name: "password-change",
        about: "SMB: a logged-on user has changed the password of an account, or has tried to.",
        fields: &[
            PEER,
            USER,
            UID,
            field("account", "the name that the client gave, cut at 80 characters"),
            field(
                "result",
                "`ok`, or the reason: `wrong password`, `no such user`, `too short`, `too weak`, `not kept here`, `too many wrong \
                 passwords`, `changed meanwhile` or `failed`",
            ),
        ],
    },
    About {
        name: "logoff",
        about: "SMB: the session of a logged-on user has ended.",
        fields: &[
            USER,
            UID,
            SESSION,
            field(
                "reason",
                "`logoff`, `connection` (its last connection ended), `replaced` (its client came back with another), `refused` \
                 (its user failed to authenticate again), `configuration`, `administrator`, `gave way` (a \
                 [limit](limits.md) of sessions was reached)",
            ),
        ],
    },
    About {
        name: "share",
        about: "SMB: a session is connected to a share.",
        fields: &[PEER, USER, UID, SHARE, SESSION, field("access", "`read`, `write` or `admin`")],
    },
    About {
        name: "share-end",
        about: "SMB: a session was disconnected from a share and continues.",
        fields: &[USER, UID, SHARE, SESSION, field("reason", "`disconnect` or `configuration`")],
    },
    About {
        name: "mount",
        about: "NFS: a client has obtained the root of a share, through MOUNT or, in version 4, through its name in the root. \
                One record in ten minutes per share, user and address; the next record counts the others.",
        fields: &[
            PEER,
            field(
                "user",
                "name of the user; empty if unknown, and for further users of an address that has sent more than 256 in ten \
                 minutes",
            ),
            UID,
            SHARE,
            field("version", "of NFS, `3` or `4`"),
            field("path", "path that the client named"),
            maybe(
                "repeats",
                "number of equal mounts since the previous record that were not recorded",
            ),
        ],
    },
    About {
        name: "unmount",
        about: "NFS 3: a client reports that it has unmounted. Version 4 has no such call.",
        fields: &[PEER, USER, UID, field("path", "path that the client named; empty: all")],
    },
    About {
        name: "context",
        about: "NFS: a user has authenticated with a Kerberos ticket (RPCSEC_GSS).",
        fields: &[
            PEER,
            field("user", "the principal"),
            UID,
            field("seconds", "remaining lifetime of the ticket"),
        ],
    },
    About {
        name: "tls",
        about: "NFS: a connection has started TLS.",
        fields: &[
            PEER,
            field("name", "name in the client's certificate; empty without a certificate"),
        ],
    },
    About {
        name: "refused",
        about: "A client was refused by a rule of the configuration or by a limit; equal refusals of one client are recorded \
                at most once a minute. Each refused logon is recorded as `logon-refused`.",
        fields: &[
            PEER,
            USER,
            SHARE,
            field(
                "rule",
                "the rule, as in `headgate status` ([limits](limits.md), [metrics](metrics.md#refusals))",
            ),
        ],
    },
    About {
        name: "administrator",
        about: "An administrator has performed or attempted an action.",
        fields: &[
            field(
                "act",
                "`reload`, `drain`, `log`, `close`, `disconnect`, `add-share`, `add-user`, `admin-token`, `page-login`, \
                 `wastebasket-restore`, `wastebasket-empty`",
            ),
            field("by", "`control socket`, `status page` or `signal`"),
            UID,
            maybe("pid", "number of the process, if known"),
            field("on", "object of the action; empty for the gateway itself"),
            field("result", "`ok`, or the first line of the error"),
        ],
    },
    About {
        name: "configuration",
        about: "A new configuration was applied or refused, or users were added to or removed from the user database.",
        fields: &[
            field(
                "changes",
                "list of changes, like `share added: team` or `smb.signing required (was offered)`",
            ),
            field("result", "`ok`, or the first line of the error"),
        ],
    },
    About {
        name: "create",
        about: "A file, folder, link, device or named stream was created, or a file got another name. Share with `audit: \
                changes`.",
        fields: &[
            PEER,
            PROTOCOL,
            USER,
            UID,
            SHARE,
            PATH,
            field("kind", "`file`, `folder`, `link`, `name`, `special` or `stream`"),
            RESULT,
        ],
    },
    About {
        name: "delete",
        about: "A name was removed; with SMB, at the close of the last handle. Share with `audit: changes`.",
        fields: &[PEER, PROTOCOL, USER, UID, SHARE, PATH, KEPT, RESULT],
    },
    About {
        name: "rename",
        about: "A name was moved; a file under the new name was replaced. Share with `audit: changes`.",
        fields: &[
            PEER,
            PROTOCOL,
            USER,
            UID,
            SHARE,
            PATH,
            field("to", "the new name in the share"),
            KEPT,
            RESULT,
        ],
    },
    About {
        name: "permissions",
        about: "The access list, mode, owner or group of a file or folder was set. Share with `audit: changes`.",
        fields: &[
            PEER,
            PROTOCOL,
            USER,
            UID,
            SHARE,
            PATH,
            field("what", "`list`, `mode`, or `owner` with or without a mode"),
            RESULT,
        ],
    },
    About {
        name: "attributes",
        about: "An extended attribute of a file or folder was set or removed, a Windows attribute (read-only, hidden, system) \
                was changed, or a reparse point was set, changed or removed. Share with `audit: changes`.",
        fields: &[
            PEER,
            PROTOCOL,
            USER,
            UID,
            SHARE,
            PATH,
            field("what", "`extended`, `windows` or `reparse`"),
            RESULT,
        ],
    },
    About {
        name: "privilege",
        about: "SMB: a user has used a [privilege](permissions.md#administrators-and-privileges), for an open or for a change of \
                an owner. Recorded for all shares, whatever their `audit`.",
        fields: &[
            PEER,
            PROTOCOL,
            USER,
            UID,
            SHARE,
            PATH,
            field("privileges", "list of `backup`, `restore`, `security` and `take-ownership`"),
            RESULT,
        ],
    },
    About {
        name: "open",
        about: "A file was opened for reading or writing; one record per open. Share with `audit: reads` or `audit: writes`. \
                If a user changes a file without an open (NFS 3 has none), only the first change within ten minutes is \
                recorded, and the first that fails.",
        fields: &[
            PEER,
            PROTOCOL,
            USER,
            UID,
            SHARE,
            PATH,
            field("access", "`read`, `write` or `read and write`"),
            RESULT,
        ],
    },
];

/// A user. If only the number is known, the writer looks up the name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Party {
    pub user: RecordText,
    /// The uid on this host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
}

impl Party {
    /// Builds a user with name and number.
    pub fn named(user: impl Into<RecordText>, uid: u32) -> Self {
        Self { user: user.into(), uid: Some(uid) }
    }

    /// Builds a user with only a number.
    pub fn numbered(uid: u32) -> Self {
        Self { user: RecordText::default(), uid: Some(uid) }
    }
}

/// How a user authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// A password.
    Password,
    /// A Kerberos ticket.
    Ticket,
    Guest,
    Anonymous,
}

/// A logon over SMB.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs)] // `EVENTS` describes the fields.
pub struct Logon {
    pub peer: IpAddr,
    #[serde(flatten)]
    pub party: Party,
    pub session: u64,
    pub how: Way,
    pub purpose: &'static str,
    pub dialect: &'static str,
    pub transport: &'static str,
    pub protection: &'static str,
}

/// The file operations that a share records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Files(pub u8);

impl Files {
    pub const NONE: Self = Self(0);
    /// Operations that change names and permissions.
    pub const CHANGES: Self = Self(1);
    /// Opens for reading.
    pub const READS: Self = Self(2);
    /// Opens for writing.
    pub const WRITES: Self = Self(4);

    /// Checks whether any of these is recorded.
    pub fn has(self, some: Self) -> bool {
        self.0 & some.0 != 0
    }

    /// Returns the union of both sets.
    #[must_use]
    pub fn and(self, more: Self) -> Self {
        Self(self.0 | more.0)
    }
}

/// An operation on a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs)] // `EVENTS` describes the fields.
pub struct FileEvent {
    pub peer: IpAddr,
    pub protocol: &'static str,
    #[serde(flatten)]
    pub party: Party,
    pub share: RecordText,
    pub path: RecordText,
    pub result: &'static str,
}

/// A recorded event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
#[allow(missing_docs)] // `EVENTS` describes the fields, and a test compares the two.
pub enum Event {
    Start {
        version: &'static str,
        pid: u32,
    },
    Stop,
    RecordsLost {
        count: u64,
    },
    Logon(Logon),
    LogonRefused {
        peer: IpAddr,
        user: RecordText,
        reason: &'static str,
    },
    PasswordChange {
        peer: IpAddr,
        #[serde(flatten)]
        party: Party,
        account: RecordText,
        result: &'static str,
    },
    Logoff {
        #[serde(flatten)]
        party: Party,
        session: u64,
        reason: &'static str,
    },
    Share {
        peer: IpAddr,
        #[serde(flatten)]
        party: Party,
        share: RecordText,
        session: u64,
        access: &'static str,
    },
    ShareEnd {
        #[serde(flatten)]
        party: Party,
        share: RecordText,
        session: u64,
        reason: &'static str,
    },
    Mount {
        peer: IpAddr,
        #[serde(flatten)]
        party: Party,
        share: RecordText,
        version: &'static str,
        path: RecordText,
        #[serde(skip_serializing_if = "Option::is_none")]
        repeats: Option<u64>,
    },
    Unmount {
        peer: IpAddr,
        #[serde(flatten)]
        party: Party,
        path: RecordText,
    },
    Context {
        peer: IpAddr,
        #[serde(flatten)]
        party: Party,
        seconds: u64,
    },
    Tls {
        peer: IpAddr,
        name: RecordText,
    },
    Refused {
        peer: IpAddr,
        user: RecordText,
        share: RecordText,
        rule: &'static str,
    },
    Administrator {
        act: &'static str,
        by: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        uid: Option<u32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        pid: Option<i32>,
        on: RecordText,
        result: RecordText,
    },
    Configuration {
        changes: Vec<RecordText>,
        result: RecordText,
    },
    Create {
        #[serde(flatten)]
        of: FileEvent,
        kind: &'static str,
    },
    Delete {
        #[serde(flatten)]
        of: FileEvent,
        #[serde(skip_serializing_if = "Option::is_none")]
        kept: Option<RecordText>,
    },
    Rename {
        #[serde(flatten)]
        of: FileEvent,
        to: RecordText,
        #[serde(skip_serializing_if = "Option::is_none")]
        kept: Option<RecordText>,
    },
    Permissions {
        #[serde(flatten)]
        of: FileEvent,
        what: &'static str,
    },
    Attributes {
        #[serde(flatten)]
        of: FileEvent,
        what: &'static str,
    },
    Privilege {
        #[serde(flatten)]
        of: FileEvent,
        privileges: Vec<&'static str>,
    },
    Open {
        #[serde(flatten)]
        of: FileEvent,
        access: &'static str,
    },
}

impl Event {
    /// Checks whether a client can cause the event without authentication.
    pub(crate) fn is_of_stranger(&self) -> bool {
        matches!(
            self,
            Self::LogonRefused { .. }
                | Self::Refused { .. }
                | Self::Tls { .. }
                | Self::Unmount { .. }
        )
    }

    /// Returns the user whose name may have to be looked up.
    pub(crate) fn party(&mut self) -> Option<&mut Party> {
        match self {
            Self::Logon(logon) => Some(&mut logon.party),
            Self::PasswordChange { party, .. }
            | Self::Logoff { party, .. }
            | Self::Share { party, .. }
            | Self::ShareEnd { party, .. }
            | Self::Mount { party, .. }
            | Self::Unmount { party, .. }
            | Self::Context { party, .. } => Some(party),
            Self::Create { of, .. }
            | Self::Delete { of, .. }
            | Self::Rename { of, .. }
            | Self::Permissions { of, .. }
            | Self::Attributes { of, .. }
            | Self::Privilege { of, .. }
            | Self::Open { of, .. } => Some(&mut of.party),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    fn of() -> FileEvent {
        let (share, path) = ("team".into(), "a/b".into());
        FileEvent {
            peer: PEER,
            protocol: "nfs",
            party: Party::numbered(7),
            share,
            path,
            result: "ok",
        }
    }

    /// Returns one event of each kind.
    fn samples() -> Vec<Event> {
        let party = || Party::named("alice", 7);
        let text = RecordText::default;
        vec![
            Event::Start { version: "1", pid: 7 },
            Event::Stop,
            Event::RecordsLost { count: 3 },
            Event::Logon(Logon {
                peer: PEER,
                party: party(),
                session: 1,
                how: Way::Password,
                purpose: "new",
                dialect: "3.1.1",
                transport: "tcp",
                protection: "signed",
            }),
            Event::LogonRefused { peer: PEER, user: text(), reason: "wrong password" },
            Event::PasswordChange { peer: PEER, party: party(), account: text(), result: "ok" },
            Event::Logoff { party: party(), session: 1, reason: "logoff" },
            Event::Share { peer: PEER, party: party(), share: text(), session: 1, access: "write" },
            Event::ShareEnd { party: party(), share: text(), session: 1, reason: "disconnect" },
            Event::Mount {
                peer: PEER,
                party: party(),
                share: text(),
                version: "3",
                path: text(),
                repeats: Some(2),
            },
            Event::Unmount { peer: PEER, party: party(), path: text() },
            Event::Context { peer: PEER, party: party(), seconds: 9 },
            Event::Tls { peer: PEER, name: text() },
            Event::Refused { peer: PEER, user: text(), share: text(), rule: "clients" },
            Event::Administrator {
                act: "reload",
                by: "signal",
                uid: Some(0),
                pid: Some(1),
                on: text(),
                result: text(),
            },
            Event::Configuration { changes: vec![], result: text() },
            Event::Create { of: of(), kind: "file" },
            Event::Delete { of: of(), kept: Some(text()) },
            Event::Rename { of: of(), to: text(), kept: Some(text()) },
            Event::Permissions { of: of(), what: "mode" },
            Event::Attributes { of: of(), what: "extended" },
            Event::Privilege { of: of(), privileges: vec!["backup"] },
            Event::Open { of: of(), access: "read" },
        ]
    }

    #[test]
    fn event_table_matches_event_fields() {
        let mut told = Vec::new();
        for event in samples() {
            let Value::Object(record) = serde_json::to_value(&event).unwrap() else { panic!() };
            let name = record["event"].as_str().unwrap().to_owned();
            let about = EVENTS.iter().find(|a| a.name == name).unwrap_or_else(|| panic!("{name}"));
            let own: BTreeSet<&str> =
                record.keys().map(String::as_str).filter(|k| *k != "event").collect();
            let table: BTreeSet<&str> = about.fields.iter().map(|f| f.name).collect();
            assert_eq!(own, table, "{name}");
            told.push(name);
        }
        let all: Vec<&str> = EVENTS.iter().map(|a| a.name).collect();
        assert_eq!(told, all);
    }

    #[test]
    fn absent_fields_are_omitted() {
        let nobody = Event::Mount {
            peer: PEER,
            party: Party::default(),
            share: RecordText::default(),
            version: "3",
            path: RecordText::default(),
            repeats: None,
        };
        let record = serde_json::to_value(&nobody).unwrap();
        assert!(record.get("uid").is_none() && record["user"] == "");
        assert!(record.get("repeats").is_none());
    }
}
