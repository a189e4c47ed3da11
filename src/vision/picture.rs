//! Pictures, borrowed from the caller.

use super::resize::{PIXEL, Plane};
use crate::Error;

/// The largest width and height of a picture in pixels.
pub const MAX_SIDE: usize = 1 << 15;

/// A picture: rows of 8-bit RGB pixels from the top, each from the left.
///
/// ```
/// use arenite::vision::Picture;
/// let red_and_blue = [255, 0, 0, 0, 0, 255];
/// let picture = Picture::new(&red_and_blue, 2, 1)?;
/// assert_eq!((picture.width(), picture.height()), (2, 1));
/// assert!(Picture::new(&red_and_blue, 2, 2).is_err());
/// # Ok::<(), arenite::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Picture<'p> {
    plane: Plane<'p>,
}

impl<'p> Picture<'p> {
    /// Creates a picture of `width` by `height` pixels without padding between rows.
    ///
    /// # Errors
    ///
    /// [`Error::Picture`] if a side is 0 or longer than [`MAX_SIDE`], or if `rgb` is too short.
    pub fn new(rgb: &'p [u8], width: usize, height: usize) -> Result<Self, Error> {
        Self::with_stride(rgb, width, height, width.saturating_mul(PIXEL))
    }

    /// Like [`new`](Self::new), but with `stride` bytes from the start of a row to the start of the next row, for a
    /// part of a larger picture or a driver's buffer with padded rows.
    ///
    /// # Errors
    ///
    /// [`Error::Picture`] in the cases of [`new`](Self::new), and if rows overlap.
    pub fn with_stride(rgb: &'p [u8], width: usize, height: usize, stride: usize) -> Result<Self, Error> {
        check_sides(width, height)?;
        if stride < width * PIXEL {
            return Err(Error::Picture { why: "has rows that overlap: its stride is shorter than a row" });
        }
        let needed = stride.checked_mul(height - 1).and_then(|bytes| bytes.checked_add(PIXEL * width));
        if needed.is_none_or(|needed| needed > rgb.len()) {
            return Err(Error::Picture {
                why: "has fewer bytes than its width and height require: give all of its rows",
            });
        }
        Ok(Self { plane: Plane { bytes: rgb, width, height, stride } })
    }

    /// Width in pixels.
    pub fn width(&self) -> usize {
        self.plane.width
    }

    /// Height in pixels.
    pub fn height(&self) -> usize {
        self.plane.height
    }

    pub(super) fn plane(&self) -> Plane<'p> {
        self.plane
    }
}

pub(super) const fn check_sides(width: usize, height: usize) -> Result<(), Error> {
    match (width, height) {
        (0, _) | (_, 0) => Err(Error::Picture { why: "is empty: give one with pixels" }),
        (1..=MAX_SIDE, 1..=MAX_SIDE) => Ok(()),
        _ => Err(Error::Picture { why: "is too large: make it smaller before it is given to the encoder" }),
    }
}

impl core::fmt::Debug for Picture<'_> {
    /// Prints the size instead of the pixels.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Picture").field("width", &self.width()).field("height", &self.height()).finish_non_exhaustive()
    }
}
