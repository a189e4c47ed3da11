//! NumPy's `.npy` files, version 1.0: a header in Python syntax, then the values.
//!
//! Format: <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>

use std::io::{self, Write};
use std::path::Path;

use anyhow::Result;

use crate::output::note;
use arenite_files::write_file;

/// Saves an array to a file atomically and prints a message.
pub fn save(path: &Path, shape: &[usize], numbers: &[f32]) -> Result<()> {
    write_file(path, |out| array(out, shape, numbers))?;
    note(format_args!("{}: float32 {shape:?}", path.display()));
    Ok(())
}

/// Writes the header of a row-major little-endian f32 array of `shape`.
pub fn header(out: &mut impl Write, shape: &[usize]) -> io::Result<()> {
    let mut dims: String = shape.iter().map(|n| format!("{n}, ")).collect();
    if shape.len() != 1 {
        // A Python tuple needs a trailing comma only if it has one element.
        dims.truncate(dims.trim_end_matches(", ").len());
    }
    let dict = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}), }}", dims.trim_end());
    // The header, from the magic bytes to the final newline, is padded to a multiple of 64 bytes.
    let before = 10;
    let total = (before + dict.len() + 1).next_multiple_of(64);
    let length = u16::try_from(total - before).map_err(|_| io::Error::other("too many dimensions for a .npy file"))?;
    out.write_all(b"\x93NUMPY\x01\x00")?;
    out.write_all(&length.to_le_bytes())?;
    writeln!(out, "{dict:<width$}", width = total - before - 1)
}

/// Writes a whole array.
fn array(out: &mut impl Write, shape: &[usize], numbers: &[f32]) -> Result<()> {
    header(out, shape)?;
    Ok(values(out, numbers)?)
}

/// Writes the next values of the array.
pub fn values(out: &mut impl Write, values: &[f32]) -> io::Result<()> {
    values.iter().try_for_each(|value| out.write_all(&value.to_le_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(shape: &[usize]) -> String {
        let mut file = Vec::new();
        header(&mut file, shape).unwrap();
        assert_eq!(file.len() % 64, 0);
        assert_eq!(&file[..8], b"\x93NUMPY\x01\x00");
        assert_eq!(u16::from_le_bytes([file[8], file[9]]) as usize, file.len() - 10);
        assert_eq!(file.last(), Some(&b'\n'));
        String::from_utf8_lossy(&file[10..]).trim_end().to_string()
    }

    #[test]
    fn headers_are_as_numpy_writes_them() {
        assert_eq!(text(&[5, 512]), "{'descr': '<f4', 'fortran_order': False, 'shape': (5, 512), }");
        assert_eq!(text(&[7]), "{'descr': '<f4', 'fortran_order': False, 'shape': (7,), }");
    }

    #[test]
    fn numbers_are_little_endian() {
        let mut file = Vec::new();
        values(&mut file, &[1.0, -2.5]).unwrap();
        assert_eq!(file, [0, 0, 0x80, 0x3f, 0, 0, 0x20, 0xc0]);
    }
}
