// stage_inputs.c: where q, k and v come from: .npy files, or PyTorch's stream of normals.
#include <inttypes.h>
#include <stdio.h>

#include "half.h"
#include "npy.h"
#include "random.h"
#include "stage_run.h"
#include "tensor.h"

static attention_status read_shape(const char *path, int *rank, int64_t shape[4])
{
    npy_header header;
    const attention_status status = npy_read_header(path, &header);
    if (status != ATTENTION_OK) return status;
    if (header.rank != 2 && header.rank != 4)
        return status_fail(ATTENTION_BAD_FILE,
                           "%s: has %d dimensions; [batch, heads, seq, head_dim] or "
                           "[seq, head_dim] are allowed",
                           path, header.rank);
    *rank = header.rank;
    for (int i = 0; i < 4; i++)
        shape[i] = i < 4 - header.rank ? 1 : header.shape[i - (4 - header.rank)];
    return ATTENTION_OK;
}

attention_status stage_run_shape(stage_run *run, const bool extent_given[4])
{
    static const char *const names[4] = {"batch", "heads", "seq", "head-dim"};
    const char *const paths[3] = {run->q_path, run->k_path, run->v_path};
    int64_t *const extents[4] = {&run->args.batch, &run->args.heads, &run->args.seq,
                                 &run->args.head_dim};
    if (!paths[0] && !paths[1] && !paths[2]) return ATTENTION_OK;
    if (!paths[0] || !paths[1] || !paths[2])
        return status_fail(ATTENTION_BAD_ARGUMENT, "--q, --k and --v go together");

    int64_t shape[3][4];
    for (int t = 0; t < 3; t++) {
        int rank = 0;
        const attention_status status = read_shape(paths[t], &rank, shape[t]);
        if (status != ATTENTION_OK) return status;
        if (t == 0) run->rank = rank;
        for (int i = 0; i < 4; i++)
            if (shape[t][i] != shape[0][i] || rank != run->rank)
                return status_fail(ATTENTION_BAD_FILE,
                                   "%s: [%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64
                                   "] is not the shape of %s, [%" PRId64 ", %" PRId64 ", %" PRId64
                                   ", %" PRId64 "]",
                                   paths[t], shape[t][0], shape[t][1], shape[t][2], shape[t][3],
                                   paths[0], shape[0][0], shape[0][1], shape[0][2], shape[0][3]);
    }
    for (int i = 0; i < 4; i++) {
        if (extent_given[i] && *extents[i] != shape[0][i])
            return status_fail(ATTENTION_BAD_ARGUMENT,
                               "--%s %" PRId64 " contradicts %s, which has %" PRId64, names[i],
                               *extents[i], paths[0], shape[0][i]);
        *extents[i] = shape[0][i];
    }
    return ATTENTION_OK;
}

static attention_status read_tensor(const char *path, int64_t count, float *tensor)
{
    npy_header header;
    float *data;
    const attention_status status = npy_read(path, &header, &data);
    if (status != ATTENTION_OK) return status;
    if (header.count != count) { // the file changed since its shape was read
        tensor_free(data);
        return status_fail(ATTENTION_BAD_FILE, "%s: changed while it was read", path);
    }
    for (int64_t i = 0; i < count; i++) tensor[i] = data[i];
    tensor_free(data);
    return ATTENTION_OK;
}

attention_status stage_run_inputs(stage_run *run)
{
    const attention_args *a = &run->args;
    static const char *const names[4] = {"q", "k", "v", "o"};
    float **const tensors[4] = {&run->q, &run->k, &run->v, &run->o};
    const char *const paths[3] = {run->q_path, run->k_path, run->v_path};
    int64_t count;
    attention_status status = tensor_count("q", a->batch, a->heads, a->seq, a->head_dim, &count);
    if (status != ATTENTION_OK) return status;
    if (count > INT64_MAX / 16 - a->seq)
        return status_fail(ATTENTION_NO_MEMORY, "q, k, v and o would need %.3g bytes",
                           16.0 * (double)count);
    status = tensor_fits("q, k, v and o", 16 * count); // all four, before any is touched
    for (int t = 0; t < 4 && status == ATTENTION_OK; t++)
        status = tensor_new(names[t], a->batch, a->heads, a->seq, a->head_dim, tensors[t]);
    if (status == ATTENTION_OK)
        status = tensor_new("lse", a->batch, a->heads, a->seq, 1, &run->lse);
    if (status != ATTENTION_OK) return status;

    random_stream stream;
    random_seed(&stream, (uint32_t)run->seed);
    for (int t = 0; t < 3; t++) {
        float *x = *tensors[t];
        if (paths[t]) {
            status = read_tensor(paths[t], count, x);
            if (status != ATTENTION_OK) return status;
        } else {
            random_normal(&stream, x, count);
        }
        const float amp = t < 2 ? (float)run->amp : 1.0f;
        for (int64_t i = 0; i < count; i++) x[i] = dtype_round(x[i] * amp, a->dtype);
    }
    return ATTENTION_OK;
}

void stage_run_free(stage_run *run)
{
    float *const tensors[] = {run->q, run->k, run->v, run->o, run->lse, run->args.p_out};
    for (int t = 0; t < 6; t++) tensor_free(tensors[t]);
    run->q = run->k = run->v = run->o = run->lse = run->args.p_out = NULL;
}
