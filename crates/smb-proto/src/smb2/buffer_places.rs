//! Tests every offset and length of a request: a buffer begins after the fixed part of the body and ends inside the message
//! (MS-SMB2 section 3.3.5.2.6); an empty one may have any offset.

use wire::RemoteSeg;

use super::create::{self, Context};
use super::negotiate::Dialect;
use super::negotiate_context::{NegotiateContext, SHA_512};
use super::query_info::{self, info_type};
use super::rdma::Channel;
use super::test_harness::message;
use super::{
    Command, FileId, HEADER_LEN, ioctl, negotiate, query_directory, read, session_setup, set_info,
    tree_connect, write,
};

/// A field of a request: its offset in the body, and its length.
type Field = (usize, usize);

struct Place {
    name: &'static str,
    message: Vec<u8>,
    fixed: usize,
    offset: Field,
    length: Field,
    is_read: fn(&[u8]) -> bool,
}

fn at((at, bytes): Field) -> std::ops::Range<usize> {
    HEADER_LEN + at..HEADER_LEN + at + bytes
}

impl Place {
    fn get(&self, field: Field) -> usize {
        let mut number = [0; 8];
        number[..field.1].copy_from_slice(&self.message[at(field)]);
        usize::from_le_bytes(number)
    }

    /// Checks whether the request parses with this offset and length.
    fn reads(&self, offset: usize, length: usize) -> bool {
        let mut changed = self.message.clone();
        for (field, value) in [(self.offset, offset), (self.length, length)] {
            changed[at(field)].copy_from_slice(&value.to_le_bytes()[..field.1]);
        }
        (self.is_read)(&changed)
    }

    fn new(
        (name, command): (&'static str, Command),
        body: &[u8],
        (fixed, offset, length): (usize, Field, Field),
        is_read: fn(&[u8]) -> bool,
    ) -> Self {
        // Further bytes after the buffer, as in a chain.
        let message = [message(command, body), vec![0; 16]].concat();
        Self { name, message, fixed, offset, length, is_read }
    }
}

fn of_names() -> Vec<Place> {
    let context = || Context { name: b"MxAc"[..].into(), data: vec![0; 8].into() };
    let create = create::Request {
        oplock_level: 0,
        impersonation: 2,
        access: 1,
        attributes: 0,
        share: 7,
        disposition: 1,
        options: 0,
        name: b"f\0i\0l\0e\0"[..].into(),
        contexts: vec![context()],
    }
    .emit();
    let setup = session_setup::Request {
        flags: 0,
        security_mode: 1,
        capabilities: 0,
        previous_session: 0,
        token: &[1; 16],
    };
    let tree = tree_connect::Request { flags: 0, path: "\\\\gate\\data".into() };
    vec![
        Place::new(
            ("SESSION_SETUP", Command::SessionSetup),
            &setup.emit(),
            (24, (12, 2), (14, 2)),
            |m| session_setup::Request::parse(m).is_ok(),
        ),
        Place::new(
            ("TREE_CONNECT", Command::TreeConnect),
            &tree.emit(),
            (8, (4, 2), (6, 2)),
            |m| tree_connect::Request::parse(m).is_ok(),
        ),
        Place::new(("CREATE, name", Command::Create), &create, (56, (44, 2), (46, 2)), |m| {
            create::Request::parse(m).is_ok()
        }),
        Place::new(("CREATE, contexts", Command::Create), &create, (56, (48, 4), (52, 4)), |m| {
            create::Request::parse(m).is_ok()
        }),
    ]
}

fn of_data() -> Vec<Place> {
    let file = FileId::default();
    let segment = RemoteSeg { offset: 0, handle: 7, len: 8 };
    let read = read::Request {
        padding: 0,
        flags: 0,
        length: 8,
        offset: 0,
        file,
        minimum_count: 0,
        channel: Some(Channel::RdmaV1),
        remaining: 0,
        descriptors: vec![segment],
    };
    let write = write::Request {
        data_offset: 0,
        length: 0,
        offset: 0,
        file,
        channel: Some(Channel::RdmaV1),
        remaining: 8,
        flags: 0,
        descriptors: vec![segment],
        transform: None,
    };
    vec![
        Place::new(("READ", Command::Read), &read.emit(), (48, (44, 2), (46, 2)), |m| {
            read::Request::parse(m).is_ok()
        }),
        Place::new(("WRITE", Command::Write), &write.emit(), (48, (40, 2), (42, 2)), |m| {
            write::Request::parse(m).is_ok()
        }),
    ]
}

fn of_information() -> Vec<Place> {
    let file = FileId::default();
    let control =
        ioctl::Request { code: 1, file, input: &[1; 8], input_max: 0, output_max: 0, flags: 1 };
    let listing = query_directory::Request {
        class: 1,
        flags: 0,
        file_index: 0,
        file,
        output_len: 100,
        pattern: "x*".into(),
    };
    let query = query_info::Request {
        info_type: info_type::FILE,
        class: 15,
        output_len: 100,
        additional: 0,
        flags: 0,
        file,
        input: vec![0; 8],
    };
    let set =
        set_info::Request { info_type: 1, class: 20, additional: 0, file, buffer: vec![0; 8] };
    vec![
        Place::new(("IOCTL", Command::Ioctl), &control.emit(), (56, (24, 4), (28, 4)), |m| {
            ioctl::Request::parse(m).is_ok()
        }),
        Place::new(
            ("QUERY_DIRECTORY", Command::QueryDirectory),
            &listing.emit(),
            (32, (24, 2), (26, 2)),
            |m| query_directory::Request::parse(m).is_ok(),
        ),
        Place::new(("QUERY_INFO", Command::QueryInfo), &query.emit(), (40, (8, 2), (12, 4)), |m| {
            query_info::Request::parse(m).is_ok()
        }),
        Place::new(("SET_INFO", Command::SetInfo), &set.emit(), (32, (8, 2), (4, 4)), |m| {
            set_info::Request::parse(m).is_ok()
        }),
    ]
}

#[test]
fn buffers_must_follow_fixed_part() {
    for place in of_names().into_iter().chain(of_data()).chain(of_information()) {
        let (name, whole) = (place.name, place.message.len());
        let (offset, length) = (place.get(place.offset), place.get(place.length));
        assert!(place.reads(offset, length), "{name}: as it was written");
        for inside in 0..HEADER_LEN + place.fixed {
            assert!(!place.reads(inside, length), "{name}: offset {inside}");
        }
        let most = if place.offset.1 == 2 { usize::from(u16::MAX) } else { 0xffff_fff8 };
        for beyond in [whole - length + 1, (whole - length + 1).next_multiple_of(8), most & !7] {
            assert!(!place.reads(beyond, length), "{name}: offset {beyond}");
        }
        let most = if place.length.1 == 2 { usize::from(u16::MAX) } else { 0xffff_ffff };
        for longer in [whole - offset + 1, whole - offset + 2, most - 1, most] {
            assert!(!place.reads(offset, longer), "{name}: {longer} bytes");
        }
        for anywhere in [0, 1, HEADER_LEN, offset, whole, whole + 1, usize::from(u16::MAX)] {
            assert!(place.reads(anywhere, 0), "{name}: nothing at {anywhere}");
        }
    }
}

#[test]
fn contexts_must_follow_dialects() {
    let preauth = NegotiateContext::Preauth { algorithms: vec![SHA_512], salt: &[0; 32] };
    let dialects = vec![0x0202, 0x0210, 0x0300, 0x0302, Dialect::V311.number()];
    let request = negotiate::Request { dialects, contexts: vec![preauth], ..Default::default() };
    let good = message(Command::Negotiate, &request.emit());
    let place = at((28, 4));
    let begin = u32::from_le_bytes(good[place.clone()].try_into().unwrap());
    for offset in 0..begin + 40 {
        let mut changed = good.clone();
        changed[place.clone()].copy_from_slice(&offset.to_le_bytes());
        let read = negotiate::Request::parse(&changed);
        let found = read.is_ok_and(|read| read.contexts == request.contexts);
        assert_eq!(found, offset == begin, "{offset}");
    }
}
