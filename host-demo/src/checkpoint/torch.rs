//! torch's zip files (`.pt`, `.pth`, `.bin`): reads the tensors without executing code.
//!
//! The file's `data.pkl` is a program for Python's pickle machine. This module implements only the operations that
//! build tensors, numbers, texts and collections of them. A call of anything else gives a value that is not a tensor;
//! the named function is never run.

use std::collections::HashMap;
use std::rc::Rc;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value as Json};

use super::leaf::{Coding, Leaf};

/// Maximum nesting of values.
const DEPTH: u8 = 60;

/// The tensors of a file.
pub struct TorchFile<'f> {
    pub tensors: Vec<Leaf<'f>>,
    /// Numbers and texts stored with the tensors.
    pub settings: Option<Json>,
}

pub fn read(bytes: &[u8]) -> Result<TorchFile<'_>> {
    let entries = entries(bytes)?;
    let (name, program) = entries
        .iter()
        .find(|(name, _)| name.ends_with("data.pkl"))
        .context("it has no data.pkl: save the model with torch.save or as safetensors")?;
    let folder = name.strip_suffix("data.pkl").unwrap_or_default();
    if let Some((_, order)) = entries.iter().find(|(name, _)| *name == format!("{folder}byteorder")) {
        ensure!(*order == b"little", "it was written on a big-endian machine: not supported");
    }
    let files: HashMap<&str, &[u8]> = entries.iter().map(|(name, data)| (name.as_str(), *data)).collect();
    let top = Machine::default().run(program).context("its data.pkl cannot be read; save the model as safetensors")?;
    let mut tensors = Vec::new();
    let mut settings = Map::new();
    let Object::Dict(dict) = &*top.object else {
        bail!("its data.pkl is not a dictionary of tensors: save the model's state_dict")
    };
    let state = dict.iter().find_map(|(key, value)| {
        matches!(key.text(), Some("model" | "state_dict" | "model_state_dict")).then_some(&*value.object)
    });
    if let Some(Object::Dict(state)) = state {
        add(&mut tensors, state, &files, folder)?;
        for (key, value) in dict {
            if let (Some(key), Object::Dict(inner)) = (key.text(), &*value.object) {
                settings.insert(key.to_owned(), plain(inner));
            }
        }
    } else {
        add(&mut tensors, dict, &files, folder)?;
    }
    ensure!(!tensors.is_empty(), "it has no tensors");
    Ok(TorchFile { tensors, settings: (!settings.is_empty()).then_some(Json::Object(settings)) })
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

fn add<'f>(
    tensors: &mut Vec<Leaf<'f>>,
    dict: &[(Item, Item)],
    files: &HashMap<&str, &'f [u8]>,
    folder: &str,
) -> Result<()> {
    for (key, value) in dict {
        let (Some(name), Object::Tensor(tensor)) = (key.text(), &*value.object) else { continue };
        // `torch.compile` adds this prefix.
        let name = name.strip_prefix("_orig_mod.").unwrap_or(name);
        let bytes = files.get(format!("{folder}data/{}", tensor.key).as_str()).copied();
        let bytes = bytes.with_context(|| format!("the data of {name} is missing"))?;
        let last: usize =
            tensor.shape.iter().zip(&tensor.strides).map(|(n, stride)| n.saturating_sub(1) * stride).sum();
        let size = tensor.coding.size();
        let end = tensor.offset.checked_add(last).and_then(|end| end.checked_add(1)?.checked_mul(size));
        ensure!(
            tensor.shape.iter().product::<usize>() == 0 || end.is_some_and(|end| end <= bytes.len()),
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
    /// The result of an unsupported operation.
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
}

impl Machine {
    fn run(mut self, program: &[u8]) -> Result<Item> {
        let mut rest = program;
        while let Some((op, after)) = rest.split_first() {
            rest = after;
            if *op == b'.' {
                return self.pop();
            }
            self.step(*op, &mut rest)?;
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
                let storage = storage(&id)?;
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
                self.push(Object::Other)
            }
            b'b' => drop(self.pop()?), // BUILD: drops the attributes of the object below
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
            b'C' | b'U' => {
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
        let mut all = list.tuple().to_vec();
        all.extend(items);
        self.tuple(all)
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
                Object::Dict(pairs) => pairs.clone(),
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
fn storage(id: &Item) -> Result<Object> {
    let [kind, class, key, ..] = id.tuple() else { return Ok(Object::Other) };
    let (Some("storage"), Object::Global(class), Some(key)) = (kind.text(), &*class.object, key.text()) else {
        return Ok(Object::Other);
    };
    let coding = match class.as_str() {
        "torch.FloatStorage" => Coding::F32,
        "torch.DoubleStorage" => Coding::F64,
        "torch.HalfStorage" => Coding::F16,
        "torch.BFloat16Storage" => Coding::BF16,
        "torch.LongStorage" => Coding::I64,
        "torch.IntStorage" => Coding::I32,
        "torch.CharStorage" => Coding::I8,
        "torch.ByteStorage" | "torch.BoolStorage" => Coding::U8,
        "torch.Float8_e4m3fnStorage" => Coding::F8E4M3,
        "torch.Float8_e5m2Storage" => Coding::F8E5M2,
        _ => return Ok(Object::Other),
    };
    Ok(Object::Storage(key.to_owned(), coding))
}

/// Evaluates a call that makes a tensor, a parameter or an empty dictionary; any other call gives [`Object::Other`].
fn call(function: &Item, args: &Item) -> Result<Item> {
    let Object::Global(name) = &*function.object else { return Ok(Item::new(Object::Other)) };
    let args = args.tuple();
    match (name.as_str(), args) {
        ("torch._utils._rebuild_tensor_v2" | "torch._utils._rebuild_tensor", [storage, offset, shape, strides, ..]) => {
            let sizes = |item: &Item| item.tuple().iter().map(Item::int).collect::<Option<Vec<usize>>>();
            let (Object::Storage(key, coding), Some(offset), Some(shape), Some(strides)) =
                (&*storage.object, offset.int(), sizes(shape), sizes(strides))
            else {
                return Ok(Item::new(Object::Other));
            };
            ensure!(shape.len() == strides.len() && shape.len() <= 8, "a tensor's shape and strides do not fit");
            let most = 1usize << 40;
            ensure!(
                offset < most
                    && shape.iter().chain(&strides).all(|n| *n < most)
                    && shape.iter().try_fold(1usize, |all, n| all.checked_mul(*n)).is_some_and(|all| all < most),
                "a tensor is larger than any file"
            );
            let tensor = Tensor { key: key.clone(), coding: coding.clone(), offset, shape, strides };
            Ok(Item::new(Object::Tensor(tensor)))
        }
        ("torch._utils._rebuild_parameter", [tensor, ..]) => Ok(tensor.clone()),
        ("collections.OrderedDict", []) => Ok(Item::new(Object::Dict(Vec::new()))),
        _ => Ok(Item::new(Object::Other)),
    }
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
        let top = Machine::default().run(plain).unwrap();
        let Object::Dict(dict) = &*top.object else { panic!() };
        assert_eq!((dict[0].0.text(), dict[0].1.int()), (Some("a"), Some(1)));
        assert_eq!(dict[1].1.tuple().len(), 2);
        let hostile = b"\x80\x02cposix\nsystem\nX\x04\x00\x00\x00true\x85R.";
        assert!(matches!(*Machine::default().run(hostile).unwrap().object, Object::Other));
    }

    #[test]
    fn damaged_programs_are_refused() {
        for program in
            [&b"\x80\x02"[..], b"u.", b"R.", b"q\x00.", b"h\x07.", b"t.", b"i.", b"X\xff\xff\xff\xff.", b"0."]
        {
            assert!(Machine::default().run(program).is_err(), "{program:?}");
        }
        let mut deep = b"N".to_vec();
        deep.extend([0x85; 100]);
        deep.push(b'.');
        assert!(Machine::default().run(&deep).is_err());
        assert!(read(b"PK\x03\x04").is_err());
    }
}
