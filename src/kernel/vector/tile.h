/*
 * Small matrix products on packed operands: the inner loops of attention.
 *
 * The right operand lies in panels of 16 columns, [panel][depth][16], so that each step of the depth reads one panel row;
 * the left one in any strides. A tile of TILE_ROWS x 16 sums stays in registers (Goto and van de Geijn, 2008).
 */
#ifndef YOKE_KERNEL_VECTOR_TILE_H
#define YOKE_KERNEL_VECTOR_TILE_H

#include "kernel/vector/pack.h"
#include "kernel/vector/real.h"

typedef struct strided {
    float *data;
    int64_t row, column; /* strides */
} strided;

/* c[TILE_ROWS, 16] = a[TILE_ROWS, depth] b[depth, 16], or added to c. */
static inline void tile_multiply(strided a, const float *b, int64_t depth, float *c, int64_t c_row,
                                 bool add)
{
    vec sum[TILE_ROWS][PARTS];
    for (int r = 0; r < TILE_ROWS; r++) {
        for (int i = 0; i < PARTS; i++) {
            sum[r][i] = vec_set(0.0f);
        }
    }
    for (int64_t k = 0; k < depth; k++) {
        vec row[PARTS];
        for (int64_t i = 0; i < PARTS; i++) {
            row[i] = vec_load(b + k * LANES + i * WIDTH);
        }
        for (int r = 0; r < TILE_ROWS; r++) {
            vec factor = vec_set(a.data[r * a.row + k * a.column]);
            for (int i = 0; i < PARTS; i++) {
                sum[r][i] = vec_fma(factor, row[i], sum[r][i]);
            }
        }
    }
    for (int r = 0; r < TILE_ROWS; r++) {
        for (int64_t i = 0; i < PARTS; i++) {
            float *to = c + r * c_row + i * WIDTH;
            vec_store(to, add ? vec_load(to) + sum[r][i] : sum[r][i]);
        }
    }
}

typedef struct multiply {
    strided a;      /* [rows, depth]; rows up to whole tiles can be read */
    const float *b; /* [panels][panel_depth][16], of which `depth` are used */
    float *c;       /* rows up to whole tiles can be written */
    int64_t c_row, rows, depth, panels, panel_depth;
    bool add;
} multiply;

static inline void multiply_run(const multiply *m)
{
    for (int64_t panel = 0; panel < m->panels; panel++) {
        const float *b = m->b + panel * m->panel_depth * LANES;
        for (int64_t row = 0; row < m->rows; row += TILE_ROWS) {
            strided a = {m->a.data + row * m->a.row, m->a.row, m->a.column};
            tile_multiply(a, b, m->depth, m->c + row * m->c_row + panel * LANES, m->c_row, m->add);
        }
    }
}

/* A matrix whose rows have the stride, or some rows of it, which then begin at row `first` of the packed. */
typedef struct packing {
    const real *from;
    int64_t stride, rows, width;
    int64_t first;
} packing;

/* Panels [rows / 16][width][16]: a panel's lanes are rows. Rows missing in the last one are 0. A panel whose rows do not
 * all stand here gets them one at a time. */
static inline void pack_turned(const packing *p, float *to)
{
    int64_t end = p->first + p->rows;
    int64_t n_rows;
    for (int64_t row = p->first; row < ceil_div(end, LANES) * LANES; row += n_rows) {
        bool whole = row % LANES == 0 && row + LANES <= end;
        n_rows = whole ? LANES : 1;
        const stored rows = {.from = (const char *)(p->from + (row - p->first) * p->stride),
                             .stride = p->stride,
                             .side = LANES,
                             .depth = p->width,
                             .turned = true};
        float *lane = to + row / LANES * LANES * p->width + row % LANES;
        if (whole) {
            panel_pack(&rows, LANES, sizeof(real) == sizeof(yoke_bf16), lane);
        }
        for (int64_t x = 0; x < p->width && !whole; x++) {
            lane[x * LANES] =
                row < end ? real_widen(p->from[(row - p->first) * p->stride + x]) : 0.0f;
        }
    }
}

/* Panels [width / 16][panel_rows][16]. Missing columns are 0. */
static inline void pack_straight(const packing *p, int64_t panel_rows, float *to)
{
    for (int64_t x = 0; x < p->width; x += LANES) {
        float *row = to + (x / LANES * panel_rows + p->first) * LANES;
        for (int64_t i = 0; i < p->rows; i++) {
            lanes_store(row, lanes_get_real(p->from + i * p->stride + x, p->width - x, 0.0f));
            row += LANES;
        }
    }
}

#endif
