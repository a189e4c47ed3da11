//! The camera's frame, and its pixels as RGB.

use arenite::Workspace;

/// Pixels on each side.
pub const SIDE: usize = 96;
/// The buffer that a camera's driver fills: RGB565, little-endian.
pub static FRAME: Workspace<{ SIDE * SIDE * 2 }> = Workspace::new();

/// Writes row `y` of a frame as RGB. The highest bits of a color also fill the lowest.
pub fn read_row(frame: &[u8], y: usize, rgb: &mut [u8]) {
    let row = frame.get(y * SIDE * 2..).unwrap_or(&[]);
    for (to, pixel) in rgb.as_chunks_mut().0.iter_mut().zip(row.as_chunks().0) {
        let pixel = u16::from_le_bytes(*pixel);
        let (r, g, b) = (pixel >> 11, pixel >> 5 & 63, pixel & 31);
        *to = [r << 3 | r >> 2, g << 2 | g >> 4, b << 3 | b >> 2].map(|color| color as u8);
    }
}
