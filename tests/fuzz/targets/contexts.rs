//! Contexts are opened, forked, run together, rewound and closed in any order. The logits of a context must be those of
//! its tokens in a session of their own, and no page may be lost.
#![no_main]

use arbitrary::Arbitrary;
use arenite::{Context, Engine, KvType, Options, Plan, Session, Work};
use fuzz::change::opened;
use fuzz::list::List;
use fuzz::same::{Memory, bits};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Case {
    family: u8,
    context: u8,
    batch: u8,
    contexts: u8,
    pages: u8,
    kv: u8,
    steps: List<Step, 30>,
}

#[derive(Arbitrary, Debug)]
enum Step {
    Open,
    Fork(u8),
    ForkAt(u8, u8),
    Rewind(u8, u8),
    Close(u8),
    Run(List<u8, 4>, List<u8, 20>),
    RunAll(List<(u8, u8), 30>),
}

/// A context and its tokens.
type Entry = (Context, Vec<u32>);

fuzz_target!(|case: Case| {
    let (gguf, model) = opened(case.family.into());
    let kv = KvType::ALL[usize::from(case.kv) % KvType::ALL.len()];
    let context = 1 + usize::from(case.context) % 64;
    let options = Options::new().context(context).batch(1 + usize::from(case.batch) % 12).kv(kv);
    let shared = options.contexts(1 + usize::from(case.contexts) % 6).pages(1 + usize::from(case.pages) % 16);
    let (Ok(plan), Ok(alone)) = (Plan::new(gguf, shared), Plan::new(gguf, options)) else { return };
    let mut memory = Memory::new(&plan, 0xff);
    let mut engine = memory.engine(model, plan);
    let free = engine.free_pages();

    let mut all: Vec<Entry> = vec![];
    for step in case.steps.iter() {
        take(step, &mut engine, &mut all);
    }

    let mut memory = Memory::new(&alone, 0);
    let mut session = memory.session(model, alone);
    for (context, tokens) in &mut all {
        if engine.run(&mut [Work::decode(context, 1)]).is_ok() {
            tokens.push(1);
            same(&mut session, tokens, engine.logits(context));
        }
        assert_eq!(context.position(), tokens.len());
    }
    for (context, _) in all {
        engine.close(context);
    }
    assert_eq!(engine.free_pages(), free, "pages are lost");
});

fn take(step: &Step, engine: &mut Engine<'_, '_>, all: &mut Vec<Entry>) {
    let at = |number: u8| usize::from(number) % all.len().max(1);
    match step {
        Step::Open => all.extend(engine.open().ok().map(|context| (context, vec![]))),
        Step::Fork(from) => {
            let Some((context, tokens)) = all.get(at(*from)) else { return };
            let fork = engine.fork(context).ok().map(|fork| (fork, tokens.clone()));
            all.extend(fork);
        }
        Step::ForkAt(from, position) => {
            let Some((context, tokens)) = all.get(at(*from)) else { return };
            let position = usize::from(*position);
            let fork = engine.fork_at(context, position).ok().map(|fork| (fork, tokens[..position].to_vec()));
            all.extend(fork);
        }
        Step::Rewind(which, position) => {
            let at = at(*which);
            let Some((context, tokens)) = all.get_mut(at) else { return };
            if engine.rewind(context, (*position).into()).is_ok() {
                tokens.truncate((*position).into());
            }
        }
        Step::Close(which) => {
            if !all.is_empty() {
                let (context, _) = all.swap_remove(at(*which));
                engine.close(context);
            }
        }
        Step::Run(which, tokens) => {
            // Each chosen context takes the tokens.
            let tokens: Vec<u32> = tokens.iter().map(|token| (*token).into()).collect();
            let chosen: Vec<usize> = which.iter().map(|which| at(*which)).collect();
            let entries = all.iter_mut().enumerate().filter(|(i, _)| chosen.contains(i));
            let (mut works, mut histories) = (vec![], vec![]);
            for (_, (context, history)) in entries {
                works.push(Work::prefill(context, &tokens));
                histories.push(history);
            }
            if engine.run(&mut works).is_ok() {
                histories.into_iter().for_each(|history| history.extend(&tokens));
            }
        }
        Step::RunAll(tokens) => {
            let given = |i: usize| -> Vec<u32> {
                let mine = tokens.iter().filter(|(which, _)| usize::from(*which) % 6 == i % 6);
                mine.map(|(_, token)| (*token).into()).collect()
            };
            let given: Vec<_> = (0..all.len()).map(given).collect();
            let (mut works, mut histories) = (vec![], vec![]);
            for ((context, history), tokens) in all.iter_mut().zip(&given).filter(|(_, tokens)| !tokens.is_empty()) {
                works.push(Work::prefill(context, tokens).no_logits());
                histories.push((history, tokens));
            }
            if engine.run(&mut works).is_ok() {
                histories.into_iter().for_each(|(history, tokens)| history.extend(tokens));
            }
        }
    }
}

/// Checks the logits against a separate session with these tokens.
fn same(session: &mut Session<'_, '_>, tokens: &[u32], logits: &[f32]) {
    session.rewind(0).expect("the beginning is always there");
    session.prefill(tokens).expect("it worked in company");
    assert!(bits(session.logits()) == bits(logits), "other logits in company: {tokens:?}");
}
