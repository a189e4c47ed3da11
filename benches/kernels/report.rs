//! The speed-up of every kernel over scalar code, as a table and as a chart.
//!
//!     cargo bench -p kernel-benches -- --report [FILE.svg]

use std::fmt::Write;
use std::time::{Duration, Instant};

use super::{Case, Input, SIDE, matrices};
use arenite::Kernels;
use arenite::quant::TensorType;

/// Number of tokens in each of the two columns of an instruction set: a single token, and a prompt.
const TOKENS: [usize; 2] = [1, 64];
/// A measurement is the time of the shortest call within this period, which has at least one call.
const LONG: Duration = Duration::from_millis(60);

/// The name of a type, and its speed-ups with each instruction set except the scalar one.
struct Row {
    name: String,
    speedups: Vec<[f64; 2]>,
}

pub fn run(file: &str) {
    Kernels::request_amx();
    let tables: Vec<_> = Kernels::available().filter(|kernels| kernels.name != "scalar").collect();
    let titles: Vec<_> =
        tables.iter().flat_map(|table| TOKENS.map(|tokens| format!("{} x{tokens}", table.name))).collect();
    println!(
        "How many times faster than scalar code: {SIDE} rows of {SIDE} weights, times 1 token and {}.\n",
        TOKENS[1]
    );
    println!("| weights | {} |\n|---|{}", titles.join(" | "), "--:|".repeat(titles.len()));
    let rows: Vec<_> = super::types().map(|kind| measure(kind, &tables)).collect();
    let svg = picture(&rows, &titles);
    match std::fs::write(file, svg) {
        Ok(()) => eprintln!("the picture is in {file}"),
        Err(error) => eprintln!("error: {file}: {error}"),
    }
}

fn measure(kind: TensorType, tables: &[&'static Kernels]) -> Row {
    let weights = matrices(kind, 1);
    let time = |kernels, tokens| {
        let mut best = Duration::MAX;
        Input::new(kind, tokens).with(&Case { kind, kernels }, |multiply| {
            let began = Instant::now();
            while best == Duration::MAX || began.elapsed() < LONG {
                let start = Instant::now();
                multiply(&weights);
                best = best.min(start.elapsed());
            }
        });
        best.as_secs_f64()
    };
    let scalar = TOKENS.map(|tokens| time(Kernels::by_name("scalar").expect("it is everywhere"), tokens));
    let speedups: Vec<_> = tables.iter().map(|table| [0, 1].map(|i| scalar[i] / time(*table, TOKENS[i]))).collect();
    let name = format!("{kind:?}");
    let figures: Vec<_> = speedups.as_flattened().iter().map(|times| format!("{times:.1}")).collect();
    println!("| {name} | {} |", figures.join(" | "));
    Row { name, speedups }
}

/// Draws the chart as SVG: bars on a logarithmic scale, up to a factor of 256.
fn picture(rows: &[Row], titles: &[String]) -> String {
    const COLOURS: [&str; 8] = ["#1b4965", "#62b6cb", "#7a4b2a", "#d9a066", "#3a6b35", "#a3c585", "#5b3758", "#c08497"];
    let (bar, left, width) = (7, 90, 640);
    let group = bar * titles.len() + 8;
    let height = 40 + 16 * titles.len() + group * rows.len();
    let scale = |times: f64| times.max(1.0).log2() / 8.0 * f64::from(width);
    let mut svg = format!(
        "<svg xmlns='http://www.w3.org/2000/svg' width='{}' height='{height}' font-family='sans-serif' font-size='11'>\n\
         <rect width='100%' height='100%' fill='white'/>\n",
        left + width + 40
    );
    let mut y = 14;
    for (title, colour) in titles.iter().zip(COLOURS.iter().cycle()) {
        let _ = writeln!(svg, "<rect x='{left}' y='{}' width='10' height='10' fill='{colour}'/>", y - 9);
        let _ = writeln!(svg, "<text x='{}' y='{y}'>{title} tokens</text>", left + 16);
        y += 16;
    }
    for times in [1, 2, 4, 8, 16, 32, 64, 128, 256] {
        let x = f64::from(left) + scale(times.into());
        let _ = writeln!(svg, "<line x1='{x:.0}' x2='{x:.0}' y1='{y}' y2='{}' stroke='#ddd'/>", height - 20);
        let _ = writeln!(svg, "<text x='{x:.0}' y='{}' text-anchor='middle'>{times}x</text>", height - 6);
    }
    for row in rows {
        let _ = writeln!(svg, "<text x='{}' y='{}' text-anchor='end'>{}</text>", left - 6, y + group / 2, row.name);
        for (times, colour) in row.speedups.as_flattened().iter().zip(COLOURS.iter().cycle()) {
            let _ = writeln!(
                svg,
                "<rect x='{left}' y='{y}' width='{:.1}' height='{}' fill='{colour}'><title>{times:.1}</title></rect>",
                scale(*times),
                bar - 1
            );
            y += bar;
        }
        y += 8;
    }
    svg + "</svg>\n"
}
