//! Decodes pictures: PNG, JPEG, WebP, the first frame of a GIF, and BMP, to RGB bytes.
//!
//! The format is recognized by the content, not by the name. The size in the file's header is compared with [`Limits`]
//! before memory for the pixels is allocated. As in transformers, transparency is dropped and the orientation in EXIF
//! is applied. Samples of 16 bits are reduced to their upper 8 bits.
//!
//! ```
//! use arenite_pictures::{Limits, decode};
//!
//! let bmp = b"BM\x3a\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\x18\0\0\0\0\0\x04\0\0\0\
//!             \0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x03\x02\x01\0";
//! let picture = decode(bmp, &Limits::DEFAULT)?;
//! assert_eq!((picture.width, picture.height, &picture.rgb[..]), (1, 1, &[1, 2, 3][..]));
//! # Ok::<(), arenite_pictures::Error>(())
//! ```
#![deny(unsafe_code)]

mod jpeg;

use std::borrow::Cow;
use std::fmt;
use std::io::Cursor;
use std::thread;

use image::metadata::Orientation;
use image::{ColorType, DynamicImage, ImageDecoder, ImageFormat, ImageReader, RgbImage};

/// Name of the threads that decode. A decoder's panic becomes an error of its picture, so a program's panic hook can ignore
/// these threads.
pub const DECODER: &str = "picture";

/// The formats that the crate `image` decodes; JPEG has a different decoder.
const FORMATS: [ImageFormat; 4] = [ImageFormat::Png, ImageFormat::WebP, ImageFormat::Gif, ImageFormat::Bmp];

/// A decoded picture.
#[derive(Clone, PartialEq, Eq)]
pub struct Picture {
    /// Pixels in a row.
    pub width: u32,
    /// Number of rows.
    pub height: u32,
    /// The rows from top to bottom, three bytes a pixel: `[height, width, 3]`.
    pub rgb: Vec<u8>,
}

/// The largest picture that is decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum width and height.
    pub side: u32,
    /// Maximum number of pixels.
    pub pixels: u64,
}

/// The reason why a picture cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The bytes have none of the formats that are read.
    Format,
    /// The picture is larger than the limits.
    Large {
        /// Its width.
        width: u32,
        /// Its height.
        height: u32,
        /// The limits.
        limits: Limits,
    },
    /// The file is damaged, or uses a part of its format that is not supported. Contains the decoder's message.
    Damaged(String),
}

impl Limits {
    /// Enough for the cameras of phones: 50 million pixels.
    pub const DEFAULT: Self = Self { side: 16_384, pixels: 50_000_000 };
    /// The limits of a server, whose clients may be hostile.
    pub const OF_REQUEST: Self = Self { pixels: 25_000_000, ..Self::DEFAULT };

    /// Upper bound in bytes for the memory of a decoder, including the pixels that it returns. A PNG of 16 bits with
    /// transparency and a progressive JPEG of four colors take the most memory: 8 bytes for each pixel, and the result.
    pub const fn memory(&self) -> u64 {
        12 * self.pixels + (16 << 20)
    }

    /// Refuses the size of a picture before its memory is allocated.
    fn check(&self, width: u32, height: u32) -> Result<(), Error> {
        if width.max(height) > self.side || u64::from(width) * u64::from(height) > self.pixels {
            return Err(Error::Large { width, height, limits: *self });
        }
        if width == 0 || height == 0 {
            return Err(Error::damaged("it has no pixels"));
        }
        Ok(())
    }
}

impl Error {
    /// Makes the error for a damaged picture. It quotes the first line of the decoder's message, unless this line
    /// prints a value of the decoder.
    fn damaged(why: impl ToString) -> Self {
        let why = why.to_string();
        let line = why.lines().next().filter(|line| !line.contains('{'));
        Self::Damaged(line.unwrap_or("it is damaged, or of an unusual form: save it again").to_string())
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Decodes the bytes of a picture file.
///
/// # Errors
///
/// The format is unknown, the picture is larger than `limits`, or the file is damaged.
pub fn decode(bytes: &[u8], limits: &Limits) -> Result<Picture, Error> {
    // Decode in a separate thread, so that a panic of the decoder ends only this thread.
    thread::scope(|scope| {
        let work = || decoded(bytes, limits);
        let thread = thread::Builder::new().name(DECODER.into()).spawn_scoped(scope, work);
        let thread = thread.map_err(|_| Error::damaged("there is no thread to decode it"))?;
        thread.join().unwrap_or_else(|payload| {
            std::mem::forget(payload); // its drop may panic, too
            Err(Error::damaged("its decoder failed"))
        })
    })
}

/// Pixels in the order of the file, before the orientation is applied.
struct Pixels {
    width: u32,
    height: u32,
    rgb: Vec<u8>,
    turn: Orientation,
}

fn decoded(bytes: &[u8], limits: &Limits) -> Result<Picture, Error> {
    let Pixels { width, height, rgb, turn } =
        if jpeg::is_jpeg(bytes) { jpeg::decode(bytes, limits)? } else { other(bytes, limits)? };
    let rgb = RgbImage::from_raw(width, height, rgb).ok_or_else(|| Error::damaged("pixels are missing"))?;
    let mut turned = DynamicImage::ImageRgb8(rgb);
    turned.apply_orientation(turn);
    let rgb = turned.into_rgb8();
    Ok(Picture { width: rgb.width(), height: rgb.height(), rgb: rgb.into_raw() })
}

/// Decodes a file that is no JPEG.
fn other(bytes: &[u8], limits: &Limits) -> Result<Pixels, Error> {
    let format = image::guess_format(bytes).ok().filter(|format| FORMATS.contains(format)).ok_or(Error::Format)?;
    /// The last chunk of a PNG. The chunk has no pixels, and files that are cut short by a few bytes lack this chunk.
    const END: &[u8] = b"\0\0\0\0IEND\xae\x42\x60\x82";
    let lacks_end = format == ImageFormat::Png && !bytes.windows(4).rev().any(|name| name == b"IEND");
    let bytes: Cow<'_, [u8]> = if lacks_end { [bytes, END].concat().into() } else { bytes.into() };
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    let mut most = image::Limits::no_limits();
    most.max_alloc = Some(limits.memory());
    reader.limits(most);
    let mut decoder = reader.into_decoder().map_err(Error::damaged)?;
    let (width, height) = decoder.dimensions();
    limits.check(width, height)?;
    // Ignore errors, because a damaged EXIF block is no reason to refuse the pixels.
    let turn = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    let colors = decoder.color_type();
    let mut pixels = vec![0; decoder.total_bytes() as usize]; // at most 8 bytes for each pixel of the limits
    decoder.read_image(&mut pixels).map_err(Error::damaged)?;
    let rgb = rgb(pixels, colors).ok_or_else(|| Error::damaged(format!("its colors are {colors:?}")))?;
    Ok(Pixels { width, height, rgb, turn })
}

/// Returns the red, green and blue bytes of pixels; `None` for a color type that does not occur in these formats.
fn rgb(pixels: Vec<u8>, colors: ColorType) -> Option<Vec<u8>> {
    // Index of the upper byte among the two bytes of a sample.
    const UPPER: usize = if cfg!(target_endian = "little") { 1 } else { 0 };
    let bytes = usize::from(colors.bytes_per_pixel());
    let (at, step) = match colors {
        ColorType::Rgb8 => return Some(pixels),
        ColorType::L8 | ColorType::La8 => (0, 0),
        ColorType::Rgba8 => (0, 1),
        ColorType::L16 | ColorType::La16 => (UPPER, 0),
        ColorType::Rgb16 | ColorType::Rgba16 => (UPPER, 2),
        _ => return None,
    };
    Some(pixels.chunks_exact(bytes).flat_map(|pixel| [pixel[at], pixel[at + step], pixel[at + 2 * step]]).collect())
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Format => f.write_str("this is no picture that can be read: give PNG, JPEG, WebP, GIF or BMP"),
            Self::Large { width, height, limits: Limits { side, pixels } } => write!(
                f,
                "the picture has {width} by {height} pixels, and at most {side} on a side and {pixels} together are \
                 possible: make it smaller"
            ),
            Self::Damaged(why) => write!(f, "the picture cannot be decoded: {why}"),
        }
    }
}

impl std::error::Error for Error {}

impl fmt::Debug for Picture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Picture({} by {})", self.width, self.height)
    }
}
