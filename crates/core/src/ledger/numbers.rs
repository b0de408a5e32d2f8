//! Numbers in as many bytes as they need: seven bits to a byte, the least first; the eighth says whether more follow.

/// Writes one down.
pub(super) fn put_number(bytes: &mut impl Extend<u8>, mut number: u64) {
    while number > 0x7f {
        bytes.extend([number as u8 | 0x80]);
        number >>= 7;
    }
    bytes.extend([number as u8]);
}

/// Reads one; nothing if the bytes end before it does, or it is too long.
pub(super) fn number(mut next: impl FnMut() -> Option<u8>) -> Option<u64> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let byte = next()?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}
