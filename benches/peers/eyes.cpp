// Measures how long libmtmd's encoder takes for a picture: eyes MMPROJ THREADS SIDE ROUNDS. Prints the seconds of each round.

#include "clip-impl.h"
#include "clip.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>

int main(int count, char ** arguments) {
    if (count != 5) {
        fprintf(stderr, "usage: eyes MMPROJ THREADS SIDE ROUNDS\n");
        return 2;
    }
    const int threads = atoi(arguments[2]), side = atoi(arguments[3]), rounds = atoi(arguments[4]);
    clip_context_params params{};
    params.flash_attn_type = CLIP_FLASH_ATTN_TYPE_AUTO;
    params.image_min_tokens = params.image_max_tokens = -1;
    clip_ctx * encoder = clip_init(arguments[1], params).ctx_v;
    if (!encoder) {
        return 1;
    }
    std::vector<float> pixels(3 * side * side);
    for (size_t i = 0; i < pixels.size(); i++) {
        pixels[i] = i * 7919 % 251 / 127.5f - 1;
    }
    clip_image_f32 picture;
    picture.set_size({side, side}, false, false);
    picture.cpy_buf(pixels);
    std::vector<float> rows(clip_n_output_tokens(encoder, &picture) * clip_n_mmproj_embd(encoder));
    for (int round = 0; round < rounds; round++) {
        const auto start = std::chrono::steady_clock::now();
        clip_image_encode(encoder, threads, &picture, rows);
        printf("%.4f\n", std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
}
