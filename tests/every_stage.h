// every_stage.h: the tests that every stage must pass. A test program includes it with
//   SUITE    the Criterion suite's name         STAGE     its attention_forward
//   PREVIOUS the stage before, or its own       HAS_TILES whether block_q and block_k matter
//
// Numbers in brackets are the classes of failure that people have reported in such programs.
#include "golden.h"
#include "support.h"

static const int64_t lengths[] = {1, 2, 63, 64, 65, 127, 128, 129, 191, 257, 513, 1025};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

// [14, 15] Lengths around tile edges, both masks, all types, against float64.
Test(SUITE, is_every_length_around_a_tile_edge_right)
{
    for (int i = 0; i < LENGTHS; i++)
        for (int causal = 0; causal < 2; causal++) {
            problem p = problem_new(1, lengths[i] > 300 ? 1 : 2, lengths[i], 64);
            p.args.causal = causal;
            p.args.dtype = (attention_dtype)(i % 3);
            p.args.block_q = p.args.block_k = 64;
            problem_draw(&p, (uint32_t)i, 1);
            problem_run(&p, STAGE);
            problem_judge(&p);
            problem_free(&p);
        }
}

Test(SUITE, is_every_head_dimension_right)
{
    const int64_t dims[] = {1,  2,  3,  7,  8,  15,  16,  17,  31,  32, 33,
                            48, 63, 64, 65, 96, 127, 128, 200, 255, 256};
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        problem p = problem_new(1, 2, 70, dims[i]);
        p.args.causal = i % 2;
        problem_draw(&p, 3, 1);
        problem_run(&p, STAGE);
        problem_judge(&p);
        problem_free(&p);
    }
}

Test(SUITE, is_every_tile_shape_right)
{
    const int64_t tiles[][2] = {{1, 1},
                                {3, 5},
                                {5, 3},
                                {7, 64},
                                {64, 7},
                                {16, 32},
                                {65, 64},
                                {64, 65},
                                {1000, 9},
                                {9, 1000},
                                {INT64_MAX, INT64_MAX}};
    for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++)
        for (int causal = 0; causal < 2; causal++) {
            problem p = problem_new(2, 2, 131, 24);
            p.args.causal = causal;
            p.args.block_q = tiles[i][0];
            p.args.block_k = tiles[i][1];
            problem_draw(&p, 11, 1);
            problem_run(&p, STAGE);
            problem_judge(&p);
            problem_free(&p);
        }
}

// Length x head dimension, while types, masks, tiles, scales, batches and heads take turns: every
// length meets every type with and without the mask.
Test(SUITE, do_lengths_head_dimensions_types_and_tiles_go_together, .timeout = 240)
{
    const int64_t dims[] = {1, 3, 32, 63, 64, 65, 128, 200, 256};
    const int64_t tiles[][2] = {{64, 64}, {128, 64},  {40, 96}, {INT64_MAX, 33}, {64, 128},
                                {7, 64},  {64, 7},    {3, 5},   {1, 1},          {33, INT64_MAX},
                                {16, 16}, {257, 257}, {96, 40}};
    int turn = 0;
    for (int i = 0; i <= LENGTHS + 1; i++)
        for (int j = 0; j < 9; j++, turn++) {
            const int64_t n = i < LENGTHS ? lengths[i] : i == LENGTHS ? 3 : 192;
            // Tiny tiles cost the most and show nothing new in long sequences.
            const int64_t *tile = tiles[turn % (n > 300 ? 5 : 13)];
            const int64_t d = n > 300 && dims[j] > 65 ? dims[j] / 8 : dims[j]; // the oracle is slow
            problem p = problem_new(n > 140 ? 1 : 1 + turn % 2, n > 140 ? 1 : 1 + turn % 3, n, d);
            p.args.threads = 1 + turn % 2;
            p.args.dtype = (attention_dtype)(turn % 3);
            p.args.causal = turn / 3 % 2;
            p.args.block_q = tile[0];
            p.args.block_k = tile[1];
            if (turn % 5 == 0) p.args.scale = turn % 2 ? -0.2f : 0.3f;
            problem_draw(&p, (uint32_t)turn, 1);
            problem_run(&p, STAGE);
            problem_judge(&p);
            problem_free(&p);
        }
}

Test(SUITE, does_it_agree_with_the_stage_before)
{
    for (int i = 0; i < LENGTHS; i++)
        for (int causal = 0; causal < 2; causal++) {
            problem p = problem_new(1, 2, lengths[i], 32);
            p.args.causal = causal;
            problem_draw(&p, 5, 1);
            problem_run(&p, PREVIOUS);
            float *before = copy_of(p.o, p.count), *lse = copy_of(p.lse, p.rows);
            problem_run(&p, STAGE);
            cr_expect_lt(tensor_compare(p.o, before, p.count).max_abs, 5e-6, "N=%" PRId64,
                         lengths[i]);
            cr_expect_lt(tensor_compare(p.lse, lse, p.rows).max_abs, 1e-5);
            free(before);
            free(lse);
            problem_free(&p);
        }
}

// The golden file: every sample, both sums and the largest value of all its rows.
Test(SUITE, are_all_rows_of_the_golden_file_reproduced)
{
    FILE *file = golden_open();
    golden_row g;
    int rows = 0;
    for (; golden_next(file, &g); rows++) {
        problem p = golden_problem(&g);
        problem_run(&p, STAGE);
        const double fp32_bound = g.amp > 1 ? 2e-5 : 2e-6;
        double allowed = 0;
        for (int s = 0; s < GOLDEN_SAMPLES; s++) {
            const int64_t i = g.index[s];
            const double bound =
                g.dtype == DTYPE_FP32 ? fp32_bound : golden_exact(&p, i).bound[i % g.head_dim];
            allowed = fmax(allowed, bound);
            cr_expect_leq(fabs((double)p.o[i] - g.value[s]), bound,
                          "o[%" PRId64 "] = %.9g, not %.9g: %s", i, (double)p.o[i], g.value[s],
                          g.line);
        }
        double sum = 0, abs_sum = 0;
        int64_t largest = 0;
        for (int64_t i = 0; i < p.count; i++) {
            sum += (double)p.o[i];
            abs_sum += fabs((double)p.o[i]);
            if (fabsf(p.o[i]) > fabsf(p.o[largest])) largest = i;
        }
        const double bound = g.dtype == DTYPE_FP32
                                 ? fp32_bound
                                 : golden_exact(&p, largest).bound[largest % g.head_dim];
        cr_expect_leq(fabs(fabs((double)p.o[largest]) - g.abs_max), bound, "%s", g.line);
        cr_expect_leq(fabs(abs_sum - g.abs_sum) / (double)p.count, allowed, "%s", g.line);
        cr_expect_leq(fabs(sum - g.sum) / (double)p.count, allowed, "%s", g.line);
        problem_free(&p);
    }
    fclose(file);
    cr_expect_eq(rows, GOLDEN_ROWS);
}

// [25] One tile belongs to one thread and sums in one order.
Test(SUITE, are_the_bytes_the_same_at_any_thread_count_and_every_time)
{
    const int threads[] = {1, 2, 16, 0, 16, 2};
    for (int causal = 0; causal < 2; causal++) {
        problem p = problem_new(2, 3, 130, 40);
        p.args.causal = causal;
        p.args.block_q = 32;
        p.args.block_k = 48;
        problem_draw(&p, 1, 2);
        expect_same_bits(&p, STAGE, threads, 6);
        problem_free(&p);
    }
}

// [24] lse is optional, and not written past its last row.
Test(SUITE, is_lse_optional_and_written_within_its_bounds)
{
    for (int64_t n = 1; n <= 257; n += 256) {
        problem p = problem_new(1, 3, n, 16);
        problem_draw(&p, 2, 1);
        problem_run(&p, STAGE);
        problem_judge(&p);
        float *with = copy_of(p.o, p.count);
        cr_assert_eq(STAGE(p.q, p.k, p.v, p.o, NULL, &p.args), ATTENTION_OK);
        cr_expect_arr_eq(p.o, with, (size_t)p.count * sizeof *with);
        free(with);
        problem_free(&p);
    }
}

Test(SUITE, are_the_inputs_left_alone)
{
    problem p = problem_new(1, 2, 100, 16);
    problem_draw(&p, 2, 1);
    float *q = copy_of(p.q, p.count), *k = copy_of(p.k, p.count), *v = copy_of(p.v, p.count);
    problem_run(&p, STAGE);
    cr_expect_arr_eq(p.q, q, (size_t)p.count * sizeof *q);
    cr_expect_arr_eq(p.k, k, (size_t)p.count * sizeof *k);
    cr_expect_arr_eq(p.v, v, (size_t)p.count * sizeof *v);
    free(q);
    free(k);
    free(v);
    problem_free(&p);
}

// Vectors are wider than ragged tails: a read beyond an input would hit the wall behind it.
Test(SUITE, does_it_read_and_write_nothing_beyond_its_tensors)
{
    for (int64_t n = 1; n <= 67; n += 11)
        for (int64_t d = 1; d <= 67; d += 6) {
            problem p = problem_new(1, 1, n, d);
            p.args.block_q = 6;
            p.args.block_k = 40;
            problem_draw(&p, 1, 1);
            problem_run(&p, STAGE);
            const int64_t counts[] = {p.count, p.count, p.count, p.count, p.rows};
            float *const from[] = {p.q, p.k, p.v, p.o, p.lse};
            float *x[5];
            for (int t = 0; t < 5; t++) {
                x[t] = walled(counts[t]);
                memcpy(x[t], from[t], (size_t)counts[t] * sizeof(float));
            }
            cr_assert_eq(STAGE(x[0], x[1], x[2], x[3], x[4], &p.args), ATTENTION_OK);
            cr_expect_arr_eq(x[3], p.o, (size_t)p.count * sizeof(float));
            cr_expect_arr_eq(x[4], p.lse, (size_t)p.rows * sizeof(float));
            for (int t = 0; t < 5; t++) walled_free(x[t], counts[t]);
            problem_free(&p);
        }
}

// Neither the memory beside the tensors nor another head is ever part of an answer: a ragged tile
// that read on would meet NaN, infinity or a large number, and change.
Test(SUITE, does_what_lies_beside_a_head_stay_out_of_it)
{
    const float around[] = {NAN, INFINITY, 1e4f};
    enum { HEAD = 65 * 8 };
    problem p = problem_new(1, 3, 65, 8);
    p.args.block_q = p.args.block_k = 64;
    problem_draw(&p, 9, 1);
    problem_run(&p, STAGE);
    float *alone = copy_of(p.o + HEAD, HEAD), *lse = copy_of(p.lse + 65, 65);
    float *const tensors[] = {p.q, p.k, p.v};
    for (int i = 0; i < 3; i++) {
        for (int t = 0; t < 3; t++) {
            fill(tensors[t] - GUARD, GUARD + HEAD, around[i]);
            fill(tensors[t] + 2 * HEAD, HEAD + GUARD, around[i]);
        }
        problem_run(&p, STAGE);
        cr_expect_arr_eq(p.o + HEAD, alone, HEAD * sizeof *alone, "%g", (double)around[i]);
        cr_expect_arr_eq(p.lse + 65, lse, 65 * sizeof *lse, "%g", (double)around[i]);
    }
    free(alone);
    free(lse);
    problem_free(&p);
}

// ---- properties that need no reference --------------------------------------------------------

// Exactly so in 16 bits; in fp32 l and acc sum in different orders.
Test(SUITE, does_a_constant_v_come_out_unchanged)
{
    for (int turn = 0; turn < 6; turn++) {
        problem p = problem_new(1, 1, 200, 16);
        p.args.causal = turn % 2;
        p.args.dtype = (attention_dtype)(turn / 2);
        p.args.block_k = 48;
        problem_draw(&p, 4, 1);
        for (int64_t i = 0; i < p.count; i++) p.v[i] = 0.75f * (float)(i % 16 - 8);
        problem_run(&p, STAGE);
        for (int64_t i = 0; i < p.count; i++)
            cr_expect_float_eq(p.o[i], p.v[i],
                               p.args.dtype == DTYPE_FP32 ? 2e-6f * fabsf(p.v[i]) : 0);
        problem_free(&p);
    }
}

// [13] Equal scores weigh all visible keys alike, exactly; a padded key would show.
Test(SUITE, do_equal_scores_give_exact_means)
{
    for (int i = 0; i < LENGTHS; i++)
        for (int causal = 0; causal < 2; causal++) {
            problem p = problem_new(1, 1, lengths[i], 8);
            p.args.causal = causal;
            p.args.block_q = 48;
            p.args.block_k = 64;
            fill(p.q, p.count, 0);
            fill(p.k, p.count, 0);
            for (int64_t j = 0; j < p.count; j++) p.v[j] = (float)(j / 8);
            problem_run(&p, STAGE);
            for (int64_t r = 0; r < p.rows; r++) {
                const float mean = (float)(causal ? r : lengths[i] - 1) / 2;
                cr_expect_eq(p.o[r * 8 + 3], mean, "N=%" PRId64 " row %" PRId64 ": %.9g, not %g",
                             lengths[i], r, (double)p.o[r * 8 + 3], (double)mean);
                const double keys = (double)(causal ? r + 1 : lengths[i]);
                cr_expect_float_eq((double)p.lse[r], log(keys), 2e-6 * fmax(1, log(keys)));
            }
            problem_free(&p);
        }
}

// [13] Q = K = 0 and V = 1: with N = 65, counting 63 padding keys as score 0 would give 0.5078.
Test(SUITE, are_padding_keys_left_out_of_the_sum)
{
    for (int64_t n = 1; n <= 65; n += 8) {
        problem p = problem_new(1, 2, n, 4);
        p.args.block_q = p.args.block_k = 64;
        fill(p.q, p.count, 0);
        fill(p.k, p.count, 0);
        fill(p.v, p.count, 1);
        problem_run(&p, STAGE);
        for (int64_t i = 0; i < p.count; i++) cr_expect_eq(p.o[i], 1);
        for (int64_t r = 0; r < p.rows; r++) cr_expect_float_eq(p.lse[r], logf((float)n), 1e-6f);
        problem_free(&p);
    }
}

// One visible key: O = V in every bit that == sees.
Test(SUITE, does_one_visible_key_give_v_bit_for_bit)
{
    for (int dtype = 0; dtype < 3; dtype++) {
        problem p = problem_new(1, 4, 1, 64), c = problem_new(1, 1, 90, 64);
        p.args.dtype = c.args.dtype = (attention_dtype)dtype;
        c.args.causal = true;
        problem_draw(&p, 8, 3);
        problem_draw(&c, 9, 3);
        problem_run(&p, STAGE);
        problem_run(&c, STAGE);
        for (int64_t i = 0; i < p.count; i++) cr_expect_eq(p.o[i], p.v[i]);
        for (int64_t x = 0; x < 64; x++) cr_expect_eq(c.o[x], c.v[x]); // row 0 sees key 0 alone
        problem_free(&p);
        problem_free(&c);
    }
}

Test(SUITE, does_permuting_the_keys_change_nothing)
{
    problem p = problem_new(1, 1, 150, 16);
    p.args.block_k = 32;
    problem_draw(&p, 6, 1);
    problem_run(&p, STAGE);
    float *before = copy_of(p.o, p.count);
    reverse_keys(&p);
    problem_run(&p, STAGE);
    cr_expect_lt(tensor_compare(p.o, before, p.count).max_abs, 2e-6);
    free(before);
    problem_free(&p);
}

Test(SUITE, does_a_shift_of_all_scores_change_nothing)
{
    problem p = problem_new(1, 1, 150, 16);
    p.args.scale = 0.25f;
    problem_draw(&p, 6, 1);
    for (int64_t j = 0; j < 150; j++) {
        p.q[j * 16] = 1;
        p.k[j * 16] = 0;
    }
    problem_run(&p, STAGE);
    float *before = copy_of(p.o, p.count), *lse = copy_of(p.lse, p.rows);
    for (int64_t j = 0; j < 150; j++) p.k[j * 16] = 64; // every score rises by 16
    problem_run(&p, STAGE);
    cr_expect_lt(tensor_compare(p.o, before, p.count).max_abs, 2e-5);
    for (int64_t r = 0; r < p.rows; r++) cr_expect_float_eq(p.lse[r], lse[r] + 16, 5e-5f);
    free(before);
    free(lse);
    problem_free(&p);
}

Test(SUITE, do_two_halves_merged_through_lse_equal_the_whole)
{
    enum { N = 160, HALF = 64, D = 16 };
    problem whole = problem_new(1, 1, N, D);
    problem_draw(&whole, 12, 2);
    problem_run(&whole, STAGE);
    // Keys split 64 | 96; queries beyond a half's length repeat, since lengths must be equal.
    float merged[N * D];
    double weight[2][N];
    float *parts[2];
    for (int half = 0; half < 2; half++) {
        const int64_t first = half ? HALF : 0, keys = half ? N - HALF : HALF;
        parts[half] = malloc(sizeof merged);
        for (int64_t start = 0; start < N; start += keys) {
            const int64_t rows = start + keys <= N ? keys : N - start;
            problem p = problem_new(1, 1, keys, D);
            fill(p.q, p.count, 0);
            memcpy(p.q, whole.q + start * D, (size_t)(rows * D) * sizeof(float));
            memcpy(p.k, whole.k + first * D, (size_t)(keys * D) * sizeof(float));
            memcpy(p.v, whole.v + first * D, (size_t)(keys * D) * sizeof(float));
            problem_run(&p, STAGE);
            memcpy(parts[half] + start * D, p.o, (size_t)(rows * D) * sizeof(float));
            for (int64_t r = 0; r < rows; r++)
                weight[half][start + r] = exp((double)p.lse[r] - (double)whole.lse[start + r]);
            problem_free(&p);
        }
    }
    for (int64_t i = 0; i < N * D; i++)
        merged[i] = (float)(weight[0][i / D] * (double)parts[0][i] +
                            weight[1][i / D] * (double)parts[1][i]);
    cr_expect_lt(tensor_compare(merged, whole.o, N * D).max_abs, 5e-6);
    free(parts[0]);
    free(parts[1]);
    problem_free(&whole);
}

// ---- inputs that expose what random ones hide -------------------------------------------------

Test(SUITE, are_rising_logits_over_many_tiles_right)
{
    for (int direction = -1; direction <= 1; direction += 2) {
        problem p = problem_new(1, 1, 257, 4);
        p.args.block_q = 32;
        p.args.block_k = 64;
        p.args.scale = 1;
        problem_draw(&p, 1, 0);
        for (int64_t j = 0; j < 257; j++) {
            p.q[j * 4] = 1;
            p.k[j * 4] = (float)(direction * j) * 0.125f;
        }
        problem_run(&p, STAGE);
        problem_judge(&p);
        problem_free(&p);
    }
}

Test(SUITE, is_a_needle_in_the_last_tile_found)
{
    const int64_t places[] = {0, 1, 63, 64, 128, 199, 200};
    for (int i = 0; i < 7; i++) {
        problem p = problem_new(1, 1, 201, 8);
        p.args.block_q = p.args.block_k = 64;
        p.args.scale = 1;
        problem_draw(&p, 1, 0.01f);
        for (int64_t j = 0; j < 201; j++) p.q[j * 8] = 1;
        p.k[places[i] * 8] = 100; // alone it outweighs all others beyond fp32
        problem_run(&p, STAGE);
        problem_judge(&p);
        for (int64_t x = 0; x < p.count; x++) cr_expect_eq(p.o[x], p.v[places[i] * 8 + x % 8]);
        problem_free(&p);
    }
}

// [6] The maximum runs; it is not each tile's own. Logits 200 and -200, a key a tile.
Test(SUITE, does_the_maximum_run_across_tiles)
{
    const float logits[][4] = {
        {200, -200, -200, -200}, {-200, -200, -200, 200}, {-200, 200, -200, -200}};
    for (int c = 0; c < 3; c++) {
        problem p = problem_new(1, 1, 4, 1);
        p.args.block_q = p.args.block_k = 1;
        p.args.scale = 1;
        fill(p.q, 4, 1);
        for (int j = 0; j < 4; j++) {
            p.k[j] = logits[c][j];
            p.v[j] = logits[c][j] > 0 ? 1 : 7;
        }
        problem_run(&p, STAGE);
        for (int r = 0; r < 4; r++) {
            cr_expect_eq(p.o[r], 1);
            cr_expect_float_eq(p.lse[r], 200, 4e-4f);
        }
        problem_free(&p);
    }
}

// ---- infinities and NaN -----------------------------------------------------------------------

// [1, 3] A leading tile of nothing but -inf, in any row of the query tile.
Test(SUITE, is_a_wholly_masked_first_tile_harmless)
{
    for (int64_t block = 1; block <= 11; block++)
        for (int64_t masked = 0; masked <= 8; masked++) {
            problem p = problem_new(1, 1, 10, 1);
            p.args.block_q = 4;
            p.args.block_k = block;
            p.args.scale = 1;
            fill(p.q, 10, 1);
            for (int64_t j = 0; j < 10; j++) {
                p.k[j] = j < masked ? -INFINITY : j == 8 ? 1 : j == 9 ? 2 : -1000;
                p.v[j] = j == 9;
            }
            problem_run(&p, STAGE);
            for (int r = 0; r < 10; r++) {
                cr_expect_float_eq(p.o[r], 0.73106f, 1e-5f, "block %" PRId64, block);
                cr_expect_float_eq(p.lse[r], 2.31326f, 1e-5f);
            }
            problem_free(&p);
        }
}

// [2] Nothing visible: O = 0 and lse = -inf. [3] Beside rows that see something.
Test(SUITE, is_a_row_of_nothing_but_minus_infinity_zero)
{
    for (int64_t n = 1; n <= 5; n++)
        for (int64_t block = 1; block <= 5; block++) {
            problem p = problem_new(1, 1, n, 1);
            p.args.block_q = 3;
            p.args.block_k = block;
            fill(p.k, n, -INFINITY);
            fill(p.v, n, 3);
            for (int64_t r = 0; r < n; r++) p.q[r] = 1;
            problem_run(&p, STAGE);
            for (int64_t r = 0; r < n; r++) {
                cr_expect_eq(p.o[r], 0);
                cr_expect(isinf(p.lse[r]) && p.lse[r] < 0);
            }
            problem_free(&p);
        }
}

// [3] Where in the tile a masked row stands is of no matter. q k overflows to -inf in the rows
// whose q is 1e10, and stays small in the others.
Test(SUITE, is_a_masked_row_harmless_anywhere_in_its_tile)
{
    enum { N = 12 };
    problem p = problem_new(1, 1, N, 1);
    p.args.threads = 1;
    p.args.scale = 1;
    for (int j = 0; j < N; j++) {
        p.k[j] = -2e38f - 1e37f * (float)j;
        p.v[j] = (float)j;
    }
    for (int64_t block = 1; block <= 13; block += 3) {
        p.args.block_q = 5;
        p.args.block_k = block;
        fill(p.q, N, 1e-38f);
        problem_run(&p, STAGE);
        const float o = p.o[0], lse = p.lse[0];
        cr_assert(o > 0 && o < N && isfinite(lse));
        for (unsigned masked = 0; masked < 1u << N; masked += 97) {
            for (int r = 0; r < N; r++) p.q[r] = masked >> r & 1 ? 1e10f : 1e-38f;
            problem_run(&p, STAGE);
            for (int r = 0; r < N; r++) {
                cr_expect_eq(p.o[r], masked >> r & 1 ? 0 : o, "rows %x, row %d", masked, r);
                cr_expect_eq(p.lse[r], masked >> r & 1 ? -INFINITY : lse);
            }
        }
    }
    problem_free(&p);
}

// [1, 2] Causal, and the first keys are -inf: the rows that see no other are 0.
Test(SUITE, are_leading_rows_without_a_visible_key_zero)
{
    for (int64_t block = 1; block <= 11; block += 2)
        for (int64_t masked = 1; masked <= 10; masked++) {
            problem p = problem_new(1, 1, 10, 1);
            p.args.causal = true;
            p.args.block_q = p.args.block_k = block;
            fill(p.q, 10, 1);
            for (int64_t j = 0; j < 10; j++) {
                p.k[j] = j < masked ? -INFINITY : 0.5f;
                p.v[j] = j < masked ? 7 : 3;
            }
            problem_run(&p, STAGE);
            for (int64_t r = 0; r < 10; r++) {
                cr_expect_eq(p.o[r], r < masked ? 0 : 3);
                const double keys = (double)(r - masked + 1);
                if (r < masked)
                    cr_expect_eq(p.lse[r], -INFINITY);
                else
                    cr_expect_float_eq((double)p.lse[r], 0.5 + log(keys), 5e-6);
            }
            problem_free(&p);
        }
}

// [4] +inf is NaN at every block size, wherever it stands.
Test(SUITE, is_plus_infinity_nan_at_every_block_size)
{
    for (int64_t at = 0; at < 3; at++)
        for (int64_t block = 1; block <= 4; block++) {
            problem p = problem_new(1, 1, 3, 1);
            p.args.block_k = block;
            fill(p.q, 3, 1);
            fill(p.k, 3, 0);
            fill(p.v, 3, 1);
            p.k[at] = INFINITY;
            problem_run(&p, STAGE);
            for (int r = 0; r < 3; r++)
                cr_expect(isnan(p.o[r]) && isnan(p.lse[r]), "at %" PRId64 " block %" PRId64, at,
                          block);
            problem_free(&p);
        }
}

// A NaN beside nothing but -inf still reaches its row: a masked tile is never skipped by its max.
Test(SUITE, does_a_nan_among_minus_infinities_reach_its_row)
{
    for (int64_t block = 1; block <= 4; block++) {
        problem p = problem_new(1, 1, 4, 1);
        p.args.block_k = block;
        fill(p.q, 4, 1);
        fill(p.k, 4, -INFINITY);
        fill(p.v, 4, 1);
        p.k[2] = NAN;
        problem_run(&p, STAGE);
        for (int r = 0; r < 4; r++) cr_expect(isnan(p.o[r]) && isnan(p.lse[r]));
        problem_free(&p);
    }
}

// [5] A key in the future changes nothing; one in the past reaches exactly the rows that see it.
Test(SUITE, does_a_bad_key_reach_exactly_the_rows_that_see_it)
{
    const float bad[] = {NAN, INFINITY};
    for (int i = 0; i < 2; i++)
        for (int64_t at = 1; at < 66; at += 32) {
            problem p = problem_new(1, 2, 66, 8);
            p.args.causal = true;
            p.args.block_q = p.args.block_k = 64;
            problem_draw(&p, 7, 1);
            for (int64_t r = 0; r < 66; r++) p.q[r * 8] = 1; // +inf meets no zero and no sign
            problem_run(&p, STAGE);
            float *clean = copy_of(p.o, p.count);
            p.k[at * 8] = bad[i];
            problem_run(&p, STAGE);
            cr_expect_arr_eq(p.o, clean, (size_t)(at * 8) * sizeof(float));
            for (int64_t x = at * 8; x < 66 * 8; x++) cr_expect(isnan(p.o[x]));
            cr_expect_arr_eq(p.o + 66 * 8, clean + 66 * 8,
                             66 * 8 * sizeof(float)); // the other head
            free(clean);
            problem_free(&p);
        }
}

Test(SUITE, does_a_bad_query_reach_its_own_row_alone)
{
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) {
        problem p = problem_new(1, 2, 66, 8);
        p.args.block_q = p.args.block_k = 64;
        problem_draw(&p, 7, 1);
        problem_run(&p, STAGE);
        float *clean = copy_of(p.o, p.count), *lse = copy_of(p.lse, p.rows);
        p.q[33 * 8] = bad[i]; // keys of both signs: some scores are +inf
        problem_run(&p, STAGE);
        for (int64_t r = 0; r < p.rows; r++) {
            if (r != 33) cr_expect_eq(p.lse[r], lse[r]);
            for (int64_t x = r * 8; x < r * 8 + 8; x++)
                cr_expect(r == 33 ? isnan(p.o[x]) : p.o[x] == clean[x]);
        }
        cr_expect(isnan(p.lse[33]));
        free(clean);
        free(lse);
        problem_free(&p);
    }
}

// [5] Stages 0 to 2 compute every tile, so 0 x NaN reaches all rows of the head, and no other;
// 0 x inf is NaN too, in the rows that do not see it.
Test(SUITE, how_far_does_a_bad_value_reach)
{
    for (int turn = 0; turn < 4; turn++) {
        const int64_t at = turn % 2 ? 65 : 20;
        problem p = problem_new(1, 3, 66, 8);
        p.args.causal = true;
        p.args.block_q = p.args.block_k = 64;
        problem_draw(&p, 7, 1);
        problem_run(&p, STAGE);
        float *clean = copy_of(p.o, p.count), *lse = copy_of(p.lse, p.rows);
        for (int64_t x = 0; x < 7; x++) p.v[(66 + at) * 8 + x] = turn < 2 ? NAN : INFINITY;
        problem_run(&p, STAGE);
        for (int64_t i = 0; i < p.count; i++)
            if (i / (66 * 8) != 1 || i % 8 == 7) // column 7 stayed finite
                cr_expect_eq(p.o[i], clean[i]);
            else if (turn < 2 || i / 8 - 66 < at)
                cr_expect(isnan(p.o[i]));
            else
                cr_expect_eq(p.o[i], INFINITY);
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
    for (int dtype = 0; dtype < 3; dtype++) {
        problem p = problem_new(1, 1, 70, 64);
        p.args.dtype = (attention_dtype)dtype;
        problem_draw(&p, 1, 1);
        fill(p.q, p.count, 64);
        fill(p.k, p.count, 64);
        problem_run(&p, STAGE);
        problem_judge(&p);
        cr_expect_float_eq((double)p.lse[0], 32768 + log(70), 0.004);
        problem_free(&p);
    }
}

// [8] Sums beyond fp16's largest value, as long as the mean fits.
Test(SUITE, does_the_accumulator_hold_more_than_fp16)
{
    const int64_t n[] = {2, 65, 1025, 64};
    for (int i = 0; i < 4; i++) {
        problem p = problem_new(1, 1, n[i], 4);
        p.args.dtype = DTYPE_FP16;
        fill(p.q, p.count, 0);
        fill(p.k, p.count, 0);
        for (int64_t j = 0; j < p.count; j++) p.v[j] = i == 3 && j / 4 % 2 ? -60000 : 60000;
        problem_run(&p, STAGE);
        for (int64_t j = 0; j < p.count; j++) cr_expect_eq(p.o[j], i == 3 ? 0 : 60000);
        problem_free(&p);
    }
}

// [9, 31] Amplified inputs and large values, each type, against float64.
Test(SUITE, are_amplified_inputs_right)
{
    for (int dtype = 0; dtype < 3; dtype++) {
        problem p = problem_new(1, 2, 300, 128);
        p.args.dtype = (attention_dtype)dtype;
        p.args.causal = dtype == 1;
        problem_draw(&p, 3, 4);
        for (int64_t i = 0; i < p.count; i++) p.v[i] = dtype_round(10 * p.v[i], p.args.dtype);
        problem_run(&p, STAGE);
        problem_judge(&p);
        problem_free(&p);
    }
}

// [31] Many values near zero beside large ones: the bound of each follows its own sum of p|v|.
Test(SUITE, are_large_values_judged_by_what_rounding_costs)
{
    problem p = problem_new(1, 8, 900, 16);
    p.args.dtype = DTYPE_FP16;
    problem_draw(&p, 31, 1);
    for (int64_t i = 0; i < p.count; i++) p.v[i] = dtype_round(10 * p.v[i], DTYPE_FP16);
    problem_run(&p, STAGE);
    problem_judge(&p);
    problem_free(&p);
}

// Scores far below any finite stand-in for -inf.
Test(SUITE, do_very_negative_scores_still_count)
{
    problem p = problem_new(1, 1, 70, 1);
    p.args.scale = 1;
    p.args.block_q = p.args.block_k = 16;
    fill(p.q, 70, 1);
    fill(p.k, 70, -3e38f);
    for (int64_t j = 0; j < 70; j++) p.v[j] = (float)j;
    problem_run(&p, STAGE);
    for (int64_t r = 0; r < 70; r++) cr_expect_eq(p.o[r], 34.5f);
    problem_free(&p);
}

// fp16 and bf16 outputs are values of their type, whatever the arithmetic was done in.
Test(SUITE, is_the_output_rounded_to_its_type)
{
    for (int dtype = 1; dtype < 3; dtype++) {
        problem p = problem_new(1, 1, 70, 16);
        p.args.dtype = (attention_dtype)dtype;
        problem_draw(&p, 3, 1);
        problem_run(&p, STAGE);
        for (int64_t i = 0; i < p.count; i++)
            cr_expect_eq(p.o[i], dtype_round(p.o[i], p.args.dtype));
        problem_free(&p);
    }
}

// [11] Scale 0 gives means, a negative scale turns the order, NaN is refused.
Test(SUITE, are_zero_and_negative_scales_taken_and_nan_refused)
{
    problem p = problem_new(1, 1, 130, 2);
    p.args.causal = true;
    p.args.scale = 0;
    problem_draw(&p, 2, 1);
    for (int64_t j = 0; j < p.count; j++) p.v[j] = (float)(j / 2);
    problem_run(&p, STAGE);
    for (int64_t r = 0; r < 130; r++) cr_expect_eq(p.o[2 * r], (float)r / 2);
    p.args.scale = NAN;
    cr_expect_eq(STAGE(p.q, p.k, p.v, p.o, p.lse, &p.args), ATTENTION_BAD_ARGUMENT);
    problem_free(&p);

    problem two = problem_new(1, 1, 2, 1);
    two.args.scale = -1;
    two.q[0] = two.q[1] = two.k[0] = 1;
    two.k[1] = 2;
    two.v[0] = 1;
    two.v[1] = 0;
    problem_run(&two, STAGE);
    cr_expect_float_eq(two.o[0], 0.731f, 1e-3f);
    cr_expect_float_eq(1 - two.o[1], 0.269f, 1e-3f);
    problem_free(&two);
}

// [12] The natural logarithm.
Test(SUITE, is_lse_in_natural_units)
{
    problem p = problem_new(1, 1, 2, 1);
    fill(p.q, 2, 0);
    fill(p.k, 2, 0);
    fill(p.v, 2, 0);
    problem_run(&p, STAGE);
    cr_expect_float_eq(p.lse[0], 0.693147f, 1e-6f);
    problem_free(&p);
}

// [18] q and k that differ from zero only in dimensions 64 to 127.
Test(SUITE, do_all_dimensions_count)
{
    problem p = problem_new(1, 1, 90, 128);
    problem_draw(&p, 6, 2);
    for (int64_t r = 0; r < 90; r++)
        for (int64_t x = 0; x < 64; x++) p.q[r * 128 + x] = p.k[r * 128 + x] = 0;
    problem_run(&p, STAGE);
    problem_judge(&p);
    problem_free(&p);
}

// ---- refusals, tallies, traces ----------------------------------------------------------------

Test(SUITE, are_bad_arguments_refused_and_the_output_left_alone)
{
    problem p = problem_new(1, 1, 8, 8);
    problem_draw(&p, 1, 1);
    const attention_args good = p.args;
    attention_args bad[9];
    for (int i = 0; i < 9; i++) bad[i] = good;
    bad[0].head_dim = 0;
    bad[1].head_dim = 257;
    bad[2].seq = 0;
    bad[3].batch = -1;
    bad[4].heads = 0;
    bad[5].block_q = 0;
    bad[6].block_k = -4;
    bad[7].threads = -1;
    bad[8].scale = NAN;
    for (int i = 0; i < 9; i++) {
        cr_expect_eq(STAGE(p.q, p.k, p.v, p.o, p.lse, &bad[i]), ATTENTION_BAD_ARGUMENT, "case %d",
                     i);
        cr_expect_gt(strlen(status_message()), 10);
    }
    cr_expect_eq(STAGE(NULL, p.k, p.v, p.o, p.lse, &good), ATTENTION_BAD_ARGUMENT);
    cr_expect_eq(STAGE(p.q, p.k, p.v, NULL, p.lse, &good), ATTENTION_BAD_ARGUMENT);
    // [19] A shape that 64 bits cannot count is refused with its bytes, before anything is touched.
    attention_args huge = good;
    huge.seq = huge.heads = (int64_t)1 << 32;
    cr_expect_eq(STAGE(p.q, p.k, p.v, p.o, p.lse, &huge), ATTENTION_NO_MEMORY);
    cr_expect(strstr(status_message(), "bytes"));
    for (int64_t i = 0; i < p.count; i++) cr_expect_eq(p.o[i], guard_value);
    for (int64_t r = 0; r < p.rows; r++) cr_expect_eq(p.lse[r], guard_value);
    problem_free(&p);
}

Test(SUITE, does_the_trace_follow_the_recurrence)
{
    for (int causal = 0; causal < 2; causal++) {
        problem p = problem_new(1, 2, 200, 16);
        rebase_step steps[200];
        rebase_trace trace = {.row = 200 + 77, .steps = steps, .capacity = 200};
        p.args.causal = causal;
        p.args.block_q = 48;
        p.args.block_k = 33;
        p.args.trace = &trace;
        problem_draw(&p, 3, 2);
        problem_run(&p, STAGE);
        const int64_t tiles = HAS_TILES ? 7 : 1;
        cr_assert_eq(trace.count, tiles);
        double *scores = malloc(200 * sizeof *scores);
        oracle_row exact;
        oracle_compute_row(&exact, scores, p.q, p.k, p.v, &p.args, 1, 77);
        double m = -INFINITY, l = 0;
        for (int64_t t = 0; t < tiles; t++) {
            const int64_t first = HAS_TILES ? t * 33 : 0,
                          end = HAS_TILES && first + 33 < 200 ? first + 33 : 200;
            double m_new = m, added = 0;
            for (int64_t j = first; j < end && (!causal || j <= 77); j++)
                m_new = fmax(m_new, scores[j]);
            for (int64_t j = first; j < end && (!causal || j <= 77); j++)
                added += exp(scores[j] - m_new);
            const double correction = t == 0 ? 0 : exp(m - m_new);
            l = l * correction + added;
            cr_expect_eq(steps[t].first_key, first);
            cr_expect_eq(steps[t].keys, end - first);
            if (t > 0)
                cr_expect_float_eq((double)steps[t].m_old, m, 1e-5);
            else
                cr_expect_eq(steps[t].m_old, -INFINITY);
            cr_expect_float_eq((double)steps[t].m_new, m_new, 1e-5);
            cr_expect_float_eq((double)steps[t].correction, correction, 1e-5);
            cr_expect_float_eq((double)steps[t].l, l, 1e-5 * l);
            m = m_new;
        }
        cr_expect_float_eq((double)p.lse[277], m + log(l), 1e-5);
        const rebase_step *last = &steps[tiles - 1]; // what the trace holds is what lse says
        cr_expect_float_eq((double)last->l, exp((double)p.lse[277] - (double)last->m_new),
                           2e-5 * l);
        free(scores);
        problem_free(&p);
    }
}
