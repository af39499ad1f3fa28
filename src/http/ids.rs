//! Random ids, and how bytes are written in one.

use std::cell::RefCell;

/// The digits of base62, in ASCII order.
const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

thread_local! {
    /// Random bytes that were drawn ahead: asking for a few costs as much as for many.
    static AHEAD: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// How many bytes are drawn at a time.
const DRAW: usize = 1_024;

/// `count` uniformly random base62 digits. Bytes of 248 and above are thrown away: 248 is the
/// largest multiple of 62 in a byte, so every digit is equally likely.
pub fn random_base62(count: usize) -> Result<String, getrandom::Error> {
    let mut digits = String::with_capacity(count);
    while digits.len() < count {
        let byte = random_byte()?;
        let fair = DIGITS.get(usize::from(byte) % 62).filter(|_| byte < 248);
        digits.extend(fair.map(|digit| char::from(*digit)));
    }
    Ok(digits)
}

/// A random byte that nobody else gets.
fn random_byte() -> Result<u8, getrandom::Error> {
    AHEAD.with_borrow_mut(|ahead| {
        if let Some(byte) = ahead.pop() {
            return Ok(byte);
        }
        ahead.resize(DRAW, 0);
        let drawn = getrandom::fill(ahead);
        let byte = drawn.map(|()| ahead.pop().unwrap_or_default());
        if drawn.is_err() {
            ahead.clear();
        }
        byte
    })
}

/// Two digits for each byte.
pub fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .collect()
}

/// A fresh id, such as `req_4fQ…`: the prefix and 119 random bits.
pub fn fresh(prefix: &str) -> Result<String, getrandom::Error> {
    Ok(format!("{prefix}_{}", random_base62(20)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_two_digits_each() {
        assert_eq!(hex(&[0, 7, 0x1a, 0xff]), "00071aff");
    }

    #[test]
    fn as_long_as_asked_and_never_the_same() {
        let (a, b) = (random_base62(30).unwrap(), random_base62(30).unwrap());
        assert_eq!((a.len(), b.len()), (30, 30));
        assert_ne!(a, b);
    }
}
