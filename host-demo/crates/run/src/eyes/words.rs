//! The text that replaces a picture's marker in a prompt. Each model was trained with the text of its own processor.

use std::fmt::Write;

use anyhow::{Result, bail};
use arenite::vision::{Projector, Views};

/// The texts that a model's processor writes for pictures.
#[derive(Clone, Copy)]
pub struct Words {
    /// The text that templates write for a picture.
    pub marker: &'static str,
    /// The token that stands for a row of a picture.
    pub row: &'static str,
    /// The texts around and between the rows.
    style: Style,
}

#[derive(Clone, Copy)]
enum Style {
    /// All rows, between two texts.
    Plain(&'static str, &'static str),
    /// The position of the tile is written before each tile, a line break after each line of tiles, and an overview of
    /// the picture at the end.
    Marked,
    /// For a picture with several views: a text before each tile, and a text before the overview.
    Tiled,
    /// A token after each line of rows, such as `[IMG_BREAK]`.
    Lines,
}

impl Words {
    pub fn of(projector: Projector) -> Result<Self> {
        const QWEN: Words = Words {
            marker: "<|vision_start|><|image_pad|><|vision_end|>",
            row: "<|image_pad|>",
            style: Style::Plain("<|vision_start|>", "<|vision_end|>"),
        };
        let words = |marker, row, style| Self { marker, row, style };
        Ok(match projector {
            Projector::Idefics3 => words("<image>", "<image>", Style::Marked),
            Projector::Lfm2 => words("<image>", "<image>", Style::Tiled),
            Projector::Gemma3 => words(
                "<start_of_image>",
                "<image_soft_token>",
                Style::Plain("\n\n<start_of_image>", "<end_of_image>\n\n"),
            ),
            Projector::InternVl => words("<IMG_CONTEXT>", "<IMG_CONTEXT>", Style::Plain("<img>", "</img>")),
            Projector::Pixtral => words("[IMG]", "[IMG]", Style::Lines),
            Projector::Qwen25Vl | Projector::Qwen3Vl => QWEN,
            other => bail!("pictures for the projector {} cannot be put into a prompt yet", other.name()),
        })
    }

    /// The text that stands for a picture.
    pub fn text(&self, views: &Views) -> String {
        let mut text = String::new();
        let all = (0..views.count()).filter_map(|index| views.get(index));
        match self.style {
            Style::Plain(open, close) => text += &format!("{open}{}{close}", self.row.repeat(views.tokens())),
            Style::Lines => {
                for view in all {
                    let lines = vec![self.row.repeat(view.columns); view.lines];
                    text += &format!("{}[IMG_END]", lines.join("[IMG_BREAK]"));
                }
            }
            Style::Marked => {
                const MARK: &str = "<fake_token_around_image>";
                let (columns, _) = views.grid();
                for view in all {
                    let rows = self.row.repeat(view.tokens());
                    match view.tile.filter(|_| views.has_overview()) {
                        Some((column, line)) => {
                            let end = if column + 1 == columns { "\n" } else { "" };
                            _ = write!(text, "{MARK}<row_{}_col_{}>{rows}{end}", line + 1, column + 1);
                        }
                        None => {
                            let before = if views.has_overview() { "\n" } else { "" };
                            text += &format!("{before}{MARK}<global-img>{rows}{MARK}");
                        }
                    }
                }
            }
            Style::Tiled => {
                text += "<|image_start|>";
                for view in all {
                    match view.tile.filter(|_| views.has_overview()) {
                        Some((column, line)) => _ = write!(text, "<|img_row_{}_col_{}|>", line + 1, column + 1),
                        None if views.has_overview() => text += "<|img_thumbnail|>",
                        None => {}
                    }
                    text += &self.row.repeat(view.tokens());
                }
                text += "<|image_end|>";
            }
        }
        text
    }
}
