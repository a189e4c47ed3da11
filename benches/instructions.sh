#!/bin/bash
# Prints the instructions per token with each table of kernels. They are counted under qemu, so the counts are exact and
# the same on every machine.
#
#     benches/instructions.sh MODEL.gguf [TARGET]      aarch64-unknown-linux-gnu unless given; also
#                                                      riscv64gc-unknown-linux-gnu, armv7-unknown-linux-gnueabihf
#
# Decode is the mean of positions 24 to 39. Prefill is a batch of 64 tokens, with the logits of the last one, per token.
set -euo pipefail
model=$(realpath "${1:?usage: benches/instructions.sh MODEL.gguf [TARGET]}")
target=${2:-aarch64-unknown-linux-gnu}
cd "$(dirname "$0")/.."
case $target in
    aarch64*) tables="neon dotprod i8mm" ;;
    riscv64*) tables="scalar rvv" ;;
    armv7*) tables="scalar neon" ;;
    *) echo "error: no tables are known for $target" >&2; exit 2 ;;
esac
eval "$(.ci/target "$target")"
# The address of the mark must not change when the program is loaded.
flags=CARGO_TARGET_$(tr a-z- A-Z_ <<<"$target")_RUSTFLAGS
export "$flags=${!flags} -C relocation-model=static"
program=$("$XCARGO" bench "${XFLAGS[@]}" -p arenite --bench instructions --no-run --message-format=json |
    sed -n 's/.*"executable":"\([^"]*\)".*/\1/p')
plugin=$CARGO_TARGET_DIR/libinstructions.so
gcc -O2 -shared -fPIC -o "$plugin" benches/instructions.c
mark=0x$(nm "$program" | sed -n 's/ T token_mark$//p')

printf '%-10s %14s %14s\n' kernels decode prefill
for isa in $tables; do
    counts=$($XRUN -plugin "$plugin,mark=$mark" "$program" "$model" $isa 2>&1 >/dev/null)
    awk -v isa=$isa '/^instructions/ { n++; if (n > 1 && n < 18) decode += $2 / 16; if (n == 19) prefill = $2 / 64 }
        END { printf "%-10s %12.3f M %12.3f M\n", isa, decode / 1e6, prefill / 1e6 }' <<<"$counts"
done
