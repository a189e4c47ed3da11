//! Intel AMX. On processors without it, a handler of SIGILL executes its instructions.
//!
//! The handler is written from Intel's *Software Developer's Manual*, volume 2: `LDTILECFG`, `TILERELEASE`, `TILEZERO`,
//! `TILELOADD`, `TILESTORED` and `TDPBSUD`. It ends the process at any other instruction, and in the cases for which
//! the manual lists an exception.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use std::process;
use std::sync::LazyLock;

use arenite::kernel::SCALAR;
use arenite::kernel::internals::amx_table;
use arenite::{Gguf, Kernels, Line, Model, Options, Plan, Session};

use crate::products::check_product;
use crate::{DATA, Random, block_types, same};

/// The AMX table; `None` without AVX-512. The handler emulates tiles that the process cannot use.
pub fn table() -> Option<&'static Kernels> {
    static TABLE: LazyLock<Option<&Kernels>> = LazyLock::new(|| {
        if Kernels::request_amx() {
            eprintln!("AMX: the processor's own tiles");
        } else if Kernels::by_name("avx512").is_none() {
            eprintln!("SKIP: AMX: this processor has no AVX-512 with VNNI");
            return None;
        } else {
            prepare();
        }
        // SAFETY: the processor has AVX-512, and AMX or the handler of `prepare`.
        Some(unsafe { amx_table() })
    });
    *TABLE
}

/// The tiles of a thread. The unused end of a row, and unused rows, are zero.
struct Unit {
    is_configured: bool,
    row_bytes: [usize; 8],
    rows: [usize; 8],
    tiles: [[[u8; 64]; 16]; 8],
    /// Number of products.
    products: usize,
}

type Outcome<T> = Result<T, &'static str>;

/// `Err(why)` unless the condition holds.
fn ensure(condition: bool, why: &'static str) -> Outcome<()> {
    if condition { Ok(()) } else { Err(why) }
}

impl Unit {
    const fn new() -> Self {
        Self { is_configured: false, row_bytes: [0; 8], rows: [0; 8], tiles: [[[0; 64]; 16]; 8], products: 0 }
    }

    /// Executes the instruction at the start of `code`, and returns its length. `register` returns general registers by
    /// their number in an encoding.
    ///
    /// # Safety
    ///
    /// The memory operands are valid.
    unsafe fn step(&mut self, code: &[u8; 15], register: impl Fn(u8) -> usize) -> Outcome<usize> {
        let &[vex, inverted, fields, opcode, modrm, ..] = code;
        // Inverted R, X and B, and the map 0F 38. W and L are 0.
        ensure(vex == 0xc4 && inverted & 0x1f == 2 && fields & 0x84 == 0, "not an instruction for tiles")?;
        ensure(inverted & 0x80 != 0, "tile 8 and above")?;
        let (prefix, source) = (fields & 3, usize::from(!fields >> 3 & 15));
        let (mode, reg, rm) = (modrm >> 6, usize::from(modrm >> 3 & 7), modrm & 7);
        if mode == 3 {
            ensure(inverted & 0x60 == 0x60, "tile 8 and above")?;
            match (opcode, prefix, reg, rm) {
                (0x49, 0, 0, 0) if source == 0 => self.is_configured = false,
                (0x49, 3, _, 0) if source == 0 => {
                    self.check(reg)?;
                    self.tiles[reg] = [[0; 64]; 16];
                }
                (0x5e, 2, _, _) => self.multiply(reg, rm.into(), source)?,
                _ => return Err("an unknown instruction"),
            }
            return Ok(5);
        }
        ensure(source == 0, "a third operand")?;
        // A memory operand: `base + displacement`, and `index` with its scale.
        let (high_base, high_index) = (!inverted >> 5 & 1, !inverted >> 6 & 1);
        let (sib, at) = if rm == 4 { (Some(code[5]), 6) } else { (None, 5) };
        let base = sib.map_or(rm, |sib| sib & 7);
        ensure(mode != 0 || base != 5, "an address without a register")?;
        let (displacement, len) = match mode {
            0 => (0, at),
            1 => (isize::from(code[at] as i8), at + 1),
            _ => (i32::from_le_bytes([code[at], code[at + 1], code[at + 2], code[at + 3]]) as isize, at + 4),
        };
        let start = register(base | high_base << 3).wrapping_add_signed(displacement) as *mut u8;
        let index = sib.map_or(4, |sib| sib >> 3 & 7 | high_index << 3);
        let stride = if index == 4 { 0 } else { register(index) << (sib.unwrap_or(0) >> 6) };
        match (opcode, prefix) {
            (0x49, 0) if reg == 0 => {
                ensure(index == 4, "a configuration with an index")?;
                // SAFETY: the caller promises the operand.
                self.configure(unsafe { &*start.cast() })?;
            }
            (0x4b, 2 | 3) if sib.is_some() => {
                self.check(reg)?;
                let (rows, bytes) = (self.rows[reg], self.row_bytes[reg]);
                if prefix == 3 {
                    self.tiles[reg] = [[0; 64]; 16];
                }
                for (r, row) in self.tiles[reg][..rows].iter_mut().enumerate() {
                    let at = start.wrapping_add(r.wrapping_mul(stride));
                    // SAFETY: the caller promises the operand.
                    unsafe {
                        if prefix == 3 {
                            row.as_mut_ptr().copy_from_nonoverlapping(at, bytes);
                        } else {
                            row.as_ptr().copy_to_nonoverlapping(at, bytes);
                        }
                    }
                }
            }
            _ => return Err("an unknown instruction"),
        }
        Ok(len)
    }

    /// `LDTILECFG`.
    fn configure(&mut self, bytes: &[u8; 64]) -> Outcome<()> {
        ensure(bytes[0] == 1, "a palette other than 1")?;
        ensure(bytes[1] == 0, "a row to restart from")?;
        ensure([2..16, 32..48, 56..64].into_iter().all(|r| bytes[r].iter().all(|&b| b == 0)), "reserved bytes")?;
        for t in 0..8 {
            let row_bytes = usize::from(u16::from_le_bytes([bytes[16 + 2 * t], bytes[17 + 2 * t]]));
            let rows = usize::from(bytes[48 + t]);
            ensure(row_bytes <= 64 && rows <= 16, "a tile that is too large")?;
            ensure((rows == 0) == (row_bytes == 0), "a tile without rows or without bytes")?;
            (self.row_bytes[t], self.rows[t]) = (row_bytes, rows);
        }
        (self.is_configured, self.tiles) = (true, [[[0; 64]; 16]; 8]);
        Ok(())
    }

    fn check(&self, tile: usize) -> Outcome<()> {
        ensure(self.is_configured, "no configuration")?;
        ensure(tile < 8 && self.rows[tile] > 0, "a tile that is not configured")
    }

    /// `TDPBSUD`: adds to `c` the products of the signed bytes of `a` and the unsigned bytes of `b`.
    fn multiply(&mut self, c: usize, a: usize, b: usize) -> Outcome<()> {
        [a, b, c].into_iter().try_for_each(|tile| self.check(tile))?;
        ensure(a != b && b != c && c != a, "the same tile twice")?;
        ensure(self.row_bytes.iter().all(|bytes| bytes % 4 == 0), "rows of other than dwords")?;
        let shapes = self.rows[c] == self.rows[a]
            && self.row_bytes[c] == self.row_bytes[b]
            && self.row_bytes[a] / 4 == self.rows[b];
        ensure(shapes, "tiles that do not match")?;
        let (left, right) = (self.tiles[a], self.tiles[b]);
        let (rows, row_bytes) = (self.rows[c], self.row_bytes[c]);
        let sums = &mut self.tiles[c];
        sums[rows..].fill([0; 64]);
        for (sums, left) in sums[..rows].iter_mut().zip(left) {
            for n in (0..row_bytes).step_by(4) {
                let mut sum = i32::from_le_bytes(sums[n..n + 4].try_into().unwrap());
                for k in 0..self.row_bytes[a] {
                    let product = i32::from(left[k] as i8) * i32::from(right[k / 4][n + k % 4]);
                    sum = sum.wrapping_add(product);
                }
                sums[n..n + 4].copy_from_slice(&sum.to_le_bytes());
            }
            sums[row_bytes..].fill(0);
        }
        self.products += 1;
        Ok(())
    }
}

thread_local! {
    static UNIT: UnsafeCell<Unit> = const { UnsafeCell::new(Unit::new()) };
}

/// The first fields of the C library's `sigaction` and `ucontext_t`, on x86-64.
#[repr(C)]
struct Action {
    handler: unsafe extern "C" fn(c_int, *mut c_void, *mut Context),
    mask: [u64; 16],
    flags: c_int,
    restorer: usize,
}

#[repr(C)]
struct Context {
    /// Flags, a link and a stack.
    other: [u64; 5],
    /// r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip.
    registers: [usize; 17],
}

const RIP: usize = 16;

unsafe extern "C" {
    fn sigaction(signal: c_int, new: *const Action, old: *mut Action) -> c_int;
    fn write(file: c_int, from: *const u8, len: usize) -> isize;
}

/// Installs the handler.
fn prepare() {
    const SIGILL: c_int = 4;
    const SA_SIGINFO: c_int = 4;
    let action = Action { handler: execute, mask: [0; 16], flags: SA_SIGINFO, restorer: 0 };
    // SAFETY: the handler changes only what the instruction would.
    assert_eq!(unsafe { sigaction(SIGILL, &action, null_mut()) }, 0);
}

/// Executes the instruction that the processor does not know. It runs on the stack of the thread that did not know it,
/// at an instruction that accesses no other state: so the thread's unit is not in use.
unsafe extern "C" fn execute(_: c_int, _: *mut c_void, context: *mut Context) {
    // SAFETY: the system passes the context, whose instruction pointer has the instruction and more code behind it. A
    // memory operand that is not valid is a fault, as on a processor with AMX.
    unsafe {
        let registers = &mut (*context).registers;
        let code = &*(registers[RIP] as *const [u8; 15]);
        let order = [13, 14, 12, 11, 15, 10, 9, 8, 0, 1, 2, 3, 4, 5, 6, 7];
        let value = |number: u8| registers[order[usize::from(number)]];
        match UNIT.with(|unit| (*unit.get()).step(code, value)) {
            Ok(len) => registers[RIP] += len,
            Err(why) => {
                for text in ["AMX: ", why, "\n"] {
                    write(2, text.as_ptr(), text.len());
                }
                process::abort()
            }
        }
    }
}

/// The state of this thread's unit: whether it is configured, and its number of products.
fn state() -> (bool, usize) {
    // SAFETY: no tile instruction runs meanwhile.
    UNIT.with(|unit| unsafe { ((*unit.get()).is_configured, (*unit.get()).products) })
}

/// True if the instructions are emulated.
fn is_emulated() -> bool {
    table().is_some() && !Kernels::request_amx()
}

/// Every format, with batches that fill tiles and batches that do not, rows that fill panels and rows that do not.
#[test]
fn products() {
    if table().is_none() {
        return;
    }
    std::thread::scope(|scope| {
        for half in [0, 1] {
            scope.spawn(move || {
                for kind in block_types().into_iter().skip(half).step_by(2) {
                    let (mut random, (_, before)) = (Random(kind as u64 + 71), state());
                    for tokens in 1..=40 {
                        let data = DATA[tokens % 3];
                        let (rows, blocks) =
                            (1 + random.below(40), 1 + random.below(if kind.block().0 < 256 { 9 } else { 3 }));
                        check_product(&mut random, kind, data, rows, kind.block().0 * blocks, tokens);
                    }
                    let (is_configured, after) = state();
                    assert!(!is_configured, "{kind:?}: tiles are not released");
                    assert!(!is_emulated() || after > before, "{kind:?}: no tile was multiplied");
                }
            });
        }
    });
}

/// Logits of models, with batches of different lengths.
#[test]
fn models() {
    let Some(kernels) = table() else { return };
    for file in ["stories.gguf", "mixed/first.gguf", "small/deepseek2_q/model.gguf"] {
        let path = format!("{}/tests/fixtures/{file}", env!("CARGO_MANIFEST_DIR"));
        // The published crate has only the first file, and some builds only its format.
        let Ok(bytes) = std::fs::read(&path) else { continue };
        let gguf = Gguf::parse(&bytes).unwrap();
        let Ok(model) = Model::new(&gguf) else { continue };
        let ids: Vec<u32> = (0..75).map(|i| (i * i * 31 + 17 * i + 1) % 200).collect();
        let run = |kernels, batch| {
            let plan = Plan::new(&gguf, Options::new().context(128).batch(batch)).unwrap();
            let [mut workspace, mut kv] = [plan.workspace, plan.kv].map(|bytes| vec![Line::ZERO; bytes.div_ceil(64)]);
            let (workspace, kv) = (Line::bytes_mut(&mut workspace), Line::bytes_mut(&mut kv));
            let mut session = Session::new(&model, plan, workspace, kv).unwrap().with_kernels(kernels);
            let mut all = vec![];
            session.prefill_all(&ids, |_, logits| all.extend_from_slice(logits)).unwrap();
            all
        };
        let want = run(&SCALAR, 16);
        assert!(want.iter().all(|x| x.is_finite()));
        for batch in [16, 31, 75] {
            let (_, before) = state();
            same(&run(kernels, batch), &want, || format!("{file}, batches of {batch}"));
            assert!(!is_emulated() || state().1 > before, "{file}: no tile was multiplied");
        }
    }
}

/// The emulation has the exceptions of the manual.
#[test]
fn exceptions() {
    let mut bytes = [0; 64];
    (bytes[0], bytes[16], bytes[18], bytes[20]) = (1, 64, 8, 64);
    (bytes[48], bytes[49], bytes[50]) = (16, 16, 2);
    for (at, value, is_valid) in [
        (0, 1, true),
        (0, 2, false),
        (1, 1, false),
        (2, 1, false),
        (16, 65, false),
        (18, 0, false),
        (32, 1, false),
        (48, 17, false),
        (49, 0, false),
        (63, 1, false),
    ] {
        let mut bytes = bytes;
        bytes[at] = value;
        assert_eq!(Unit::new().configure(&bytes).is_ok(), is_valid, "byte {at}");
    }
    let mut unit = Unit::new();
    let mut step = |code: [u8; 5]| {
        let mut long = [0; 15];
        long[..5].copy_from_slice(&code);
        // SAFETY: the only memory operand is the configuration.
        unsafe { unit.step(&long, |number| if number == 7 { bytes.as_ptr().addr() } else { 0 }) }
    };
    let product = [0xc4, 0xe2, 0x6a, 0x5e, 0xc1]; // tdpbsud tmm0, tmm1, tmm2
    assert_eq!(step(product), Err("no configuration"));
    assert_eq!(step([0xc4, 0xe2, 0x78, 0x49, 0x07]), Ok(5)); // ldtilecfg [rdi]
    assert_eq!(step(product), Ok(5));
    assert_eq!(step([0xc4, 0xe2, 0x7b, 0x49, 0xd8]), Err("a tile that is not configured")); // tilezero tmm3
    assert_eq!(step([0xc4, 0xe2, 0x72, 0x5e, 0xc1]), Err("the same tile twice")); // tdpbsud tmm0, tmm1, tmm1
    assert_eq!(step([0xc4, 0xe2, 0x72, 0x5e, 0xc2]), Err("tiles that do not match")); // tdpbsud tmm0, tmm2, tmm1
    assert_eq!(step([0xc4, 0xe2, 0x6b, 0x5e, 0xc1]), Err("an unknown instruction")); // tdpbssd tmm0, tmm1, tmm2
    assert_eq!(step([0xc4, 0xe2, 0x78, 0x49, 0xc0]), Ok(5)); // tilerelease
    assert_eq!(step(product), Err("no configuration"));
}
