#!/bin/bash
# Prints the instructions of a token by function, on a Cortex-M4F: those between the marks of the program `measure` in
# tests/firmware. They are counted under qemu, so the counts are exact and the same on every machine.
#
#     benches/functions.sh MODEL.gguf
set -euo pipefail
model=$(realpath "${1:?usage: benches/functions.sh MODEL.gguf}")
cd "$(dirname "$0")/.."
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
eval "$(.ci/target thumbv7em-none-eabihf)"
CARGO_PROFILE_RELEASE_DEBUG=line-tables-only "$XCARGO" build -q --release "${XFLAGS[@]}" --manifest-path tests/firmware/Cargo.toml --bin measure
image=$CARGO_TARGET_DIR/thumbv7em-none-eabihf/release/measure
gcc -O2 -shared -fPIC -o "$out/instructions.so" benches/instructions.c
mark=0x$(nm "$image" | sed -n 's/ T token_mark$//p')
qemu-system-arm -M mps2-an386 -nographic -semihosting-config enable=on,target=native -kernel "$image" \
    -device "loader,file=$model,addr=0x$(nm "$image" | sed -n 's/ A _model$//p'),force-raw=on" \
    -plugin "$out/instructions.so,mark=$mark,spans=$out/counts" >"$out/told" 2>&1 || { tail "$out/told" >&2; exit 1; }
python3 benches/functions.py "$image" "$out/counts" "$(grep -c '^token' "$out/told")"
