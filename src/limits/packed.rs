//! Values that are stored with every call and seldom change: each keeps its packed form beside it, so that
//! thousands of them cost a call no more than their bytes.

use std::cell::OnceCell;
use std::ops::{Deref, DerefMut};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A value, and its packed form once that was asked for. Whoever touches the value makes that be packed anew.
#[derive(Clone, Debug)]
pub struct Packed<T> {
    value: T,
    bytes: OnceCell<Box<[u8]>>,
}

impl<T> Packed<T> {
    /// The value alone.
    pub fn into_value(self) -> T {
        self.value
    }
}

impl<T: Serialize> Packed<T> {
    /// Its packed form, the same that [`Serialize`] gives.
    fn bytes(&self) -> &[u8] {
        let pack = || postcard::to_allocvec(&self.value).unwrap_or_default();
        self.bytes.get_or_init(|| pack().into_boxed_slice())
    }
}

/// Adds a packed sequence of packed values.
pub fn pack<'a, T: Serialize + 'a>(
    values: impl ExactSizeIterator<Item = &'a Packed<T>>,
    to: Vec<u8>,
) -> postcard::Result<Vec<u8>> {
    let mut packed = postcard::to_extend(&values.len(), to)?;
    for value in values {
        packed.extend_from_slice(value.bytes());
    }
    Ok(packed)
}

impl<T> From<T> for Packed<T> {
    fn from(value: T) -> Self {
        Self {
            value,
            bytes: OnceCell::new(),
        }
    }
}

impl<T> Deref for Packed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Packed<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.bytes.take();
        &mut self.value
    }
}

impl<T: PartialEq> PartialEq for Packed<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T: Serialize> Serialize for Packed<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Packed<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_is_packed_anew() {
        let mut values: Vec<Packed<u64>> = vec![1.into(), 300.into()];
        assert_eq!(pack(values.iter(), vec![9]).unwrap(), [9, 2, 1, 172, 2]);
        *values[1] += 1;
        assert_eq!(pack(values.iter(), vec![]).unwrap(), [2, 1, 173, 2]);
        assert_eq!(
            pack(values.iter(), vec![]).unwrap(),
            postcard::to_allocvec(&values).unwrap()
        );
    }
}
