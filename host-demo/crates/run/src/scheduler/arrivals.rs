//! Requests that arrive while a pass runs, and whether one of them should stop the pass.

use std::collections::VecDeque;
use std::sync::mpsc::Receiver;

use super::budget::is_short;
use super::cache::Cache;
use super::requests::Command;

/// Commands that arrived while a pass was running and still have to be handled.
#[derive(Default)]
pub struct Arrivals(VecDeque<Command>);

impl Arrivals {
    /// Takes the command that arrived first.
    pub fn next(&mut self) -> Option<Command> {
        self.0.pop_front()
    }

    /// Receives the commands that have arrived. Returns true if one of them continues a cached conversation and only a
    /// few tokens of its prompt are unread, so that its first token needs less time than the rest of a pass.
    pub fn receive(&mut self, commands: &Receiver<Command>, cache: &Cache) -> bool {
        let known = self.0.len();
        self.0.extend(commands.try_iter());
        self.0.iter().skip(known).any(|command| match command {
            Command::Generate(job) if !job.settings.scores_prompt && !job.settings.reads_anew => {
                let cached = cache.best(&job.prompt, &job.settings.lora, job.scope).map_or(0, |(_, shared)| shared);
                // If the whole prompt is cached, its last token is read again nevertheless, to compute its logits.
                is_short((job.prompt.len() - cached).max(1))
            }
            _ => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, channel};

    use arenite::TokenId;
    use arenite_grammar::MaskMemory;

    use super::Command;
    use crate::RunOptions;
    use crate::drafts::{Drafting, Drafts};
    use crate::generation::Settings;
    use crate::model_file::ModelFile;
    use crate::open_model::OpenModel;
    use crate::runtime::Memory;
    use crate::scheduler::admission::Waiting;
    use crate::scheduler::{Asker, Counters, Event, Job, Scheduler};

    fn job(prompt: std::ops::Range<TokenId>) -> (Box<Job>, Receiver<Event>) {
        let (client, events) = channel();
        let settings = Settings { limit: Some(8), ignore_end: true, ..Settings::default() };
        let prompt = prompt.collect();
        let (asker, client) = (Asker::default(), Box::new(client));
        (Box::new(Job { prompt, settings: Arc::new(settings), seed: 1, client, asker, scope: None }), events)
    }

    fn tokens(events: &Receiver<Event>) -> Vec<TokenId> {
        let id = |event| if let Event::Token { id, .. } = event { Some(id) } else { None };
        events.try_iter().filter_map(id).collect()
    }

    /// Calls `test` with a scheduler of the story model.
    fn with_scheduler(test: impl FnOnce(&mut Scheduler<'_, '_, '_>)) {
        let file =
            ModelFile::open(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../tests/fixtures/stories.gguf")).unwrap();
        let open = OpenModel::new(file, RunOptions { threads: 1, ..RunOptions::default() }).unwrap();
        let drafting = Drafting::of(&open, true);
        let plan = open.plan(drafting.planned(open.plan_options(256).contexts(8).pages(128), 4)).unwrap();
        let tokenizer = open.vocabulary().unwrap();
        let (mut memory, mut masks, mut small) = (Memory::new(&plan).unwrap(), MaskMemory::new(tokenizer), None);
        let engine = open.engine(&mut memory, plan).unwrap();
        let drafts = Drafts::new(&open, drafting, 4, 256, &mut small).unwrap();
        let masks = masks.masks(tokenizer).unwrap();
        test(&mut Scheduler::new(engine, tokenizer, masks, 4, Arc::new(Counters::default()), drafts));
    }

    /// Runs a scheduler for a test until it has answered the request `job`.
    fn run(scheduler: &mut Scheduler<'_, '_, '_>, job: Box<Job>) {
        let (sender, commands) = channel();
        sender.send(Command::Generate(job)).unwrap();
        drop(sender);
        scheduler.run(&commands);
    }

    #[test]
    fn a_request_that_stops_a_pass_changes_no_answer() {
        let [long, known] = [1..120, 200..240].map(|prompt: std::ops::Range<TokenId>| {
            let (one, events) = job(prompt.clone());
            with_scheduler(|scheduler| run(scheduler, one));
            (prompt, tokens(&events))
        });
        assert_eq!([long.1.len(), known.1.len()], [8, 8]);
        with_scheduler(|scheduler| {
            run(scheduler, job(known.0.clone()).0);
            let (sender, commands) = channel();
            let ((first, first_events), (second, second_events)) = (job(long.0.clone()), job(known.0.clone()));
            scheduler.waiting.push_back(Waiting::New(first, None, 0));
            scheduler.admit();
            sender.send(Command::Generate(second)).unwrap();
            scheduler.pass(&commands).unwrap();
            assert_eq!(scheduler.running[0].context.position(), 0, "the pass was not stopped");
            // The second request continues a cached conversation and needs one token. It is answered before the first
            // token of the long prompt is read.
            let Some(Command::Generate(second)) = scheduler.arrivals.next() else { panic!("the request was lost") };
            scheduler.waiting.push_back(Waiting::New(second, None, 1));
            scheduler.admit();
            scheduler.pass(&commands).unwrap();
            assert_eq!(scheduler.running[0].context.position(), 0);
            assert_eq!(scheduler.running[1].context.position(), known.0.len());
            drop(sender);
            scheduler.run(&commands);
            assert_eq!((tokens(&first_events), tokens(&second_events)), (long.1.clone(), known.1.clone()));
        });
    }
}
