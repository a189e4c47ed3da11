//! Decodes JPEG to the same pixels as libjpeg-turbo, which transformers uses. The decoder of the crate `image` rounds
//! differently: a quarter of the bytes differ, by up to 4 of 255.

use image::metadata::Orientation;
use libjpeg_turbo_rs::{DecodeLimits, Decoder, JpegError, PixelFormat};

use super::{Error, Limits, Pixels};

/// Maximum number of scans in a progressive file. Each scan takes time for all pixels. Programs write about ten scans.
const MOST_SCANS: usize = 100;

/// True for the bytes of a JPEG file.
pub fn is_jpeg(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\xff\xd8\xff")
}

/// Decodes a file to RGB.
pub fn decode(bytes: &[u8], limits: &Limits) -> Result<Pixels, Error> {
    let most = DecodeLimits { max_scans: MOST_SCANS, max_memory: Some(limits.memory()), ..DecodeLimits::default() };
    let mut decoder = Decoder::new_with_limits(bytes, most).map_err(damaged)?;
    let (width, height) = (u32::from(decoder.header().width), u32::from(decoder.header().height));
    limits.check(width, height)?;
    let turn = decoder.exif_orientation().and_then(Orientation::from_exif).unwrap_or(Orientation::NoTransforms);
    decoder.set_output_format(PixelFormat::Rgb);
    let image = decoder.decode_image().map_err(damaged)?;
    Ok(Pixels { width, height, rgb: image.data, turn })
}

fn damaged(error: JpegError) -> Error {
    Error::damaged(error)
}
