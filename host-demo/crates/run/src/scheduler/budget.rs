//! Divides the tokens of a pass among the conversations.
//!
//! A request that arrives during a pass waits for the end of the pass. Long prompts are therefore read in pieces that
//! take about the same time. Each pass reads one piece, and the conversations closest to their next token come first;
//! prompts of similar length are read in the order of their arrival.
//!
//! If only a few tokens of a prompt are unread, as in a conversation that continues, these tokens are now and then read
//! in a pass without other tokens. A pass of one token is several times as fast as a pass of eight tokens or a pass with
//! a piece of a prompt. If a request with such a prompt arrives during the first half of the layers of another pass,
//! that pass is stopped, and runs again after the request's pass.

use arenite::Model;

/// Number of tokens in the first piece of a long prompt. With more tokens, a request that arrives would wait longer.
/// With fewer tokens, each token would cost more, because passes with a piece would be a larger part of the time, and
/// because a request would wait for such a pass more often.
const FIRST: usize = 32;
/// Number of tokens that kernels process together. The length of a piece is a multiple of this number.
const LEAST: usize = 8;
/// Prompts with at most this many unread tokens are read in the order of their arrival. If they too were sorted by
/// length, shorter prompts that keep arriving would delay the longer ones forever. Prompts with more unread tokens are
/// read after them, the shortest first.
const EQUAL: usize = 256;
/// At most one of this many passes may be reserved for prompts of which only a few tokens are unread. If there were
/// more, all other answers would become slower.
const TURN: usize = 2;

/// Decides how many tokens each conversation gets in a pass. Holds the sizes of the model that matter for this, and
/// counts passes.
#[derive(Clone, Copy, Debug)]
pub struct PassBudget {
    /// Maximum number of tokens in a pass.
    batch: usize,
    /// The position at which attention takes as long as the multiplication with the weights.
    double: usize,
    /// Number of passes since the last pass that was reserved for prompts of which only a few tokens are unread.
    shared: usize,
    /// True if the last pass that was for all answers was stopped before its end. Its repetition must not be stopped,
    /// because requests that keep arriving could otherwise stop it forever.
    stopped: bool,
}

/// The remaining tokens of a conversation.
#[derive(Clone, Copy, Debug)]
pub struct Unread {
    /// Number of tokens; 1 while an answer is generated.
    pub left: usize,
    /// Number of tokens already read.
    pub position: usize,
    /// True until the answer has its first token.
    pub is_prompt: bool,
}

impl Unread {
    fn is_short_end(&self) -> bool {
        self.is_prompt && is_short(self.left)
    }
}

/// Returns true if a prompt has so few unread tokens that they may be read in a pass of their own, without other
/// answers.
pub fn is_short(left: usize) -> bool {
    (1..=LEAST).contains(&left)
}

impl PassBudget {
    pub fn of(model: &Model<'_>, batch: usize) -> Self {
        // Duration of a product of two floats, including the conversion of F16, in units of a product of two bytes.
        const FLOAT: u64 = 4;
        let spec = model.spec();
        let layers = model.gguf().tensors().filter(|tensor| tensor.name.starts_with("blk.") && tensor.dim_count > 1);
        let weights: u64 = layers.map(|tensor| tensor.dims.iter().product::<u64>()).sum();
        let products = 2 * (0..spec.layers).map(|index| spec.layer(index).q_dim()).sum::<usize>() as u64;
        Self { batch, double: (weights / (FLOAT * products).max(1)).max(1) as usize, shared: TURN, stopped: false }
    }

    /// Returns the number of tokens in a piece of a prompt at this position, if the prompt does not end in the pass. At
    /// position 0, this is [`FIRST`].
    fn piece(&self, position: usize) -> usize {
        (FIRST * self.double / (self.double + position)).max(1).next_multiple_of(LEAST)
    }

    /// Returns true if the current pass may be stopped in favour of a prompt of which only a few tokens are unread.
    /// This is so if the next pass must be the one that is reserved for such prompts.
    pub fn may_stop(&self) -> bool {
        self.shared >= TURN - 1 && !self.stopped
    }

    /// Notes how the current pass ended.
    pub fn end_pass(&mut self, is_stopped: bool) {
        if self.shared > 0 {
            self.stopped = is_stopped;
        }
    }

    /// Returns the number of tokens that each conversation reads in the next pass.
    pub fn of_pass(&mut self, unread: &[Unread]) -> Vec<usize> {
        let has_turn = self.shared >= TURN - 1 && unread.iter().any(Unread::is_short_end);
        self.shared = if has_turn { 0 } else { self.shared + 1 };
        let mut order: Vec<usize> = (0..unread.len()).filter(|at| !has_turn || unread[*at].is_short_end()).collect();
        order.sort_by_key(|at| match unread[*at].left {
            left @ 0..=LEAST => left,
            left => left.max(EQUAL),
        });
        let most = FIRST + 2 * LEAST;
        let (mut room, mut for_prompts) = (self.batch, most);
        let mut counts = vec![0; unread.len()];
        for at in order {
            let Unread { left, position, .. } = unread[at];
            let piece = self.piece(position);
            let count = match left {
                0 | 1 => left,
                _ if left <= piece => left.min(for_prompts),
                // The last free places of a pass get tokens of a long prompt until the number of tokens is a multiple
                // of eight, because the kernels process whole groups of eight tokens in any case.
                _ if for_prompts < most => for_prompts.min(LEAST - (self.batch - room) % LEAST),
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
    use super::{PassBudget, Unread};

    const BUDGET: PassBudget = PassBudget { batch: 80, double: 1000, shared: 0, stopped: false };

    fn prompts(left: &[usize]) -> Vec<Unread> {
        left.iter().map(|left| Unread { left: *left, position: 0, is_prompt: *left != 1 }).collect()
    }

    fn counts(left: &[usize]) -> Vec<usize> {
        { BUDGET }.of_pass(&prompts(left))
    }

    #[test]
    fn short_ends_of_prompts_have_one_pass_of_two() {
        let mut budget = BUDGET;
        let unread = prompts(&[2000, 1, 8, 9, 3]);
        let passes: Vec<_> = (0..6).map(|_| budget.of_pass(&unread)).collect();
        for (at, pass) in passes.iter().enumerate() {
            let expected = if at % 2 == 1 { [0, 0, 8, 0, 3] } else { [3, 1, 8, 9, 3] };
            assert_eq!(pass[..], expected, "pass {at}");
        }
        // The turn is not lost while there is no such prompt.
        let mut budget = BUDGET;
        (0..20).for_each(|_| assert_eq!(budget.of_pass(&prompts(&[1, 30])), [1, 30]));
        assert_eq!(budget.of_pass(&prompts(&[1, 30, 2])), [0, 0, 2]);
    }

    #[test]
    fn a_pass_is_stopped_once_at_most() {
        let mut budget = BUDGET;
        let all = prompts(&[1, 30]);
        budget.of_pass(&all);
        assert!(budget.may_stop());
        budget.end_pass(true);
        // The turn of the rest for which the pass was stopped.
        assert_eq!(budget.of_pass(&prompts(&[1, 30, 2])), [0, 0, 2]);
        assert!(!budget.may_stop());
        budget.end_pass(false);
        // Runs the stopped pass again. Only after it has ended may the next pass be stopped.
        assert_eq!((budget.of_pass(&all), budget.may_stop()), (vec![1, 30], false));
        budget.end_pass(false);
        assert_eq!((budget.of_pass(&all), budget.may_stop()), (vec![1, 30], true));
    }

    #[test]
    fn short_ones_first_and_whole() {
        assert_eq!(counts(&[2000]), [32]);
        assert_eq!(counts(&[2000, 12]), [4, 12]);
        assert_eq!(counts(&[2000, 0]), [32, 0]);
        assert_eq!(counts(&[2000, 12, 1, 0, 30]), [5, 12, 1, 0, 30]);
        assert_eq!(counts(&[2000, 3000]), [32, 8]);
    }

    #[test]
    fn prompts_of_similar_length_are_read_in_turn() {
        assert_eq!(counts(&[200, 60]), [32, 8]);
        assert_eq!(counts(&[60, 200]), [32, 8]);
        assert_eq!(counts(&[200, 20, 8]), [8, 20, 8]);
        assert_eq!(counts(&[2000, 300, 60]), [8, 8, 32]);
    }

    #[test]
    fn all_prompts_together_are_bounded() {
        assert_eq!(counts(&[30, 30, 30, 30]), [30, 18, 0, 0]);
        let mut left = vec![1; 70];
        left.extend([30, 30]);
        assert_eq!(counts(&left)[70..], [10, 0]);
        assert_eq!(counts(&[1; 100]).iter().sum::<usize>(), 80);
    }

    #[test]
    fn pieces_are_smaller_where_attention_is_dear() {
        let pieces = [0, 500, 1000, 3000, 100_000].map(|position| BUDGET.piece(position));
        assert_eq!(pieces, [32, 24, 16, 8, 8]);
    }
}
