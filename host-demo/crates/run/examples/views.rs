//! Writes the views of a picture that the encoder reads, as a stream of PPM pictures:
//!
//! ```sh
//! cargo run -p arenite-run --example views -- mmproj.gguf photo.jpg > views.ppm
//! ```

use std::io::{Write, stdout};

use anyhow::{Context, Result};
use arenite::vision::{Encoder, Options, Picture, Plan, Vision};
use arenite::{Gguf, Line};
use arenite_pictures::{Limits, decode};

fn main() -> Result<()> {
    let mut paths = std::env::args().skip(1);
    let mut read =
        || std::fs::read(paths.next().context("give a projector's file and a picture")?).map_err(anyhow::Error::from);
    let (file, picture) = (read()?, decode(&read()?, &Limits::DEFAULT)?);
    let (gguf, width, height) = (Gguf::parse(&file)?, picture.width as usize, picture.height as usize);
    let (vision, plan) = (Vision::new(&gguf)?, Plan::new(&gguf, width, height, Options::new())?);
    let mut memory = vec![Line::ZERO; plan.workspace.div_ceil(size_of::<Line>())];
    let mut encoder = Encoder::new(&vision, plan, Line::bytes_mut(&mut memory))?;
    encoder.load(&Picture::new(&picture.rgb, width, height)?)?;
    for index in 0..plan.views.count() {
        let (width, height, rows) = encoder.pixels(index).context("a view is missing")?;
        writeln!(stdout(), "P6 {width} {height} 255")?;
        rows.into_iter().try_for_each(|row| stdout().write_all(row))?;
    }
    Ok(())
}
