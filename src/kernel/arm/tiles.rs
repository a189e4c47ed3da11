//! Where the keys and values of a head are in memory.

use crate::kernel::attention::Attention;

/// Where the tiles are in the memory of a head. They are at the same places in all heads.
pub(super) struct Tiles<'a> {
    pages: &'a [u32],
    /// `head` is the number of bytes of a KV head's tiles, `bytes` the number of bytes of a tile, and `last` the index
    /// of a head's last tile.
    pub head: usize,
    bytes: usize,
    last: usize,
    /// Floats from a tile's start to its values.
    pub values: usize,
}

impl<'a> Tiles<'a> {
    /// `None` if the cache has no tiles.
    pub fn new(job: &Attention<'a>) -> Option<Self> {
        let (bytes, head) = (job.layout.tile_bytes(), job.tiles.len().checked_div(job.heads)?);
        let last = head.checked_div(bytes)?.checked_sub(1)?;
        let is_empty = job.pages.is_empty();
        (!is_empty).then_some(Self { pages: job.pages, head, bytes, last, values: job.layout.values() / 4 })
    }

    /// Distance in bytes from the start of a head to a tile. The tile is inside the head, whatever the page table
    /// contains.
    #[inline(always)]
    pub fn at(&self, tile: usize) -> usize {
        let entry = tile.checked_rem(self.pages.len()).and_then(|entry| self.pages.get(entry));
        let page = entry.map_or(0, |page| *page as usize).min(self.last);
        page * self.bytes
    }
}
