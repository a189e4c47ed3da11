//! Who reads how many tokens in the next pass.
//!
//! A pass is as long as what it reads, and whoever comes meanwhile waits for its end. So long prompts are read in
//! pieces, all of about the same time, and those that are nearest to their next token come first.

use arenite::Model;

/// Tokens of all prompts in a pass: with more of them a token costs hardly less.
const PROMPTS: usize = 64;
/// Tokens of the first piece of a prompt that does not end with it: with fewer, weights are read too often.
const PIECE: usize = 32;
/// Tokens of any such piece: kernels take as many at a time.
const LEAST: usize = 8;

/// What shares depend on for a model.
#[derive(Clone, Copy, Debug)]
pub struct Shares {
    /// Tokens in a pass.
    batch: usize,
    /// The position at which attention takes as long as everything else.
    double: usize,
}

/// What a conversation has to read.
#[derive(Clone, Copy, Debug)]
pub struct Unread {
    /// Tokens; one for who only waits for the next token.
    pub left: usize,
    /// Those that it has read.
    pub position: usize,
}

impl Shares {
    pub fn of(model: &Model<'_>, batch: usize) -> Self {
        // A product of floats, with a conversion, takes about as long as this many of bytes.
        const FLOAT: u64 = 4;
        let spec = model.spec();
        let layers = model.gguf().tensors().filter(|tensor| tensor.name.starts_with("blk.") && tensor.dim_count > 1);
        let weights: u64 = layers.map(|tensor| tensor.dims.iter().product::<u64>()).sum();
        let products = 2 * (spec.layers * spec.heads * spec.global.dim) as u64;
        Self { batch, double: (weights / (FLOAT * products).max(1)).max(1) as usize }
    }

    /// Tokens of a prompt that does not end in the pass.
    fn piece(&self, position: usize) -> usize {
        (PIECE * self.double / (self.double + position)).max(1).next_multiple_of(LEAST)
    }

    /// How many tokens each conversation reads in the next pass; where nothing is left to read, none.
    pub fn of_pass(&self, unread: &[Unread]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..unread.len()).collect();
        order.sort_by_key(|at| unread[*at].left);
        let (mut room, mut for_prompts) = (self.batch, PROMPTS);
        let mut counts = vec![0; unread.len()];
        for at in order {
            let Unread { left, position } = unread[at];
            let piece = self.piece(position);
            let count = match left {
                0 | 1 => left,
                _ if left <= piece => left.min(for_prompts),
                // It gets on by what others leave of the kernels' eights, which keeps them waiting by little.
                _ if for_prompts < PROMPTS => for_prompts.min(LEAST - (self.batch - room) % LEAST),
                _ => piece,
            };
            counts[at] = count.min(room);
            room -= counts[at];
            if left > 1 {
                for_prompts -= counts[at];
            }
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::{Shares, Unread};

    const SHARES: Shares = Shares { batch: 80, double: 1000 };

    fn shares(left: &[usize]) -> Vec<usize> {
        SHARES.of_pass(&left.iter().map(|left| Unread { left: *left, position: 0 }).collect::<Vec<_>>())
    }

    #[test]
    fn short_ones_first_and_whole() {
        assert_eq!(shares(&[2000]), [32]);
        assert_eq!(shares(&[2000, 12]), [4, 12]);
        assert_eq!(shares(&[2000, 12, 1, 0, 30]), [5, 12, 1, 0, 30]);
        assert_eq!(shares(&[2000, 3000]), [32, 8]);
    }

    #[test]
    fn all_prompts_together_are_bounded() {
        assert_eq!(shares(&[30, 30, 30, 30]), [30, 30, 4, 0]);
        let mut left = vec![1; 70];
        left.extend([30, 30]);
        assert_eq!(shares(&left)[70..], [10, 0]);
        assert_eq!(shares(&[1; 100]).iter().sum::<usize>(), 80);
    }

    #[test]
    fn pieces_are_smaller_where_attention_is_dear() {
        let pieces = [0, 500, 1000, 3000, 100_000].map(|position| SHARES.piece(position));
        assert_eq!(pieces, [32, 24, 16, 8, 8]);
    }
}
