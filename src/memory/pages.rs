//! Pages of the KV cache: tracks free pages, and maps each tile of a context to its page.
//!
//! A pool has the planned number of pages, each of [`TILE`](super::TILE) positions. A context has a row of the pool's
//! table, with the page of each of the context's tiles. A row shorter than the context (for a sliding window) is used
//! as a ring. Contexts share a page until one of them writes to it; that context then gets a copy.
//!
//! Writes are prepared in two steps, so that a run for which pages are missing changes nothing. For all contexts of the
//! run, [`claim`](Pool::claim) marks the entries that need a page and counts these entries. Then
//! [`provide`](Pool::provide) allocates the pages, or [`unclaim`](Pool::unclaim) removes the marks.

/// Table entry without a page.
const NONE: u32 = u32::MAX;
/// Table entry that needs a new page.
const NEW: u32 = u32::MAX - 1;
/// A flag in an entry of a page table. It means that the context shares the page, and needs a copy of it before it
/// writes.
const COPY: u32 = 1 << 31;

/// Maximum number of pages in a pool, so that a page number never has the bit [`COPY`].
pub(crate) const MAX_PAGES: usize = 1 << 30;

/// The pages of one pool, such as those for layers with a sliding window, and the page tables of all contexts.
#[derive(Default)]
pub(crate) struct Pool<'w> {
    /// Reference count of each page; for a free page, the index of the next free page.
    pages: &'w mut [u32],
    /// `[contexts][width]`.
    tables: &'w mut [u32],
    /// Table entries per context.
    width: usize,
    /// The first free page.
    first: u32,
    /// Number of free pages.
    free: usize,
}

impl<'w> Pool<'w> {
    /// Creates a pool with all pages free and all tables empty.
    pub fn new(pages: &'w mut [u32], tables: &'w mut [u32], width: usize) -> Self {
        for (next, page) in (1..).zip(pages.iter_mut()) {
            *page = next;
        }
        tables.fill(NONE);
        Self { free: pages.len(), pages, tables, width, first: 0 }
    }

    /// Number of free pages.
    pub fn free(&self) -> usize {
        self.free
    }

    /// Page table of a context, one entry per tile.
    pub fn table(&self, context: usize) -> &[u32] {
        self.tables.get(context * self.width..(context + 1) * self.width).unwrap_or(&[])
    }

    fn table_mut(&mut self, context: usize) -> (&mut [u32], &mut [u32]) {
        let table = self.tables.get_mut(context * self.width..(context + 1) * self.width);
        (table.unwrap_or_default(), self.pages)
    }

    /// Number of a context's pages that are not shared.
    pub fn owned(&self, context: usize) -> usize {
        let is_owned = |page: &&u32| self.pages.get(**page as usize).is_some_and(|references| *references == 1);
        self.table(context).iter().filter(is_owned).count()
    }

    /// Marks the entries of a context's page table that need a page of their own before tiles `first..=last` are
    /// written. Returns the number of pages that are needed.
    pub fn claim(&mut self, context: usize, first: usize, last: usize) -> usize {
        let width = self.width;
        let (table, pages) = self.table_mut(context);
        let mut needed = 0;
        for tile in first..(last + 1).min(first + width) {
            let Some(entry) = table.get_mut(tile.checked_rem(width).unwrap_or(0)) else { break };
            if *entry == NONE {
                *entry = NEW;
                needed += 1;
            } else if let Some(references) = pages.get_mut(*entry as usize).filter(|references| **references > 1) {
                *references -= 1;
                *entry |= COPY;
                needed += 1;
            }
        }
        needed
    }

    /// Removes the marks of [`claim`](Self::claim).
    pub fn unclaim(&mut self, context: usize) {
        let (table, pages) = self.table_mut(context);
        for entry in table {
            match *entry {
                NONE => {}
                NEW => *entry = NONE,
                page if page & COPY != 0 => {
                    *entry = page & !COPY;
                    if let Some(references) = pages.get_mut(*entry as usize) {
                        *references += 1;
                    }
                }
                _ => {}
            }
        }
    }

    /// Allocates the pages that a context has claimed in its table. For each page that is to be copied, calls `copy`
    /// with the source page and the destination page.
    pub fn provide(&mut self, context: usize, mut copy: impl FnMut(usize, usize)) {
        let (mut first, mut free) = (self.first, self.free);
        let (table, pages) = self.table_mut(context);
        for entry in table.iter_mut().filter(|entry| **entry & COPY != 0 && **entry != NONE) {
            let Some(page) = pages.get_mut(first as usize) else { break };
            let from = (*entry != NEW).then_some(*entry & !COPY);
            let taken = first;
            (first, *page, *entry) = (*page, 1, taken);
            free -= 1;
            if let Some(from) = from {
                copy(from as usize, taken as usize);
            }
        }
        (self.first, self.free) = (first, free);
    }

    /// Releases a context's pages from entry `first` on.
    pub fn release(&mut self, context: usize, first: usize) {
        let (mut next, mut free) = (self.first, self.free);
        let (table, pages) = self.table_mut(context);
        // Releases the pages in reverse, so that later allocations take them in ascending order.
        for entry in table.iter_mut().skip(first).rev() {
            let page = core::mem::replace(entry, NONE);
            let Some(references) = pages.get_mut(page as usize) else { continue };
            if *references > 1 {
                *references -= 1;
            } else {
                *references = next;
                next = page;
                free += 1;
            }
        }
        (self.first, self.free) = (next, free);
    }

    /// Makes table entry `to` share the page of entry `from`, and releases the previous page of `to`. An entry is given
    /// as a context and an index.
    pub fn name(&mut self, from: (usize, usize), to: (usize, usize)) {
        let place = |(context, entry): (usize, usize)| context * self.width + entry.min(self.width);
        let (from, to) = (place(from), place(to));
        let Some(&page) = self.tables.get(from).filter(|_| from != to) else { return };
        let Some(entry) = self.tables.get_mut(to) else { return };
        let before = core::mem::replace(entry, page);
        if let Some(references) = self.pages.get_mut(page as usize) {
            *references += 1;
        }
        if let Some(references) = self.pages.get_mut(before as usize) {
            if *references > 1 {
                *references -= 1;
            } else {
                *references = self.first;
                (self.first, self.free) = (before, self.free + 1);
            }
        }
    }

    /// Lets the context `to`, which has no pages yet, share the first `tiles` pages of the context `from`.
    pub fn share(&mut self, from: usize, to: usize, tiles: usize) {
        let width = self.width;
        for tile in 0..width.min(tiles) {
            let Some(&page) = self.tables.get(from * width + tile) else { return };
            let (Some(references), Some(entry)) =
                (self.pages.get_mut(page as usize), self.tables.get_mut(to * width + tile))
            else {
                continue;
            };
            *references += 1;
            *entry = page;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_taken_shared_copied_and_given_back() {
        let (mut pages, mut tables) = ([0; 5], [0; 6]);
        let mut pool = Pool::new(&mut pages, &mut tables, 3);
        assert_eq!(pool.claim(0, 0, 2), 3);
        pool.provide(0, |_, _| panic!("there is nothing to copy"));
        assert_eq!((pool.table(0), pool.table(1), pool.free()), (&[0, 1, 2][..], &[NONE; 3][..], 2));
        pool.share(0, 1, 2);
        assert_eq!((pool.table(1), pool.free()), (&[0, 1, NONE][..], 2));
        // Both contexts write to their second tile, which they share. Only one of them needs a copy, because the other
        // keeps the page.
        assert_eq!((pool.claim(0, 1, 1), pool.claim(1, 1, 1)), (1, 0));
        pool.unclaim(0);
        assert_eq!(pool.claim(1, 1, 2), 2);
        assert_eq!(pool.table(0), [0, 1, 2]);
        let mut copied = None;
        pool.provide(1, |from, to| copied = Some((from, to)));
        assert_eq!((pool.table(1), pool.free(), copied), (&[0, 3, 4][..], 0, Some((1, 3))));
        pool.release(0, 0);
        assert_eq!(pool.free(), 2); // the first tile's page has another reference
        pool.release(1, 1);
        assert_eq!((pool.table(1), pool.free()), (&[0, NONE, NONE][..], 4));
        pool.release(1, 0);
        assert_eq!(pool.free(), 5);
        assert_eq!((pool.claim(1, 0, 0), pool.free()), (1, 5));
    }

    #[test]
    fn entries_share_pages() {
        let (mut pages, mut tables) = ([0; 3], [0; 4]);
        let mut pool = Pool::new(&mut pages, &mut tables, 2);
        pool.claim(0, 0, 0);
        pool.provide(0, |_, _| ());
        pool.name((0, 0), (0, 1)); // save
        assert_eq!((pool.table(0), pool.free()), (&[0, 0][..], 2));
        pool.claim(0, 0, 0); // write
        pool.provide(0, |from, to| assert_eq!((from, to), (0, 1)));
        assert_eq!((pool.table(0), pool.free()), (&[1, 0][..], 1));
        pool.name((0, 1), (0, 0)); // restore
        assert_eq!((pool.table(0), pool.free()), (&[0, 0][..], 2));
        pool.name((0, 0), (1, 0)); // share with another context
        pool.release(0, 0);
        assert_eq!((pool.table(1), pool.free()), (&[0, NONE][..], 2));
        pool.release(1, 0);
        assert_eq!(pool.free(), 3);
    }

    #[test]
    fn claims_are_taken_back() {
        let (mut pages, mut tables) = ([0; 4], [0; 6]);
        let mut pool = Pool::new(&mut pages, &mut tables, 3);
        pool.claim(0, 0, 0);
        pool.provide(0, |_, _| ());
        assert_eq!([pool.owned(0), pool.owned(1)], [1, 0]);
        pool.share(0, 1, 1);
        assert_eq!([pool.owned(0), pool.owned(1)], [0, 0]);
        // The claim marks the first entry for a copy and the second entry for a new page. It does not mark the third
        // entry.
        assert_eq!(pool.claim(0, 0, 1), 2);
        pool.unclaim(0);
        assert_eq!((pool.table(0), pool.table(1), pool.owned(1)), (&[0, NONE, NONE][..], &[0, NONE, NONE][..], 0));
        assert_eq!(pool.claim(0, 0, 1), 2);
        pool.provide(0, |from, to| assert_eq!((from, to), (0, 1)));
        assert_eq!((pool.table(0), pool.owned(0), pool.owned(1)), (&[1, 2, NONE][..], 2, 1));
    }

    #[test]
    fn an_entry_leaves_a_page_that_others_have() {
        let (mut pages, mut tables) = ([0; 3], [0; 4]);
        let mut pool = Pool::new(&mut pages, &mut tables, 2);
        pool.claim(0, 0, 1);
        pool.provide(0, |_, _| ());
        pool.share(0, 1, 1);
        pool.name((0, 1), (0, 0));
        assert_eq!((pool.table(0), pool.free()), (&[1, 1][..], 1));
        // Page 1 now belongs only to context 1, and becomes free when context 1 releases it.
        assert_eq!(pool.owned(1), 1);
        pool.release(1, 0);
        assert_eq!(pool.free(), 2);
    }

    #[test]
    fn a_short_table_is_a_ring() {
        let (mut pages, mut tables) = ([0; 4], [0; 4]);
        let mut pool = Pool::new(&mut pages, &mut tables, 2);
        assert_eq!(pool.claim(1, 3, 3), 1);
        pool.provide(1, |_, _| ());
        assert_eq!(pool.table(1), [NONE, 0]);
        assert_eq!(pool.claim(1, 5, 9), 1);
        pool.provide(1, |_, _| ());
        assert_eq!(pool.table(1), [1, 0]);
        pool.share(1, 0, 2);
        assert_eq!(pool.claim(1, 7, 8), 2);
        pool.provide(1, |from, to| assert!((from, to) == (0, 3) || (from, to) == (1, 2)));
        assert_eq!((pool.table(0), pool.free()), (&[1, 0][..], 0));
    }
}
