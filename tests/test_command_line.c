// The command line, as a person or a script meets it. Run from the repository root.
#include <math.h>

#include "npy.h"
#include "process.h"
#include "stage.h"
#include "support.h"

#define STAGE0 "stage0_explicit/run"
#define STAGE1 "stage1_online_softmax/run"
#define STAGE2 "stage2_tiled_cpu/run"

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
        {"--causal=1", "--causal"},
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
        {STAGE0, "--seq 200000 --heads 1", "320000000000 bytes"},
        {STAGE0, "--seq 4294967296", "bytes"},
        {STAGE1, "--seq 4294967296000", "bytes"},
        {STAGE2, "--seq 9223372036854775807", "bytes"},
        {STAGE2, "--batch 4294967296 --heads 4294967296", "bytes"},
        {STAGE2, "--seq 100000000000", "bytes"},
    };
    for (int i = 0; i < 6; i++) {
        process *p = process_run("%s %s", huge[i][0], huge[i][1]);
        expect_refusal(p, 3, huge[i][2], huge[i][1]);
        free(p);
    }
#ifndef __SANITIZE_ADDRESS__ // which reserves terabytes of address space
    process *p = process_run_with((process_options){.memory_limit = (size_t)512 << 20},
                                  "%s --seq 12000 --heads 1", STAGE0);
    expect_refusal(p, 3, "1152000000 bytes", "under a limit");
    free(p);
#endif
}

Test(command_line, does_stage_2_run_32768_tokens_within_a_gibibyte)
{
    process_options o = {0};
#ifndef __SANITIZE_ADDRESS__
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

static attention_status broken_forward(const float *q, const float *k, const float *v, float *o,
                                       float *lse, const attention_args *args)
{
    const attention_status status = attention_forward_stage2(q, k, v, o, lse, args);
    o[5] = NAN; // [32] the corrupted element that a check must see
    return status;
}

static void no_receipts(int threads)
{
    (void)threads;
}

Test(command_line, does_a_failed_check_exit_1)
{
    const stage broken = {.name = "broken",
                          .title = "one NaN",
                          .forward = broken_forward,
                          .block_q = 8,
                          .block_k = 8,
                          .receipts = no_receipts};
    char *arguments[] = {"broken", "--seq", "20", "--check", NULL};
    cr_expect_eq(stage_main(&broken, 4, arguments), 1);
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

Test(command_line, do_outputs_in_files_equal_the_library)
{
    const char *folder = folder_new();
    for (int dtype = 0; dtype < 3; dtype++) {
        process *p =
            process_run("%s --batch 2 --heads 3 --seq 33 --head-dim 16 --dtype %s --seed 5 --out "
                        "%s/o.npy --lse %s/lse.npy --p-out %s/p.npy",
                        STAGE0, dtype_name((attention_dtype)dtype), folder, folder, folder);
        cr_assert_eq(p->exit_code, 0, "%s", p->error);
        free(p);
        cr_expect_eq(folder_entries(folder), 3);
        problem own = problem_new(2, 3, 33, 16);
        own.args.dtype = (attention_dtype)dtype;
        problem_draw(&own, 5, 1);
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
        double sum = 0;
        for (int64_t j = 0; j < 33; j++) sum += (double)probabilities[5 * 33 + j];
        cr_expect_float_eq(sum, 1, 1e-6);
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
        for (int threads = 1; threads <= 16; threads *= 4) {
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
            tensor_free(lse);
        }
    problem_free(&own);
    folder_remove(folder);
}

Test(command_line, does_the_csv_hold_what_the_table_shows)
{
    const char *folder = folder_new();
    const char *const modes[] = {"--check", "--bench", "--trace 7"};
    const char *const headers[] = {"vs float64,rows,max err,mean err,rounding,of bound,lse err\n",
                                   "method,first ms,median,min,max,GFLOP/s,% peak,scratch MiB\n",
                                   "tile,first key,keys,m_old,m_new,correction,l\n"};
    for (int m = 0; m < 3; m++) {
        process *p =
            process_run("%s --seq 100 --block-k 32 %s --csv %s/t.csv", STAGE2, modes[m], folder);
        cr_assert_eq(p->exit_code, 0, "%s", p->error);
        char path[128], text[4096];
        snprintf(path, sizeof path, "%s/t.csv", folder);
        FILE *file = fopen(path, "r");
        cr_assert_not_null(file);
        text[fread(text, 1, sizeof text - 1, file)] = '\0';
        fclose(file);
        cr_expect_eq(strncmp(text, headers[m], strlen(headers[m])), 0, "%s", text);
        // every cell stands in the table too
        for (char *cell = strtok(text, ",\n"); cell; cell = strtok(NULL, ",\n"))
            cr_expect(strstr(p->out, cell), "%s", cell);
        free(p);
    }
    folder_remove(folder);
}

Test(command_line, does_the_locale_change_nothing)
{
    process *plain = process_run("%s --seq 40 --check --scale 0.5", STAGE2);
    setenv("LC_ALL", "de_DE.UTF-8", 1); // a decimal comma, where that locale is installed
    setenv("LC_NUMERIC", "de_DE.UTF-8", 1);
    process *german = process_run("%s --seq 40 --check --scale 0.5", STAGE2);
    cr_expect_eq(german->exit_code, 0);
    cr_expect_str_eq(german->out, plain->out);
    free(plain);
    free(german);
}

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

Test(command_line, does_a_second_build_do_nothing_and_help_list_every_target)
{
    process *p = process_run("/usr/bin/env sh tests/build_again.sh");
    cr_expect_eq(p->exit_code, 0, "%s%s", p->out, p->error);
    free(p);
}
