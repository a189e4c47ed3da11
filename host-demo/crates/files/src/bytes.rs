//! Formats numbers of bytes for people.

use std::fmt;

/// A number of bytes, printed in binary units (1 KiB = 1024 bytes).
pub struct Bytes(pub usize);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0 as f64;
        let text = if self.0 < 1 << 10 {
            format!("{} B", self.0)
        } else if self.0 < 1 << 20 {
            format!("{:.1} KiB", bytes / 1024.0)
        } else if self.0 < 1 << 30 {
            format!("{:.1} MiB", bytes / 1048576.0)
        } else {
            format!("{:.2} GiB", bytes / 1073741824.0)
        };
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_read_well() {
        let shown = [0, 1023, 1024, 532480, 4 << 20, 3 << 30].map(|n| Bytes(n).to_string());
        assert_eq!(shown, ["0 B", "1023 B", "1.0 KiB", "520.0 KiB", "4.0 MiB", "3.00 GiB"]);
        assert_eq!(format!("{:>8}", Bytes(12)), "    12 B");
    }
}
