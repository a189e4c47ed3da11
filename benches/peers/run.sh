#!/bin/bash
# Builds both engines, writes the models and compares: see README.md. Arguments other than `--models` go to compare.py:
#
#    --models A,B    the models, each a shape of models.py and a type, such as qwen3-0.6b-Q4_K_M
set -euo pipefail
cd "$(dirname "$0")"
models=stories15m-Q8_0,gpt2-124m-Q8_0
for type in Q8_0 Q4_0 Q4_K_M Q5_K_M Q6_K; do models+=,qwen3-0.6b-$type; done
models+=,gemma-4-e2b-Q4_K_M
arguments=()
while [ $# -gt 0 ]; do
    case $1 in
        --models) models=${2:?--models needs names}; shift ;;
        *) arguments+=("$1") ;;
    esac
    shift
done

python=.venv/bin/python
if ! [ -x $python ] || ! $python -c 'import gguf, llama_cpp' 2>/dev/null; then
    python3 -m venv .venv
    $python -m pip install --quiet numpy gguf
    # Builds from source, for the instructions of this machine: about ten minutes on two cores.
    CMAKE_ARGS="-DGGML_NATIVE=ON" $python -m pip install --no-binary llama-cpp-python llama-cpp-python
fi
cargo build --release --manifest-path ../../Cargo.toml -p host-demo -p kernel-benches --bins

files=()
for model in ${models//,/ }; do
    file=models/$model.gguf
    [ -f "$file" ] || $python models.py "${model%-*}" "${model##*-}" "$file"
    files+=("$file")
done
exec $python compare.py "${arguments[@]}" "${files[@]}"
