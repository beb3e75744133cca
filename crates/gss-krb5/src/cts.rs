//! CBC with ciphertext stealing and the authentication tag, in one pass over the pieces of a message (RFC 3962 section 5, RFC 8009
//! section 5). The initial cipher state is always zero, because a context keeps no state between tokens.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;

use crate::Failed;
use crate::enctype::{BLOCK, UsageKeys, cbc_decrypt, cbc_encrypt};
use crate::pieces;
use crate::tag::Tag;

/// Splits a message of this length: bytes in plain CBC, then the last two blocks, of which the second may be short.
fn split(len: usize) -> Result<(usize, usize), Failed> {
    match len {
        0..BLOCK => Err(Failed),
        BLOCK => Ok((BLOCK, 0)),
        _ => {
            let short = (len - 1) % BLOCK + 1;
            Ok((len - BLOCK - short, BLOCK + short))
        }
    }
}

fn last_block(data: &[u8]) -> [u8; BLOCK] {
    data.last_chunk().copied().unwrap_or_default()
}

/// Encrypts in place and returns the tag, which follows the ciphertext. The caller has placed the confounder in the first block.
pub(crate) fn encrypt(keys: &UsageKeys, message: &mut [&mut [u8]]) -> Result<Tag, Failed> {
    let (plain, tail_len) = split(pieces::len(message))?;
    let behind = keys.enctype.tags_ciphertext();
    let mut mac = hmac::Context::with_key(&keys.integrity);
    let mut iv = [0; BLOCK];
    if behind {
        mac.update(&iv);
    }
    pieces::blocks(message, plain, |run| {
        if !behind {
            mac.update(run);
        }
        cbc_encrypt(&keys.encrypt, iv, run)?;
        iv = last_block(run);
        if behind {
            mac.update(run);
        }
        Ok(())
    })?;
    if tail_len > 0 {
        let mut tail = [0; 2 * BLOCK];
        pieces::copy_out(message, plain, &mut tail[..tail_len]);
        if !behind {
            mac.update(&tail[..tail_len]);
        }
        cbc_encrypt(&keys.encrypt, iv, &mut tail)?;
        tail.rotate_left(BLOCK);
        if behind {
            mac.update(&tail[..tail_len]);
        }
        pieces::copy_in(message, plain, &tail[..tail_len]);
    }
    Ok(Tag::of(keys.enctype, mac.sign().as_ref()))
}

/// Decrypts in place and verifies the tag. After [`Failed`] the contents of `message` must not be used.
pub(crate) fn decrypt(
    keys: &UsageKeys,
    message: &mut [&mut [u8]],
    tag: &[u8],
) -> Result<(), Failed> {
    let (plain, tail_len) = split(pieces::len(message))?;
    let behind = keys.enctype.tags_ciphertext();
    let mut mac = hmac::Context::with_key(&keys.integrity);
    let mut iv = [0; BLOCK];
    if behind {
        mac.update(&iv);
    }
    pieces::blocks(message, plain, |run| {
        let next = last_block(run);
        if behind {
            mac.update(run);
        }
        cbc_decrypt(&keys.decrypt, iv, run)?;
        iv = next;
        if !behind {
            mac.update(run);
        }
        Ok(())
    })?;
    if tail_len > 0 {
        let mut tail = [0; 2 * BLOCK];
        pieces::copy_out(message, plain, &mut tail[..tail_len]);
        if behind {
            mac.update(&tail[..tail_len]);
        }
        // The short block lacks the end of a ciphertext block; decrypting the full block recovers it.
        let (full, short) = tail.split_at_mut(BLOCK);
        let kept = tail_len - BLOCK;
        cbc_decrypt(&keys.decrypt, [0; BLOCK], full)?;
        short[kept..].copy_from_slice(&full[kept..]);
        for (a, b) in full.iter_mut().zip(short.iter()) {
            *a ^= b;
        }
        cbc_decrypt(&keys.decrypt, iv, short)?;
        tail.rotate_left(BLOCK);
        if !behind {
            mac.update(&tail[..tail_len]);
        }
        pieces::copy_in(message, plain, &tail[..tail_len]);
    }
    let own = Tag::of(keys.enctype, mac.sign().as_ref());
    Ok(verify_slices_are_equal(&own, tag)?)
}

/// Computes the checksum of the pieces (RFC 3961 section 5.3, RFC 8009 section 6).
pub(crate) fn checksum<'a>(keys: &UsageKeys, message: impl Iterator<Item = &'a [u8]>) -> Tag {
    let mut mac = hmac::Context::with_key(&keys.checksum);
    message.for_each(|piece| mac.update(piece));
    Tag::of(keys.enctype, mac.sign().as_ref())
}

#[cfg(test)]
mod tests;
