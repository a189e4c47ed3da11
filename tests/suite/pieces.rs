//! Models in several slices: the same tensors and the same bits as in one, and errors that name the piece.

use crate::common::encoders::{ENCODERS, encoder};
use crate::common::families::{DECODERS, decoder};
use crate::common::gguf::Builder;
use crate::common::run::Run;
use crate::common::variants::{FAMILIES, tiny};
use arenite::{Error, Gguf, Model, Options, Plan};

/// The model cut before the tensors with these indices, as `llama-gguf-split` cuts it: the keys are in the first piece.
pub fn cut(whole: &Builder, before: &[usize]) -> Vec<Vec<u8>> {
    let starts: Vec<usize> = std::iter::once(0).chain(before.iter().copied()).collect();
    let ends = before.iter().copied().chain([whole.tensors.len()]);
    let piece = |(number, (start, end)): (usize, (&usize, usize))| {
        let mut piece = if number == 0 { whole.clone() } else { Builder::new() };
        piece.set("split.no", number as u16).set("split.count", starts.len() as u16);
        piece.set("split.tensors.count", whole.tensors.len() as i32);
        piece.tensors = whole.tensors[*start..end].to_vec();
        piece.build()
    };
    starts.iter().zip(ends).enumerate().map(piece).collect()
}

pub fn slices(pieces: &[Vec<u8>]) -> Vec<&[u8]> {
    pieces.iter().map(Vec::as_slice).collect()
}

/// Six positions at which `tensors` tensors are cut into pieces. Two positions are equal, so a piece has no tensors.
fn six(tensors: usize, seed: usize) -> Vec<usize> {
    let mut cuts: Vec<usize> = (0..5).map(|i| (seed * 7 + i * i * 5 + i) % (tensors + 1)).collect();
    cuts.push(cuts[0]);
    cuts.sort_unstable();
    cuts
}

fn ids() -> Vec<u32> {
    (0..19).map(|i| (i * i * 31 + 17 * i + 1) % 288).collect()
}

/// The bits of the logits of every token.
fn bits(mut run: Run<'_>) -> Vec<u32> {
    run.all(&ids()).iter().flatten().map(|x| x.to_bits()).collect()
}

#[test]
fn pieces_have_the_tensors_of_the_whole() {
    for name in DECODERS {
        let model = decoder(name);
        let file = model.build();
        let whole = Gguf::parse(&file).unwrap();
        for cuts in [vec![], vec![3], six(model.tensors.len(), 1)] {
            let pieces = cut(&model, &cuts);
            let slices = slices(&pieces);
            let gguf = Gguf::parse_split(&slices).unwrap();
            assert_eq!(gguf.tensor_count(), whole.tensor_count());
            assert!(gguf.tensors().count() == model.tensors.len() && gguf.tensor("none").is_none());
            for (ours, theirs) in gguf.tensors().zip(whole.tensors()) {
                let described = |tensor: &arenite::gguf::Tensor<'_>| (tensor.dims, tensor.dim_count, tensor.kind);
                assert_eq!((ours.name, described(&ours), ours.data), (theirs.name, described(&theirs), theirs.data));
                let found = gguf.tensor(theirs.name).unwrap();
                assert!(std::ptr::eq(found.data, ours.data) && found.offset == ours.offset);
            }
        }
    }
}

#[test]
fn pieces_give_the_same_bits() {
    let context = |options: &mut Options| *options = Options::new().context(32).batch(8);
    for name in FAMILIES {
        let model = tiny(name);
        let file = model.build();
        let expected = bits(Run::new(&file, context));
        let count = model.tensors.len();
        let twice = (0..=count).map(|at| vec![at]);
        for cuts in twice.chain([vec![]]).chain((0..3).map(|seed| six(count, seed))) {
            let pieces = cut(&model, &cuts);
            let slices = slices(&pieces);
            let gguf = Gguf::parse_split(&slices).unwrap();
            assert!(bits(Run::of(&gguf, context)) == expected, "{name} cut at {cuts:?}");
        }
    }
}

#[test]
fn pieces_of_every_family_open() {
    let decoders = DECODERS.iter().map(|name| decoder(name));
    for model in decoders.chain(ENCODERS.iter().map(|name| encoder(name))) {
        let file = model.build();
        let whole = Gguf::parse(&file).unwrap();
        let pieces = cut(&model, &six(model.tensors.len(), 2));
        let slices = slices(&pieces);
        let gguf = Gguf::parse_split(&slices).unwrap();
        Model::new(&gguf).unwrap();
        let plan = |gguf| Plan::new(gguf, Options::new().context(64)).map(|plan| (plan.workspace, plan.kv));
        assert_eq!(plan(&gguf), plan(&whole));
    }
}

#[test]
fn pieces_that_are_missing_or_wrong_are_named() {
    let model = tiny("llama");
    let pieces = cut(&model, &[4, 9]);
    let [first, second, third] = &slices(&pieces)[..] else { panic!("three pieces") };
    let refused = |pieces: &[&[u8]]| Gguf::parse_split(pieces).unwrap_err();
    let piece = |number, why| Error::Piece { number, count: 3, why };
    let missing = "is missing or out of order";
    assert_eq!(refused(&[]), Error::NotGguf);
    assert_eq!(refused(&[first]), piece(2, "is missing"));
    assert_eq!(refused(&[first, second]), piece(3, "is missing"));
    assert_eq!(refused(&[first, third]), piece(2, missing));
    assert_eq!(refused(&[second, third]), piece(1, missing));
    assert_eq!(refused(&[first, third, second]), piece(2, missing));
    assert_eq!(refused(&[first, second, second]), piece(3, missing));
    assert_eq!(refused(&[first, second, third, third]), piece(4, "is one too many"));
    assert_eq!(refused(&[first, b"text", third]), Error::NotGguf);
    let message = refused(&[first, third]).to_string();
    assert_eq!(message, "piece 2 of 3 is missing or out of order: give all pieces of one model, in order");

    // Pieces of models with another number of tensors or of pieces, and a whole model.
    let (other, two) = (cut(&tiny("gpt2"), &[4, 9]), cut(&model, &[4]));
    assert_eq!(refused(&[first, &other[1], third]), piece(2, "is from another model"));
    assert_eq!(refused(&[first, second, &two[1]]), piece(3, "is from another model"));
    assert_eq!(refused(&[first, &model.build(), third]), piece(2, "is from another model"));
    // The same numbers, but cut elsewhere: a tensor occurs twice, or is missing.
    let (before, after) = (cut(&model, &[3, 9]), cut(&model, &[5, 9]));
    assert!(matches!(refused(&[first, &after[1], third]), Error::KeyValue { .. }));
    assert!(matches!(refused(&[first, &before[1], third]), Error::KeyValue { .. }));
    let shifted = cut(&model, &[5, 10]);
    assert!(matches!(refused(&[first, &shifted[1], &shifted[2]]), Error::KeyValue { .. }));
    let shifted = cut(&model, &[3, 8]);
    assert!(matches!(refused(&[first, &shifted[1], third]), Error::DuplicateTensor { .. }));
}

/// A piece that is cut short is an error at every length.
#[test]
fn damaged_pieces_are_refused() {
    let pieces = cut(&tiny("llama"), &[4, 9]);
    for len in 0..pieces[1].len() {
        let slices = [&pieces[0][..], &pieces[1][..len], &pieces[2]];
        assert!(Gguf::parse_split(&slices).is_err(), "{len} bytes");
    }
    // A piece may have an alignment of its own.
    let mut aligned = Builder::new();
    let model = tiny("llama");
    aligned.set("split.no", 1u16).set("split.count", 2u16).set("general.alignment", 256u32);
    aligned.tensors = model.tensors[4..].to_vec();
    let pieces = [cut(&model, &[4]).swap_remove(0), aligned.build()];
    let slices = slices(&pieces);
    let gguf = Gguf::parse_split(&slices).unwrap();
    let file = model.build();
    assert!(
        gguf.tensors().map(|tensor| tensor.data).eq(Gguf::parse(&file).unwrap().tensors().map(|tensor| tensor.data))
    );
    Model::new(&gguf).unwrap();
}

/// Two pieces, written by llama.cpp's package `gguf` (`hashes.py` made them).
const PIECES: [&[u8]; 2] = [
    include_bytes!("../fixtures/hashes-00001-of-00002.gguf"),
    include_bytes!("../fixtures/hashes-00002-of-00002.gguf"),
];

/// Pieces in two memories of a firmware, which are parsed at compile time.
const SPLIT: Gguf<'static> = match Gguf::parse_split(&PIECES) {
    Ok(gguf) => gguf,
    Err(_) => panic!("no model"),
};

#[test]
fn pieces_are_parsed_by_the_compiler() {
    const COUNT: usize = SPLIT.tensor_count() as usize;
    const LAST: &[u8] = match SPLIT.tensor("blk.0.three_dimensions") {
        Some(tensor) => tensor.data,
        None => panic!("no tensor"),
    };
    let whole = Gguf::parse(include_bytes!("../fixtures/hashes.gguf")).unwrap();
    assert!(whole.tensors().map(|tensor| tensor.data).eq(SPLIT.tensors().map(|tensor| tensor.data)));
    assert_eq!((COUNT, LAST), (3, whole.tensor("blk.0.three_dimensions").unwrap().data));
    let mut verify = SPLIT.verify().unwrap().unwrap();
    while verify.step(16).unwrap() {}
    // A missing piece is an error at compile time.
    const ALONE: Result<Gguf<'static>, Error> = Gguf::parse_split(PIECES.split_at(1).0);
    assert_eq!(ALONE.unwrap_err(), Error::Piece { number: 2, count: 2, why: "is missing" });
}
