//! Encryption (MS-SMB2 sections 3.1.4.3 and 3.1.5.2): AES-CCM and AES-GCM over messages in pieces.
//!
//! *Operation.* A [`Sealer`] is a key for one direction with a nonce counter; an [`Opener`] is its counterpart. The additional
//! authenticated data is the transform header from its `Nonce` on. The library implements GCM. CCM is built here from counter mode
//! and a CBC-MAC (NIST SP 800-38C), because the library's CCM requires the message in one piece.
//!
//! *Memory.* Source and destination may be split differently; each byte is read once and written once.
//!
//! *Errors.* [`Failed`]. Bytes that were decrypted before the tag proved wrong are wiped.

use std::sync::atomic::{AtomicU64, Ordering};

use subtle::ConstantTimeEq;
use zeroize::Zeroize;

use super::Failed;
use super::evp::{Mode, Stream, Template};

/// A cipher with its number in SMB2_ENCRYPTION_CAPABILITIES (MS-SMB2 section 2.2.3.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
#[allow(missing_docs)] // The names are the specification's.
pub enum Cipher {
    Aes128Ccm = 1,
    Aes128Gcm = 2,
    Aes256Ccm = 3,
    Aes256Gcm = 4,
}

impl Cipher {
    /// All ciphers by number.
    pub const ALL: [Self; 4] = [Self::Aes128Ccm, Self::Aes128Gcm, Self::Aes256Ccm, Self::Aes256Gcm];

    /// Returns the cipher with this number.
    pub fn from_number(n: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|c| *c as u16 == n)
    }

    /// Returns the length of its key, in bytes.
    pub fn key_len(self) -> usize {
        match self {
            Self::Aes128Ccm | Self::Aes128Gcm => 16,
            Self::Aes256Ccm | Self::Aes256Gcm => 32,
        }
    }

    /// Returns the number of used bytes in the `Nonce` field; the others are zero.
    pub fn nonce_len(self) -> usize {
        match self {
            Self::Aes128Ccm | Self::Aes256Ccm => 11,
            Self::Aes128Gcm | Self::Aes256Gcm => 12,
        }
    }
}

/// An encryption key and its unused nonces, for one session and direction and shared by all its channels.
pub struct Sealer {
    key: CipherKey,
    next: AtomicU64,
}

/// A decryption key.
pub struct Opener(CipherKey);

impl Sealer {
    /// `start` should be random, so that nonces differ even if a session key is ever repeated.
    pub fn new(cipher: Cipher, key: &[u8], start: u64) -> Result<Self, Failed> {
        Ok(Self { key: CipherKey::new(cipher, key)?, next: AtomicU64::new(start) })
    }

    pub fn cipher(&self) -> Cipher {
        self.key.cipher
    }

    /// Returns a nonce that this key has not used, in the format of the transform header. The 64-bit counter never wraps.
    pub fn nonce(&self) -> [u8; 16] {
        let mut nonce = [0; 16];
        nonce[..8].copy_from_slice(&self.next.fetch_add(1, Ordering::Relaxed).to_le_bytes());
        nonce
    }

    /// Encrypts `src` into `dst` of the same total length, split in any way, and returns the `Signature` of the transform header.
    /// `aad` is that header from its `Nonce` to its end; `nonce` comes from [`Sealer::nonce`] and must not be used again.
    pub fn seal(
        &self,
        nonce: &[u8; 16],
        aad: &[u8],
        src: &[&[u8]],
        dst: &mut [&mut [u8]],
    ) -> Result<[u8; 16], Failed> {
        let mut run = self.key.begin(nonce, aad, total(src)?, Direction::Seal)?;
        pair(src, dst, |from, to| run.turn(from, to))?;
        run.tag()
    }

    /// Like [`Sealer::seal`], in place.
    pub fn seal_in_place(
        &self,
        nonce: &[u8; 16],
        aad: &[u8],
        pieces: &mut [&mut [u8]],
    ) -> Result<[u8; 16], Failed> {
        let len = pieces.iter().map(|p| p.len()).sum();
        let mut run = self.key.begin(nonce, aad, len, Direction::Seal)?;
        for piece in pieces {
            run.turn_in_place(piece)?;
        }
        run.tag()
    }
}

impl Opener {
    /// Creates an opener with the key of the other direction.
    pub fn new(cipher: Cipher, key: &[u8]) -> Result<Self, Failed> {
        CipherKey::new(cipher, key).map(Self)
    }

    pub fn cipher(&self) -> Cipher {
        self.0.cipher
    }

    /// Decrypts `src` into `dst` of the same total length, split in any way. After an error `dst` contains zeros.
    pub fn open(
        &self,
        nonce: &[u8; 16],
        aad: &[u8],
        src: &[&[u8]],
        dst: &mut [&mut [u8]],
        tag: &[u8; 16],
    ) -> Result<(), Failed> {
        let mut run = self.0.begin(nonce, aad, total(src)?, Direction::Open)?;
        let turned = pair(src, dst, |from, to| run.turn(from, to));
        let result = turned.and_then(|()| run.check(tag));
        if result.is_err() {
            dst.iter_mut().for_each(|piece| piece.zeroize());
        }
        result
    }

    /// Like [`Opener::open`], in place.
    pub fn open_in_place(
        &self,
        nonce: &[u8; 16],
        aad: &[u8],
        pieces: &mut [&mut [u8]],
        tag: &[u8; 16],
    ) -> Result<(), Failed> {
        let len = pieces.iter().map(|p| p.len()).sum();
        let mut run = self.0.begin(nonce, aad, len, Direction::Open)?;
        let turned = pieces.iter_mut().try_for_each(|piece| run.turn_in_place(piece));
        let result = turned.and_then(|()| run.check(tag));
        if result.is_err() {
            pieces.iter_mut().for_each(|piece| piece.zeroize());
        }
        result
    }
}

fn total(pieces: &[&[u8]]) -> Result<usize, Failed> {
    pieces.iter().try_fold(0_usize, |sum, p| sum.checked_add(p.len())).ok_or(Failed)
}

/// Iterates over two sequences of pieces at once, in the longest stretches that are contiguous in both.
fn pair(
    src: &[&[u8]],
    dst: &mut [&mut [u8]],
    mut each: impl FnMut(&[u8], &mut [u8]) -> Result<(), Failed>,
) -> Result<(), Failed> {
    let mut src = src.iter();
    let mut from: &[u8] = &[];
    for to in dst {
        let mut to: &mut [u8] = to;
        while !to.is_empty() {
            while from.is_empty() {
                from = src.next().ok_or(Failed)?;
            }
            let n = from.len().min(to.len());
            let (now, later) = to.split_at_mut(n);
            each(&from[..n], now)?;
            from = &from[n..];
            to = later;
        }
    }
    if from.is_empty() && src.all(|p| p.is_empty()) { Ok(()) } else { Err(Failed) }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Seal,
    Open,
}

struct CipherKey {
    cipher: Cipher,
    kind: Kind,
}

enum Kind {
    Gcm(Template),
    Ccm { ctr: Template, mac: Template },
}

impl CipherKey {
    fn new(cipher: Cipher, key: &[u8]) -> Result<Self, Failed> {
        if key.len() != cipher.key_len() {
            return Err(Failed);
        }
        let kind = match cipher {
            Cipher::Aes128Gcm | Cipher::Aes256Gcm => Kind::Gcm(Template::new(Mode::Gcm, key)?),
            Cipher::Aes128Ccm | Cipher::Aes256Ccm => Kind::Ccm {
                ctr: Template::new(Mode::Ctr, key)?,
                mac: Template::new(Mode::Cbc, key)?,
            },
        };
        Ok(Self { cipher, kind })
    }

    fn begin(
        &self,
        nonce: &[u8; 16],
        aad: &[u8],
        len: usize,
        direction: Direction,
    ) -> Result<Run, Failed> {
        super::touched(len);
        match &self.kind {
            Kind::Gcm(key) => {
                let mut nonce12 = [0; 12];
                nonce12.copy_from_slice(&nonce[..12]);
                let mut stream = match direction {
                    Direction::Seal => key.encrypt(&nonce12)?,
                    Direction::Open => key.decrypt(&nonce12)?,
                };
                stream.aad(aad)?;
                Ok(Run::Gcm(stream))
            }
            Kind::Ccm { ctr, mac } => {
                let mut nonce11 = [0; 11];
                nonce11.copy_from_slice(&nonce[..11]);
                Ccm::begin(ctr, mac, &nonce11, aad, len, direction).map(Run::Ccm)
            }
        }
    }
}

/// A message in progress.
enum Run {
    Gcm(Stream),
    Ccm(Ccm),
}

impl Run {
    fn turn(&mut self, src: &[u8], dst: &mut [u8]) -> Result<(), Failed> {
        match self {
            Self::Gcm(stream) => {
                for (src, dst) in src.chunks(BIG).zip(dst.chunks_mut(BIG)) {
                    stream.turn(src, dst)?;
                }
                Ok(())
            }
            Self::Ccm(ccm) => ccm.turn(src, dst),
        }
    }

    fn turn_in_place(&mut self, bytes: &mut [u8]) -> Result<(), Failed> {
        match self {
            Self::Gcm(stream) => stream.turn_in_place(bytes),
            Self::Ccm(ccm) => ccm.turn_in_place(bytes),
        }
    }

    fn tag(self) -> Result<[u8; 16], Failed> {
        match self {
            Self::Gcm(stream) => stream.tag(),
            Self::Ccm(ccm) => ccm.tag(),
        }
    }

    fn check(self, tag: &[u8; 16]) -> Result<(), Failed> {
        match self {
            Self::Gcm(stream) => stream.check(tag),
            Self::Ccm(ccm) => {
                if bool::from(ccm.tag()?.ct_eq(tag)) {
                    Ok(())
                } else {
                    Err(Failed)
                }
            }
        }
    }
}

/// Maximum number of bytes passed to the library in one call.
const BIG: usize = 1 << 30;
/// Number of bytes processed by counter mode and CBC-MAC in alternation while they are in the first-level cache. A multiple of the
/// block.
const HOT: usize = 4096;

/// NIST SP 800-38C with a nonce of 11 bytes (hence a length field of 4) and a tag of 16.
struct Ccm {
    ctr: Stream,
    mac: Stream,
    /// The last block of the CBC-MAC.
    last: [u8; 16],
    /// Number of message bytes processed.
    seen: usize,
    len: usize,
    /// The encrypted block zero, which masks the tag.
    cover: [u8; 16],
    direction: Direction,
}

impl Ccm {
    fn begin(
        ctr: &Template,
        mac: &Template,
        nonce: &[u8; 11],
        aad: &[u8],
        len: usize,
        direction: Direction,
    ) -> Result<Self, Failed> {
        let mut counter = [0; 16];
        counter[0] = 3;
        counter[1..12].copy_from_slice(nonce);
        let mut ctr = ctr.encrypt(&counter)?;
        let mut cover = [0; 16];
        ctr.turn_in_place(&mut cover)?;

        // B0: flags (AAD present, tag length 16, length field 4), nonce, length of the message.
        let mut first = counter;
        first[0] = if aad.is_empty() { 0x3b } else { 0x7b };
        first[12..].copy_from_slice(&u32::try_from(len).map_err(|_| Failed)?.to_be_bytes());
        let mut mac = mac.encrypt(&[])?;
        let mut last = [0; 16];
        mac.chain(&first, &mut last)?;
        if !aad.is_empty() {
            // A length below 0xff00 is encoded in two bytes; a transform header has 32 bytes.
            let aad_len = u16::try_from(aad.len()).ok().filter(|n| *n < 0xff00).ok_or(Failed)?;
            mac.chain(&aad_len.to_be_bytes(), &mut last)?;
            mac.chain(aad, &mut last)?;
            let pad = (16 - (2 + aad.len()) % 16) % 16;
            mac.chain(&[0; 16][..pad], &mut last)?;
        }
        Ok(Self { ctr, mac, last, seen: 0, len, cover, direction })
    }

    fn turn(&mut self, src: &[u8], dst: &mut [u8]) -> Result<(), Failed> {
        for (src, dst) in src.chunks(HOT).zip(dst.chunks_mut(HOT)) {
            if self.direction == Direction::Seal {
                self.mac.chain(src, &mut self.last)?;
            }
            self.ctr.turn(src, dst)?;
            if self.direction == Direction::Open {
                self.mac.chain(dst, &mut self.last)?;
            }
            self.seen += src.len();
        }
        Ok(())
    }

    fn turn_in_place(&mut self, bytes: &mut [u8]) -> Result<(), Failed> {
        for part in bytes.chunks_mut(HOT) {
            if self.direction == Direction::Seal {
                self.mac.chain(part, &mut self.last)?;
            }
            self.ctr.turn_in_place(part)?;
            if self.direction == Direction::Open {
                self.mac.chain(part, &mut self.last)?;
            }
            self.seen += part.len();
        }
        Ok(())
    }

    fn tag(mut self) -> Result<[u8; 16], Failed> {
        if self.seen != self.len {
            return Err(Failed);
        }
        let pad = (16 - self.len % 16) % 16;
        self.mac.chain(&[0; 16][..pad], &mut self.last)?;
        Ok(std::array::from_fn(|i| self.last[i] ^ self.cover[i]))
    }
}

#[cfg(test)]
mod tests {
    use aes_gcm::aead::array::Array;
    use aes_gcm::aead::consts::{U11, U16};
    use aes_gcm::aead::{Aead, KeyInit, Payload};
    use ccm::Ccm as OracleCcm;
    use proptest::prelude::*;

    use super::super::kdf::{Context, Keys};
    use super::super::unhex;
    use super::*;

    /// Microsoft's "Encryption in SMB 3.0: a protocol perspective": a WRITE to the server and its response.
    #[test]
    fn dialect_3_0_write_matches() {
        let session = unhex("B4546771B515F766A86735532DD6C4F0");
        let keys = Keys::derive(&session, Context::V30, Cipher::Aes128Ccm);
        let plain = unhex(
            "FE534D4240000100000000000900400008000000000000000400000000000000
             FFFE0000010000001100001400E4080000000000000000000000000000000000
             3100700017000000000000000000000015010000390000020100000039020000
             00000000000000007000000000000000536D623320656E6372797074696F6E20
             74657374696E67",
        );
        let sealed = unhex(
            "FD534D4281A286535415445DAE393921E44FA42E66E69A111892584FB5ED524A
             744DA3EE87000000000001001100001400E4080025C8FEE16605A437832D1CD5
             2DA9F4645333482A175FE5384563F45FCDAFAEF38BC62BA4D5C62897996625A4
             4C29BE5658DE2E6117585779E7B59FFD971278D08580D7FA899E410E910EABF5
             AA1DB43050B33B49182637759AC15D84BFCDF5B6B238993C0F4CF4D6012023F6
             C627297075D84B7803912D0A9639634453595EF3E33FFE4E7AC2AB",
        );
        let nonce = *sealed[20..36].first_chunk().unwrap();
        let sealer = Sealer::new(Cipher::Aes128Ccm, &keys.client_to_server, 0).unwrap();
        let mut out = vec![0; plain.len()];
        let tag = sealer.seal(&nonce, &sealed[20..52], &[&plain], &mut [&mut out]).unwrap();
        assert_eq!(tag[..], sealed[4..20]);
        assert_eq!(out, sealed[52..]);

        let answer = unhex(
            "FD534D42A6015530A18F6D9AFFE22AFAE8E66484860000000000000011000014
             00E4080050000000000001001100001400E40800DBF46435C5F14169293CE079
             E344479BF670227E49873F458672C3098DAC467DD5809F369D67409166515787
             1483E01F7BECD02064EAC3E235F913668BBC2F097980D4B378F1993EFF6E60D1
             77309E5B",
        );
        let opener = Opener::new(Cipher::Aes128Ccm, &keys.server_to_client).unwrap();
        let (head, body) = answer.split_at(52);
        let mut body = body.to_vec();
        let (nonce, tag) =
            (*head[20..36].first_chunk().unwrap(), *head[4..20].first_chunk().unwrap());
        opener.open_in_place(&nonce, &head[20..], &mut [&mut body], &tag).unwrap();
        assert_eq!(
            body,
            unhex(
                "FE534D4240000100000000000900210009000000000000000400000000000000
                 FFFE0000010000001100001400E4080000000000000000000000000000000000
                 11000000170000000000000000000000"
            )
        );
    }

    /// Microsoft's "SMB 3.1.1 Encryption in Windows 10".
    #[test]
    fn dialect_3_1_1_write_matches() {
        let hash: [u8; 64] = unhex(
            "B23F3CBFD69487D9832B79B1594A367CDD950909B774C3A4C412B4FCEA9EDDDB
             A7DB256BA2EA30E977F11F9B113247578E0E915C6D2A513B8F2FCA5707DC8770",
        )
        .try_into()
        .unwrap();
        let session = unhex("419FDDF34C1E001909D362AE7FB6AF79");
        let keys = Keys::derive(&session, Context::V311(&hash), Cipher::Aes128Gcm);
        assert_eq!(keys.client_to_server[..], unhex("A2F5E80E5D59103034F32E52F698E5EC")[..]);
        let plain = unhex(
            "FE534D4240000100000000000900010008000000000000000500000000000000FFFE000001000000
             25000000001000000000000000000000000000000000000031007000170000000000000000000000
             0600000004000000010000000400000000000000000000007000000000000000536D623320656E63
             72797074696F6E2074657374696E67",
        );
        let mut nonce = [0; 16];
        nonce[..12].copy_from_slice(&unhex("C7D6822D269CAF48904C664C"));
        let mut aad = nonce.to_vec();
        aad.extend(unhex("87000000000001002500000000100000"));
        let sealer = Sealer::new(Cipher::Aes128Gcm, &keys.client_to_server, 0).unwrap();
        let mut out = vec![0; plain.len()];
        sealer.seal(&nonce, &aad, &[&plain], &mut [&mut out]).unwrap();
        assert_eq!(
            out,
            unhex(
                "6ECDD2A7AFC7B47763057A041B8FD4DAFFE990B70C9E09D36C084E02D14EF247F8BDE38ACF6256F8
                 B1D3B56F77FBDEB312FEA5E92CBCC1ED8FB2EBBFAA75E49A4A394BB44576545567C24D4C014D47C9
                 FBDFDAFD2C4F9B72F8D256452620A299F48E29E53D6B61D1C13A19E91AF013F00D17E3ABC2FC3D36
                 C8C1B6B93973253852DBD442E46EE8"
            )
        );
    }

    #[test]
    fn nonces_are_unique_and_fit() {
        for cipher in Cipher::ALL {
            let sealer = Sealer::new(cipher, &vec![1; cipher.key_len()], u64::MAX - 1).unwrap();
            let mut seen = std::collections::HashSet::new();
            for _ in 0..1000 {
                let nonce = sealer.nonce();
                assert!(nonce[cipher.nonce_len()..].iter().all(|b| *b == 0));
                assert!(seen.insert(nonce));
            }
            assert_eq!(Cipher::from_number(cipher as u16), Some(cipher));
        }
        assert_eq!(Cipher::from_number(0), None);
        assert!(Sealer::new(Cipher::Aes256Gcm, &[0; 16], 0).is_err(), "a key of another length");
    }

    #[test]
    fn different_lengths_are_refused() {
        for cipher in Cipher::ALL {
            let sealer = Sealer::new(cipher, &vec![1; cipher.key_len()], 0).unwrap();
            let seal = |src: &[&[u8]], n: usize| {
                sealer.seal(&sealer.nonce(), &[], src, &mut [&mut vec![0; n]])
            };
            assert!(seal(&[&[1, 2], &[]], 2).is_ok());
            assert!(seal(&[&[1, 2]], 3).is_err());
            assert!(seal(&[&[1, 2], &[3]], 2).is_err());
        }
    }

    fn oracle(cipher: Cipher, key: &[u8], nonce: &[u8; 16], aad: &[u8], msg: &[u8]) -> Vec<u8> {
        type Nonce11 = Array<u8, U11>;
        let payload = Payload { msg, aad };
        let n11 = Nonce11::try_from(&nonce[..11]).unwrap();
        let n12 = Array::try_from(&nonce[..12]).unwrap();
        match cipher {
            Cipher::Aes128Gcm => {
                aes_gcm::Aes128Gcm::new_from_slice(key).unwrap().encrypt(&n12, payload)
            }
            Cipher::Aes256Gcm => {
                aes_gcm::Aes256Gcm::new_from_slice(key).unwrap().encrypt(&n12, payload)
            }
            Cipher::Aes128Ccm => OracleCcm::<aes::Aes128, U16, U11>::new_from_slice(key)
                .unwrap()
                .encrypt(&n11, payload),
            Cipher::Aes256Ccm => OracleCcm::<aes::Aes256, U16, U11>::new_from_slice(key)
                .unwrap()
                .encrypt(&n11, payload),
        }
        .unwrap()
    }

    fn cut(bytes: &[u8], at: &[proptest::sample::Index]) -> Vec<Vec<u8>> {
        let mut at: Vec<usize> = at.iter().map(|i| i.index(bytes.len() + 1)).collect();
        at.sort_unstable();
        let mut pieces = Vec::new();
        let mut from = 0;
        for to in at.into_iter().chain([bytes.len()]) {
            pieces.push(bytes[from..to].to_vec());
            from = to;
        }
        pieces
    }

    proptest! {
        /// Equals the reference implementation however both sides are split; opens again; detects every changed bit of message, AAD
        /// and tag.
        #[test]
        fn seals_match_reference_and_bind(
            key: [u8; 32],
            nonce: [u8; 16],
            aad in proptest::collection::vec(any::<u8>(), 0..40),
            message in proptest::collection::vec(any::<u8>(), 0..9000),
            cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..5),
            other in proptest::collection::vec(any::<proptest::sample::Index>(), 0..5),
            flip: proptest::sample::Index,
        ) {
            for cipher in Cipher::ALL {
                let key = &key[..cipher.key_len()];
                let (sealer, opener) =
                    (Sealer::new(cipher, key, 0).unwrap(), Opener::new(cipher, key).unwrap());
                let src = cut(&message, &cuts);
                let src: Vec<&[u8]> = src.iter().map(Vec::as_slice).collect();
                let mut dst = cut(&vec![0; message.len()], &other);
                let mut into: Vec<&mut [u8]> = dst.iter_mut().map(Vec::as_mut_slice).collect();
                let tag = sealer.seal(&nonce, &aad, &src, &mut into).unwrap();
                let sealed = dst.concat();
                let mut with_tag = sealed.clone();
                with_tag.extend(tag);
                prop_assert_eq!(&with_tag, &oracle(cipher, key, &nonce, &aad, &message));

                let mut in_place = message.clone();
                let (a, b) = in_place.split_at_mut(message.len() / 3);
                prop_assert_eq!(sealer.seal_in_place(&nonce, &aad, &mut [a, b]), Ok(tag));
                prop_assert_eq!(&in_place, &sealed);

                let mut plain = cut(&vec![0; message.len()], &cuts);
                let mut into: Vec<&mut [u8]> = plain.iter_mut().map(Vec::as_mut_slice).collect();
                let pieces: Vec<&[u8]> = dst.iter().map(Vec::as_slice).collect();
                opener.open(&nonce, &aad, &pieces, &mut into, &tag).unwrap();
                prop_assert_eq!(plain.concat(), message.clone());

                let mut all = [&aad[..], &sealed, &tag].concat();
                let bit = flip.index(all.len() * 8);
                all[bit / 8] ^= 1 << (bit % 8);
                let (aad2, rest) = all.split_at(aad.len());
                let (body, tag2) = rest.split_at(sealed.len());
                let tag2 = tag2.first_chunk().unwrap();
                let mut out = vec![9; body.len()];
                prop_assert!(opener.open(&nonce, aad2, &[body], &mut [&mut out], tag2).is_err());
                prop_assert!(out.iter().all(|b| *b == 0), "what was decrypted is wiped");
                let mut body = body.to_vec();
                prop_assert!(opener.open_in_place(&nonce, aad2, &mut [&mut body], tag2).is_err());
            }
        }
    }
}
