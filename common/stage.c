#include "stage.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "matmul.h"
#include "npy.h"
#include "output_file.h"
#include "report.h"
#include "stage_device.h"
#include "stage_run.h"
#include "tensor.h"

#define VERSION "1.0"
enum { OPTIONS_MAX = 48, THREADS_MAX = 1024, KERNELS_MAX = 8 };

typedef struct {
    stage_run run;
    int64_t threads, trace_row;
    double scale;
    int dtype, device, kernel;
    const char *kernel_names[KERNELS_MAX + 1];
    char where[384]; // what runs the kernels of a CUDA stage
    bool extent_given[4], run_given, scale_given, block_k_given, trace, check, bench;
    bool help, version;
    const char *o_path, *lse_path, *p_path, *csv;
} command;

static const char *const dtypes[] = {"fp32", "fp16", "bf16", NULL};
static const char *const devices[] = {"auto", "gpu", "cpu", NULL};

static int build_table(option *table, command *c, const stage *stage)
{
    attention_args *a = &c->run.args;
    bool *run = &c->run_given;
    const bool cuda = stage->kernels;
    // clang-format off
    const option common[] = {
        {"batch", "N", "batches (1)",
         OPTION_INTEGER, &a->batch, 1, INT64_MAX, NULL, &c->extent_given[0]},
        {"heads", "N", "heads (8)",
         OPTION_INTEGER, &a->heads, 1, INT64_MAX, NULL, &c->extent_given[1]},
        {"seq", "N", "sequence length (1024)",
         OPTION_INTEGER, &a->seq, 1, INT64_MAX, NULL, &c->extent_given[2]},
        {"head-dim", "N", cuda ? "head dimension, 64 or 128 (64)" : "head dimension, 1 to 256 (64)",
         OPTION_INTEGER, &a->head_dim, 1, HEAD_DIM_MAX, NULL, &c->extent_given[3]},
        {"dtype", "TYPE", cuda ? "fp16 or bf16 (fp16); sums are fp32" : "fp32, fp16 or bf16 (fp32); arithmetic is fp32",
         OPTION_CHOICE, &c->dtype, 0, 0, dtypes, run},
        {"causal", NULL, "query i sees keys 0 to i",
         OPTION_FLAG, &a->causal, 0, 0, NULL, run},
        {"scale", "X", "factor on q k^T (1 / sqrt(head-dim))",
         OPTION_REAL, &c->scale, 0, 0, NULL, &c->scale_given},
        {"block-q", "N", "queries a tile",
         OPTION_INTEGER, &a->block_q, 1, INT64_MAX, NULL, run},
        {"block-k", "N", "keys a tile",
         OPTION_INTEGER, &a->block_k, 1, INT64_MAX, NULL, &c->block_k_given},
        {"seed", "N", "of the inputs, drawn as PyTorch would (0)",
         OPTION_INTEGER, &c->run.seed, 0, UINT32_MAX, NULL, run},
        {"amp", "X", "multiplies q and k (1)",
         OPTION_REAL, &c->run.amp, 0, 0, NULL, run},
        {"q", "FILE", ".npy, [B, H, N, D] or [N, D]; with --k and --v",
         OPTION_TEXT, &c->run.q_path, 0, 0, NULL, run},
        {"k", "FILE", "likewise",
         OPTION_TEXT, &c->run.k_path, 0, 0, NULL, run},
        {"v", "FILE", "likewise",
         OPTION_TEXT, &c->run.v_path, 0, 0, NULL, run},
        {"out", "FILE", "write o as .npy",
         OPTION_TEXT, &c->o_path, 0, 0, NULL, NULL},
        {"lse", "FILE", "write each row's log-sum-exp as .npy",
         OPTION_TEXT, &c->lse_path, 0, 0, NULL, NULL},
        {"check", NULL, "against float64 and the stage before",
         OPTION_FLAG, &c->check, 0, 0, NULL, NULL},
        {"bench", NULL, "time, useful FLOP/s, scratch memory",
         OPTION_FLAG, &c->bench, 0, 0, NULL, NULL},
        {"trace", "ROW", "the rebase of one row, tile by tile",
         OPTION_INTEGER, &c->trace_row, 0, INT64_MAX, NULL, &c->trace},
        {"csv", "FILE", "the table of --check, --bench or --trace",
         OPTION_TEXT, &c->csv, 0, 0, NULL, NULL},
        {"threads", "N", cuda ? "threads of the emulator (all cores)" : "OpenMP threads (all cores)",
         OPTION_INTEGER, &c->threads, 1, THREADS_MAX, NULL, NULL},
        {"help", NULL, "this",
         OPTION_FLAG, &c->help, 0, 0, NULL, NULL},
        {"version", NULL, "version and compiler",
         OPTION_FLAG, &c->version, 0, 0, NULL, NULL},
        {"p-out", "FILE", "write the probabilities [B, H, N, N] as .npy",
         OPTION_TEXT, &c->p_path, 0, 0, NULL, NULL},
    };
    const option cuda_only[] = {
        {"device", "WHERE", "auto, gpu or cpu (auto); cpu is the emulator",
         OPTION_CHOICE, &c->device, 0, 0, devices, NULL},
        {"kernel", "NAME", "tensor or scalar (tensor)",
         OPTION_CHOICE, &c->kernel, 0, 0, c->kernel_names, NULL},
    };
    // clang-format on
    int count = (int)(sizeof common / sizeof *common) - !stage->saves_p;
    memcpy(table, common, (size_t)count * sizeof *table);
    for (int i = 0; i < (cuda ? 1 + (stage->kernel_count > 1) : 0); i++)
        table[count++] = cuda_only[i];
    for (int i = 0; i < stage->kernel_count && i < KERNELS_MAX; i++)
        c->kernel_names[i] = stage->kernels[i].name;
    for (int i = 0; i < stage->option_count && count < OPTIONS_MAX; i++)
        table[count++] = stage->options[i];
    return count;
}

static bool same_file(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

// What can be refused once the shape is known.
static attention_status check_command(const command *c)
{
    const attention_args *a = &c->run.args;
    if (c->csv && c->check + c->bench + c->trace != 1)
        return status_fail(ATTENTION_BAD_ARGUMENT,
                           "--csv goes with exactly one of --check, --bench and --trace");
    const char *const outputs[] = {c->o_path, c->lse_path, c->p_path, c->csv};
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < i; j++)
            if (outputs[i] && outputs[j] && strcmp(outputs[i], outputs[j]) == 0)
                return status_fail(ATTENTION_BAD_ARGUMENT, "%s: two outputs have this one name",
                                   outputs[i]);
    const char *const inputs[] = {c->run.q_path, c->run.k_path, c->run.v_path};
    for (int i = 0; i < 4; i++)
        for (int t = 0; t < 3; t++)
            if (outputs[i] && inputs[t] && same_file(outputs[i], inputs[t]))
                return status_fail(ATTENTION_BAD_ARGUMENT, "%s: an output would replace %c",
                                   outputs[i], "qkv"[t]);
    if (a->head_dim > HEAD_DIM_MAX)
        return status_fail(ATTENTION_BAD_FILE, "%s: head_dim %" PRId64 " is not in 1..%d",
                           c->run.q_path, a->head_dim, HEAD_DIM_MAX);
    int64_t rows;
    const attention_status status = tensor_count("lse", a->batch, a->heads, a->seq, 1, &rows);
    if (status == ATTENTION_OK && c->trace && c->trace_row >= rows)
        return status_fail(ATTENTION_BAD_ARGUMENT,
                           "--trace %" PRId64 ": batch x heads x seq is %" PRId64
                           ", so rows are 0 to %" PRId64,
                           c->trace_row, rows, rows - 1);
    return status;
}

// Whether every file asked for could be made, before any work is done for it.
static attention_status outputs_open(const command *c)
{
    const char *const paths[] = {c->o_path, c->lse_path, c->p_path, c->csv};
    for (int i = 0; i < 4; i++) {
        output_file file;
        if (!paths[i]) continue;
        const attention_status status = output_file_open(&file, paths[i]);
        if (status != ATTENTION_OK) return status;
        output_file_discard(&file);
    }
    return ATTENTION_OK;
}

static attention_status write_outputs(command *c)
{
    const attention_args *a = &c->run.args;
    const int64_t shape[5] = {a->batch, a->heads, a->seq, a->head_dim, a->seq};
    const int64_t p_shape[4] = {a->batch, a->heads, a->seq, a->seq};
    const bool flat = c->run.rank == 2; // files of [seq, head_dim] get a file of that rank back
    attention_status status = ATTENTION_OK;
    if (c->o_path)
        status = npy_write(c->o_path, c->run.o, flat ? 2 : 4, flat ? shape + 2 : shape, a->dtype);
    if (status == ATTENTION_OK && c->lse_path)
        status =
            npy_write(c->lse_path, c->run.lse, flat ? 1 : 3, flat ? shape + 2 : shape, DTYPE_FP32);
    if (status == ATTENTION_OK && c->p_path)
        status =
            npy_write(c->p_path, a->p_out, flat ? 2 : 4, flat ? p_shape + 2 : p_shape, DTYPE_FP32);
    return status;
}

static void print_banner(const command *c, const stage *stage)
{
    const int threads = attention_threads(&c->run.args);
    if (stage->kernels) {
        printf("%s: %s %s\n", stage->name, stage->title, c->where);
        return;
    }
    printf("%s: %s (CPU, %d thread%s, %s)\n", stage->name, stage->title, threads,
           threads == 1 ? "" : "s", matmul_instruction_set());
}

static void print_inputs(const command *c)
{
    const attention_args *a = &c->run.args;
    printf("B=%" PRId64 " H=%" PRId64 " N=%" PRId64 " D=%" PRId64 " %s causal=%s scale=%.6g ",
           a->batch, a->heads, a->seq, a->head_dim, dtype_name(a->dtype), a->causal ? "on" : "off",
           (double)a->scale);
    if (c->run.q_path)
        printf("from %s\n", c->run.q_path);
    else
        printf("seed=%" PRId64 " amp=%.6g\n", c->run.seed, c->run.amp);
}

static attention_status run_command(command *c, const stage *stage)
{
    stage_run *run = &c->run;
    attention_status status = stage_run_shape(run, c->extent_given);
    if (status == ATTENTION_OK) status = check_command(c);
    if (status != ATTENTION_OK) return status;
    run->args.block_k = attention_block_k(run->args.block_k, run->args.head_dim);
    run->args.dtype = (attention_dtype)c->dtype;
    run->args.scale = (float)(c->scale_given ? c->scale : 1.0 / sqrt((double)run->args.head_dim));
    if (stage->kernels) status = attention_check_cuda(&run->args, stage->block_q, stage->block_k);
    if (status == ATTENTION_OK) status = outputs_open(c);
    if (status == ATTENTION_OK && stage->scratch_fits) status = stage->scratch_fits(&run->args);
    if (status == ATTENTION_OK) status = stage_run_inputs(run);
    if (status == ATTENTION_OK && c->p_path)
        status = tensor_new("P to save", run->args.batch, run->args.heads, run->args.seq,
                            run->args.seq, &run->args.p_out);
    if (status != ATTENTION_OK) return status;

    print_banner(c, stage);
    print_inputs(c);
    if (!c->check && !c->bench && !c->trace) status = stage_run_summary(run, stage);
    if (status == ATTENTION_OK && c->trace)
        status = stage_run_trace(run, stage, c->trace_row, c->csv);
    if (status == ATTENTION_OK && c->check) status = stage_run_check(run, stage, c->csv);
    if (status == ATTENTION_OK && c->bench) status = stage_run_bench(run, stage, c->csv);
    if (status == ATTENTION_OK && (c->o_path || c->lse_path || c->p_path)) {
        // The modes above may have run another stage last.
        status = stage->forward(run->q, run->k, run->v, run->o, run->lse, &run->args);
        if (status == ATTENTION_OK) status = write_outputs(c);
    }
    return status;
}

static bool asks_for_a_run(const command *c)
{
    bool any = c->run_given || c->scale_given || c->block_k_given || c->trace || c->check ||
               c->bench || c->o_path || c->lse_path || c->p_path || c->csv;
    for (int i = 0; i < 4; i++) any |= c->extent_given[i];
    return any;
}

// The parts of a stage that the command line decides.
static attention_status settle(command *c, stage *stage)
{
    attention_args *a = &c->run.args;
    if (stage->kernels) {
        const attention_status status = stage_device_choose(
            stage, c->kernel, (stage_device)c->device, (int)c->threads, c->where, sizeof c->where);
        if (status != ATTENTION_OK) return status;
    }
    if (a->block_q == 0) a->block_q = stage->block_q;
    if (a->block_k == 0) a->block_k = stage->block_k;
    a->threads = (int)c->threads;
    return ATTENTION_OK;
}

static attention_status dispatch(command *c, stage *stage, int argc, char **argv)
{
    option table[OPTIONS_MAX];
    const int count = build_table(table, c, stage);
    attention_status status = options_parse(table, count, argc, argv);
    if (status != ATTENTION_OK) return status;
    if (c->help) {
        printf("%s: %s\nusage: %s [options]\nWithout options it prints this stage's receipts.\n",
               stage->name, stage->title, argv[0]);
        options_help(table, count);
        puts("exit: 0 fine, 1 a check failed, 2 bad usage or input, 3 a resource is missing");
        return ATTENTION_OK;
    }
    if (c->version) {
        printf("FlashAttention in stages %s, %s, compiled by %s\n", VERSION, stage->name,
               __VERSION__);
        return ATTENTION_OK;
    }
    status = settle(c, stage);
    if (status != ATTENTION_OK) return status;
    bool done = false;
    if (stage->own_job) {
        command rest = *c;
        rest.block_k_given = false; // the job's own option as well
        int64_t block_k = c->block_k_given ? c->run.args.block_k : 0;
        status = stage->own_job(!asks_for_a_run(&rest), &block_k, &done);
        if (status != ATTENTION_OK || done) return status;
        c->block_k_given = block_k > 0;
        if (c->block_k_given) c->run.args.block_k = block_k;
    }
    if (asks_for_a_run(c)) return run_command(c, stage);
    print_banner(c, stage);
    stage->receipts(stage, (int)c->threads);
    return ATTENTION_OK;
}

// With a standard stream closed, the next file opened would take its number and its output.
static void keep_standard_streams(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) == -1) (void)open("/dev/null", O_RDONLY);
}

int stage_main(const stage *given, int argc, char **argv)
{
    signal(SIGXFSZ, SIG_IGN); // a file that may not grow is then an error of the write
    keep_standard_streams();
    stage stage = *given;
    command c = {.run = {.args = attention_args_default(1, 8, 1024, 64), .amp = 1, .rank = 4}};
    c.dtype = stage.kernels ? DTYPE_FP16 : DTYPE_FP32;
    c.run.args.block_q = c.run.args.block_k = 0; // until settled
    attention_status status = dispatch(&c, &stage, argc, argv);
    stage_run_free(&c.run);
    if (status == ATTENTION_OK) status = stdout_flush();
    if (status != ATTENTION_OK) {
        fflush(stdout);
        fprintf(stderr, "%s: %s\n", argv[0], status_message());
        return status_exit_code(status);
    }
    return report_exit_code();
}
