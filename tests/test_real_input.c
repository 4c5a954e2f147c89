// Q, K and V of a trained model (docs/data/README.md) through every stage.
#include <math.h>
#include <stddef.h>

#include "npy.h"
#include "process.h"
#include "tensor.h"

#define REAL "--q docs/data/q.npy --k docs/data/k.npy --v docs/data/v.npy"

enum { HEADS = 12, TOKENS = 16 };

static const char *const programs[] = {"stage0_explicit/run", "stage1_online_softmax/run",
                                       "stage2_tiled_cpu/run"};

// Stage 0's P, [1, HEADS, TOKENS, TOKENS], saved in the folder as p.npy. Ends with tensor_free.
static float *save_p(const char *folder)
{
    char path[128];
    npy_header header;
    float *p;
    process *run = process_run("stage0_explicit/run " REAL " --p-out %s/p.npy", folder);
    cr_assert_eq(run->exit_code, 0, "%s", run->error);
    free(run);
    snprintf(path, sizeof path, "%s/p.npy", folder);
    cr_assert_eq(npy_read(path, &header, &p), ATTENTION_OK, "%s", status_message());
    cr_assert(header.rank == 4 && header.shape[0] == 1 && header.shape[1] == HEADS &&
              header.shape[2] == TOKENS && header.shape[3] == TOKENS);
    cr_assert_str_eq(header.type, "f4");
    return p;
}

Test(real_input, do_all_stages_take_the_tensors_of_a_trained_model)
{
    const char *const more[] = {"", " --causal", " --dtype fp16", " --block-q 5 --block-k 3"};
    for (int s = 0; s < 3; s++)
        for (int i = 0; i < 4; i++) {
            process *p = process_run("%s " REAL " --check%s", programs[s], more[i]);
            cr_expect_eq(p->exit_code, 0, "%s%s", p->out, p->error);
            cr_expect(strstr(p->out, "B=1 H=12 N=16 D=32"), "%s", p->out);
            cr_expect(strstr(p->out, "192 of 192"), "%s", p->out);
            cr_expect(strstr(p->out, "ok: every element"), "%s", p->out);
            free(p);
        }
}

Test(real_input, do_the_rows_of_p_sum_to_1)
{
    const char *folder = folder_new();
    float *p = save_p(folder);
    for (int r = 0; r < HEADS * TOKENS; r++) {
        double sum = 0;
        for (int j = 0; j < TOKENS; j++) {
            cr_expect(p[r * TOKENS + j] >= 0 && p[r * TOKENS + j] <= 1);
            sum += (double)p[r * TOKENS + j];
        }
        cr_expect_float_eq(sum, 1, 1e-6, "row %d sums to %.9f", r, sum);
    }
    tensor_free(p);
    folder_remove(folder);
}

// The place of a token in the sentence.
static int token(const char *name)
{
    char line[64];
    FILE *file = fopen("docs/data/tokens.txt", "r");
    cr_assert_not_null(file);
    int at = -1;
    for (int i = 0; fgets(line, sizeof line, file); i++) {
        line[strcspn(line, "\r\n")] = '\0';
        if (at < 0 && strcmp(line, name) == 0) at = i;
    }
    fclose(file);
    cr_assert_geq(at, 0, "no token '%s'", name);
    return at;
}

// "it" puts 65 % of its weight on "kernel", "its" 51 %, "the" 88 %, and "to" 69 % on "##max".
Test(real_input, does_head_1_look_where_the_readme_says)
{
    const struct {
        const char *query, *key;
        int percent;
    } says[] = {
        {"it", "kernel", 65}, {"its", "kernel", 51}, {"the", "kernel", 88}, {"to", "##max", 69}};
    const char *folder = folder_new();
    float *p = save_p(folder), *head1 = p + (ptrdiff_t)TOKENS * TOKENS;
    for (int i = 0; i < 4; i++) {
        const float *row = head1 + (ptrdiff_t)token(says[i].query) * TOKENS;
        const double found = (double)row[token(says[i].key)];
        cr_expect_lt(fabs(100 * found - says[i].percent), 0.5, "%s: %s %.3f", says[i].query,
                     says[i].key, found);
    }
    const char *const on_cls[] = {"kernel", "soft", "memory"};
    for (int i = 0; i < 3; i++)
        cr_expect_gt(head1[(ptrdiff_t)token(on_cls[i]) * TOKENS + token("[CLS]")], 0.5f, "%s",
                     on_cls[i]);
    tensor_free(p);
    folder_remove(folder);
}

Test(real_input, does_gnuplot_draw_the_heat_map)
{
    process *version = process_run("/usr/bin/env gnuplot --version");
    const bool there = version->exit_code == 0;
    free(version);
    if (!there) {
        cr_assert_null(getenv("CI"), "gnuplot is missing, and CI must have it");
        fputs("skipped: gnuplot is not installed, so no heat map was drawn\n", stderr);
        cr_skip_test("gnuplot is not installed");
    }
    const char *folder = folder_new();
    tensor_free(save_p(folder));
    char script[256], path[128], text[256] = "";
    snprintf(script, sizeof script, "p='%s/p.npy'; out='%s/heatmap.svg'", folder, folder);
    snprintf(path, sizeof path, "%s/heatmap.svg", folder);
    const char *const words[] = {
        "/usr/bin/env", "gnuplot", "-e", script, "docs/figures/heatmap.gp", NULL};
    process *plot = process_run_list(words, (process_options){0});
    cr_expect_eq(plot->exit_code, 0, "%s", plot->error);
    FILE *file = fopen(path, "r");
    cr_assert_not_null(file, "%s", plot->error);
    bool svg = false, kernel = false, complete = false;
    while (fgets(text, sizeof text, file)) {
        svg |= strstr(text, "<svg") != NULL;
        kernel |= strstr(text, ">kernel<") != NULL;
        complete |= strstr(text, "</svg>") != NULL;
    }
    fclose(file);
    cr_expect(svg && complete, "not a whole SVG");
    cr_expect(kernel, "the words are not on its axes");
    free(plot);
    folder_remove(folder);
}
