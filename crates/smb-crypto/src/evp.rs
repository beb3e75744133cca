//! The library's streaming ciphers, which accept a message in pieces; the only `unsafe` code of this crate.
//!
//! *Operation.* A [`Template`] has an expanded key and is never modified; each message uses a [`Stream`] copied from it, so that
//! many messages of a session can be processed at once.
//!
//! *Memory.* The library wipes a context when it is freed.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::ptr::{self, NonNull};

use aws_lc_sys as lc;

use super::Failed;

/// The mode of a block cipher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Galois/Counter Mode, 12-byte nonce, 16-byte tag.
    Gcm,
    /// Counter mode over a 16-byte first block.
    Ctr,
    /// Cipher block chaining from a zero block, without padding.
    Cbc,
}

impl Mode {
    fn iv_len(self) -> usize {
        match self {
            Self::Gcm => 12,
            Self::Ctr => 16,
            Self::Cbc => 0,
        }
    }
}

/// An expanded key.
pub(super) struct Template(Context, Mode);

struct Context(NonNull<lc::EVP_CIPHER_CTX>);

// SAFETY: a context is plain memory of the library without thread affinity.
unsafe impl Send for Context {}
// SAFETY: through a shared reference a context is only copied, which reads it.
unsafe impl Sync for Context {}

impl Context {
    fn new() -> Result<Self, Failed> {
        // SAFETY: no arguments; returns null if memory is exhausted.
        NonNull::new(unsafe { lc::EVP_CIPHER_CTX_new() }).map(Self).ok_or(Failed)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: created by `EVP_CIPHER_CTX_new` and freed once.
        unsafe { lc::EVP_CIPHER_CTX_free(self.0.as_ptr()) }
    }
}

fn done(result: c_int) -> Result<(), Failed> {
    if result == 1 { Ok(()) } else { Err(Failed) }
}

impl Template {
    /// Expands a key of 16 or 32 bytes.
    pub(super) fn new(mode: Mode, key: &[u8]) -> Result<Self, Failed> {
        // SAFETY: these functions return static tables.
        let cipher = unsafe {
            match (mode, key.len()) {
                (Mode::Gcm, 16) => lc::EVP_aes_128_gcm(),
                (Mode::Gcm, 32) => lc::EVP_aes_256_gcm(),
                (Mode::Ctr, 16) => lc::EVP_aes_128_ctr(),
                (Mode::Ctr, 32) => lc::EVP_aes_256_ctr(),
                (Mode::Cbc, 16) => lc::EVP_aes_128_cbc(),
                (Mode::Cbc, 32) => lc::EVP_aes_256_cbc(),
                _ => return Err(Failed),
            }
        };
        let zero = [0_u8; 16];
        let iv = if mode == Mode::Cbc { zero.as_ptr() } else { ptr::null() };
        let context = Context::new()?;
        // SAFETY: the context belongs to this value; the key has the cipher's length; the IV is absent or has 16 bytes.
        done(unsafe {
            lc::EVP_EncryptInit_ex(context.0.as_ptr(), cipher, ptr::null_mut(), key.as_ptr(), iv)
        })?;
        // SAFETY: the context is initialised.
        done(unsafe { lc::EVP_CIPHER_CTX_set_padding(context.0.as_ptr(), 0) })?;
        Ok(Self(context, mode))
    }

    /// Starts encrypting (or authenticating) a message. `iv` has 12 bytes for GCM, 16 for CTR; CBC uses none.
    pub(super) fn encrypt(&self, iv: &[u8]) -> Result<Stream, Failed> {
        if iv.len() != self.1.iv_len() {
            return Err(Failed);
        }
        let stream = self.copy()?;
        if !iv.is_empty() {
            // SAFETY: the context is initialised with its key; the IV has the length of the mode.
            done(unsafe {
                lc::EVP_EncryptInit_ex(
                    stream.0.0.as_ptr(),
                    ptr::null(),
                    ptr::null_mut(),
                    ptr::null(),
                    iv.as_ptr(),
                )
            })?;
        }
        Ok(stream)
    }

    /// Starts decrypting a GCM message.
    pub(super) fn decrypt(&self, nonce: &[u8; 12]) -> Result<Stream, Failed> {
        if self.1 != Mode::Gcm {
            return Err(Failed);
        }
        let stream = self.copy()?;
        // SAFETY: see above; the nonce has the required length.
        done(unsafe {
            lc::EVP_DecryptInit_ex(
                stream.0.0.as_ptr(),
                ptr::null(),
                ptr::null_mut(),
                ptr::null(),
                nonce.as_ptr(),
            )
        })?;
        Ok(stream)
    }

    fn copy(&self) -> Result<Stream, Failed> {
        let context = Context::new()?;
        // SAFETY: both contexts are valid; the source is only read.
        done(unsafe { lc::EVP_CIPHER_CTX_copy(context.0.as_ptr(), self.0.0.as_ptr()) })?;
        Ok(Stream(context, self.1))
    }
}

/// A message in progress.
pub(super) struct Stream(Context, Mode);

/// Maximum length of one call in bytes, because the library counts in `int`. A multiple of the block.
const MAX: usize = 1 << 30;

impl Stream {
    /// Authenticates bytes without encrypting them (GCM); must precede all others.
    pub(super) fn aad(&mut self, bytes: &[u8]) -> Result<(), Failed> {
        if self.1 != Mode::Gcm {
            return Err(Failed);
        }
        for part in bytes.chunks(MAX) {
            // SAFETY: without an output pointer, the input is only authenticated; it is readable for its length.
            unsafe { self.update(part.as_ptr(), ptr::null_mut(), part.len()) }?;
        }
        Ok(())
    }

    /// Encrypts or decrypts `src` into `dst` of the same length. For CBC, `dst` needs 16 more bytes and receives a whole number of
    /// blocks. Returns the number of bytes written.
    pub(super) fn turn(&mut self, src: &[u8], dst: &mut [u8]) -> Result<usize, Failed> {
        let held_back = if self.1 == Mode::Cbc { 16 } else { 0 };
        if src.len() > MAX || dst.len() < src.len() + held_back {
            return Err(Failed);
        }
        // SAFETY: `dst` has room for the input, and in CBC for the block that may be held back from an earlier call.
        unsafe { self.update(src.as_ptr(), dst.as_mut_ptr(), src.len()) }
    }

    /// Like [`Stream::turn`], in place. Not for CBC.
    pub(super) fn turn_in_place(&mut self, bytes: &mut [u8]) -> Result<(), Failed> {
        if self.1 == Mode::Cbc {
            return Err(Failed);
        }
        for part in bytes.chunks_mut(MAX) {
            let at = part.as_mut_ptr();
            // SAFETY: in stream modes the library allows output exactly over its input.
            unsafe { self.update(at, at, part.len()) }?;
        }
        Ok(())
    }

    /// Feeds a CBC-MAC: only the last block of the output matters, which is kept in `last`.
    pub(super) fn chain(&mut self, bytes: &[u8], last: &mut [u8; 16]) -> Result<(), Failed> {
        let mut out = [0_u8; CHAIN + 16];
        for part in bytes.chunks(CHAIN) {
            let n = self.turn(part, &mut out)?;
            if let Some(block) = out[..n].last_chunk::<16>() {
                *last = *block;
            }
        }
        Ok(())
    }

    /// Finishes an encrypted GCM message and returns its tag.
    pub(super) fn tag(mut self) -> Result<[u8; 16], Failed> {
        if self.1 != Mode::Gcm {
            return Err(Failed);
        }
        let mut tag = [0_u8; 16];
        let mut n = 0;
        // SAFETY: GCM writes no output at its end; the tag buffer has the requested 16 bytes.
        unsafe {
            done(lc::EVP_EncryptFinal_ex(self.context(), tag.as_mut_ptr(), &raw mut n))?;
            done(lc::EVP_CIPHER_CTX_ctrl(
                self.context(),
                lc::EVP_CTRL_AEAD_GET_TAG,
                16,
                tag.as_mut_ptr().cast(),
            ))?;
        }
        Ok(tag)
    }

    /// Finishes a decrypted GCM message and verifies its tag.
    pub(super) fn check(mut self, tag: &[u8; 16]) -> Result<(), Failed> {
        if self.1 != Mode::Gcm {
            return Err(Failed);
        }
        let mut expected = *tag;
        let mut none = [0_u8; 16];
        let mut n = 0;
        // SAFETY: the tag buffer has the announced 16 bytes; GCM writes no output at its end.
        unsafe {
            done(lc::EVP_CIPHER_CTX_ctrl(
                self.context(),
                lc::EVP_CTRL_AEAD_SET_TAG,
                16,
                expected.as_mut_ptr().cast(),
            ))?;
            done(lc::EVP_DecryptFinal_ex(self.context(), none.as_mut_ptr(), &raw mut n))
        }
    }

    fn context(&mut self) -> *mut lc::EVP_CIPHER_CTX {
        self.0.0.as_ptr()
    }

    /// # Safety
    ///
    /// `src` is readable for `len` bytes; `dst` is null or writable for `len` bytes, in CBC mode for 16 more, and overlaps `src`
    /// either exactly or not at all.
    unsafe fn update(&mut self, src: *const u8, dst: *mut u8, len: usize) -> Result<usize, Failed> {
        if len == 0 {
            // Some ciphers treat empty input as "finish".
            return Ok(0);
        }
        let len = c_int::try_from(len).map_err(|_| Failed)?;
        let mut n = 0;
        // SAFETY: guaranteed by the caller. The context knows the direction that was started.
        done(unsafe { lc::EVP_CipherUpdate(self.context(), dst, &raw mut n, src, len) })?;
        usize::try_from(n).map_err(|_| Failed)
    }
}

/// Number of bytes that a CBC-MAC processes at a time, which fit in the first-level cache.
const CHAIN: usize = 4096;
