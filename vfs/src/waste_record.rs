//! What is stored with a file in a wastebasket: where it was, when, by what and by which user it was removed.
//!
//! *Memory.* A record has at most [`RECORD_MAX`] bytes; one without a path has a few dozen, for file systems with little room.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

/// Name of the record among the side data of a file.
pub const NAME: &str = "waste";
/// Largest record.
pub const RECORD_MAX: usize = 8192;
/// Longest name of a user that is stored.
const USER_MAX: usize = 255;
/// First byte of each record.
const VERSION: u8 = 1;
/// Microseconds of a day.
const DAY: u64 = 86_400_000_000;

/// The place of a file in a wastebasket. Its text, `UID-TIMEANDNUMBER`, is its name for the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id {
    /// Microseconds since 1970 at which it was removed.
    pub at: u64,
    /// The user that removed it, as files see it.
    pub uid: u32,
    /// Distinguishes files of one time; its upper half is the [`Part`] of the wastebasket.
    pub number: u32,
}

/// The part of a wastebasket to which a file counts: of the user that removed it, if that user has proved its identity, else of all
/// users of its client's address. Callers that only claim a number could otherwise have many parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// A user, by its number.
    User(u32),
    /// An address, or an IPv6 network of 64 bits, by its [`mark`].
    Address(u16),
}

/// Returns the mark of an address in the names of files: a hash that is never 0 and the same in each run.
pub fn mark(ip: IpAddr) -> u16 {
    let bits = match ip.to_canonical() {
        IpAddr::V4(ip) => u64::from(ip.to_bits()),
        IpAddr::V6(ip) => u64::try_from(ip.to_bits() >> 64).unwrap_or(0),
    };
    // The upper bits of a product depend on all bits.
    let hash = (bits ^ bits >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
    u16::try_from(hash.max(1)).unwrap_or(1)
}

impl Id {
    /// Returns the day in the name of its folder.
    pub fn day(&self) -> u64 {
        self.at / DAY
    }

    /// Returns the part of the wastebasket to which it counts.
    pub fn part(&self) -> Part {
        match u16::try_from(self.number >> 16).unwrap_or(0) {
            0 => Part::User(self.uid),
            mark => Part::Address(mark),
        }
    }

    /// Returns its file name.
    pub fn file(&self) -> String {
        format!("{:014x}{:08x}", self.at, self.number)
    }

    /// Returns its path in the wastebasket.
    pub fn path(&self) -> String {
        format!("{}/{}/{}", self.uid, self.day(), self.file())
    }

    /// Parses a file name in the folder of this user.
    pub fn of_file(uid: u32, file: &str) -> Option<Self> {
        let (at, number) = file.split_at_checked(14)?;
        let is_hex = file.len() == 22 && file.bytes().all(|b| b.is_ascii_hexdigit());
        let at = u64::from_str_radix(at, 16).ok().filter(|_| is_hex)?;
        Some(Self { at, uid, number: u32::from_str_radix(number, 16).ok()? })
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.uid, self.file())
    }
}

impl FromStr for Id {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        let (uid, file) = text.split_once('-').ok_or(())?;
        let uid = uid.parse().map_err(|_| ())?;
        Self::of_file(uid, file).filter(|id| id.to_string() == text).ok_or(())
    }
}

/// How a file came into the wastebasket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// A client removed it.
    Removed,
    /// A client gave its name to another file.
    Replaced,
}

/// The record of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// How it came into the wastebasket.
    pub way: Way,
    /// Its path in the share; only its name if there was no room, or the folder was removed.
    pub path: Vec<u8>,
    /// True if `path` is whole.
    pub is_whole: bool,
    /// Name of the user that removed it; empty if only the number is known.
    pub user: String,
    /// Number of that user, before the share mapped it to another.
    pub uid: Option<u32>,
    /// Address of the client; `None` for the gateway itself.
    pub peer: Option<IpAddr>,
    /// `smb` or `nfs`; empty for the gateway itself.
    pub protocol: String,
}

impl Record {
    /// Returns the record with only the name of the file.
    #[must_use]
    pub fn short(&self) -> Self {
        let name = self.path.rsplit(|b| *b == b'/').next().unwrap_or_default().to_vec();
        Self { is_whole: self.is_whole && name == self.path, path: name, ..self.clone() }
    }

    /// Writes the record.
    pub fn encode(&self) -> Vec<u8> {
        let flags = u8::from(self.way == Way::Replaced) | u8::from(self.is_whole) << 1;
        let mut out = vec![VERSION, flags];
        out.extend(self.uid.unwrap_or(u32::MAX).to_be_bytes());
        let peer = match self.peer {
            None => Ipv6Addr::UNSPECIFIED,
            Some(IpAddr::V4(ip)) => ip.to_ipv6_mapped(),
            Some(IpAddr::V6(ip)) => ip,
        };
        out.extend(peer.octets());
        for text in [&self.protocol, &self.user] {
            let mut end = text.len().min(USER_MAX);
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            out.push(u8::try_from(end).unwrap_or(0));
            out.extend(text.as_bytes().iter().take(end));
        }
        out.extend(&self.path);
        out
    }

    /// Reads a record; `None` if it is none.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk::<2>()?;
        let ([VERSION, flags], true) = (*head, bytes.len() <= RECORD_MAX) else { return None };
        let (uid, rest) = rest.split_first_chunk::<4>()?;
        let (peer, rest) = rest.split_first_chunk::<16>()?;
        let peer = Ipv6Addr::from(*peer);
        let (protocol, rest) = text(rest)?;
        let (user, path) = text(rest)?;
        if path.is_empty() {
            return None;
        }
        let uid = u32::from_be_bytes(*uid);
        Some(Self {
            way: if flags & 1 == 0 { Way::Removed } else { Way::Replaced },
            path: path.to_vec(),
            is_whole: flags & 2 != 0,
            user,
            uid: (uid != u32::MAX).then_some(uid),
            peer: (!peer.is_unspecified()).then(|| IpAddr::V6(peer).to_canonical()),
            protocol,
        })
    }
}

/// Reads a text behind its length.
fn text(bytes: &[u8]) -> Option<(String, &[u8])> {
    let (len, rest) = bytes.split_first()?;
    let (text, rest) = rest.split_at_checked(usize::from(*len))?;
    Some((String::from_utf8(text.to_vec()).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_survives_encoding() {
        let all = Record {
            way: Way::Replaced,
            path: b"a/\xff/c".to_vec(),
            is_whole: true,
            user: "J\u{f6}rg@EXAMPLE.ORG".into(),
            uid: Some(1000),
            peer: Some("192.0.2.7".parse().unwrap()),
            protocol: "smb".into(),
        };
        assert_eq!(Record::decode(&all.encode()), Some(all.clone()));
        let short = Record { path: b"c".to_vec(), is_whole: false, ..all.clone() };
        assert_eq!(all.short(), short);
        assert_eq!(Record::decode(&short.encode()), Some(short));
        let long = Record { user: "\u{f6}".repeat(200), uid: None, peer: None, ..all.clone() };
        let read = Record::decode(&long.encode()).unwrap();
        assert_eq!((read.user.len(), read.uid, read.peer, read.path), (254, None, None, all.path));
    }

    #[test]
    fn damaged_record_is_none() {
        let all = Record {
            way: Way::Removed,
            path: b"a".to_vec(),
            is_whole: true,
            user: "u".into(),
            uid: None,
            peer: None,
            protocol: "nfs".into(),
        };
        let bytes = all.encode();
        for end in 0..bytes.len() {
            assert_eq!(Record::decode(&bytes[..end]), None, "{end}");
        }
        assert_eq!(Record::decode(&[&[2], &bytes[1..]].concat()), None, "another version");
        assert_eq!(Record::decode(&[&bytes[..], &[b'x'; RECORD_MAX]].concat()), None);
    }

    #[test]
    fn files_count_to_user_or_address() {
        let at = |ip: &str| mark(ip.parse().unwrap());
        let id = |mark: u16| Id { at: 1, uid: 7, number: u32::from(mark) << 16 | 0xffff };
        assert_eq!(id(0).part(), Part::User(7));
        assert_eq!(id(at("192.0.2.7")).part(), Part::Address(at("192.0.2.7")));
        assert_eq!(at("192.0.2.7"), at("::ffff:192.0.2.7"));
        assert_eq!(at("2001:db8::1"), at("2001:db8::ffff:1"), "one network");
        assert_ne!(at("2001:db8::1"), at("2001:db8:0:1::1"));
        assert_ne!(at("0.0.0.0"), 0);
        let lan: std::collections::BTreeSet<u16> =
            (0..=255).map(|n| at(&format!("192.168.1.{n}"))).collect();
        assert!(lan.len() > 250, "{}", lan.len());
    }

    #[test]
    fn ids_are_read_as_written() {
        let id = Id { at: 1_795_999_999_123_456, uid: 1000, number: 7 };
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!(id.path(), format!("1000/20787/{}", id.file()));
        let text = id.to_string();
        for bad in [
            "",
            "1000",
            "1000-",
            &text[1..21],
            &text.replace("1000-", "+1000-"),
            &format!("{text}0"),
        ] {
            assert_eq!(bad.parse::<Id>(), Err(()), "{bad}");
        }
    }
}
