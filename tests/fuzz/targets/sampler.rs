//! For any parameters, biases and logits, the sampler returns an allowed token of the vocabulary, whatever the
//! scratch memory held.
#![no_main]

use arbitrary::Arbitrary;
use arenite::Error;
use arenite::sampler::{Breaker, Breakers, Link, Mirostat, More, Params, Pcg32, Sampler};
use arenite::speculation::lookup;
use fuzz::change::Real;
use fuzz::list::List;
use fuzz::unwritten::unwritten;
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
enum Case {
    Sample(Sample),
    Lookup(List<u8, 60>, u8),
}

#[derive(Arbitrary, Debug)]
struct Sample {
    reals: [Real; 7],
    further: [Real; 11],
    counts: [u8; 4],
    breakers: List<(u8, u8, u8), 4>,
    top_k: u32,
    few: bool,
    repeat_last_n: u8,
    order: [u8; Link::ALL.len()],
    bias: List<(u8, Real), 6>,
    logits: List<Real, 80>,
    history: List<u8, 20>,
    allowed: u64,
    seed: u64,
}

impl Sample {
    fn params(&self) -> Params {
        let [temperature, top_p, min_p, typical_p, repeat, frequency, presence] = self.reals.map(Real::get);
        let link = |number: u8| Link::ALL.get(usize::from(number) % (Link::ALL.len() + 1)).copied();
        Params {
            temperature,
            top_k: if self.few { self.top_k % 64 } else { self.top_k },
            top_p,
            min_p,
            typical_p,
            order: self.order.map(link),
            repeat_penalty: repeat,
            frequency_penalty: frequency,
            presence_penalty: presence,
            repeat_last_n: self.repeat_last_n.into(),
            more: self.more(),
        }
    }

    fn more(&self) -> More {
        let [multiplier, base, sigmas, probability, threshold, range, exponent, tau, eta, target, decay] =
            self.further.map(Real::get);
        let [min_keep, allowed, last_n, version] = self.counts;
        More {
            min_keep: min_keep.into(),
            dry_multiplier: multiplier,
            dry_base: base,
            dry_allowed_length: u32::from(allowed % 8),
            dry_last_n: last_n.into(),
            top_n_sigma: sigmas,
            xtc_probability: probability,
            xtc_threshold: threshold,
            dynatemp_range: range,
            dynatemp_exponent: exponent,
            mirostat: [Mirostat::Off, Mirostat::V1, Mirostat::V2][usize::from(version % 3)],
            mirostat_tau: tau,
            mirostat_eta: eta,
            adaptive_target: target,
            adaptive_decay: decay,
        }
    }

    fn run(&self) {
        let (params, logits) = (self.params(), self.logits.iter().map(|logit| logit.get()).collect::<Vec<_>>());
        let bias: Vec<_> = self.bias.iter().map(|(token, bias)| (u32::from(*token), bias.get())).collect();
        let mut heads: Vec<_> = self
            .breakers
            .iter()
            .map(|(head, start, len)| (u32::from(*head), u32::from(*start % 4), u32::from(*len)))
            .map(|(head, start, len)| Breaker { head, start, len: len % (4 - start) })
            .collect();
        heads.sort();
        let allows = |token: u32| self.allowed >> (token % 64) & 1 == 1;
        let draw = |fill: u8| -> Result<_, Error> {
            let mut scratch = vec![fill; Sampler::scratch_bytes(&params, logits.len())];
            let sampler = Sampler::new(params, &bias, logits.len(), unwritten(&mut scratch))?;
            let mut sampler = sampler.with_breakers(Breakers::new(&heads, &[1, 2, 3]).expect("sorted heads"));
            self.history.iter().for_each(|token| sampler.accept((*token).into()));
            let mut rng = Pcg32::new(self.seed);
            let mut all = vec![];
            for _ in 0..3 {
                all.push(sampler.sample(&mut logits.clone(), &mut rng)?);
                if let Ok(token) = sampler.sample_where(&mut logits.clone(), &mut rng, allows) {
                    assert!(allows(token), "a token that is not allowed");
                    all.push(token);
                }
            }
            Ok(all)
        };
        let want = draw(0);
        if let Ok(tokens) = &want {
            assert!(tokens.iter().all(|token| (*token as usize) < logits.len()));
        }
        assert_eq!(draw(0xff), want);
    }
}

fuzz_target!(|case: Case| match case {
    Case::Sample(sample) => sample.run(),
    Case::Lookup(text, most) => {
        let text: Vec<_> = text.iter().map(|token| u32::from(*token % 8)).collect();
        assert!(lookup(&text, most.into()).len() <= usize::from(most));
    }
});
