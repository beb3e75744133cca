//! FileFullEaInformation: compares every form of the query with a slow, obvious model of MS-FSA section 2.1.5.12.12.

use super::info::set;
use crate::fscc::ea::{FullEa, emit_names};
use crate::fscc::file::Class;
use crate::fscc::set::Set;
use crate::harness::{Client, Harness};
use crate::open::FileId;
use crate::status::Status;
use crate::wire::Command;
use crate::wire::query_info::{Request, Response, flag, info_type};

/// A form of the query.
#[derive(Clone, Debug)]
struct Ask {
    /// Empty for all attributes.
    names: Vec<&'static str>,
    index: Option<u32>,
    single: bool,
    room: u32,
}

const FILE: [(&str, usize); 4] = [("ONE", 3), ("TWO", 1000), ("THREE", 0x8000), ("FOUR", 1)];

fn value(len: usize) -> Vec<u8> {
    (0..len).map(|i| u8::try_from(i % 251).unwrap()).collect()
}

/// Returns the expected response or error.
fn model(listed: &[FullEa], ask: &Ask) -> Result<(Status, Vec<FullEa>), Status> {
    let find = |name: &&str| {
        let found = listed.iter().find(|ea| ea.name.eq_ignore_ascii_case(name.as_bytes()));
        let value = found.map_or(Vec::new(), |ea| ea.value.clone());
        FullEa { flags: 0, name: name.as_bytes().to_vec(), value }
    };
    let wanted: Vec<FullEa> = if ask.names.is_empty() {
        let skipped = ask.index.map_or(0, |index| index.saturating_sub(1) as usize);
        listed.iter().skip(skipped).cloned().collect()
    } else {
        ask.names.iter().map(find).collect()
    };
    if wanted.is_empty() {
        return Err(Status::NONEXISTENT_EA_ENTRY);
    }
    let wanted = if ask.single { &wanted[..1] } else { &wanted[..] };
    let fits = (0..=wanted.len()).rev();
    let room = ask.room as usize;
    let most = fits.into_iter().find(|n| FullEa::emit_list(&wanted[..*n]).len() <= room).unwrap();
    match most {
        0 => Err(Status::BUFFER_TOO_SMALL),
        n if n < wanted.len() => Ok((Status::BUFFER_OVERFLOW, wanted[..n].to_vec())),
        n => Ok((Status::SUCCESS, wanted[..n].to_vec())),
    }
}

async fn ask(c: &Client, file: FileId, ask: &Ask) -> Result<(Status, Vec<FullEa>), Status> {
    let names: Vec<&[u8]> = ask.names.iter().map(|n| n.as_bytes()).collect();
    let when = |is: bool, bit: u32| if is { bit } else { 0 };
    let r = Request {
        info_type: info_type::FILE,
        class: Class::FullEa.number(),
        output_len: ask.room,
        additional: ask.index.unwrap_or(0),
        flags: when(ask.index.is_some(), flag::INDEX_SPECIFIED)
            | when(ask.single, flag::RETURN_SINGLE_ENTRY),
        file,
        input: if names.is_empty() { Vec::new() } else { emit_names(&names) },
    };
    let answer = c.ask(Command::QueryInfo, &r.emit()).await;
    match answer.status() {
        Status::SUCCESS | Status::BUFFER_OVERFLOW => {
            let told = Response::parse(&answer.whole()).unwrap();
            Ok((answer.status(), FullEa::parse_list(&told.buffer).unwrap()))
        }
        status => Err(status),
    }
}

fn every_ask() -> Vec<Ask> {
    let lists: [&[&str]; 6] = [
        &[],
        &["ONE"],
        &["one", "ONE", "One"],
        &["MISSING", "TWO", "missing"],
        &["THREE", "THREE", "THREE"],
        &["FOUR", "THREE", "TWO", "ONE", "NONE"],
    ];
    let mut all = Vec::new();
    for names in lists {
        for index in [None, Some(0), Some(1), Some(3), Some(5), Some(u32::MAX)] {
            for single in [false, true] {
                for room in [8, 15, 16, 40, 1100, 0x8100, 0x1_0000, 0x2_0000] {
                    all.push(Ask { names: names.to_vec(), index, single, room });
                }
            }
        }
    }
    all
}

#[tokio::test]
async fn attributes_are_answered_as_modelled() {
    let c = Harness::new().client();
    let file = c.open("f").await;
    for (name, len) in FILE {
        let ea = FullEa { flags: 0, name: name.as_bytes().to_vec(), value: value(len) };
        assert_eq!(set(&c, file, Set::FullEa(ea.emit())).await, Status::SUCCESS);
    }
    let all = Ask { names: vec![], index: None, single: false, room: 0x1_0000 };
    let (status, listed) = ask(&c, file, &all).await.unwrap();
    assert_eq!((status, listed.len()), (Status::SUCCESS, FILE.len()));
    for one in every_ask() {
        assert_eq!(ask(&c, file, &one).await, model(&listed, &one), "{one:?}");
    }
}

#[tokio::test]
async fn lists_too_long_are_refused_whole() {
    let c = Harness::new().client();
    let file = c.open("f").await;
    let one = FullEa { flags: 0, name: b"A".to_vec(), value: value(60_000) };
    let list = FullEa::emit_list(&vec![one; 20]);
    assert_eq!(set(&c, file, Set::FullEa(list)).await, Status::EA_TOO_LARGE);
    let all = Ask { names: vec![], index: None, single: false, room: 0x1_0000 };
    assert_eq!(ask(&c, file, &all).await, Err(Status::NO_EAS_ON_FILE));
}
