//! Saved sessions: a snapshot of what is in the context, as bytes.

use core::ops::Range;

use bytemuck::{Pod, Zeroable};

use super::Session;
use crate::hash::Hash;
use crate::memory::{HeadLayout, KvType, TILE};
use crate::{Error, Plan};

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
        let positions = self.layout.tiles * TILE;
        let tokens = if tokens < positions { tokens } else { positions };
        let Some(per_position) = self.kv.checked_div(positions) else { return Header::BYTES };
        Header::BYTES + 4 * self.layout.logits + per_position * tokens
    }
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
        self.plan.snapshot_bytes(self.used(self.position, self.reached))
    }

    /// Writes a snapshot to the front of `out` and returns its length: the context and the logits
    /// as they are, so that sampling goes on at once.
    ///
    /// # Errors
    ///
    /// [`Error::BufferTooSmall`] if `out` has fewer than [`snapshot_bytes`](Self::snapshot_bytes).
    pub fn save(&self, out: &mut [u8]) -> Result<usize, Error> {
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
    /// length, KV type, or version of this format.
    pub fn restore(&mut self, snapshot: &[u8]) -> Result<(), Error> {
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
        let rest = rest.get(..self.plan.snapshot_bytes(used).saturating_sub(Header::BYTES)).ok_or(cut)?;
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

    /// How many positions of each ring are in use, from its start: the context's; all, once the ring
    /// has gone round.
    fn used(&self, position: usize, reached: usize) -> usize {
        let kept = self.plan.layout.tiles * TILE;
        if reached > kept { kept } else { position }
    }

    /// Calls `each` with the bytes of the first `used` positions of every ring, piece by piece.
    fn runs(&self, used: usize, mut each: impl FnMut(Range<usize>)) {
        let head = HeadLayout { kind: self.plan.options.kv, dim: self.engine.spec.head_dim };
        let (tiles, tile_bytes) = (self.plan.layout.tiles, head.tile_bytes());
        let rings = self.plan.kv.checked_div(tiles * tile_bytes).unwrap_or(0);
        for ring in 0..rings {
            for tile in 0..used.div_ceil(TILE) {
                let start = (ring * tiles + tile) * tile_bytes;
                let positions = used - tile * TILE;
                if positions >= TILE {
                    each(start..start + tile_bytes);
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
    }
}

/// [`slice::copy_from_slice`] for slices of one length, which the compiler need not be able to prove.
fn copy(to: &mut [u8], from: &[u8]) {
    if to.len() == from.len() {
        to.copy_from_slice(from);
    }
}
