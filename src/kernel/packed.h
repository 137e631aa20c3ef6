/*
 * How the set `packed` cuts a matrix product, and the scratch it takes: who sizes scratch and who uses it read the same
 * numbers.
 *
 * y[m,n] = a[m,k] b[k,n]. Along k there are blocks, of sizes that depend on k alone, and each element of y is the sum of its
 * blocks in order. So nothing else of the cut, and no number of threads, changes any bits.
 */
#ifndef YOKE_KERNEL_PACKED_H
#define YOKE_KERNEL_PACKED_H

#include "kernel/piece.h"

enum {
    YOKE_PACKED_ROWS = 6, /* in a panel of a: of the micro-kernel of AVX2 */
    YOKE_PACKED_COLUMNS = 16,
    /* On an EPYC 9004 core with 32 KiB of L1 and 1 MiB of L2: a panel of b takes half of L1, the rows of a job 1/8 of L2. */
    YOKE_PACKED_BLOCK = 256,
    YOKE_PACKED_JOB_PANELS = 22,
    /* Of b, packed at once for all threads: 3 MiB, in the L3. */
    YOKE_PACKED_DEPTH_BLOCKS = 4,
    YOKE_PACKED_COLUMN_PANELS = 48,
    YOKE_PACKED_B_FLOATS = YOKE_PACKED_BLOCK * YOKE_PACKED_DEPTH_BLOCKS *
                           YOKE_PACKED_COLUMN_PANELS * YOKE_PACKED_COLUMNS,
    /* Of sums that are rounded to bf16 when they are complete. */
    YOKE_PACKED_SUM_PANELS = 171,
    YOKE_PACKED_SUM_FLOATS =
        YOKE_PACKED_SUM_PANELS * YOKE_PACKED_ROWS * YOKE_PACKED_COLUMN_PANELS * YOKE_PACKED_COLUMNS,
};

/* A slab is what is worked on at once: some products of the batch, rows, columns and a part of k. */
typedef struct yoke_packed_cut {
    int64_t block;         /* along k */
    int64_t depth;         /* of a slab along k: whole blocks */
    int64_t products;      /* of a slab */
    int64_t rows, columns; /* panels of a slab, of each of its products */
    int64_t a_floats;      /* of a thread */
    int64_t b_floats, sum_floats;
} yoke_packed_cut;

static inline int64_t yoke_packed_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t yoke_packed_parts(int64_t whole, int64_t part)
{
    return (whole + part - 1) / part;
}

/* Of a product without an extent of 0. */
static inline yoke_packed_cut yoke_packed_cut_get(const yoke_product *size, bool y_is_narrow)
{
    int64_t n_blocks = yoke_packed_parts(size->k, YOKE_PACKED_BLOCK);
    int64_t rows = yoke_packed_parts(size->m, YOKE_PACKED_ROWS);
    int64_t columns = yoke_packed_parts(size->n, YOKE_PACKED_COLUMNS);
    yoke_packed_cut cut = {
        .block = (yoke_packed_parts(size->k, n_blocks) + 3) / 4 * 4,
        .rows = y_is_narrow ? yoke_packed_least(rows, YOKE_PACKED_SUM_PANELS) : rows,
        .columns =
            yoke_packed_parts(columns, yoke_packed_parts(columns, YOKE_PACKED_COLUMN_PANELS)),
        .products = 1,
    };
    cut.depth = cut.block * yoke_packed_least(n_blocks, YOKE_PACKED_DEPTH_BLOCKS);
    int64_t b_floats = cut.columns * YOKE_PACKED_COLUMNS * cut.depth;
    int64_t sum_floats = cut.rows * YOKE_PACKED_ROWS * cut.columns * YOKE_PACKED_COLUMNS;
    if (cut.rows == rows && cut.columns == columns && cut.depth >= size->k &&
        sum_floats <= YOKE_PACKED_SUM_FLOATS) {
        int64_t fit =
            yoke_packed_least(YOKE_PACKED_B_FLOATS / b_floats, YOKE_PACKED_SUM_FLOATS / sum_floats);
        cut.products = yoke_packed_least(fit, size->n_batch);
    }
    cut.a_floats =
        yoke_packed_least(cut.rows, YOKE_PACKED_JOB_PANELS) * YOKE_PACKED_ROWS * cut.block;
    cut.b_floats = cut.products * b_floats;
    cut.sum_floats = y_is_narrow ? cut.products * sum_floats : 0;
    return cut;
}

static inline size_t yoke_packed_bytes(const yoke_packed_cut *cut, int n_threads)
{
    return sizeof(float) * (size_t)(cut->b_floats + cut->sum_floats + n_threads * cut->a_floats);
}

#endif
