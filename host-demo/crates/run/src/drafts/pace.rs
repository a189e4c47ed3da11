//! Chooses the length of drafts from the share of proposed tokens that were accepted. No clock is used, so that the
//! same request always has the same counts.
//!
//! The rule: `p` estimates the probability that a proposed token is right if all proposed tokens before it are right.
//! `p` begins at [`START`]; every proposed token that was compared moves `p` by an eighth of the distance to 1 or 0. A
//! draft of `n` tokens yields `1 + p + ... + p^n` tokens, and costs a pass plus `n` times the cost of proposing and
//! verifying a token ([`ROW`]). The chosen length has the most tokens per cost. If this length is 0, a single token is
//! proposed after some passes: in the next pass if the last proposal was right, otherwise after twice as many passes as
//! before, from [`WAIT`] to [`MOST_WAIT`].

/// The first estimate.
const START: f64 = 0.75;
/// Weight of a token in the estimate.
const WEIGHT: f64 = 0.125;
/// Cost of verifying a token, relative to a pass of one token.
const ROW: f64 = 0.1;
/// Passes without a draft, after a refused one.
const WAIT: u32 = 16;
const MOST_WAIT: u32 = 256;

/// The pace of one conversation.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    accepted: f64,
    /// If drafts are right too rarely, they are made only now and then: `passed` is the number of passes since the last
    /// draft, and `wait` is the number of passes after which the next draft is tried.
    passed: u32,
    wait: u32,
}

impl Default for Pace {
    fn default() -> Self {
        Self { accepted: START, passed: 0, wait: 1 }
    }
}

impl Pace {
    /// Returns the length of the next draft, at most `most` tokens. `cost` is the cost of proposing a token, relative
    /// to a pass.
    pub fn length(&mut self, most: usize, cost: f64) -> usize {
        let (mut best, mut best_rate) = (0, 1.0);
        let (mut tokens, mut power) = (1.0, 1.0);
        for n in 1..=most {
            power *= self.accepted;
            tokens += power;
            let rate = tokens / (1.0 + n as f64 * (ROW + cost));
            if rate > best_rate {
                (best, best_rate) = (n, rate);
            }
        }
        if best > 0 || most == 0 {
            return best;
        }
        self.passed += 1;
        if self.passed < self.wait {
            return 0;
        }
        self.passed = 0;
        1
    }

    /// Notes how a draft ended. Its first `right` tokens were accepted. `is_refused` is true if the token after them
    /// was refused.
    pub fn add(&mut self, right: usize, is_refused: bool) {
        for _ in 0..right {
            self.accepted += WEIGHT * (1.0 - self.accepted);
            self.wait = 1;
        }
        if is_refused {
            self.wait = (2 * self.wait).clamp(WAIT, MOST_WAIT);
            self.accepted -= WEIGHT * self.accepted;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drafts_that_are_refused_become_rare() {
        let (mut pace, mut tokens, passes) = (Pace::default(), 0, 1000);
        for _ in 0..passes {
            let n = pace.length(8, 0.0);
            tokens += n;
            pace.add(0, n > 0);
        }
        // After many refused drafts, only one of 256 passes has a draft, of one token, so that few proposed tokens are
        // wasted.
        assert!(tokens < 100, "{tokens}");
        assert_eq!(pace.length(8, 0.0), 0);
    }

    #[test]
    fn drafts_that_are_accepted_become_long() {
        let mut pace = Pace::default();
        for _ in 0..30 {
            let n = pace.length(8, 0.05);
            assert!(n > 0);
            pace.add(n, false);
        }
        assert_eq!((pace.length(8, 0.05), pace.length(3, 0.05), pace.length(0, 0.05)), (8, 3, 0));
    }

    #[test]
    fn a_draft_that_costs_as_much_as_a_pass_is_left_out() {
        let mut pace = Pace::default();
        assert_eq!(pace.length(4, 1.0), 1); // the first guess shows whether it is right
        pace.add(0, true);
        assert!((1..16).all(|_| pace.length(4, 1.0) == 0));
        // After many accepted tokens, a draft is made even if it costs nearly as much as a pass.
        (0..40).for_each(|_| pace.add(1, false));
        assert_eq!(pace.length(4, 0.8), 4);
    }
}
