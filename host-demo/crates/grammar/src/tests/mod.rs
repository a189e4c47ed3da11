//! Tests what grammars accept and refuse, from text to table, with the core's reader.

mod combined;
mod differences;
mod gbnf;
mod hostile;
mod masks;
mod random;
mod refusals;
mod schema;
mod texts;

use texts::{accepts, check};
