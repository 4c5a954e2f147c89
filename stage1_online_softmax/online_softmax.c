#include "online_softmax.h"

#include <math.h>

#include "matmul.h"
#include "util.h"

float online_softmax(float *p, const float *x, int64_t n, int64_t block, online_observer *observe,
                     void *context)
{
    float m = -INFINITY, l = 0.0f;

    // 2. online softmax
    for (int64_t j = 0; j < n; j += block) {
        const int64_t cols = min64(block, n - j);
        const float m_new = fmaxf(m, row_max(x + j, cols));
        const float base = m_new == -INFINITY ? 0.0f : m_new;
        const float correction = expf(m - base);
        const float rebased = l * correction;
        const float l_new = rebased + row_exp_sum(p + j, x + j, base, cols);
        const online_step step = {j / block, j,          cols, m,       m_new,
                                  base,      correction, l,    rebased, l_new};
        if (observe) observe(context, &step, p + j);
        m = m_new;
        l = l_new;
    }

    // 4. normalise once
    row_exp_sum(p, x, m == -INFINITY ? 0.0f : m, n);
    for (int64_t i = 0; i < n; i++) p[i] = l == 0.0f ? 0.0f : p[i] / l;
    return m + logf(l);
}
