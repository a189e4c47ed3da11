//! A model in pieces, some of them changed, is refused or gives the same logits in any memory. Without changes it has the
//! tensors of the whole model.
#![no_main]

use arbitrary::Arbitrary;
use arenite::{Gguf, Model};
use fuzz::change::{Changes, builder, model};
use fuzz::gguf::Builder;
use fuzz::list::List;
use fuzz::same::{self, Run};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Case {
    family: u8,
    /// Positions in the list of tensors, in units of 1/256 of its length, where the model is cut.
    cuts: List<u8, 5>,
    /// Changes to pieces, chosen by number.
    changes: List<(u8, Changes), 2>,
    /// Two pieces to exchange.
    swapped: Option<(u8, u8)>,
    run: Run,
}

fuzz_target!(|case: Case| {
    let whole = builder(case.family.into());
    let mut starts: Vec<usize> =
        [0].into_iter().chain(case.cuts.iter().map(|at| usize::from(*at) * (whole.tensors.len() + 1) >> 8)).collect();
    starts.sort_unstable();
    let ends = starts[1..].iter().copied().chain([whole.tensors.len()]);
    let pieces = starts.iter().zip(ends).enumerate().map(|(number, (start, end))| {
        let mut piece = if number == 0 { whole.clone() } else { Builder::new() };
        piece.set("split.no", number as u16).set("split.count", starts.len() as u16);
        piece.set("split.tensors.count", whole.tensors.len() as i32);
        piece.tensors = whole.tensors[*start..end].to_vec();
        case.changes
            .iter()
            .find(|(at, _)| usize::from(*at) % starts.len() == number)
            .map_or_else(|| piece.build(), |(_, changes)| changes.build(piece.clone()))
    });
    let mut pieces: Vec<Vec<u8>> = pieces.collect();
    if let Some((a, b)) = case.swapped {
        let count = pieces.len();
        pieces.swap(usize::from(a) % count, usize::from(b) % count);
    }
    let slices: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
    let gguf = match Gguf::parse_split(&slices) {
        Ok(gguf) => gguf,
        Err(error) => {
            assert!(!case.changes.is_empty() || case.swapped.is_some(), "correct pieces: {error}");
            return;
        }
    };
    if case.changes.is_empty() && case.swapped.is_none() {
        let file = Gguf::parse(model(case.family.into())).expect("a correct file");
        assert_eq!(gguf.tensor_count(), file.tensor_count());
        for (ours, theirs) in gguf.tensors().zip(file.tensors()) {
            assert!((ours.name, ours.dims, ours.data) == (theirs.name, theirs.dims, theirs.data), "another tensor");
        }
    }
    for tensor in gguf.tensors().take(200) {
        let found = gguf.tensor(tensor.name).map(|found| (found.offset, found.data.len()));
        assert_eq!(found, (!tensor.data.is_empty()).then_some((tensor.offset, tensor.data.len())));
    }
    let Ok(model) = Model::new(&gguf) else { return };
    if let Some(plan) = case.run.plan(&gguf) {
        same::check(&model, plan, &case.run);
    }
});
