// The command line, as a person or a script meets it. Run from the repository root.
#include <math.h>

#include "npy.h"
#include "process.h"

#include <criterion/redirect.h> // after criterion.h

#include "report.h"
#include "stage.h"
#include "support.h"
#include "timing.h"

#define STAGE0 "stage0_explicit/run"
#define STAGE1 "stage1_online_softmax/run"
#define STAGE2 "stage2_tiled_cpu/run"
#define STAGE3 "stage3_fused_cuda/run"
#define STAGE4 "stage4_causal_skip/run"

static const char *const programs[] = {STAGE0, STAGE1, STAGE2};

static void write_file(const char *path, int rank, const int64_t *shape, float value)
{
    int64_t count = 1;
    for (int i = 0; i < rank; i++) count *= shape[i];
    float *x = malloc((size_t)count * sizeof *x);
    for (int64_t i = 0; i < count; i++) x[i] = value + (float)(i % 7);
    cr_assert_eq(npy_write(path, x, rank, shape, DTYPE_FP32), ATTENTION_OK, "%s", status_message());
    free(x);
}

static float *read_file(const char *path, npy_header *header)
{
    float *data;
    cr_assert_eq(npy_read(path, header, &data), ATTENTION_OK, "%s", status_message());
    return data;
}

// Exit code 2 or 3, one line on stderr that says `word`, and nothing on stdout.
static void expect_refusal(const process *p, int code, const char *word, const char *what)
{
    cr_expect_eq(p->exit_code, code, "%s: exit %d, %s", what, p->exit_code, p->error);
    cr_expect_eq(count_lines(p->error), 1, "%s: %s", what, p->error);
    cr_expect(strstr(p->error, word), "%s: '%s' lacks '%s'", what, p->error, word);
    cr_expect_eq(p->out[0], '\0', "%s: printed %s", what, p->out);
}

Test(command_line, is_bad_input_one_line_and_exit_2)
{
    const char *const bad[][2] = {
        {"--seq 12abc", "--seq '12abc'"},
        {"--seq ''", "--seq ''"},
        {"--seq +5", "'+5'"},
        {"--seq -5", "'-5'"},
        {"--seq 0", "from 1 up"},
        {"--seq 18446744073709551616", "--seq"},
        {"--seq 9223372036854775808", "--seq"},
        {"--seq 0x10", "--seq"},
        {"--seq 1e3", "--seq"},
        {"--seq", "--seq needs a value"},
        {"--head-dim 257", "from 1 to 256"},
        {"--head-dim 0", "from 1 to 256"},
        {"--batch 0", "--batch"},
        {"--heads x", "--heads"},
        {"--scale 1e400", "finite"},
        {"--scale nan", "finite"},
        {"--scale inf", "finite"},
        {"--scale ''", "finite"},
        {"--amp 1,5", "--amp"},
        {"--dtype fp8", "fp32, fp16, bf16"},
        {"--block-k 0", "--block-k"},
        {"--threads 0", "--threads"},
        {"--threads 100000", "1 to 1024"},
        {"--seed -1", "--seed"},
        {"--seed 4294967296", "--seed"},
        {"--causal=1", "--causal takes no value"},
        {"--nonsense", "--nonsense"},
        {"--b 3", "--b"},
        {"-x", "-x"},
        {"word", "'word'"},
        {"--check word", "'word'"},
        {"--q docs/data/q.npy", "go together"},
        {"--csv a.csv", "exactly one"},
        {"--csv a.csv --check --bench", "exactly one"},
        {"--seq 8 --trace 64 --heads 8", "0 to 63"},
        {"--trace -1", "--trace"},
        {"--out ''", "--out"},
        {"--out /nonexistent/o.npy", "/nonexistent/o.npy"},
        {"--out /tmp", "/tmp"},
        {"--out /tmp/one.npy --lse /tmp/one.npy", "two outputs"},
        {"--lse /nonexistent/o.npy", "/nonexistent/o.npy"},
        {"--check --csv /nonexistent/o.csv", "/nonexistent/o.csv"},
        {"--q none.npy --k none.npy --v none.npy", "none.npy"},
        {"--q Makefile --k Makefile --v Makefile", "Makefile"},
        {"--q docs/data/q.npy --k docs/data/k.npy --v docs/data/v.npy --seq 17", "contradicts"},
    };
    for (int s = 0; s < 3; s++)
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            process *p = process_run("%s %s", programs[s], bad[i][0]);
            expect_refusal(p, 2, bad[i][1], bad[i][0]);
            free(p);
        }
}

Test(command_line, is_an_output_over_an_input_refused)
{
    const char *folder = folder_new();
    char name[256];
    snprintf(name, sizeof name, "%s/x.npy", folder);
    write_file(name, 2, (int64_t[]){9, 8}, 1);
    for (int lse = 0; lse < 2; lse++) {
        process *p = process_run("%s --q %s --k %s --v %s --%s %s/../%s/x.npy", STAGE2, name, name,
                                 name, lse ? "lse" : "out", folder, strrchr(folder, '/') + 1);
        expect_refusal(p, 2, "would replace q", name);
        free(p);
    }
    folder_remove(folder);
}

// A pipe would be waited for, and what a header claims is not what the file has.
Test(command_line, are_a_pipe_and_a_truncated_file_refused)
{
    const char *folder = folder_new();
    char name[256];
    snprintf(name, sizeof name, "%s/pipe", folder);
    cr_assert_eq(mkfifo(name, 0666), 0);
    for (int s = 0; s < 2; s++) {
        process *p = process_run("%s --q %s --k %s --v %s --check", STAGE2, name, name, name);
        expect_refusal(p, 2, s ? "truncated" : "is a pipe", name);
        free(p);
        snprintf(name, sizeof name, "%s/short.npy", folder);
        write_file(name, 2, (int64_t[]){9, 8}, 1);
        cr_assert_eq(truncate(name, 200), 0);
    }
    folder_remove(folder);
}

// What a list of words cannot spell: white space inside a value; and reals that a float cannot
// hold.
Test(command_line, are_values_with_stray_characters_or_beyond_a_float_refused)
{
    const char *const bad[][3] = {{"--seq", " 5", "--seq ' 5'"},
                                  {"--seq", "5 ", "--seq '5 '"},
                                  {"--seq", "5\n", "from 1 up"},
                                  {"--scale", " 1", "--scale ' 1'"},
                                  {"--scale", "1 ", "--scale '1 '"},
                                  {"--scale", "1,5", "--scale '1,5'"},
                                  {"--scale", "1e39", "finite"},
                                  {"--scale", "-1e39", "finite"},
                                  {"--amp", "1e39", "finite"},
                                  {"--amp", "-inf", "finite"},
                                  {"--scale", "0x10", "decimal"},
                                  {"--amp", "-0x1p3", "decimal"},
                                  {"--dtype", "fp\n16", "fp32, fp16, bf16"}};
    for (int s = 0; s < 3; s++)
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            const char *const arguments[] = {programs[s], bad[i][0], bad[i][1], NULL};
            process *p = process_run_list(arguments, (process_options){0});
            expect_refusal(p, 2, bad[i][2], bad[i][0]);
            free(p);
        }
}

Test(command_line, are_files_that_do_not_fit_together_refused)
{
    const char *folder = folder_new();
    char q[128], other[128], flat[128], three[128];
    snprintf(q, sizeof q, "%s/q.npy", folder);
    snprintf(other, sizeof other, "%s/other.npy", folder);
    snprintf(flat, sizeof flat, "%s/flat.npy", folder);
    snprintf(three, sizeof three, "%s/three.npy", folder);
    write_file(q, 4, (const int64_t[]){1, 2, 5, 4}, 0);
    write_file(other, 4, (const int64_t[]){1, 2, 6, 4}, 0);
    write_file(flat, 2, (const int64_t[]){10, 4}, 0);
    write_file(three, 3, (const int64_t[]){2, 5, 4}, 0);
    const char *const sets[][4] = {{q, other, q, "[1, 2, 6, 4]"},
                                   {q, q, other, "is not the shape"},
                                   {q, flat, q, "flat.npy"},
                                   {three, three, three, "3 dimensions"}};
    for (int i = 0; i < 4; i++) {
        process *p =
            process_run("%s --q %s --k %s --v %s", STAGE2, sets[i][0], sets[i][1], sets[i][2]);
        expect_refusal(p, 2, sets[i][3], sets[i][3]);
        free(p);
    }
    write_file(flat, 2, (const int64_t[]){3, 257}, 0); // a head dimension that no stage takes
    process *p = process_run("%s --q %s --k %s --v %s", STAGE2, flat, flat, flat);
    expect_refusal(p, 2, "257", "head_dim 257 in a file");
    free(p);
    folder_remove(folder);
}

// [19] Before anything is allocated, and quickly.
Test(command_line, is_what_cannot_fit_refused_with_its_bytes_and_exit_3)
{
    const char *const huge[][3] = {
        {STAGE0, "--seq 200000 --heads 1", "[2, 1, 200000, 200000]: 320000000000 bytes"},
        {STAGE0, "--seq 4294967296", "bytes"},
        {STAGE0, "--seq 9223372036854775807", "bytes"},
        {STAGE1, "--seq 4294967296", "bytes"},
        {STAGE1, "--seq 4294967296000", "bytes"},
        {STAGE1, "--seq 9223372036854775807", "bytes"},
        {STAGE2, "--seq 4294967296", "bytes"},
        {STAGE2, "--seq 9223372036854775807", "bytes"},
        {STAGE2, "--batch 4294967296 --heads 4294967296", "bytes"},
        {STAGE2, "--seq 100000000000", "bytes"},
    };
    for (size_t i = 0; i < sizeof huge / sizeof *huge; i++) {
        const double start = timing_now();
        process *p = process_run("%s %s", huge[i][0], huge[i][1]);
        expect_refusal(p, 3, huge[i][2], huge[i][1]);
        cr_expect_lt(timing_now() - start, 5, "%s took %.1f s", huge[i][1], timing_now() - start);
#ifndef UNDER_ASAN // its own memory counts too
        cr_expect_lt(p->peak_bytes, (int64_t)64 << 20, "%s: %" PRId64 " bytes were touched",
                     huge[i][1], p->peak_bytes);
#endif
        free(p);
    }
}

#ifndef UNDER_ASAN
Test(command_line, is_a_memory_limit_respected)
{
    process_options o = {.memory_limit = (size_t)512 << 20};
    process *p = process_run_with(o, "%s --seq 12000 --heads 1", STAGE0);
    expect_refusal(p, 3, "1152000000 bytes", "stage 0 under a limit");
    free(p);
    p = process_run_with(o, "%s --seq 1000000 --heads 1", STAGE2); // q, k, v, o: 1 GB
    expect_refusal(p, 3, "bytes", "stage 2 under a limit");
    free(p);
    p = process_run_with(o, "%s --seq 12000 --heads 1 --head-dim 8 --threads 2", STAGE2);
    cr_expect_eq(p->exit_code, 0, "what stage 0 cannot hold, stage 2 computes: %s", p->error);
    free(p);
}
#endif

Test(command_line, does_stage_2_run_32768_tokens_within_a_gibibyte)
{
    process_options o = {0};
#ifndef UNDER_ASAN
    o.memory_limit = (size_t)1 << 30;
#endif
    process *p = process_run_with(o, "%s --seq 32768 --heads 1 --head-dim 8 --threads 2", STAGE2);
    cr_expect_eq(p->exit_code, 0, "%s", p->error);
    cr_expect(strstr(p->out, "65536 tiles"), "%s", p->out);
    free(p);
}

// A full disk and a closed output: exit 3, and nothing half-written.
Test(command_line, is_a_full_disk_an_error_that_leaves_nothing)
{
    process *p = process_run("%s --seq 64 --out /dev/full", STAGE2);
    cr_expect_eq(p->exit_code, 3, "%s", p->error);
    cr_expect_eq(count_lines(p->error), 1);
    free(p);
    const char *const commands[] = {"--seq 64", "--help", ""};
    for (int s = 0; s < 3; s++)
        for (int i = 0; i < 2; i++) {
            p = process_run_with((process_options){.output_to = "/dev/full"}, "%s %s", programs[s],
                                 commands[i]);
            cr_expect_eq(p->exit_code, 3, "%s: %s", commands[i], p->error);
            cr_expect_eq(count_lines(p->error), 1, "%s", p->error);
            free(p);
        }
    const char *folder = folder_new();
    p = process_run("%s --seq 4294967296 --out %s/o.npy --lse %s/l.npy", STAGE2, folder, folder);
    cr_expect_eq(p->exit_code, 3);
    cr_expect_eq(folder_entries(folder), 0, "a failed run left files behind");
    free(p);
    folder_remove(folder);
}

// The disk fills up while a file is written: what had that name before is still there, and whole.
Test(command_line, does_an_existing_file_survive_a_disk_that_fills_up)
{
    const char *const commands[] = {STAGE0 " --seq 128 --out", STAGE1 " --seq 128 --lse",
                                    STAGE0 " --seq 128 --p-out",
                                    STAGE2 " --seq 128 --block-k 1 --trace 3 --csv"};
    for (int existing = 0; existing < 2; existing++)
        for (int i = 0; i < 4; i++) {
            const char *folder = folder_new();
            char path[128], text[64] = "";
            snprintf(path, sizeof path, "%s/target", folder);
            if (existing) {
                FILE *file = fopen(path, "w");
                cr_assert(file && fputs("precious", file) >= 0 && fclose(file) == 0);
            }
            // more than the file of 1 KiB that LLVM's OpenMP makes for itself
            process *p =
                process_run_with((process_options){.file_limit = 2048}, "%s %s", commands[i], path);
            cr_expect_eq(p->exit_code, 3, "%s: exit %d", commands[i], p->exit_code);
            cr_expect_eq(count_lines(p->error), 1, "%s", p->error);
            cr_expect(strstr(p->error, path), "%s: %s", commands[i], p->error);
            cr_expect_eq(folder_entries(folder), existing, "%s left files behind", commands[i]);
            FILE *file = fopen(path, "r");
            cr_expect_eq(file != NULL, existing, "%s", commands[i]);
            if (file) {
                cr_expect(fgets(text, sizeof text, file));
                cr_expect_str_eq(text, "precious", "%s", commands[i]);
                fclose(file);
            }
            free(p);
            folder_remove(folder);
        }
}

// No option makes a right program fail, so these are wrong ones, through the same stage_main.
static enum { NOTHING, NAN_IN_O, SMALL_ERROR_IN_O, ERROR_IN_LSE, REFUSES } fault;

static attention_status faulty_forward(const float *q, const float *k, const float *v, float *o,
                                       float *lse, const attention_args *args)
{
    const attention_status status = attention_forward_stage2(q, k, v, o, lse, args);
    if (fault == REFUSES) return status_fail(ATTENTION_KERNEL_FAILED, "on purpose");
    if (fault == NAN_IN_O) o[5] = NAN; // [32] a comparison with NaN is false, either way
    if (fault == SMALL_ERROR_IN_O) o[5] += 1e-4f;
    if (fault == ERROR_IN_LSE) lse[7] += 1e-4f;
    return status;
}

static void failing_receipts(const stage *stage, int threads)
{
    (void)stage;
    (void)threads;
    report_verdict(false, "of a receipt");
}

// The exit code of a stage with that fault; its table goes to *text, which is to be freed.
static int run_faulty_mode(int which, bool as_previous, int argc, char *mode, char **text)
{
    const stage faulty = {.name = "faulty",
                          .title = "for a test",
                          .forward = as_previous ? attention_forward_stage2 : faulty_forward,
                          .previous_name = as_previous ? "previous" : NULL,
                          .previous = as_previous ? faulty_forward : NULL,
                          .baseline_name = "previous",
                          .baseline = as_previous ? faulty_forward : NULL,
                          .block_q = 8,
                          .block_k = 8,
                          .receipts = failing_receipts};
    char *arguments[] = {"faulty", "--seq", "20", mode, NULL};
    arguments[argc] = NULL;
    fault = which;
    const int code = stage_main(&faulty, argc, arguments);
    char line[256];
    FILE *out = cr_get_redirected_stdout();
    *text = calloc(1, PROCESS_TEXT);
    while (fgets(line, sizeof line, out)) strncat(*text, line, PROCESS_TEXT - 1 - strlen(*text));
    return code;
}

static int run_faulty(int which, bool as_previous, int argc, char **text)
{
    return run_faulty_mode(which, as_previous, argc, "--check", text);
}

static void redirect(void)
{
    cr_redirect_stdout();
    cr_redirect_stderr();
}

static void expect_failure(int which, bool as_previous, int argc)
{
    char *text;
    cr_expect_eq(run_faulty(which, as_previous, argc, &text), 1);
    cr_expect(strstr(text, "FAILED: "), "%s", text);
    free(text);
}

Test(exit_code, is_a_right_stage_0, .init = redirect)
{
    char *text;
    cr_expect_eq(run_faulty(NOTHING, false, 4, &text), 0);
    cr_expect(strstr(text, "ok: "), "%s", text);
    free(text);
}

Test(exit_code, is_a_nan_in_o_1, .init = redirect)
{
    expect_failure(NAN_IN_O, false, 4);
}

Test(exit_code, is_a_small_error_in_o_1, .init = redirect)
{
    expect_failure(SMALL_ERROR_IN_O, false, 4);
}

Test(exit_code, is_an_error_in_lse_1, .init = redirect)
{
    expect_failure(ERROR_IN_LSE, false, 4);
}

Test(exit_code, is_an_error_in_the_stage_before_1, .init = redirect)
{
    expect_failure(NAN_IN_O, true, 4);
}

Test(exit_code, is_a_failed_receipt_1, .init = redirect)
{
    expect_failure(NOTHING, false, 1);
}

// Its table would be of times that nothing took.
Test(exit_code, is_a_bench_of_what_fails_1_and_no_table, .init = redirect)
{
    for (int as_previous = 0; as_previous < 2; as_previous++) {
        char *text;
        cr_expect_eq(run_faulty_mode(REFUSES, as_previous, 4, "--bench", &text), 1);
        cr_expect_not(strstr(text, "median"), "%s", text);
        free(text);
    }
}

Test(command_line, does_help_list_every_option_within_80_columns)
{
    const char *const names[] = {
        "--batch N",   "--heads N",   "--seq N",     "--head-dim N", "--dtype TYPE", "--causal",
        "--scale X",   "--block-q N", "--block-k N", "--seed N",     "--amp X",      "--q FILE",
        "--k FILE",    "--v FILE",    "--out FILE",  "--lse FILE",   "--check",      "--bench",
        "--trace ROW", "--csv FILE",  "--threads N", "--help",       "--version",    "exit: 0"};
    for (int s = 0; s < 3; s++) {
        process *p = process_run("%s --help", programs[s]);
        cr_expect_eq(p->exit_code, 0);
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            cr_expect(strstr(p->out, names[i]), "%s --help lacks %s", programs[s], names[i]);
        cr_expect_leq(longest_line(p->out), 80, "%d", longest_line(p->out));
        cr_expect_eq(strstr(p->out, "--p-out") != NULL, s == 0);
        cr_expect_eq(strstr(p->out, "--logits LIST") != NULL, s == 1);
        free(p);
        p = process_run("%s --version", programs[s]);
        cr_expect_eq(p->exit_code, 0);
        cr_expect(strstr(p->out, "FlashAttention in stages"));
        free(p);
    }
    process *p = process_run("%s --p-out x.npy", STAGE2);
    expect_refusal(p, 2, "--p-out", "--p-out on stage 2");
    free(p);
}

// Every option of a shape reaches the run: the line that names the inputs says so.
Test(command_line, does_every_option_reach_the_run)
{
    for (int s = 0; s < 3; s++) {
        process *p =
            process_run("%s --batch 2 --heads 3 --seq 40 --head-dim 24 --dtype bf16 --causal "
                        "--scale 0.5 --block-q 16 --block-k 8 --seed 7 --amp 2 --threads 2 --check",
                        programs[s]);
        cr_expect_eq(p->exit_code, 0, "%s%s", p->out, p->error);
        cr_expect(strstr(p->out, "B=2 H=3 N=40 D=24 bf16 causal=on scale=0.5 seed=7 amp=2"), "%s",
                  p->out);
        cr_expect(strstr(p->out, "2 threads"));
        cr_expect(strstr(p->out, "240 of 240"));
        cr_expect_leq(longest_line(p->out), 80, "%s", p->out);
        free(p);
        p = process_run("%s --seq 40 --heads 1 --block-q 16 --block-k 8", programs[s]);
        cr_expect(strstr(p->out, s == 0   ? "in 0 tiles"
                                 : s == 1 ? "in 200 tiles"
                                          : "in 15 tiles"),
                  "%s", p->out);
        free(p);
        p = process_run("%s --seq 200 --bench --threads 2", programs[s]);
        cr_expect_eq(p->exit_code, 0, "%s", p->error);
        cr_expect(strstr(p->out, "% peak") && strstr(p->out, "stage 0"), "%s", p->out);
        cr_expect_leq(longest_line(p->out), 80, "%s", p->out);
        free(p);
    }
}

// P[i][j] = exp(scale q_i k_j - lse_i), and 0 where key j is masked.
static void expect_probabilities(const float *p, const problem *own)
{
    const attention_args *a = &own->args;
    int64_t wrong = 0;
    for (int64_t r = 0; r < own->rows; r++) {
        const int64_t i = r % a->seq;
        double sum = 0;
        for (int64_t j = 0; j < a->seq; j++) {
            const float *q = own->q + r * a->head_dim, *k = own->k + (r - i + j) * a->head_dim;
            double score = 0;
            for (int64_t x = 0; x < a->head_dim; x++) score += (double)q[x] * (double)k[x];
            score = exp((double)a->scale * score - (double)own->lse[r]);
            if (a->causal && j > i) score = 0;
            const double found = (double)p[r * a->seq + j];
            wrong += !(fabs(found - score) <= 2e-6) || (score == 0 && found != 0);
            sum += found;
        }
        wrong += !(fabs(sum - 1) <= 1e-6);
    }
    cr_expect_eq(wrong, 0, "%" PRId64 " probabilities or sums of rows are wrong", wrong);
}

Test(command_line, do_outputs_in_files_equal_the_library)
{
    const char *folder = folder_new();
    for (int run = 0; run < 6; run++) {
        const int dtype = run % 3;
        const bool other = run >= 3; // than the defaults
        process *p =
            process_run("%s --batch 2 --heads 3 --seq 33 --head-dim 16 --dtype %s --seed %d --out "
                        "%s/o.npy --lse %s/lse.npy --p-out %s/p.npy%s",
                        STAGE0, dtype_name((attention_dtype)dtype), 5 + run, folder, folder, folder,
                        other ? " --causal --scale -0.3 --amp 1.5" : "");
        cr_assert_eq(p->exit_code, 0, "%s", p->error);
        free(p);
        cr_expect_eq(folder_entries(folder), 3);
        problem own = problem_new(2, 3, 33, 16);
        own.args.dtype = (attention_dtype)dtype;
        own.args.causal = other;
        if (other) own.args.scale = -0.3f;
        problem_draw(&own, (uint32_t)(5 + run), other ? 1.5f : 1);
        problem_run(&own, attention_forward_stage0);
        char path[128];
        npy_header header;
        snprintf(path, sizeof path, "%s/o.npy", folder);
        float *o = read_file(path, &header);
        cr_expect_eq(header.rank, 4);
        cr_expect_str_eq(header.type, dtype == DTYPE_FP16 ? "f2" : "f4");
        cr_expect_eq(header.count, own.count);
        cr_expect_arr_eq(o, own.o, (size_t)own.count * sizeof *o);
        tensor_free(o);
        snprintf(path, sizeof path, "%s/lse.npy", folder);
        float *lse = read_file(path, &header);
        cr_expect_eq(header.rank, 3);
        cr_expect_arr_eq(lse, own.lse, (size_t)own.rows * sizeof *lse);
        tensor_free(lse);
        snprintf(path, sizeof path, "%s/p.npy", folder);
        float *probabilities = read_file(path, &header);
        cr_expect_eq(header.count, 6 * 33 * 33);
        expect_probabilities(probabilities, &own);
        tensor_free(probabilities);
        problem_free(&own);
    }
    folder_remove(folder);
}

// [N, D] in, [N, D] out; the same numbers from files as drawn; the same bytes at 1, 2, 16 threads.
Test(command_line, do_inputs_from_files_give_the_same_bytes)
{
    const char *folder = folder_new();
    problem own = problem_new(1, 1, 50, 16);
    problem_draw(&own, 0, 1);
    const float *const tensors[] = {own.q, own.k, own.v};
    char path[128];
    for (int t = 0; t < 3; t++) {
        snprintf(path, sizeof path, "%s/%c.npy", folder, "qkv"[t]);
        cr_assert_eq(npy_write(path, tensors[t], 2, (const int64_t[]){50, 16}, DTYPE_FP32),
                     ATTENTION_OK);
    }
    for (int s = 0; s < 3; s++)
        for (int run = 0; run < 3; run++) {
            const int threads = (const int[]){1, 2, 16}[run];
            process *p = process_run("%s --q %s/q.npy --k %s/k.npy --v %s/v.npy --out %s/o.npy "
                                     "--lse %s/lse.npy --threads %d",
                                     programs[s], folder, folder, folder, folder, folder, threads);
            cr_assert_eq(p->exit_code, 0, "%s", p->error);
            free(p);
            problem_run(&own, s == 0   ? attention_forward_stage0
                              : s == 1 ? attention_forward_stage1
                                       : attention_forward_stage2);
            npy_header header;
            snprintf(path, sizeof path, "%s/o.npy", folder);
            float *o = read_file(path, &header);
            cr_expect(header.rank == 2 && header.shape[0] == 50 && header.shape[1] == 16);
            cr_expect_arr_eq(o, own.o, (size_t)own.count * sizeof *o);
            tensor_free(o);
            snprintf(path, sizeof path, "%s/lse.npy", folder);
            float *lse = read_file(path, &header);
            cr_expect(header.rank == 1 && header.shape[0] == 50);
            cr_expect_arr_eq(lse, own.lse, (size_t)own.rows * sizeof *lse);
            tensor_free(lse);
        }
    problem_free(&own);
    folder_remove(folder);
}

// The next line of the table on stdout, with its cells joined by commas; columns are two spaces
// or more apart. False at the end of the table.
static bool table_line(const char **at, char *line, size_t size)
{
    size_t used = 0;
    int spaces = 0;
    if (strncmp(*at, "  ", 2) != 0) return false;
    const char *c = *at + 2;
    for (; *c && *c != '\n'; c++) {
        if (*c == ' ') {
            spaces++;
            continue;
        }
        if (spaces > 0) line[used++] = spaces > 1 ? ',' : ' ';
        spaces = 0;
        cr_assert_lt(used, size - 2);
        line[used++] = *c;
    }
    line[used++] = '\n';
    line[used] = '\0';
    *at = c + (*c == '\n');
    return true;
}

Test(command_line, does_the_csv_hold_what_the_table_shows)
{
    const char *folder = folder_new();
    const char *const modes[] = {"--check", "--bench", "--trace 7"};
    const char *const headers[] = {"vs float64,rows,max err,mean err,rounding,of bound,lse err\n",
                                   "method,first ms,median,min,max,GFLOP/s,% peak,scratch MiB\n",
                                   "tile,first key,keys,m_old,m_new,correction,l\n"};
    const int rows[] = {2, 2, 4};
    for (int m = 0; m < 3; m++) {
        process *p =
            process_run("%s --seq 100 --block-k 32 %s --csv %s/t.csv", STAGE2, modes[m], folder);
        cr_assert_eq(p->exit_code, 0, "%s", p->error);
        char path[128], cells[512], row[512];
        snprintf(path, sizeof path, "%s/t.csv", folder);
        FILE *file = fopen(path, "r");
        cr_assert_not_null(file);
        snprintf(cells, sizeof cells, "  %.8s", headers[m]); // the table begins with these headings
        cells[2 + strcspn(headers[m], ",")] = '\0';
        const char *at = strstr(p->out, cells);
        cr_assert_not_null(at, "%s", p->out);
        for (int r = -1; r < rows[m]; r++) {
            cr_assert(table_line(&at, cells, sizeof cells), "%s", p->out);
            cr_assert(fgets(row, sizeof row, file), "%s: row %d is missing", modes[m], r);
            cr_expect_str_eq(row, cells, "%s", modes[m]);
            if (r < 0) cr_expect_str_eq(row, headers[m]);
            if (r < 0) cr_assert(table_line(&at, cells, sizeof cells)); // the rule of dashes
        }
        cr_expect_null(fgets(row, sizeof row, file), "%s: a row too many: %s", modes[m], row);
        fclose(file);
        free(p);
    }
    folder_remove(folder);
}

Test(command_line, does_the_locale_change_nothing)
{
    const char *folder = folder_new();
    const char *const command = "%s --seq 40 --scale 0.5 --check --csv %s/%c.csv";
    process *plain = process_run(command, STAGE2, folder, 'a');
    setenv("LC_ALL", "de_DE.UTF-8", 1); // a decimal comma, where that locale is installed
    setenv("LC_NUMERIC", "de_DE.UTF-8", 1);
    process *german = process_run(command, STAGE2, folder, 'b');
    cr_expect_eq(german->exit_code, 0);
    cr_expect_str_eq(german->out, plain->out);
    free(plain);
    free(german);
    plain = process_run("/usr/bin/cmp %s/a.csv %s/b.csv", folder, folder);
    cr_expect_eq(plain->exit_code, 0, "%s", plain->out);
    free(plain);
    folder_remove(folder);
}

#ifndef UNDER_ASAN // whose runtime knows the name
// That locale is rarely installed; so also: a program keeps the C locale unless it calls setlocale.
Test(command_line, does_no_program_ask_for_a_locale)
{
    for (int s = 0; s < 3; s++) {
        FILE *file = fopen(programs[s], "rb");
        cr_assert_not_null(file);
        char *bytes = malloc(1 << 24);
        const size_t size = fread(bytes, 1, 1 << 24, file);
        fclose(file);
        cr_assert(size > 0 && size < 1 << 24);
        cr_expect(memmem(bytes, size, "fopen", 5), "%s: no names to search", programs[s]);
        cr_expect_not(memmem(bytes, size, "setlocale", 9), "%s calls setlocale", programs[s]);
        free(bytes);
    }
}
#endif

// Stages 1 and 2 print the same rebase for the same block size.
Test(command_line, do_stages_1_and_2_trace_alike)
{
    process *one = process_run("%s --seq 300 --block-k 64 --causal --trace 500", STAGE1);
    process *two =
        process_run("%s --seq 300 --block-k 64 --causal --trace 500 --block-q 33", STAGE2);
    cr_expect_eq(one->exit_code, 0);
    cr_expect_str_eq(strstr(one->out, "rebase of"), strstr(two->out, "rebase of"));
    cr_expect(strstr(one->out, "rebase of batch 0, head 1, query 200"), "%s", one->out);
    free(one);
    free(two);
}

// --bench measures the machine's peak with this binary and prints the share beside it.
Test(command_line, is_the_scratch_of_stage_2_the_same_at_any_length)
{
    process *p = process_run("%s --seq 256 --bench --threads 2", STAGE2),
            *q = process_run("%s --seq 1024 --bench --threads 2", STAGE2);
    double scratch[2];
    const process *const runs[] = {p, q};
    for (int i = 0; i < 2; i++) {
        const char *row = strstr(runs[i]->out, "  stage 2 ");
        cr_assert_not_null(row);
        cr_assert_eq(sscanf(row, " stage 2 %*f %*f %*f %*f %*f %*f %lf", &scratch[i]), 1, "%s",
                     row);
    }
    cr_expect_eq(scratch[0], scratch[1]);
    cr_expect_lt(scratch[1], 8);
    free(p);
    free(q);
}

Test(build, does_a_second_build_do_nothing)
{
    process *p = make_run("-s", "stage0 stage1 stage2 stage3 stage4 stage5 stage6 stage7");
    if (!p) cr_skip_test("build/config does not tell the compiler");
    cr_expect_eq(p->exit_code, 0, "%s", p->error);
    cr_expect_str_empty(p->out);
    cr_expect_str_empty(p->error);
    free(p);
}

// A peak taken while another job held a core would make shares above 100 %.
Test(command_line, is_the_peak_the_larger_of_two_measurements)
{
    process *p = process_run("%s --seq 64 --bench --threads 2", STAGE2);
    double peak, before, after;
    const char *peak_at = strstr(p->out, "peak: "), *both = strstr(p->out, "the larger of ");
    cr_assert(peak_at && both, "%s", p->out);
    cr_assert_eq(sscanf(peak_at, "peak: %lf", &peak), 1);
    cr_assert_eq(sscanf(both, "the larger of %lf and %lf", &before, &after), 2);
    cr_expect_eq(peak, fmax(before, after));
    free(p);
}

// Every .PHONY target has a line, or stands for its stage as stageN, test-N or diff-N.
Test(build, does_make_help_list_every_target)
{
    process *help = make_run("-s", "help");
    if (!help) cr_skip_test("build/config does not tell the compiler");
    process *database = make_run("-pn", "help");
    int targets = 0;
    for (char *line = strtok(database->out, "\n"); line; line = strtok(NULL, "\n")) {
        if (strncmp(line, ".PHONY:", 7) != 0) continue;
        char *rest;
        for (char *name = strtok_r(line + 7, " ", &rest); name; name = strtok_r(NULL, " ", &rest)) {
            char entry[64];
            snprintf(entry, sizeof entry, "make %s ", name);
            const size_t last = strlen(entry) - 2;
            if (entry[last] >= '0' && entry[last] <= '9') entry[last] = 'N';
            cr_expect(strstr(help->out, entry), "make help lacks %s", name);
            targets++;
        }
        break;
    }
    cr_expect_geq(targets, 18);
    free(database);
    free(help);
}

// ---- the CUDA stages --------------------------------------------------------------------------

Test(cuda_command_line, is_what_a_kernel_does_not_take_refused_before_any_work)
{
    const char *const bad[][2] = {{"--dtype fp32", "fp16 and bf16"},
                                  {"--head-dim 63", "64 and 128"},
                                  {"--head-dim 256", "64 and 128"},
                                  {"--block-q 64 --block-k 64", "128 x 64"},
                                  {"--kernel scalar --block-q 128", "64 x 32"},
                                  {"--kernel triton", "tensor, scalar"},
                                  {"--device tpu", "auto, gpu, cpu"},
                                  {"--seq 99999999999 --heads 1 --dtype fp32", "fp16 and bf16"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        process *p = process_run("%s --device cpu %s", STAGE3, bad[i][0]);
        if (strstr(bad[i][0], "--device")) {
            free(p);
            p = process_run("%s %s", STAGE3, bad[i][0]);
        }
        expect_refusal(p, 2, bad[i][1], bad[i][0]);
        free(p);
    }
    process *p = process_run("%s --kernel tensor", STAGE4); // it has one kernel and no such option
    expect_refusal(p, 2, "--kernel", "--kernel");
    free(p);
    p = process_run("%s --device cpu", STAGE2);
    expect_refusal(p, 2, "--device", "--device");
    free(p);
    p = process_run("%s --device cpu --seq 4294967296", STAGE3);
    expect_refusal(p, 3, "bytes", "a sequence no memory holds");
    free(p);
}

// Stages 6 and 7 have another tile than stage 5.
Test(cuda_command_line, does_the_stage_before_run_in_its_own_tile)
{
    const char *const runs[][2] = {{"stage6_hopper/run", "stage 5"},
                                   {"stage7_overlap/run", "stage 6"}};
    for (int i = 0; i < 4; i++) {
        process *p = process_run("%s --device cpu --heads 1 --seq 70 --head-dim %d --check --bench",
                                 runs[i / 2][0], i % 2 ? 128 : 64);
        cr_expect_eq(p->exit_code, 0, "%s", p->error);
        cr_expect(strstr(p->out, "70 of 70") && strstr(p->out, runs[i / 2][1]));
        cr_expect(strstr(p->out, "takes"), "a time beside the stage before's");
        free(p);
    }
}

// No card is visible, whether the machine has one or not.
Test(cuda_command_line, is_a_missing_gpu_a_sentence_and_exit_3)
{
    process *p = process_run("/usr/bin/env CUDA_VISIBLE_DEVICES= %s --device gpu --seq 64", STAGE3);
    cr_expect_eq(p->exit_code, 3, "%d", p->exit_code);
    cr_expect_eq(count_lines(p->error), 1, "%s", p->error);
    cr_expect_eq(p->out[0], '\0');
    free(p);
    p = process_run("/usr/bin/env CUDA_VISIBLE_DEVICES= %s --seq 64 --csv /tmp/none.csv --bench",
                    STAGE4);
    cr_expect_eq(p->exit_code, 0, "%s", p->error);
    cr_expect(strstr(p->out, "emulator") < strchr(p->out, '\n'), "the first line says which ran");
    cr_expect(strstr(p->out, "\nno GPU: "));
    cr_expect(strstr(p->out, "says nothing about a GPU"));
    free(p);
}

Test(cuda_command_line, do_files_go_in_and_come_out_in_16_bits)
{
    const int64_t shape[4] = {1, 2, 70, 64};
    npy_header header;
    write_file("/tmp/cuda_q.npy", 4, shape, 0.25f);
    process *p = process_run("%s --device cpu --q /tmp/cuda_q.npy --k /tmp/cuda_q.npy --v "
                             "/tmp/cuda_q.npy --out /tmp/cuda_o.npy --lse /tmp/cuda_lse.npy",
                             STAGE3);
    cr_expect_eq(p->exit_code, 0, "%s", p->error);
    float *o = read_file("/tmp/cuda_o.npy", &header);
    cr_expect_eq(header.count, 2 * 70 * 64);
    cr_expect_str_eq(header.type, "f2");
    tensor_free(o);
    o = read_file("/tmp/cuda_lse.npy", &header);
    cr_expect_eq(header.count, 2 * 70);
    tensor_free(o);
    free(p);
}

Test(cuda_command_line, does_help_name_the_devices_and_kernels)
{
    process *p = process_run("%s --help", STAGE3);
    cr_expect(strstr(p->out, "--device WHERE") && strstr(p->out, "--kernel NAME"));
    cr_expect(strstr(p->out, "64 or 128") && strstr(p->out, "fp16 or bf16"));
    cr_expect_leq(longest_line(p->out), 80);
    free(p);
    p = process_run("%s --help", STAGE2);
    cr_expect_null(strstr(p->out, "--device"));
    free(p);
}
