//! Lists with evenly distributed lengths; `Vec` would almost always be short.

use std::ops::Deref;

use arbitrary::{Arbitrary, Result, Unstructured};

/// At most `MOST` elements.
#[derive(Clone, Debug)]
pub struct List<T, const MOST: usize>(pub Vec<T>);

impl<'a, T: Arbitrary<'a>, const MOST: usize> Arbitrary<'a> for List<T, MOST> {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let len = u.int_in_range(0..=MOST)?;
        (0..len).map(|_| u.arbitrary()).collect::<Result<_>>().map(Self)
    }
}

impl<T, const MOST: usize> Deref for List<T, MOST> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

/// A token, mostly from the vocabulary.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub struct Token(u16);

impl Token {
    pub fn id(self, vocab: usize) -> u32 {
        match usize::from(self.0) {
            rare @ 0xff80.. => (rare - 0xff80 + vocab) as u32,
            id => (id % vocab.max(1)) as u32,
        }
    }
}
