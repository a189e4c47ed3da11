//! Python's pickle machine, with only the operations that build tensors, numbers, texts and collections of them. A
//! pickle that calls anything else gets a value that is not a tensor; the named function is never run.

use std::collections::HashMap;
use std::rc::Rc;

use anyhow::{Context, Result, bail, ensure};

use crate::checkpoint::leaf::Coding;

/// Maximum nesting of values.
const DEPTH: u8 = 60;
/// Maximum number of references to values that a pickle may copy. The dictionary of the largest models needs far fewer.
const COPIES: usize = 1 << 26;

/// A tensor: the location of its values.
#[derive(Debug)]
pub struct Tensor {
    pub key: String,
    pub coding: Coding,
    pub offset: usize,
    pub shape: Vec<usize>,
    pub strides: Vec<usize>,
}

/// A value of the pickle machine.
#[derive(Debug)]
pub enum Object {
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
pub struct Item {
    pub object: Rc<Object>,
    depth: u8,
}

impl Item {
    fn new(object: Object) -> Self {
        Self { object: Rc::new(object), depth: 0 }
    }

    pub fn text(&self) -> Option<&str> {
        match &*self.object {
            Object::Text(text) => Some(text),
            _ => None,
        }
    }

    pub fn int(&self) -> Option<usize> {
        match *self.object {
            Object::Int(value) => usize::try_from(value).ok(),
            _ => None,
        }
    }

    pub fn tuple(&self) -> &[Self] {
        match &*self.object {
            Object::Tuple(items) => items,
            _ => &[],
        }
    }
}

/// The pickle machine.
#[derive(Default)]
pub struct Machine {
    stack: Vec<Item>,
    /// Positions of marks on the stack.
    marks: Vec<usize>,
    memo: HashMap<u32, Item>,
    /// Bytes per value of each storage.
    pub sizes: HashMap<String, usize>,
    copies: usize,
}

impl Machine {
    /// Runs the program at the start of `rest`, and removes it.
    pub fn run(&mut self, rest: &mut &[u8]) -> Result<Item> {
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
            other => bail!("the operation {other:#x} is not supported: tensors and settings do not need it"),
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

    /// Runs an operation that stores an object under a number or loads it by its number (pickle's memo). Returns false
    /// for other operations.
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

    /// Counts references that are copied while the pickle runs, because their number can grow with the square of the
    /// number of steps. Fails above a limit.
    fn copied(&mut self, count: usize) -> Result<()> {
        self.copies += count;
        ensure!(self.copies < COPIES, "it builds its dictionary in too many steps");
        Ok(())
    }

    /// Runs the operation that sets the attributes of an object. Objects that already have attributes, and
    /// dictionaries, are not changed.
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
        // A memoized dictionary is copied, so the dictionary in the memo does not get these items. Programs that store
        // tensors do not read the dictionary from the memo.
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

/// Returns the encoding of values for the name of a torch storage class or type; `None` if the name is unknown.
fn coding(class: &str) -> Option<Coding> {
    Some(match class {
        "torch.FloatStorage" | "torch.float32" => Coding::F32,
        "torch.DoubleStorage" | "torch.float64" => Coding::F64,
        "torch.HalfStorage" | "torch.float16" => Coding::F16,
        "torch.BFloat16Storage" | "torch.bfloat16" => Coding::BF16,
        "torch.LongStorage" | "torch.int64" => Coding::I64,
        "torch.IntStorage" | "torch.int32" => Coding::I32,
        "torch.ShortStorage" | "torch.int16" => Coding::I16,
        "torch.CharStorage" | "torch.int8" => Coding::I8,
        "torch.ByteStorage" | "torch.BoolStorage" | "torch.uint8" | "torch.bool" => Coding::U8,
        "torch.storage.UntypedStorage" | "torch.UntypedStorage" => Coding::U8,
        "torch.Float8_e4m3fnStorage" | "torch.float8_e4m3fn" => Coding::F8E4M3,
        "torch.Float8_e5m2Storage" | "torch.float8_e5m2" => Coding::F8E5M2,
        _ => return None,
    })
}

/// Evaluates a call that makes a tensor, a parameter, a shape or an empty dictionary. The result is
/// [`Object::Unsupported`] for an unknown call that makes a tensor, and [`Object::Other`] for all other calls.
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
        ("torch.Size", [sizes]) => return Ok(sizes.clone()),
        ("collections.OrderedDict", []) => Object::Dict(Vec::new()),
        (name, _) if name.starts_with("torch.") && name.contains("._rebuild_") => Object::Unsupported(name.to_owned()),
        _ => Object::Other,
    };
    Ok(Item::new(object))
}

/// Builds a tensor from a storage, an offset, a shape and strides. `kind` is the encoding if the storage does not state
/// it, or the name of an unsupported encoding. `metadata` lists changes of the values.
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
    // The metadata of a view says that its values are negated or conjugated. This is not supported, because the stored
    // values are those before the change.
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

pub fn take<'b>(rest: &mut &'b [u8], len: usize) -> Result<&'b [u8]> {
    let (taken, after) = rest.split_at_checked(len).context("it is cut short")?;
    *rest = after;
    Ok(taken)
}

pub fn array<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N]> {
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

    /// The tested bytes are the output of `pickle.dumps({"a": 1, "b": [True, None]}, 2)`, and a pickle that calls
    /// `os.system`.
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
    }
}
