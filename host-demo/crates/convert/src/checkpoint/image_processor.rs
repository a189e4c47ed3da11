//! The settings of a checkpoint's image processor. They become metadata of the projector; missing settings have the
//! defaults of the processor's class.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::config;

/// Mean and standard deviation of the colors in the pictures that CLIP was trained with.
const CLIP: [[f32; 3]; 2] = [[0.481_454_66, 0.457_827_5, 0.408_210_73], [0.268_629_54, 0.261_302_6, 0.275_777_1]];
/// Maps colors to -1 to 1.
const HALVES: [[f32; 3]; 2] = [[0.5; 3]; 2];
/// Maximum number of pixels that the encoder accepts from a file; larger limits in the settings are lowered to this
/// number.
const MOST_PIXELS: u64 = 1 << 26;

/// The sizes of the encoder of pictures. The settings of the image processor must agree with them.
pub struct Sizes {
    pub patch: u32,
    /// Side of a block of patches that becomes one row.
    pub merge: u32,
    /// Side of the pictures.
    pub image: u32,
}

/// The settings of an image processor.
pub struct ImageProcessor {
    /// The kind of projector.
    kind: &'static str,
    values: Value,
}

impl ImageProcessor {
    /// Returns true if the folder has no settings of an image processor: only the text model is converted then.
    pub fn is_absent(folder: &Path) -> bool {
        ["processor_config.json", "preprocessor_config.json"].iter().all(|name| !folder.join(name).is_file())
    }

    /// Reads the settings. Settings in `processor_config.json` take precedence over settings in
    /// `preprocessor_config.json`.
    pub fn read(folder: &Path, kind: &'static str) -> Result<Self> {
        let read = |name: &str| {
            let path = folder.join(name);
            path.is_file().then(|| config::json(&path)).transpose()
        };
        let nested = read("processor_config.json")?.map(|mut processor| processor["image_processor"].take());
        let mut values = match nested.filter(Value::is_object) {
            Some(nested) => nested,
            None => read("preprocessor_config.json")?.context(
                "there is neither preprocessor_config.json nor a processor_config.json with an image_processor: copy \
                 the model's there",
            )?,
        };
        if let Some(side) = values["size"].as_u64() {
            values["size"] = json!({ "height": side, "width": side });
        }
        Ok(Self { kind, values })
    }

    /// Returns the setting at `path`. A null counts as a missing setting.
    fn get(&self, path: &str) -> Option<&Value> {
        self.values.pointer(&format!("/{path}")).filter(|value| !value.is_null())
    }

    /// An integer, by its path.
    pub fn number(&self, path: &str) -> Option<u64> {
        self.get(path)?.as_u64()
    }

    /// Returns the maximum length of the longer side of a picture; the shorter side is scaled in proportion. `usual` is
    /// returned if the processor has no sizes.
    pub fn longest_edge(&self, usual: u64) -> Result<u32> {
        let square = self.number("size/height").filter(|height| self.number("size/width") == Some(*height));
        let longest = match self.get("size") {
            None => Some(usual),
            Some(_) if self.kind == "pixtral" => self.number("size/longest_edge").or(square),
            Some(_) => self.number("size/longest_edge"),
        };
        Ok(u32::try_from(longest.context("the image processor's size has no longest_edge")?)?)
    }

    /// The least and the largest number of pixels of a picture (Qwen), or of one view of a picture (LFM2); `cell` is
    /// the side in pixels of the patches that become one row.
    pub fn pixels(&self, cell: u32) -> Result<[(&'static str, u32); 2]> {
        if self.kind == "lfm2" {
            let limit = |name, usual| {
                let pixels = self.number(name).unwrap_or(usual).saturating_mul(u64::from(cell) * u64::from(cell));
                pixels.min(MOST_PIXELS) as u32
            };
            let (least, most) = (limit("min_image_tokens", 64), limit("max_image_tokens", 256));
            return Ok([("image_min_pixels", least), ("image_max_pixels", most)]);
        }
        let limit = |names: [&str; 3], usual| {
            let given = names.into_iter().find_map(|name| self.number(name));
            let is_missing = given.is_none() && self.get("size").is_some();
            ensure!(!is_missing, "the image processor's size has no {}", &names[2][5..]);
            Ok(given.unwrap_or(usual).min(MOST_PIXELS) as u32)
        };
        let least = limit(["min_pixels", "size/min_pixels", "size/shortest_edge"], 56 * 56)?;
        let most = limit(["max_pixels", "size/max_pixels", "size/longest_edge"], 28 * 28 * 1280)?;
        Ok([("image_min_pixels", least), ("image_max_pixels", most)])
    }

    /// Returns the mean and the standard deviation of each color, for colors from 0 to 1. If the processor scales
    /// colors in another way, the scale is included in these numbers.
    pub fn colors(&self) -> Result<[(&'static str, [f32; 3]); 2]> {
        let is = |name: &str| self.get(name).is_none_or(|value| value != false);
        let [mean, std] = match self.kind {
            "idefics3" | "gemma3" | "lfm2" => HALVES,
            _ => CLIP,
        };
        let (mean, std) = match is("do_normalize") {
            true => (self.color("image_mean", mean)?, self.color("image_std", std)?),
            false => ([0.0; 3], [1.0; 3]),
        };
        let factor = self.get("rescale_factor").and_then(Value::as_f64).unwrap_or(1.0 / 255.0);
        let scale = if is("do_rescale") { factor * 255.0 } else { 255.0 };
        ensure!(
            scale > 0.0 && scale.is_finite(),
            "the image processor's rescale_factor is {factor}, which is no scale"
        );
        let scaled = |color: [f32; 3]| color.map(|value| (f64::from(value) / scale) as f32);
        Ok([("image_mean", scaled(mean)), ("image_std", scaled(std))])
    }

    /// A number for each of red, green and blue.
    fn color(&self, name: &str, usual: [f32; 3]) -> Result<[f32; 3]> {
        let color = match self.get(name) {
            None => Some(usual),
            Some(Value::Array(values)) => {
                let values: Option<Vec<f32>> = values.iter().map(|value| Some(value.as_f64()? as f32)).collect();
                values.and_then(|values| values.try_into().ok())
            }
            Some(value) => value.as_f64().map(|value| [value as f32; 3]),
        };
        color.with_context(|| format!("the image processor's {name} is not three numbers"))
    }

    /// Refuses a setting that a projector's file cannot express, if its value is not the one that the encoder implies.
    pub fn check(&self, sizes: &Sizes) -> Result<()> {
        for (name, wanted) in self.fixed(sizes) {
            let Some(found) = self.get(name).filter(|found| !is_equal(found, &wanted)) else { continue };
            bail!("the image processor's {name} is {found}, and only {wanted} is implemented: set it to that")
        }
        Ok(())
    }

    /// Returns the settings that the file of a projector cannot express, each with the value that the encoder implies
    /// for it.
    fn fixed(&self, &Sizes { patch, merge, image }: &Sizes) -> Vec<(&'static str, Value)> {
        let resample = match self.kind {
            "idefics3" => 1,
            "gemma3" | "lfm2" => 2,
            _ => 3,
        };
        let mut fixed = vec![("resample", json!(resample))];
        // `do_resize` is not compared for these two kinds of processors, because their classes always resize pictures.
        if !matches!(self.kind, "lfm2" | "internvl") {
            fixed.push(("do_resize", json!(true)));
        }
        fixed.extend(match self.kind {
            "idefics3" => vec![("max_image_size/longest_edge", json!(image))],
            "gemma3" | "internvl" => vec![("size/height", json!(image)), ("size/width", json!(image))],
            "lfm2" => vec![
                ("downsample_factor", json!(merge)),
                ("encoder_patch_size", json!(patch)),
                ("do_image_splitting", json!(true)),
                ("use_thumbnail", json!(true)),
                ("min_tiles", json!(2)),
                ("max_tiles", json!(10)),
                ("tile_size", json!(512)),
                ("max_pixels_tolerance", json!(2)),
            ],
            "pixtral" => vec![("do_center_crop", json!(false))],
            _ => vec![("patch_size", json!(patch)), ("merge_size", json!(merge)), ("temporal_patch_size", json!(2))],
        });
        // `do_image_splitting` has no effect if the longest side of a picture is at most one tile, because such a
        // picture is always one view.
        if self.kind == "idefics3" && self.number("size/longest_edge") != Some(image.into()) {
            fixed.push(("do_image_splitting", json!(true)));
        }
        fixed
    }
}

/// Compares settings; 2 and 2.0 are equal.
fn is_equal(a: &Value, b: &Value) -> bool {
    a == b || a.as_f64().is_some_and(|a| b.as_f64() == Some(a))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn of(kind: &'static str, values: Value) -> ImageProcessor {
        ImageProcessor { kind, values }
    }

    #[test]
    fn nested_settings_are_used_before_those_of_the_other_file() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, json: Value| fs::write(folder.path().join(name), json.to_string()).unwrap();
        let mean = || ImageProcessor::read(folder.path(), "gemma3").unwrap().colors().unwrap()[0].1;
        assert!(ImageProcessor::read(folder.path(), "gemma3").is_err());
        write("processor_config.json", json!({ "image_mean": [0.3, 0.3, 0.3] }));
        write("preprocessor_config.json", json!({ "image_mean": [0.1, 0.1, 0.1] }));
        assert_eq!(mean(), [0.1; 3]);
        write("processor_config.json", json!({ "image_processor": { "image_mean": [0.2, 0.2, 0.2] } }));
        assert_eq!(mean(), [0.2; 3]);
    }

    #[test]
    fn limits_of_pixels_are_those_of_the_class() {
        for (values, wanted) in [
            (json!({}), (3136, 1_003_520)),
            (json!({ "size": { "shortest_edge": 65536, "longest_edge": 16_777_216 } }), (65536, 16_777_216)),
            (json!({ "min_pixels": 3136, "max_pixels": 4704 }), (3136, 4704)),
            (json!({ "size": { "shortest_edge": 1, "longest_edge": 2 }, "max_pixels": 4704 }), (1, 4704)),
            (json!({ "size": { "min_pixels": 5, "max_pixels": 6 }, "min_pixels": null }), (5, 6)),
        ] {
            let [(_, least), (_, most)] = of("qwen3vl_merger", values.clone()).pixels(32).unwrap();
            assert_eq!((least, most), wanted, "{values}");
        }
        assert!(of("qwen3vl_merger", json!({ "size": { "height": 5 } })).pixels(32).is_err());
    }

    #[test]
    fn colors_have_the_scale_of_the_processor() {
        for (kind, values, mean, std) in [
            ("gemma3", json!({}), [0.5; 3], [0.5; 3]),
            ("internvl", json!({ "image_std": null }), CLIP[0], CLIP[1]),
            ("gemma3", json!({ "image_mean": 0.25, "image_std": [1, 2, 3] }), [0.25; 3], [1.0, 2.0, 3.0]),
            ("gemma3", json!({ "do_normalize": false }), [0.0; 3], [1.0; 3]),
            // With this `rescale_factor`, a color x from 0 to 1 becomes 2 x, and then (2 x - 0.5) / 0.5. This is the
            // same as (x - 0.25) / 0.25.
            ("gemma3", json!({ "rescale_factor": 2.0 / 255.0 }), [0.25; 3], [0.25; 3]),
            ("gemma3", json!({ "do_rescale": false, "do_normalize": false }), [0.0; 3], [1.0 / 255.0; 3]),
        ] {
            let [(_, found), (_, deviation)] = of(kind, values.clone()).colors().unwrap();
            assert_eq!((found, deviation), (mean, std), "{values}");
        }
        for wrong in [json!([0.5]), json!("0.5"), json!([0.5, 0.5, null])] {
            assert!(of("gemma3", json!({ "image_mean": wrong })).colors().is_err());
        }
    }

    #[test]
    fn settings_that_change_the_pixels_are_refused() {
        let sizes = Sizes { patch: 14, merge: 2, image: 64 };
        for (kind, values, wanted) in [
            ("gemma3", json!({ "resample": 2, "do_resize": true, "size": { "height": 64, "width": 64 } }), None),
            ("gemma3", json!({ "resample": 3 }), Some("resample")),
            ("gemma3", json!({ "do_resize": false }), Some("do_resize")),
            ("gemma3", json!({ "size": { "height": 64, "width": 32 } }), Some("size/width")),
            ("idefics3", json!({ "do_image_splitting": false }), Some("do_image_splitting")),
            ("idefics3", json!({ "do_image_splitting": false, "size": { "longest_edge": 64 } }), None),
            ("lfm2", json!({ "max_pixels_tolerance": 2.0, "max_image_tokens": 64, "do_resize": false }), None),
            ("lfm2", json!({ "max_tiles": 4 }), Some("max_tiles")),
            ("lfm2", json!({ "use_thumbnail": false }), Some("use_thumbnail")),
            ("pixtral", json!({ "do_center_crop": true }), Some("do_center_crop")),
            ("qwen3vl_merger", json!({ "patch_size": 16 }), Some("patch_size")),
        ] {
            let error = of(kind, values.clone()).check(&sizes).err().map(|error| error.to_string());
            match wanted {
                None => assert_eq!(error, None, "{values}"),
                Some(name) => {
                    let start = format!("the image processor's {name} is ");
                    assert!(error.as_ref().is_some_and(|error| error.starts_with(&start)), "{values}: {error:?}");
                }
            }
        }
    }
}
