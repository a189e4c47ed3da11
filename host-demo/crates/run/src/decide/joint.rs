//! Decisions about all questions of a request together (clef). One prompt holds all questions; a head of attention
//! layers reads the states of its tokens and scores every option.
//!
//! Sources: llama.cpp's `src/models/clef.cpp` and `fill_task_joint`, which follow the class `JointSchemaHead` of the
//! published models. The head is computed in f64, so that the scores are close to the published model's. This costs
//! little, because the head is small compared with the model.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use arenite::TokenId;
use arenite::gguf::Gguf;
use arenite::quant::decode_row;
use arenite::tokenizer::{Encode, Tokenizer};
use arenite_text as text;

use super::question::Kind;

/// Separates the pieces of a prompt in the output of the template. Each piece is tokenized by itself.
pub const SEPARATOR: &str = "<<clef:sep>>";
/// Text that the template puts before the text of a question. [`OPTION`] is put before the text of an option.
pub const QUESTION: &str = "<<clef:question>>";
pub const OPTION: &str = "<<clef:option>>";
/// The text with which [`SEPARATOR`] and [`QUESTION`] begin. It is replaced in requests, so that a client's text cannot
/// add pieces to a prompt.
pub const MARKER: &str = "<<clef:";
pub const NO_MARKER: &str = "<<clef ";

/// A question in a prompt: the tokens of the question, and the tokens of its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    kind: Kind,
    text: Range<usize>,
    options: Vec<Range<usize>>,
}

/// Tokenizes a prompt piece by piece. `kinds` has the type of each question in the prompt.
pub fn tokens(prompt: &str, kinds: &[Kind], tokenizer: &Tokenizer<'_, '_>) -> Result<(Vec<TokenId>, Vec<Field>)> {
    let how = Encode { add_special: false, parse_special: true };
    let (mut ids, mut fields) = (Vec::new(), Vec::<Field>::new());
    for piece in prompt.split(SEPARATOR) {
        let from = ids.len();
        let (question, option) = (piece.strip_prefix(QUESTION), piece.strip_prefix(OPTION));
        ids.extend(text::encode(tokenizer, question.or(option).unwrap_or(piece).as_bytes(), how)?);
        let range = from..ids.len();
        ensure!(
            question.or(option).is_none() || !range.is_empty(),
            "the instructions and the options of a question must not be empty"
        );
        if question.is_some() {
            let kind = *kinds.get(fields.len()).context("the template shows more questions than there are")?;
            fields.push(Field { kind, text: range, options: Vec::new() });
        } else if option.is_some() {
            fields.last_mut().context("the template shows an option before the questions")?.options.push(range);
        }
    }
    ensure!(fields.len() == kinds.len(), "the template does not show all questions");
    Ok((ids, fields))
}

/// Rows of numbers of one width.
#[derive(Clone, Debug)]
struct Rows {
    width: usize,
    values: Vec<f64>,
}

impl Rows {
    fn new(width: usize, values: Vec<f64>) -> Self {
        Self { width, values }
    }

    fn row(&self, at: usize) -> &[f64] {
        &self.values[at * self.width..][..self.width]
    }

    fn iter(&self) -> impl ExactSizeIterator<Item = &[f64]> {
        self.values.chunks_exact(self.width)
    }

    /// Applies `f` to each row.
    fn map(&self, width: usize, f: impl Fn(&[f64]) -> Vec<f64>) -> Self {
        Self::new(width, self.iter().flat_map(f).collect())
    }

    fn add(&mut self, other: &Self) {
        self.values.iter_mut().zip(&other.values).for_each(|(x, y)| *x += y);
    }

    /// Mean of some rows.
    fn mean(&self, range: &Range<usize>) -> Vec<f64> {
        let mut mean = vec![0.0; self.width];
        for row in range.clone().map(|at| self.row(at)) {
            mean.iter_mut().zip(row).for_each(|(sum, x)| *sum += x / range.len() as f64);
        }
        mean
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn sum(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

/// A vector of length 1.
fn unit(x: &[f64]) -> Vec<f64> {
    let length = dot(x, x).sqrt().max(1e-12);
    x.iter().map(|x| x / length).collect()
}

fn softmax(scores: &mut [f64]) {
    let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    scores.iter_mut().for_each(|score| *score = (*score - top).exp());
    let total: f64 = scores.iter().sum();
    scores.iter_mut().for_each(|score| *score /= total);
}

fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + libm::erf(x * std::f64::consts::FRAC_1_SQRT_2))
}

/// The tensors of the head, and its sizes.
pub struct JointHead {
    tensors: HashMap<String, Rows>,
    routing: usize,
    layers: usize,
    heads: usize,
    eps: f64,
    /// Width of the head.
    width: usize,
}

/// A prompt's questions, and the head that scores their options.
#[derive(Clone)]
pub struct Joint {
    pub head: Arc<JointHead>,
    pub fields: Vec<Field>,
}

impl JointHead {
    /// Reads the head of a model.
    pub fn new(gguf: &Gguf<'_>) -> Result<Self> {
        let architecture = gguf.architecture()?;
        let size = |name: &str| {
            let value = gguf.u32(architecture, name)?;
            Ok::<_, anyhow::Error>(value.with_context(|| format!("the key {architecture}.{name} is missing"))? as usize)
        };
        let mut tensors = HashMap::new();
        for tensor in gguf.tensors().filter(|tensor| is_of_head(tensor.name)) {
            let (width, rows) = (tensor.dims[0] as usize, tensor.dims[1] as usize);
            let mut values = vec![0.0; width * rows];
            let bytes = tensor.data.len().checked_div(rows).unwrap_or(0);
            for (row, data) in values.chunks_exact_mut(width.max(1)).zip(tensor.data.chunks_exact(bytes.max(1))) {
                ensure!(decode_row(tensor.kind, data, row), "this build does not read {:?}", tensor.kind);
            }
            let values = values.into_iter().map(f64::from).collect();
            tensors.insert(tensor.name.to_string(), Rows::new(width, values));
        }
        let eps = gguf.f32(architecture, "attention.layer_norm_epsilon")?;
        let eps = eps.with_context(|| format!("the key {architecture}.attention.layer_norm_epsilon is missing"))?;
        let (routing, layers, heads) =
            (size("decision.routing_block_count")?, size("decision.block_count")?, size("decision.head_count")?);
        let mut head = Self { tensors, routing, layers, heads, eps: f64::from(eps), width: 0 };
        let width = head.matrix("decision.proj_memory")?.iter().len();
        head.width = width;
        head.check(
            gguf.tensors().find(|tensor| tensor.name == "token_embd.weight").map_or(0, |it| it.dims[0]) as usize
        )?;
        Ok(head)
    }

    /// Checks that all tensors of the head have the shapes that belong to a model of width `dim`.
    fn check(&self, dim: usize) -> Result<()> {
        let width = self.width;
        ensure!(self.heads > 0 && width > 0 && width.is_multiple_of(self.heads), "decision.head_count does not fit");
        let shape = |name: &str, inputs: usize, outputs: usize| {
            let rows = self.matrix(name)?;
            let (found, rows) = (rows.width, rows.iter().len());
            ensure!((found, rows) == (inputs, outputs), "{name} is [{found}, {rows}]: expected [{inputs}, {outputs}]");
            Ok(())
        };
        let vector = |name: String, width: usize| {
            let found = self.tensor(&name)?.values.len();
            ensure!(found == width, "{name} has {found} values: expected {width}");
            Ok(())
        };
        let linear = |name: &str, inputs, outputs| {
            shape(name, inputs, outputs)?;
            vector(format!("{name}.bias"), outputs)
        };
        let norm = |name: &str, width| {
            vector(format!("{name}.weight"), width)?;
            vector(format!("{name}.bias"), width)
        };
        norm("decision.hidden_norm", dim)?;
        for name in ["memory", "question", "option_question", "global", "option_context", "option_lexical"] {
            shape(&format!("decision.proj_{name}"), dim, width)?;
        }
        for name in ["option_summary_norm", "field_norm", "option_norm"] {
            norm(&format!("decision.{name}"), width)?;
        }
        shape("token_types", width, 3)?;
        vector("decision.scales".into(), 3).or_else(|_| vector("decision.scales.weight".into(), 3))?;
        linear("decision.scorer", 4 * width, width)?;
        linear("decision.scorer_out", width, 1)?;
        for layer in 0..self.routing + self.layers {
            let at = |name: &str| format!("dec.blk.{layer}.{name}");
            let inner = self.matrix(&at("ffn_up"))?.iter().len();
            let own: &[&str] = if layer < self.routing { &["cross_attn"] } else { &["cross_attn", "attn"] };
            for attention in own {
                for part in ["q", "k", "v", "o"] {
                    linear(&at(&format!("{attention}_{part}")), width, width)?;
                }
                norm(&at(&format!("{attention}_norm")), width)?;
            }
            if layer < self.routing {
                norm(&at("cross_attn_norm_kv"), width)?;
            }
            norm(&at("ffn_norm"), width)?;
            linear(&at("ffn_up"), width, inner)?;
            linear(&at("ffn_down"), inner, width)?;
        }
        Ok(())
    }

    fn tensor(&self, name: &str) -> Result<&Rows> {
        self.tensors.get(name).with_context(|| format!("the decision head lacks the tensor {name}"))
    }

    fn matrix(&self, name: &str) -> Result<&Rows> {
        self.tensor(&format!("{name}.weight"))
    }

    fn vector(&self, name: &str) -> Result<&[f64]> {
        Ok(&self.tensor(name)?.values)
    }

    /// A linear layer, with a bias if it has one.
    fn linear(&self, name: &str, x: &Rows) -> Result<Rows> {
        let weights = self.matrix(name)?;
        let bias = self.tensors.get(&format!("{name}.bias"));
        let out = |x: &[f64]| {
            let mut out: Vec<f64> = weights.iter().map(|row| dot(row, x)).collect();
            if let Some(bias) = bias {
                out.iter_mut().zip(&bias.values).for_each(|(out, bias)| *out += bias);
            }
            out
        };
        Ok(x.map(weights.iter().len(), out))
    }

    fn norm(&self, name: &str, x: &Rows) -> Result<Rows> {
        let (weight, bias) = (self.vector(&format!("{name}.weight"))?, self.vector(&format!("{name}.bias"))?);
        Ok(x.map(x.width, |x| {
            let mean = x.iter().sum::<f64>() / x.len() as f64;
            let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / x.len() as f64;
            let scale = 1.0 / (variance + self.eps).sqrt();
            x.iter().zip(weight).zip(bias).map(|((x, weight), bias)| (x - mean) * scale * weight + bias).collect()
        }))
    }

    /// Computes attention from the rows of `x` to the rows of `memory`, without a mask.
    fn attention(&self, name: &str, x: &Rows, memory: &Rows) -> Result<Rows> {
        let q = self.linear(&format!("{name}_q"), x)?;
        let (k, v) = (self.linear(&format!("{name}_k"), memory)?, self.linear(&format!("{name}_v"), memory)?);
        let part = self.width / self.heads;
        let scale = 1.0 / (part as f64).sqrt();
        let mixed = q.map(self.width, |q| {
            let of_head = |head: usize| {
                let range = head * part..(head + 1) * part;
                let mut weights: Vec<f64> =
                    k.iter().map(|k| dot(&q[range.clone()], &k[range.clone()]) * scale).collect();
                softmax(&mut weights);
                let mut out = vec![0.0; part];
                for (weight, v) in weights.iter().zip(v.iter()) {
                    out.iter_mut().zip(&v[range.clone()]).for_each(|(out, v)| *out += weight * v);
                }
                out
            };
            (0..self.heads).flat_map(of_head).collect()
        });
        self.linear(&format!("{name}_o"), &mixed)
    }

    fn feed_forward(&self, layer: &str, x: &Rows) -> Result<Rows> {
        let mut inner = self.linear(&format!("{layer}.ffn_up"), &self.norm(&format!("{layer}.ffn_norm"), x)?)?;
        inner.values.iter_mut().for_each(|x| *x = gelu(*x));
        self.linear(&format!("{layer}.ffn_down"), &inner)
    }
}

fn is_of_head(name: &str) -> bool {
    ["decision.", "dec.blk.", "token_types."].iter().any(|start| name.starts_with(start))
}

/// The vectors of a prompt that the head compares.
struct Vectors {
    /// `[questions]`: means of states.
    questions: Rows,
    /// `[1]`: the last token's state.
    last: Rows,
    /// `[options]`: means of output embeddings.
    lexical: Rows,
    /// Question of each option.
    owners: Vec<usize>,
}

impl Joint {
    /// Scores all options in their order. `states` has the states of the prompt's tokens after the final norm.
    pub fn scores(&self, gguf: &Gguf<'_>, ids: &[TokenId], states: &[f32]) -> Result<Vec<f64>> {
        let head = &self.head;
        let dim = states.len().checked_div(ids.len()).unwrap_or(0);
        let states = Rows::new(dim, states.iter().copied().map(f64::from).collect());
        let states = head.norm("decision.hidden_norm", &states)?;
        let memory = head.linear("decision.proj_memory", &states)?;
        let words = embeddings(gguf, ids, dim)?;

        let spans = || self.fields.iter().flat_map(|field| &field.options);
        let of_questions = self.fields.iter().flat_map(|field| states.mean(&field.text)).collect();
        let vectors = Vectors {
            questions: Rows::new(dim, of_questions),
            last: Rows::new(dim, states.row(ids.len() - 1).to_vec()),
            lexical: Rows::new(dim, spans().flat_map(|span| words.mean(span)).collect()),
            owners: self.fields.iter().enumerate().flat_map(|(at, field)| vec![at; field.options.len()]).collect(),
        };
        let contexts = Rows::new(dim, spans().flat_map(|span| states.mean(span)).collect());
        let options = self.read_options(&contexts, &memory, &vectors)?;
        let fields = self.read_fields(&options, &memory, &vectors)?;
        self.compare(&options, &fields, &vectors)
    }

    /// The vectors of options, after they have read the prompt.
    fn read_options(&self, contexts: &Rows, memory: &Rows, vectors: &Vectors) -> Result<Rows> {
        let head = &self.head;
        let mut options = head.linear("decision.proj_option_context", contexts)?;
        options.add(&head.linear("decision.proj_option_lexical", &vectors.lexical)?);
        let asked = head.linear("decision.proj_option_question", &vectors.questions)?;
        options.add(&of_owners(&asked, &vectors.owners));
        for layer in (0..head.routing).map(|layer| format!("dec.blk.{layer}")) {
            let x = head.norm(&format!("{layer}.cross_attn_norm"), &options)?;
            let memory = head.norm(&format!("{layer}.cross_attn_norm_kv"), memory)?;
            options.add(&head.attention(&format!("{layer}.cross_attn"), &x, &memory)?);
            options.add(&head.feed_forward(&layer, &options)?);
        }
        Ok(options)
    }

    /// Returns a vector for each question, computed by layers in which the questions attend to each other and to the
    /// prompt.
    fn read_fields(&self, options: &Rows, memory: &Rows, vectors: &Vectors) -> Result<Rows> {
        let (head, owners) = (&self.head, &vectors.owners);
        let mut fields = head.linear("decision.proj_question", &vectors.questions)?;
        let mut summaries = Vec::new();
        for (at, field) in fields.iter().enumerate() {
            let own: Vec<&[f64]> =
                options.iter().zip(owners).filter(|(_, owner)| **owner == at).map(|(option, _)| option).collect();
            let mut weights: Vec<f64> =
                own.iter().map(|option| dot(option, field) / (head.width as f64).sqrt()).collect();
            softmax(&mut weights);
            let mut summary = vec![0.0; head.width];
            for (weight, option) in weights.iter().zip(own) {
                summary.iter_mut().zip(option).for_each(|(sum, x)| *sum += weight * x);
            }
            summaries.extend(summary);
        }
        fields.add(&head.norm("decision.option_summary_norm", &Rows::new(head.width, summaries))?);
        let count = self.fields.len();
        fields.add(&of_owners(&head.linear("decision.proj_global", &vectors.last)?, &vec![0; count]));
        let types: Vec<usize> = self.fields.iter().map(|field| type_row(field.kind)).collect();
        fields.add(&of_owners(head.matrix("token_types")?, &types));
        for layer in (head.routing..head.routing + head.layers).map(|layer| format!("dec.blk.{layer}")) {
            let x = head.norm(&format!("{layer}.attn_norm"), &fields)?;
            fields.add(&head.attention(&format!("{layer}.attn"), &x, &x)?);
            let x = head.norm(&format!("{layer}.cross_attn_norm"), &fields)?;
            fields.add(&head.attention(&format!("{layer}.cross_attn"), &x, memory)?);
            fields.add(&head.feed_forward(&layer, &fields)?);
        }
        head.norm("decision.field_norm", &fields)
    }

    /// Computes the score of each option as `a * prior + c * (b * cosine + residual)`. The file has the scales `a`, `b`
    /// and `c`.
    fn compare(&self, options: &Rows, fields: &Rows, vectors: &Vectors) -> Result<Vec<f64>> {
        let (head, owners) = (&self.head, &vectors.owners);
        let options = head.norm("decision.option_norm", options)?;
        let fields = of_owners(fields, owners);
        let features = fields.iter().zip(options.iter()).flat_map(|(field, option)| {
            let both = field.iter().zip(option);
            let products = both.clone().map(|(a, b)| a * b);
            let distances = both.map(|(a, b)| (a - b).abs());
            field.iter().copied().chain(option.iter().copied()).chain(products).chain(distances).collect::<Vec<_>>()
        });
        let mut inner = head.linear("decision.scorer", &Rows::new(4 * head.width, features.collect()))?;
        inner.values.iter_mut().for_each(|x| *x = gelu(*x));
        let residual = head.linear("decision.scorer_out", &inner)?;
        let scales = head.vector("decision.scales").or_else(|_| head.vector("decision.scales.weight"))?;
        let [of_prior, of_cosine, gate] = *scales else { bail!("decision.scales must have three values") };
        let score = |at: usize| {
            let anchor = unit(&sum(vectors.questions.row(owners[at]), vectors.last.row(0)));
            let prior = dot(&unit(vectors.lexical.row(at)), &anchor);
            let cosine = dot(&unit(fields.row(at)), &unit(options.row(at)));
            of_prior * prior + gate * (of_cosine * cosine + residual.values[at])
        };
        Ok((0..owners.len()).map(score).collect())
    }
}

/// The row of each option's question.
fn of_owners(rows: &Rows, owners: &[usize]) -> Rows {
    Rows::new(rows.width, owners.iter().flat_map(|owner| rows.row(*owner).to_vec()).collect())
}

fn type_row(kind: Kind) -> usize {
    match kind {
        Kind::Noul => 0,
        Kind::Choice => 1,
        Kind::Score => 2,
    }
}

/// The output embeddings of tokens.
fn embeddings(gguf: &Gguf<'_>, ids: &[TokenId], dim: usize) -> Result<Rows> {
    let of_name = |name: &str| gguf.tensors().find(|tensor| tensor.name == name);
    let tensor = of_name("output.weight").or_else(|| of_name("token_embd.weight")).context("there is no embedding")?;
    let bytes = tensor.data.len().checked_div(tensor.dims[1] as usize).unwrap_or(0);
    let mut values = vec![0.0; ids.len() * dim];
    for (row, id) in values.chunks_exact_mut(dim).zip(ids) {
        let data = tensor.data.get(*id as usize * bytes..).and_then(|data| data.get(..bytes));
        ensure!(data.is_some_and(|data| decode_row(tensor.kind, data, row)), "token {id} has no embedding");
    }
    Ok(Rows::new(dim, values.into_iter().map(f64::from).collect()))
}
