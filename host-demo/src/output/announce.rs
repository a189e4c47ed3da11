//! Prints how much memory a server or a batch uses. The message is printed before the first request.

use arenite_files::Bytes;
use arenite_grammar::MaskMemory;
use arenite_run::service::Host;

use crate::output::note;

/// Prints the memory that the process will use, and the routes of a model that does not generate text. `server` has the
/// parameters of [`Host::bytes`]. If it is `None`, the sum does not include the program and its requests.
pub fn announce(host: &Host, server: Option<(usize, usize)>) {
    let Host { open, plan, service, .. } = host;
    let sum = match server {
        Some((requests, program)) => format!(
            "requests {}, program with threads and connections {}, in all up to {}",
            Bytes(requests),
            Bytes(program),
            Bytes(host.bytes(requests, program)),
        ),
        None => format!("together {} without the program and its input lines", Bytes(host.bytes(0, 0))),
    };
    let pictures = match host.eyes_bytes() {
        0 => String::new(),
        bytes => format!("pictures up to {}, ", Bytes(bytes)),
    };
    note(format_args!(
        "memory  workspace {}, KV cache {} ({} conversations of {} positions in {}), masks of grammars {}, model {} {}, {pictures}{sum}",
        Bytes(plan.workspace),
        Bytes(plan.kv),
        open.options.parallel,
        service.context,
        plan.options.kv.name(),
        Bytes(MaskMemory::bytes(service.tokenizer())),
        Bytes(open.file().len()),
        open.file().held(),
    ));
    if open.model().spec().sound().is_some() {
        note("this model transcribes speech: it serves /v1/audio/transcriptions and /v1/audio/translations");
    } else if !service.makes_text {
        note("this model generates no text: it serves /v1/embeddings and /v1/rerank");
    }
}
