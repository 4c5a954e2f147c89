// Stage 1 as a program: ./stage1/run prints its receipts; ./stage1/run --help lists the rest.
#include "logits.h"
#include "receipts.h"
#include "stage.h"
#include "stages.h"
#include "tensor.h"
#include "walkthrough.h"

static const char *logits, *trace_csv, *rescale_csv;
static int64_t block, digits = 4;
static bool digits_given;

static const option own_options[] = {
    {"logits", "LIST", "the rebase of these logits alone; - reads stdin", OPTION_TEXT, &logits, 0,
     0, 0, 0},
    {"block", "N", "--block-k; for --logits 2 unless given", OPTION_INTEGER, &block, 1, INT64_MAX,
     0, 0},
    {"digits", "N", "decimals, 1 to 9 (4); with --logits", OPTION_INTEGER, &digits, 1, 9, 0,
     &digits_given},
    {"trace-csv", "FILE", "a row for every term; with --logits", OPTION_TEXT, &trace_csv, 0, 0, 0,
     0},
    {"rescale-csv", "FILE", "the data of R2's figure", OPTION_TEXT, &rescale_csv, 0, 0, 0, 0},
};

static attention_status walk_logits(int64_t size)
{
    float *x;
    int64_t n;
    attention_status status = logits_read(logits, &x, &n);
    if (status == ATTENTION_OK && trace_csv) status = walkthrough_trace_csv(trace_csv, x, n, size);
    if (status == ATTENTION_OK) status = walkthrough_print(x, n, size, (int)digits);
    tensor_free(x);
    return status;
}

static attention_status own_job(bool alone, int64_t *block_k, bool *done)
{
    *done = logits || rescale_csv;
    if (*done && !alone)
        return status_fail(ATTENTION_BAD_ARGUMENT,
                           "--logits and --rescale-csv stand alone: no shape, no --check");
    if (logits && rescale_csv)
        return status_fail(ATTENTION_BAD_ARGUMENT,
                           "--rescale-csv writes R2's row, not that of --logits");
    if (!logits && (trace_csv || digits_given))
        return status_fail(ATTENTION_BAD_ARGUMENT, "--digits and --trace-csv go with --logits");
    if (block > 0) *block_k = block;
    if (rescale_csv) return write_rescale_csv(rescale_csv, *block_k);
    if (logits) return walk_logits(*block_k > 0 ? *block_k : 2);
    return ATTENTION_OK;
}

int main(int argc, char **argv)
{
    const stage stage1 = {
        .name = "stage 1",
        .title = "one row streams over blocks of keys",
        .forward = attention_forward,
        .previous_name = "stage 0",
        .previous = attention_forward_stage0,
        .baseline_name = "stage 0",
        .baseline = attention_forward_stage0,
        .block_q = 1,
        .block_k = 128,
        .receipts = print_receipts,
        .options = own_options,
        .option_count = sizeof own_options / sizeof *own_options,
        .own_job = own_job,
    };
    return stage_main(&stage1, argc, argv);
}
