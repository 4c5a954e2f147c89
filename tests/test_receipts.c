// The receipts of stages 0 and 2 to the digit. (Stage 1's, R1 to R4b: test_walkthrough.c.)
#include "process.h"

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
                "8x the sequence is 64x the matrix", "ok: ", "16 heads", "\n 1024 64 MiB 128 MiB",
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
                "\n 512 16.0 MiB 0.5 MiB", "\n 1024 64.0 MiB 0.5 MiB", "\n 2048 256.1 MiB 0.5 MiB",
                "\n 4096 1024.1 MiB 0.5 MiB", "ok: ");
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

// One figure of each; test_walkthrough.c has the rest.
Test(receipts, are_r1_to_r4b_all_there_and_in_order)
{
    process *p = process_run("stage1_online_softmax/run");
    cr_expect_eq(p->exit_code, 0, "%s", p->error);
    cr_expect_leq(longest_line(p->out), 80);
    EXPECT_ROWS(p->out, "R1 ", "= 2.5598", "R2 ", "0.016", "0.254", "R3 ", "58.0", "0.7605", "R4 ",
                "88.7 32.8 0 ", "11.1 32.8 1,320 nan", "R4b ", "\n 1048576 1 ");
    cr_expect_null(strstr(p->out, "FAILED"));
    free(p);
}

Test(receipts, does_stage_3_print_r14_and_the_memory)
{
    process *p = process_run("stage3_fused_cuda/run --device cpu");
    cr_expect_eq(p->exit_code, 0, "%s", p->error);
    cr_expect_leq(longest_line(p->out), 80);
    EXPECT_ROWS(p->out, "stage 3: ", "emulator", "R14 ", "\n fp16 D=64 N=64 ",
                "\n fp16 D=128 N=257 ", "\n bf16 D=128 N=257 ", "ok: 48 of 48", "amplified 4x",
                "\n fp16 D=64 N=513 ", "ok: ", "memory", "\n 1024 8.0 MiB 0 bytes", "ok: ");
    cr_expect_null(strstr(p->out, "FAILED"));
    free(p);
    p = process_run("stage3_fused_cuda/run --device cpu --kernel scalar");
    cr_expect_eq(p->exit_code, 0, "%s", p->error);
    EXPECT_ROWS(p->out, "scalar, emulator", "ok: 48 of 48", "ok: ", "\n 1024 8.0 MiB 0 bytes",
                "ok: ");
    free(p);
}

Test(receipts, does_stage_4_print_r12_and_r13)
{
    process *p = process_run("stage4_causal_skip/run --device cpu");
    cr_expect_eq(p->exit_code, 0, "%s", p->error);
    cr_expect_leq(longest_line(p->out), 80);
    EXPECT_ROWS(p->out, "//..............", "##############//", "56 full, 16 masked, 56 skipped",
                "R12 ", "\n 128 x 128 136 16 120 46.9% 46.9%", "\n 256 x 256 36 8 28 43.8% 43.8%",
                "\n 512 x 512 10 4 6 37.5% 37.5%", "ok: ", "counted 272 tiles", "is 272", "R13 ",
                "\n 512 0.5 G 0.3 G 0.62x 7 MiB 5.1x 2.5x",
                "\n 1024 2.1 G 1.2 G 0.56x 22 MiB 6.2x 4.5x",
                "\n 2048 8.6 G 4.6 G 0.53x 76 MiB 6.9x 8.5x",
                "\n 4096 34.4 G 17.7 G 0.52x 280 MiB 7.4x 16.5x", "ok: ", "bit for bit");
    cr_expect_null(strstr(p->out, "FAILED"));
    free(p);
}

// The receipts of `program` in the emulator: two rows of its own, and eight beside `before`.
static void expect_beside(const char *program, const char *before, const char *first,
                          const char *second)
{
    char heading[64];
    snprintf(heading, sizeof heading, "against float64 and %s", before);
    process *p = process_run("%s --device cpu", program);
    cr_expect_eq(p->exit_code, 0, "%s", p->error);
    cr_expect_leq(longest_line(p->out), 80);
    EXPECT_ROWS(p->out, first, second, heading, "\n fp16 D=64", "\n bf16 D=128 causal", "ok: ");
    cr_expect_null(strstr(p->out, "FAILED"));
    free(p);
}

Test(receipts, does_stage_5_stand_beside_stage_4)
{
    expect_beside("stage5_async_copy/run", "stage 4", "\n D=64: 64 32 128 32 128 64 8",
                  "\n D=128: 48 32 192 64 170 48 12");
}

Test(receipts, does_stage_6_stand_beside_stage_5)
{
    expect_beside("stage6_hopper/run", "stage 5", "\n D=64 512 128 64 65536 12 2 40960",
                  "\n D=128 1024 341 128 174762 16 4 81920");
}

Test(receipts, does_stage_7_stand_beside_stage_6)
{
    expect_beside("stage7_overlap/run", "stage 6", "\n D=64 512 512 320 1344 512 2.62 38%",
                  "\n D=128 1024 512 320 1856 1024 1.81 55%");
}
