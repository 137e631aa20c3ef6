/*
 * The set `onednn`: matrix products by oneDNN's sgemm, in 2.6 and 3.x alike; it has nothing else. Those of f32 alone are
 * here, all others in product.c.
 *
 * oneDNN splits a product over threads in ways that change the order of summation. So the output is cut here into tiles
 * that depend on the sizes alone, and each tile is one product on one thread: any number of threads gives equal bits.
 */
#include "kernel/sets.h"

#include <dnnl.h>
#include "kernel/piece.h"
#include "kernel/product.h"
#if defined(_OPENMP)
#include <omp.h>
#endif

enum {
    UNIT = 16,     /* tile sides are multiples of this */
    MIN_SIDE = 64, /* below it oneDNN's own kernels lose more than a second thread wins */
    FEW_TILES = 8,
    MANY_TILES = 16,
    /* Rows that are multiples of this many floats share cache sets. oneDNN copies operands only for large tiles: on an
     * EPYC 9004 core a tile of 384 x 768 of such rows ran at 33 GFLOP/s, one of 768 x 768 at 80. */
    BAD_STRIDE = 512,
    MIN_BAD_TILE = 512 * 768,
};

static const double tile_flops = 8e6; /* about 0.1 ms: below it a tile is not cut */
static const double many_flops = 4e9;

typedef struct product {
    yoke_product size;
    const float *a, *b;
    float *y;
    bool a_transposed, b_transposed;
    float beta;
} product;

typedef struct grid {
    int64_t rows, columns;     /* of a tile */
    int64_t n_rows, n_columns; /* tiles of one product */
} grid;

static int64_t half_side(int64_t side)
{
    return (side / 2 + UNIT - 1) / UNIT * UNIT;
}

/* Tiles are halved along their longer side until there are enough of them. */
static grid grid_choose(const product *p)
{
    const yoke_product *size = &p->size;
    double flops = 2.0 * (double)size->m * (double)size->n * (double)size->k;
    int64_t wanted = flops < many_flops ? FEW_TILES : MANY_TILES;
    wanted = flops / tile_flops < (double)wanted ? (int64_t)(flops / tile_flops) : wanted;
    bool is_bad = (p->a_transposed && size->m % BAD_STRIDE == 0) ||
                  (!p->b_transposed && size->n % BAD_STRIDE == 0);
    int64_t min_area = is_bad && size->m * size->n >= MIN_BAD_TILE ? MIN_BAD_TILE : 0;
    grid tiles = {.rows = size->m, .columns = size->n};
    for (int64_t n_tiles = 1; n_tiles < wanted; n_tiles *= 2) {
        int64_t *side = tiles.rows > tiles.columns ? &tiles.rows : &tiles.columns;
        if (*side / 2 < MIN_SIDE || tiles.rows * tiles.columns < 2 * min_area) {
            break;
        }
        *side = half_side(*side);
    }
    tiles.n_rows = (size->m + tiles.rows - 1) / tiles.rows;
    tiles.n_columns = (size->n + tiles.columns - 1) / tiles.columns;
    return tiles;
}

/* Tiles are counted through all products of the batch. */
static void tile_run(const product *p, const grid *tiles, int64_t tile)
{
    int64_t n_tiles = tiles->n_rows * tiles->n_columns;
    int64_t index = tile / n_tiles;
    tile %= n_tiles;
    int64_t m = tile / tiles->n_columns * tiles->rows;
    int64_t n = tile % tiles->n_columns * tiles->columns;
    int64_t rows = p->size.m - m < tiles->rows ? p->size.m - m : tiles->rows;
    int64_t columns = p->size.n - n < tiles->columns ? p->size.n - n : tiles->columns;
    int64_t a_stride = p->a_transposed ? p->size.m : p->size.k;
    int64_t b_stride = p->b_transposed ? p->size.k : p->size.n;
    const float *a = p->a + index * p->size.m * p->size.k + m * (p->a_transposed ? 1 : a_stride);
    const float *b = p->b + index * p->size.k * p->size.n + n * (p->b_transposed ? b_stride : 1);
    float *y = p->y + (index * p->size.m + m) * p->size.n + n;
    dnnl_status_t status =
        dnnl_sgemm(p->a_transposed ? 'T' : 'N', p->b_transposed ? 'T' : 'N', rows, columns,
                   p->size.k, 1.0f, a, a_stride, b, b_stride, p->beta, y, p->size.n);
    YOKE_ASSERT(status == dnnl_success);
}

/* Runs all tiles, each on one thread. */
static void tiles_run(const product *p, const grid *tiles)
{
    int64_t n_tiles = p->size.n_batch * tiles->n_rows * tiles->n_columns;
#if defined(_OPENMP)
    int n_threads = omp_get_max_threads();
#pragma omp parallel num_threads(n_threads) if (n_tiles > 1)
    {
        omp_set_num_threads(1);
#pragma omp for schedule(dynamic, 1)
        for (int64_t tile = 0; tile < n_tiles; tile++) {
            tile_run(p, tiles, tile);
        }
    }
    omp_set_num_threads(n_threads);
#else
    for (int64_t tile = 0; tile < n_tiles; tile++) {
        tile_run(p, tiles, tile);
    }
#endif
}

static void matmul_f32(const yoke_kernel_call *call)
{
    const yoke_contraction *contraction = &call->attributes->contraction;
    product p = {
        .size = yoke_piece_contract(call),
        .a = call->in[0].data,
        .b = call->in[1].data,
        .y = call->out[0].data,
        .a_transposed = contraction->a_transposed,
        .b_transposed = contraction->b_transposed,
        .beta = call->accumulate ? 1.0f : 0.0f,
    };
    int64_t n_elements = p.size.n_batch * p.size.m * p.size.n;
    if (n_elements == 0) {
        return;
    }
    if (p.size.k == 0) {
        for (int64_t i = 0; i < n_elements && !call->accumulate; i++) {
            p.y[i] = 0.0f;
        }
        return;
    }
    grid tiles = grid_choose(&p);
    tiles_run(&p, &tiles);
}

static void matmul(const yoke_kernel_call *call)
{
    if (yoke_product_is_narrow(call)) {
        yoke_product_run(call, &yoke_multiplier_f32);
    } else {
        matmul_f32(call);
    }
}

void yoke_product_in_bf16(const yoke_kernel_call *call)
{
    if (yoke_product_is_narrow(call)) {
        yoke_product_run(call, &yoke_multiplier_bf16);
    } else {
        matmul_f32(call);
    }
}

const yoke_kernel_set yoke_kernel_set_onednn = {
    .name = "onednn",
    .help = "matrix products by oneDNN",
    .run = {[YOKE_OP_MATMUL] = matmul},
    .run_narrow = {[YOKE_OP_MATMUL] = matmul},
};
