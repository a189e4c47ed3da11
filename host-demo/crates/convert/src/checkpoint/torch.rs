//! Reads torch's files (`.pt`, `.pth`, `.bin`) without executing code from them.

pub mod pickle;

use std::collections::HashMap;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value as Json};

use self::pickle::{Item, Machine, Object, array, take};
use super::leaf::Leaf;

/// The tensors of a file.
pub struct TorchFile<'f> {
    pub tensors: Vec<Leaf<'f>>,
    /// Numbers and texts stored with the tensors.
    pub settings: Option<Json>,
}

/// First bytes of files that torch wrote before version 1.6: a pickled magic number.
const OLD: &[u8] = b"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";

/// Returns true for a torch file: a zip file, or the format before version 1.6.
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
    let named =
        |names: &[&str]| dict.iter().find_map(|(key, value)| names.contains(&key.text()?).then_some(&*value.object));
    // `head`: what kev's training adds to a model.
    let state = named(&["model", "state_dict", "model_state_dict", "module"]).or_else(|| named(&["head"]));
    if let Some(Object::Dict(state)) = state {
        add(&mut tensors, state, &files)?;
        if let Json::Object(own) = plain(dict) {
            settings.extend(own);
        }
        for (key, value) in dict {
            if let (Some(key), Object::Dict(inner)) = (key.text(), &*value.object) {
                settings.insert(key.to_owned(), plain(inner));
            }
        }
    } else {
        add(&mut tensors, dict, &files)?;
        let layers = dict.iter().filter_map(|(key, value)| match &*value.object {
            Object::Dict(layer) => Some((key.text()?, layer)),
            _ => None,
        });
        // HQQ stores a dictionary for each layer.
        if layers.clone().any(|(_, layer)| layer.iter().any(|(key, _)| key.text() == Some("W_q"))) {
            for (name, layer) in layers {
                let first = tensors.len();
                add(&mut tensors, layer, &files)?;
                tensors[first..].iter_mut().for_each(|leaf| leaf.name = format!("{name}.{}", leaf.name));
                settings.insert(name.to_owned(), plain(layer));
            }
        }
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

/// Reads a file that torch wrote before version 1.6. It consists of a magic number, a version, facts about the machine,
/// the dictionary and the keys of the storages. Then follow, for each key, the number of values and the values.
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

/// Lists the files in a zip file. torch does not compress these files.
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
        let Some(name) = key.text() else { continue };
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

/// Returns the numbers, texts and shapes of a dictionary.
fn plain(dict: &[(Item, Item)]) -> Json {
    let values = dict.iter().filter_map(|(key, value)| {
        let value = match &*value.object {
            Object::None => Json::Null,
            Object::Bool(value) => (*value).into(),
            Object::Int(value) => (*value).into(),
            Object::Float(value) => (*value).into(),
            Object::Text(text) => text.as_str().into(),
            Object::Tuple(sizes) => sizes.iter().map(Item::int).collect::<Option<Vec<usize>>>()?.into(),
            _ => return None,
        };
        Some((key.text()?.to_owned(), value))
    });
    Json::Object(values.collect())
}
#[cfg(test)]
mod tests {
    use super::*;

    /// The first bytes of a file that torch.save of torch 2.15 writes with `_use_new_zipfile_serialization=False`.
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

    /// A pickled dictionary of two layers, as HQQ stores them: `{"a": {"W_q": torch.tensor([[0x21]],
    /// dtype=torch.uint8), "shape": torch.Size([1, 2]), "nbits": 4, "packing": "4bit_u8", "view_as_float": False,
    /// "scale": torch.tensor([[0.5]], dtype=torch.float16)}, "n": {"weight": torch.tensor([2.0])}}`.
    const LAYERS: &[u8] =
        b"\x80\x02}q\x00(X\x01\x00\x00\x00aq\x01}q\x02(X\x03\x00\x00\x00W_qq\x03ctorch._utils\n_rebuild_tensor_v2\nq\x04((X\
              \x07\x00\x00\x00storageq\x05ctorch\nByteStorage\nq\x06X\x0e\x00\x00\x0094909314309888q\x07X\x03\x00\x00\x00cpuq\x08\
              K\x01Ntq\tQK\x00K\x01K\x01\x86q\nK\x01K\x01\x86q\x0b\x89ccollections\nOrderedDict\nq\x0c)Rq\rtq\x0eRq\x0fX\x05\
              \x00\x00\x00shapeq\x10ctorch\nSize\nq\x11K\x01K\x02\x86q\x12\x85q\x13Rq\x14X\x05\x00\x00\x00nbitsq\x15K\x04X\x07\
              \x00\x00\x00packingq\x16X\x07\x00\x00\x004bit_u8q\x17X\r\x00\x00\x00view_as_floatq\x18\x89X\x05\x00\x00\x00scale\
              q\x19h\x04((h\x05ctorch\nHalfStorage\nq\x1aX\x0e\x00\x00\x0094909197023008q\x1bh\x08K\x01Ntq\x1cQK\x00K\x01K\x01\
              \x86q\x1dK\x01K\x01\x86q\x1e\x89h\x0c)Rq\x1ftq Rq!uX\x01\x00\x00\x00nq\"}q#X\x06\x00\x00\x00weightq$h\x04((h\x05c\
              torch\nFloatStorage\nq%X\x0e\x00\x00\x0094909197028256q&h\x08K\x01Ntq'QK\x00K\x01\x85q(K\x01\x85q)\x89h\x0c)Rq*tq\
              +Rq,su.\x80\x02]q\x00(X\x0e\x00\x00\x0094909197023008q\x01X\x0e\x00\x00\x0094909197028256q\x02X\x0e\x00\x00\x00949\
              09314309888q\x03e.\x01\x00\x00\x00\x00\x00\x00\x00\x008\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00@\x01\x00\
              \x00\x00\x00\x00\x00\x00!";

    #[test]
    fn a_dictionary_for_each_layer() {
        let file = [BEGIN, LAYERS].concat();
        let TorchFile { tensors, settings } = read(&file).unwrap();
        let names: Vec<&str> = tensors.iter().map(|leaf| leaf.name.as_str()).collect();
        assert_eq!((names, tensors[0].bytes), (vec!["a.W_q", "a.scale", "n.weight"], &b"!"[..]));
        let layer = &settings.unwrap()["a"];
        assert_eq!((&layer["shape"], &layer["packing"]), (&serde_json::json!([1, 2]), &"4bit_u8".into()));
    }

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
        assert_eq!((a.name.as_str(), &a.shape[..], &a.strides[..]), ("module._orig_mod.a", &[3, 2][..], &[1, 3][..]));
        assert_eq!(values(a), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!((b.name.as_str(), values(b)), ("b", vec![1.5, -2.0]));
        for end in 0..file.len() {
            assert!(read(&file[..end]).is_err(), "{end}");
        }
        assert!(read(b"PK\x03\x04").is_err());
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
