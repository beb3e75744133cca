//! Measures how fast one core signs, seals and opens messages of READ and WRITE, compared with only the ciphers and hashes: `cargo
//! run --release -p gss-krb5 --example token_rate`.

use std::hint::black_box;
use std::time::{Duration, Instant};

use aws_lc_rs::cipher::{
    AES_128, AES_256, DecryptingKey, DecryptionContext, EncryptingKey, EncryptionContext,
    UnboundCipherKey,
};
use aws_lc_rs::hmac;
use gss_krb5::{Context, Enctype, Role};

/// Length of a message: 1 MiB.
const SIZE: u32 = 1 << 20;
/// Length of one piece, as the gateway's heap allocates them.
const PIECE: usize = 64 << 10;
const PIECES: usize = SIZE as usize / PIECE;
/// Number of bytes passed to a cipher at once.
const RUN: usize = 8 << 10;
/// Number of runs; the fastest counts, because it had the core to itself.
const ROUNDS: usize = 400;

type RunResult<T> = Result<T, Box<dyn std::error::Error>>;

fn timed<T>(work: impl FnOnce() -> RunResult<T>) -> RunResult<Duration> {
    let began = Instant::now();
    black_box(work()?);
    Ok(began.elapsed())
}

/// Measures each function alternately and returns its rate in GB/s.
fn rates<const N: usize>(
    mut all: [&mut dyn FnMut() -> RunResult<Duration>; N],
) -> RunResult<[f64; N]> {
    let mut best = [Duration::MAX; N];
    for _ in 0..ROUNDS {
        for (best, each) in best.iter_mut().zip(&mut all) {
            *best = each()?.min(*best);
        }
    }
    Ok(best.map(|took| f64::from(SIZE) / took.as_secs_f64() / 1e9))
}

fn message() -> Vec<Vec<u8>> {
    vec![vec![3; PIECE]; PIECES]
}

fn slices(message: &mut [Vec<u8>]) -> Vec<&mut [u8]> {
    message.iter_mut().map(|piece| &mut **piece).collect()
}

fn measure(enctype: Enctype) -> RunResult<[f64; 6]> {
    let (aes, hash) = match enctype {
        Enctype::Aes128Sha1 => (&AES_128, hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY),
        Enctype::Aes256Sha1 => (&AES_256, hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY),
        Enctype::Aes128Sha2 => (&AES_128, hmac::HMAC_SHA256),
        Enctype::Aes256Sha2 => (&AES_256, hmac::HMAC_SHA384),
    };
    let key = vec![7; enctype.key_len()];
    let own = Context::new(enctype, &key, Role::Acceptor, true)?;
    let peer = Context::new(enctype, &key, Role::Initiator, true)?;
    let encrypt = EncryptingKey::cbc(UnboundCipherKey::new(aes, &key)?)?;
    let decrypt = DecryptingKey::cbc(UnboundCipherKey::new(aes, &key)?)?;
    let mac = hmac::Key::new(hash, &key);

    let (mut to_seal, to_sign) = (message(), message());
    let signed: Vec<&[u8]> = to_sign.iter().map(|piece| &**piece).collect();
    let (mut plain, mut sealed) = (message(), message());
    rates([
        &mut || timed(|| Ok(own.mic(1, &signed))),
        &mut || {
            let mut pieces = slices(&mut to_seal);
            timed(|| Ok(own.wrap(1, &mut pieces)?))
        },
        &mut || {
            let mut token = message();
            let mut pieces = slices(&mut token);
            let around = peer.wrap(1, &mut pieces)?;
            let (mut head, mut tail) = (around.head().to_vec(), around.tail().to_vec());
            pieces.insert(0, &mut head);
            pieces.push(&mut tail);
            timed(|| Ok(own.unwrap(&mut pieces)?))
        },
        &mut || {
            timed(|| {
                for run in plain.iter_mut().flat_map(|piece| piece.chunks_mut(RUN)) {
                    encrypt.less_safe_encrypt(run, EncryptionContext::Iv128([0; 16].into()))?;
                }
                Ok(())
            })
        },
        &mut || {
            timed(|| {
                for run in sealed.iter_mut().flat_map(|piece| piece.chunks_mut(RUN)) {
                    decrypt.decrypt(run, DecryptionContext::Iv128([0; 16].into()))?;
                }
                Ok(())
            })
        },
        &mut || {
            timed(|| {
                let mut context = hmac::Context::with_key(&mac);
                to_sign.iter().for_each(|piece| context.update(piece));
                Ok(context.sign())
            })
        },
    ])
}

fn main() -> RunResult<()> {
    println!("| encryption type | sign | seal | open | AES to encrypt | AES to decrypt | HMAC |");
    println!("|---|---:|---:|---:|---:|---:|---:|");
    for enctype in Enctype::ALL {
        let cells = measure(enctype)?.map(|rate| format!("{rate:.2}"));
        println!("| `{}` | {} |", enctype.name(), cells.join(" | "));
    }
    Ok(())
}
