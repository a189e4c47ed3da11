#!/bin/bash
# Builds both engines, writes the models and compares: see README.md. Arguments go to compare.py, but for
#
#     --models A,B    which of the shapes in models.py (default: all)
set -euo pipefail
cd "$(dirname "$0")"
shapes=stories15m,smollm2-135m,qwen3-0.6b
arguments=()
while [ $# -gt 0 ]; do
    case $1 in
        --models) shapes=${2:?--models needs names}; shift ;;
        *) arguments+=("$1") ;;
    esac
    shift
done

python=.venv/bin/python
if ! [ -x $python ] || ! $python -c 'import gguf, llama_cpp' 2>/dev/null; then
    python3 -m venv .venv
    $python -m pip install --quiet numpy gguf
    # From source, for the instructions that this machine has: some ten minutes on two cores.
    CMAKE_ARGS="-DGGML_NATIVE=ON" $python -m pip install --no-binary llama-cpp-python llama-cpp-python
fi
cargo build --release --manifest-path ../../Cargo.toml -p host-demo -p kernel-benches --bins

files=()
for shape in ${shapes//,/ }; do
    for type in Q8_0 Q4_0; do
        file=models/$shape-$type.gguf
        [ -f "$file" ] || $python models.py "$shape" $type "$file"
        files+=("$file")
    done
done
exec $python compare.py "${arguments[@]}" "${files[@]}"
