//! Random ids.

/// The digits of base62, in ASCII order.
const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// `count` uniformly random base62 digits. Bytes of 248 and above are thrown away: 248 is the
/// largest multiple of 62 in a byte, so every digit is equally likely.
pub fn random_base62(count: usize) -> Result<String, getrandom::Error> {
    let mut digits = String::with_capacity(count);
    while digits.len() < count {
        let mut bytes = [0u8; 32];
        getrandom::fill(&mut bytes)?;
        let fair = bytes.iter().filter(|b| **b < 248);
        let drawn = fair.filter_map(|b| DIGITS.get(usize::from(*b) % 62));
        digits.extend(drawn.take(count - digits.len()).map(|d| char::from(*d)));
    }
    Ok(digits)
}

/// A fresh id, such as `req_4fQ…`: the prefix and 119 random bits.
pub fn fresh(prefix: &str) -> Result<String, getrandom::Error> {
    Ok(format!("{prefix}_{}", random_base62(20)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_long_as_asked_and_never_the_same() {
        let (a, b) = (random_base62(30).unwrap(), random_base62(30).unwrap());
        assert_eq!((a.len(), b.len()), (30, 30));
        assert_ne!(a, b);
    }
}
