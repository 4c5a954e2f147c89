#include "case.h"

#include <math.h>
#include <stdio.h>

#include "options.h"

attention_status case_parse(graded_case *c, int argc, char **argv)
{
    static const char *const types[] = {"fp32", "fp16", "bf16", NULL};
    static const char *const inputs[] = {"normal",   "rising",     "falling",    "needle",
                                         "equal",    "masked",     "all-masked", "infinite",
                                         "last-nan", "upper-half", NULL};
    static const char *const tiles[] = {"any", "all", "seen", NULL};
    int64_t batch = 1, heads = 1, seq = 1, head_dim = 64, block_q = 128, block_k = 128, threads = 2;
    int dtype = DTYPE_FP32;
    bool causal = false;
    double scale = NAN;
    *c = (graded_case){.amp = 1, .v_amp = 1, .trace = -1};
    const option table[] = {
        {"dir", "DIR", "where the tensors are", OPTION_TEXT, &c->dir, 0, 0, NULL, NULL},
        {"batch", "N", "batches (1)", OPTION_INTEGER, &batch, 1, 1 << 20, NULL, NULL},
        {"heads", "N", "heads (1)", OPTION_INTEGER, &heads, 1, 1 << 20, NULL, NULL},
        {"seq", "N", "sequence length (1)", OPTION_INTEGER, &seq, 1, 1 << 20, NULL, NULL},
        {"head-dim", "N", "head dimension (64)", OPTION_INTEGER, &head_dim, 1, HEAD_DIM_MAX, NULL,
         NULL},
        {"dtype", "TYPE", "fp32, fp16, bf16", OPTION_CHOICE, &dtype, 0, 0, types, NULL},
        {"causal", NULL, "query i sees keys 0..i", OPTION_FLAG, &causal, 0, 0, NULL, NULL},
        {"scale", "X", "multiplies the scores", OPTION_REAL, &scale, 0, 0, NULL, NULL},
        {"block-q", "N", "queries a tile (128)", OPTION_INTEGER, &block_q, 1, 1 << 20, NULL, NULL},
        {"block-k", "N", "keys a tile (128)", OPTION_INTEGER, &block_k, 1, 1 << 20, NULL, NULL},
        {"threads", "N", "threads (2)", OPTION_INTEGER, &threads, 1, 64, NULL, NULL},
        {"seed", "N", "of the inputs (0)", OPTION_INTEGER, &c->seed, 0, UINT32_MAX, NULL, NULL},
        {"amp", "X", "q and k times X", OPTION_REAL, &c->amp, 0, 0, NULL, NULL},
        {"v-amp", "X", "v times X", OPTION_REAL, &c->v_amp, 0, 0, NULL, NULL},
        {"inputs", "KIND", "normal, rising, ...", OPTION_CHOICE, &c->inputs, 0, 0, inputs, NULL},
        {"trace", "ROW", "judge this row's steps", OPTION_INTEGER, &c->trace, 0, 1 << 20, NULL,
         NULL},
        {"rows", "N", "judge the first N rows", OPTION_INTEGER, &c->rows, 1, 1 << 20, NULL, NULL},
        {"tiles", "WHICH", "judge the tally of tiles", OPTION_CHOICE, &c->tiles, 0, 0, tiles, NULL},
        {"logits", NULL, "softmax of a row of logits", OPTION_FLAG, &c->logits, 0, 0, NULL, NULL},
    };
    const attention_status status = options_parse(table, sizeof table / sizeof *table, argc, argv);
    if (status != ATTENTION_OK) return status;
    if (!c->dir) return status_fail(ATTENTION_BAD_ARGUMENT, "--dir is missing");
    if (c->logits) head_dim = 1;
    c->args = attention_args_default(batch, heads, seq, head_dim);
    c->args.dtype = (attention_dtype)dtype;
    c->args.causal = causal;
    c->args.block_q = block_q;
    c->args.block_k = block_k;
    c->args.threads = (int)threads;
    if (!isnan(scale)) c->args.scale = (float)scale;
    return ATTENTION_OK;
}

const char *case_path(const graded_case *c, const char *name, char path[PATH_TEXT])
{
    snprintf(path, PATH_TEXT, "%s/%s", c->dir, name);
    return path;
}
