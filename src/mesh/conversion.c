/*
 * Conversion: the redistribution table, as data.
 *
 * One row and column a kind of place; the entry is the collective that takes a tensor from the one
 * to the other along one axis. Costs are those of bandwidth-optimal algorithms (Thakur,
 * Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005).
 * Nothing here moves data.
 */
#include "yoke/layout.h"

#include <math.h>

static const char *const conversion_names[] = {
#define CONVERSION_NAME(upper, lower) #lower,
    YOKE_CONVERSION_LIST(CONVERSION_NAME)
#undef CONVERSION_NAME
};

enum { N_CONVERSIONS = sizeof conversion_names / sizeof conversion_names[0] };

enum place_kind { REPLICATED, SHARDED, SUM, MAX, N_PLACE_KINDS };

/* Rotations are not found here: no place asks for one. Shard to shard on the same dim never gets
 * here: equal places are NONE before the table is read. R -> MAX is illegal because the zeros that
 * MASK puts on the others are no neutral element of a maximum, and MAX -> S because no exchange takes
 * the maximum of pieces: whoever wants a piece has all of it first. */
static const yoke_conversion table[N_PLACE_KINDS][N_PLACE_KINDS] = {
    [REPLICATED] = {[REPLICATED] = YOKE_CONVERT_NONE,
                    [SHARDED] = YOKE_CONVERT_SLICE,
                    [SUM] = YOKE_CONVERT_MASK,
                    [MAX] = YOKE_CONVERT_ILLEGAL},
    [SHARDED] = {[REPLICATED] = YOKE_CONVERT_ALL_GATHER,
                 [SHARDED] = YOKE_CONVERT_ALL_TO_ALL,
                 [SUM] = YOKE_CONVERT_ILLEGAL,
                 [MAX] = YOKE_CONVERT_ILLEGAL},
    [SUM] = {[REPLICATED] = YOKE_CONVERT_ALL_REDUCE,
             [SHARDED] = YOKE_CONVERT_REDUCE_SCATTER,
             [SUM] = YOKE_CONVERT_NONE,
             [MAX] = YOKE_CONVERT_ILLEGAL},
    [MAX] = {[REPLICATED] = YOKE_CONVERT_ALL_REDUCE,
             [SHARDED] = YOKE_CONVERT_ILLEGAL,
             [SUM] = YOKE_CONVERT_ILLEGAL,
             [MAX] = YOKE_CONVERT_NONE},
};

static enum place_kind kind_of(int place)
{
    YOKE_ASSERT(place >= YOKE_PARTIAL_MAX && place < YOKE_MAX_DIMS);
    switch (place) {
    case YOKE_REPLICATED:
        return REPLICATED;
    case YOKE_PARTIAL_SUM:
        return SUM;
    case YOKE_PARTIAL_MAX:
        return MAX;
    default:
        return SHARDED;
    }
}

const char *yoke_conversion_name(yoke_conversion conversion)
{
    YOKE_ASSERT((int)conversion >= 0 && (int)conversion < N_CONVERSIONS);
    return conversion_names[conversion];
}

yoke_conversion yoke_conversion_find(int from, int to)
{
    yoke_conversion found = table[kind_of(from)][kind_of(to)];
    return from == to ? YOKE_CONVERT_NONE : found;
}

double yoke_conversion_elements(yoke_conversion conversion, double elements, int n_ranks)
{
    YOKE_ASSERT(n_ranks >= 1);
    double others = (double)(n_ranks - 1) / (double)n_ranks;
    switch (conversion) {
    case YOKE_CONVERT_ALL_REDUCE:
        return 2.0 * elements * others;
    case YOKE_CONVERT_REDUCE_SCATTER:
    case YOKE_CONVERT_ALL_GATHER:
        return elements * others;
    case YOKE_CONVERT_ALL_TO_ALL:
        return elements / (double)n_ranks * others;
    case YOKE_CONVERT_ROTATE:
        return elements / (double)n_ranks;
    case YOKE_CONVERT_NONE:
    case YOKE_CONVERT_SLICE:
    case YOKE_CONVERT_MASK:
        return 0.0;
    case YOKE_CONVERT_ILLEGAL:
        break;
    }
    return (double)INFINITY;
}
