//! Reads the first 24 bytes: magic, version, number of tensors, number of keys.

use super::reader::Reader;
use crate::{Error, tri};

/// Size in bytes of the smallest metadata entry: a one-byte key with a one-byte value.
const SMALLEST_KEY: u64 = (8 + 1) + 4 + 1;
/// Size in bytes of the smallest tensor entry: a one-byte name and one dimension.
const SMALLEST_TENSOR: u64 = (8 + 1) + 4 + 8 + 4 + 8;

#[derive(Clone, Copy)]
pub(super) struct Header {
    pub(super) version: u32,
    pub(super) tensor_count: u64,
    pub(super) key_count: u64,
}

impl Header {
    /// Length of the header in bytes; the first key follows.
    pub(super) const LEN: usize = 24;

    pub(super) const fn read(reader: &mut Reader<'_>) -> Result<Self, Error> {
        if !reader.eat(b"GGUF") {
            return Err(Error::NotGguf);
        }
        let version = tri!(reader.u32("the version"));
        match version {
            2 | 3 => {}
            // Version 3 allows big-endian files. In such a file the version field appears byte-swapped; testing for
            // this lets the error name the cause.
            _ if matches!(version.swap_bytes(), 1..=3) => return Err(Error::BigEndian),
            _ => return Err(Error::Version { version }),
        }
        let tensor_count = tri!(reader.u64("the number of tensors"));
        let key_count = tri!(reader.u64("the number of metadata keys"));

        // Refuses counts of keys and tensors if so many cannot fit in the rest of the file, before any entry is read.
        let room = reader.left();
        let keys = key_count.saturating_mul(SMALLEST_KEY);
        if keys > room {
            return Err(Error::TooMany { what: "metadata keys", count: key_count, at: 16 });
        }
        if tensor_count.saturating_mul(SMALLEST_TENSOR) > room - keys {
            return Err(Error::TooMany { what: "tensors", count: tensor_count, at: 8 });
        }
        Ok(Self { version, tensor_count, key_count })
    }
}
