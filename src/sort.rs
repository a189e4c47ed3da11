//! Sorting in place without recursion, allocation or panics: bottom-up heapsort.

/// Sorts `items`. `less` must be a strict order. With any other function the result is an arbitrary permutation.
///
/// Makes about `n log2 n` comparisons in the worst case, because an item first moves down to a leaf and then usually
/// moves up only a short way. Moving down takes one comparison per level, between the two children of the item.
pub(crate) fn heapsort<T>(items: &mut [T], mut less: impl FnMut(&T, &T) -> bool) {
    let len = items.len();
    for root in (0..len / 2).rev() {
        sink(items, root, len, &mut less);
    }
    for end in (1..len).rev() {
        swap(items, 0, end);
        sink(items, 0, end, &mut less);
    }
}

/// Swaps items `a` and `b`, where `a < b`. (Copies are not used, because a copy between slices that might overlap calls
/// memmove, which takes 700 bytes of flash.)
fn swap<T>(items: &mut [T], a: usize, b: usize) {
    if let Some((before, from)) = items.split_at_mut_checked(b)
        && let (Some(a), Some(b)) = (before.get_mut(a), from.first_mut())
    {
        core::mem::swap(a, b);
    }
}

/// Moves the item at `root` down to its position in the max-heap `items[..len]`.
pub(crate) fn sink<T>(items: &mut [T], root: usize, len: usize, less: &mut impl FnMut(&T, &T) -> bool) {
    // Moves the item down to a leaf. At each level, the larger child moves up.
    let mut at = root;
    loop {
        let child = 2 * at + 1;
        if child >= len {
            break;
        }
        let child = match (items.get(child), items.get(child + 1)) {
            (Some(left), Some(right)) if child + 1 < len && less(left, right) => child + 1,
            _ => child,
        };
        swap(items, at, child);
        at = child;
    }
    // Moves the item back up to its position.
    while at > root {
        let parent = (at - 1) / 2;
        match (items.get(parent), items.get(at)) {
            (Some(above), Some(item)) if less(above, item) => swap(items, parent, at),
            _ => break,
        }
        at = parent;
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;

    #[test]
    fn sorts_everything() {
        let mut seed = 1u32;
        for len in 0..200 {
            for range in [1, 3, 1000] {
                let mut items: Vec<u32> = (0..len)
                    .map(|_| {
                        seed = seed.wrapping_mul(1664525).wrapping_add(1013904223);
                        (seed >> 8) % range
                    })
                    .collect();
                let mut expected = items.clone();
                expected.sort();
                heapsort(&mut items, |a, b| a < b);
                assert_eq!(items, expected);
            }
        }
    }
}
