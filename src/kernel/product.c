/*
 * Products of bf16 and f32 operands: tiles of the output, each a sum over blocks along k.
 *
 * A block of an operand that is not of the multiplier's type is converted into scratch first. Each is converted once for
 * every tile that it is part of: with tiles of 384 x 384 that is one conversion for 384 products. A bf16 output
 * is rounded from the f32 sums of its tile, once.
 *
 * Blocks in scratch have rows that do not share cache sets, so all that may be strided badly is copied too: on an
 * EPYC 9004 core oneDNN 2.6 multiplied blocks of 384 at 88 GFLOP/s and the same numbers out of rows of 12 KiB at 28.
 */
#include "kernel/product.h"

#include <string.h>
#include "base/bf16.h"
#include "kernel/piece.h"
#if defined(_OPENMP)
#include <omp.h>
#endif

enum {
    UNIT = 16, /* sides of tiles and blocks are multiples of this */
    /* Sides of a tile and the depth of a block along k. On an EPYC 9004 core, as shares of products of f32: 384 and 384
     * 97.0 %, 512 and 256 97.6 %, 768 and 256 98.9 %. */
    MAX_SIDE = 768,
    MAX_DEPTH = 256,
    MIN_SIDE = 64, /* below it oneDNN's own kernels lose more than a second thread wins */
    FEW_TILES = 8,
    MANY_TILES = 16,
    BAD_STRIDE_BYTES = 2048, /* rows that are multiples of it apart share cache sets */
};

static const double tile_flops = 8e6; /* about 0.1 ms: below it a tile is not cut */
static const double many_flops = 4e9;

typedef struct grid {
    int64_t rows, columns, depth; /* of a tile, and of a block along k */
    int64_t n_rows, n_columns;    /* tiles of one product */
} grid;

/* One operand, all products of the batch. */
typedef struct operand {
    const char *data;
    yoke_dtype type;
    bool transposed;
    int64_t stride, elements; /* of a stored row; of one product */
} operand;

typedef struct product {
    yoke_product size;
    operand a, b;
    char *y;
    yoke_dtype y_type;
    bool accumulate;
    const yoke_multiplier *multiplier;
    grid grid;
    char *scratch;
    size_t thread_bytes;
} product;

static size_t type_bytes(yoke_dtype type)
{
    return type == YOKE_BF16 ? sizeof(yoke_bf16) : sizeof(float);
}

static int64_t min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The parts of `side`, an even number so that two or four threads share them. */
static int64_t parts_of(int64_t side, int64_t most)
{
    int64_t n = (side + most - 1) / most;
    return n > 1 ? n + n % 2 : 1;
}

static int64_t part_of(int64_t side, int64_t n_parts)
{
    return ((side + n_parts - 1) / n_parts + UNIT - 1) / UNIT * UNIT;
}

static grid grid_choose(const yoke_product *size)
{
    double flops = 2.0 * (double)size->m * (double)size->n * (double)size->k;
    double most = flops < many_flops ? FEW_TILES : MANY_TILES;
    double wanted = flops / tile_flops < most ? flops / tile_flops : most;
    int64_t m_parts = parts_of(size->m, MAX_SIDE);
    int64_t n_parts = parts_of(size->n, MAX_SIDE);
    int64_t k_parts = (size->k + MAX_DEPTH - 1) / MAX_DEPTH;
    while ((double)(m_parts * n_parts) < wanted) {
        bool by_rows = size->m / m_parts > size->n / n_parts;
        int64_t side = by_rows ? size->m / m_parts : size->n / n_parts;
        if (side / 2 < MIN_SIDE) {
            break;
        }
        *(by_rows ? &m_parts : &n_parts) *= 2;
    }
    grid g = {.rows = part_of(size->m, m_parts),
              .columns = part_of(size->n, n_parts),
              .depth = part_of(size->k, k_parts > 0 ? k_parts : 1)};
    g.n_rows = (size->m + g.rows - 1) / g.rows;
    g.n_columns = (size->n + g.columns - 1) / g.columns;
    return g;
}

/* Elements from one row of a block to the next. */
static int64_t block_stride(int64_t columns)
{
    return columns + UNIT;
}

static size_t block_elements(int64_t side, int64_t depth)
{
    int64_t plain = side * block_stride(depth);
    int64_t transposed = depth * block_stride(side);
    return (size_t)(plain > transposed ? plain : transposed);
}

/* Of one thread: a block of each operand and the sums of a tile. */
static size_t thread_bytes(const grid *g)
{
    return sizeof(float) *
           (block_elements(g->rows, g->depth) + block_elements(g->columns, g->depth) +
            (size_t)(g->rows * block_stride(g->columns)));
}

static bool is_narrow(const yoke_tensor *tensor)
{
    return tensor->dtype == YOKE_BF16;
}

bool yoke_product_is_narrow(const yoke_kernel_call *call)
{
    return is_narrow(&call->in[0]) || is_narrow(&call->in[1]) || is_narrow(&call->out[0]);
}

size_t yoke_product_scratch_bytes(const yoke_kernel_call *call, int n_threads)
{
    if (!yoke_product_is_narrow(call)) {
        return 0;
    }
    yoke_product size = yoke_piece_contract(call);
    if (size.n_batch * size.m * size.n == 0 || size.k == 0) {
        return 0;
    }
    grid g = grid_choose(&size);
    int64_t n_tiles = size.n_batch * g.n_rows * g.n_columns;
    /* Any thread may take any tile. */
    return (n_tiles > 1 ? (size_t)n_threads : 1) * thread_bytes(&g);
}

static void convert(const void *in, yoke_dtype from, void *out, yoke_dtype to, int64_t n)
{
    if (from == to) {
        memcpy(out, in, (size_t)n * type_bytes(from));
    } else if (from == YOKE_BF16) {
        yoke_product_widen(in, out, n);
    } else {
        yoke_product_round(in, out, n);
    }
}

/* The block of stored rows [row, row + n_rows) and columns [column, column + n_columns) of one product, as the multiplier
 * reads it, in `scratch` if it must be converted or strides badly; sets the stride. */
typedef struct block {
    int64_t row, column, n_rows, n_columns;
} block;

static const void *block_get(const operand *from, int64_t index, const block *at, yoke_dtype type,
                             void *scratch, int64_t *stride)
{
    size_t bytes = type_bytes(from->type);
    int64_t first = index * from->elements + at->row * from->stride + at->column;
    const char *in = from->data + (size_t)first * bytes;
    bool bad = (size_t)from->stride * bytes % BAD_STRIDE_BYTES == 0 && at->n_rows > UNIT;
    if (from->type == type && !bad) {
        *stride = from->stride;
        return in;
    }
    *stride = block_stride(at->n_columns);
    for (int64_t row = 0; row < at->n_rows; row++) {
        convert(in + (size_t)(row * from->stride) * bytes, from->type,
                (char *)scratch + (size_t)(row * *stride) * type_bytes(type), type, at->n_columns);
    }
    return scratch;
}

/* Rows and columns as stored: `side` counts along m or n, `depth` along k. */
static block block_at(const operand *from, bool side_first, const int64_t side[2],
                      const int64_t depth[2])
{
    return side_first != from->transposed ? (block){side[0], depth[0], side[1], depth[1]}
                                          : (block){depth[0], side[0], depth[1], side[1]};
}

/* Adds all blocks along k into tile->y. */
static void tile_sum(const product *p, int64_t index, const int64_t rows[2],
                     const int64_t columns[2], yoke_tile *tile, float *scratch)
{
    float *b_scratch = scratch + block_elements(p->grid.rows, p->grid.depth);
    yoke_dtype type = p->multiplier->type;
    for (int64_t k = 0; k < p->size.k; k += p->grid.depth) {
        const int64_t depth[2] = {k, min(p->grid.depth, p->size.k - k)};
        block a = block_at(&p->a, true, rows, depth);
        block b = block_at(&p->b, false, columns, depth);
        tile->k = depth[1];
        tile->a = block_get(&p->a, index, &a, type, scratch, &tile->a_stride);
        tile->b = block_get(&p->b, index, &b, type, b_scratch, &tile->b_stride);
        p->multiplier->multiply(tile);
        tile->beta = 1.0f;
    }
}

/* Tiles are counted through all products of the batch. */
static void tile_run(const product *p, int64_t at, int thread)
{
    const grid *g = &p->grid;
    int64_t index = at / (g->n_rows * g->n_columns);
    at %= g->n_rows * g->n_columns;
    int64_t m = at / g->n_columns * g->rows;
    int64_t n = at % g->n_columns * g->columns;
    const int64_t rows[2] = {m, min(g->rows, p->size.m - m)};
    const int64_t columns[2] = {n, min(g->columns, p->size.n - n)};
    float *scratch = (float *)(void *)(p->scratch + (size_t)thread * p->thread_bytes);
    float *sums =
        scratch + block_elements(g->rows, g->depth) + block_elements(g->columns, g->depth);
    bool rounds = p->y_type == YOKE_BF16;
    char *y = p->y + (size_t)((index * p->size.m + m) * p->size.n + n) * type_bytes(p->y_type);
    yoke_tile tile = {
        .m = rows[1],
        .n = columns[1],
        .y = rounds ? sums : (float *)(void *)y,
        .y_stride = rounds ? block_stride(g->columns) : p->size.n,
        .a_transposed = p->a.transposed,
        .b_transposed = p->b.transposed,
        .beta = p->accumulate ? 1.0f : 0.0f,
    };
    tile_sum(p, index, rows, columns, &tile, scratch);
    for (int64_t row = 0; rounds && row < tile.m; row++) {
        yoke_product_round(sums + row * tile.y_stride, (yoke_bf16 *)(void *)y + row * p->size.n,
                           tile.n);
    }
}

static void tiles_run(const product *p)
{
    int64_t n_tiles = p->size.n_batch * p->grid.n_rows * p->grid.n_columns;
#if defined(_OPENMP)
    int n_threads = omp_get_max_threads();
#pragma omp parallel num_threads(n_threads) if (n_tiles > 1)
    {
        omp_set_num_threads(1);
#pragma omp for schedule(dynamic, 1)
        for (int64_t tile = 0; tile < n_tiles; tile++) {
            tile_run(p, tile, omp_get_thread_num());
        }
    }
    omp_set_num_threads(n_threads);
#else
    for (int64_t tile = 0; tile < n_tiles; tile++) {
        tile_run(p, tile, 0);
    }
#endif
}

static operand operand_of(const yoke_tensor *tensor, bool transposed, int64_t rows, int64_t columns)
{
    return (operand){
        .data = tensor->data,
        .type = tensor->dtype,
        .transposed = transposed,
        .stride = transposed ? rows : columns,
        .elements = rows * columns,
    };
}

void yoke_product_run(const yoke_kernel_call *call, const yoke_multiplier *multiplier)
{
    const yoke_contraction *contraction = &call->attributes->contraction;
    const yoke_tensor *y = &call->out[0];
    YOKE_ASSERT(!call->accumulate || y->dtype == YOKE_F32);
    product p = {
        .size = yoke_piece_contract(call),
        .y = y->data,
        .y_type = y->dtype,
        .accumulate = call->accumulate,
        .multiplier = multiplier,
        .scratch = call->scratch,
    };
    int64_t n_elements = p.size.n_batch * p.size.m * p.size.n;
    if (n_elements == 0) {
        return;
    }
    if (p.size.k == 0) {
        if (!call->accumulate) {
            memset(p.y, 0, (size_t)n_elements * type_bytes(p.y_type));
        }
        return;
    }
    p.a = operand_of(&call->in[0], contraction->a_transposed, p.size.m, p.size.k);
    p.b = operand_of(&call->in[1], contraction->b_transposed, p.size.k, p.size.n);
    p.grid = grid_choose(&p.size);
    p.thread_bytes = thread_bytes(&p.grid);
    tiles_run(&p);
}
