//! torch's files (`.pt`, `.pth`, `.bin`): reads the tensors without executing code.
//!
//! A file contains a program for Python's pickle machine. This module implements only the operations that build
//! tensors, numbers, texts and collections of them. A call of anything else gives a value that is not a tensor; the
//! named function is never run.

use std::collections::HashMap;
use std::rc::Rc;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value as Json};

use super::leaf::{Coding, Leaf};

/// Maximum nesting of values.
const DEPTH: u8 = 60;
/// Maximum number of copied references to values: many times what the dictionary of the largest models needs.
const COPIES: usize = 1 << 26;

/// The tensors of a file.
pub struct TorchFile<'f> {
    pub tensors: Vec<Leaf<'f>>,
    /// Numbers and texts stored with the tensors.
    pub settings: Option<Json>,
}

/// First bytes of the number that begins a file of torch before version 1.6.
const OLD: &[u8] = b"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";

/// Returns true for a torch file: a zip file, or the form before version 1.6.
pub fn is_torch(bytes: &[u8]) -> bool {
    bytes.starts_with(b"PK\x03\x04") || is_old(bytes)
}

fn is_old(bytes: &[u8]) -> bool {
    bytes.first() == Some(&0x80) && bytes.windows(OLD.len()).take(16).any(|begin| begin == OLD)
}

pub fn read(bytes: &[u8]) -> Result<TorchFile<'_>> {
    let (top, files) = if is_old(bytes) { old(bytes)? } else { zipped(bytes)? };
    let mut tensors = Vec::new();
    let mut settings = Map::new();
    let Object::Dict(dict) = &*top.object else {
        bail!("its data.pkl is not a dictionary of tensors: save the model's state_dict")
    };
    let state = dict.iter().find_map(|(key, value)| {
        matches!(key.text(), Some("model" | "state_dict" | "model_state_dict" | "module")).then_some(&*value.object)
    });
    if let Some(Object::Dict(state)) = state {
        add(&mut tensors, state, &files)?;
        for (key, value) in dict {
            if let (Some(key), Object::Dict(inner)) = (key.text(), &*value.object) {
                settings.insert(key.to_owned(), plain(inner));
            }
        }
    } else {
        add(&mut tensors, dict, &files)?;
    }
    ensure!(!tensors.is_empty(), "it has no tensors: save the model's state_dict()");
    Ok(TorchFile { tensors, settings: (!settings.is_empty()).then_some(Json::Object(settings)) })
}

/// The bytes of storages by their key.
type Storages<'f> = HashMap<String, &'f [u8]>;

fn zipped(bytes: &[u8]) -> Result<(Item, Storages<'_>)> {
    let entries = entries(bytes)?;
    let (name, program) = entries
        .iter()
        .find(|(name, _)| name.ends_with("data.pkl"))
        .context("it has no data.pkl: save the model with torch.save or as safetensors")?;
    let folder = name.strip_suffix("data.pkl").unwrap_or_default();
    if let Some((_, order)) = entries.iter().find(|(name, _)| *name == format!("{folder}byteorder")) {
        ensure!(*order == b"little", "it was written on a big-endian machine: not supported");
    }
    let top = Machine::default()
        .run(&mut &**program)
        .context("its data.pkl cannot be read; save the model as safetensors")?;
    let folder = format!("{folder}data/");
    let storage = |(name, data): &(String, _)| Some((name.strip_prefix(&folder)?.to_owned(), *data));
    Ok((top, entries.iter().filter_map(storage).collect()))
}

/// Reads a file of torch before version 1.6: a number, a version, facts about the machine, the dictionary, the keys of
/// the storages, and for each key the number of values and the values.
fn old(bytes: &[u8]) -> Result<(Item, Storages<'_>)> {
    let mut rest = bytes;
    let mut machine = Machine::default();
    let mut next = |rest: &mut &[u8]| machine.run(rest);
    next(&mut rest)?;
    next(&mut rest)?;
    let Object::Dict(facts) = &*next(&mut rest)?.object else { bail!("it is damaged") };
    let is_big = facts
        .iter()
        .any(|(key, value)| key.text() == Some("little_endian") && matches!(*value.object, Object::Bool(false)));
    ensure!(!is_big, "it was written on a big-endian machine: not supported");
    let (top, keys) = (next(&mut rest)?, next(&mut rest)?);
    let mut storages = HashMap::new();
    for key in keys.tuple() {
        let key = key.text().context("the key of a storage is not text")?;
        let size = machine.sizes.get(key).context("a tensor has an unsupported type: save the model as safetensors")?;
        let count = usize::try_from(u64::from_le_bytes(array(&mut rest)?)).ok();
        let len = count.and_then(|count| count.checked_mul(*size)).context("it is cut short")?;
        storages.insert(key.to_owned(), take(&mut rest, len)?);
    }
    Ok((top, storages))
}

/// Lists the files in a zip file, which torch does not compress.
fn entries(bytes: &[u8]) -> Result<Vec<(String, &[u8])>> {
    let archive = rawzip::ZipArchive::from_slice(bytes).context("its zip directory is damaged")?;
    let mut records = archive.entries();
    let mut entries = Vec::new();
    while let Some(record) = records.next_entry().context("its zip directory is damaged")? {
        let name = String::from_utf8_lossy(record.file_path().as_ref()).into_owned();
        ensure!(record.compression_method() == rawzip::CompressionMethod::STORE, "{name} in it is compressed");
        let range =
            archive.get_entry(record.wayfinder()).context("its zip directory is damaged")?.compressed_data_range();
        let data = usize::try_from(range.0).ok().zip(usize::try_from(range.1).ok());
        let data = data.and_then(|(start, end)| bytes.get(start..end));
        entries.push((name, data.context("its zip directory is damaged")?));
    }
    Ok(entries)
}

fn add<'f>(tensors: &mut Vec<Leaf<'f>>, dict: &[(Item, Item)], storages: &Storages<'f>) -> Result<()> {
    for (key, value) in dict {
        let Some(mut name) = key.text() else { continue };
        // Distributed training and `torch.compile` add these prefixes.
        while let Some(rest) = ["module.", "_orig_mod."].iter().find_map(|prefix| name.strip_prefix(prefix)) {
            name = rest;
        }
        let tensor = match &*value.object {
            Object::Tensor(tensor) => tensor,
            Object::Unsupported(what) => {
                bail!("the tensor {name} needs {what}, which is not supported: save the model as safetensors")
            }
            _ => continue,
        };
        let bytes = storages.get(&tensor.key).with_context(|| format!("the data of {name} is missing"))?;
        let size = tensor.coding.size();
        let mut dims = tensor.shape.iter().zip(&tensor.strides);
        let end = dims
            .try_fold(tensor.offset + 1, |end, (n, stride)| n.saturating_sub(1).checked_mul(*stride)?.checked_add(end));
        let end = end.and_then(|end| end.checked_mul(size));
        ensure!(
            tensor.shape.contains(&0) || end.is_some_and(|end| end <= bytes.len()),
            "the data of {name} is cut short"
        );
        let mut leaf =
            Leaf::new(name, &bytes[(tensor.offset * size).min(bytes.len())..], tensor.coding.clone(), &tensor.shape);
        leaf.strides = tensor.strides.clone();
        tensors.push(leaf);
    }
    Ok(())
}

/// Returns the numbers and texts of a dictionary.
fn plain(dict: &[(Item, Item)]) -> Json {
    let values = dict.iter().filter_map(|(key, value)| {
        let value = match &*value.object {
            Object::None => Json::Null,
            Object::Bool(value) => (*value).into(),
            Object::Int(value) => (*value).into(),
            Object::Float(value) => (*value).into(),
            Object::Text(text) => text.as_str().into(),
            _ => return None,
        };
        Some((key.text()?.to_owned(), value))
    });
    Json::Object(values.collect())
}

/// A tensor: the location of its values.
#[derive(Debug)]
struct Tensor {
    key: String,
    coding: Coding,
    offset: usize,
    shape: Vec<usize>,
    strides: Vec<usize>,
}

/// A value of the pickle machine.
#[derive(Debug)]
enum Object {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    Tuple(Vec<Item>),
    Dict(Vec<(Item, Item)>),
    /// A class or a function, by name.
    Global(String),
    Storage(String, Coding),
    Tensor(Tensor),
    /// A tensor or a storage that cannot be read, and why.
    Unsupported(String),
    /// The result of any other operation.
    Other,
}

#[derive(Clone, Debug)]
struct Item {
    object: Rc<Object>,
    depth: u8,
}

impl Item {
    fn new(object: Object) -> Self {
        Self { object: Rc::new(object), depth: 0 }
    }

    fn text(&self) -> Option<&str> {
        match &*self.object {
            Object::Text(text) => Some(text),
            _ => None,
        }
    }

    fn int(&self) -> Option<usize> {
        match *self.object {
            Object::Int(value) => usize::try_from(value).ok(),
            _ => None,
        }
    }

    fn tuple(&self) -> &[Self] {
        match &*self.object {
            Object::Tuple(items) => items,
            _ => &[],
        }
    }
}

/// The pickle machine.
#[derive(Default)]
struct Machine {
    stack: Vec<Item>,
    /// Positions of marks on the stack.
    marks: Vec<usize>,
    memo: HashMap<u32, Item>,
    /// Bytes per value of each storage.
    sizes: HashMap<String, usize>,
    copies: usize,
}

impl Machine {
    /// Runs the program at the start of `rest`, and removes it.
    fn run(&mut self, rest: &mut &[u8]) -> Result<Item> {
        (self.stack, self.marks, self.memo) = Default::default();
        while let Some((op, after)) = rest.split_first() {
            *rest = after;
            if *op == b'.' {
                return self.pop();
            }
            self.step(*op, rest)?;
        }
        bail!("it is cut short")
    }

    fn step(&mut self, op: u8, rest: &mut &[u8]) -> Result<()> {
        if self.literal(op, rest)? || self.memory(op, rest)? || self.container(op)? {
            return Ok(());
        }
        match op {
            0x80 => drop(take(rest, 1)?), // PROTO
            0x95 => drop(take(rest, 8)?), // FRAME
            b'(' => self.marks.push(self.stack.len()),
            b'0' => drop(self.pop()?),
            b'1' => drop(self.marked()?),
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?);
                let name = format!("{}.{}", module.text().unwrap_or_default(), name.text().unwrap_or_default());
                self.push(Object::Global(name));
            }
            b'Q' => {
                let id = self.pop()?;
                let storage = storage(&id);
                if let Object::Storage(key, coding) = &storage {
                    self.sizes.insert(key.clone(), coding.size());
                }
                self.push(storage)
            }
            b'R' => {
                let (args, function) = (self.pop()?, self.pop()?);
                let item = call(&function, &args)?;
                self.stack.push(item)
            }
            0x81 => {
                self.pop()?;
                self.pop()?;
                self.push(Object::Dict(Vec::new())) // an object without attributes
            }
            b'b' => self.build()?,
            other => bail!("the operation {other:#x} is not one that tensors need: save the model as safetensors"),
        }
        Ok(())
    }

    /// Runs an operation that pushes a number, a text, a name or bytes. Returns false for other operations.
    fn literal(&mut self, op: u8, rest: &mut &[u8]) -> Result<bool> {
        match op {
            b'N' => self.push(Object::None),
            0x88 => self.push(Object::Bool(true)),
            0x89 => self.push(Object::Bool(false)),
            b'K' => {
                let n = take(rest, 1)?[0];
                self.push(Object::Int(n.into()))
            }
            b'M' => {
                let n = u16::from_le_bytes(array(rest)?);
                self.push(Object::Int(n.into()))
            }
            b'J' => {
                let n = i32::from_le_bytes(array(rest)?);
                self.push(Object::Int(n.into()))
            }
            0x8a => self.long(rest)?,
            b'G' => {
                let x = f64::from_be_bytes(array(rest)?);
                self.push(Object::Float(x))
            }
            b'X' => {
                let n = u32::from_le_bytes(array(rest)?);
                self.text(rest, n as usize)?
            }
            0x8c => {
                let n = take(rest, 1)?[0];
                self.text(rest, n.into())?
            }
            b'U' => {
                let n = take(rest, 1)?[0];
                self.text(rest, n.into())?
            }
            b'C' => {
                let n = take(rest, 1)?[0];
                take(rest, n.into())?;
                self.push(Object::Other)
            }
            b'B' | b'T' => {
                let n = u32::from_le_bytes(array(rest)?);
                take(rest, n as usize)?;
                self.push(Object::Other)
            }
            b'c' => {
                let name = format!("{}.{}", line(rest)?, line(rest)?);
                self.push(Object::Global(name))
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Runs an operation that stores or loads a numbered object. Returns false for other operations.
    fn memory(&mut self, op: u8, rest: &mut &[u8]) -> Result<bool> {
        match op {
            b'q' => {
                let at = take(rest, 1)?[0];
                self.remember(at.into())?
            }
            b'r' => {
                let at = u32::from_le_bytes(array(rest)?);
                self.remember(at)?
            }
            0x94 => {
                let at = self.memo.len() as u32;
                self.remember(at)?
            }
            b'h' => {
                let at = take(rest, 1)?[0];
                self.recall(at.into())?
            }
            b'j' => {
                let at = u32::from_le_bytes(array(rest)?);
                self.recall(at)?
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Runs an operation that builds a tuple, a list or a dictionary. Returns false for other operations.
    fn container(&mut self, op: u8) -> Result<bool> {
        match op {
            b')' => self.push(Object::Tuple(Vec::new())),
            b']' => self.push(Object::Tuple(Vec::new())),
            b'}' => self.push(Object::Dict(Vec::new())),
            b't' | b'l' => {
                let items = self.marked()?;
                self.tuple(items)?
            }
            0x85..=0x87 => {
                let at = self
                    .stack
                    .len()
                    .checked_sub(usize::from(op - 0x84))
                    .context("it takes a value from an empty stack")?;
                let items = self.stack.split_off(at);
                self.tuple(items)?;
            }
            b'a' => {
                let item = self.pop()?;
                self.append(vec![item])?
            }
            b'e' => {
                let items = self.marked()?;
                self.append(items)?
            }
            b'd' => {
                let items = self.marked()?;
                self.push(Object::Dict(Vec::new()));
                self.set(items)?
            }
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.set(vec![key, value])?
            }
            b'u' => {
                let items = self.marked()?;
                self.set(items)?
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn push(&mut self, object: Object) {
        self.stack.push(Item::new(object));
    }

    fn pop(&mut self) -> Result<Item> {
        self.stack.pop().context("it takes a value from an empty stack")
    }

    /// Removes and returns the values above the last mark.
    fn marked(&mut self) -> Result<Vec<Item>> {
        let mark = self.marks.pop().filter(|mark| *mark <= self.stack.len()).context("the pickle stack has no mark")?;
        Ok(self.stack.split_off(mark))
    }

    fn text(&mut self, rest: &mut &[u8], len: usize) -> Result<()> {
        let text = String::from_utf8_lossy(take(rest, len)?).into_owned();
        self.push(Object::Text(text));
        Ok(())
    }

    fn long(&mut self, rest: &mut &[u8]) -> Result<()> {
        let len = usize::from(take(rest, 1)?[0]);
        let bytes = take(rest, len)?;
        let mut number = [bytes.last().map_or(0, |last| if last & 0x80 == 0 { 0 } else { 0xff }); 8];
        let object = match number.get_mut(..len) {
            Some(low) => {
                low.copy_from_slice(bytes);
                Object::Int(i64::from_le_bytes(number))
            }
            None => Object::Other,
        };
        self.push(object);
        Ok(())
    }

    fn remember(&mut self, at: u32) -> Result<()> {
        let item = self.stack.last().context("it takes a value from an empty stack")?.clone();
        self.memo.insert(at, item);
        Ok(())
    }

    fn recall(&mut self, at: u32) -> Result<()> {
        let item = self.memo.get(&at).context("it reads an undefined memo entry")?.clone();
        self.stack.push(item);
        Ok(())
    }

    fn tuple(&mut self, items: Vec<Item>) -> Result<()> {
        let depth = deeper(&items)?;
        self.stack.push(Item { object: Rc::new(Object::Tuple(items)), depth });
        Ok(())
    }

    fn append(&mut self, items: Vec<Item>) -> Result<()> {
        let list = self.pop()?;
        self.copied(list.tuple().len())?;
        let mut all = list.tuple().to_vec();
        all.extend(items);
        self.tuple(all)
    }

    /// Counts copied references: their number grows with the square of the number of steps.
    fn copied(&mut self, count: usize) -> Result<()> {
        self.copies += count;
        ensure!(self.copies < COPIES, "it builds its dictionary in too many steps");
        Ok(())
    }

    /// Sets the attributes of an object without attributes. Drops the attributes of a dictionary.
    fn build(&mut self) -> Result<()> {
        let attributes = self.pop()?;
        let object = self.pop()?;
        let is_empty = matches!(&*object.object, Object::Dict(pairs) if pairs.is_empty());
        let has_names = matches!(&*attributes.object, Object::Dict(_));
        self.stack.push(if is_empty && has_names { attributes } else { object });
        Ok(())
    }

    /// Adds alternating keys and values to the dictionary on the stack.
    fn set(&mut self, items: Vec<Item>) -> Result<()> {
        let depth = deeper(&items)?;
        let mut dict = self.pop()?;
        // A memoized dictionary is copied, so the memo keeps the dictionary without these items. Programs with tensors
        // do not read it from the memo.
        let mut pairs = match Rc::try_unwrap(dict.object) {
            Ok(Object::Dict(pairs)) => pairs,
            Ok(_) => Vec::new(),
            Err(shared) => match &*shared {
                Object::Dict(pairs) => {
                    self.copied(pairs.len())?;
                    pairs.clone()
                }
                _ => Vec::new(),
            },
        };
        let mut items = items.into_iter();
        while let (Some(key), Some(value)) = (items.next(), items.next()) {
            pairs.push((key, value));
        }
        dict = Item { object: Rc::new(Object::Dict(pairs)), depth: dict.depth.max(depth) };
        self.stack.push(dict);
        Ok(())
    }
}

fn deeper(items: &[Item]) -> Result<u8> {
    let depth = items.iter().map(|item| item.depth).max().unwrap_or(0) + 1;
    ensure!(depth < DEPTH, "its values are nested too deeply");
    Ok(depth)
}

/// Reads the id of a storage: `("storage", class, key, device, length)`.
fn storage(id: &Item) -> Object {
    let [kind, class, key, _, _, rest @ ..] = id.tuple() else { return Object::Other };
    let (Some("storage"), Object::Global(class), Some(key)) = (kind.text(), &*class.object, key.text()) else {
        return Object::Other;
    };
    if rest.iter().any(|view| !matches!(*view.object, Object::None)) {
        return Object::Unsupported("a view of a storage".to_owned());
    }
    match coding(class) {
        Some(coding) => Object::Storage(key.to_owned(), coding),
        None => Object::Unsupported(class.clone()),
    }
}

/// Returns the encoding for the class of a storage or for a type.
fn coding(class: &str) -> Option<Coding> {
    Some(match class {
        "torch.FloatStorage" | "torch.float32" => Coding::F32,
        "torch.DoubleStorage" | "torch.float64" => Coding::F64,
        "torch.HalfStorage" | "torch.float16" => Coding::F16,
        "torch.BFloat16Storage" | "torch.bfloat16" => Coding::BF16,
        "torch.LongStorage" | "torch.int64" => Coding::I64,
        "torch.IntStorage" | "torch.int32" => Coding::I32,
        "torch.CharStorage" | "torch.int8" => Coding::I8,
        "torch.ByteStorage" | "torch.BoolStorage" | "torch.uint8" | "torch.bool" => Coding::U8,
        "torch.storage.UntypedStorage" | "torch.UntypedStorage" => Coding::U8,
        "torch.Float8_e4m3fnStorage" | "torch.float8_e4m3fn" => Coding::F8E4M3,
        "torch.Float8_e5m2Storage" | "torch.float8_e5m2" => Coding::F8E5M2,
        _ => return None,
    })
}

/// Evaluates a call that makes a tensor, a parameter or an empty dictionary. The result of another call that makes a
/// tensor is [`Object::Unsupported`], and that of any other call [`Object::Other`].
fn call(function: &Item, args: &Item) -> Result<Item> {
    let Object::Global(name) = &*function.object else { return Ok(Item::new(Object::Other)) };
    let args = args.tuple();
    let object = match (name.as_str(), args) {
        ("torch._utils._rebuild_tensor_v3", [_, _, _, _, _, _, kind, rest @ ..]) => match &*kind.object {
            Object::Global(kind) => tensor(args, coding(kind).ok_or(kind.as_str()).map(Some), rest)?,
            _ => Object::Other,
        },
        ("torch._utils._rebuild_tensor_v2" | "torch._utils._rebuild_tensor", _) => {
            tensor(args, Ok(None), args.get(6..).unwrap_or_default())?
        }
        ("torch._utils._rebuild_parameter" | "torch._utils._rebuild_parameter_with_state", [tensor, ..]) => {
            return Ok(tensor.clone());
        }
        ("collections.OrderedDict", []) => Object::Dict(Vec::new()),
        (name, _) if name.starts_with("torch.") && name.contains("._rebuild_") => Object::Unsupported(name.to_owned()),
        _ => Object::Other,
    };
    Ok(Item::new(object))
}

/// Builds a tensor from a storage, an offset, a shape and strides. `kind` is the encoding if the storage has none, or
/// the name of an unsupported one. `metadata` lists changes of the values.
fn tensor(args: &[Item], kind: Result<Option<Coding>, &str>, metadata: &[Item]) -> Result<Object> {
    let sizes = |item: &Item| item.tuple().iter().map(Item::int).collect::<Option<Vec<usize>>>();
    let [storage, offset, shape, strides, ..] = args else { return Ok(Object::Other) };
    let (key, stored) = match &*storage.object {
        Object::Storage(key, coding) => (key, coding),
        Object::Unsupported(what) => return Ok(Object::Unsupported(what.clone())),
        _ => return Ok(Object::Other),
    };
    let coding = match kind {
        Ok(kind) => kind.unwrap_or_else(|| stored.clone()),
        Err(kind) => return Ok(Object::Unsupported(kind.to_owned())),
    };
    // Views of negated or conjugated values store the values before the change.
    if metadata.iter().any(|changes| matches!(&*changes.object, Object::Dict(changes) if !changes.is_empty())) {
        return Ok(Object::Unsupported("the metadata of a view".to_owned()));
    }
    let (Some(offset), Some(shape), Some(strides)) = (offset.int(), sizes(shape), sizes(strides)) else {
        return Ok(Object::Other);
    };
    ensure!(shape.len() == strides.len() && shape.len() <= 8, "a tensor's shape and strides do not fit");
    let most = 1usize << 40;
    ensure!(
        offset < most
            && shape.iter().chain(&strides).all(|n| *n < most)
            && shape.iter().try_fold(1usize, |all, n| all.checked_mul(*n)).is_some_and(|all| all < most),
        "a tensor is larger than any file"
    );
    Ok(Object::Tensor(Tensor { key: key.clone(), coding, offset, shape, strides }))
}

fn take<'b>(rest: &mut &'b [u8], len: usize) -> Result<&'b [u8]> {
    let (taken, after) = rest.split_at_checked(len).context("it is cut short")?;
    *rest = after;
    Ok(taken)
}

fn array<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N]> {
    let (taken, after) = rest.split_first_chunk().context("it is cut short")?;
    *rest = after;
    Ok(*taken)
}

fn line(rest: &mut &[u8]) -> Result<String> {
    let end = rest.iter().position(|byte| *byte == b'\n').context("it is cut short")?;
    let text = String::from_utf8_lossy(&rest[..end]).into_owned();
    *rest = &rest[end + 1..];
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of `pickle.dumps({"a": 1, "b": [True, None]}, 2)`, and a call of `os.system`.
    #[test]
    fn nothing_is_run() {
        let plain = b"\x80\x02}q\x00(X\x01\x00\x00\x00aq\x01K\x01X\x01\x00\x00\x00bq\x02]q\x03(\x88Neu.";
        let top = Machine::default().run(&mut &plain[..]).unwrap();
        let Object::Dict(dict) = &*top.object else { panic!() };
        assert_eq!((dict[0].0.text(), dict[0].1.int()), (Some("a"), Some(1)));
        assert_eq!(dict[1].1.tuple().len(), 2);
        let hostile = b"\x80\x02cposix\nsystem\nX\x04\x00\x00\x00true\x85R.";
        assert!(matches!(*Machine::default().run(&mut &hostile[..]).unwrap().object, Object::Other));
    }

    #[test]
    fn damaged_programs_are_refused() {
        for program in
            [&b"\x80\x02"[..], b"u.", b"R.", b"q\x00.", b"h\x07.", b"t.", b"i.", b"X\xff\xff\xff\xff.", b"0."]
        {
            assert!(Machine::default().run(&mut &program[..]).is_err(), "{program:?}");
        }
        let slow = [&b"]"[..], &b"Na".repeat(1 << 14), b"."].concat();
        assert!(Machine::default().run(&mut &slow[..]).is_err());
        let mut deep = b"N".to_vec();
        deep.extend([0x85; 100]);
        deep.push(b'.');
        assert!(Machine::default().run(&mut &deep[..]).is_err());
        assert!(read(b"PK\x03\x04").is_err());
    }

    /// The beginning of torch.save's files with `_use_new_zipfile_serialization=False`, by torch 2.15.
    const BEGIN: &[u8] =
        b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.\x80\x02}q\x00(X\x10\x00\x00\x00protocol_v\
              ersionq\x01M\xe9\x03X\r\x00\x00\x00little_endianq\x02\x88X\n\x00\x00\x00type_sizesq\x03}q\x04(X\x05\
              \x00\x00\x00shortq\x05K\x02X\x03\x00\x00\x00intq\x06K\x04X\x04\x00\x00\x00longq\x07K\x04uu.";

    /// `{"module._orig_mod.a": torch.arange(6, dtype=torch.bfloat16).view(2, 3).t(),
    /// "b": torch.tensor([1.5, -2.0]).to(torch.float8_e4m3fn)}`.
    const OLD_FORM: &[u8] =
        b"\x80\x02}q\x00(X\x12\x00\x00\x00module._orig_mod.aq\x01ctorch._utils\n_rebuild_tensor_v2\nq\x02((X\
              \x07\x00\x00\x00storageq\x03ctorch\nBFloat16Storage\nq\x04X\x0e\x00\x00\x0094378975907040q\x05X\x03\
              \x00\x00\x00cpuq\x06K\x06Ntq\x07QK\x00K\x03K\x02\x86q\x08K\x01K\x03\x86q\t\x89ccollections\nOrderedD\
              ict\nq\n)Rq\x0btq\x0cRq\rX\x01\x00\x00\x00bq\x0ectorch._utils\n_rebuild_tensor_v3\nq\x0f((h\x03ctorc\
              h.storage\nUntypedStorage\nq\x10X\x0e\x00\x00\x0094378859576416q\x11h\x06K\x02Ntq\x12QK\x00K\x02\x85\
              q\x13K\x01\x85q\x14\x89h\n)Rq\x15ctorch\nfloat8_e4m3fn\nq\x16tq\x17Rq\x18u.\x80\x02]q\x00(X\x0e\x00\
              \x00\x0094378859576416q\x01X\x0e\x00\x00\x0094378975907040q\x02e.\x02\x00\x00\x00\x00\x00\x00\x00<\
              \xc0\x06\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80?\x00@@@\x80@\xa0@";
    /// `{"a": torch._neg_view(torch.ones(2))}`.
    const NEGATED: &[u8] =
        b"\x80\x02}q\x00X\x01\x00\x00\x00aq\x01ctorch._utils\n_rebuild_tensor_v2\nq\x02((X\x07\x00\x00\x00stor\
              ageq\x03ctorch\nFloatStorage\nq\x04X\x0e\x00\x00\x0094378975914432q\x05X\x03\x00\x00\x00cpuq\x06K\
              \x02Ntq\x07QK\x00K\x02\x85q\x08K\x01\x85q\t\x89ccollections\nOrderedDict\nq\n)Rq\x0b}q\x0cX\x03\x00\
              \x00\x00negq\r\x88stq\x0eRq\x0fs.\x80\x02]q\x00X\x0e\x00\x00\x0094378975914432q\x01a.\x02\x00\x00\
              \x00\x00\x00\x00\x00\x00\x00\x80?\x00\x00\x80?";
    /// `{"a": torch.eye(2).to_sparse()}`.
    const SPARSE: &[u8] =
        b"\x80\x02}q\x00X\x01\x00\x00\x00aq\x01ctorch._utils\n_rebuild_sparse_tensor\nq\x02ctorch.serializatio\
              n\n_get_layout\nq\x03X\x10\x00\x00\x00torch.sparse_cooq\x04\x85q\x05Rq\x06(ctorch._utils\n_rebuild_t\
              ensor_v2\nq\x07((X\x07\x00\x00\x00storageq\x08ctorch\nLongStorage\nq\tX\x0e\x00\x00\x009437897610302\
              4q\nX\x03\x00\x00\x00cpuq\x0bK\x04Ntq\x0cQK\x00K\x02K\x02\x86q\rK\x02K\x01\x86q\x0e\x89ccollections\
              \nOrderedDict\nq\x0f)Rq\x10tq\x11Rq\x12h\x07((h\x08ctorch\nFloatStorage\nq\x13X\x0e\x00\x00\x0094378\
              859733568q\x14h\x0bK\x02Ntq\x15QK\x00K\x02\x85q\x16K\x01\x85q\x17\x89h\x0f)Rq\x18tq\x19Rq\x1actorch\
              \nSize\nq\x1bK\x02K\x02\x86q\x1c\x85q\x1dRq\x1e\x88tq\x1f\x86q Rq!s.\x80\x02]q\x00(X\x0e\x00\x00\x00\
              94378859733568q\x01X\x0e\x00\x00\x0094378976103024q\x02e.\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\
              \x80?\x00\x00\x80?\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\
              \x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00";

    #[test]
    fn the_form_before_version_1_6() {
        let file = [BEGIN, OLD_FORM].concat();
        assert!(is_torch(&file));
        let tensors = read(&file).unwrap().tensors;
        let values = |leaf: &Leaf<'_>| {
            let mut out = vec![0.0; leaf.shape.iter().product()];
            leaf.decode(0, 1, &mut out);
            out
        };
        let [a, b] = &tensors[..] else { panic!("two tensors") };
        assert_eq!((a.name.as_str(), &a.shape[..], &a.strides[..]), ("a", &[3, 2][..], &[1, 3][..]));
        assert_eq!(values(a), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!((b.name.as_str(), values(b)), ("b", vec![1.5, -2.0]));
        for end in 0..file.len() {
            assert!(read(&file[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn tensors_that_cannot_be_read_are_named() {
        for (file, says) in
            [(NEGATED, "the tensor a needs the metadata"), (SPARSE, "the tensor a needs torch._utils._rebuild_sparse")]
        {
            let error = read(&[BEGIN, file].concat()).err().unwrap().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
