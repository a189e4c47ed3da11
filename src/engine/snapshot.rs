//! Snapshots: contexts saved as bytes.

use core::ops::Range;

use bytemuck::{Pod, Zeroable};

use super::context::Rows;
use super::layout::{SOURCE, STATES, head_layout};
#[cfg(feature = "vision")]
use super::picture_turns::Turn;
use super::{Context, Engine, Plan};
use crate::hash::Hash;
use crate::memory::{HeadLayout, KvType, TILE};
use crate::{Error, Name};

const MAGIC: [u8; 4] = *b"ARSN";
const VERSION: u32 = 5;

/// The header of a snapshot. After it come the states and the logits. Integers are little-endian.
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
    /// Checksum of the fields above and all following bytes.
    checksum: [u8; 8],
}

impl Header {
    const BYTES: usize = size_of::<Self>();

    /// Checksum of a snapshot with this header, followed by `rest`.
    fn sum(&self, rest: &[u8]) -> [u8; 8] {
        let mut hash = Hash::new();
        hash.bytes(bytemuck::bytes_of(&Self { checksum: [0; 8], ..*self }));
        hash.bytes(rest);
        hash.finish().to_le_bytes()
    }
}

impl Plan {
    /// Size in bytes of a snapshot ([`Engine::save`]) with `tokens` tokens.
    pub const fn snapshot_bytes(&self, tokens: usize) -> usize {
        let [first, second, ..] = self.store.tiles;
        let tokens = min(tokens, self.options.context);
        self.used_bytes([min(tokens, first * TILE), min(tokens, second * TILE)], tokens)
    }

    /// Size in bytes of a snapshot of a context with `position` tokens. `used` is the number of positions that the
    /// snapshot saves in each pool of pages.
    const fn used_bytes(&self, used: [usize; 2], position: usize) -> usize {
        let states = if position > 0 { self.store.state_bytes } else { 0 };
        let cache = self.cache_bytes(used).saturating_add(states).saturating_add(self.picture_bytes());
        Header::BYTES.saturating_add(self.row_bytes()).saturating_add(cache)
    }

    /// Bytes of the pictures that a context has read.
    const fn picture_bytes(&self) -> usize {
        #[cfg(feature = "vision")]
        return (self.layout.turns / at_least_1(self.options.contexts)).saturating_mul(size_of::<Turn>());
        #[cfg(not(feature = "vision"))]
        0
    }

    /// Bytes of a row of logits.
    const fn row_bytes(&self) -> usize {
        (self.layout.logits / at_least_1(self.options.logits)).saturating_mul(4)
    }

    /// Bytes of the given numbers of positions in each pool.
    const fn cache_bytes(&self, [first, second]: [usize; 2]) -> usize {
        let [first_bytes, second_bytes] = self.store.position_bytes;
        first.saturating_mul(first_bytes).saturating_add(second.saturating_mul(second_bytes))
    }
}

const fn at_least_1(n: usize) -> usize {
    if n > 0 { n } else { 1 }
}

const fn min(a: usize, b: usize) -> usize {
    if a < b { a } else { b }
}

/// # Saved contexts
///
/// A device can ship with its system prompt already processed: the snapshot is in flash, and [`restore`](Self::restore)
/// replaces running the prompt. Results have the same bits.
///
/// Snapshots are portable between targets. All numbers are little-endian:
///
/// ```text
/// "ARSN"       4    magic
/// version      4    5
/// model        8    fingerprint of the file: Gguf::fingerprint; differs with the context's adapters
/// KV bytes     8    size of a full context
/// context      4    positions
/// KV type      4    0: f32, 1: f16, 2: q8_0, 3: q4_0, 4: keys q8_0, values q4_0
/// position     4    tokens in the context
/// reached      4    one past the furthest position ever written (for sliding windows)
/// checksum     8    over all other bytes
/// logits            f32 per token of the vocabulary; zeros if there are none
/// KV cache          for each layer and KV head: the positions in use, in tiles of 16
/// states            recurrent states of layers that have one, f32
/// pictures     8    for each planned picture of a model with rotary positions of several axes: the position after it, and
///                   the number by which later rotary positions are less
/// ```
///
/// The bits of NaN depend on the kernels and differ between instruction sets. All other values have the same bits
/// everywhere.
impl Engine<'_, '_> {
    /// Bytes that [`save`](Self::save) would write now. [`Plan::snapshot_bytes`] computes the size in advance.
    pub fn snapshot_bytes(&self, context: &Context) -> usize {
        self.plan.used_bytes(self.used(context.position, context.reached), context.position)
    }

    /// Writes a snapshot of a context to the front of `out` and returns the snapshot's length. The snapshot includes
    /// the logits, so that a restored context can be sampled at once.
    ///
    /// # Errors
    ///
    /// [`Error::BufferTooSmall`] if `out` is shorter than [`snapshot_bytes`](Self::snapshot_bytes);
    /// [`Error::Unsupported`] for a model with an encoder; [`Error::ForeignContext`].
    pub fn save(&mut self, context: &Context, out: &mut [u8]) -> Result<usize, Error> {
        self.known(context)?;
        self.can_be_saved()?;
        #[cfg(feature = "drafts")]
        self.settle(context);
        let (needed, given) = (self.snapshot_bytes(context), out.len());
        let short = Error::BufferTooSmall { what: "bytes of the snapshot", needed, given };
        let out = out.get_mut(..needed).ok_or(short)?;
        let (head, rest) = out.split_at_mut_checked(Header::BYTES).ok_or(short)?;
        let (logits, mut cache) = rest.split_at_mut_checked(self.plan.row_bytes()).ok_or(short)?;
        let mut row = self.logits(context).iter();
        for to in logits.as_chunks_mut().0 {
            *to = row.next().map_or([0; 4], |logit| logit.to_le_bytes());
        }
        self.positions_in_use(context.slot, self.used(context.position, context.reached), |run| {
            if let (Some(from), Some((to, rest))) =
                (self.forward.kv.get(run.clone()), core::mem::take(&mut cache).split_at_mut_checked(run.len()))
            {
                copy(to, from);
                cache = rest;
            }
        });
        let states = cache.len().saturating_sub(self.plan.picture_bytes());
        let (states, _pictures) = cache.split_at_mut_checked(states).unwrap_or_default();
        if let Some(from) = self.states_of(context.slot) {
            copy(states, self.forward.kv.get(from).unwrap_or(&[]));
        }
        #[cfg(feature = "vision")]
        for (to, turn) in _pictures.as_chunks_mut::<8>().0.iter_mut().zip(self.forward.turns.of(context.slot)) {
            let ([a, b, c, d], [e, f, g, h]) = (turn.end.to_le_bytes(), turn.less.to_le_bytes());
            *to = [a, b, c, d, e, f, g, h];
        }
        let mut header = self.header(context.slot, context.position, context.reached);
        header.checksum = header.sum(rest);
        copy(head, bytemuck::bytes_of(&header));
        Ok(needed)
    }

    /// Restores a context and its logits from a snapshot written by [`save`](Self::save).
    ///
    /// `snapshot` may have any alignment and may be longer than the saved bytes. The saving engine may have had
    /// different workers, kernels, and numbers of contexts and pages. It may also have had a different batch size,
    /// unless a sliding window is shorter than the context, because the length of the window's ring depends on the
    /// batch size.
    ///
    /// # Errors
    ///
    /// On error the context is unchanged. [`Error::DamagedSnapshot`]; [`Error::ForeignSnapshot`] if the snapshot was
    /// saved with another model, context length, KV type or format version; [`Error::Unsupported`] for a model with an
    /// encoder; [`Error::OutOfPages`]; [`Error::ForeignContext`].
    pub fn restore(&mut self, context: &mut Context, snapshot: &[u8]) -> Result<(), Error> {
        self.known(context)?;
        self.can_be_saved()?;
        let (position, reached, rest) = self.checked(context.slot, snapshot)?;
        let used = self.used(position, reached);
        self.take_pages(context, used)?;
        if let Some(pool) = self.forward.pools.get_mut(STATES) {
            // Takes a new page, because forks or checkpoints may share the old page.
            pool.release(context.slot, 0);
            if position > 0 {
                pool.claim(context.slot, 0, 0);
                pool.provide(context.slot, |_, _| ());
            }
        }

        let (logits, mut cache) = rest.split_at_checked(self.plan.row_bytes()).unwrap_or((rest, &[]));
        self.run += 1;
        let row = self.place(0);
        for (logit, from) in self.forward.logits.get_mut(row).unwrap_or_default().iter_mut().zip(logits.as_chunks().0) {
            *logit = f32::from_le_bytes(*from);
        }
        let mut kv = core::mem::take(&mut self.forward.kv);
        self.positions_in_use(context.slot, used, |run| {
            if let (Some(to), Some((from, rest))) = (kv.get_mut(run.clone()), cache.split_at_checked(run.len())) {
                copy(to, from);
                cache = rest;
            }
        });
        core::mem::swap(&mut self.forward.kv, &mut kv);
        self.forget_checkpoints(context.slot);
        let states = cache.len().saturating_sub(self.plan.picture_bytes());
        let (states, _pictures) = cache.split_at_checked(states).unwrap_or_default();
        if let Some(range) = self.states_of(context.slot)
            && let Some(to) = self.forward.kv.get_mut(range)
        {
            copy(to, states);
        }
        #[cfg(feature = "vision")]
        for (turn, from) in self.forward.turns.of_mut(context.slot).iter_mut().zip(_pictures.as_chunks::<8>().0) {
            let [a, b, c, d, e, f, g, h] = *from;
            *turn = Turn { end: u32::from_le_bytes([a, b, c, d]), less: u32::from_le_bytes([e, f, g, h]) };
        }
        context.torn = false;
        #[cfg(feature = "drafts")]
        self.forget_drafts(context.slot, position);
        (context.position, context.reached) = (position, reached);
        context.logits = Rows { run: self.run, first: 0, count: usize::from(position > 0), end: position };
        Ok(())
    }

    /// Range of a context's recurrent states in the cache.
    fn states_of(&self, slot: usize) -> Option<Range<usize>> {
        let page = *self.forward.pools.get(STATES)?.table(slot).first()?;
        self.plan.store.state_page(page as usize)
    }

    /// Checks a snapshot for a context. Returns the fields `position` and `reached` of the snapshot's header, and the
    /// bytes after the header.
    fn checked<'s>(&self, slot: usize, snapshot: &'s [u8]) -> Result<(usize, usize, &'s [u8]), Error> {
        let cut = Error::DamagedSnapshot { why: "is cut short" };
        let (head, rest) = snapshot.split_at_checked(Header::BYTES).ok_or(cut)?;
        let header: Header = bytemuck::pod_read_unaligned(head);
        let (position, reached) = (u32::from_le_bytes(header.position), u32::from_le_bytes(header.reached));
        let (position, reached) = (position as usize, reached as usize);
        let expected = self.header(slot, position, reached);
        if header.magic != expected.magic {
            return Err(Error::DamagedSnapshot { why: "does not start with a snapshot header" });
        }
        // The size of the cache depends on these.
        let changed = if self.plan.picture_bytes() > 0 { "batch size or number of pictures" } else { "batch size" };
        for (same, what) in [
            (header.version == expected.version, "version of the format"),
            (header.model == expected.model, "model or adapter"),
            (header.context == expected.context, "context length"),
            (header.kv_type == expected.kv_type, "type of KV cache"),
            (header.kv_bytes == expected.kv_bytes, changed),
        ] {
            if !same {
                return Err(Error::ForeignSnapshot { what });
            }
        }
        if position > reached
            || reached > self.plan.options.context
            || position < self.plan.earliest(self.model.spec(), reached)
        {
            return Err(Error::DamagedSnapshot { why: "is at an impossible position" });
        }
        let bytes = self.plan.used_bytes(self.used(position, reached), position).saturating_sub(Header::BYTES);
        let rest = rest.get(..bytes).ok_or(cut)?;
        if header.checksum != header.sum(rest) {
            return Err(Error::DamagedSnapshot { why: "has a wrong checksum" });
        }
        Ok((position, reached, rest))
    }

    /// Replaces the pages of a context by pages that no other context shares. `used` is the number of positions for
    /// which each pool must provide pages.
    fn take_pages(&mut self, context: &Context, used: [usize; 2]) -> Result<(), Error> {
        for (pool, used) in self.forward.pools.iter().zip(used) {
            let (needed, free) = (used.div_ceil(TILE), pool.free() + pool.owned(context.slot));
            if needed > free {
                return Err(Error::OutOfPages { needed, free });
            }
        }
        for (pool, used) in self.forward.pools.iter_mut().take(SOURCE).zip(used) {
            pool.release(context.slot, 0);
            if let Some(last) = used.checked_sub(1) {
                pool.claim(context.slot, 0, last / TILE);
                pool.provide(context.slot, |_, _| ());
            }
        }
        Ok(())
    }

    fn header(&self, _slot: usize, position: usize, reached: usize) -> Header {
        let kv_type: u32 = match self.plan.options.kv {
            KvType::F32 => 0,
            KvType::F16 => 1,
            KvType::Q8_0 => 2,
            KvType::Q4_0 => 3,
            KvType::Q8_0Q4_0 => 4,
        };
        #[allow(unused_mut)]
        let mut model = self.model.gguf().fingerprint();
        #[cfg(feature = "lora")]
        {
            model ^= self.forward.compute.lora.fingerprint(_slot);
        }
        let full = self.plan.cache_bytes([0, 1].map(|kind| self.plan.store.kept(kind))) + self.plan.picture_bytes();
        Header {
            magic: MAGIC,
            version: VERSION.to_le_bytes(),
            model: model.to_le_bytes(),
            kv_bytes: (full as u64).to_le_bytes(),
            context: (self.plan.options.context as u32).to_le_bytes(),
            kv_type: kv_type.to_le_bytes(),
            position: (position as u32).to_le_bytes(),
            reached: (reached as u32).to_le_bytes(),
            checksum: [0; 8],
        }
    }

    /// Number of positions of a context that a snapshot contains, for the pools of global and local layers. There is
    /// one position per token. Once a ring of pages is full, these are all positions of the ring, because they are then
    /// in any order.
    fn used(&self, position: usize, reached: usize) -> [usize; 2] {
        [0, 1].map(|kind| {
            let kept = self.plan.store.kept(kind);
            if reached > kept { kept } else { position }
        })
    }

    /// Calls `each` with every byte range of the cache that holds the first `used` positions of the context in `slot`.
    /// `used` has a number for each pool of pages.
    fn positions_in_use(&self, slot: usize, used: [usize; 2], mut each: impl FnMut(Range<usize>)) {
        let store = &self.plan.store;
        let mut start = 0;
        let layers = (0..self.model.spec().layers).map(|index| self.model.spec().layer(index));
        #[cfg(feature = "drafts")]
        let layers = layers.chain(self.forward.next.as_ref().map(|next| next.spec.layer(0)));
        for layer in layers {
            let (Some(pool), true) = (self.forward.pools.get(layer.pool()), layer.owns_kv) else {
                continue;
            };
            let head = head_layout(store.kind, &layer);
            let used = used.get(layer.pool()).copied().unwrap_or(0);
            for _ in 0..layer.kv_heads {
                positions(head, start, pool.table(slot), used, &mut each);
                start += store.pages.get(layer.pool()).copied().unwrap_or(0) * head.tile_bytes();
            }
        }
    }

    /// Refuses models with an encoder, because the encoder's states are not saved.
    fn can_be_saved(&self) -> Result<(), Error> {
        match self.forward.source {
            None => Ok(()),
            Some(_) => Err(Error::Unsupported { what: "snapshot of a model with", name: Name::new(b"an encoder") }),
        }
    }
}

/// Calls `each` with every byte range of the cache that holds the first `used` positions of one head. The head's tiles
/// start at byte `start`.
fn positions(head: HeadLayout, start: usize, pages: &[u32], used: usize, each: &mut impl FnMut(Range<usize>)) {
    for (tile, page) in pages.iter().enumerate().take(used.div_ceil(TILE)) {
        let start = start + *page as usize * head.tile_bytes();
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

/// Like [`slice::copy_from_slice`], but copies nothing if the lengths differ, because the core must not contain a
/// panic.
fn copy(to: &mut [u8], from: &[u8]) {
    if to.len() == from.len() {
        to.copy_from_slice(from);
    }
}
