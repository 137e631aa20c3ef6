/*
 * The set `packed`: matrix products of f32 and bf16 operands for processors with AVX2 and without AVX-512, where it is
 * faster than oneDNN; it has nothing else.
 *
 * Panels of b are packed once for all threads, rows of a once for each slab of columns, and a tile of sums stays in registers
 * (Goto and van de Geijn, 2008; Van Zee and van de Geijn, 2015). oneDNN packs both for each tile that is given to a thread,
 * and not at all where tiles are small. bf16 is widened where it is packed anyway, so it costs nothing. packed.h says why
 * bits do not depend on threads.
 */
#include "kernel/packed.h"

#include "kernel/product.h"
#include "kernel/sets.h"
#include "kernel/vector/pack.h"
#include "kernel/vector/tile.h"
#if defined(_OPENMP)
#include <omp.h>
#endif

_Static_assert((int)TILE_ROWS == (int)YOKE_PACKED_ROWS && (int)LANES == (int)YOKE_PACKED_COLUMNS,
               "panels are as the micro-kernel reads them");

/* A table beyond every cache is read and packed anew for each product, which so many rows do not pay for. With 256 rows of
 * GPT-2's head on 2 cores of an EPYC 9004: 129 and 137 GFLOP/s, oneDNN 138 and 165. */
enum { FEW_ROWS = 512, LARGE_B_BYTES = 64 << 20 };

static const double share_flops = 4e6; /* about 0.05 ms: below it a product stays on one thread */

/* One operand, all products of the batch. */
typedef struct operand {
    const char *data;
    bool narrow;
    bool turned; /* k runs along stored rows */
    int64_t side, stride, elements;
} operand;

typedef struct product {
    yoke_product size;
    operand a, b;
    char *y;
    bool y_narrow, accumulate;
    yoke_packed_cut cut;
    int n_threads;
    float *b_panels, *sums, *a_panels;
    int64_t sums_stride; /* of y if that is f32 */
} product;

/* What is worked on at once: [first, first + n) of each, panels of rows and columns, elements of k. */
typedef struct slab {
    int64_t batch, n_batch;
    int64_t row, n_rows;
    int64_t column, n_columns;
    int64_t k, n_k;
} slab;

/* Some rows and columns of one product of the slab; panels. */
typedef struct job {
    int64_t batch; /* in the slab */
    int64_t row, row_end, column, column_end;
} job;

/* Panel `at` of an operand, its elements [k[0], k[0] + k[1]) along k. */
static inline __attribute__((always_inline)) void operand_pack(const operand *from, int64_t index,
                                                               int64_t at, const int64_t k[2],
                                                               int width, float *to)
{
    int64_t side = at * width;
    int64_t first = from->turned ? side * from->stride + k[0] : k[0] * from->stride + side;
    const stored p = {
        .from = element_at(from->data, index * from->elements + first, from->narrow),
        .stride = from->stride,
        .side = smaller(width, from->side - side),
        .depth = k[1],
        .turned = from->turned,
    };
    if (from->narrow) {
        panel_pack(&p, width, true, to);
    } else {
        panel_pack(&p, width, false, to);
    }
}

static void slab_pack(const product *p, const slab *s)
{
    const int64_t k[2] = {s->k, s->n_k};
#pragma omp for schedule(dynamic, 4)
    for (int64_t i = 0; i < s->n_batch * s->n_columns; i++) {
        operand_pack(&p->b, s->batch + i / s->n_columns, s->column + i % s->n_columns, k, LANES,
                     p->b_panels + i * LANES * s->n_k);
    }
}

/* Sums of the tile at these panels of the slab's product `batch`. */
static float *sums_at(const product *p, const slab *s, int64_t batch, int64_t row, int64_t column)
{
    if (p->y_narrow) {
        int64_t panel_row = batch * p->cut.rows + row - s->row;
        return p->sums + panel_row * TILE_ROWS * p->sums_stride + (column - s->column) * LANES;
    }
    int64_t y_row = (s->batch + batch) * p->size.m + row * TILE_ROWS;
    return (float *)(void *)p->y + y_row * p->sums_stride + column * LANES;
}

/* A tile at the edge: sums go by way of a whole tile. */
static void edge_multiply(strided a, const float *b, int64_t depth, const int64_t extent[2],
                          strided y, bool add)
{
    float tile[TILE_ROWS * LANES];
    tile_multiply(a, b, depth, tile, LANES, false);
    for (int64_t row = 0; row < extent[0]; row++) {
        for (int64_t i = 0; i < extent[1]; i++) {
            float *sum = y.data + row * y.row + i;
            *sum = add ? *sum + tile[row * LANES + i] : tile[row * LANES + i];
        }
    }
}

/* The job's part of one block of k: elements [k[0], k[0] + k[1]) of the slab. Its rows are packed. */
static void block_multiply(const product *p, const slab *s, const job *j, const int64_t k[2],
                           float *a_panels)
{
    bool add = p->accumulate || s->k + k[0] > 0;
    for (int64_t column = j->column; column < j->column_end; column++) {
        int64_t panel = j->batch * s->n_columns + column - s->column;
        const float *b = p->b_panels + (panel * s->n_k + k[0]) * LANES;
        for (int64_t row = j->row; row < j->row_end; row++) {
            strided a = {a_panels + (row - j->row) * TILE_ROWS * k[1], 1, TILE_ROWS};
            const int64_t extent[2] = {smaller(TILE_ROWS, p->size.m - row * TILE_ROWS),
                                       smaller(LANES, p->size.n - column * LANES)};
            float *y = sums_at(p, s, j->batch, row, column);
            if (extent[0] == TILE_ROWS && extent[1] == LANES) {
                tile_multiply(a, b, k[1], y, p->sums_stride, add);
            } else {
                edge_multiply(a, b, k[1], extent, (strided){y, p->sums_stride, 1}, add);
            }
        }
    }
}

static void job_round(const product *p, const slab *s, const job *j)
{
    const float *from = sums_at(p, s, j->batch, j->row, j->column);
    int64_t column = j->column * LANES;
    int64_t n_columns = smaller(j->column_end * LANES, p->size.n) - column;
    int64_t row = j->row * TILE_ROWS;
    int64_t n_rows = smaller(j->row_end * TILE_ROWS, p->size.m) - row;
    int64_t y_row = (s->batch + j->batch) * p->size.m + row;
    yoke_bf16 *y = (yoke_bf16 *)(void *)p->y + y_row * p->size.n + column;
    for (int64_t i = 0; i < n_rows; i++) {
        yoke_product_round(from + i * p->sums_stride, y + i * p->size.n, n_columns);
    }
}

static void job_run(const product *p, const slab *s, const job *j, float *a_panels)
{
    for (int64_t k = 0; k < s->n_k; k += p->cut.block) {
        const int64_t local[2] = {k, smaller(p->cut.block, s->n_k - k)};
        const int64_t global[2] = {s->k + k, local[1]};
        for (int64_t row = j->row; row < j->row_end; row++) {
            operand_pack(&p->a, s->batch + j->batch, row, global, TILE_ROWS,
                         a_panels + (row - j->row) * TILE_ROWS * local[1]);
        }
        block_multiply(p, s, j, local, a_panels);
    }
    if (p->y_narrow && s->k + s->n_k == p->size.k) {
        job_round(p, s, j);
    }
}

/* Jobs are of few rows, so that theirs fit into a cache, and as many for each thread. */
static void slab_multiply(const product *p, const slab *s, float *a_panels)
{
    int64_t n_threads = p->n_threads;
    int64_t by_rows = ceil_div(s->n_rows, YOKE_PACKED_JOB_PANELS);
    int64_t wanted = ceil_div(by_rows * s->n_batch, n_threads) * n_threads;
    by_rows = smaller(ceil_div(wanted, s->n_batch), s->n_rows);
    int64_t by_columns =
        smaller(by_rows * s->n_batch < n_threads ? ceil_div(n_threads, by_rows * s->n_batch) : 1,
                s->n_columns);
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < s->n_batch * by_rows * by_columns; i++) {
        int64_t row = i / by_columns % by_rows;
        int64_t column = i % by_columns;
        job j = {
            .batch = i / by_columns / by_rows,
            .row = s->row + s->n_rows * row / by_rows,
            .row_end = s->row + s->n_rows * (row + 1) / by_rows,
            .column = s->column + s->n_columns * column / by_columns,
            .column_end = s->column + s->n_columns * (column + 1) / by_columns,
        };
        job_run(p, s, &j, a_panels);
    }
}

static int thread_slot(void)
{
#if defined(_OPENMP)
    return omp_get_thread_num();
#else
    return 0;
#endif
}

/* The slab with the given number, k counted fastest. */
static slab slab_get(const product *p, int64_t at, const int64_t n[4])
{
    const yoke_packed_cut *cut = &p->cut;
    slab s = {
        .k = at % n[3] * cut->depth,
        .column = at / n[3] % n[2] * cut->columns,
        .row = at / n[3] / n[2] % n[1] * cut->rows,
        .batch = at / n[3] / n[2] / n[1] * cut->products,
    };
    s.n_k = smaller(cut->depth, p->size.k - s.k);
    s.n_columns = smaller(cut->columns, ceil_div(p->size.n, LANES) - s.column);
    s.n_rows = smaller(cut->rows, ceil_div(p->size.m, TILE_ROWS) - s.row);
    s.n_batch = smaller(cut->products, p->size.n_batch - s.batch);
    return s;
}

static void product_run(product *p)
{
    const yoke_product *size = &p->size;
    const int64_t n[4] = {ceil_div(size->n_batch, p->cut.products),
                          ceil_div(ceil_div(size->m, TILE_ROWS), p->cut.rows),
                          ceil_div(ceil_div(size->n, LANES), p->cut.columns),
                          ceil_div(size->k, p->cut.depth)};
    double flops = 2.0 * (double)(size->n_batch * size->m) * (double)size->n * (double)size->k;
    p->n_threads = flops < 2.0 * share_flops ? 1 : yoke_kernel_threads_get();
#pragma omp parallel num_threads(p->n_threads) if (p->n_threads > 1)
    for (int64_t i = 0; i < n[0] * n[1] * n[2] * n[3]; i++) {
        slab s = slab_get(p, i, n);
        slab_pack(p, &s);
        slab_multiply(p, &s, p->a_panels + thread_slot() * p->cut.a_floats);
    }
}

static operand operand_of(const yoke_tensor *tensor, bool k_is_last, int64_t side, int64_t k)
{
    return (operand){
        .data = tensor->data,
        .narrow = tensor->dtype == YOKE_BF16,
        .turned = k_is_last,
        .side = side,
        .stride = k_is_last ? k : side,
        .elements = side * k,
    };
}

/* Few rows on a large table: oneDNN does these better, with bits of its own. */
static bool is_flat(const yoke_kernel_call *call)
{
    yoke_product size = yoke_piece_contract(call);
    return !yoke_product_is_narrow(call) && size.m <= FEW_ROWS &&
           size.n * size.k * (int64_t)sizeof(float) > LARGE_B_BYTES;
}

static void matmul(const yoke_kernel_call *call)
{
    if (is_flat(call)) {
        yoke_kernel_set_onednn.run[YOKE_OP_MATMUL](call);
        return;
    }
    const yoke_contraction *contraction = &call->attributes->contraction;
    const yoke_tensor *y = &call->out[0];
    product p = {
        .size = yoke_piece_contract(call),
        .y = y->data,
        .y_narrow = y->dtype == YOKE_BF16,
        .accumulate = call->accumulate,
    };
    YOKE_ASSERT(!p.accumulate || !p.y_narrow);
    size_t n_elements = (size_t)(p.size.n_batch * p.size.m * p.size.n);
    if (n_elements == 0) {
        return;
    }
    if (p.size.k == 0) {
        if (!p.accumulate) {
            memset(p.y, 0, n_elements * (p.y_narrow ? sizeof(yoke_bf16) : sizeof(float)));
        }
        return;
    }
    p.a = operand_of(&call->in[0], !contraction->a_transposed, p.size.m, p.size.k);
    p.b = operand_of(&call->in[1], contraction->b_transposed, p.size.n, p.size.k);
    p.cut = yoke_packed_cut_get(&p.size, p.y_narrow);
    p.b_panels = call->scratch;
    p.sums = p.b_panels + p.cut.b_floats;
    p.a_panels = p.sums + p.cut.sum_floats;
    p.sums_stride = p.y_narrow ? p.cut.columns * LANES : p.size.n;
    product_run(&p);
}

static bool supported(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           !__builtin_cpu_supports("avx512f");
}

const yoke_kernel_set yoke_kernel_set_packed = {
    .name = "packed",
    .help = "matrix products of packed panels, for AVX2",
    .supported = supported,
    .run = {[YOKE_OP_MATMUL] = matmul},
    .run_narrow = {[YOKE_OP_MATMUL] = matmul},
};
