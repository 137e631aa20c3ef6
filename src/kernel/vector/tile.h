/*
 * Small matrix products on packed operands: the inner loops of attention.
 *
 * The right operand lies in panels of 16 columns, [panel][depth][16], so that each step of the depth reads one panel row;
 * the left one in any strides. A tile of TILE_ROWS x 16 sums stays in registers (Goto and van de Geijn, 2008).
 */
#ifndef YOKE_KERNEL_VECTOR_TILE_H
#define YOKE_KERNEL_VECTOR_TILE_H

#include "kernel/vector/vector.h"

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

/* Rows of 16 at a time, turned: panels [rows / 16][width][16] of a matrix whose rows have the stride. Missing rows are 0. */
static inline void pack_turned(const float *from, int64_t stride, int64_t rows, int64_t width,
                               float *to)
{
    for (int64_t first = 0; first < rows; first += LANES) {
        for (int64_t lane = 0; lane < LANES; lane++) {
            bool is_there = first + lane < rows;
            for (int64_t x = 0; x < width; x++) {
                to[x * LANES + lane] = is_there ? from[(first + lane) * stride + x] : 0.0f;
            }
        }
        to += width * LANES;
    }
}

/* Panels [width / 16][rows][16]. Missing columns are 0. */
static inline void pack_straight(const float *from, int64_t stride, int64_t rows, int64_t width,
                                 float *to)
{
    for (int64_t x = 0; x < width; x += LANES) {
        for (int64_t row = 0; row < rows; row++) {
            lanes_store(to, lanes_get(from + row * stride + x, width - x, 0.0f));
            to += LANES;
        }
    }
}

#endif
