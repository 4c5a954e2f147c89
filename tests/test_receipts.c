// The receipts of stages 0 and 2 to the digit, and Q, K, V of a trained model through all stages.
// (Stage 1's receipts: test_walkthrough.c.)
#include <math.h>

#include "npy.h"
#include "process.h"
#include "tensor.h"

// Each part must follow the one before; runs of spaces count as one.
static void expect_rows(const char *out, const char *const *rows, size_t count)
{
    char *text = malloc(strlen(out) + 1), *to = text;
    for (const char *from = out; *from; from++)
        if (*from != ' ' || from == out || from[-1] != ' ') *to++ = *from;
    *to = '\0';
    const char *at = text;
    for (size_t i = 0; i < count; i++) {
        const char *found = strstr(at, rows[i]);
        cr_assert_not_null(found, "'%s' is missing, or out of order", rows[i]);
        at = found + strlen(rows[i]);
    }
    free(text);
}

#define EXPECT_ROWS(out, ...)                                                                      \
    do {                                                                                           \
        const char *const rows[] = {__VA_ARGS__};                                                  \
        expect_rows(out, rows, sizeof rows / sizeof *rows);                                        \
    } while (0)

Test(receipts, do_r5_to_r6_print_their_figures)
{
    process *p = process_run("stage0_explicit/run");
    cr_expect_eq(p->exit_code, 0, "%s", p->error);
    cr_expect_leq(longest_line(p->out), 80);
    EXPECT_ROWS(p->out, "R5 ", "\n 512 8.0 MiB 16.0 MiB", "\n 1024 32.0 MiB 64.0 MiB",
                "\n 2048 128.0 MiB 256.0 MiB", "\n 4096 512.0 MiB 1024.0 MiB",
                "8x the sequence is 64x the matrix", "ok: ", "\n 1024 64 MiB 128 MiB",
                "\n 2048 256 MiB 512 MiB", "\n 4096 1024 MiB 2048 MiB", "\n 8192 4096 MiB 8192 MiB",
                "R5b ", "2.0 GiB", "A100 1.07 ms 4.29 ms 20.7 MB 0.97% 0.009%",
                "64.0 KiB a head, 0.34 of 192 KB", "R6 ", "\n 8192 2.0 GiB 4.0 GiB",
                "\n 16384 8.0 GiB 16.0 GiB", "\n 32768 32.0 GiB 64.0 GiB",
                "\n 131072 512.0 GiB 1024.0 GiB", "about 14 cards of 80e9 bytes",
                "16 GiB a user, 1/64 of those scores");
    cr_expect_null(strstr(p->out, "FAILED"));
    free(p);
}

Test(receipts, do_r7_to_r11b_print_their_figures)
{
    process *p = process_run("stage2_tiled_cpu/run");
    cr_expect_eq(p->exit_code, 0, "%s", p->error);
    cr_expect_leq(longest_line(p->out), 80);
    EXPECT_ROWS(p->out, "R7 ", "\n 64 x 64 ", "\n 128 x 128 ", "\n 256 x 512 ", "ok: ", "R8 ",
                "w = 256 0.8140 ", "w = 64 1.3221 ", "ok: ", "R8b ", "\n nothing 0.0000 0.0000 all",
                "\n acc x correction 1.0234 ", "\n l x correction 0.4032 ", "R9 ",
                "\n 512 16.0 MiB 0.5 MiB", "\n 4096 1024.1 MiB 0.5 MiB", "ok: ");
    EXPECT_ROWS(
        p->out, "R10 ", "\n 512 0.5 G 0.5 G 1.00x 32 MiB 0 MiB",
        "\n 1024 2.1 G 2.1 G 1.00x 128 MiB 0 MiB", "\n 2048 8.6 G 8.6 G 1.00x 512 MiB 0 MiB",
        "\n 4096 34.4 G 34.4 G 1.00x 2048 MiB 0 MiB", "R11 ", "\n 512 36 MiB 10 MiB 3.6x 4x",
        "\n 1024 136 MiB 36 MiB 3.8x 8x", "\n 2048 528 MiB 136 MiB 3.9x 16x",
        "\n 4096 2080 MiB 528 MiB 3.9x 32x", "\n 64 1040 MiB 2.0x 2.0", "\n 128 528 MiB 3.9x 4.0",
        "\n 256 272 MiB 7.6x 8.0", "R11b ", "ok: ");
    cr_expect_null(strstr(p->out, "FAILED"));

    // R7's noise and R8's ratio by their bounds
    double off, on, tiled, ratio;
    const char *at = strstr(p->out, "  64 x 64");
    for (int i = 0; i < 3; i++, at = strchr(at, '\n') + 1) {
        cr_assert_eq(sscanf(at, " %*d x %*d %lf %lf", &off, &on), 2, "%.60s", at);
        cr_expect(off <= 2e-6 && on <= 2e-6 && off > 0);
    }
    cr_assert_eq(sscanf(strstr(p->out, "stage 2, tiles of 128 x 128"),
                        "stage 2, tiles of 128 x 128 %lf", &tiled),
                 1);
    cr_assert_eq(sscanf(strstr(p->out, "w = 64"), "w = 64 %*f %lf", &ratio), 1);
    cr_expect_float_eq(ratio, 1.3221 / tiled, 0.05 * ratio);
    cr_expect_gt(ratio, 1e5);
    free(p);
}

#define REAL "--q docs/data/q.npy --k docs/data/k.npy --v docs/data/v.npy"

Test(real_input, do_all_stages_take_the_tensors_of_a_trained_model)
{
    const char *const programs[] = {"stage0_explicit/run", "stage1_online_softmax/run",
                                    "stage2_tiled_cpu/run"};
    for (int s = 0; s < 3; s++)
        for (int causal = 0; causal < 2; causal++) {
            process *p = process_run("%s " REAL " --check --block-q 5 --block-k 3%s", programs[s],
                                     causal ? " --causal" : "");
            cr_expect_eq(p->exit_code, 0, "%s%s", p->out, p->error);
            EXPECT_ROWS(p->out, "B=1 H=12 N=16 D=32", "192 of 192", "ok: every element");
            free(p);
        }
}

// What docs/data/README.md says of head 1: "it" looks at "kernel", and so on.
Test(real_input, does_p_say_what_its_readme_says)
{
    const char *folder = folder_new();
    char path[128];
    process *p = process_run("stage0_explicit/run " REAL " --p-out %s/p.npy", folder);
    cr_assert_eq(p->exit_code, 0, "%s", p->error);
    free(p);
    npy_header header;
    float *data;
    snprintf(path, sizeof path, "%s/p.npy", folder);
    cr_assert_eq(npy_read(path, &header, &data), ATTENTION_OK, "%s", status_message());
    cr_assert_eq(header.count, 12 * 16 * 16);
    const float *head1 = data + 256;
    cr_expect_float_eq(head1[6 * 16 + 2], 0.646f, 1e-3f);   // it: kernel
    cr_expect_float_eq(head1[9 * 16 + 2], 0.513f, 1e-3f);   // its: kernel
    cr_expect_float_eq(head1[1 * 16 + 2], 0.884f, 1e-3f);   // the: kernel
    cr_expect_float_eq(head1[12 * 16 + 11], 0.694f, 1e-3f); // to: ##max
    for (int r = 0; r < 12 * 16; r++) {
        double sum = 0;
        for (int j = 0; j < 16; j++) sum += (double)data[r * 16 + j];
        cr_expect_float_eq(sum, 1, 1e-6);
    }
    tensor_free(data);

    if (exists("/usr/bin/gnuplot")) {
        char script[256], output[128];
        snprintf(script, sizeof script, "p='%s/p.npy'; out='%s/heatmap.svg'", folder, folder);
        const char *const words[] = {"/usr/bin/gnuplot", "-e", script, "docs/figures/heatmap.gp",
                                     NULL};
        process *plot = process_run_list(words, (process_options){0});
        snprintf(output, sizeof output, "%s/heatmap.svg", folder);
        cr_expect(plot->exit_code == 0 && exists(output), "%s", plot->error);
        free(plot);
    } else {
        cr_expect_null(getenv("CI"), "gnuplot is missing: the heat map is not tested");
    }
    folder_remove(folder);
}
