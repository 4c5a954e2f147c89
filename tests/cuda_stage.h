// cuda_stage.h: the tests that every kernel must pass, in the emulator and on a GPU; what to define
// before it is said in cuda_support.h. Numbers in brackets are the classes of failure that people
// have reported in such programs.

#ifndef BLOCK_ROWS
#define BLOCK_ROWS BLOCK_Q
#endif
#ifndef ROWS_COMPUTED // a plane's rows are filled up to a multiple of it
#define ROWS_COMPUTED BLOCK_ROWS
#endif

// [14, 15, 22, 24] Lengths around tile edges, both types, head dimensions and masks.
Test(SUITE, is_every_length_around_a_tile_edge_right, .timeout = 300)
{
    if (!device_ready(ONLY_ON)) return;
    for (int i = 0; i < CUDA_LENGTHS && cuda_lengths[i] <= LONGEST; i++)
        for (int turn = 0; turn < 8; turn += TURN) {
            const int64_t n = cuda_lengths[i];
            problem p = cuda_turn(turn, 1, n > 200 ? 1 : 2, n, BLOCK_Q, BLOCK_K);
            problem_draw(&p, (uint32_t)(8 * i + turn), 1);
            problem_run(&p, STAGE);
            cuda_judge(&p);
            problem_free(&p);
        }
}

// R14: 48 cases and the amplified one, by the article's bounds for unit-normal V.
Test(SUITE, are_the_articles_cases_within_its_bounds)
{
    if (!device_ready(ONLY_ON)) return;
    const int64_t lengths[] = {64, 65, 127, 128, 129, 257};
    for (int turn = 0; turn < 8 * 6 + 1; turn += STEP) {
        const bool amplified = turn == 48;
        problem p =
            cuda_turn(turn % 8, 1, 2, amplified ? 513 : lengths[turn / 8 % 6], BLOCK_Q, BLOCK_K);
        oracle_report r;
        problem_draw(&p, 0, amplified ? 4 : 1);
        problem_run(&p, STAGE);
        cuda_judge(&p);
        cr_assert_eq(oracle_check(&r, p.q, p.k, p.v, p.o, p.lse, &p.args), ATTENTION_OK);
        cr_expect_leq(r.max_abs, p.args.dtype == DTYPE_FP16 ? 0x1p-9 : 0x1p-6);
        for (int64_t x = 0; x < p.count; x++) cr_expect(isfinite(p.o[x]));
        problem_free(&p);
    }
}

// The later stages go through the heads in groups, of which the last is smaller.
Test(SUITE, is_no_head_left_out_of_its_group)
{
    if (!device_ready(ONLY_ON)) return;
    enum { HEADS = 19, N = 66 };
    const int64_t chosen[] = {0, 15, 16, 18};
    problem all = cuda_turn(4, 1, HEADS, N, BLOCK_Q, BLOCK_K);
    problem one = cuda_turn(4, 1, 1, N, BLOCK_Q, BLOCK_K);
    problem_draw(&all, 4, 2);
    problem_run(&all, STAGE);
    problem_judge(&all);
    for (int i = 0; i < 4; i++) expect_same_alone(&one, &all, chosen[i], STAGE);
    problem_free(&all);
    problem_free(&one);
}

// Against the stage before, in the same types: no further apart than two roundings of O and P.
Test(SUITE, does_it_agree_with_the_stage_before)
{
    if (!device_ready(ONLY_ON)) return;
    for (int turn = 0; turn < 8; turn += TURN) {
        problem p = cuda_turn(turn, 2, 2, 191, PREVIOUS_BLOCK_Q, PREVIOUS_BLOCK_K);
        problem_draw(&p, 5, 1);
        problem_run(&p, PREVIOUS);
        float *before = copy_of(p.o, p.count), *lse = copy_of(p.lse, p.rows);
        p.args.block_q = BLOCK_Q;
        p.args.block_k = attention_block_k(BLOCK_K, p.args.head_dim);
        problem_run(&p, STAGE);
        cr_expect_leq(tensor_compare(p.o, before, p.count).max_abs,
                      p.args.dtype == DTYPE_FP16 ? 0x1p-9 : 0x1p-6);
        cr_expect_lt(tensor_compare(p.lse, lse, p.rows).max_abs, 1e-5);
        free(before);
        free(lse);
        problem_free(&p);
    }
}

Test(SUITE, are_the_rows_of_the_golden_file_reproduced)
{
    if (!device_ready(ONLY_ON)) return;
    FILE *file = golden_open();
    golden_row g;
    int rows = 0, read = 0;
    while (golden_next(file, &g)) {
        if (g.dtype == DTYPE_FP32 || (g.head_dim != 64 && g.head_dim != 128)) continue;
        if (g.seq > LONGEST || read++ % TURN) continue;
        problem p = golden_problem(&g);
        p.args.block_q = BLOCK_Q;
        p.args.block_k = attention_block_k(BLOCK_K, p.args.head_dim);
        problem_run(&p, STAGE);
        for (int s = 0; s < GOLDEN_SAMPLES; s++) {
            const int64_t i = g.index[s];
            const double bound = golden_exact(&p, i).bound[i % g.head_dim];
            cr_expect_leq(fabs((double)p.o[i] - g.value[s]), bound,
                          "o[%" PRId64 "] = %.9g, not %.9g: %s", i, (double)p.o[i], g.value[s],
                          g.line);
        }
        problem_free(&p);
        rows++;
    }
    fclose(file);
    cr_expect_gt(rows, 10);
}

// [22, 25] 20 runs on a GPU; in the emulator on 1, 2 and 3 threads.
Test(SUITE, are_the_bits_the_same_every_time)
{
    if (!device_ready(ONLY_ON)) return;
    int threads[RUNS];
    for (int i = 0; i < RUNS; i++) threads[i] = 1 + i % 3;
    for (int turn = 0; turn < 4; turn++) {
        problem p = cuda_turn(turn == 3 ? 6 : turn, 1, 3, turn < 2 ? 65 : 129, BLOCK_Q, BLOCK_K);
        problem_draw(&p, 1, 2);
        expect_same_bits(&p, STAGE, threads, RUNS);
        problem_free(&p);
    }
}

// [24] lse is optional.
Test(SUITE, is_lse_optional)
{
    if (!device_ready(ONLY_ON)) return;
    for (int64_t n = 1; n <= 257; n += 256) {
        problem p = cuda_turn(0, 1, 3, n, BLOCK_Q, BLOCK_K);
        problem_draw(&p, 2, 1);
        problem_run(&p, STAGE);
        float *with = copy_of(p.o, p.count);
        cr_assert_eq(STAGE(p.q, p.k, p.v, p.o, NULL, &p.args), ATTENTION_OK, "%s",
                     status_message());
        cr_expect_arr_eq(p.o, with, (size_t)p.count * sizeof *with);
        free(with);
        problem_free(&p);
    }
}

// Another head is never part of an answer, whatever it holds: a ragged tile that read on would see.
Test(SUITE, do_other_heads_stay_out_of_a_head)
{
    if (!device_ready(ONLY_ON)) return;
    const float around[] = {NAN, INFINITY, 1e4f};
    const int64_t head = 65 * 64;
    problem p = cuda_turn(0, 1, 3, 65, BLOCK_Q, BLOCK_K);
    problem_draw(&p, 9, 1);
    problem_run(&p, STAGE);
    float *alone = copy_of(p.o + head, head), *lse = copy_of(p.lse + 65, 65);
    float *const tensors[] = {p.q, p.k, p.v};
    for (int i = 0; i < 3; i++) {
        for (int t = 0; t < 3; t++) {
            fill(tensors[t], head, around[i]);
            fill(tensors[t] + 2 * head, head, around[i]);
        }
        problem_run(&p, STAGE);
        cr_expect_arr_eq(p.o + head, alone, (size_t)head * sizeof *alone, "%g", (double)around[i]);
        cr_expect_arr_eq(p.lse + 65, lse, 65 * sizeof *lse, "%g", (double)around[i]);
    }
    free(alone);
    free(lse);
    problem_free(&p);
}

// ---- properties that need no reference --------------------------------------------------------

Test(SUITE, does_a_constant_v_come_out_unchanged)
{
    if (!device_ready(ONLY_ON)) return;
    for (int turn = 0; turn < 8; turn += TURN) {
        problem p = cuda_turn(turn, 1, 1, 200, BLOCK_Q, BLOCK_K);
        problem_draw(&p, 4, 1);
        for (int64_t i = 0; i < p.count; i++) p.v[i] = 0.75f * (float)(i % 16 - 8);
        problem_run(&p, STAGE);
        problem_judge(&p);
        // P is rounded and l is not, so the mean of equal values may miss by one unit.
        for (int64_t i = 0; i < p.count; i++)
            cr_expect_float_eq(p.o[i], p.v[i],
                               (p.args.dtype == DTYPE_FP16 ? 0x1p-10f : 0x1p-7f) * fabsf(p.v[i]));
        problem_free(&p);
    }
}

// [13] Equal scores weigh all visible keys alike, exactly; a padded key would show.
Test(SUITE, do_equal_scores_give_exact_means)
{
    if (!device_ready(ONLY_ON)) return;
    for (int i = 0; i < CUDA_LENGTHS && cuda_lengths[i] <= LONGEST; i++)
        for (int turn = 0; turn < 8; turn += 2) {
            const int64_t n = cuda_lengths[i];
            problem p = cuda_turn(turn, 1, 1, n, BLOCK_Q, BLOCK_K);
            const int64_t d = p.args.head_dim;
            fill(p.q, p.count, 0);
            fill(p.k, p.count, 0);
            for (int64_t j = 0; j < p.count; j++) p.v[j] = (float)(j / d); // fp16 holds up to 2048
            problem_run(&p, STAGE);
            for (int64_t r = 0; r < n; r++) {
                const float mean = (float)(p.args.causal ? r : n - 1) / 2;
                cr_expect_eq(p.o[r * d + 3], mean, "N=%" PRId64 " row %" PRId64 ": %.9g, not %g", n,
                             r, (double)p.o[r * d + 3], (double)mean);
                const double keys = (double)(p.args.causal ? r + 1 : n);
                cr_expect_float_eq((double)p.lse[r], log(keys), 2e-6 * fmax(1, log(keys)));
            }
            problem_free(&p);
        }
}

// [15] One visible key: O = V in every bit that == sees.
Test(SUITE, does_one_visible_key_give_v_bit_for_bit)
{
    if (!device_ready(ONLY_ON)) return;
    for (int turn = 0; turn < 8; turn += TURN) {
        problem p = cuda_turn(turn, 1, 4, turn & 4 ? 90 : 1, BLOCK_Q, BLOCK_K);
        problem_draw(&p, 8, 3);
        problem_run(&p, STAGE);
        for (int64_t i = 0; i < p.args.head_dim; i++) cr_expect_eq(p.o[i], p.v[i]);
        problem_free(&p);
    }
}

Test(SUITE, does_permuting_the_keys_change_next_to_nothing)
{
    if (!device_ready(ONLY_ON)) return;
    problem p = cuda_turn(0, 1, 1, 150, BLOCK_Q, BLOCK_K);
    problem_draw(&p, 6, 1);
    problem_run(&p, STAGE);
    float *before = copy_of(p.o, p.count);
    reverse_keys(&p);
    problem_run(&p, STAGE);
    cr_expect_lt(tensor_compare(p.o, before, p.count).max_abs, 0x1p-10);
    free(before);
    problem_free(&p);
}

Test(SUITE, does_a_shift_of_all_scores_change_next_to_nothing)
{
    if (!device_ready(ONLY_ON)) return;
    problem p = cuda_turn(0, 1, 1, 150, BLOCK_Q, BLOCK_K);
    problem_draw(&p, 6, 1);
    set_column(p.q, 150, 64, 0, 1);
    set_column(p.k, 150, 64, 0, 0);
    problem_run(&p, STAGE);
    float *before = copy_of(p.o, p.count), *lse = copy_of(p.lse, p.rows);
    set_column(p.k, 150, 64, 0, 128); // every score rises by 16
    problem_run(&p, STAGE);
    cr_expect_lt(tensor_compare(p.o, before, p.count).max_abs, 0x1p-10);
    for (int64_t r = 0; r < p.rows; r++) cr_expect_float_eq(p.lse[r], lse[r] + 16, 5e-5f);
    free(before);
    free(lse);
    problem_free(&p);
}

// The halves of the keys, each with the first half of the queries, merged through lse.
Test(SUITE, do_two_halves_merged_through_lse_equal_the_whole)
{
    if (!device_ready(ONLY_ON)) return;
    enum { N = 200, HALF = 100, D = 64 };
    problem whole = cuda_turn(0, 1, 1, N, BLOCK_Q, BLOCK_K);
    problem_draw(&whole, 12, 1);
    problem_run(&whole, STAGE);
    double merged[HALF * D] = {0};
    for (int half = 0; half < 2; half++) {
        problem p = cuda_turn(0, 1, 1, HALF, BLOCK_Q, BLOCK_K);
        memcpy(p.q, whole.q, sizeof(float) * HALF * D);
        memcpy(p.k, whole.k + half * HALF * D, sizeof(float) * HALF * D);
        memcpy(p.v, whole.v + half * HALF * D, sizeof(float) * HALF * D);
        problem_run(&p, STAGE);
        for (int64_t i = 0; i < HALF * D; i++)
            merged[i] += exp((double)p.lse[i / D] - (double)whole.lse[i / D]) * (double)p.o[i];
        problem_free(&p);
    }
    for (int64_t i = 0; i < HALF * D; i++)
        cr_expect_float_eq(merged[i], (double)whole.o[i], 0x1p-10);
    problem_free(&whole);
}

// ---- inputs that expose what random ones hide -------------------------------------------------

// The maximum rises with every tile, or never again after the first.
Test(SUITE, are_rising_and_falling_logits_over_many_tiles_right)
{
    if (!device_ready(ONLY_ON)) return;
    for (int turn = 0; turn < 8; turn += STEP)
        for (int direction = -1; direction <= 1; direction += 2) {
            problem p = cuda_turn(turn, 1, 1, 321, BLOCK_Q, BLOCK_K);
            p.args.scale = 1;
            problem_draw(&p, 1, 0);
            for (int64_t j = 0; j < 321; j++) {
                p.q[j * p.args.head_dim] = 1;
                p.k[j * p.args.head_dim] =
                    dtype_round((float)direction * (float)j * 0.125f, p.args.dtype);
            }
            problem_run(&p, STAGE);
            problem_judge(&p);
            problem_free(&p);
        }
}

Test(SUITE, is_a_needle_found_wherever_it_lies)
{
    if (!device_ready(ONLY_ON)) return;
    const int64_t places[] = {0, 1, 63, 64, 128, 199, 200};
    for (int i = 0; i < 7; i++) {
        problem p = cuda_turn(i % 4, 1, 1, 201, BLOCK_Q, BLOCK_K);
        const int64_t d = p.args.head_dim;
        p.args.scale = 1;
        problem_draw(&p, 1, 0.01f);
        set_column(p.q, 201, d, 0, 1);
        p.k[places[i] * d] = 200; // alone it outweighs all others beyond fp32
        problem_run(&p, STAGE);
        for (int64_t x = 0; x < p.count; x++) cr_expect_eq(p.o[x], p.v[places[i] * d + x % d]);
        problem_free(&p);
    }
}

// [6] The maximum runs; it is not each tile's own: 200 in one tile, -200 in the others.
Test(SUITE, does_the_maximum_run_across_tiles)
{
    if (!device_ready(ONLY_ON)) return;
    for (int64_t at = 0; at < 200; at += 66) {
        problem p = cuda_turn(0, 1, 1, 200, BLOCK_Q, BLOCK_K);
        p.args.scale = 1;
        fill(p.q, p.count, 0);
        fill(p.k, p.count, 0);
        fill(p.v, p.count, 7);
        set_column(p.q, 200, 64, 5, 1);
        set_column(p.k, 200, 64, 5, -200);
        p.k[at * 64 + 5] = 200;
        fill(p.v + at * 64, 64, 1);
        problem_run(&p, STAGE);
        for (int64_t x = 0; x < p.count; x++) cr_expect_eq(p.o[x], 1);
        for (int64_t r = 0; r < 200; r++) cr_expect_float_eq(p.lse[r], 200, 4e-4f);
        problem_free(&p);
    }
}

// [18] q and k that differ from zero only in dimensions 64 to 127.
Test(SUITE, do_all_dimensions_count)
{
    if (!device_ready(ONLY_ON)) return;
    for (int turn = 2; turn < 8; turn += turn == 3 ? 3 : 1) {
        problem p = cuda_turn(turn, 1, 1, 90, BLOCK_Q, BLOCK_K);
        problem_draw(&p, 6, 2);
        for (int64_t r = 0; r < 90; r++)
            for (int64_t x = 0; x < 64; x++) p.q[r * 128 + x] = p.k[r * 128 + x] = 0;
        problem_run(&p, STAGE);
        problem_judge(&p);
        problem_free(&p);
    }
}

// ---- infinities and NaN -----------------------------------------------------------------------

// [1, 3] Leading keys of -inf, more and more of them, then 1 and 2.
Test(SUITE, are_leading_tiles_of_minus_infinity_harmless)
{
    if (!device_ready(ONLY_ON)) return;
    for (int64_t masked = 0; masked <= 198; masked += 33) {
        problem p = cuda_turn(0, 1, 1, 200, BLOCK_Q, BLOCK_K);
        p.args.scale = 1.0f / 64;
        fill(p.q, p.count, 1);
        fill(p.v, p.count, 0);
        for (int64_t j = 0; j < 200; j++)
            fill(p.k + j * 64, 64, j < masked ? -INFINITY : j == 198 ? 1 : j == 199 ? 2 : -1000);
        fill(p.v + 199 * 64, 64, 1);
        problem_run(&p, STAGE);
        for (int64_t r = 0; r < 200; r++) {
            cr_expect_float_eq(p.o[r * 64], 0.73106f, 5e-4f, "%" PRId64 " masked", masked);
            cr_expect_float_eq(p.lse[r], 2.31326f, 1e-5f);
        }
        problem_free(&p);
    }
}

// [2, 3] Nothing visible: O = 0 and lse = -inf, anywhere in the tile, beside rows that see.
Test(SUITE, is_a_row_of_nothing_but_minus_infinity_zero)
{
    if (!device_ready(ONLY_ON)) return;
    for (int64_t masked = 1; masked <= 150; masked += 37) {
        problem p = cuda_turn(4, 1, 1, 150, BLOCK_Q, BLOCK_K); // causal
        fill(p.q, p.count, 1);
        fill(p.k, p.count, 0.5f);
        fill(p.k, masked * 64, -INFINITY);
        fill(p.v, p.count, 3);
        fill(p.v, masked * 64, 7);
        problem_run(&p, STAGE);
        for (int64_t r = 0; r < 150; r++) {
            cr_expect_eq(p.o[r * 64 + 9], r < masked ? 0 : 3);
            if (r < masked)
                cr_expect_eq(p.lse[r], -INFINITY);
            else
                cr_expect_float_eq((double)p.lse[r], 4 + log((double)(r - masked + 1)), 1e-5);
        }
        problem_free(&p);
    }
}

// [4] A score of +inf is NaN, and so is a NaN beside nothing but -inf.
Test(SUITE, is_plus_infinity_nan_and_a_nan_never_lost)
{
    if (!device_ready(ONLY_ON)) return;
    for (int turn = 0; turn < 6; turn++) {
        const int64_t at = turn / 2 * 64;
        problem p = cuda_turn(0, 1, 1, 130, BLOCK_Q, BLOCK_K);
        fill(p.q, p.count, 1);
        fill(p.k, p.count, turn % 2 ? -INFINITY : 0);
        fill(p.v, p.count, 1);
        fill(p.k + at * 64, 64, turn % 2 ? NAN : INFINITY);
        problem_run(&p, STAGE);
        for (int64_t r = 0; r < 130; r++) cr_expect(isnan(p.o[r * 64]) && isnan(p.lse[r]));
        problem_free(&p);
    }
}

// [5] A key in the future changes nothing; one in the past reaches exactly the rows that see it.
Test(SUITE, does_a_bad_key_reach_exactly_the_rows_that_see_it)
{
    if (!device_ready(ONLY_ON)) return;
    const float bad[] = {NAN, INFINITY};
    for (int i = 0; i < 2; i++)
        for (int64_t at = 1; at < 66; at += 32) {
            problem p = cuda_turn(4, 1, 2, 66, BLOCK_Q, BLOCK_K);
            problem_draw(&p, 7, 1);
            set_column(p.q, 66, 64, 0, 1); // +inf meets no zero and no sign
            problem_run(&p, STAGE);
            float *clean = copy_of(p.o, p.count);
            p.k[at * 64] = bad[i];
            problem_run(&p, STAGE);
            cr_expect_arr_eq(p.o, clean, (size_t)(at * 64) * sizeof(float));
            for (int64_t x = at * 64; x < 66 * 64; x++) cr_expect(isnan(p.o[x]));
            cr_expect_arr_eq(p.o + 66 * 64, clean + 66 * 64, 66 * 64 * sizeof(float));
            free(clean);
            problem_free(&p);
        }
}

Test(SUITE, does_a_bad_query_reach_its_own_row_alone)
{
    if (!device_ready(ONLY_ON)) return;
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) {
        problem p = cuda_turn(0, 1, 2, 66, BLOCK_Q, BLOCK_K);
        problem_draw(&p, 7, 1);
        problem_run(&p, STAGE);
        float *clean = copy_of(p.o, p.count);
        p.q[33 * 64] = bad[i]; // keys of both signs: some scores are +inf
        problem_run(&p, STAGE);
        for (int64_t x = 0; x < p.count; x++)
            cr_expect(x / 64 == 33 ? isnan(p.o[x]) : p.o[x] == clean[x]);
        cr_expect(isnan(p.lse[33]));
        free(clean);
        problem_free(&p);
    }
}

// [5] A bad V reaches the rows that see it, and as 0 x NaN the earlier rows of its own tile, of
// queries or of keys, on the diagonal; the tiles before that, and other heads, never.
Test(SUITE, how_far_does_a_bad_value_reach)
{
    if (!device_ready(ONLY_ON)) return;
    for (int turn = 0; turn < 4; turn++) {
        problem p = cuda_turn(4, 1, 3, 300, BLOCK_Q, BLOCK_K);
        const int64_t edge = p.args.block_k > BLOCK_Q ? p.args.block_k : BLOCK_Q;
        const int64_t at = turn % 2 ? 65 : 200, first = at / edge * edge;
        problem_draw(&p, 7, 1);
        problem_run(&p, STAGE);
        float *clean = copy_of(p.o, p.count), *lse = copy_of(p.lse, p.rows);
        p.v[(300 + at) * 64 + 3] = turn < 2 ? NAN : INFINITY;
        problem_run(&p, STAGE);
        for (int64_t i = 0; i < p.count; i++) {
            const int64_t row = i / 64 - 300;
            if (row < first || row >= 300 || i % 64 != 3)
                cr_expect_eq(p.o[i], clean[i]);
            else if (turn < 2 || row < at)
                cr_expect(isnan(p.o[i]));
            else
                cr_expect_eq(p.o[i], INFINITY);
        }
        cr_expect_arr_eq(p.lse, lse, (size_t)p.rows * sizeof *lse);
        free(clean);
        free(lse);
        problem_free(&p);
    }
}

// ---- magnitude and scale ----------------------------------------------------------------------

// [7] A raw score of 262144, all keys equal.
Test(SUITE, do_huge_equal_scores_give_the_mean)
{
    if (!device_ready(ONLY_ON)) return;
    for (int dtype = 0; dtype < 2; dtype++) {
        problem p = cuda_turn(dtype, 1, 1, 70, BLOCK_Q, BLOCK_K);
        problem_draw(&p, 1, 1);
        fill(p.q, p.count, 64);
        fill(p.k, p.count, 64);
        problem_run(&p, STAGE);
        problem_judge(&p);
        cr_expect_float_eq((double)p.lse[0], 32768 + log(70), 0.004);
        problem_free(&p);
    }
}

// [7] Scores of either sign that fp32 holds but cannot tell from their neighbours: whatever the
// weights, o is a mean of V and lse is right.
Test(SUITE, do_extreme_finite_scores_stay_finite)
{
    if (!device_ready(ONLY_ON)) return;
    for (int turn = 0; turn < 2 * 8; turn += TURN) {
        const int power[] = {12, 20, 23, 24, 25, 26, 28, 30};
        problem p = cuda_turn(turn % 2 + 4 * (turn % 3 == 0), 1, 1, 300, BLOCK_Q, BLOCK_K);
        problem_draw(&p, 1, 1);
        p.args.scale = 1;
        fill(p.q, p.count, 0);
        set_column(p.q, p.rows, 64, 5, 32768);
        for (int64_t j = 0; j < p.rows; j++)
            p.k[j * 64 + 5] = ldexpf(j % 7 ? 1 : 0.75f, power[turn / 2] - 15) * (j & 64 ? -1 : 1);
        for (int64_t i = 0; i < p.count; i++) p.v[i] = fabsf(p.v[i]);
        problem_run(&p, STAGE);
        problem_judge(&p);
        for (int64_t i = 0; i < p.count; i++) cr_expect(p.o[i] >= 0 && p.o[i] < 8);
        problem_free(&p);
    }
}

// [8] Sums beyond fp16's largest value, as long as the mean fits; and values at the very top.
Test(SUITE, does_the_accumulator_hold_more_than_fp16)
{
    if (!device_ready(ONLY_ON)) return;
    const int64_t n[] = {2, 65, LONGEST, 64};
    for (int i = 0; i < 8; i++) {
        const float big = i < 4 ? 60000 : 65504;
        problem p = cuda_turn(0, 1, 1, n[i % 4], BLOCK_Q, BLOCK_K);
        fill(p.q, p.count, 0);
        fill(p.k, p.count, 0);
        for (int64_t j = 0; j < p.count; j++) p.v[j] = i % 4 == 3 && j / 64 % 2 ? -big : big;
        problem_run(&p, STAGE);
        for (int64_t j = 0; j < p.count; j++) cr_expect_eq(p.o[j], i % 4 == 3 ? 0 : big);
        problem_free(&p);
    }
}

// [9, 31] Amplified inputs and large values against float64.
Test(SUITE, are_amplified_inputs_right)
{
    if (!device_ready(ONLY_ON)) return;
    for (int turn = 0; turn < 8; turn += TURN) {
        problem p = cuda_turn(turn, 1, 2, 300, BLOCK_Q, BLOCK_K);
        problem_draw(&p, 3, 4);
        for (int64_t i = 0; i < p.count; i++) p.v[i] = dtype_round(10 * p.v[i], p.args.dtype);
        problem_run(&p, STAGE);
        problem_judge(&p);
        problem_free(&p);
    }
}

// [11] Scale 0 gives means, a negative scale turns the order, NaN is refused.
Test(SUITE, are_zero_and_negative_scales_taken_and_nan_refused)
{
    if (!device_ready(ONLY_ON)) return;
    problem p = cuda_turn(4, 1, 1, 130, BLOCK_Q, BLOCK_K);
    p.args.scale = 0;
    problem_draw(&p, 2, 1);
    for (int64_t j = 0; j < p.count; j++) p.v[j] = (float)(j / 64);
    problem_run(&p, STAGE);
    for (int64_t r = 0; r < 130; r++) cr_expect_eq(p.o[64 * r], (float)r / 2);
    p.args.scale = NAN;
    cr_expect_eq(STAGE(p.q, p.k, p.v, p.o, p.lse, &p.args), ATTENTION_BAD_ARGUMENT);
    p.args.scale = -0.125f;
    p.args.causal = false;
    problem_draw(&p, 2, 1);
    problem_run(&p, STAGE);
    problem_judge(&p);
    problem_free(&p);
}

// ---- refusals, tallies, traces ----------------------------------------------------------------

Test(SUITE, are_bad_arguments_refused_and_the_output_left_alone)
{
    if (!device_ready(ONLY_ON)) return;
    problem p = cuda_turn(0, 1, 1, 8, BLOCK_Q, BLOCK_K);
    problem_draw(&p, 1, 1);
    const attention_args good = p.args;
    attention_args bad[8];
    attention_counters counters;
    for (int i = 0; i < 8; i++) bad[i] = good;
    bad[0].dtype = DTYPE_FP32;
    bad[1].head_dim = 63; // [14]
    bad[2].head_dim = 256;
    bad[3].block_q = 2 * BLOCK_Q;
    bad[4].block_k = p.args.block_k - 1;
    bad[5].seq = 0;
    bad[6].scale = NAN;
    bad[7].counters = &counters; // the fast build counts nothing
    for (int i = 0; i < 8; i++) {
        cr_expect_eq(STAGE(p.q, p.k, p.v, p.o, p.lse, &bad[i]), ATTENTION_BAD_ARGUMENT, "case %d",
                     i);
        cr_expect_gt(strlen(status_message()), 10);
    }
    cr_expect_eq(STAGE(NULL, p.k, p.v, p.o, p.lse, &good), ATTENTION_BAD_ARGUMENT);
    // [19] More than there is, and more than 64 bits count: refused before anything is allocated.
    attention_args huge = good;
    huge.seq = huge.heads = (int64_t)1 << 32;
    cr_expect_eq(STAGE(p.q, p.k, p.v, p.o, p.lse, &huge), ATTENTION_NO_MEMORY);
    huge.heads = 1 << 14;
    cr_expect_eq(STAGE(p.q, p.k, p.v, p.o, p.lse, &huge), ATTENTION_NO_MEMORY);
    cr_expect(strstr(status_message(), "bytes"), "%s", status_message());
    for (int64_t i = 0; i < p.count; i++) cr_expect_eq(p.o[i], guard_value);
    problem_free(&p);
}

// The tracing build computes the same: to the bit in the emulator, while nvcc may contract its
// products and sums otherwise and so move a result across a rounding boundary.
Test(SUITE, does_listening_change_nothing)
{
    if (!device_ready(ONLY_ON)) return;
    for (int turn = 0; turn < 8; turn += TURN) {
        problem p = cuda_turn(turn, 1, 2, 200, BLOCK_Q, BLOCK_K);
        attention_counters counters;
        problem_draw(&p, 3, 1);
        problem_run(&p, STAGE);
        float *fast = copy_of(p.o, p.count);
        p.args.counters = &counters;
        problem_run(&p, TRACED);
        cr_expect_leq(tensor_compare(p.o, fast, p.count).max_abs,
                      RUNS < 20 ? 0 : (p.args.dtype == DTYPE_FP16 ? 0x1p-10 : 0x1p-7));
        free(fast);
        problem_free(&p);
    }
}

// --trace: stage 2's, for the same tiles.
Test(SUITE, is_its_trace_that_of_stage_2)
{
    if (!device_ready(ONLY_ON)) return;
    for (int turn = 0; turn < 16; turn += STEP) {
        problem p = cuda_turn(turn % 8, 1, 2, 199, BLOCK_Q, BLOCK_K);
        rebase_step steps[2][199];
        rebase_trace trace[2];
        attention_counters counters;
        const int64_t row = turn < 8 ? 199 + 150 : turn % 8 * 28;
        problem_draw(&p, 3, 1);
        for (int s = 0; s < 2; s++) {
            trace[s] = (rebase_trace){.row = row, .steps = steps[s], .capacity = 199};
            p.args.trace = &trace[s];
            p.args.counters = &counters;
            problem_run(&p, s ? TRACED : attention_forward_stage2);
        }
        // A stage that skips tiles records the steps it took, which are the first ones.
        cr_assert(trace[1].count > 0 && trace[1].count <= trace[0].count);
        cr_assert(SKIPS ? p.args.causal || trace[1].count == trace[0].count
                        : trace[1].count == trace[0].count);
        expect_same_steps(steps[0], steps[1], trace[1].count);
        problem_free(&p);
    }
}

// The tiles of the loops that ran.
Test(SUITE, does_it_tally_the_tiles_it_computed)
{
    if (!device_ready(ONLY_ON)) return;
    const int64_t lengths[] = {1, 64, 129, 300, 512};
    for (int turn = 0; turn < 10; turn += TURN) {
        const int64_t n = lengths[turn / 2], d = 64;
        problem p = cuda_turn(turn % 2 ? 4 : 0, 2, 2, n, BLOCK_Q, BLOCK_K);
        attention_counters c;
        int64_t tiles = 0, keys = 0;
        p.args.counters = &c;
        problem_draw(&p, 3, 1);
        problem_run(&p, TRACED);
        const int64_t rows = (n + ROWS_COMPUTED - 1) / ROWS_COMPUTED * ROWS_COMPUTED;
        for (int64_t i = 0; i < rows; i += BLOCK_Q) {
            int64_t end = n;
            if (SKIPS && p.args.causal && i + BLOCK_Q < n) end = i + BLOCK_Q;
            const int64_t block_k = p.args.block_k, visited = (end + block_k - 1) / block_k;
            tiles += visited;
            if ((i + BLOCK_Q) % BLOCK_ROWS && i + BLOCK_Q < rows) continue;
            // the block copies what its last tile visits
            keys += visited * block_k < n ? visited * block_k : n;
        }
        cr_expect_eq(c.tiles, 4 * tiles);
        cr_expect_eq(c.flops, 4 * tiles * 4 * BLOCK_Q * p.args.block_k * d);
        cr_expect_eq(c.bytes, 4 * keys * 2 * d * 2);
        cr_expect_eq(c.score_bytes, 0);
        problem_free(&p);
    }
}
