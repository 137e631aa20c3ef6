/*
 * What the reference kernels must be, from facts that are not another kernel: shards of the vocabulary that make the
 * whole, masks that are slices, the optimizer's arithmetic, and what is not finite.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernel_case.h"

static void run_ref(yoke_op op, const yoke_kernel_call *call)
{
    yoke_kernel_set_find("ref")->run[op](call);
}

static yoke_tensor piece_of(void *data, int n_dims, const int64_t *extent)
{
    yoke_tensor piece = {.data = data, .shard = {.n_dims = n_dims}};
    for (int i = 0; i < n_dims; i++) {
        piece.shard.extent[i] = extent[i];
    }
    return piece;
}

static yoke_tensor scalar_of(void *data)
{
    return (yoke_tensor){.data = data};
}

/* Cross entropy of one row whose columns lie on `n_parts` ranks: maximum over ranks between, sums of the rest. */
static double loss_of_shards(const float *logits, int64_t n_columns, int32_t label, int n_parts)
{
    float max = -INFINITY;
    float part;
    float sum = 0.0f;
    float picked = 0.0f;
    float loss;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < n_parts; i++) {
            int64_t offset;
            int64_t extent;
            yoke_split(n_columns, n_parts, i, &offset, &extent);
            yoke_tensor logits_piece = piece_of(NULL, 3, (int64_t[]){1, 1, extent});
            float copy[16];
            memcpy(copy, logits + offset, (size_t)extent * sizeof(float));
            logits_piece.data = extent > 0 ? copy : NULL;
            logits_piece.shard.offset[2] = offset;
            yoke_tensor in[2] = {logits_piece, piece_of(&max, 2, (int64_t[]){1, 1})};
            yoke_tensor out = piece_of(&part, 2, (int64_t[]){1, 1});
            yoke_kernel_call call = {.in = in, .out = &out, .n_in = 2, .n_out = 1};
            if (pass == 0) {
                run_ref(YOKE_OP_ROW_MAX, &call);
                max = part > max ? part : max;
                continue;
            }
            run_ref(YOKE_OP_ROW_SUM_EXP, &call);
            sum += part;
            in[1].data = &label;
            run_ref(YOKE_OP_ROW_PICK, &call);
            picked += part;
        }
    }
    yoke_tensor in[5] = {piece_of(NULL, 3, (int64_t[]){1, 1, n_columns})};
    void *data[] = {&max, &sum, &picked, &label};
    for (int i = 0; i < 4; i++) {
        in[i + 1] = piece_of(data[i], 2, (int64_t[]){1, 1});
    }
    yoke_tensor out = scalar_of(&loss);
    run_ref(YOKE_OP_CROSS_ENTROPY,
            &(yoke_kernel_call){.in = in, .out = &out, .n_in = 5, .n_out = 1});
    return (double)loss;
}

/* Fault A3: logits 0 to 3, label 3: 0.44019 over any number of ranks, more ranks than columns too. */
static void test_loss_over_shards_of_the_vocabulary(void **state)
{
    (void)state;
    const float logits[] = {0.0f, 1.0f, 2.0f, 3.0f};
    for (int n_parts = 1; n_parts <= 6; n_parts++) {
        assert_true(fabs(loss_of_shards(logits, 4, 3, n_parts) - 0.44019) < 1e-5);
        assert_true(fabs(loss_of_shards(logits, 4, 0, n_parts) - 3.44019) < 1e-5);
        assert_true(loss_of_shards(logits, 4, -1, n_parts) == 0.0);
    }
}

static void test_loss_of_large_logits_and_not_numbers(void **state)
{
    (void)state;
    const float large[] = {1000.0f, -1000.0f, 999.0f};
    const float bad[] = {0.0f, NAN, 1.0f};
    assert_true(fabs(loss_of_shards(large, 3, 0, 1) - log(1.0 + exp(-1.0))) < 1e-6);
    assert_true(isnan(loss_of_shards(bad, 3, 0, 1)));
    const yoke_kernel_set *avx2 = yoke_kernel_set_find("avx2");
    float max = 0.0f;
    float logits[] = {0.0f, NAN, 1.0f};
    yoke_tensor in = piece_of(logits, 3, (int64_t[]){1, 1, 3});
    yoke_tensor out = piece_of(&max, 2, (int64_t[]){1, 1});
    if (avx2 && avx2->supported()) {
        avx2->run[YOKE_OP_ROW_MAX](
            &(yoke_kernel_call){.in = &in, .out = &out, .n_in = 1, .n_out = 1});
        assert_true(isnan(max));
    }
}

/* A row is in exactly one shard of the table, so the sum over the shards is the row, and each shard gets its gradient. */
static void test_embedding_over_shards(void **state)
{
    (void)state;
    enum { V = 7, D = 3, N = 4 };
    float table[V * D];
    float sum[N * D] = {0};
    float y[N * D];
    float dtable[V * D];
    const int32_t ids[N] = {6, 0, 3, 6};
    int32_t ids_copy[N];
    memcpy(ids_copy, ids, sizeof ids);
    for (int i = 0; i < V * D; i++) {
        table[i] = (float)i;
    }
    for (int part = 0; part < 3; part++) {
        int64_t offset;
        int64_t extent;
        yoke_split(V, 3, part, &offset, &extent);
        yoke_tensor shard = piece_of(table + offset * D, 2, (int64_t[]){extent, D});
        shard.shard.offset[0] = offset;
        yoke_tensor in[2] = {shard, piece_of(ids_copy, 2, (int64_t[]){1, N})};
        yoke_tensor out = piece_of(y, 3, (int64_t[]){1, N, D});
        run_ref(YOKE_OP_EMBEDDING,
                &(yoke_kernel_call){.in = in, .out = &out, .n_in = 2, .n_out = 1});
        for (int i = 0; i < N * D; i++) {
            sum[i] += y[i];
        }
        yoke_tensor grad_in[2] = {in[1], out};
        yoke_tensor grad = shard;
        grad.data = dtable + offset * D;
        out.data = table; /* dy: rows 0 to 3 of the table */
        grad_in[1] = out;
        run_ref(YOKE_OP_EMBEDDING_GRAD,
                &(yoke_kernel_call){.in = grad_in, .out = &grad, .n_in = 2, .n_out = 1});
    }
    for (int i = 0; i < N * D; i++) {
        assert_true(sum[i] == table[ids[i / D] * D + i % D]);
    }
    for (int i = 0; i < V * D; i++) {
        int d = i % D;
        int row = i / D;
        float expected = row == 6 ? table[d] + table[3 * D + d] : row == 0 ? table[D + d] : 0.0f;
        expected = row == 3 ? table[2 * D + d] : expected;
        assert_true(dtable[i] == expected);
    }
}

/* Runs dropout on ones lying at `offset`, and returns how many of its elements differ from the whole's. */
static int mask_differences(const float *whole, const int64_t *extent, const int64_t *offset)
{
    enum { T = 6, D = 10 };
    float a[64];
    float y[64];
    yoke_attributes attributes = {.rate = 0.4f, .site = 9, .global[0] = {3, {4, T, D}}};
    yoke_tensor in = piece_of(a, 3, extent);
    yoke_tensor out = piece_of(y, 3, extent);
    memcpy(in.shard.offset, offset, 3 * sizeof(*offset));
    for (int i = 0; i < 64; i++) {
        a[i] = 1.0f;
    }
    run_ref(YOKE_OP_DROPOUT, &(yoke_kernel_call){.in = &in,
                                                 .out = &out,
                                                 .n_in = 1,
                                                 .n_out = 1,
                                                 .attributes = &attributes,
                                                 .seed = 1,
                                                 .step = 2});
    int differences = 0;
    for (int64_t i = 0; i < extent[0] * extent[1] * extent[2]; i++) {
        int64_t d = i % extent[2] + offset[2];
        int64_t t = i / extent[2] % extent[1] + offset[1];
        int64_t b = i / extent[2] / extent[1] + offset[0];
        differences += y[i] != whole[(b * T + t) * D + d];
    }
    return differences;
}

/* Fault A19: masks of shards are slices of one mask, so those of different shards differ and those of equal ones agree. */
static void test_dropout_masks_are_slices(void **state)
{
    (void)state;
    enum { N = 4 * 6 * 10 };
    float ones[N];
    float whole[N];
    int kept = 0;
    yoke_attributes attributes = {.rate = 0.4f, .site = 9, .global[0] = {3, {4, 6, 10}}};
    yoke_tensor in = piece_of(ones, 3, (int64_t[]){4, 6, 10});
    yoke_tensor out = piece_of(whole, 3, (int64_t[]){4, 6, 10});
    for (int i = 0; i < N; i++) {
        ones[i] = 1.0f;
    }
    yoke_kernel_call call = {.in = &in,
                             .out = &out,
                             .n_in = 1,
                             .n_out = 1,
                             .attributes = &attributes,
                             .seed = 1,
                             .step = 2};
    run_ref(YOKE_OP_DROPOUT, &call);
    for (int i = 0; i < N; i++) {
        kept += whole[i] != 0.0f;
        assert_true(whole[i] == 0.0f || fabsf(whole[i] - 1.0f / 0.6f) < 1e-6f);
    }
    assert_in_range(kept, 115, 173); /* 144 expected, deviation 7.6 */
    assert_int_equal(mask_differences(whole, (int64_t[]){1, 6, 10}, (int64_t[]){3, 0, 0}), 0);
    assert_int_equal(mask_differences(whole, (int64_t[]){2, 3, 5}, (int64_t[]){1, 3, 0}), 0);
    assert_int_equal(mask_differences(whole, (int64_t[]){4, 1, 3}, (int64_t[]){0, 4, 7}), 0);
    assert_true(mask_differences(whole + 60, (int64_t[]){1, 6, 10}, (int64_t[]){0, 0, 0}) > 0);
    for (int change = 0; change < 4; change++) {
        float other[N];
        yoke_attributes changed = attributes;
        yoke_kernel_call again = call;
        out.data = other;
        again.attributes = &changed;
        again.seed += change == 0;
        again.step += change == 1;
        again.microbatch += change == 2;
        changed.site += change == 3;
        run_ref(YOKE_OP_DROPOUT, &again);
        assert_true(memcmp(other, whole, sizeof whole) != 0);
    }
}

/* A step of AdamW on one element. */
typedef struct step {
    float norm_squares, n_valid, applied, control[YOKE_N_CONTROLS];
    float parameter, first, second, gradient;
} step;

static const yoke_optimizer optimizer = {.rate = YOKE_RATE_LINEAR,
                                         .lr = 0.1,
                                         .min_lr = 0.01,
                                         .warmup_steps = 2,
                                         .total_steps = 10,
                                         .beta1 = 0.9,
                                         .beta2 = 0.99,
                                         .epsilon = 1e-8,
                                         .decay = 0.5,
                                         .clip = 2.0};

static void step_run(step *s)
{
    yoke_attributes attributes = {.optimizer = &optimizer, .decay = 0.5f};
    yoke_tensor scalars[3] = {scalar_of(&s->norm_squares), scalar_of(&s->n_valid),
                              scalar_of(&s->applied)};
    yoke_tensor control = piece_of(s->control, 1, (int64_t[]){YOKE_N_CONTROLS});
    run_ref(YOKE_OP_ADAMW_CONTROL,
            &(yoke_kernel_call){
                .in = scalars, .out = &control, .n_in = 3, .n_out = 1, .attributes = &attributes});
    yoke_tensor in[5] = {scalar_of(&s->parameter), scalar_of(&s->first), scalar_of(&s->second),
                         scalar_of(&s->gradient), control};
    run_ref(YOKE_OP_ADAMW, &(yoke_kernel_call){.in = in, .n_in = 5, .attributes = &attributes});
}

static void test_adamw_by_hand(void **state)
{
    (void)state;
    step s = {.norm_squares = 16.0f, .n_valid = 5.0f, .parameter = 1.0f, .gradient = 3.0f};
    step_run(&s);
    /* Norm 4 is clipped to 2: the gradient counts half. The first step of two of warm-up has half the rate. */
    double g = 1.5;
    double p = 1.0 - 0.05 * (g / (sqrt(g * g) + 1e-8) + 0.5 * 1.0);
    assert_true(s.control[YOKE_CONTROL_APPLY] == 1.0f && s.control[YOKE_CONTROL_SCALE] == 0.5f);
    assert_true(s.control[YOKE_CONTROL_NORM] == 4.0f && s.control[YOKE_CONTROL_STEP] == 1.0f);
    assert_true(s.applied == 1.0f && s.gradient == 3.0f);
    assert_true(fabs((double)s.parameter - p) < 1e-6);
    s.norm_squares = 1.0f;
    step_run(&s);
    double m = 0.9 * (0.1 * g) + 0.1 * 3.0;
    double v = 0.99 * (0.01 * g * g) + 0.01 * 9.0;
    p -= 0.1 * (m / (1.0 - 0.81) / (sqrt(v / (1.0 - 0.9801)) + 1e-8) + 0.5 * p);
    assert_true(s.control[YOKE_CONTROL_SCALE] == 1.0f);
    assert_true(fabs((double)s.control[YOKE_CONTROL_LR] - 0.1) < 1e-8);
    assert_true(fabs((double)s.parameter - p) < 1e-6);
}

/* Faults A6 and D2: without a valid label, or with a norm that is not finite, nothing moves, the count neither. */
static void test_a_skipped_step_moves_nothing(void **state)
{
    (void)state;
    const float norms[] = {0.0f, INFINITY, NAN, 4.0f};
    const float n_valid[] = {0.0f, 5.0f, 5.0f, 0.0f};
    for (int i = 0; i < 4; i++) {
        step s = {.norm_squares = norms[i],
                  .n_valid = n_valid[i],
                  .applied = 3.0f,
                  .parameter = 1.0f,
                  .first = 0.25f,
                  .second = 0.5f,
                  .gradient = NAN};
        step_run(&s);
        assert_true(s.control[YOKE_CONTROL_APPLY] == 0.0f);
        assert_true(s.applied == 3.0f && s.parameter == 1.0f);
        assert_true(s.first == 0.25f && s.second == 0.5f);
    }
}

static void test_scalars(void **state)
{
    (void)state;
    float values[] = {2.0f, 0.0f, 3.0f};
    float packed[3] = {9.0f, 9.0f, 9.0f};
    yoke_tensor in[3] = {scalar_of(&values[0]), scalar_of(NULL), scalar_of(&values[2])};
    yoke_tensor out = piece_of(packed, 1, (int64_t[]){3});
    run_ref(YOKE_OP_PACK, &(yoke_kernel_call){.in = in, .out = &out, .n_in = 3, .n_out = 1});
    assert_true(packed[0] == 2.0f && packed[1] == 0.0f && packed[2] == 3.0f);
    float result = 9.0f;
    yoke_tensor scalar = scalar_of(&result);
    run_ref(YOKE_OP_SUM, &(yoke_kernel_call){.in = &out, .out = &scalar, .n_in = 1, .n_out = 1});
    assert_true(result == 5.0f);
    run_ref(YOKE_OP_SUM_SQUARES,
            &(yoke_kernel_call){.in = &out, .out = &scalar, .n_in = 1, .n_out = 1});
    assert_true(result == 13.0f);
    in[0] = scalar_of(&values[1]);
    run_ref(YOKE_OP_RECIPROCAL,
            &(yoke_kernel_call){.in = in, .out = &scalar, .n_in = 1, .n_out = 1});
    assert_true(result == 0.0f);
}

static void test_convert_slices_and_masks(void **state)
{
    (void)state;
    float whole[3 * 4];
    float y[4] = {9.0f, 9.0f, 9.0f, 9.0f};
    for (int i = 0; i < 12; i++) {
        whole[i] = (float)i + 1.0f;
    }
    yoke_attributes attributes = {.sign = 1};
    yoke_tensor in = piece_of(whole, 2, (int64_t[]){3, 4});
    yoke_tensor out = piece_of(y, 2, (int64_t[]){2, 2});
    out.shard.offset[0] = 1;
    out.shard.offset[1] = 2;
    yoke_kernel_call call = {
        .in = &in, .out = &out, .n_in = 1, .n_out = 1, .attributes = &attributes};
    run_ref(YOKE_OP_CONVERT, &call);
    assert_true(y[0] == 7.0f && y[1] == 8.0f && y[2] == 11.0f && y[3] == 12.0f);
    float kept[12];
    out = piece_of(kept, 2, (int64_t[]){3, 4});
    run_ref(YOKE_OP_CONVERT, &call);
    assert_memory_equal(kept, whole, sizeof whole);
    attributes.sign = 0;
    run_ref(YOKE_OP_CONVERT, &call);
    for (int i = 0; i < 12; i++) {
        assert_true(kept[i] == 0.0f);
    }
}

/* Strips of 2, 1 and no indices along dim 1 of [2, 3, 2], and what they make together. */
static void test_strips_join_to_the_whole(void **state)
{
    (void)state;
    static const int64_t extents[] = {2, 1, 0};
    float whole[12], joined[12], part[3][8];
    for (int i = 0; i < 12; i++) {
        whole[i] = (float)i;
        joined[i] = -1.0f;
    }
    yoke_tensor in = piece_of(whole, 3, (int64_t[]){2, 3, 2});
    yoke_tensor parts[3];
    yoke_attributes attributes = {.strip = {.dim = 1}};
    for (int i = 0; i < 3; i++) {
        memset(part[i], 0xff, sizeof part[i]);
        parts[i] = piece_of(part[i], 3, (int64_t[]){2, extents[i], 2});
        run_ref(YOKE_OP_STRIP,
                &(yoke_kernel_call){
                    .in = &in, .out = &parts[i], .n_in = 1, .n_out = 1, .attributes = &attributes});
        attributes.strip.first += extents[i];
    }
    assert_memory_equal(part[0], ((float[]){0, 1, 2, 3, 6, 7, 8, 9}), 8 * sizeof(float));
    assert_memory_equal(part[1], ((float[]){4, 5, 10, 11}), 4 * sizeof(float));
    assert_true(isnan(part[1][4]) && isnan(part[2][0]));
    yoke_tensor out = piece_of(joined, 3, (int64_t[]){2, 3, 2});
    run_ref(YOKE_OP_JOIN,
            &(yoke_kernel_call){
                .in = parts, .out = &out, .n_in = 3, .n_out = 1, .attributes = &attributes});
    assert_memory_equal(joined, whole, sizeof whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loss_over_shards_of_the_vocabulary),
        cmocka_unit_test(test_loss_of_large_logits_and_not_numbers),
        cmocka_unit_test(test_embedding_over_shards),
        cmocka_unit_test(test_dropout_masks_are_slices),
        cmocka_unit_test(test_adamw_by_hand),
        cmocka_unit_test(test_a_skipped_step_moves_nothing),
        cmocka_unit_test(test_scalars),
        cmocka_unit_test(test_convert_slices_and_masks),
        cmocka_unit_test(test_strips_join_to_the_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
