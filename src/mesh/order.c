/*
 * Order of tokens: chunks c and n - 1 - c side by side. Chunk c stands in slot 2c, chunk n - 1 - c in
 * slot 2c + 1; so by position the even slots come first, upwards, and then the odd ones, downwards.
 */
#include "mesh/order.h"

#include <stdbool.h>

static bool is_plain(yoke_order order)
{
    return order.n_chunks < 2;
}

static int64_t chunk_tokens(yoke_order order)
{
    return order.n_tokens / order.n_chunks;
}

static int64_t chunk_of_slot(yoke_order order, int64_t slot)
{
    return slot % 2 == 0 ? slot / 2 : order.n_chunks - 1 - slot / 2;
}

int64_t yoke_order_position(yoke_order order, int64_t index)
{
    if (is_plain(order)) {
        return index;
    }
    int64_t length = chunk_tokens(order);
    return chunk_of_slot(order, index / length) * length + index % length;
}

int64_t yoke_order_index(yoke_order order, int64_t position)
{
    if (is_plain(order)) {
        return position;
    }
    int64_t length = chunk_tokens(order), chunk = position / length;
    int64_t slot = chunk < order.n_chunks / 2 ? 2 * chunk : 2 * (order.n_chunks - 1 - chunk) + 1;
    return slot * length + position % length;
}

/* The k-th of the slots [low, high] by position. */
static int64_t slot_by_position(int64_t low, int64_t high, int64_t k)
{
    int64_t first_even = low + low % 2;
    int64_t n_even = high < first_even ? 0 : (high - first_even) / 2 + 1;
    int64_t last_odd = high % 2 ? high : high - 1;
    return k < n_even ? first_even + 2 * k : last_odd - 2 * (k - n_even);
}

/* What of the slot lies in [first, first + n). */
static yoke_stretch slot_stretch(yoke_order order, int64_t first, int64_t n, int64_t slot)
{
    int64_t length = chunk_tokens(order);
    int64_t begin = slot * length, end = begin + length;
    begin = begin < first ? first : begin;
    end = end > first + n ? first + n : end;
    return (yoke_stretch){begin, yoke_order_position(order, begin), end - begin};
}

yoke_stretch yoke_order_find(yoke_order order, int64_t first, int64_t n, int64_t j)
{
    if (is_plain(order)) {
        return (yoke_stretch){first + j, first + j, n - j};
    }
    int64_t length = chunk_tokens(order);
    if (n == order.n_tokens) {
        return (yoke_stretch){yoke_order_index(order, j), j, length - j % length};
    }
    int64_t low = first / length, high = (first + n - 1) / length;
    yoke_stretch found = {0};
    for (int64_t k = 0, before = 0; k <= high - low && before <= j; k++) {
        found = slot_stretch(order, first, n, slot_by_position(low, high, k));
        int64_t skipped = j - before;
        before += found.n;
        found = (yoke_stretch){found.index + skipped, found.position + skipped, found.n - skipped};
    }
    return found;
}

static int64_t between(int64_t low, int64_t a, int64_t high)
{
    return a < low ? low : a > high ? high : a;
}

int64_t yoke_order_count(yoke_order order, int64_t first, int64_t n, int64_t position)
{
    if (is_plain(order) || n == order.n_tokens) {
        return between(0, position + 1 - first, n);
    }
    int64_t count = 0;
    for (int64_t j = 0; j < n;) {
        yoke_stretch s = yoke_order_find(order, first, n, j);
        count += between(0, position + 1 - s.position, s.n);
        j += s.n;
    }
    return count;
}
