//! NumPy's `.npy` files, version 1.0: a header in Python syntax, then the values.
//!
//! Format: <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>

use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::output::note;
use arenite_files::write_file;

/// Saves an array to a file atomically and prints a message.
pub fn save(path: &Path, shape: &[usize], numbers: &[f32]) -> Result<()> {
    write_file(path, |out| array(out, shape, numbers))?;
    note(format_args!("{}: float32 {shape:?}", path.display()));
    Ok(())
}

/// Reads a file with 32-bit floats. Returns the shape, and the values row by row.
pub fn load(path: &Path) -> Result<(Vec<usize>, Vec<f32>)> {
    let file = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    parse(&file).with_context(|| path.display().to_string())
}

fn parse(file: &[u8]) -> Result<(Vec<usize>, Vec<f32>)> {
    const NO_FILE: &str = "this is no .npy file";
    let (version, rest) = file.strip_prefix(b"\x93NUMPY").and_then(|rest| rest.split_at_checked(2)).context(NO_FILE)?;
    let width = if version[0] == 1 { 2 } else { 4 };
    let (len, rest) = rest.split_at_checked(width).context(NO_FILE)?;
    let len = len.iter().rev().fold(0, |len, byte| len << 8 | usize::from(*byte));
    let (head, values) = rest.split_at_checked(len).context(NO_FILE)?;
    let head = std::str::from_utf8(head).context(NO_FILE)?;
    let after = |key: &str| head.split_once(&format!("'{key}':")).map(|(_, rest)| rest.trim_start());
    ensure!(
        after("descr").is_some_and(|kind| kind.starts_with("'<f4'"))
            && after("fortran_order").is_some_and(|order| order.starts_with("False")),
        "the values must be 32-bit floats in rows: save numpy.ascontiguousarray(x, 'float32')"
    );
    let shape = after("shape").and_then(|shape| shape.strip_prefix('(')?.split_once(')')).context(NO_FILE)?.0;
    let shape = shape.split(',').map(str::trim).filter(|size| !size.is_empty()).map(str::parse);
    let shape = shape.collect::<Result<Vec<usize>, _>>().context(NO_FILE)?;
    let (values, rest) = values.as_chunks::<4>();
    let wanted = shape.iter().try_fold(1, |product: usize, size| product.checked_mul(*size));
    ensure!(rest.is_empty() && wanted == Some(values.len()), "the file is cut, or has more values than its shape");
    Ok((shape, values.iter().map(|value| f32::from_le_bytes(*value)).collect()))
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
    fn files_are_read_back() {
        let mut file = Vec::new();
        array(&mut file, &[2, 3], &[0.0, 1.5, -2.0, 3.0, f32::MAX, -0.0]).unwrap();
        assert_eq!(parse(&file).unwrap(), (vec![2, 3], vec![0.0, 1.5, -2.0, 3.0, f32::MAX, -0.0]));
        assert!((0..file.len()).all(|len| parse(&file[..len]).is_err()));
        let double = String::from_utf8_lossy(&file[..64]).replace("<f4", "<f8");
        assert!(parse(double.as_bytes()).is_err());
    }

    #[test]
    fn numbers_are_little_endian() {
        let mut file = Vec::new();
        values(&mut file, &[1.0, -2.5]).unwrap();
        assert_eq!(file, [0, 0, 0x80, 0x3f, 0, 0, 0x20, 0xc0]);
    }
}
