//! Every model that loads gives the same logits in any memory, after any other prompt, and after save and restore.
#![no_main]

use arbitrary::Arbitrary;
use arenite::{Gguf, Model};
use fuzz::change::File;
use fuzz::same::{self, Run};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Case {
    file: File,
    run: Run,
}

fuzz_target!(|case: Case| {
    let bytes = case.file.build();
    let Ok(gguf) = Gguf::parse(&bytes) else { return };
    let Ok(model) = Model::new(&gguf) else { return };
    if let Some(plan) = case.run.plan(&gguf) {
        same::check(&model, plan, &case.run);
    }
});
