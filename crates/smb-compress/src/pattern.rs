//! Pattern_V1 (MS-SMB2 sections 2.2.42.2.2 and 3.1.4.4): runs of one byte at the beginning and at the end of the data.

/// Shortest run encoded as a pattern; the codec handles shorter ones.
pub const RUN_MIN: usize = 64;

/// Returns the length of the run that begins the data, or zero if it is shorter than [`RUN_MIN`].
pub fn leading(data: &[u8]) -> usize {
    let Some((byte, _)) = data.split_first() else { return 0 };
    let wide = u64::from_ne_bytes([*byte; 8]);
    let (chunks, _) = data.as_chunks::<8>();
    let whole = chunks.iter().take_while(|c| u64::from_ne_bytes(**c) == wide).count() * 8;
    let n = whole + data[whole..].iter().take_while(|b| *b == byte).count();
    if n < RUN_MIN { 0 } else { n }
}

/// Returns the length of the run that ends the data, or zero if it is shorter than [`RUN_MIN`].
pub fn trailing(data: &[u8]) -> usize {
    let Some((byte, _)) = data.split_last() else { return 0 };
    let wide = u64::from_ne_bytes([*byte; 8]);
    let (_, chunks) = data.as_rchunks::<8>();
    let whole = chunks.iter().rev().take_while(|c| u64::from_ne_bytes(**c) == wide).count() * 8;
    let rest = &data[..data.len() - whole];
    let n = whole + rest.iter().rev().take_while(|b| *b == byte).count();
    if n < RUN_MIN { 0 } else { n }
}
