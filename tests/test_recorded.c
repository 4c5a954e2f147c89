// Does the emulator compute what the hardware does? Small outputs of an H200 lie in
// tests/recorded/.
//
// Not every bit: tensor cores keep fewer bits while they add, and ex2.approx is not exp2f. A weight
// or a result may cross a rounding boundary: one element of fifty may differ, by a unit in the last
// place of a number of its size or, as weights multiply values of size 1, of a quarter.
#include <glob.h>

#include "cuda_support.h"
#include "npy.h"

enum { SEQ = 130 };

static float *recorded(const char *stem, const char *what, int64_t count)
{
    char path[256];
    npy_header header;
    float *data;
    snprintf(path, sizeof path, "tests/recorded/%s_%s.npy", stem, what);
    cr_assert_eq(npy_read(path, &header, &data), ATTENTION_OK, "%s", status_message());
    cr_assert_eq(header.count, count, "%s", path);
    return data;
}

static void compare(const char *stem, attention_function *emulated, int64_t block_q,
                    int64_t block_k)
{
    const bool bf16 = strstr(stem, "bf16"), wide = strstr(stem, "128");
    problem p = cuda_turn(4 + 2 * wide + bf16, 1, 1, SEQ, block_q, block_k);
    problem_draw(&p, 0, 1);
    problem_run(&p, emulated);
    float *o = recorded(stem, "o", p.count), *lse = recorded(stem, "lse", p.rows);
    const float unit = bf16 ? 0x1p-7f : 0x1p-10f;
    int64_t different = 0;
    for (int64_t i = 0; i < p.count; i++) {
        different += p.o[i] != o[i];
        cr_expect_float_eq(p.o[i], o[i], unit * fmaxf(fabsf(o[i]), 0.25f), "%s o[%" PRId64 "]",
                           stem, i);
    }
    cr_expect_leq(different, p.count / 50, "%s: %" PRId64 " of %" PRId64 " differ", stem, different,
                  p.count);
    for (int64_t r = 0; r < p.rows; r++) cr_expect_float_eq(p.lse[r], lse[r], 2e-6f);
    tensor_free(o);
    tensor_free(lse);
    problem_free(&p);
}

Test(recorded, does_the_emulator_agree_with_the_hardware)
{
    const stage_kernel tensor = STAGE3_TENSOR, scalar = STAGE3_SCALAR, skip = STAGE4_TENSOR,
                       async = STAGE5_TENSOR, hopper = STAGE6_WGMMA, overlap = STAGE7_WGMMA;
    const struct {
        const char *prefix;
        const stage_kernel *kernel;
    } kernels[] = {{"stage3_tensor", &tensor}, {"stage3_scalar", &scalar},
                   {"stage4_tensor", &skip},   {"stage5_tensor", &async},
                   {"stage6_wgmma", &hopper},  {"stage7_wgmma", &overlap}};
    enum { KERNELS = sizeof kernels / sizeof *kernels };
    glob_t files;
    cr_assert_eq(glob("tests/recorded/*_o.npy", 0, NULL, &files), 0);
    cr_assert_eq(files.gl_pathc, 14);
    for (size_t f = 0; f < files.gl_pathc; f++) {
        char stem[128];
        snprintf(stem, sizeof stem, "%s", strrchr(files.gl_pathv[f], '/') + 1);
        stem[strlen(stem) - strlen("_o.npy")] = '\0';
        for (int k = 0; k < KERNELS; k++)
            if (strncmp(stem, kernels[k].prefix, strlen(kernels[k].prefix)) == 0)
                compare(stem, kernels[k].kernel->emulated.forward, kernels[k].kernel->block_q,
                        kernels[k].kernel->block_k);
    }
    globfree(&files);
}
