//! Measures how long an encoder of pictures takes: `encoder MMPROJ [THREADS] [SIDE] [ROUNDS]`. Prints the seconds of each round.

use std::time::Instant;

use arenite::vision::{Encoder, Options, Picture, Plan, Vision};
use arenite::workers::Pool;
use arenite::{Gguf, Line};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Cargo appends a flag.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let Some(path) = arguments.first() else {
        println!("no file given");
        return Ok(());
    };
    let number = |i: usize, default| arguments.get(i).map_or(Ok(default), |text| text.parse());
    let (threads, side, rounds) = (number(1, 1)?, number(2, 512)?, number(3, 3)?);
    let file = std::fs::read(path)?;
    let model = Gguf::parse(&file)?;
    let vision = Vision::new(&model)?;
    let plan = Plan::new(&model, side, side, Options::new().batch(256).workers(threads))?;
    let mut memory = vec![Line::ZERO; plan.workspace.div_ceil(64)];
    let pool = Pool::new(threads);
    let mut encoder = Encoder::new(&vision, plan, Line::bytes_mut(&mut memory))?.with_workers(&pool);
    let pixels: Vec<u8> = (0..3 * side * side).map(|i| (i * 7919 % 251) as u8).collect();
    let picture = Picture::new(&pixels, side, side)?;
    let mut rows = vec![0.0; plan.rows];
    for _ in 0..rounds {
        let start = Instant::now();
        encoder.see(&picture, &mut rows)?;
        println!("{:.4}", start.elapsed().as_secs_f64());
    }
    Ok(())
}
