//! The texts that stand for pictures, as each model's processor writes them.

use anyhow::{Result, bail, ensure};
use arenite::vision::{Projector, Views};

/// Texts of a kind of models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks {
    /// What chat templates write for a picture.
    pub marker: &'static str,
    /// What stands for a picture without a chat template: the marker, and what templates write around it.
    pub alone: &'static str,
    /// The token that stands where a row stands.
    pub token: &'static str,
}

impl Marks {
    /// The texts of a projector's models.
    pub fn of(projector: Projector) -> Self {
        let same = |marker| Self { marker, alone: marker, token: marker };
        match projector {
            Projector::Gemma3 => Self { token: "<image_soft_token>", ..same("<start_of_image>") },
            Projector::InternVl => same("<IMG_CONTEXT>"),
            Projector::Pixtral => same("[IMG]"),
            Projector::Qwen25Vl | Projector::Qwen3Vl => {
                Self { alone: "<|vision_start|><|image_pad|><|vision_end|>", ..same("<|image_pad|>") }
            }
            _ => same("<image>"),
        }
    }
}

/// Replaces the markers in `text` by the texts of the pictures, in order. If there are no markers, the pictures stand
/// before the text.
pub fn expand(projector: Projector, text: &str, views: &[Views]) -> Result<String> {
    let Marks { marker, alone, token } = Marks::of(projector);
    let markers = text.matches(marker).count();
    let text = if markers == 0 { alone.repeat(views.len()) + text } else { text.to_owned() };
    if markers != 0 && markers != views.len() {
        bail!("the text has {markers} markers {marker}, but {} pictures were given: give one for each", views.len());
    }
    ensure!(token == marker || !text.contains(token), "the text contains {token}, which only a picture may write");
    let mut parts = text.split(marker);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for (views, part) in views.iter().zip(parts) {
        out += &written(projector, views, token);
        out += part;
    }
    Ok(out)
}

/// What stands for one picture.
fn written(projector: Projector, views: &Views, token: &str) -> String {
    let tokens = |index: usize| token.repeat(views.get(index).map_or(0, |view| view.tokens()));
    let (columns, lines) = views.grid();
    // The text of each tile, after a mark with its line and column, counted from 1.
    let tiles = |mark: &dyn Fn(usize, usize) -> String, line_end: &str| -> String {
        let line = |line: usize| {
            let tile = |column: usize| mark(line + 1, column + 1) + &tokens(line * columns + column);
            (0..columns).map(tile).collect::<String>() + line_end
        };
        (0..lines).map(line).collect()
    };
    let last = views.count().saturating_sub(1);
    match projector {
        Projector::Idefics3 => {
            const FAKE: &str = "<fake_token_around_image>";
            let global = format!("{FAKE}<global-img>{}{FAKE}", tokens(last));
            match views.has_overview() {
                true => tiles(&|line, column| format!("{FAKE}<row_{line}_col_{column}>"), "\n") + "\n" + &global,
                false => global,
            }
        }
        Projector::Lfm2 if views.has_overview() => {
            let tiles = tiles(&|line, column| format!("<|img_row_{line}_col_{column}|>"), "");
            format!("<|image_start|>{tiles}<|img_thumbnail|>{}<|image_end|>", tokens(last))
        }
        Projector::Lfm2 => format!("<|image_start|>{}<|image_end|>", tokens(0)),
        Projector::Gemma3 => format!("\n\n<start_of_image>{}<end_of_image>\n\n", tokens(0)),
        Projector::InternVl => format!("<img>{}</img>", (0..views.count()).map(tokens).collect::<String>()),
        Projector::Pixtral => {
            let (columns, lines) = views.get(0).map_or((0, 0), |view| (view.columns, view.lines));
            let end = |line: usize| if line + 1 == lines { "[IMG_END]" } else { "[IMG_BREAK]" };
            (0..lines).map(|line| token.repeat(columns) + end(line)).collect()
        }
        _ => tokens(0),
    }
}
