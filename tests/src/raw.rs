//! An iWARP peer that is controlled byte by byte, so that it can send invalid data. Its valid messages are those of the kernel's
//! software iWARP.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The MPA request of a kernel's NFS client (RFC 6581 section 4): revision 2, enhanced, IRD 128, ORD 0; followed by the private
/// data of RFC 8797.
pub const MPA_REQUEST: [u8; 32] =
    *b"MPA ID Req Frame\x10\x02\x00\x0c\x00\x80\x00\x00\xf6\xab\x0e\x18\x01\x01\x03\x03";

/// RDMAP opcodes in siw's control word of an untagged, last segment (RFC 5041 section 4.3, RFC 5040 section 4.1).
pub const SEND: u16 = 0x4143;
/// RDMA Read Request.
pub const READ_REQUEST: u16 = 0x4141;
/// RDMA Write, tagged and last.
pub const WRITE: u16 = 0xc140;
/// RDMA Read Response, tagged and last.
pub const READ_RESPONSE: u16 = 0xc142;

/// A connection that sends hand-made iWARP frames.
pub struct RawIwarp {
    stream: TcpStream,
    crc: bool,
    sent: u32,
}

impl RawIwarp {
    /// Connects without sending data.
    pub fn dial(to: SocketAddr) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(to)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        stream.set_write_timeout(Some(Duration::from_secs(60)))?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// Connects and exchanges start frames.
    pub fn connect(to: SocketAddr) -> io::Result<Self> {
        let mut stream = Self::dial(to)?;
        stream.write_all(&MPA_REQUEST)?;
        let mut head = [0; 20];
        stream.read_exact(&mut head)?;
        if &head[..16] != b"MPA ID Rep Frame" {
            return Err(io::Error::other("no MPA reply"));
        }
        let mut private = vec![0; usize::from(u16::from_be_bytes([head[18], head[19]]))];
        stream.read_exact(&mut private)?;
        Ok(Self { stream, crc: head[16] & 0x40 != 0, sent: 0 })
    }

    /// Sends these bytes unchanged.
    pub fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends a DDP segment as an FPDU (RFC 5044 section 4.1), with a valid CRC if CRCs are used.
    pub fn fpdu(&mut self, segment: &[u8]) -> io::Result<()> {
        let frame = fpdu(segment, self.crc);
        self.stream.write_all(&frame)
    }

    /// Sends a message with a Send.
    pub fn send(&mut self, message: &[u8]) -> io::Result<()> {
        self.sent += 1;
        let segment = untagged(SEND, 0, self.sent, 0, message);
        self.fpdu(&segment)
    }

    /// Receives the segment of the next FPDU.
    pub fn receive(&mut self) -> io::Result<Vec<u8>> {
        let mut length = [0; 2];
        self.stream.read_exact(&mut length)?;
        let length = usize::from(u16::from_be_bytes(length));
        let mut rest = vec![0; (length + 2).next_multiple_of(4) - 2 + 4];
        self.stream.read_exact(&mut rest)?;
        rest.truncate(length);
        Ok(rest)
    }

    /// Makes a NULL call of NFS version 3: the connection works up to the RPC layer.
    pub fn null(&mut self, xid: u32) -> io::Result<()> {
        let mut message = rpcrdma(xid, 1);
        message.extend(words(&[xid, 0, 2, 100_003, 3, 0, 0, 0, 0, 0]));
        self.send(&message)?;
        let answer = self.receive()?;
        let wanted = words(&[xid, 1, 0, 0, 0, 0]);
        if answer.ends_with(&wanted) {
            Ok(())
        } else {
            Err(io::Error::other(format!("{answer:02x?}")))
        }
    }

    /// Sends MNT of `/data` (MOUNT version 3): an admitted call, with which a client introduces itself.
    pub fn mount(&mut self, xid: u32) -> io::Result<()> {
        let path = u32::from_be_bytes(*b"/dat");
        let rest = u32::from_be_bytes(*b"a\0\0\0");
        let mut message = rpcrdma(xid, 1);
        message.extend(words(&[xid, 0, 2, 100_005, 3, 1, 0, 0, 0, 0, 5, path, rest]));
        self.send(&message)?;
        let answer = self.receive()?;
        // After the header of RPC-over-RDMA: accepted, and mounted.
        let wanted = words(&[xid, 1, 0, 0, 0, 0, 0]);
        match answer.windows(wanted.len()).any(|w| w == wanted) {
            true => Ok(()),
            false => Err(io::Error::other(format!("{answer:02x?}"))),
        }
    }

    /// Waits until the peer ends the connection; it may send data before.
    pub fn wait_for_end(&mut self) -> io::Result<()> {
        wait_for_end(&mut self.stream)
    }
}

/// Reads until the peer ends the connection.
pub fn wait_for_end(stream: &mut TcpStream) -> io::Result<()> {
    let mut some = [0; 4096];
    loop {
        match stream.read(&mut some) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return Ok(()),
            Err(e) => return Err(e),
        }
    }
}

/// Encodes the words in big-endian order.
pub fn words(list: &[u32]) -> Vec<u8> {
    list.iter().flat_map(|w| w.to_be_bytes()).collect()
}

/// Encodes the words in little-endian order.
pub fn le_words(list: &[u32]) -> Vec<u8> {
    list.iter().flat_map(|w| w.to_le_bytes()).collect()
}

/// The head of an RPC-over-RDMA message without chunks (RFC 8166 section 4.1): RDMA_MSG.
pub fn rpcrdma(xid: u32, version: u32) -> Vec<u8> {
    words(&[xid, version, 32, 0, 0, 0, 0])
}

/// An untagged DDP segment (RFC 5041 section 4.3).
pub fn untagged(control: u16, queue: u32, number: u32, offset: u32, payload: &[u8]) -> Vec<u8> {
    [&control.to_be_bytes()[..], &words(&[0, queue, number, offset]), payload].concat()
}

/// A tagged DDP segment (RFC 5041 section 4.2).
pub fn tagged(control: u16, stag: u32, offset: u64, payload: &[u8]) -> Vec<u8> {
    [&control.to_be_bytes()[..], &stag.to_be_bytes(), &offset.to_be_bytes(), payload].concat()
}

/// An FPDU (RFC 5044 section 4.1).
pub fn fpdu(segment: &[u8], crc: bool) -> Vec<u8> {
    let mut frame = u16::try_from(segment.len()).unwrap_or(u16::MAX).to_be_bytes().to_vec();
    frame.extend_from_slice(segment);
    frame.resize(frame.len().next_multiple_of(4), 0);
    let sum = if crc { crc32c(&frame) } else { 0 };
    frame.extend_from_slice(&sum.to_le_bytes());
    frame
}

/// Bit by bit, so that it shares no code with the tested implementation.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc: u32, byte| {
        (0..8).fold(
            crc ^ u32::from(*byte),
            |c, _| if c & 1 == 1 { c >> 1 ^ 0x82f6_3b78 } else { c >> 1 },
        )
    })
}

#[cfg(test)]
mod tests {
    /// RFC 3720 appendix B.4.
    #[test]
    fn crc_is_castagnoli() {
        assert_eq!(super::crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(super::crc32c(&[0xff; 32]), 0x62a8_ab43);
    }
}
