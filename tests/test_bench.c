// The benchmark's CSV and program, and the figures drawn from it. Run from the repository root.
#include <locale.h>

#include "process.h"
#include "row.h"
#include "support.h"

static bench_row a_row(const char *method, double ms)
{
    bench_row r = {.batch = 1,
                   .heads = 16,
                   .seq = 8192,
                   .head_dim = 64,
                   .repeats = 7,
                   .ms_median = ms,
                   .ms_min = ms / 2,
                   .ms_max = 2 * ms,
                   .ms_first = NAN,
                   .ms_host = 1e-3,
                   .ms_graph = NAN,
                   .tflops = 1234.5678,
                   .share_of_peak = 0.25,
                   .peak_tflops = NAN,
                   .matmul_tflops = NAN,
                   .copy_gbs = NAN,
                   .ratio_to_sdpa_flash = NAN,
                   .ratio_to_sdpa_cudnn = NAN,
                   .peak_extra_mib = 0,
                   .peak_extra_with_o_mib = 16,
                   .max_abs_err = 1e-5};
    snprintf(r.method, ROW_TEXT, "%s", method);
    snprintf(r.dtype, ROW_TEXT, "fp16");
    snprintf(r.device, ROW_TEXT, "A card");
    snprintf(r.status, ROW_TEXT, "ok");
    return r;
}

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    fputs(text, file);
    fclose(file);
}

static char *file_text(const char *path)
{
    char *text = calloc(1, 1 << 16);
    FILE *file = fopen(path, "r");
    cr_assert(file && text);
    text[fread(text, 1, (1 << 16) - 1, file)] = '\0';
    fclose(file);
    return text;
}

Test(bench, does_a_row_come_back_as_it_was_written)
{
    bench_rows rows = {0}, back = {0};
    bench_row one = a_row("stage_3", 0.125), two = a_row("sdpa_flash", 0.5);
    cr_assert_eq(rows_add(&rows, &one) || rows_add(&rows, &two), ATTENTION_OK);
    cr_assert_eq(rows_write(&rows, "/tmp/bench_rows.csv"), ATTENTION_OK, "%s", status_message());
    cr_assert_eq(rows_read(&back, "/tmp/bench_rows.csv"), ATTENTION_OK, "%s", status_message());
    cr_assert_eq(back.count, 2);
    cr_expect_str_eq(back.rows[0].method, "stage_3");
    cr_expect_eq(back.rows[0].seq, 8192);
    cr_expect_eq(back.rows[0].ms_median, 0.125);
    cr_expect_eq(back.rows[1].peak_extra_with_o_mib, 16);
    cr_expect(isnan(back.rows[0].ms_first) && isnan(back.rows[1].peak_tflops));
    cr_expect_str_eq(back.rows[1].status, "ok");
    rows_free(&rows);
    rows_free(&back);
}

Test(bench, is_the_file_the_same_under_a_locale_with_commas)
{
    if (!setlocale(LC_ALL, "de_DE.UTF-8") && !setlocale(LC_ALL, "de_DE.utf8"))
        cr_skip_test("there is no German locale here");
    bench_rows rows = {0};
    bench_row one = a_row("stage3", 0.125);
    cr_assert_eq(rows_add(&rows, &one), ATTENTION_OK);
    cr_assert_eq(rows_write(&rows, "/tmp/bench_locale.csv"), ATTENTION_OK);
    char *text = file_text("/tmp/bench_locale.csv");
    cr_expect(strstr(text, "0.125") && !strstr(text, "0,125"));
    free(text);
    rows_free(&rows);
}

Test(bench, is_a_file_that_is_no_such_table_refused_with_its_line)
{
    bench_rows rows = {0};
    bench_row one = a_row("stage3", 0.125);
    cr_assert_eq(rows_add(&rows, &one), ATTENTION_OK);
    cr_assert_eq(rows_write(&rows, "/tmp/bench_good.csv"), ATTENTION_OK);
    char *good = file_text("/tmp/bench_good.csv"), *bad = calloc(1, 1 << 16);
    const char *const faults[] = {"method,oops\n", "", NULL};
    for (int i = 0; faults[i]; i++) {
        if (faults[i][0])
            snprintf(bad, 1 << 16, "%s%s", faults[i], strchr(good, '\n') + 1);
        else
            snprintf(bad, 1 << 16, "%s,more\n", good);
        write_text("/tmp/bench_bad.csv", bad);
        rows_free(&rows);
        cr_expect_eq(rows_read(&rows, "/tmp/bench_bad.csv"), ATTENTION_BAD_FILE, "%d", i);
        cr_expect(strstr(status_message(), "/tmp/bench_bad.csv:"), "%s", status_message());
    }
    write_text("/tmp/bench_bad.csv", good);
    strstr(good, ",8192,")[3] = 'x';
    write_text("/tmp/bench_bad.csv", good);
    cr_expect_eq(rows_read(&rows, "/tmp/bench_bad.csv"), ATTENTION_BAD_FILE);
    cr_expect(strstr(status_message(), "seq is '81x2'"), "%s", status_message());
    cr_expect_eq(rows_read(&rows, "/tmp/no_such_file.csv"), ATTENTION_BAD_FILE);
    free(good);
    free(bad);
    rows_free(&rows);
}

// Above 1 is faster than the peer; a shape without the peer's row has none.
Test(bench, are_the_ratios_those_to_the_same_shape)
{
    bench_rows rows = {0};
    bench_row own = a_row("stage3", 0.5), peer = a_row("sdpa_flash", 0.25),
              other = a_row("stage3", 0.5);
    other.seq = 4096;
    cr_assert_eq(rows_add(&rows, &own) || rows_add(&rows, &peer) || rows_add(&rows, &other),
                 ATTENTION_OK);
    rows_fill_ratios(&rows);
    cr_expect_eq(rows.rows[0].ratio_to_sdpa_flash, 0.5);
    cr_expect_eq(rows.rows[1].ratio_to_sdpa_flash, 1);
    cr_expect(isnan(rows.rows[0].ratio_to_sdpa_cudnn) && isnan(rows.rows[2].ratio_to_sdpa_flash));
    rows.rows[0].ms_graph = 0.1; // graph against graph, or median against median
    rows_fill_ratios(&rows);
    cr_expect_eq(rows.rows[0].ratio_to_sdpa_flash, 0.5);
    rows.rows[1].ms_graph = 0.2;
    rows_fill_ratios(&rows);
    cr_expect_float_eq(rows.rows[0].ratio_to_sdpa_flash, 2, 1e-12);
    snprintf(rows.rows[1].status, ROW_TEXT, "oom");
    rows_fill_ratios(&rows);
    cr_expect(isnan(rows.rows[0].ratio_to_sdpa_flash));
    rows_free(&rows);
}

Test(bench, does_a_sweep_on_the_cpu_write_its_rows_and_resume, .timeout = 120)
{
    bench_rows rows = {0};
    remove("/tmp/bench_cpu.csv");
    const char *sweep = "build/bench --device cpu --heads 2 --head-dim 64 --from 64 --to %d "
                        "--threads 2 --csv /tmp/bench_cpu.csv --commit abc %s";
    char command[256];
    snprintf(command, sizeof command, sweep, 64, "");
    process *p = process_run("%s", command);
    cr_expect_eq(p->exit_code, 0, "%s", p->error);
    free(p);
    cr_assert_eq(rows_read(&rows, "/tmp/bench_cpu.csv"), ATTENTION_OK, "%s", status_message());
    const int64_t once = rows.count;
    cr_expect_geq(once, 6); // three stages, two masks; OpenBLAS where it is
    for (int64_t i = 0; i < once; i++) {
        cr_expect_str_eq(rows.rows[i].status, "ok");
        cr_expect(rows.rows[i].ms_min <= rows.rows[i].ms_median &&
                  rows.rows[i].ms_median <= rows.rows[i].ms_max && rows.rows[i].ms_min > 0);
        cr_expect(rows.rows[i].max_abs_err < 2e-6 && rows.rows[i].max_abs_err >= 0);
        cr_expect_str_eq(rows.rows[i].commit, "abc");
        // [29] from the shape: 4 B H D N^2, or N (N + 1) / 2 for N^2
        const double n = 64, flops = 4 * 2 * 64 * (rows.rows[i].causal ? n * (n + 1) / 2 : n * n);
        cr_expect_float_eq(1e9 * rows.rows[i].tflops * rows.rows[i].ms_median, flops, 1e-3 * flops);
    }
    const double first = rows.rows[0].ms_median;
    rows_free(&rows);
    snprintf(command, sizeof command, sweep, 128, "--resume");
    p = process_run("%s", command);
    cr_expect_eq(p->exit_code, 0, "%s", p->error);
    free(p);
    cr_assert_eq(rows_read(&rows, "/tmp/bench_cpu.csv"), ATTENTION_OK);
    cr_expect_eq(rows.count, 2 * once);
    cr_expect_eq(rows.rows[0].ms_median, first, "a row that was there was measured again");
    rows_free(&rows);
}

Test(bench, is_bad_usage_one_line)
{
    const char *const bad[][2] = {
        {"", "--csv is required"},
        {"--csv /tmp/x.csv --device tpu", "gpu, cpu"},
        {"--csv /no/such/folder/x.csv --device cpu --to 128", "/no/such"},
        {"--csv /tmp/x.csv --commit a,b", "comma"},
        {"--csv /tmp/x.csv --device cpu --head-dim 96", "nothing to measure"},
        {"--csv /tmp/x.csv --device cpu --only nosuch", "nothing to measure"},
        {"--csv /tmp/x.csv --device cpu --from 256 --to 128", "nothing to measure"},
        {"--csv /tmp/no_such_rows.csv --fill-ratios", "cannot be opened"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        process *p = process_run("build/bench %s", bad[i][0]);
        cr_expect_eq(p->exit_code, 2, "%s: %d", bad[i][0], p->exit_code);
        cr_expect_eq(count_lines(p->error), 1, "%s", p->error);
        cr_expect(strstr(p->error, bad[i][1]), "%s", p->error);
        free(p);
    }
    process *p = process_run("/usr/bin/env CUDA_VISIBLE_DEVICES= build/bench --csv /tmp/x.csv");
    cr_expect_eq(p->exit_code, 3, "%s", p->error);
    free(p);
}

// Every measured figure of the main README's ladder comes from the committed CSV.
Test(bench, is_the_ladder_of_the_readme_what_its_command_prints)
{
    process *p = process_run("bench/ladder.sh");
    char *readme = file_text("README.md");
    cr_expect_eq(p->exit_code, 0, "%s", p->error);
    cr_expect_geq(count_lines(p->out), 10);
    cr_expect(strstr(readme, p->out), "README.md lacks what bench/ladder.sh prints");
    free(readme);
    free(p);
}

Test(bench, are_the_tables_of_the_documents_what_their_command_prints)
{
    const char *const where[][2] = {{"short", "docs/performance.md"},
                                    {"beside", "docs/performance.md"},
                                    {"carried", "bench/README.md"},
                                    {"repeat", "bench/README.md"},
                                    {"stage3", "stage3_fused_cuda/README.md"},
                                    {"stage4", "stage4_causal_skip/README.md"},
                                    {"stage5", "stage5_async_copy/README.md"},
                                    {"stage6", "stage6_hopper/README.md"},
                                    {"stage7", "stage7_overlap/README.md"}};
    for (size_t i = 0; i < sizeof where / sizeof *where; i++) {
        process *p = process_run("bench/tables.sh %s", where[i][0]);
        char *document = file_text(where[i][1]);
        cr_expect_eq(p->exit_code, 0, "%s", p->error);
        cr_expect_geq(count_lines(p->out), 5);
        cr_expect(strstr(document, p->out), "%s lacks what bench/tables.sh %s prints", where[i][1],
                  where[i][0]);
        free(document);
        free(p);
    }
}

// Else a call's time would hold the host's: a slow one gets a longer start, and where that is not
// enough either the row says so.
Test(bench, is_a_host_that_comes_too_late_noticed)
{
    process *p = process_run("/usr/bin/env python3 tests/late_host.py");
    cr_expect_eq(p->exit_code, 0, "%s", p->error);
    cr_expect_str_eq(p->out, "ok 200000 200000\nok 200000 1200000\nlate 200000 200000\n");
    free(p);
}

// R15 and R16, from the receipts of stages 2 and 4 and the committed CSVs.
Test(bench, are_the_closing_tables_of_the_readme_what_their_command_prints, .timeout = 120)
{
    process *p = process_run("bench/closing.sh");
    char *readme = file_text("README.md");
    cr_expect_eq(p->exit_code, 0, "%s", p->error);
    cr_expect_geq(count_lines(p->out), 25);
    cr_expect(strstr(readme, p->out), "README.md lacks what bench/closing.sh prints");
    free(readme);
    free(p);
}

// R15: the explicit path over the fused kernel widens with N, in the committed measurement.
Test(bench, does_the_gain_over_the_explicit_path_widen_with_n)
{
    bench_rows rows = {0};
    cr_assert_eq(rows_read(&rows, "bench/results/h200/bench.csv"), ATTENTION_OK, "%s",
                 status_message());
    for (int causal = 0; causal < 2; causal++) {
        double before = 0;
        for (int64_t n = 512; n <= 8192; n *= 2) {
            bench_row key = a_row("stage4", 0);
            snprintf(key.device, ROW_TEXT, "NVIDIA H200");
            key.seq = n;
            key.causal = causal;
            const bench_row *fused = rows_find(&rows, &key);
            snprintf(key.method, ROW_TEXT, "torch_eager_fp16");
            const bench_row *whole = rows_find(&rows, &key);
            cr_assert(fused && whole);
            // Where a call is mostly its launches, the CUDA graph's time.
            const double gain = isfinite(whole->ms_graph) && isfinite(fused->ms_graph)
                                    ? whole->ms_graph / fused->ms_graph
                                    : whole->ms_median / fused->ms_median;
            cr_expect_gt(gain, before, "N=%" PRId64, n);
            before = gain;
        }
    }
    rows_free(&rows);
}

// An empty table or one of a single row gives a picture, if a sparse one, and never an error.
Test(figures, do_they_survive_an_empty_and_a_one_row_table, .timeout = 120)
{
    if (system("command -v gnuplot >/dev/null") != 0) cr_skip_test("there is no gnuplot");
    const char *const scripts[][2] = {
        {"rebase", "docs/figures/data/rebase.csv"}, {"rescale", "docs/figures/data/rescale.csv"},
        {"tiles", "docs/figures/data/tiles.csv"},   {"traffic", "docs/figures/data/traffic.csv"},
        {"ladder", "bench/results/h200/bench.csv"}, {"bench", "bench/results/h200/bench.csv"}};
    cr_assert_eq(system("rm -rf /tmp/figures_here && mkdir -p /tmp/figures_here/docs/figures && cp "
                        "docs/figures/*.gp /tmp/figures_here/docs/figures/"),
                 0);
    for (size_t s = 0; s < sizeof scripts / sizeof *scripts; s++)
        for (int lines = 1; lines <= 2; lines++) {
            char command[512];
            snprintf(
                command, sizeof command,
                "head -n %d %s > /tmp/figures_here/data.csv && cd /tmp/figures_here && gnuplot -e "
                "\"data='data.csv'\" docs/figures/%s.gp >out 2>&1",
                lines, scripts[s][1], scripts[s][0]);
            cr_expect_eq(system(command), 0, "%s with %d lines", scripts[s][0], lines - 1);
        }
    cr_expect_neq(system("cd /tmp/figures_here && gnuplot -e \"data='none.csv'\" "
                         "docs/figures/bench.gp >out 2>&1"),
                  0);
    cr_expect_eq(system("grep -q 'cannot read none.csv' /tmp/figures_here/out"), 0);
}
