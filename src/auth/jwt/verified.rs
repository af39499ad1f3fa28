use std::cell::RefCell;
use std::collections::HashSet;

use sha2::{Digest, Sha256};

/// Most tokens whose check is remembered, by 32 bytes each.
const CAPACITY: usize = 4_096;

/// Tokens whose signature was good under one set of keys. A public-key check takes a millisecond or two in
/// Wasm and a caller shows the same token again and again; what the token claims is checked every time.
#[derive(Debug, Default)]
pub struct Verified(RefCell<HashSet<[u8; 32]>>);

impl Verified {
    /// Whether `check` is good for this token, now or before.
    pub fn or_check<E>(&self, token: &str, check: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let digest = Sha256::digest(token.as_bytes()).into();
        if self.0.borrow().contains(&digest) {
            return Ok(());
        }
        check()?;
        let mut seen = self.0.borrow_mut();
        if seen.len() >= CAPACITY {
            seen.clear();
        }
        seen.insert(digest);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_good_is_remembered() {
        let verified = Verified::default();
        assert_eq!(verified.or_check("a", || Err("bad")), Err("bad"));
        assert_eq!(verified.or_check("a", || Ok::<_, &str>(())), Ok(()));
        assert_eq!(verified.or_check("a", || Err("bad")), Ok(()));
        assert_eq!(verified.or_check("b", || Err("bad")), Err("bad"));
    }

    #[test]
    fn memory_is_bounded() {
        let verified = Verified::default();
        for n in 0..2 * CAPACITY {
            let _ = verified.or_check(&n.to_string(), || Ok::<_, ()>(()));
        }
        assert!(verified.0.borrow().len() <= CAPACITY);
    }
}
