//! Attacks by SMB: a client of dialect 2.1 that speaks as much as they need, as a guest.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::{ANSWER_MAX, MEASURED, PAUSE, Stop, Times, dial, dial_from, until};

/// The share of both servers.
const SHARE: &str = r"\\127.0.0.1\share";
const NEGOTIATE: u16 = 0;
const SESSION_SETUP: u16 = 1;
const TREE_CONNECT: u16 = 3;
const CREATE: u16 = 5;
const QUERY_INFO: u16 = 16;
const SET_INFO: u16 = 17;
/// STATUS_MORE_PROCESSING_REQUIRED
const MORE: u32 = 0xc000_0016;
/// FileFullEaInformation and FileRenameInformation.
const EAS: u8 = 15;
const RENAME: u8 = 10;
/// Create options.
const FOLDER: u32 = 1;
/// Create dispositions.
const OPEN: u32 = 1;
const OPEN_IF: u32 = 3;
/// How often one query names the extended attribute, and the bytes of its value.
const NAMED: usize = 8000;
const VALUE: u16 = 60_000;
/// Handles below the folder that is renamed.
const HELD: usize = 1500;

/// A message behind its length (MS-SMB2 section 2.1).
fn message(command: u16, id: u64, (session, tree): (u64, u32), body: &[u8]) -> Vec<u8> {
    let mut head = vec![0xfe, b'S', b'M', b'B', 64, 0, 1, 0, 0, 0, 0, 0];
    head.extend(command.to_le_bytes());
    // Credits that it asks for; flags, and no next message.
    head.extend([0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    head.extend(id.to_le_bytes());
    head.extend([0; 4]);
    head.extend(tree.to_le_bytes());
    head.extend(session.to_le_bytes());
    head.resize(64, 0);
    head.extend(body);
    let len = u32::try_from(head.len()).unwrap_or(0);
    [&len.to_be_bytes()[..], &head].concat()
}

fn answer(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut len = [0; 4];
    stream.read_exact(&mut len)?;
    let mut whole = vec![0; u32::from_be_bytes(len) as usize];
    stream.read_exact(&mut whole)?;
    Ok(whole)
}

/// NEGOTIATE of dialect 2.1.
fn negotiate() -> Vec<u8> {
    let mut body = vec![36, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0];
    body.resize(36, 7);
    body.extend([0x10, 0x02]);
    message(NEGOTIATE, 0, (0, 0), &body)
}

fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

/// A length as fields of 16 and 32 bits have it.
fn short(n: usize) -> [u8; 2] {
    u16::try_from(n).unwrap_or(u16::MAX).to_le_bytes()
}

fn long(n: usize) -> [u8; 4] {
    u32::try_from(n).unwrap_or(u32::MAX).to_le_bytes()
}

struct Client {
    stream: TcpStream,
    next: u64,
    session: u64,
    tree: u32,
}

impl Client {
    fn connect(stream: TcpStream) -> io::Result<Self> {
        let mut client = Self { stream, next: 1, session: 0, tree: 0 };
        client.stream.write_all(&negotiate())?;
        answer(&mut client.stream)?;
        Ok(client)
    }

    /// Sends a request and gives its status and the whole answer.
    fn ask(&mut self, command: u16, body: &[u8]) -> io::Result<(u32, Vec<u8>)> {
        let request = message(command, self.next, (self.session, self.tree), body);
        self.next += 1;
        self.stream.write_all(&request)?;
        loop {
            let whole = answer(&mut self.stream)?;
            let word = |at: usize| whole.get(at..at + 4).and_then(|w| w.first_chunk());
            let status = word(8).map_or(u32::MAX, |w| u32::from_le_bytes(*w));
            // STATUS_PENDING: the answer follows.
            if status != 0x103 {
                return Ok((status, whole));
            }
        }
    }

    fn set_up(&mut self, token: &[u8]) -> io::Result<u32> {
        let mut body = vec![25, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        body.extend([short(88), short(token.len())].concat());
        body.extend([0; 8]);
        body.extend(token);
        let (status, whole) = self.ask(SESSION_SETUP, &body)?;
        let session = whole.get(40..48).and_then(|w| w.first_chunk());
        self.session = session.map_or(0, |w| u64::from_le_bytes(*w));
        Ok(status)
    }

    /// A new session, of a name that the server does not know (MS-NLMP section 2.2.1).
    fn log_on(&mut self) -> io::Result<()> {
        (self.session, self.tree) = (0, 0);
        let mut first = b"NTLMSSP\0\x01\0\0\0\x97\x82\x08\xe2".to_vec();
        first.extend([0; 16]);
        if self.set_up(&first)? != MORE {
            return Err(io::Error::other("no challenge"));
        }
        let user = utf16("stranger");
        let (response, front) = ([0_u8; 24], 72);
        let field = |len: usize, at: usize| [&short(len)[..], &short(len), &long(at)].concat();
        let mut last = b"NTLMSSP\0\x03\0\0\0".to_vec();
        last.extend(field(0, front));
        last.extend(field(response.len(), front + user.len()));
        last.extend(field(0, front));
        last.extend(field(user.len(), front));
        last.extend(field(0, front));
        last.extend(field(0, front));
        last.extend([0x05, 0x82, 0x08, 0xa2]);
        last.extend([0; 8]);
        last.extend(user);
        last.extend(response);
        match self.set_up(&last)? {
            0 => Ok(()),
            status => Err(io::Error::other(format!("logon: {status:#x}"))),
        }
    }

    fn ready(from: u8, port: u16) -> io::Result<Self> {
        let mut client = Self::connect(dial_from(from, port)?)?;
        client.log_on()?;
        let path = utf16(SHARE);
        let body = [&[9, 0, 0, 0][..], &short(72), &short(path.len()), &path].concat();
        let (status, whole) = client.ask(TREE_CONNECT, &body)?;
        let tree = whole.get(36..40).and_then(|w| w.first_chunk());
        client.tree = tree.map_or(0, |w| u32::from_le_bytes(*w));
        match status {
            0 => Ok(client),
            status => Err(io::Error::other(format!("share: {status:#x}"))),
        }
    }

    /// Opens a file or a folder; `None` where there is none.
    fn create(&mut self, name: &str, how: u32, options: u32) -> io::Result<Option<Vec<u8>>> {
        let path = utf16(name);
        let mut body = vec![57, 0, 0, 0, 2, 0, 0, 0];
        body.extend([0; 16]);
        // MAXIMUM_ALLOWED, no attributes, shared with all.
        for word in [0x0200_0000, 0, 7, how, options] {
            body.extend(u32::to_le_bytes(word));
        }
        body.extend([&short(120)[..], &short(path.len()), &[0; 8]].concat());
        body.extend(if path.is_empty() { vec![0] } else { path });
        let (status, whole) = self.ask(CREATE, &body)?;
        Ok(whole.get(128..144).filter(|_| status == 0).map(<[u8]>::to_vec))
    }

    fn opened(&mut self, name: &str, how: u32, options: u32) -> io::Result<Vec<u8>> {
        let found = self.create(name, how, options)?;
        found.ok_or_else(|| io::Error::other(format!("cannot open {name}")))
    }

    fn set(&mut self, file: &[u8], class: u8, buffer: &[u8]) -> io::Result<u32> {
        let mut body = vec![33, 0, 1, class];
        body.extend([&long(buffer.len())[..], &short(96), &[0; 6], file, buffer].concat());
        self.ask(SET_INFO, &body).map(|(status, _)| status)
    }
}

/// A NEGOTIATE on a new connection each time: what a client meets before its logon.
pub(super) fn victim(port: u16) -> Times {
    let ask = negotiate();
    let ends = Instant::now() + MEASURED;
    let mut times = Vec::new();
    while Instant::now() < ends {
        let began = Instant::now();
        let done = dial(port).and_then(|mut stream| {
            stream.write_all(&ask)?;
            answer(&mut stream)
        });
        times.push(if done.is_ok() { began.elapsed() } else { ANSWER_MAX });
        thread::sleep(PAUSE * 10);
    }
    times.sort_unstable();
    Times(times)
}

/// Goes on with each of these on a thread of its own.
fn go_on(
    clients: Vec<Client>,
    stop: &Stop,
    step: impl Fn(&mut Client) -> io::Result<()> + Clone + Send + 'static,
) -> Vec<JoinHandle<()>> {
    let one = |mut client: Client| {
        let (stop, step) = (stop.clone(), step.clone());
        thread::spawn(move || until(&stop, || step(&mut client)))
    };
    clients.into_iter().map(one).collect()
}

/// Queries that name one extended attribute thousands of times.
pub(super) fn attributes(port: u16, stop: &Stop) -> io::Result<Vec<JoinHandle<()>>> {
    let mut clients = Vec::new();
    for _ in 0..8 {
        let mut client = Client::ready(2, port)?;
        let file = client.opened("attributes", OPEN_IF, 0)?;
        let mut value = vec![0, 0, 0, 0, 0, 1];
        value.extend(VALUE.to_le_bytes());
        value.extend(b"a\0");
        value.resize(value.len() + usize::from(VALUE), 7);
        client.set(&file, EAS, &value)?;
        let mut names: Vec<u8> = [8, 0, 0, 0, 1, b'a', 0, 0].repeat(NAMED);
        let last = names.len() - 8;
        names[last] = 0;
        let mut body = vec![41, 0, 1, EAS];
        body.extend([&long(65_536)[..], &short(104), &[0; 2], &long(names.len())].concat());
        body.extend([&[0; 8][..], &file, &names].concat());
        clients.push((client, body));
    }
    let one = |(mut client, body): (Client, Vec<u8>)| {
        let stop = stop.clone();
        thread::spawn(move || until(&stop, || client.ask(QUERY_INFO, &body).map(drop)))
    };
    Ok(clients.into_iter().map(one).collect())
}

/// Logons without end on 64 connections.
pub(super) fn sessions(port: u16, stop: &Stop) -> io::Result<Vec<JoinHandle<()>>> {
    let connect = |_| dial_from(2, port).and_then(Client::connect);
    let clients = (0..64).map(connect).collect::<io::Result<Vec<_>>>()?;
    Ok(go_on(clients, stop, |client| {
        // A refused one is followed by the next.
        match client.log_on() {
            Err(e) if e.kind() != io::ErrorKind::Other => Err(e),
            _ => Ok(()),
        }
    }))
}

/// Renames of a folder with many open files below it.
pub(super) fn renames(port: u16, stop: &Stop) -> io::Result<Vec<JoinHandle<()>>> {
    let mut client = Client::ready(2, port)?;
    client.opened("folder", OPEN_IF, FOLDER)?;
    let mut holder = Client::ready(2, port)?;
    for n in 0..HELD {
        holder.opened(&format!(r"folder\f{n}"), OPEN_IF, 0)?;
    }
    // A folder with open files is renamed by servers that follow them; others refuse, and have refused as often.
    let stop = stop.clone();
    Ok(vec![thread::spawn(move || {
        let mut names = ["moved", "folder"].into_iter().cycle();
        let mut at = "folder";
        until(&stop, || {
            let to = names.next().unwrap_or(at);
            let Some(folder) = client.create(at, OPEN, FOLDER)? else { return Ok(()) };
            let name = utf16(to);
            let buffer = [&[0; 16][..], &long(name.len()), &name].concat();
            if client.set(&folder, RENAME, &buffer)? == 0 {
                at = to;
            }
            Ok(())
        });
        drop(holder);
    })])
}

/// Opens of names that are not there, in a folder with many.
pub(super) fn missing_names(port: u16, stop: &Stop) -> io::Result<Vec<JoinHandle<()>>> {
    let clients = (0..8).map(|_| Client::ready(2, port)).collect::<io::Result<Vec<_>>>()?;
    let mut n = 0;
    let clients = clients.into_iter().map(|client| {
        n += 1;
        (n, client)
    });
    let one = |(who, mut client): (usize, Client)| {
        let stop = stop.clone();
        thread::spawn(move || {
            let mut n = 0;
            until(&stop, || {
                n += 1;
                client.create(&format!(r"many\NONE {who} {n}"), OPEN, 0).map(drop)
            });
        })
    };
    Ok(clients.map(one).collect())
}

/// Connections that negotiate and say nothing more.
pub(super) fn silent(port: u16, stop: &Stop) -> io::Result<Vec<JoinHandle<()>>> {
    let connect = |n: u8| dial_from(2 + n % 2, port).and_then(Client::connect);
    let clients = (0..120).map(connect).collect::<io::Result<Vec<_>>>()?;
    let stop = stop.clone();
    Ok(vec![thread::spawn(move || {
        until(&stop, || {
            thread::sleep(Duration::from_millis(100));
            Ok(())
        });
        drop(clients);
    })])
}
