//! Saved sessions: a snapshot of what is in the context, as bytes.

use core::ops::Range;

use bytemuck::{Pod, Zeroable};

use super::Session;
use crate::hash::Hash;
use crate::memory::{HeadLayout, KvType, TILE};
use crate::{Error, Name, Plan};

const MAGIC: [u8; 4] = *b"ARSN";
const VERSION: u32 = 1;

/// What stands before the logits. Integers are little-endian.
#[derive(Clone, Copy, PartialEq, Pod, Zeroable)]
#[repr(C)]
struct Header {
    magic: [u8; 4],
    version: [u8; 4],
    model: [u8; 8],
    kv_bytes: [u8; 8],
    context: [u8; 4],
    kv_type: [u8; 4],
    position: [u8; 4],
    reached: [u8; 4],
    /// Of the fields above and of everything that follows.
    checksum: [u8; 8],
}

impl Header {
    const BYTES: usize = size_of::<Self>();

    /// The checksum of a snapshot with this header.
    fn sum(&self, rest: &[u8]) -> [u8; 8] {
        let mut hash = Hash::new();
        hash.bytes(bytemuck::bytes_of(&Self { checksum: [0; 8], ..*self }));
        hash.bytes(rest);
        hash.finish().to_le_bytes()
    }
}

impl Plan {
    /// Bytes of a snapshot ([`Session::save`]) with `tokens` in the context.
    pub const fn snapshot_bytes(&self, tokens: usize) -> usize {
        let [first, second] = self.layout.tiles;
        let tokens = min(tokens, self.options.context);
        self.used_bytes([min(tokens, first * TILE), min(tokens, second * TILE)])
    }

    /// Bytes of a snapshot with so many positions in use in the rings of each kind of heads.
    const fn used_bytes(&self, used: [usize; 2]) -> usize {
        let [first, second] = used;
        let [first_bytes, second_bytes] = self.layout.position_bytes;
        let cache = first.saturating_mul(first_bytes).saturating_add(second.saturating_mul(second_bytes));
        Header::BYTES.saturating_add(self.layout.logits.saturating_mul(4)).saturating_add(cache)
    }
}

const fn min(a: usize, b: usize) -> usize {
    if a < b { a } else { b }
}

/// # Saved sessions
///
/// A device can ship with its system prompt already run: the snapshot lies in flash, and
/// [`restore`](Self::restore) takes the place of [`prefill`](Self::prefill). What follows has the
/// same bits.
///
/// A snapshot is the same on every target. All numbers in it are little-endian:
///
/// ```text
/// "ARSN"       4    what it is
/// version      4    1
/// model        8    fingerprint of the file: Gguf::fingerprint
/// KV bytes     8    of the whole cache, as planned
/// context      4    positions
/// KV type      4    0: f32, 1: f16, 2: q8_0
/// position     4    tokens in the context
/// reached      4    the furthest position ever, which tells what a sliding window has overwritten
/// checksum     8    of all other bytes
/// logits            f32 for each word of the vocabulary
/// KV cache          for each layer and KV head: the tiles of 16 positions that are in use, with the
///                   positions that are in use
/// ```
impl Session<'_, '_> {
    /// Bytes that [`save`](Self::save) writes now. [`Plan::snapshot_bytes`] tells beforehand.
    pub fn snapshot_bytes(&self) -> usize {
        self.plan.used_bytes(self.used(self.position, self.reached))
    }

    /// Writes a snapshot to the front of `out` and returns its length: the context and the logits
    /// as they are, so that sampling goes on at once.
    ///
    /// # Errors
    ///
    /// [`Error::BufferTooSmall`] if `out` has fewer than [`snapshot_bytes`](Self::snapshot_bytes);
    /// [`Error::Unsupported`] for a model with an encoder.
    pub fn save(&self, out: &mut [u8]) -> Result<usize, Error> {
        self.can_be_saved()?;
        let (needed, given) = (self.snapshot_bytes(), out.len());
        let short = Error::BufferTooSmall { what: "buffer for the snapshot", needed, given };
        let out = out.get_mut(..needed).ok_or(short)?;
        let (head, rest) = out.split_at_mut_checked(Header::BYTES).ok_or(short)?;
        let (logits, mut cache) = rest.split_at_mut_checked(4 * self.engine.logits.len()).ok_or(short)?;
        for (to, logit) in logits.as_chunks_mut().0.iter_mut().zip(self.engine.logits.iter()) {
            *to = logit.to_le_bytes();
        }
        self.runs(self.used(self.position, self.reached), |run| {
            if let (Some(from), Some((to, rest))) =
                (self.engine.kv.get(run.clone()), core::mem::take(&mut cache).split_at_mut_checked(run.len()))
            {
                copy(to, from);
                cache = rest;
            }
        });
        let mut header = self.header(self.position, self.reached);
        header.checksum = header.sum(rest);
        copy(head, bytemuck::bytes_of(&header));
        Ok(needed)
    }

    /// Puts the session where the one was that [`save`](Self::save) wrote: context and logits.
    ///
    /// `snapshot` may have any alignment, and be longer than what was saved. Batch size, workers and
    /// kernels may differ, except that the batch size counts where a sliding window is shorter than the
    /// context.
    ///
    /// # Errors
    ///
    /// The session is then as it was before.
    /// [`Error::DamagedSnapshot`]; [`Error::ForeignSnapshot`] if it was made with another model, context
    /// length, KV type, or version of this format; [`Error::Unsupported`] for a model with an encoder.
    pub fn restore(&mut self, snapshot: &[u8]) -> Result<(), Error> {
        self.can_be_saved()?;
        let cut = Error::DamagedSnapshot { why: "is cut short" };
        let (head, rest) = snapshot.split_at_checked(Header::BYTES).ok_or(cut)?;
        let header: Header = bytemuck::pod_read_unaligned(head);
        let (position, reached) = (u32::from_le_bytes(header.position), u32::from_le_bytes(header.reached));
        let (position, reached) = (position as usize, reached as usize);
        let expected = self.header(position, reached);
        if header.magic != expected.magic {
            return Err(Error::DamagedSnapshot { why: "does not begin as one" });
        }
        for (same, what) in [
            (header.version == expected.version, "version of the format"),
            (header.model == expected.model, "model"),
            (header.context == expected.context, "context length"),
            (header.kv_type == expected.kv_type, "type of KV cache"),
            (header.kv_bytes == expected.kv_bytes, "batch size"),
        ] {
            if !same {
                return Err(Error::ForeignSnapshot { what });
            }
        }
        if position > reached || reached > self.context() || position < self.earliest(reached) {
            return Err(Error::DamagedSnapshot { why: "is at an impossible position" });
        }
        let used = self.used(position, reached);
        let rest = rest.get(..self.plan.used_bytes(used).saturating_sub(Header::BYTES)).ok_or(cut)?;
        if header.checksum != header.sum(rest) {
            return Err(Error::DamagedSnapshot { why: "has another checksum than it says" });
        }

        let (logits, mut cache) = rest.split_at_checked(4 * self.engine.logits.len()).ok_or(cut)?;
        for (logit, from) in self.engine.logits.iter_mut().zip(logits.as_chunks().0) {
            *logit = f32::from_le_bytes(*from);
        }
        let mut kv = core::mem::take(&mut self.engine.kv);
        self.runs(used, |run| {
            if let (Some(to), Some((from, rest))) = (kv.get_mut(run.clone()), cache.split_at_checked(run.len())) {
                copy(to, from);
                cache = rest;
            }
        });
        core::mem::swap(&mut self.engine.kv, &mut kv);
        (self.position, self.reached) = (position, reached);
        Ok(())
    }

    fn header(&self, position: usize, reached: usize) -> Header {
        let kv_type: u32 = match self.plan.options.kv {
            KvType::F32 => 0,
            KvType::F16 => 1,
            KvType::Q8_0 => 2,
        };
        Header {
            magic: MAGIC,
            version: VERSION.to_le_bytes(),
            model: self.model.gguf().fingerprint().to_le_bytes(),
            kv_bytes: (self.plan.kv as u64).to_le_bytes(),
            context: (self.context() as u32).to_le_bytes(),
            kv_type: kv_type.to_le_bytes(),
            position: (position as u32).to_le_bytes(),
            reached: (reached as u32).to_le_bytes(),
            checksum: [0; 8],
        }
    }

    /// How many positions of the rings of each kind of heads are in use, from their start: the context's;
    /// all, once the ring has gone round.
    fn used(&self, position: usize, reached: usize) -> [usize; 2] {
        [0, 1].map(|kind| {
            let kept = self.plan.kept(kind);
            if reached > kept { kept } else { position }
        })
    }

    /// Calls `each` with the bytes of the positions of every ring that are in use, piece by piece.
    fn runs(&self, used: [usize; 2], mut each: impl FnMut(Range<usize>)) {
        let mut start = 0;
        for layer in (0..self.engine.spec.layers).map(|index| self.engine.spec.layer(index)) {
            if !layer.owns_kv {
                continue;
            }
            let head = HeadLayout { kind: self.plan.options.kv, dim: layer.head.dim };
            let used = used.get(usize::from(layer.is_local)).copied().unwrap_or(0);
            for _ in 0..layer.kv_heads {
                positions(head, start, used, &mut each);
                start += self.plan.kept(usize::from(layer.is_local)) / TILE * head.tile_bytes();
            }
        }
    }

    /// A model with an encoder has more state than is saved.
    fn can_be_saved(&self) -> Result<(), Error> {
        match self.engine.source {
            None => Ok(()),
            Some(_) => Err(Error::Unsupported { what: "snapshot of a model with", name: Name::new(b"an encoder") }),
        }
    }
}

/// Calls `each` with the bytes of the first `used` positions of the ring of one head at byte `start`.
fn positions(head: HeadLayout, start: usize, used: usize, each: &mut impl FnMut(Range<usize>)) {
    for tile in 0..used.div_ceil(TILE) {
        let start = start + tile * head.tile_bytes();
        let positions = used - tile * TILE;
        if positions >= TILE {
            each(start..start + head.tile_bytes());
            continue;
        }
        let mut row = start;
        for (rows, bytes) in head.rows() {
            for _ in 0..rows {
                each(row..row + positions * bytes);
                row += TILE * bytes;
            }
        }
    }
}

/// [`slice::copy_from_slice`] for slices of one length, which the compiler need not be able to prove.
fn copy(to: &mut [u8], from: &[u8]) {
    if to.len() == from.len() {
        to.copy_from_slice(from);
    }
}
