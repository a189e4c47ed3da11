//! Options whose values have a type of a library. The libraries do not depend on clap, so their types cannot implement
//! `ValueEnum`.

use clap::builder::{PossibleValuesParser, TypedValueParser};

/// Parses one of these names.
pub fn one_of<T: Clone + Send + Sync + 'static>(all: &'static [(&'static str, T)]) -> impl TypedValueParser<Value = T> {
    let names = PossibleValuesParser::new(all.iter().map(|(name, _)| *name));
    names.try_map(move |name: String| {
        all.iter().find(|(other, _)| *other == name).map(|(_, value)| value.clone()).ok_or("is not known")
    })
}
