//! Tests which texts grammars accept and refuse: each grammar is compiled to a table, and the core reads the table.

mod combined;
mod differences;
mod formats;
mod gbnf;
mod hostile;
mod masks;
mod random;
mod refusals;
mod schema;
mod texts;

use texts::{accepts, check};
