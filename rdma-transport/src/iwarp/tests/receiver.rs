//! Models for tests of the sender: a receiver that insists on every rule of MPA, and the segments that TCP makes of writes.

use crate::iwarp::wire::mpa::Crc;

/// A receiver of FPDUs (RFC 5044 section 4) that has all data of the stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receiver {
    pub(crate) crc: bool,
    pub(crate) markers: bool,
}

impl Receiver {
    /// Returns the ULPDUs of a stream that ends with an FPDU.
    pub(crate) fn all(self, stream: &[u8]) -> Vec<Vec<u8>> {
        let (found, rest) = self.read(stream);
        assert_eq!(rest, 0, "bytes of an FPDU that does not end");
        found
    }

    /// Returns the ULPDUs, and the number of bytes after the last whole FPDU.
    pub(crate) fn read(self, stream: &[u8]) -> (Vec<Vec<u8>>, usize) {
        let (mut found, mut at) = (Vec::new(), 0);
        while let Some((ulpdu, end)) = self.one(stream, at) {
            found.push(ulpdu);
            at = end;
        }
        (found, stream.len() - at)
    }

    /// Reads the FPDU at `begin`; returns it with the position after it, or `None` if it is not there whole.
    fn one(self, stream: &[u8], begin: usize) -> Option<(Vec<u8>, usize)> {
        let (mut at, mut header, mut covered, mut words) = (begin, None, Vec::new(), Vec::new());
        loop {
            let word: [u8; 4] = stream.get(at..at + 4)?.try_into().unwrap();
            if self.markers && at % 512 == 0 {
                let back = header.map_or(0, |header| at - header);
                let back = u16::try_from(back).unwrap().to_be_bytes();
                assert_eq!(word, [0, 0, back[0], back[1]], "marker at {at}");
                covered.extend(word);
                at += 4;
                continue;
            }
            header.get_or_insert(at);
            at += 4;
            if words.len() >= 4 {
                let len = usize::from(u16::from_be_bytes([words[0], words[1]]));
                if words.len() == (2 + len).next_multiple_of(4) {
                    let mut crc = Crc::new(self.crc);
                    crc.start();
                    crc.update(&covered);
                    assert_eq!(word, crc.field(), "CRC at {}", at - 4);
                    assert!(words[2 + len..].iter().all(|b| *b == 0), "padding");
                    return Some((words[2..2 + len].to_vec(), at));
                }
            }
            covered.extend(word);
            words.extend(word);
        }
    }
}

/// Segments that TCP makes of writes. It adds to the last one until that is full, was sent, or ended by `MSG_EOR`.
#[derive(Debug)]
pub(crate) struct Segments {
    mss: usize,
    written: usize,
    begins: Vec<usize>,
    /// Bytes that the last segment still takes.
    room: usize,
    ends: Vec<usize>,
}

impl Segments {
    pub(crate) fn new(mss: usize) -> Self {
        Self { mss, written: 0, begins: Vec::new(), room: 0, ends: Vec::new() }
    }

    /// `ends`: the write has `MSG_EOR`. `is_sent`: all of it leaves at once.
    pub(crate) fn write(&mut self, mut len: usize, ends: bool, is_sent: bool) {
        while len > 0 {
            if self.room == 0 {
                self.begins.push(self.written);
                self.room = self.mss;
            }
            let now = len.min(self.room);
            (self.written, self.room, len) = (self.written + now, self.room - now, len - now);
        }
        if ends {
            self.ends.push(self.written);
        }
        if ends || is_sent {
            self.room = 0;
        }
    }

    /// True if a segment begins at this position of the stream.
    pub(crate) fn begins(&self, at: usize) -> bool {
        self.begins.binary_search(&at).is_ok()
    }

    /// Positions after writes with `MSG_EOR`.
    pub(crate) fn after_ends(&self) -> &[usize] {
        &self.ends
    }
}
