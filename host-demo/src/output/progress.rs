//! Progress bars on standard error.

#[cfg(feature = "hub")]
use std::cell::RefCell;

use indicatif::{ProgressBar, ProgressStyle};

use crate::output;

/// Returns a progress bar with this style. The bar is hidden if standard error is not a terminal.
pub fn bar(total: u64, style: &'static str) -> ProgressBar {
    if !output::watched() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(total).with_style(style)
}

/// The bar of a download, or one line without a terminal.
#[cfg(feature = "hub")]
#[derive(Default)]
pub struct DownloadBar(RefCell<Option<ProgressBar>>);

#[cfg(feature = "hub")]
impl arenite_hub::Progress for DownloadBar {
    fn begin(&self, name: &str, size: Option<u64>) {
        if !output::watched() {
            match size {
                Some(size) => output::note(format_args!("fetching {name}, {}", output::Bytes(size as usize))),
                None => output::note(format_args!("fetching {name}")),
            }
        }
        let bar = bar(size.unwrap_or(0), "{msg} {bar:32} {bytes}/{total_bytes} {bytes_per_sec} {eta}");
        self.0.replace(Some(bar.with_message(name.to_owned())));
    }

    fn position(&self, bytes: u64) {
        if let Some(bar) = &*self.0.borrow() {
            bar.set_position(bytes);
        }
    }

    fn end(&self) {
        if let Some(bar) = self.0.take() {
            bar.finish_and_clear();
        }
    }
}
