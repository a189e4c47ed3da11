//! Options for drafts.

use std::ffi::OsString;
use std::path::Path;

use clap::Args;
use clap::builder::TypedValueParser;

use super::number::at_least_one;
use arenite_files::drafter_beside;
use arenite_run::model_file::ModelFile;
use arenite_run::runtime::{DraftChoice, RunOptions};

/// Options for drafts: tokens that are proposed, and verified together in one pass.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Drafts")]
pub struct DraftArgs {
    /// Propose tokens and verify several in one pass; the answer is the same. `auto`: with the model's own layers for
    /// further tokens, or those of a file beside the model (mtp-*, *-assistant*), or by lookup if there are none, as long as
    /// enough proposals are right. A file: such layers, or a smaller model with the same vocabulary [default: auto]
    #[arg(long, value_name = "auto|off|FILE", value_parser = choice())]
    draft: Option<DraftChoice>,

    /// Maximum number of proposed tokens [default: 3 for the model's layers, 4 for a model, 8 for lookup]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    draft_max: Option<usize>,

    /// Propose up to N tokens that followed an earlier occurrence of the last tokens in the text (prompt lookup decoding):
    /// for repetitive text. The answer is the same
    #[arg(long, value_name = "N", value_parser = at_least_one, conflicts_with_all = ["draft", "draft_max"])]
    lookup: Option<usize>,
}

impl DraftArgs {
    /// Adds the choice to the options of the model in `file`. A session file does not store states of the layers for
    /// further tokens, so `auto` means lookup if there is a session file.
    pub fn apply(&self, options: RunOptions, file: &ModelFile, has_session: bool) -> RunOptions {
        let draft = match (&self.draft, self.lookup) {
            (_, Some(_)) => DraftChoice::Lookup,
            (None | Some(DraftChoice::Auto), None) if has_session => DraftChoice::Lookup,
            (None | Some(DraftChoice::Auto), None) => match drafter_beside(Path::new(file.name())) {
                Some(path) => DraftChoice::Beside(path),
                None => DraftChoice::Auto,
            },
            (Some(draft), None) => draft.clone(),
        };
        RunOptions { draft, draft_max: self.lookup.or(self.draft_max), ..options }
    }
}

fn choice() -> impl TypedValueParser<Value = DraftChoice> {
    clap::builder::OsStringValueParser::new().map(|value: OsString| match value.to_str() {
        Some("auto") => DraftChoice::Auto,
        Some("off") => DraftChoice::Off,
        _ => DraftChoice::File(value.into()),
    })
}
