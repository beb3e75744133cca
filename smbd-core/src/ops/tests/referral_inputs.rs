//! Requests for referrals, whole and damaged, compared with a slow model (MS-DFSC sections 2.2.2 and 2.2.3).

use super::dfs::ask;
use super::remote_links::{Leads, harness, model};
use crate::harness::Client;
use crate::status::Status;
use crate::wire::dfs::ReferralRequest;
use crate::wire::fsctl::code::{DFS_GET_REFERRALS, DFS_GET_REFERRALS_EX};

const ROOM: u32 = 4096;
/// The root, a link with two servers, a path below it, and a symbolic link of Samba.
const PATHS: [&str; 4] =
    [r"\gw\data", r"\gw\data\away", r"\gw\data\projects\Old\x", r"\gw\data\other\samba"];

/// A request as the model reads it.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    level: u16,
    path: String,
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from(*bytes.get(at)?) | u16::from(*bytes.get(at + 1)?) << 8)
}

/// Characters up to the terminator, or to the end of the bytes.
fn text(bytes: &[u8]) -> Option<String> {
    let mut units = Vec::new();
    let mut at = 0;
    while let Some(unit) = word(bytes, at) {
        if unit == 0 {
            return String::from_utf16(&units).ok();
        }
        units.push(unit);
        at += 2;
    }
    // Half of a character.
    if at == bytes.len() { String::from_utf16(&units).ok() } else { None }
}

/// The slow model: reads a request byte by byte.
fn read(bytes: &[u8], is_ex: bool) -> Option<Asked> {
    let level = word(bytes, 0)?;
    if !is_ex {
        return Some(Asked { level, path: text(&bytes[2..])? });
    }
    let flags = word(bytes, 2)?;
    let length = u32::from(word(bytes, 4)?) | u32::from(word(bytes, 6)?) << 16;
    let data = bytes.get(8..8 + length as usize)?;
    let named = |at: usize| {
        let length = usize::from(word(data, at)?);
        Some((text(data.get(at + 2..at + 2 + length)?)?, at + 2 + length))
    };
    let (path, behind) = named(0)?;
    // A request with this flag must name a site; servers are the same for each site.
    if flags & 1 != 0 {
        named(behind)?;
    }
    Some(Asked { level, path })
}

/// The status that the model expects.
fn status(asked: Option<&Asked>) -> Status {
    let Some(Asked { level, path }) = asked else { return Status::INVALID_PARAMETER };
    if *level == 0 {
        return Status::INVALID_PARAMETER;
    }
    let lead = path.chars().take_while(|c| *c == '\\').count();
    let mut names = path[lead..].splitn(3, '\\');
    match (names.next(), names.next()) {
        (Some(server), Some(share)) if lead <= 2 && !server.is_empty() && !share.is_empty() => {
            if server.chars().count() > 254 {
                Status::INVALID_PARAMETER
            } else if share.to_lowercase() == "data" {
                Status::SUCCESS
            } else {
                Status::NOT_FOUND
            }
        }
        // A question for a domain controller.
        _ => Status::INVALID_PARAMETER,
    }
}

/// Sends a request and compares status and output with the model. Returns whether it was answered.
async fn meets_model(c: &Client, bytes: &[u8], is_ex: bool) -> bool {
    let asked = read(bytes, is_ex);
    let code = if is_ex { DFS_GET_REFERRALS_EX } else { DFS_GET_REFERRALS };
    let (told, output) = ask(c, code, bytes, ROOM).await;
    assert_eq!(told, status(asked.as_ref()), "{is_ex} {bytes:02x?} {asked:?}");
    if told != Status::SUCCESS {
        return false;
    }
    let Asked { level, path } = asked.unwrap();
    let version = u16::from_le_bytes([output[8], output[9]]);
    assert_eq!(version, level.min(4), "{bytes:02x?}");
    // Both codes have one answer, for each site.
    let plain = ReferralRequest { max_level: level, path: path.clone(), site: None };
    let (told, other) = ask(c, DFS_GET_REFERRALS, &plain.emit(), ROOM).await;
    assert_eq!((told, &other), (Status::SUCCESS, &output), "{bytes:02x?}");
    let below = path.trim_start_matches('\\').splitn(3, '\\').nth(2).unwrap_or_default();
    let is_storage_only = output[4] & 1 == 0;
    let is_link = matches!(model(below, false), Leads::Away(_));
    assert_eq!(is_storage_only, is_link, "{path}");
    true
}

fn requests() -> Vec<(Vec<u8>, bool)> {
    let long = "x".repeat(30_000);
    let mut all = Vec::new();
    for path in PATHS {
        for max_level in [1, 2, 3, 4, 5, u16::MAX] {
            let of = |site: Option<&str>| ReferralRequest {
                max_level,
                path: path.to_owned(),
                site: site.map(str::to_owned),
            };
            all.push((of(None).emit(), false));
            for site in [None, Some(""), Some("Default-First-Site-Name"), Some("Köln"), Some(&long)]
            {
                all.push((of(site).emit_ex(), true));
            }
        }
    }
    all
}

/// Each path, version and site by either code.
#[tokio::test]
async fn site_of_a_client_changes_no_referral() {
    let harness = harness().await;
    let c = harness.client();
    for (bytes, is_ex) in requests() {
        assert!(meets_model(&c, &bytes, is_ex).await, "{bytes:02x?}");
    }
}

/// Each request cut at each byte, and with each byte changed to several values.
#[tokio::test]
async fn damaged_request_is_refused_or_read_as_it_is() {
    let harness = harness().await;
    let c = harness.client();
    let (mut answered, mut refused) = (0, 0);
    let whole = |path: &str, site: Option<&str>| ReferralRequest {
        max_level: 3,
        path: path.into(),
        site: site.map(str::to_owned),
    };
    for path in [r"\gw\data\away", r"\gw\data"] {
        for (bytes, is_ex) in [
            (whole(path, None).emit(), false),
            (whole(path, None).emit_ex(), true),
            (whole(path, Some("Site")).emit_ex(), true),
        ] {
            let mut damaged: Vec<Vec<u8>> =
                (0..bytes.len()).map(|len| bytes[..len].to_vec()).collect();
            for at in 0..bytes.len() {
                for value in [0, 1, 2, 0x5c, 0x7f, 0x80, 0xd8, 0xff] {
                    let mut one = bytes.clone();
                    one[at] = value;
                    damaged.push(one);
                }
            }
            damaged.push([&bytes[..], &[0; 7]].concat());
            for one in damaged {
                match meets_model(&c, &one, is_ex).await {
                    true => answered += 1,
                    false => refused += 1,
                }
            }
        }
    }
    assert!(answered > 500 && refused > 500, "{answered} {refused}");
}

/// Lengths that go beyond the data, inside it, and to no whole character.
#[tokio::test]
async fn lengths_of_a_request_are_bounds() {
    let harness = harness().await;
    let c = harness.client();
    let path: Vec<u8> = r"\gw\data\away".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let lengths: [u16; 9] = [0, 1, 2, 7, 16, 26, 27, 28, u16::MAX];
    for named in lengths {
        for site in lengths {
            for flags in [0_u16, 1, 2, 3, u16::MAX] {
                let site_data = [b'S', 0].repeat(9);
                let data =
                    [&named.to_le_bytes()[..], &path, &site.to_le_bytes(), &site_data].concat();
                for length in [0, 1, 2, 28, data.len() - 1, data.len(), data.len() + 1, 1 << 31] {
                    let length = u32::try_from(length).unwrap();
                    let mut bytes = [4, flags].map(u16::to_le_bytes).concat();
                    bytes.extend(length.to_le_bytes());
                    bytes.extend(&data);
                    meets_model(&c, &bytes, true).await;
                }
            }
        }
    }
}
