//! The bytes of a connection: plain, or through TLS 1.3 after its start (RFC 9289).
//!
//! *Operation.* A [`Stream`] begins plain; [`Stream::start_tls`] switches to TLS, whose first bytes may have been received already.
//! Then reads return decrypted data, and writes take plain data, which counts as sent when the socket has taken its records.
//!
//! *Memory.* Records are decrypted on the heap and copied once, into the buffers that a plain stream would use. A connection holds
//! up to [`limits::TLS_RECORDS_MAX`] bytes of received records and as many to be sent, and none while it is silent.
//!
//! *Errors.* Errors of the socket, and errors of TLS as [`io::ErrorKind::InvalidData`], which the peer learns from an alert.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustls::Connection;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::limits;

/// One end of a TCP connection.
pub(super) struct Stream {
    socket: TcpStream,
    tls: Option<Box<Tls>>,
}

/// The TLS state of a connection.
struct Tls {
    connection: Connection,
    /// Received records, from `taken` on.
    came: Vec<u8>,
    taken: usize,
    /// Decrypted data may be available.
    has_more: bool,
    /// Plain bytes in records that the socket has not taken yet.
    leaving: usize,
}

impl Stream {
    /// Wraps a socket without TLS.
    pub(super) fn plain(socket: TcpStream) -> Self {
        Self { socket, tls: None }
    }

    /// The underlying socket.
    pub(super) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// The socket, if data is sent unencrypted.
    pub(super) fn as_plain(&self) -> Option<&TcpStream> {
        self.tls.is_none().then_some(&self.socket)
    }

    /// Starts TLS on `connection`; `came` are its first bytes, which were read already.
    pub(super) fn start_tls(&mut self, mut connection: Connection, came: &[u8]) {
        connection.set_buffer_limit(Some(limits::TLS_RECORDS_MAX));
        let came = came.to_vec();
        self.tls = Some(Box::new(Tls { connection, came, taken: 0, has_more: true, leaving: 0 }));
    }

    /// True after the start of TLS.
    pub(super) fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Continues the handshake. Ready with its result, or with `None` on a plain stream.
    pub(super) fn poll_handshake(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Option<&Connection>>> {
        let Some(tls) = &mut self.tls else { return Poll::Ready(Ok(None)) };
        loop {
            ready!(tls.poll_send(&self.socket, cx))?;
            if !tls.connection.is_handshaking() {
                return Poll::Ready(Ok(Some(&tls.connection)));
            }
            if !ready!(tls.poll_records(&mut self.socket, cx))? {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    /// Ready when data may be available.
    pub(super) fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &self.tls {
            Some(tls) if tls.has_more || !tls.came.is_empty() => Poll::Ready(Ok(())),
            _ => self.socket.poll_read_ready(cx),
        }
    }

    /// Reads once. Ready with 0 at the end of the stream.
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        if let Some(tls) = &mut self.tls {
            return tls.poll_read(&mut self.socket, cx, into);
        }
        let mut into = ReadBuf::new(into);
        ready!(Pin::new(&mut self.socket).poll_read(cx, &mut into))?;
        Poll::Ready(Ok(into.filled().len()))
    }

    /// Reads once into several buffers.
    pub(super) fn poll_read_vectored(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        if let Some(tls) = &mut self.tls {
            return tls.poll_read_vectored(&mut self.socket, cx, into);
        }
        loop {
            ready!(self.socket.poll_read_ready(cx))?;
            match self.socket.try_read_vectored(into) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
            }
        }
    }

    /// Writes bytes of these pieces. Ready when the socket has them; until then it must be called again with the same pieces.
    pub(super) fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let Some(tls) = &mut self.tls else {
            return Pin::new(&mut self.socket).poll_write_vectored(cx, pieces);
        };
        if tls.leaving == 0 {
            tls.leaving = tls.connection.writer().write_vectored(pieces)?;
        }
        ready!(tls.poll_send(&self.socket, cx))?;
        Poll::Ready(Ok(std::mem::take(&mut tls.leaving)))
    }

    /// Sends pending TLS messages, such as the answer to a key update.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.tls {
            Some(tls) => tls.poll_send(&self.socket, cx),
            None => Poll::Ready(Ok(())),
        }
    }
}

/// Sends close_notify if the socket takes it, so that the peer knows that the stream was not truncated (RFC 8446 section 6.1).
impl Drop for Stream {
    fn drop(&mut self) {
        if let Some(tls) = &mut self.tls
            && tls.leaving == 0
        {
            tls.connection.send_close_notify();
            let _ = tls.connection.write_tls(&mut Socket(&self.socket));
        }
    }
}

impl Tls {
    fn poll_read(
        &mut self,
        socket: &mut TcpStream,
        cx: &mut Context<'_>,
        into: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            match self.connection.reader().read(into) {
                // The stream ended without close_notify: a truncated message is detected by its length.
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Poll::Ready(Ok(0)),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.has_more = false,
                done => {
                    self.has_more = true;
                    return Poll::Ready(done);
                }
            }
            ready!(self.poll_records(socket, cx))?;
        }
    }

    fn poll_read_vectored(
        &mut self,
        socket: &mut TcpStream,
        cx: &mut Context<'_>,
        into: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut read = 0;
        for piece in into {
            let mut have = 0;
            while have < piece.len() {
                match self.poll_read(socket, cx, &mut piece[have..]) {
                    Poll::Ready(Ok(n)) if n > 0 => {
                        have += n;
                        read += n;
                    }
                    Poll::Ready(Err(e)) => return Poll::Ready(Err(e)),
                    _ if read > 0 => return Poll::Ready(Ok(read)),
                    nothing => return nothing,
                }
            }
        }
        Poll::Ready(Ok(read))
    }

    /// Processes received records, reading the socket when none are left. `false` at the end of the stream.
    fn poll_records(
        &mut self,
        socket: &mut TcpStream,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<bool>> {
        let is_open = !self.came.is_empty() || ready!(self.poll_fill(socket, cx))?;
        self.taken += self.connection.read_tls(&mut &self.came[self.taken..])?;
        if self.taken == self.came.len() {
            (self.came, self.taken) = (Vec::new(), 0);
        }
        if let Err(error) = self.connection.process_new_packets() {
            // Sends the alert with the reason, if the socket takes it.
            let _ = self.connection.write_tls(&mut Socket(socket));
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)));
        }
        self.has_more = true;
        Poll::Ready(Ok(is_open))
    }

    /// Reads the socket. `false` at the end of the stream.
    fn poll_fill(
        &mut self,
        socket: &mut TcpStream,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<bool>> {
        loop {
            ready!(socket.poll_read_ready(cx))?;
            let mut came = Vec::with_capacity(limits::TLS_RECORDS_MAX);
            match socket.try_read_buf(&mut came) {
                Ok(n) => {
                    (self.came, self.taken) = (came, 0);
                    return Poll::Ready(Ok(n > 0));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
    }

    fn poll_send(&mut self, socket: &TcpStream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.connection.wants_write() {
            ready!(socket.poll_write_ready(cx))?;
            match self.connection.write_tls(&mut Socket(socket)) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// Writes as much as the socket takes.
struct Socket<'a>(&'a TcpStream);

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(pieces)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
