/*
 * Small texts for messages. The distance is Damerau's in its restricted form (optimal string alignment), kept to words of
 * at most 63 letters: longer ones are not names that anybody mistypes.
 */
#include "base/text.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "yoke/status.h"

enum { LONGEST_WORD = 63 };

static int min_int(int a, int b)
{
    return a < b ? a : b;
}

static int fold(char letter)
{
    return letter == '-' ? '_' : tolower((unsigned char)letter);
}

/* Fills row i + 1 of the alignment table from the two rows before it. `b_length` columns, one more with the border. */
static void next_row(const char *a, int i, const char *b, int b_length,
                     int rows[3][LONGEST_WORD + 1])
{
    const int *before = rows[(i + 2) % 3];
    const int *above = rows[i % 3];
    int *row = rows[(i + 1) % 3];
    row[0] = i + 1;
    for (int j = 0; j < b_length; j++) {
        int replace = above[j] + (fold(a[i]) != fold(b[j]));
        int best = min_int(replace, min_int(above[j + 1], row[j]) + 1);
        if (i > 0 && j > 0 && fold(a[i]) == fold(b[j - 1]) && fold(a[i - 1]) == fold(b[j])) {
            best = min_int(best, before[j - 1] + 1);
        }
        row[j + 1] = best;
    }
}

static int edit_distance(const char *a, int a_length, const char *b, int b_length)
{
    int rows[3][LONGEST_WORD + 1] = {{0}};
    for (int j = 0; j <= b_length; j++) {
        rows[0][j] = j;
    }
    for (int i = 0; i < a_length; i++) {
        next_row(a, i, b, b_length, rows);
    }
    return rows[a_length % 3][b_length];
}

static const char *first_with_prefix(const char *word, int length, const char *const *names, int n)
{
    for (int k = 0; k < n; k++) {
        int same = 0;
        while (same < length && names[k][same] && fold(names[k][same]) == fold(word[same])) {
            same++;
        }
        if (same == length) {
            return names[k];
        }
    }
    return NULL;
}

const char *yoke_text_nearest(const char *word, const char *const *names, int n)
{
    size_t word_bytes = strlen(word);
    if (word_bytes == 0 || word_bytes > LONGEST_WORD) {
        return NULL;
    }
    int length = (int)word_bytes;
    int best_distance = (length < 6 ? 1 : length / 3) + 1;
    const char *best = NULL;
    for (int k = 0; k < n; k++) {
        size_t name_bytes = strlen(names[k]);
        if (name_bytes > LONGEST_WORD) {
            continue;
        }
        int distance = edit_distance(word, length, names[k], (int)name_bytes);
        /* A word of one letter is one replacement from any other: that is not nearness. */
        if (distance < best_distance && (distance < length || distance == 0)) {
            best_distance = distance;
            best = names[k];
        }
    }
    return best || length < 2 ? best : first_with_prefix(word, length, names, n);
}

const char *yoke_text_bytes(double bytes, char *buf, int n)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    YOKE_ASSERT(n > 0);
    int unit = 0;
    /* 1023.95 is the first value that "%.1f" would print as 1024.0. */
    while (fabs(bytes) >= (unit == 0 ? 1023.5 : 1023.95) && unit < 6) {
        bytes /= 1024.0;
        unit++;
    }
    (void)snprintf(buf, (size_t)n, unit == 0 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
    return buf;
}
