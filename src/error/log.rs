//! Support for logging errors with [defmt](https://defmt.ferrous-systems.com).

use defmt::{Debug2Format, Display2Format, Format, Formatter, write};

use super::{Error, ErrorKind};

/// Logs the error's sentence. The device formats it.
impl Format for Error {
    fn format(&self, f: Formatter<'_>) {
        write!(f, "{}", Display2Format(self));
    }
}

impl Format for ErrorKind {
    fn format(&self, f: Formatter<'_>) {
        write!(f, "{}", Debug2Format(self));
    }
}
