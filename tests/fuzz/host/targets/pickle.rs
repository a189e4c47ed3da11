//! Any torch file is refused, or gives tensors that lie inside the file; reading it takes memory in proportion to its
//! length.
#![no_main]

use arbitrary::Arbitrary;
use arenite_convert::checkpoint::torch;
use fuzz::list::List;
use fuzz_host::files::Damage;
use libfuzzer_sys::fuzz_target;

/// A program of the pickle machine: `{"w": tensor}` with other steps before and in between.
#[derive(Arbitrary, Debug)]
struct Case {
    steps: List<(u8, Step), 24>,
    shape: (u8, i64),
    offset: i64,
    has_old_form: bool,
    damage: Damage,
}

#[derive(Arbitrary, Debug)]
enum Step {
    Operation(u8),
    Number(i64),
    Text(u8),
    Remember(u8),
    Recall(u8),
    Global(u8),
}

const TEXTS: [&str; 8] = ["w", "model", "state_dict", "0", "storage", "cpu", "torch", "FloatStorage"];
const GLOBALS: [&str; 8] = [
    "torch\nFloatStorage\n",
    "torch\nBFloat16Storage\n",
    "torch\nLongStorage\n",
    "torch._utils\n_rebuild_tensor_v2\n",
    "torch._utils\n_rebuild_parameter\n",
    "collections\nOrderedDict\n",
    "os\nsystem\n",
    "torch\nfloat8_e4m3fn\n",
];

fn text(program: &mut Vec<u8>, text: &str) {
    program.push(b'X');
    program.extend((text.len() as u32).to_le_bytes());
    program.extend(text.as_bytes());
}

fn number(program: &mut Vec<u8>, value: i64) {
    program.extend([0x8a, 8]);
    program.extend(value.to_le_bytes());
}

impl Step {
    fn write(&self, program: &mut Vec<u8>) {
        match self {
            Self::Operation(operation) => program.push(*operation),
            Self::Number(value) => number(program, *value),
            Self::Text(at) => text(program, TEXTS[usize::from(*at) % TEXTS.len()]),
            Self::Remember(at) => program.extend([b'q', *at]),
            Self::Recall(at) => program.extend([b'h', *at]),
            Self::Global(at) => {
                program.push(b'c');
                program.extend(GLOBALS[usize::from(*at) % GLOBALS.len()].bytes());
            }
        }
    }
}

impl Case {
    /// The program. Each step of `steps` stands before the part of the dictionary that its number names.
    fn program(&self) -> Vec<u8> {
        let mut program = vec![0x80, 2];
        let steps = |program: &mut Vec<u8>, part: u8| {
            self.steps.iter().filter(|(at, _)| at % 4 == part).for_each(|(_, step)| step.write(program));
        };
        steps(&mut program, 0);
        program.extend(b"}(");
        text(&mut program, "w");
        program.extend(b"ctorch._utils\n_rebuild_tensor_v2\n((");
        text(&mut program, "storage");
        program.extend(b"ctorch\nFloatStorage\n");
        text(&mut program, "0");
        text(&mut program, "cpu");
        number(&mut program, 8);
        program.extend(b"tQ");
        steps(&mut program, 1);
        number(&mut program, self.offset);
        program.push(b'(');
        number(&mut program, i64::from(self.shape.0 % 5));
        program.extend(b"t(");
        number(&mut program, self.shape.1);
        program.push(b't');
        steps(&mut program, 2);
        program.push(0x89);
        program.extend(b")tR");
        steps(&mut program, 3);
        program.extend(b"u.");
        program
    }

    fn file(&self) -> Vec<u8> {
        let data = [0x3f; 32];
        if self.has_old_form {
            let mut file =
                b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\x02M\xe9\x03.\x80\x02}.".to_vec();
            file.extend(self.program());
            file.extend(b"\x80\x02](X\x01\0\0\00e.");
            file.extend(8u64.to_le_bytes());
            file.extend(data);
            return file;
        }
        let (mut file, mut directory): (Vec<u8>, Vec<u8>) = (vec![], vec![]);
        for (name, body) in [("archive/data.pkl", &self.program()[..]), ("archive/data/0", &data)] {
            let start = file.len() as u32;
            let sizes = [0, body.len() as u32, body.len() as u32].map(u32::to_le_bytes).concat();
            let lengths = [(name.len() as u16).to_le_bytes(), [0; 2]].concat();
            file.extend(b"PK\x03\x04\x14\0\0\0\0\0\0\0\0\0");
            file.extend(sizes.iter().chain(&lengths).chain(name.as_bytes()).chain(body));
            directory.extend(b"PK\x01\x02\x14\0\x14\0\0\0\0\0\0\0\0\0");
            directory.extend(
                sizes.iter().chain(&lengths).chain(&[0; 10]).chain(&start.to_le_bytes()).chain(name.as_bytes()),
            );
        }
        let (at, len) = (file.len() as u32, directory.len() as u32);
        file.extend(directory);
        file.extend(b"PK\x05\x06\0\0\0\0\x02\0\x02\0");
        file.extend([len, at].map(u32::to_le_bytes).concat());
        file.extend([0; 2]);
        file
    }
}

fuzz_target!(|case: Case| {
    let file = case.damage.apply(case.file());
    if !torch::is_torch(&file) {
        return;
    }
    let Ok(read) = torch::read(&file) else {
        let is_right = case.steps.is_empty() && case.damage.is_none() && case.shape.1 == 1;
        assert!(!is_right || !(0..=4).contains(&case.offset), "a correct file is refused");
        return;
    };
    for tensor in &read.tensors {
        let count = tensor.shape.iter().product::<usize>();
        let mut values = [0.0; 16];
        for start in [0, count.saturating_sub(values.len())] {
            let len = values.len().min(count - start);
            tensor.decode(start, 1, &mut values[..len]);
        }
    }
});
